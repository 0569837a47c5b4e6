//! Arguments as pairs: `pattern=*.py and path=/tmp`. Either all that is written as a pair is read, or there are none.

use std::{cell::Cell, ops::Range};

use serde_json::Value;

use super::{
    KnownTool,
    argument::{self, Args, Given, Pairs},
    lenient, marker, phrase,
    source::{Comments, Reading, Source},
    unquoted, word,
};

/// What may stand between two pairs, and is neither's.
pub(super) const BETWEEN: [&str; 11] =
    ["and", "plus", "with", "also", "the", "its", "in", "under", "at", "for", "using"];
/// How many of those.
const BETWEEN_WORDS: usize = 4;

/// What the pairs are in, which says how far a value without quotes goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A sentence: prose may follow, and a value ends where the sentence seems to go on.
    Sentence,
    /// A line of arguments: a value goes on to the next pair or the end of the line, where prose may
    /// still follow what is in quotes.
    Line,
    /// A text that is nothing but arguments.
    Whole,
}

/// Where pairs are read.
pub(super) struct Reader<'s, 'a> {
    pub(super) source: &'s Source<'a>,
    pub(super) tool: &'s KnownTool,
    /// The reply around them, where other calls may follow.
    pub(super) reading: Option<&'s Reading<'a>>,
    pub(super) place: Place,
    /// Where the call begins: marks before it close behind its last value.
    pub(super) start: usize,
    /// A place behind which no pair is known to follow.
    pub(super) clear: Cell<usize>,
    /// A place behind which another call is known to follow.
    pub(super) begun: Cell<usize>,
}

/// The name of a pair, and its place.
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    pub(super) at: usize,
    /// Where its value begins.
    pub(super) value: usize,
    /// Whether marks before the name close behind it.
    pub(super) is_closed: bool,
    /// Whether it is a parameter with a colon and no quotes: `path: /tmp`.
    is_loose: bool,
}

impl<'s, 'a> Reader<'s, 'a> {
    /// Reads the pairs of a text around which there is nothing.
    fn alone(source: &'s Source<'a>, tool: &'s KnownTool, place: Place, start: usize) -> Self {
        Self { source, tool, reading: None, place, start, clear: Cell::new(0), begun: Cell::new(0) }
    }

    /// Reads the pairs of a call in a reply.
    pub(super) fn new(
        reading: &'s Reading<'a>,
        tool: &'s KnownTool,
        place: Place,
        start: usize,
    ) -> Self {
        Self { reading: Some(reading), ..Self::alone(&reading.source, tool, place, start) }
    }

    /// Reads pairs, at least one.
    pub(super) fn read(&self, at: usize) -> Pairs {
        let mut args = Args::new();
        let mut end = at;
        let mut span: Option<Range<usize>> = None;
        let mut next = self.key_at(self.source.skip_markup(at));
        let mut is_followed = false;
        while let Some(key) = next {
            if span.as_ref().is_none_or(|it| it.end <= key.at) {
                span = self.span(&key);
            }
            let (value, stop) = match self.value(&key, &mut span) {
                Given::Value(value, stop) => (value, stop),
                Given::None(resume) => return Pairs::Unclear(resume.max(end)),
                Given::Cut => return Pairs::Cut,
            };
            end = stop;
            match args.get(key.name) {
                Some(given) if *given != value => return Pairs::Unclear(end),
                _ => args.insert(key.name.to_owned(), value),
            };
            let behind = if self.begun.get() == end { None } else { self.behind(end) };
            next = behind.and_then(|it| self.key_behind(it));
            is_followed = behind.is_some_and(|it| self.is_key_behind(it));
        }
        if args.is_empty() {
            let is_told = self.reading.is_some() && self.ahead(end).is_some();
            if is_told { Pairs::Unclear(end) } else { Pairs::None(end) }
        } else if !is_followed && self.is_all(end) {
            Pairs::Some(args, end)
        } else {
            Pairs::Unclear(end)
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
        let name = source.slice(at..end);
        let is_quoted = || {
            word::quote_at(source, value).is_some()
                || matches!(source.byte(value), Some(b'{' | b'[' | b'`'))
        };
        let has_value = || {
            value > sign + 1
                && !matches!(source.byte(value), None | Some(b'\n' | b'\r'))
                && self.tool.has(name)
        };
        let is_loose = byte == b':' && !is_quoted();
        let is_key = match byte {
            b'=' => source.byte(sign + 1) != Some(b'='),
            _ => !is_loose || has_value(),
        };
        let is_closed = mark.is_some();
        if !is_key || is_closed && source.byte(at.checked_sub(1)?) != mark {
            return None;
        }
        Some(Key { name, at, value, is_closed, is_loose })
    }

    /// Returns the key behind what may stand between two pairs.
    ///
    /// Where only blanks do, or words other than `and`, the tool must have it, with an equals sign.
    pub(super) fn next(&self, end: usize) -> Option<Key<'a>> {
        self.key_behind(self.behind(end)?)
    }

    fn key_behind(&self, (at, is_sure): (usize, bool)) -> Option<Key<'a>> {
        let key = self.key_at(at)?;
        (is_sure || self.may_have(key.name) && !key.is_loose).then_some(key)
    }

    /// Returns whether one more follows a comma or the like that is written in another way: `a=b, key: c`.
    pub(super) fn is_followed(&self, end: usize) -> bool {
        self.behind(end).is_some_and(|it| self.is_key_behind(it))
    }

    fn is_key_behind(&self, (at, is_sure): (usize, bool)) -> bool {
        is_sure && argument::is_key(self.source, at, self.tool)
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
            at = marker::bullet_end(source, at).map_or(at, |it| source.skip_blanks(it));
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
    pub(super) fn may_have(&self, key: &str) -> bool {
        self.tool.parameters.is_empty() || self.tool.has(key)
    }

    /// Reads the value of a pair, to the marks that close around both if it ends there.
    fn value(&self, key: &Key<'a>, span: &mut Option<Range<usize>>) -> Given {
        let source = self.source;
        let given = match source.byte(key.value) {
            Some(b'`') => self.code(key),
            Some(b'{' | b'[') if self.is_pattern(key.value) => self.bare(key, span.as_ref()),
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

    /// Returns whether brackets at `at` are a part of a word: `[ab]*.py`, `{a,b}.py`.
    fn is_pattern(&self, at: usize) -> bool {
        let source = self.source;
        let Some(end) = word::group_end(source, at) else { return false };
        match source.byte(end) {
            Some(b'.') => source.byte(end + 1).is_some_and(is_wordy),
            Some(it) => is_wordy(it) || matches!(it, b'*' | b'+' | b'?' | b'/' | b'[' | b'{'),
            None => false,
        }
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
            let end = source.word_at(at, "'").or_else(|| source.word_at(at, "’"));
            let is_inside = end.is_some_and(|end| is_wordy_at(at - 1) && is_wordy_at(end));
            has_apostrophe |= is_inside;
            !is_inside
        };
        let Some((text, end)) = word::string_that(source, quote, is_raw, closes) else {
            return Some(Given::Cut);
        };
        let behind = source.byte(source.skip_blanks(end));
        let is_torn = is_wordy_at(end)
            || matches!(behind, Some(b'"' | b'\'' | b'+'))
            || has_apostrophe && !self.is_over(end)
            || word::is_expression(source, at, &text);
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

    /// Returns where the bracket closes that is before a pair: `(path=/tmp)`.
    fn bracket(&self, key: &Key<'a>) -> Option<usize> {
        let source = self.source;
        let before = key.at.checked_sub(1).filter(|it| *it > self.start)?;
        if source.byte(before) != Some(b'(') {
            return None;
        }
        let end = source.skip(key.value, |it| !matches!(it, b'(' | b')' | b'\n'));
        (source.byte(end) == Some(b')')).then_some(end)
    }

    /// Reads a value without quotes.
    fn bare(&self, key: &Key<'a>, span: Option<&Range<usize>>) -> Given {
        let read = match span {
            None if self.place == Place::Sentence => phrase::end(self, key),
            _ => unquoted::end(self, key, span.map(|it| it.end).or_else(|| self.bracket(key))),
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
    let reader = Reader::alone(source, tool, Place::Sentence, end);
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
    let reader = Reader::alone(&source, tool, Place::Whole, start);
    let args = match reader.read(start) {
        Pairs::Some(args, end) => {
            let end = source.skip_comments(end, Comments::All).unwrap_or(end);
            (source.skip_markup(end) == text.len()).then_some(args)
        }
        _ => None,
    };
    (args, source.steps())
}

pub(super) fn is_mark(byte: u8) -> bool {
    matches!(byte, b'`' | b'*')
}

/// Returns whether a byte is part of a word.
pub(super) fn is_wordy(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}
