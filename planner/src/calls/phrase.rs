//! Values without quotes in prose.
//!
//! A path, a pattern, a number and the like end at the blank: what follows is prose again. A plain
//! word begins a phrase, which goes on to the next pair, a comma or the end of the sentence.

use super::{pairs::Reader, source::Source, word};

/// Returns where the value that begins at `at` ends; where it cannot be told, that is an error.
pub(super) fn end(reader: &Reader<'_, '_>, at: usize) -> Result<usize, usize> {
    let source = reader.source;
    let first = word_end(reader, at);
    let word = trimmed(source.slice(at..first));
    if word.is_empty() || is_torn(source, first) {
        return Err(first.max(at));
    }
    let end = at + word.len();
    let is_plain = word.chars().all(|it| it.is_alphabetic() || it == '\'');
    if !is_plain || first != end || word::literal(word).is_some() {
        return Ok(end);
    }
    let end = phrase_end(reader, first)?;
    Ok(at + trimmed(source.slice(at..end)).len())
}

fn phrase_end(reader: &Reader<'_, '_>, first: usize) -> Result<usize, usize> {
    let source = reader.source;
    let mut end = first;
    loop {
        let next = source.skip_blanks(end);
        if next == end || reader.next(end).is_some() {
            return Ok(end);
        }
        let stop = word_end(reader, next);
        let word = source.slice(next..stop);
        if is_torn(source, stop)
            || word.is_empty() && matches!(source.byte(stop), Some(b'"' | b'`'))
        {
            return Err(stop);
        }
        // The name of a function has its bracket in the same word.
        let name = word.find('(').unwrap_or(word.len());
        if word.is_empty() || word.ends_with(':') || reader.begins(next, next + name) {
            return Ok(end);
        }
        end = stop;
        if trimmed(word).len() < word.len() {
            return Ok(end);
        }
    }
}

fn word_end(reader: &Reader<'_, '_>, mut at: usize) -> usize {
    let source = reader.source;
    while let Some(byte) = source.byte(at) {
        at = match byte {
            b'{' | b'[' => match word::group_end(source, at) {
                Some(end) => end,
                None => return at,
            },
            b',' if !is_inner(reader, at + 1) => return at,
            b'`' | b'"' | b'<' => return at,
            it if it.is_ascii_whitespace() => return at,
            _ => at + 1,
        };
    }
    at
}

/// Returns whether a comma before `at` is part of the word around it.
fn is_inner(reader: &Reader<'_, '_>, at: usize) -> bool {
    reader.source.byte(at).is_some_and(|it| !it.is_ascii_whitespace())
        && reader.key_at(at).is_none()
}

/// Returns whether what stops a word at `at` may be a part of it: nothing closes there.
fn is_torn(source: &Source<'_>, at: usize) -> bool {
    let next = || source.byte(at + 1);
    match source.byte(at) {
        Some(b'{' | b'[') => true,
        Some(b'"') => next().is_some_and(|it| it.is_ascii_alphanumeric()),
        Some(b'`') => {
            let behind = source.skip(at, |it| it == b'`');
            source.byte(behind).is_some_and(|it| it.is_ascii_alphanumeric())
        }
        Some(b'<') => {
            !matches!(next(), Some(b'/' | b'|' | 0xef)) && source.word_at(at, "<br").is_none()
        }
        _ => false,
    }
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
