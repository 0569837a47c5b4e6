//! Searching the lines of files with ripgrep's engine.

use std::{
    fmt,
    io::{self, Read},
    path::Path,
};

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch,
};
use shared::tool::ToolError;

use crate::root::{Halt, Root, Stop};

/// Bytes of a pattern: a longer one was not written by a person.
const PATTERN_BYTES: usize = 4 << 10;
/// Bytes that a pattern may compile to: what people write needs a fraction, named classes of
/// characters included.
const COMPILED_BYTES: usize = 4 << 20;
/// Bytes that it may compile to where a class of characters is one of bytes: what is larger has
/// thousands of states at once, and each byte of a file costs as many steps.
const STATES_BYTES: usize = 128 << 10;
/// The same for a pattern that cannot be read so, because it names classes.
const CLASSES_BYTES: usize = 1 << 20;
/// How deep a pattern may nest: its parser recurses.
const PATTERN_DEPTH: u32 = 100;
/// Bytes of one line that are in memory at once: minified programs and exported data have a few
/// million.
pub(super) const LINE_BYTES: usize = 16 << 20;

/// What a search sees in a file, in the order of its lines.
#[derive(Debug)]
pub(super) enum Seen<'a> {
    /// A line that matches.
    Match { number: u64, line: &'a [u8] },
    /// A line beside one.
    Context { number: u64, line: &'a [u8] },
    /// Lines are left out here.
    Gap,
}

/// How the search of a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Searched {
    /// At its end, or because nobody wanted to see more.
    Done,
    /// It is no text: what was seen does not count.
    Binary,
    /// It could not be read to its end.
    Unreadable,
    /// It has a line of more than [`LINE_BYTES`], and was searched up to that.
    TooLong,
    /// It had to stop.
    Halted(Halt),
}

/// Compiles a pattern that is to match within lines.
pub(super) fn matcher(pattern: &str, is_case_insensitive: bool) -> Result<RegexMatcher, ToolError> {
    check_pattern(pattern)?;
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(is_case_insensitive)
        .multi_line(true)
        .crlf(true)
        .dfa_size_limit(COMPILED_BYTES)
        .nest_limit(PATTERN_DEPTH);
    let by_bytes = builder.clone().unicode(false).size_limit(STATES_BYTES).build(pattern);
    let most = match by_bytes {
        Ok(_) => COMPILED_BYTES,
        Err(err) if is_too_large(&err) => {
            return Err(bad_pattern(pattern, "it is too large: repeat less, or search for a part"));
        }
        Err(_) => CLASSES_BYTES,
    };
    builder.size_limit(most).build(pattern).map_err(|err| bad_pattern(pattern, &err))
}

/// The library has no other word for it.
fn is_too_large(err: &grep_regex::Error) -> bool {
    err.to_string().contains("size limit")
}

/// Makes what searches files with some lines around each match.
pub(super) fn searcher(context: usize) -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES))
        .before_context(context)
        .after_context(context)
        .build()
}

/// Refuses a pattern that only a machine writes.
pub(super) fn check_pattern(pattern: &str) -> Result<(), ToolError> {
    match pattern.len() {
        0 => Err(bad_pattern(pattern, "it is empty")),
        1..=PATTERN_BYTES => Ok(()),
        _ => Err(bad_pattern(pattern, format_args!("it is longer than {PATTERN_BYTES} bytes"))),
    }
}

/// Makes the error of a pattern that is none.
pub(super) fn bad_pattern(pattern: &str, why: impl fmt::Display) -> ToolError {
    ToolError::failed(format!("Invalid pattern '{pattern}': {why}")).without_retry()
}

/// Searches a file, by its settled path, for as long as whoever sees it wants more.
pub(super) fn search_file(
    (root, path, stop): (&Root, &Path, &Stop),
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    see: impl FnMut(Seen<'_>) -> bool,
) -> Searched {
    match root.open_settled(path) {
        Ok((file, _)) => search((file, stop), searcher, matcher, see),
        Err(_) => Searched::Unreadable,
    }
}

/// Searches what can be read. It stops when it has to, also in the middle of a file that never
/// ends.
pub(super) fn search(
    (from, stop): (impl Read, &Stop),
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    see: impl FnMut(Seen<'_>) -> bool,
) -> Searched {
    let mut eye = Eye { see, is_binary: false };
    let result = searcher.search_reader(matcher, Stopping { from, stop }, &mut eye);
    match (result, stop.halt()) {
        (Err(err), Some(halt)) if is_halt(&err) => Searched::Halted(halt),
        (Err(err), _) if is_too_long(&err) => Searched::TooLong,
        (Err(_), _) => Searched::Unreadable,
        (Ok(()), _) if eye.is_binary => Searched::Binary,
        (Ok(()), _) => Searched::Done,
    }
}

/// Reads until the work has to stop.
struct Stopping<'a, R> {
    from: R,
    stop: &'a Stop,
}

impl<R: Read> Read for Stopping<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stop.halt() {
            Some(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the search has to stop")),
            None => self.from.read(buffer),
        }
    }
}

/// The library has no other word for it.
fn is_too_long(err: &io::Error) -> bool {
    err.to_string().contains("allocation limit")
}

fn is_halt(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::TimedOut
}

struct Eye<F> {
    see: F,
    is_binary: bool,
}

impl<F: FnMut(Seen<'_>) -> bool> Sink for Eye<F> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let number = found.line_number().unwrap_or_default();
        Ok((self.see)(Seen::Match { number, line: found.bytes() }))
    }

    fn context(&mut self, _: &Searcher, beside: &SinkContext<'_>) -> io::Result<bool> {
        let number = beside.line_number().unwrap_or_default();
        Ok((self.see)(Seen::Context { number, line: beside.bytes() }))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        Ok((self.see)(Seen::Gap))
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.is_binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}
