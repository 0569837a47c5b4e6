//! Arguments as pairs: `pattern=*.py and path=/tmp`. Either all that is written as a pair is read, or there are none.

use std::ops::Range;

use serde_json::Value;

use super::{
    KnownTool,
    argument::{self, Args, Given, Pairs},
    lenient, marker, natural, phrase,
    source::{Reading, Source},
    word,
};

/// What may stand between two pairs, and is neither's.
const BETWEEN: [&str; 6] = ["and", "plus", "with", "also", "the", "its"];
/// How many of those.
const BETWEEN_WORDS: usize = 4;
/// The longest word that may begin another call.
const VERB_BYTES: usize = 8;

/// Where pairs are read.
pub(super) struct Reader<'s, 'a> {
    pub(super) source: &'s Source<'a>,
    pub(super) tool: &'s KnownTool,
    /// The reply around them, where other calls may follow.
    pub(super) reading: Option<&'s Reading<'a>>,
    /// Whether prose may follow: a value without quotes then ends where a sentence seems to go on, and
    /// else at the next pair or the end of the line.
    pub(super) is_prose: bool,
    /// Where the call begins: marks before it close behind its last value.
    pub(super) start: usize,
}

/// The name of a pair, and its place.
pub(super) struct Key<'a> {
    name: &'a str,
    at: usize,
    value: usize,
    /// Whether marks before the name close behind it.
    is_closed: bool,
}

impl<'a> Reader<'_, 'a> {
    /// Reads pairs, at least one.
    pub(super) fn read(&self, at: usize) -> Pairs {
        let mut args = Args::new();
        let mut end = at;
        let mut span: Option<Range<usize>> = None;
        let mut next = self.key_at(self.source.skip_markup(at));
        while let Some(key) = next {
            if span.as_ref().is_none_or(|it| it.end <= key.at) {
                span = self.span(&key);
            }
            let (value, stop) = match self.value(&key, &mut span) {
                Given::Value(value, stop) => (value, stop),
                Given::None(resume) => return Pairs::None(resume.max(end)),
                Given::Cut => return Pairs::Cut,
            };
            end = stop;
            match args.get(key.name) {
                Some(given) if *given != value => return Pairs::None(end),
                _ => args.insert(key.name.to_owned(), value),
            };
            next = self.next(end);
        }
        let is_all = if self.is_prose { self.skipped(end).is_none() } else { self.ends_line(end) };
        if args.is_empty() || !is_all || self.is_followed(end) {
            Pairs::None(end)
        } else {
            Pairs::Some(args, end)
        }
    }

    /// Returns the key at `at`, if `key=` or `key: "…` is there.
    pub(super) fn key_at(&self, at: usize) -> Option<Key<'a>> {
        let source = self.source;
        let end = source.key_end(at)?;
        let mark = source.byte(end).filter(|it| is_mark(*it));
        let closed = mark.map_or(end, |mark| source.skip(end, |it| it == mark));
        let sign = source.skip_blanks(closed);
        let byte = source.byte(sign).filter(|it| matches!(it, b'=' | b':'))?;
        let value = source.skip_blanks(sign + 1);
        let is_key = match byte {
            b'=' => source.byte(sign + 1) != Some(b'='),
            _ => {
                word::quote_at(source, value).is_some()
                    || matches!(source.byte(value), Some(b'{' | b'[' | b'`'))
            }
        };
        let is_closed = mark.is_some();
        if !is_key || is_closed && source.byte(at.checked_sub(1)?) != mark {
            return None;
        }
        Some(Key { name: source.slice(at..end), at, value, is_closed })
    }

    /// Returns the key behind what may stand between two pairs.
    ///
    /// Where only blanks do, or words other than `and`, the tool must have it.
    pub(super) fn next(&self, end: usize) -> Option<Key<'a>> {
        let (at, is_sure) = self.behind(end)?;
        let key = self.key_at(at)?;
        (is_sure || self.may_have(key.name)).then_some(key)
    }

    /// Returns whether one more follows a comma or the like that is written in another way: `a=b, key: c`.
    fn is_followed(&self, end: usize) -> bool {
        self.behind(end)
            .is_some_and(|(at, is_sure)| is_sure && argument::is_key(self.source, at, self.tool))
    }

    /// Returns where what may stand between two pairs ends, such as a comma, a line break or `and the`,
    /// and whether it is more than blanks.
    fn behind(&self, end: usize) -> Option<(usize, bool)> {
        let source = self.source;
        let mut at = source.skip_blanks(source.skip(end, |it| it == b'`'));
        let mut is_sure = false;
        if matches!(source.byte(at), Some(b',' | b';' | b'&')) {
            at = source.skip_space(at + 1);
            is_sure = true;
        }
        let line = source.skip(at, |it| matches!(it, b'\r' | b'\n'));
        if line > at {
            at = source.skip(line, |it| matches!(it, b' ' | b'\t' | b'-' | b'*'));
            is_sure = true;
        }
        // What begins a line is a pair at once, or a sentence of its own.
        let is_line = is_sure && source.byte(at - 1) == Some(b'\n');
        let words = if is_line { &BETWEEN[..1] } else { &BETWEEN[..] };
        for _ in 0..BETWEEN_WORDS {
            let Some((word, end)) = between(source, at, words) else { break };
            is_sure |= word == "and";
            at = source.skip_space(end);
        }
        at = source.skip(at, |it| is_mark(it) || it == b'(');
        (at > end).then_some((at, is_sure))
    }

    /// Returns whether the tool may have that parameter: it does, or nobody knows which it has.
    fn may_have(&self, key: &str) -> bool {
        self.tool.parameters.is_empty() || self.tool.has(key)
    }

    /// Returns the place that marks of Markdown close around the pair of `key`.
    fn span(&self, key: &Key<'a>) -> Option<Range<usize>> {
        let source = self.source;
        let mark =
            source.byte(key.at.checked_sub(1)?).filter(|it| is_mark(*it) && !key.is_closed)?;
        let before = (1..=3)
            .take_while(|n| key.at.checked_sub(*n).is_some_and(|at| source.byte(at) == Some(mark)));
        let width = before.count();
        let mut at = key.value;
        loop {
            at = source.skip(at, |it| it != mark && it != b'\n');
            let end = source.skip(at, |it| it == mark);
            if end == at {
                return None;
            }
            if end - at >= width && (mark == b'`' || self.closes(at, end)) {
                return Some(key.at..end - width);
            }
            let is_opening =
                !source.byte(at - 1).is_some_and(is_wordy) && source.key_end(end).is_some();
            if mark == b'`' || is_opening {
                return None;
            }
            at = end;
        }
    }

    /// Returns whether stars that are `at..end` may close: something is before them, and no word behind.
    fn closes(&self, at: usize, end: usize) -> bool {
        let source = self.source;
        let is_end = |at| source.byte(at).is_none_or(|it| it.is_ascii_whitespace());
        !is_end(at - 1)
            && (is_end(end)
                || matches!(source.byte(end), Some(b',' | b';' | b':' | b')' | b'!' | b'?'))
                || source.byte(end) == Some(b'.') && is_end(end + 1))
    }

    /// Reads the value of a pair, to the marks that close around both if it ends there.
    fn value(&self, key: &Key<'a>, span: &mut Option<Range<usize>>) -> Given {
        let source = self.source;
        let given = match source.byte(key.value) {
            Some(b'`') => self.code(key),
            _ => match self.quoted(key.value) {
                Some(given) => given,
                None => self.bare(key, span.as_ref()),
            },
        };
        let Given::Value(value, end) = given else { return given };
        let Some(limit) = span.as_ref().map(|it| it.end).filter(|it| end <= *it) else {
            // The marks that seemed to close are a part of the value.
            *span = None;
            return Given::Value(value, end);
        };
        if source.skip_blanks(end) < limit {
            return Given::Value(value, end);
        }
        let mark = source.byte(limit);
        *span = None;
        Given::Value(value, source.skip(limit, |it| Some(it) == mark))
    }

    /// Reads a string, a list or an object that nothing else follows.
    fn quoted(&self, at: usize) -> Option<Given> {
        let source = self.source;
        let Some((quote, is_raw)) = word::quote_at(source, at) else {
            return argument::quoted(source, at);
        };
        let mut has_apostrophe = false;
        let is_wordy_at = |at: usize| source.byte(at).is_some_and(is_wordy);
        let closes = |at: usize| {
            let is_inside =
                source.byte(at) == Some(b'\'') && is_wordy_at(at - 1) && is_wordy_at(at + 1);
            has_apostrophe |= is_inside;
            !is_inside
        };
        let Some((text, end)) = word::string_that(source, quote, is_raw, closes) else {
            return Some(Given::Cut);
        };
        let behind = source.byte(source.skip_blanks(end));
        let is_torn = is_wordy_at(end)
            || matches!(behind, Some(b'"' | b'\'' | b'+'))
            || has_apostrophe && !self.is_over(end);
        Some(if is_torn { Given::None(end) } else { Given::Value(Value::from(text), end) })
    }

    /// Returns whether a value that ends at `end` is the last of its sentence, or a pair follows.
    fn is_over(&self, end: usize) -> bool {
        let marks = self.source.skip_marks(end);
        matches!(self.source.byte(marks), None | Some(b'\n' | b'\r' | b'.' | b',' | b';' | b')'))
            || self.next(end).is_some()
    }

    /// Reads a value in backticks.
    fn code(&self, key: &Key<'a>) -> Given {
        let source = self.source;
        let open = source.skip(key.value, |it| it == b'`');
        let close = source.skip(open, |it| it != b'`' && it != b'\n');
        let end = source.skip(close, |it| it == b'`');
        if end - close != open - key.value {
            return Given::None(end);
        }
        let text = source.slice(open..close);
        Given::Value(argument::typed(self.tool, key.name, text), end)
    }

    /// Reads a value without quotes.
    fn bare(&self, key: &Key<'a>, span: Option<&Range<usize>>) -> Given {
        let limit = span.map_or(self.source.len(), |it| it.end);
        let read = if self.is_prose && span.is_none() {
            phrase::end(self, key.value)
        } else {
            self.line_end(key.value, limit)
        };
        let (text, stop) = match read {
            Ok(stop) => (self.source.slice(key.value..stop), stop),
            Err(stop) => return Given::None(stop),
        };
        let text =
            if span.is_none() { self.without_marks(text.trim_end()) } else { text.trim_end() };
        if text.is_empty() {
            return Given::None(stop);
        }
        Given::Value(argument::typed(self.tool, key.name, text), key.value + text.len())
    }

    /// Returns where a value without quotes ends that goes on to the next pair, `limit` or the end of the
    /// line; where it is not clear what belongs to it, that is an error.
    fn line_end(&self, start: usize, limit: usize) -> Result<usize, usize> {
        let source = self.source;
        let is_inside = limit < source.len();
        let (mut at, mut end, mut quotes, mut ticks) = (start, start, 0_usize, 0_usize);
        while let Some(byte) = source.byte(at).filter(|_| at < limit) {
            let next = match byte {
                b'\n' | b'\r' => break,
                b'{' | b'[' => {
                    word::group_end(source, at).filter(|it| *it <= limit).unwrap_or(at + 1)
                }
                b'<' if !is_inside && self.is_tag(at) => break,
                b' ' | b'\t' | b',' => {
                    if self.next(at).is_some() {
                        break;
                    }
                    if byte == b',' && self.is_followed(at) {
                        return Err(at);
                    }
                    let next = source.skip_blanks(at + 1);
                    if self.opens(next) {
                        break;
                    }
                    at = next;
                    end = if byte == b',' { next } else { end };
                    continue;
                }
                b';' | b'&' if source.byte(at + 1).is_none_or(|it| it.is_ascii_whitespace()) => {
                    if self.next(at).is_some() {
                        break;
                    }
                    at + 1
                }
                _ => at + 1,
            };
            quotes += usize::from(byte == b'"');
            ticks += usize::from(byte == b'`');
            (at, end) = (next, next);
        }
        let is_layout = |it: char| it.is_whitespace() || matches!(it, ',' | ';');
        let text = source.slice(start..end).trim_end_matches(is_layout);
        let is_torn =
            (quotes % 2 == 1 || ticks % 2 == 1) && self.without_marks(text).len() == text.len();
        if is_torn { Err(at) } else { Ok(start + text.len()) }
    }

    /// Drops what closes behind a value and was opened before the call: `**use … with path=a**`.
    fn without_marks<'t>(&self, text: &'t str) -> &'t str {
        let open = self.start.checked_sub(1).and_then(|at| self.source.byte(at));
        let close = match open {
            Some(b'(') if !text.contains('(') => ')',
            Some(mark @ (b'`' | b'*' | b'"' | b'\'')) => char::from(mark),
            _ => return text,
        };
        let width = (1..=3).take_while(|n| {
            let before = self.start.checked_sub(*n).and_then(|at| self.source.byte(at));
            before == open
        });
        let mut rest = text;
        for _ in width {
            let Some(shorter) = rest.strip_suffix(close) else { return text };
            rest = shorter;
        }
        rest
    }

    /// Returns whether a tag is at `at`, or what interfaces write for the end of a reply.
    fn is_tag(&self, at: usize) -> bool {
        let is_first = |it: u8| it.is_ascii_alphabetic() || matches!(it, b'/' | b'|' | b'!' | 0xef);
        self.source.byte(at + 1).is_some_and(is_first)
    }

    /// Returns whether another explicit call begins at `at`.
    fn opens(&self, at: usize) -> bool {
        let Some(reading) = self.reading else { return false };
        if !matches!(self.source.byte(at), Some(b't' | b'T')) {
            return false;
        }
        let Some((marked, true)) = marker::tool(self.source, at) else { return false };
        let name = self.source.skip_marks(marked);
        reading.tool(self.source.slice(name..self.source.name_end(name))).is_some()
    }

    /// Returns whether nothing is left on the line of arguments that end at `end`.
    fn ends_line(&self, end: usize) -> bool {
        let source = self.source;
        let is_closing = |it: u8| {
            matches!(
                it,
                b' ' | b'\t' | b'\r' | b'`' | b'*' | b'.' | b',' | b';' | b')' | b'"' | b'\''
            )
        };
        let at = source.skip(end, is_closing);
        match source.byte(at) {
            None | Some(b'\n' | b'#') => true,
            Some(b'/') => matches!(source.byte(at + 1), Some(b'/' | b'*')),
            // A word of a sentence that something closes behind the call is none of the arguments.
            Some(b'<') => matches!(source.byte(at + 1), Some(b'/' | b'|' | 0xef)),
            Some(_) => self.opens(at),
        }
    }

    /// Returns the place of a pair that prose behind `end` has, on the same line or in the same list,
    /// up to the next call.
    fn skipped(&self, end: usize) -> Option<usize> {
        let source = self.source;
        let mut at = end;
        loop {
            match source.byte(at)? {
                b'\n' => {
                    let line = source.skip_blanks(at + 1);
                    let item = source.skip(line, |it| matches!(it, b'-' | b'*' | b'+'));
                    let key = source.skip(source.skip_blanks(item), is_mark);
                    return (item > line && self.has_key(key)).then_some(key);
                }
                first if first.is_ascii_alphanumeric() || matches!(first, b'_' | b'$' | b'-') => {
                    let start = source.skip(at, |it| it == b'-');
                    let stop = source.name_end(start).max(at + 1);
                    let before = at.checked_sub(1).and_then(|it| source.byte(it));
                    let is_key =
                        matches!(source.byte(stop), Some(b'=' | b':' | b' ' | b'\t' | b'`' | b'*'))
                            && before.is_none_or(may_precede)
                            && self.has_key(start);
                    if is_key {
                        return Some(start);
                    }
                    if self.begins(start, stop) || self.opens(start) {
                        return None;
                    }
                    at = stop;
                }
                // What a closing tag says is no pair.
                b'<' if source.byte(at + 1) == Some(b'/') => {
                    at = source.skip(at + 1, |it| !matches!(it, b'<' | b'>' | b'\n'));
                }
                _ => at += 1,
            }
        }
    }

    /// Returns whether a pair of the tool is at `at`.
    fn has_key(&self, at: usize) -> bool {
        self.key_at(at).is_some_and(|it| self.may_have(it.name))
    }

    /// Returns whether a loose call begins with the word that is `start..end`.
    pub(super) fn begins(&self, start: usize, end: usize) -> bool {
        let Some(reading) = self.reading else { return false };
        if self.source.byte(end) == Some(b'(') {
            return reading.tool(self.source.slice(start..end)).is_some();
        }
        let is_first = |it: u8| matches!(it | 0x20, b'u' | b'c' | b'r' | b'i' | b'e');
        let is_verb = end - start <= VERB_BYTES
            && self.source.byte(start).is_some_and(is_first)
            && natural::is_verb(self.source.slice(start..end));
        is_verb && natural::begins(reading, end)
    }
}

/// Returns the word of these at `at`, and where it ends.
fn between<'w>(source: &Source<'_>, at: usize, words: &[&'w str]) -> Option<(&'w str, usize)> {
    let first = source.byte(at)?.to_ascii_lowercase();
    let words = words.iter().filter(|it| it.as_bytes().first() == Some(&first));
    let mut words = words.filter_map(|it| Some((*it, source.word_at(at, it)?)));
    words.find(|(_, end)| source.byte(*end).is_some_and(|it| it.is_ascii_whitespace()))
}

/// Returns whether what follows arguments that end at `end` is one more; `is_near` if only on their line.
pub(super) fn follow(source: &Source<'_>, end: usize, tool: &KnownTool, is_near: bool) -> bool {
    let reader = Reader { source, tool, reading: None, is_prose: true, start: end };
    let Some((at, _)) = reader.behind(end) else { return false };
    let is_key = reader.key_at(at).is_some_and(|it| tool.has(it.name));
    (is_key || argument::is_key(source, at, tool))
        && !(is_near && source.slice(end..at).contains('\n'))
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
    let reader = Reader { source: &source, tool, reading: None, is_prose: false, start };
    let args = match reader.read(start) {
        Pairs::Some(args, end) => {
            let end = source.skip_comments(end, super::source::Comments::All).unwrap_or(end);
            (source.skip_markup(end) == text.len()).then_some(args)
        }
        _ => None,
    };
    (args, source.steps())
}

fn is_mark(byte: u8) -> bool {
    matches!(byte, b'`' | b'*')
}

/// Returns whether a byte is part of a word.
fn is_wordy(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Returns whether a name may begin behind a byte: not in the middle of an address or an expression.
fn may_precede(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte >= 0x80 || b"([{\"'`*,;|".contains(&byte)
}
