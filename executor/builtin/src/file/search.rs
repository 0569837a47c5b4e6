//! Line search with ripgrep's engine.

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

use crate::root::{StopReason, StopSignal, Walk, display_path};

const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Largest compiled pattern. Ordinary patterns need a fraction of this, even with Unicode classes.
const MAX_COMPILED_BYTES: usize = 4 << 20;
/// Largest compiled pattern with byte classes instead of Unicode classes. A larger pattern can be
/// in thousands of states at the same time, so each byte of a file would cost thousands of steps.
const MAX_BYTE_CLASS_BYTES: usize = 128 << 10;
/// Largest compiled pattern if it cannot be compiled with byte classes.
const MAX_UNICODE_CLASS_BYTES: usize = 1 << 20;
/// Deepest nesting of a pattern. The limit protects the stack, because the parser is recursive.
const MAX_PATTERN_DEPTH: u32 = 100;
/// Longest line that is searched. The limit is high, because minified code and exported data have
/// lines of a few megabytes.
pub(super) const MAX_LINE_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) enum SeenLine<'a> {
    Match {
        number: u64,
        line: &'a [u8],
    },
    Context {
        number: u64,
        line: &'a [u8],
    },
    /// Some lines between two reported lines are not shown.
    Gap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchEnd {
    /// The search reached the end, or the callback wanted no more lines.
    Done,
    /// The file is binary. The caller must ignore the lines that were reported before.
    Binary,
    Unreadable,
    /// A line is longer than [`MAX_LINE_BYTES`]. The lines before it were searched.
    TooLong,
    Halted(StopReason),
}

pub(super) fn build_matcher(
    pattern: &str,
    is_case_insensitive: bool,
) -> Result<RegexMatcher, ToolError> {
    check_pattern(pattern)?;
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(is_case_insensitive)
        .multi_line(true)
        .crlf(true)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(MAX_PATTERN_DEPTH);
    let by_bytes = builder.clone().unicode(false).size_limit(MAX_BYTE_CLASS_BYTES).build(pattern);
    let maximum = match by_bytes {
        Ok(_) => MAX_COMPILED_BYTES,
        Err(err) if is_too_large(&err) => {
            return Err(invalid_pattern_error(
                pattern,
                "it is too large: use fewer repetitions, or search for a part",
            ));
        }
        Err(_) => MAX_UNICODE_CLASS_BYTES,
    };
    builder.size_limit(maximum).build(pattern).map_err(|err| invalid_pattern_error(pattern, &err))
}

/// Returns whether a pattern is too large. ripgrep's library reports this case only in the text of
/// the error.
fn is_too_large(err: &grep_regex::Error) -> bool {
    err.to_string().contains("size limit")
}

pub(super) fn build_searcher(context: usize) -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_BYTES))
        .before_context(context)
        .after_context(context)
        .build()
}

pub(super) fn check_pattern(pattern: &str) -> Result<(), ToolError> {
    match pattern.len() {
        0 => Err(invalid_pattern_error(pattern, "it is empty")),
        1..=MAX_PATTERN_BYTES => Ok(()),
        _ => Err(invalid_pattern_error(
            pattern,
            format_args!("it is longer than {MAX_PATTERN_BYTES} bytes"),
        )),
    }
}

pub(super) fn invalid_pattern_error(pattern: &str, reason: impl fmt::Display) -> ToolError {
    ToolError::failed(format!("Invalid pattern '{pattern}': {reason}")).without_retry()
}

/// Searches a file of a walk until `on_line` returns `false`. Returns `false` for a binary file,
/// whose lines do not count.
pub(super) fn search_file(
    walk: &mut Walk<'_>,
    path: &Path,
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    on_line: impl FnMut(SeenLine<'_>) -> bool,
) -> Result<bool, ToolError> {
    let outcome = match walk.root.open_canonical(path) {
        Ok((file, _)) => search_reader(file, walk.stop, searcher, matcher, on_line),
        Err(_) => SearchEnd::Unreadable,
    };
    match outcome {
        SearchEnd::Done => {}
        SearchEnd::Binary => return Ok(false),
        SearchEnd::Unreadable => walk.count_unreadable(),
        SearchEnd::TooLong => {
            let shown_path = display_path(&walk.to_caller_path(path));
            walk.count_unfinished(&shown_path);
        }
        SearchEnd::Halted(_) => drop(walk.should_stop()?),
    }
    Ok(true)
}

/// Searches a reader. Even in an endless stream, the search stops soon after `stop` is set.
pub(super) fn search_reader(
    from: impl Read,
    stop: &StopSignal,
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    on_line: impl FnMut(SeenLine<'_>) -> bool,
) -> SearchEnd {
    let mut sink = MatchSink { on_line, is_binary: false };
    let result = searcher.search_reader(matcher, StoppableReader { from, stop }, &mut sink);
    match (result, stop.stop_reason()) {
        (Err(err), Some(halt)) if is_halt(&err) => SearchEnd::Halted(halt),
        (Err(err), _) if is_too_long(&err) => SearchEnd::TooLong,
        (Err(_), _) => SearchEnd::Unreadable,
        (Ok(()), _) if sink.is_binary => SearchEnd::Binary,
        (Ok(()), _) => SearchEnd::Done,
    }
}

/// A reader that fails as soon as the call must stop.
struct StoppableReader<'a, R> {
    from: R,
    stop: &'a StopSignal,
}

impl<R: Read> Read for StoppableReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stop.stop_reason() {
            Some(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the search has to stop")),
            None => self.from.read(buffer),
        }
    }
}

/// Returns whether a line is too long. ripgrep's library reports this case only in the text of the
/// error.
fn is_too_long(err: &io::Error) -> bool {
    err.to_string().contains("allocation limit")
}

fn is_halt(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::TimedOut
}

struct MatchSink<F> {
    on_line: F,
    is_binary: bool,
}

impl<F: FnMut(SeenLine<'_>) -> bool> Sink for MatchSink<F> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let number = found.line_number().unwrap_or_default();
        Ok((self.on_line)(SeenLine::Match { number, line: found.bytes() }))
    }

    fn context(&mut self, _: &Searcher, beside: &SinkContext<'_>) -> io::Result<bool> {
        let number = beside.line_number().unwrap_or_default();
        Ok((self.on_line)(SeenLine::Context { number, line: beside.bytes() }))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        Ok((self.on_line)(SeenLine::Gap))
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.is_binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}
