//! Arguments as `name=value` pairs, separated by commas or `and`: `pattern=*.py and path=/tmp`.
//!
//! Either all pairs are read exactly, or none.

use super::{
    KnownTool,
    argument::{self, Args, ArgumentValue},
    lenient, marker, sentence,
    source::{Comments, Source, is_name_byte},
};

pub(super) enum Pairs {
    Read(Args, usize),
    Absent,
    /// A pair begins, but the end of a value is ambiguous. The scan continues at this position.
    Ambiguous(usize),
    Cut,
}

#[derive(Clone, Copy)]
struct Key<'a> {
    name: &'a str,
    value: usize,
}

/// Reads pairs up to the end of a sentence, a line or the text. An unquoted value is one word,
/// because prose does not mark the end of a phrase.
pub(super) fn read(source: &Source<'_>, index: usize, tool: &KnownTool) -> Pairs {
    let Some(mut key) = key_at(source, index) else { return Pairs::Absent };
    let mut args = Args::new();
    loop {
        let given = argument::read_quoted(source, key.value);
        let (value, end) = match given.unwrap_or_else(|| read_word(source, key, tool)) {
            ArgumentValue::Value(value, end) => (value, end),
            ArgumentValue::None(end) => return Pairs::Ambiguous(end),
            ArgumentValue::Cut => return Pairs::Cut,
        };
        if args.insert(key.name.to_owned(), value).is_some() {
            return Pairs::Ambiguous(end);
        }
        match next_key(source, end) {
            Some(next) => key = next,
            None if ends_sentence(source, end, tool) => return Pairs::Read(args, end),
            None => return Pairs::Ambiguous(end),
        }
    }
}

/// Reads a text that contains only arguments. Also returns the number of steps of the reader. An
/// unquoted value extends to the next pair, or to the end of the text.
pub(super) fn read_whole(text: &str, tool: &KnownTool) -> (Option<Args>, usize) {
    let source = Source::new(text);
    let start = source.skip_markup(0);
    if start == text.len() {
        return (Some(Args::new()), source.steps());
    }
    if source.byte(start) == Some(b'{') {
        let (object, steps) = lenient::read_whole_object(text);
        return (object.map(lenient::Object::into_map), steps + source.steps());
    }
    let args = whole_pairs(&source, start, tool);
    (args, source.steps())
}

fn whole_pairs(source: &Source<'_>, index: usize, tool: &KnownTool) -> Option<Args> {
    let mut key = key_at(source, index)?;
    let mut args = Args::new();
    loop {
        let given = argument::read_quoted(source, key.value);
        let ArgumentValue::Value(value, end) =
            given.unwrap_or_else(|| read_phrase(source, key, tool))
        else {
            return None;
        };
        if args.insert(key.name.to_owned(), value).is_some() {
            return None;
        }
        let Some(next) = next_key(source, end) else {
            let end = source.skip_comments(end, Comments::All).unwrap_or(end);
            return (source.skip_markup(end) == source.len()).then_some(args);
        };
        key = next;
    }
}

pub(super) fn has_next_pair(source: &Source<'_>, end: usize, tool: &KnownTool) -> bool {
    let is_next = next_key(source, end).is_some_and(|key| tool.has_parameter(key.name));
    is_next || argument::has_parameter_at(source, source.skip_blanks(end), tool)
}

fn key_at<'a>(source: &Source<'a>, index: usize) -> Option<Key<'a>> {
    let end = source.find_key_end(index)?;
    let sign = source.skip_blanks(end);
    let is_sign = source.byte(sign) == Some(b'=') && source.byte(sign + 1) != Some(b'=');
    is_sign.then(|| Key { name: source.slice(index..end), value: source.skip_blanks(sign + 1) })
}

fn next_key<'a>(source: &Source<'a>, end: usize) -> Option<Key<'a>> {
    let start = source.skip_space(end);
    let comma = source.skip(start, |byte| byte == b',');
    let word = source.skip_space(comma);
    let and = source.find_word_end(word, "and").filter(|and| source.skip_space(*and) > *and);
    let position = and.map_or(word, |and| source.skip_space(and));
    (comma > start || and.is_some()).then(|| key_at(source, position)).flatten()
}

fn read_word(source: &Source<'_>, key: Key<'_>, tool: &KnownTool) -> ArgumentValue {
    let mut end = key.value;
    while let Some(byte) = source.byte(end) {
        let is_comma = || {
            let behind = source.byte(end + 1);
            behind.is_none_or(|byte| byte.is_ascii_whitespace())
                || key_at(source, end + 1).is_some()
        };
        match byte {
            // A quote or a tag is not a part of a word.
            b'"' | b'`' | b'<' => return ArgumentValue::None(end),
            b',' if is_comma() => break,
            byte if byte.is_ascii_whitespace() => break,
            _ => end += 1,
        }
    }
    let word = source.slice(key.value..end);
    let word = word.strip_suffix(';').or_else(|| strip_full_stop(word)).unwrap_or(word);
    // These marks may belong to the value or to the sentence, so the value is ambiguous.
    if word.is_empty() || word.ends_with([':', '!', '?']) || !closes_brackets(word) {
        return ArgumentValue::None(end);
    }
    ArgumentValue::Value(argument::parse_word(tool, key.name, word), key.value + word.len())
}

/// Removes the full stop of a sentence. In `..` and `/.`, the last point belongs to the word.
fn strip_full_stop(word: &str) -> Option<&str> {
    word.strip_suffix('.').filter(|rest| !rest.is_empty() && !rest.ends_with(['.', '/']))
}

fn closes_brackets(word: &str) -> bool {
    [('(', ')'), ('[', ']'), ('{', '}')]
        .iter()
        .all(|(open, close)| word.matches(*open).count() == word.matches(*close).count())
}

fn read_phrase(source: &Source<'_>, key: Key<'_>, tool: &KnownTool) -> ArgumentValue {
    let mut end = key.value;
    while let Some(byte) = source.byte(end) {
        match byte {
            b'"' | b'`' | b'\n' => return ArgumentValue::None(end),
            b',' | b' ' | b'\t' | b'\r' => {
                if next_key(source, end).is_some() {
                    break;
                }
                let behind = source.skip_space(end + 1);
                // A parameter without a comma before it may be a pair or a part of the value.
                if argument::has_parameter_at(source, behind, tool) {
                    return ArgumentValue::None(end);
                }
                end = behind;
            }
            _ => end += 1,
        }
    }
    let text = source.slice(key.value..end).trim_end();
    if text.is_empty() || text.ends_with(',') {
        return ArgumentValue::None(end);
    }
    ArgumentValue::Value(argument::parse_word(tool, key.name, text), end)
}

fn ends_sentence(source: &Source<'_>, end: usize, tool: &KnownTool) -> bool {
    let stop = source.skip(end, |byte| matches!(byte, b'.' | b';'));
    let behind = source.skip_blanks(stop);
    let is_end = match source.byte(behind) {
        None | Some(b'\n' | b'\r') => true,
        Some(_) => stop > end && behind > stop,
    };
    is_end && !has_pair_ahead(source, behind, tool)
}

/// Returns whether a parameter of the tool follows in the line before the next call, or begins the
/// next line. If so, the full stop may belong to a value.
fn has_pair_ahead(source: &Source<'_>, index: usize, tool: &KnownTool) -> bool {
    let mut position = index;
    loop {
        position = source.skip(position, |byte| !is_name_byte(byte) && byte != b'\n');
        if source.byte(position) == Some(b'\n') {
            return argument::has_parameter_at(source, marker::skip_layout(source, position), tool);
        }
        let end = source.find_name_end(position);
        let word = source.slice(position..end);
        if word.is_empty()
            || sentence::is_verb(word)
            || marker::tool_marker_end(source, position).is_some()
        {
            return false;
        }
        if argument::has_parameter_at(source, position, tool) {
            return true;
        }
        position = end;
    }
}
