//! Values without quotes in prose.
//!
//! A path, a pattern, a number and the like end at the blank: what follows is prose again. A plain
//! word begins a phrase, which goes on to the next pair, a comma or the end of the sentence. Where a
//! comma or `and` and a pair of the tool stand further on in the sentence, all before them is the value.

use super::{
    asides::{is_aside, plain},
    natural,
    pairs::{BETWEEN, Key, Reader},
    source::Source,
    word,
};

/// Bytes that words do not have, and paths and patterns do.
const PATH: [char; 10] = ['/', '\\', '*', '?', '[', ']', '{', '}', '~', '$'];

/// How parameters are called that are the place of something.
const PLACES: [&str; 6] = ["path", "file", "filename", "dir", "url", "uri"];

/// How far a value goes by itself.
struct Reach {
    end: usize,
    /// Whether it is made of words.
    is_phrase: bool,
    /// Whether it cannot end there: a quote follows.
    is_open: bool,
}

/// Returns where the value of `key` ends; where it cannot be told, that is an error.
pub(super) fn end(reader: &Reader<'_, '_>, key: &Key<'_>) -> Result<usize, usize> {
    let reach = reach(reader, key)?;
    let end = reach.end;
    if reader.begun.get() != end && reader.next(end).is_some() {
        return Ok(end);
    }
    match reader.ahead(end) {
        Some(pair) => joined(reader, key, &reach, pair).ok_or(end),
        None if reach.is_open || goes_on(reader, &reach) => Err(end),
        None => Ok(end),
    }
}

fn reach(reader: &Reader<'_, '_>, key: &Key<'_>) -> Result<Reach, usize> {
    let (source, at) = (reader.source, key.value);
    let first = word_end(reader, at);
    let word = trimmed(source.slice(at..first));
    if word.is_empty() || is_torn(source, first) {
        return Err(first.max(at));
    }
    let end = at + word.len();
    if end < first || !begins_phrase(reader, key, word, first) {
        return Ok(Reach { end, is_phrase: false, is_open: false });
    }
    let (end, is_open) = phrase_end(reader, first)?;
    let end = at + trimmed(source.slice(at..end)).len();
    Ok(Reach { end, is_phrase: true, is_open })
}

/// Returns whether the word that is the first of a value and ends at `end` is one of several.
fn begins_phrase(reader: &Reader<'_, '_>, key: &Key<'_>, word: &str, end: usize) -> bool {
    let source = reader.source;
    let is_plain = word.chars().all(|it| it.is_alphabetic() || it == '\'');
    if is_plain && word::literal(word).is_none() {
        return true;
    }
    if !reader.tool.is_text(key.name) || is_path(word, key.name) || reader.next(end).is_some() {
        return false;
    }
    let next = source.skip_blanks(end);
    let is_word = source.byte(next).is_some_and(|it| it.is_ascii_alphanumeric() || it >= 0x80);
    let stop = source.skip(next, |it| it.is_ascii_alphanumeric() || it >= 0x80);
    next > end && is_word && !is_aside(source.slice(next..stop)) && !reader.begins(next, stop)
}

/// Returns whether a word that is given for `parameter` is a path, a pattern or an option.
pub(super) fn is_path(word: &str, parameter: &str) -> bool {
    let name = parameter.to_ascii_lowercase();
    let is_file = || PLACES.iter().any(|it| name.ends_with(it));
    word.contains(PATH) || word.starts_with(['.', '-']) || word.contains('.') && is_file()
}

/// Returns where a phrase ends whose first word ends at `first`, and whether a quote is in its way.
fn phrase_end(reader: &Reader<'_, '_>, first: usize) -> Result<(usize, bool), usize> {
    let source = reader.source;
    // Where the phrase ends if a pair follows the words behind it, which stand between pairs.
    let mut words = None;
    let mut end = first;
    loop {
        let next = source.skip_blanks(end);
        if next == end {
            return Ok((end, false));
        }
        let stop = word_end(reader, next);
        let word = source.slice(next..stop);
        let before = words.unwrap_or(end);
        if may_be_key(source, word, stop) && reader.next(before).is_some() {
            return Ok((before, false));
        }
        if word.is_empty() && matches!(source.byte(stop), Some(b'"' | b'`')) {
            return Ok((end, true));
        }
        if is_torn(source, stop) {
            return Err(stop);
        }
        // The name of a function has its bracket in the same word.
        let name = word.find('(').unwrap_or(word.len());
        if word.is_empty() {
            return Ok((end, false));
        }
        if reader.begins(next, next + name) {
            reader.begun.set(end);
            return Ok((end, false));
        }
        let behind = || source.byte(source.skip_marks(stop));
        if word.ends_with(':') && !matches!(behind(), None | Some(b'\n')) {
            // What is said next may be a part of it or not.
            return Ok((end, true));
        }
        let is_between = word == "&" || BETWEEN.iter().any(|it| word.eq_ignore_ascii_case(it));
        words = is_between.then_some(before);
        end = stop;
        if trimmed(word).len() < word.len() {
            return Ok((end, false));
        }
    }
}

/// Returns whether a pair may begin with a word that ends at `stop`.
fn may_be_key(source: &Source<'_>, word: &str, stop: usize) -> bool {
    word.contains(['=', ':'])
        || word.is_empty()
        || matches!(source.byte(source.skip_marks(stop)), Some(b'=' | b':'))
}

/// Returns where a value ends that goes on to the pair at `pair`, if what lies between can only be
/// a part of it.
fn joined(reader: &Reader<'_, '_>, key: &Key<'_>, reach: &Reach, pair: usize) -> Option<usize> {
    let source = reader.source;
    let (more, is_sure) = before_pair(source.slice(reach.end..pair));
    let end = reach.end + more.len();
    let is_clear = if reach.is_phrase {
        true
    } else {
        let word = source.slice(key.value..reach.end);
        let may_have_words = reader.tool.is_text(key.name) || !reader.tool.has(key.name);
        may_have_words
            && !begins_aside(more)
            && !more.contains('=')
            && (!is_path(word, key.name) || has_path(more))
    };
    let is_value = is_sure && is_clear && is_one(more, |it| reader.tool.has(it));
    let is_next = || reader.next(end).is_some_and(|it| it.at == pair);
    (is_value && is_next()).then_some(end)
}

/// Drops what stands between two pairs from the end of a text before the second, and returns whether
/// it had a comma, a line break or `and`.
fn before_pair(text: &str) -> (&str, bool) {
    let mut text = text;
    let mut is_sure = false;
    loop {
        let rest = text.trim_end_matches(|it: char| it.is_whitespace() || "`*(".contains(it));
        let line = text[rest.len()..].contains('\n');
        is_sure |= line;
        let bullet =
            rest.strip_suffix(['-', '+']).filter(|it| it.trim_end_matches(' ').ends_with('\n'));
        let comma = rest.strip_suffix([',', ';', '&']);
        let word = rest.rsplit(|it: char| !it.is_alphabetic()).next().unwrap_or_default();
        let is_between = BETWEEN.iter().any(|it| word.eq_ignore_ascii_case(it));
        text = match bullet.or(comma) {
            Some(shorter) => {
                is_sure |= comma.is_some();
                shorter
            }
            None if is_between => {
                is_sure |= word.eq_ignore_ascii_case("and");
                &rest[..rest.len() - word.len()]
            }
            None => return (rest, is_sure),
        };
    }
}

fn begins_aside(more: &str) -> bool {
    let more = more.trim_start();
    more.starts_with(['(', ')']) || is_aside(more.split_whitespace().next().unwrap_or_default())
}

fn has_path(more: &str) -> bool {
    more.split_whitespace()
        .any(|it| it.starts_with('-') || plain(it).contains(['.', '/', '\\', '*']))
}

/// Returns whether a text goes on with a value all the way: no sentence ends in it, nothing opens or
/// closes, and behind no comma there is another thought or a parameter.
fn is_one(more: &str, is_parameter: impl Fn(&str) -> bool) -> bool {
    let ends_sentence = more
        .split_inclusive(char::is_whitespace)
        .map(|it| (it.trim_end(), it))
        .any(|(word, it)| word.len() < it.len() && word.ends_with(['.', '!', '?', ';']));
    // `what is new? and …` is a question.
    let is_ended =
        more.ends_with(['.', '!', '?', ';']) && !more.trim_matches(['!', '?']).is_empty();
    let is_torn = more.contains(['`', '<', '\n']) || more.matches('"').count() % 2 == 1;
    let is_another = more.split(',').skip(1).any(|part| {
        let word = plain(part.split_whitespace().next().unwrap_or_default());
        !matches!(word, "and" | "or") && is_aside(word) || is_parameter(word)
    });
    !(ends_sentence || is_ended || is_torn || is_another)
}

/// Returns whether what follows a value, and is no pair, may still be a part of it.
fn goes_on(reader: &Reader<'_, '_>, reach: &Reach) -> bool {
    let source = reader.source;
    let comma = source.skip(reach.end, |it| it == b',');
    let next = source.skip_blanks(comma);
    if next == reach.end {
        return false;
    }
    let stop = source.skip(next, |it| !it.is_ascii_whitespace() && it != b',');
    let word = plain(source.slice(next..stop));
    let is_word = word.chars().all(char::is_alphabetic);
    let is_prose = word.is_empty()
        || word.starts_with(['(', '`', '<', '-', '–', '—', '#'])
        || is_aside(word)
        || natural::is_verb(word)
        || reader.begins(next, source.name_end(next))
        || reader.opens(next);
    if is_prose {
        false
    } else if comma > reach.end {
        !is_word || reach.is_phrase && !word.ends_with("ing")
    } else {
        !reach.is_phrase && has_path(word) && !matches!(word, "e.g" | "i.e")
    }
}

fn word_end(reader: &Reader<'_, '_>, start: usize) -> usize {
    let source = reader.source;
    let mut at = start;
    while let Some(byte) = source.byte(at) {
        at = match byte {
            b'(' if at > start => word::group_end(source, at).unwrap_or(at + 1),
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
            Some('.') => ends_with_full_stop(word),
            Some(')') => !word.contains('('),
            _ => false,
        };
        if !ends_sentence {
            return word;
        }
        word = &word[..word.len() - 1];
    }
}

/// Returns whether the last character of a word is the full stop of a sentence, and not `..` or `/.`.
pub(super) fn ends_with_full_stop(word: &str) -> bool {
    let before = word.strip_suffix('.').and_then(|it| it.chars().last());
    before.is_some_and(|it| !matches!(it, '.' | '/'))
}
