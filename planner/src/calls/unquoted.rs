//! Values without quotes where nothing but arguments is on the line.
//!
//! Such a value goes on to the next `, name=` or ` and name=`, else to the end of the line.

use super::{
    asides::{self, is_aside},
    pairs::{Key, Place, Reader, is_wordy},
    phrase, word,
};

/// Returns where the value of `key` ends, at the latest at `limit`; where it is not clear what belongs
/// to it, that is an error.
pub(super) fn end(
    reader: &Reader<'_, '_>,
    key: &Key<'_>,
    limit: Option<usize>,
) -> Result<usize, usize> {
    let source = reader.source;
    let start = key.value;
    let (mut at, mut end, mut quotes, mut ticks) = (start, start, 0_usize, 0_usize);
    let mut is_last = limit.is_none();
    let mut may_quote = true;
    let limit_at = limit.unwrap_or_else(|| source.len());
    while let Some(byte) = source.byte(at).filter(|_| at < limit_at) {
        let before = source.byte(at - 1).unwrap_or_default();
        let next = match byte {
            b'\n' | b'\r' => break,
            b'{' | b'[' => {
                word::group_end(source, at).filter(|it| *it <= limit_at).unwrap_or(at + 1)
            }
            // What is in quotes is one, if they close.
            b'"' if may_quote && quotes % 2 == 0 && !is_wordy(before) => {
                let close = source.skip(at + 1, |it| it != b'"' && it != b'\n');
                may_quote = source.byte(close) == Some(b'"') && close < limit_at;
                quotes += usize::from(may_quote);
                if may_quote { close + 1 } else { at + 1 }
            }
            b'<' if limit.is_none() && is_tag(source.byte(at + 1)) => break,
            b' ' | b'\t' | b',' => {
                if reader.next(at).is_some() {
                    is_last = false;
                    break;
                }
                if byte == b',' && reader.is_followed(at) {
                    return Err(at);
                }
                let next = source.skip_blanks(at + 1);
                if reader.opens(next) {
                    break;
                }
                at = next;
                end = if byte == b',' { next } else { end };
                continue;
            }
            b';' | b'&' if source.byte(at + 1).is_none_or(|it| it.is_ascii_whitespace()) => {
                if reader.next(at).is_some() {
                    is_last = false;
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
        (quotes % 2 == 1 || ticks % 2 == 1) && reader.without_marks(text).len() == text.len();
    let is_line = is_last && reader.place == Place::Line;
    let rest = if is_line { last(reader, key, text) } else { Some(text) };
    match rest {
        Some(rest) if !is_torn && (is_line || limit.is_some() || !has_more(reader, key, text)) => {
            Ok(start + rest.len())
        }
        _ => Err(at),
    }
}

/// Returns what of a text is the last value of a line; nothing, if that is not clear.
fn last<'t>(reader: &Reader<'_, '_>, key: &Key<'_>, text: &'t str) -> Option<&'t str> {
    let text = text.strip_suffix(" .").unwrap_or(text).trim_end();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let is_stopped = phrase::ends_with_full_stop(first);
    let word = if is_stopped { &first[..first.len() - 1] } else { first };
    if rest.is_empty() {
        return Some(word);
    }
    let mut words = rest.split_whitespace();
    if has_more(reader, key, text) {
        return is_aside(words.next().unwrap_or_default()).then_some(first);
    }
    let is_path = phrase::is_path(first, key.name);
    let is_prose = asides::is_prose(words.clone());
    if is_path && (is_prose || is_stopped && rest.starts_with(char::is_uppercase)) {
        return Some(word);
    }
    let is_aside = if is_path {
        words.next().is_some_and(is_aside)
    } else {
        // A file to read, or a text about files.
        is_prose && !first.chars().all(char::is_alphabetic)
    };
    (!is_aside && !begins_sentence(text)).then_some(text)
}

/// Returns whether words follow a number or the like, which is all that the parameter may be.
fn has_more(reader: &Reader<'_, '_>, key: &Key<'_>, text: &str) -> bool {
    let Some((first, _)) = text.split_once(char::is_whitespace) else { return false };
    let tool = reader.tool;
    tool.has(key.name) && !tool.is_text(key.name) && word::literal(first).is_some()
}

/// Returns whether a sentence seems to end in a text, and another to begin.
fn begins_sentence(text: &str) -> bool {
    let words = || text.split_whitespace();
    words()
        .zip(words().skip(1))
        .any(|(word, next)| word.ends_with(['.', '!', '?']) && next.starts_with(char::is_uppercase))
}

/// Returns whether a tag, or what interfaces write for the end of a reply, goes on with that byte.
fn is_tag(next: Option<u8>) -> bool {
    next.is_some_and(|it| it.is_ascii_alphabetic() || matches!(it, b'/' | b'|' | b'!' | 0xef))
}
