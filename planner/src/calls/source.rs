//! A text that counts its reads, so that tests can prove that parsing is linear.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    sync::Arc,
};

pub(super) use super::MissReason;
use super::{CallFormat, KnownTool, MissedCall, ToolCall};

const NAMESPACES: [&str; 2] = ["functions.", "default_api."];
/// Maximum bytes of a name that is looked up. No tool can have a longer name.
const MAX_NAME_BYTES: usize = 256;
const MAX_MISSED_CALLS: usize = 32;

pub(super) struct Source<'a> {
    text: &'a str,
    steps: Cell<usize>,
    /// `true` if a search for the end of a comment has reached the end of the text, so that later
    /// searches are skipped.
    comments_never_end: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comments {
    Slashes,
    All,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, steps: Cell::new(0), comments_never_end: Cell::new(false) }
    }

    /// Returns the number of byte reads. Repeated reads count, too.
    pub(super) fn steps(&self) -> usize {
        self.steps.get()
    }

    pub(super) fn add_steps(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps);
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn byte(&self, index: usize) -> Option<u8> {
        self.add_steps(1);
        self.text.as_bytes().get(index).copied()
    }

    pub(super) fn slice(&self, range: Range<usize>) -> &'a str {
        self.add_steps(range.len());
        self.text.get(range).unwrap_or("")
    }

    pub(super) fn skip(&self, mut index: usize, skips: impl Fn(u8) -> bool) -> usize {
        while self.byte(index).is_some_and(&skips) {
            index += 1;
        }
        index
    }

    pub(super) fn skip_space(&self, index: usize) -> usize {
        self.skip(index, |byte| byte.is_ascii_whitespace())
    }

    pub(super) fn skip_blanks(&self, index: usize) -> usize {
        self.skip(index, |byte| byte == b' ' || byte == b'\t')
    }

    pub(super) fn skip_marks(&self, index: usize) -> usize {
        self.skip(index, |byte| matches!(byte, b' ' | b'\t' | b'`' | b'*'))
    }

    pub(super) fn find_line_end(&self, index: usize) -> usize {
        self.skip(index, |byte| byte != b'\n')
    }

    /// Returns the end of `word` if the text has it at `index`, ignoring case.
    pub(super) fn find_word_end(&self, index: usize, word: &str) -> Option<usize> {
        let bytes = self.text.as_bytes().get(index..)?.iter();
        let same =
            bytes.zip(word.as_bytes()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
        self.add_steps(same + 1);
        (same == word.len()).then_some(index + same)
    }

    pub(super) fn find(&self, range: Range<usize>, needle: &str) -> Option<usize> {
        let start = range.start;
        let found = self.text.get(range.clone()).and_then(|rest| rest.find(needle));
        self.add_steps(found.map_or(range.len(), |found| found + needle.len()));
        found.map(|found| start + found)
    }

    /// Returns whether the sign of a comment begins a path instead, because text follows the sign
    /// directly, as in `/**/*.py` and `//host/share`.
    pub(super) fn begins_path(&self, index: usize) -> bool {
        self.byte(index) == Some(b'/')
            && matches!(self.byte(index + 1), Some(b'/' | b'*'))
            && self.byte(index + 2).is_some_and(|byte| !byte.is_ascii_whitespace())
    }

    /// Skips blanks and comments. The error is the start of a comment without an end.
    pub(super) fn skip_comments(&self, index: usize, comments: Comments) -> Result<usize, usize> {
        let mut position = self.skip_space(index);
        loop {
            position = match (self.byte(position), self.byte(position + 1)) {
                (Some(b'#'), _) if comments == Comments::All => self.find_line_end(position),
                (Some(b'/'), Some(b'/')) => self.find_line_end(position),
                (Some(b'/'), Some(b'*')) => self.find_comment_end(position)?,
                _ => return Ok(position),
            };
            position = self.skip_space(position);
        }
    }

    fn find_comment_end(&self, index: usize) -> Result<usize, usize> {
        if self.comments_never_end.get() {
            return Err(index);
        }
        let end = self.find(index + 2..self.len(), "*/");
        self.comments_never_end.set(end.is_none());
        end.map(|end| end + 2).ok_or(index)
    }

    pub(super) fn skip_markup(&self, index: usize) -> usize {
        let mut position = self.skip_space(index);
        while let Some(mark @ (b'`' | b'*')) = self.byte(position) {
            let end = self.skip(position, |byte| byte == mark);
            let is_fence = mark == b'`' && end - position >= 3;
            position =
                if is_fence { self.skip(end, |byte| byte.is_ascii_alphanumeric()) } else { end };
            position = self.skip_space(position);
        }
        position
    }

    pub(super) fn find_name_end(&self, index: usize) -> usize {
        self.skip(index, is_name_byte)
    }

    pub(super) fn find_key_end(&self, index: usize) -> Option<usize> {
        let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$';
        self.byte(index).filter(|byte| is_start(*byte))?;
        Some(self.skip(index, |byte| is_start(byte) || byte.is_ascii_digit() || byte == b'-'))
    }
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/')
}

pub(super) struct CallReader<'a> {
    pub(super) source: Source<'a>,
    find_tool: &'a dyn Fn(&str) -> Option<Arc<KnownTool>>,
    missed: RefCell<Vec<MissedCall>>,
}

impl<'a> CallReader<'a> {
    pub(super) fn new(
        text: &'a str,
        find_tool: &'a dyn Fn(&str) -> Option<Arc<KnownTool>>,
    ) -> Self {
        Self { source: Source::new(text), find_tool, missed: RefCell::default() }
    }

    pub(super) fn resolve_tool(&self, name: &str) -> Option<Arc<KnownTool>> {
        let name = name.trim();
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return None;
        }
        let plain = || {
            let space = NAMESPACES.iter().find(|space| name.starts_with(**space))?;
            (self.find_tool)(&name[space.len()..])
        };
        (self.find_tool)(name).or_else(plain)
    }

    pub(super) fn add_missed(&self, name: &str, reason: MissReason) {
        let mut missed = self.missed.borrow_mut();
        let name = name.trim();
        let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
        if is_name && missed.len() < MAX_MISSED_CALLS {
            missed.push(MissedCall { tool: name.to_owned(), reason });
        }
    }

    pub(super) fn count_missed(&self) -> usize {
        self.missed.borrow().len()
    }

    /// Drops the missed calls from index `from` on, because they are part of a thought or a
    /// negation.
    pub(super) fn forget_missed(&self, from: usize) {
        self.missed.borrow_mut().truncate(from);
    }

    pub(super) fn into_missed(self) -> Vec<MissedCall> {
        self.missed.into_inner()
    }

    pub(super) fn make_call(
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

pub(super) enum Attempt {
    /// No call begins at this place. The scan continues at the position in this variant.
    Passed(usize),
    Read {
        calls: Vec<ToolCall>,
        end: usize,
    },
    Broken(BrokenCall),
}

/// A call that cannot be read, so the following text may belong to its arguments.
pub(super) struct BrokenCall {
    pub(super) calls: Vec<ToolCall>,
    pub(super) position: usize,
    pub(super) is_cut: bool,
    pub(super) is_known: bool,
}

impl Attempt {
    pub(super) fn at_end_of_text(reading: &CallReader<'_>, tool: &KnownTool) -> Self {
        let source = &reading.source;
        reading.add_missed(tool.name.as_str(), MissReason::Cut);
        Self::Broken(BrokenCall {
            calls: Vec::new(),
            position: source.len(),
            is_cut: true,
            is_known: true,
        })
    }
}
