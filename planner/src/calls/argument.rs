//! Arguments as pairs: `pattern=*.py and path=/tmp`.

use serde_json::{Map, Value};

use super::{
    KnownTool, lenient,
    source::{Comments, Source},
    word,
};

/// The arguments of a call.
pub(super) type Args = Map<String, Value>;

/// What came of looking for one value.
pub(super) enum Given {
    /// A value, and where it ends.
    Value(Value, usize),
    /// None; the text goes on at that place.
    None(usize),
    /// One that the end of the text cuts off.
    Cut,
}

/// What came of looking for pairs.
pub(super) enum Pairs {
    /// At least one, and where the last ends.
    Some(Args, usize),
    /// None; the text goes on at that place.
    None(usize),
    /// One that the end of the text cuts off.
    Cut,
}

/// Reads a string, a list or an object at `at`, where one begins.
pub(super) fn quoted(source: &Source<'_>, at: usize) -> Option<Given> {
    if let Some((quote, is_raw)) = word::quote_at(source, at) {
        return Some(match word::string(source, quote, is_raw) {
            Some((text, end)) => Given::Value(Value::String(text), end),
            None => Given::Cut,
        });
    }
    if !matches!(source.byte(at), Some(b'{' | b'[')) {
        return None;
    }
    Some(match lenient::read(source, at) {
        Ok((tree, end)) => Given::Value(tree.into_value(), end),
        Err(stuck) if stuck.is_cut => Given::Cut,
        Err(stuck) => Given::None(stuck.resume.max(at + 1)),
    })
}

/// Returns what a word without quotes means as an argument of that name.
pub(super) fn typed(tool: &KnownTool, key: &str, word: &str) -> Value {
    if tool.is_text(key) { Value::from(word) } else { word::meaning(word) }
}

/// Reads pairs in prose, at least one.
pub(super) fn pairs(source: &Source<'_>, at: usize, tool: &KnownTool) -> Pairs {
    let mut args = Args::new();
    let mut next = key_at(source, source.skip_markup(at));
    let mut end = at;
    while let Some((key, value)) = next {
        let given = quoted(source, value).unwrap_or_else(|| prose_value(source, value));
        match given {
            Given::Value(given, stop) => {
                let is_quoted = word::quote_at(source, value).is_some();
                let given = match given {
                    Value::String(text) if !is_quoted => typed(tool, key, &text),
                    other => other,
                };
                args.insert(key.to_owned(), given);
                end = stop;
            }
            Given::None(resume) if args.is_empty() => return Pairs::None(resume),
            Given::None(_) => break,
            Given::Cut => return Pairs::Cut,
        }
        next = key_at(source, separator_end(source, end));
    }
    // One more that is written in another way: `a=b, key: c`.
    if args.is_empty() || goes_on(source, end, tool) {
        return Pairs::None(end);
    }
    Pairs::Some(args, end)
}

/// Returns whether what follows arguments that end at `end` is one more, however it is written.
pub(super) fn goes_on(source: &Source<'_>, end: usize, tool: &KnownTool) -> bool {
    let at = separator_end(source, end);
    at > end && is_key(source, at, tool)
}

/// Returns whether a parameter of the tool is at `at`, with the sign of a value behind it.
pub(super) fn is_key(source: &Source<'_>, at: usize, tool: &KnownTool) -> bool {
    let Some(stop) = source.key_end(at) else { return false };
    let sign = source.skip_blanks(stop);
    let is_sign =
        matches!(source.byte(sign), Some(b'=' | b':')) && source.byte(sign + 1) != Some(b'=');
    is_sign && tool.has(source.slice(at..stop))
}

/// Returns the key at `at`, and where its value begins, if `key=` or `key: "…` is there.
fn key_at<'a>(source: &Source<'a>, at: usize) -> Option<(&'a str, usize)> {
    let key_end = source.key_end(at)?;
    let sign = source.skip_blanks(key_end);
    let is_quoted = |value: usize| {
        word::quote_at(source, value).is_some() || matches!(source.byte(value), Some(b'{' | b'['))
    };
    let value = source.skip_blanks(sign + 1);
    let is_key = match source.byte(sign)? {
        b'=' => source.byte(sign + 1) != Some(b'='),
        b':' => is_quoted(value),
        _ => false,
    };
    is_key.then(|| (source.slice(at..key_end), value))
}

/// Returns where what stands between two pairs ends: a comma, a line break, `and`.
fn separator_end(source: &Source<'_>, at: usize) -> usize {
    let mut at = source.skip_blanks(source.skip(at, |it| it == b'`'));
    if matches!(source.byte(at), Some(b',' | b';' | b'&')) {
        at = source.skip_space(at + 1);
    }
    let line = source.skip(at, |it| matches!(it, b'\r' | b'\n'));
    if line > at {
        at = source.skip(line, |it| matches!(it, b' ' | b'\t' | b'-' | b'*'));
    }
    match source.word_at(at, "and") {
        Some(end) if source.byte(end).is_some_and(|it| it.is_ascii_whitespace()) => {
            source.skip_space(end)
        }
        _ => source.skip(at, |it| it == b'`'),
    }
}

/// Reads a value without quotes in prose, as text.
///
/// A path, a pattern, a number and the like end at the blank: what follows is prose again. A plain
/// word begins a phrase, which goes on to the next pair, a comma or the end of the sentence.
fn prose_value(source: &Source<'_>, at: usize) -> Given {
    let first = prose_word_end(source, at);
    let word = trimmed(source.slice(at..first));
    if word.is_empty() {
        return Given::None(first.max(at));
    }
    let end = at + word.len();
    let is_plain = word.chars().all(|it| it.is_alphabetic() || it == '\'');
    let is_whole = first == end;
    if !is_plain || !is_whole || word::literal(word).is_some() {
        return Given::Value(Value::from(word), end);
    }
    let end = phrase_end(source, first);
    let phrase = trimmed(source.slice(at..end));
    Given::Value(Value::from(phrase), at + phrase.len())
}

fn phrase_end(source: &Source<'_>, first: usize) -> usize {
    let mut end = first;
    loop {
        let next = source.skip_blanks(end);
        if next == end || key_at(source, next).is_some() {
            return end;
        }
        if let Some(and) = source.word_at(next, "and")
            && key_at(source, source.skip_blanks(and)).is_some()
        {
            return end;
        }
        let stop = prose_word_end(source, next);
        let word = source.slice(next..stop);
        if word.is_empty() || word.ends_with(':') {
            return end;
        }
        end = stop;
        if trimmed(word).len() < word.len() {
            return end;
        }
    }
}

fn prose_word_end(source: &Source<'_>, mut at: usize) -> usize {
    while let Some(byte) = source.byte(at) {
        at = match byte {
            b'{' | b'[' => match word::group_end(source, at) {
                Some(end) => end,
                None => return at,
            },
            b',' if !is_inner(source, at + 1) => return at,
            b'`' | b'"' | b'<' => return at,
            it if it.is_ascii_whitespace() => return at,
            _ => at + 1,
        };
    }
    at
}

/// Returns whether a comma before `at` is part of the word around it.
fn is_inner(source: &Source<'_>, at: usize) -> bool {
    source.byte(at).is_some_and(|it| !it.is_ascii_whitespace()) && key_at(source, at).is_none()
}

/// Drops from the end of a word what belongs to the sentence.
fn trimmed(word: &str) -> &str {
    let mut word = word;
    loop {
        let ends_sentence = match word.chars().last() {
            Some(':' | ';' | '!' | '?' | '\'') => true,
            Some('.') => {
                let before = word[..word.len() - 1].chars().last();
                before.is_some_and(|it| !matches!(it, '.' | '/'))
            }
            Some(')') => !word.contains('('),
            _ => false,
        };
        if !ends_sentence {
            return word;
        }
        word = &word[..word.len() - 1];
    }
}

/// Reads a text that is nothing but arguments: an object, pairs, or nothing.
pub(super) fn whole(text: &str, tool: &KnownTool) -> (Option<Args>, usize) {
    let source = Source::new(text);
    let start = source.skip_markup(0);
    if start == text.len() {
        return (Some(Args::new()), source.steps());
    }
    if source.byte(start) == Some(b'{') {
        let (object, steps) = lenient::whole_object(text);
        return (object.map(lenient::Object::into_map), steps + source.steps());
    }
    let args = match pairs(&source, start, tool) {
        Pairs::Some(args, end) => {
            let end = source.skip_comments(end, Comments::All).unwrap_or(end);
            (source.skip_markup(end) == text.len()).then_some(args)
        }
        _ => None,
    };
    (args, source.steps())
}
