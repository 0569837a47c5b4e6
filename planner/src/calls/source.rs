//! A text that counts how often it is looked at, so that tests can prove that reading is linear.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    sync::Arc,
};

pub(super) use super::Why;
use super::{CallFormat, KnownTool, Missed, ToolCall};

/// Namespaces that some models put before the name of a function.
const NAMESPACES: [&str; 2] = ["functions.", "default_api."];
/// The longest name that is looked up: tools' names have at most as many bytes.
const NAME_BYTES: usize = 256;
/// The most missed calls that are reported.
const MISSED: usize = 32;

/// A text under the eyes of the readers; positions are bytes.
pub(super) struct Source<'a> {
    text: &'a str,
    steps: Cell<usize>,
    /// Set once a search for the end of a comment reached the end of the text.
    comments_never_end: Cell<bool>,
}

/// The comments that may stand between values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comments {
    /// `// …` and `/* … */`.
    Slashes,
    /// Also `# …`, where no value can begin.
    All,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, steps: Cell::new(0), comments_never_end: Cell::new(false) }
    }

    /// Returns how many bytes have been looked at, counting each look.
    pub(super) fn steps(&self) -> usize {
        self.steps.get()
    }

    /// Counts looks at something that was made from the text.
    pub(super) fn add_steps(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps);
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.add_steps(1);
        self.text.as_bytes().get(at).copied()
    }

    /// Returns a part; nothing, should it begin or end inside a character.
    pub(super) fn slice(&self, range: Range<usize>) -> &'a str {
        self.add_steps(range.len());
        self.text.get(range).unwrap_or("")
    }

    pub(super) fn skip(&self, mut at: usize, skips: impl Fn(u8) -> bool) -> usize {
        while self.byte(at).is_some_and(&skips) {
            at += 1;
        }
        at
    }

    pub(super) fn skip_space(&self, at: usize) -> usize {
        self.skip(at, |byte| byte.is_ascii_whitespace())
    }

    /// Skips blanks within a line.
    pub(super) fn skip_blanks(&self, at: usize) -> usize {
        self.skip(at, |byte| byte == b' ' || byte == b'\t')
    }

    /// Skips blanks within a line, and marks that close around code.
    pub(super) fn skip_marks(&self, at: usize) -> usize {
        self.skip(at, |byte| matches!(byte, b' ' | b'\t' | b'`' | b'*'))
    }

    /// Returns where the line that `at` is in ends.
    pub(super) fn line_end(&self, at: usize) -> usize {
        self.skip(at, |byte| byte != b'\n')
    }

    /// Returns whether `word` is at `at`, whatever its case, and where it ends.
    pub(super) fn word_at(&self, at: usize, word: &str) -> Option<usize> {
        let bytes = self.text.as_bytes().get(at..)?.iter();
        let same =
            bytes.zip(word.as_bytes()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
        self.add_steps(same + 1);
        (same == word.len()).then_some(at + same)
    }

    /// Returns where `needle` is in a part of the text, if it is.
    pub(super) fn find(&self, range: Range<usize>, needle: &str) -> Option<usize> {
        let start = range.start;
        let found = self.text.get(range.clone()).and_then(|rest| rest.find(needle));
        self.add_steps(found.map_or(range.len(), |found| found + needle.len()));
        found.map(|found| start + found)
    }

    /// Returns whether what looks like a comment begins a path: text follows its sign at once, as in
    /// `/**/*.py` and `//host/share`.
    pub(super) fn begins_path(&self, at: usize) -> bool {
        self.byte(at) == Some(b'/')
            && matches!(self.byte(at + 1), Some(b'/' | b'*'))
            && self.byte(at + 2).is_some_and(|byte| !byte.is_ascii_whitespace())
    }

    /// Skips blanks and comments; a comment without an end is an error at its beginning.
    pub(super) fn skip_comments(&self, at: usize, comments: Comments) -> Result<usize, usize> {
        let mut at = self.skip_space(at);
        loop {
            at = match (self.byte(at), self.byte(at + 1)) {
                (Some(b'#'), _) if comments == Comments::All => self.line_end(at),
                (Some(b'/'), Some(b'/')) => self.line_end(at),
                (Some(b'/'), Some(b'*')) => self.comment_end(at)?,
                _ => return Ok(at),
            };
            at = self.skip_space(at);
        }
    }

    fn comment_end(&self, at: usize) -> Result<usize, usize> {
        if self.comments_never_end.get() {
            return Err(at);
        }
        let end = self.find(at + 2..self.len(), "*/");
        self.comments_never_end.set(end.is_none());
        end.map(|end| end + 2).ok_or(at)
    }

    /// Skips blanks and what Markdown puts around code: backticks, stars, and a fence's language.
    pub(super) fn skip_markup(&self, at: usize) -> usize {
        let mut at = self.skip_space(at);
        while let Some(mark @ (b'`' | b'*')) = self.byte(at) {
            let end = self.skip(at, |byte| byte == mark);
            let is_fence = mark == b'`' && end - at >= 3;
            at = if is_fence { self.skip(end, |byte| byte.is_ascii_alphanumeric()) } else { end };
            at = self.skip_space(at);
        }
        at
    }

    /// Returns where the name that begins at `at` ends.
    pub(super) fn name_end(&self, at: usize) -> usize {
        self.skip(at, is_name_byte)
    }

    /// Returns where the identifier at `at` ends, if one is there.
    pub(super) fn key_end(&self, at: usize) -> Option<usize> {
        let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$';
        self.byte(at).filter(|byte| is_start(*byte))?;
        Some(self.skip(at, |byte| is_start(byte) || byte.is_ascii_digit() || byte == b'-'))
    }
}

/// Returns whether a byte may stand in a name outside quotes.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/')
}

/// A text, and the tools that it may call.
pub(super) struct Reading<'a> {
    pub(super) source: Source<'a>,
    known: &'a dyn Fn(&str) -> Option<Arc<KnownTool>>,
    missed: RefCell<Vec<Missed>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(text: &'a str, known: &'a dyn Fn(&str) -> Option<Arc<KnownTool>>) -> Self {
        Self { source: Source::new(text), known, missed: RefCell::default() }
    }

    /// Returns the registered tool that a name means.
    pub(super) fn tool(&self, name: &str) -> Option<Arc<KnownTool>> {
        let name = name.trim();
        if name.is_empty() || name.len() > NAME_BYTES {
            return None;
        }
        let plain = || {
            let space = NAMESPACES.iter().find(|space| name.starts_with(**space))?;
            (self.known)(&name[space.len()..])
        };
        (self.known)(name).or_else(plain)
    }

    /// Takes down that a call is none.
    pub(super) fn miss(&self, name: &str, why: Why) {
        let mut missed = self.missed.borrow_mut();
        let name = name.trim();
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES;
        if is_name && missed.len() < MISSED {
            missed.push(Missed { tool: name.to_owned(), why });
        }
    }

    /// Returns how many calls are none so far.
    pub(super) fn missed(&self) -> usize {
        self.missed.borrow().len()
    }

    /// Forgets those from there on: they were only thought or spoken of.
    pub(super) fn forget_missed(&self, from: usize) {
        self.missed.borrow_mut().truncate(from);
    }

    /// Returns what was missed.
    pub(super) fn into_missed(self) -> Vec<Missed> {
        self.missed.into_inner()
    }

    pub(super) fn call(
        &self,
        tool: &KnownTool,
        args: super::argument::Args,
        format: CallFormat,
        span: Range<usize>,
    ) -> ToolCall {
        let raw = self.source.slice(span).to_owned();
        ToolCall { tool: tool.name.clone(), args, format, raw }
    }
}

/// The result of an attempt to read a call.
pub(super) enum Attempt {
    /// No call begins here. The scan goes on at this place.
    Passed(usize),
    /// The text up to `end` is read. It has these calls, or none.
    Read { calls: Vec<ToolCall>, end: usize },
    /// The text begins a call that cannot be read.
    Broken(Broken),
}

/// A call that cannot be read: what follows may still belong to its arguments.
pub(super) struct Broken {
    /// Calls that were read before it.
    pub(super) calls: Vec<ToolCall>,
    /// The place up to which it was read.
    pub(super) at: usize,
    /// Set if the text ends inside it.
    pub(super) is_cut: bool,
    /// Set if its tool is registered.
    pub(super) is_known: bool,
}

impl Attempt {
    /// A call of a registered tool that the end of the text cuts off.
    pub(super) fn cut(reading: &Reading<'_>, tool: &KnownTool) -> Self {
        let source = &reading.source;
        reading.miss(tool.name.as_str(), Why::Cut);
        Self::Broken(Broken { calls: Vec::new(), at: source.len(), is_cut: true, is_known: true })
    }
}
