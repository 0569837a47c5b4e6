use serde_json::Value;

use super::source::Source;

const TYPOGRAPHIC_QUOTES: [(&str, &str); 2] = [("“", "”"), ("‘", "’")];

/// Returns the position of the opening quote of the string at a position, and whether the string is
/// raw, as in Python's `r"\d"`.
pub(super) fn find_quote(source: &Source<'_>, index: usize) -> Option<(usize, bool)> {
    let is_quote = |byte: u8| matches!(byte, b'"' | b'\'');
    match source.byte(index)? {
        first if is_quote(first) => Some((index, false)),
        b'r' | b'R' => {
            source.byte(index + 1).filter(|byte| is_quote(*byte)).map(|_| (index + 1, true))
        }
        b'f' | b'F' | b'b' | b'B' | b'u' | b'U' => {
            source.byte(index + 1).filter(|byte| is_quote(*byte)).map(|_| (index + 1, false))
        }
        0xe2 => TYPOGRAPHIC_QUOTES
            .iter()
            .any(|(open, _)| source.find_word_end(index, open).is_some())
            .then_some((index, false)),
        _ => None,
    }
}

pub(super) fn is_expression(source: &Source<'_>, index: usize, text: &str) -> bool {
    matches!(source.byte(index), Some(b'f' | b'F')) && text.contains('{')
}

/// Reads the string whose quote is at this position. Returns `None` if the string does not end.
/// Allows line breaks and lone backslashes, because models forget escapes.
pub(super) fn read_string(
    source: &Source<'_>,
    index: usize,
    is_raw: bool,
) -> Option<(String, usize)> {
    let quote = source.byte(index)?;
    let print = TYPOGRAPHIC_QUOTES
        .iter()
        .find(|(open, _)| quote == 0xe2 && source.find_word_end(index, open).is_some());
    let is_triple = source.byte(index + 1) == Some(quote) && source.byte(index + 2) == Some(quote);
    let width = if is_triple || print.is_some() { 3 } else { 1 };
    let is_close = |index: usize| match print {
        Some((_, close)) => source.find_word_end(index, close).is_some(),
        None => ends_string(source, index, quote, width),
    };
    let mut text = String::new();
    let mut from = index + width;
    let mut position = from;
    loop {
        match source.byte(position)? {
            b'\\' if is_raw => position += 1 + usize::from(source.byte(position + 1).is_some()),
            b'\\' => {
                text.push_str(source.slice(from..position));
                let (character, end) = read_escape(source, position);
                match character {
                    Some(character) => text.push(character),
                    None => text.push('\\'),
                }
                from = end;
                position = end.max(position + 2);
            }
            byte if byte == quote && is_close(position) => {
                text.push_str(source.slice(from..position));
                return Some((text, position + width));
            }
            _ => position += 1,
        }
    }
}

fn ends_string(source: &Source<'_>, index: usize, quote: u8, width: usize) -> bool {
    (1..width).all(|offset| source.byte(index + offset) == Some(quote))
}

/// Reads an escape. Returns no character if the escape is not valid, because the backslash is then
/// literal.
fn read_escape(source: &Source<'_>, index: usize) -> (Option<char>, usize) {
    let character = match source.byte(index + 1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(byte @ (b'"' | b'\'' | b'\\' | b'/')) => char::from(byte),
        Some(b'u') => {
            return read_unicode(source, index)
                .map_or((None, index + 1), |(character, end)| (Some(character), end));
        }
        _ => return (None, index + 1),
    };
    (Some(character), index + 2)
}

fn read_unicode(source: &Source<'_>, index: usize) -> Option<(char, usize)> {
    let first = read_hex(source, index + 2)?;
    let end = index + 6;
    let low = || {
        let is_escape = source.byte(end) == Some(b'\\') && source.byte(end + 1) == Some(b'u');
        is_escape
            .then(|| read_hex(source, end + 2))
            .flatten()
            .filter(|low| (0xdc00..0xe000).contains(low))
    };
    if (0xd800..0xdc00).contains(&first)
        && let Some(low) = low()
    {
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
        return Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), end + 6));
    }
    Some((char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), end))
}

fn read_hex(source: &Source<'_>, index: usize) -> Option<u32> {
    (index..index + 4).try_fold(0, |code, position| {
        Some(code * 16 + char::from(source.byte(position)?).to_digit(16)?)
    })
}

/// Returns the end of the word at a position, trailing blanks included. Returns an error with the
/// position of an opening bracket at which another value may begin.
pub(super) fn find_word_end(
    source: &Source<'_>,
    index: usize,
    ends: &[u8],
) -> Result<usize, usize> {
    let mut end = index;
    let mut is_after_blank = false;
    while let Some(byte) = source.byte(end) {
        match byte {
            b'\n' | b'\r' => break,
            byte if ends.contains(&byte) => break,
            b'/' if is_after_blank && matches!(source.byte(end + 1), Some(b'/' | b'*')) => break,
            b'{' | b'[' | b'(' => {
                end = find_group_end(source, end).ok_or(end)?;
                is_after_blank = false;
                continue;
            }
            _ => {}
        }
        is_after_blank = byte == b' ' || byte == b'\t';
        end += 1;
    }
    Ok(end)
}

pub(super) fn find_group_end(source: &Source<'_>, index: usize) -> Option<usize> {
    let close = match source.byte(index)? {
        b'{' => b'}',
        b'[' => b']',
        _ => b')',
    };
    let stop = source.skip(index + 1, |byte| {
        byte != close && !matches!(byte, b'{' | b'[' | b'(' | b'"' | b'\'' | b'\n' | b'\r')
    });
    (source.byte(stop) == Some(close)).then_some(stop + 1)
}

pub(super) fn parse_word(word: &str) -> Value {
    parse_literal(word).unwrap_or_else(|| Value::from(word))
}

/// Returns the value of a literal. An integer beyond 64 bits is not a literal, because rounding
/// would change it.
pub(super) fn parse_literal(word: &str) -> Option<Value> {
    if word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false") {
        return Some(Value::from(word.eq_ignore_ascii_case("true")));
    }
    if matches!(word, "null" | "None" | "NULL") {
        return Some(Value::Null);
    }
    let is_number =
        word.starts_with(|character: char| character.is_ascii_digit() || character == '-');
    let number: Value = serde_json::from_str(word).ok().filter(|_| is_number)?;
    let is_whole = !word.contains(['.', 'e', 'E']);
    (!is_whole || !number.is_f64() || word == "-0").then_some(number)
}
