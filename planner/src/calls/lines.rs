//! Arguments a line each, `key: value`, and what else may stand below the line that names a tool.

use super::{
    KnownTool,
    argument::{self, Args, Given},
    marker,
    source::Source,
};

/// Lines below a tool's that may tell of something else before its arguments come: `Reason: …`.
const LABELS: usize = 3;
/// The longest such label.
const LABEL_BYTES: usize = 32;
/// Labels that begin something new.
const BEGINS: [&str; 6] = ["tool", "action", "thought", "observation", "result", "final answer"];

/// What stands where arguments may.
pub(super) enum Below {
    /// Arguments, and where they end.
    Args(Args, usize),
    /// The mark of arguments, which ends there.
    Mark(usize),
    /// Something that may be arguments and cannot be read, at that place.
    Unclear(usize),
    /// Nothing of the kind.
    Nothing,
}

/// Reads what stands on the lines behind the mark of arguments, where its own line says nothing.
pub(super) fn marked(source: &Source<'_>, end: usize, tool: &KnownTool) -> Below {
    let own = source.skip(end, |it| matches!(it, b' ' | b'\t' | b'\r' | b'`' | b'*'));
    let mut at = source.skip_space(own);
    if source.word_at(at, "```").is_some() {
        at = source.skip_space(source.line_end(at));
    }
    let is_next = source.slice(own..at).matches('\n').count() == 1;
    let mut args = Args::new();
    let mut end = end;
    while at < source.len() {
        let start = marker::layout(source, at);
        let is_over = is_blank(source, at) || source.word_at(at, "```").is_some();
        if is_over || marker::tool(source, start).is_some() {
            break;
        }
        match pair(source, start, tool) {
            Some((key, value, stop)) => {
                args.insert(key, value);
                end = stop;
            }
            // Prose that follows blank lines is no argument.
            None if args.is_empty() && !is_next && !is_key(source, start, tool) => break,
            None if args.is_empty() && begins(source, start) => break,
            None => return Below::Unclear(start),
        }
        at = source.line_end(at) + 1;
    }
    Below::Args(args, end)
}

/// Returns what stands below a tool's line, which names no arguments and ends at `at`.
pub(super) fn unmarked(source: &Source<'_>, mut at: usize, tool: Option<&KnownTool>) -> Below {
    for _ in 0..LABELS {
        let line = marker::layout(source, at);
        if let Some(mark) = marker::arguments(source, line) {
            return Below::Mark(mark);
        }
        if source.byte(line) == Some(b'{') || tool.is_some_and(|it| is_key(source, line, it)) {
            return Below::Unclear(line);
        }
        let Some((label, end)) = label(source, line) else { return Below::Nothing };
        if BEGINS.iter().any(|it| label.eq_ignore_ascii_case(it)) {
            return Below::Nothing;
        }
        if source.byte(source.skip_blanks(end)) == Some(b'{') {
            return Below::Unclear(line);
        }
        at = source.line_end(end);
    }
    // Too much stands there to say that no arguments follow.
    Below::Unclear(at)
}

/// Reads `key: value` or `key=value` that is all of a line, and returns where it ends.
fn pair(
    source: &Source<'_>,
    at: usize,
    tool: &KnownTool,
) -> Option<(String, serde_json::Value, usize)> {
    let (key, value_at) = key(source, at).filter(|(key, _)| tool.has(key))?;
    let line = source.line_end(value_at);
    let (value, end) = match argument::quoted(source, value_at) {
        Some(Given::Value(value, end)) => (value, end),
        Some(_) => return None,
        None => {
            let text = source.slice(value_at..line).trim();
            // What follows is on lines of its own.
            if text.is_empty() || text.starts_with(['|', '>', '&']) {
                return None;
            }
            return Some((key.to_owned(), argument::typed(tool, key, text), value_at + text.len()));
        }
    };
    let rest = source.skip(end, |it| matches!(it, b',' | b'`' | b' ' | b'\t' | b'\r'));
    matches!(source.byte(rest), None | Some(b'\n')).then(|| (key.to_owned(), value, end))
}

/// Returns the key at `at`, perhaps in quotes or bold, and where its value begins.
fn key<'a>(source: &Source<'a>, at: usize) -> Option<(&'a str, usize)> {
    let is_around = |it: u8| matches!(it, b'"' | b'\'' | b'*' | b'`');
    let start = source.skip(at, is_around);
    let end = source.key_end(start)?;
    let sign = source.skip_blanks(source.skip(end, is_around));
    // `**key:** value`
    let value = source.skip_blanks(source.word_at(sign + 1, "** ").unwrap_or(sign + 1));
    let is_sign = matches!(source.byte(sign), Some(b':' | b'='));
    is_sign.then(|| (source.slice(start..end), value))
}

fn is_key(source: &Source<'_>, at: usize, tool: &KnownTool) -> bool {
    key(source, at).is_some_and(|(key, _)| tool.has(key))
}

/// Returns whether something new begins at `at`, which no argument does.
fn begins(source: &Source<'_>, at: usize) -> bool {
    source.byte(at) == Some(b'<')
        || label(source, at)
            .is_some_and(|(it, _)| BEGINS.iter().any(|b| it.eq_ignore_ascii_case(b)))
}

/// Returns the words before a colon or an equals sign, and where that ends.
fn label<'a>(source: &Source<'a>, at: usize) -> Option<(&'a str, usize)> {
    let mut end = at;
    while end - at <= LABEL_BYTES && source.byte(end).is_some_and(is_label_byte) {
        end += 1;
    }
    let sign = source.skip(end, |it| matches!(it, b'*' | b'`'));
    let is_label = end > at && matches!(source.byte(sign), Some(b':' | b'='));
    is_label.then(|| (source.slice(at..end), sign + 1))
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'_' | b'-')
}

fn is_blank(source: &Source<'_>, at: usize) -> bool {
    matches!(
        source.byte(source.skip(at, |it| matches!(it, b' ' | b'\t' | b'\r'))),
        None | Some(b'\n')
    )
}
