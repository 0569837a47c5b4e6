//! Finds encodings of a secret that have too many forms to list: percent-encoding, JSON escapes,
//! and base 64 in lines.

/// Line breaks and indentation in base64, as they are or as JSON escapes.
const LINE_BREAKS: [&[u8]; 6] = [b"\n", b"\r", b"\\n", b"\\r", b" ", b"\t"];
/// The longest separator between two lines of base 64.
const MAX_BREAK_BYTES: usize = 64;
/// Bytes of an escaped code unit: `\u00dc`.
const ESCAPED_UNIT_BYTES: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EncodedSecret {
    /// Any byte may be percent-encoded, because languages differ. A space may be `+`.
    Percent(String),
    /// Any character may be escaped as in JSON, because languages differ.
    Escaped(String),
    /// Base 64 in lines of any length.
    Lines(String),
}

impl EncodedSecret {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Percent(text) | Self::Escaped(text) | Self::Lines(text) => text,
        }
    }

    pub(super) fn max_secret_bytes(&self) -> usize {
        match self {
            Self::Percent(text) => text.len() * 3,
            Self::Escaped(text) => text.encode_utf16().count() * ESCAPED_UNIT_BYTES,
            // Adds space for line separators. The shortest common lines have 60 characters.
            Self::Lines(text) => text.len() + text.len() / 8,
        }
    }

    pub(super) fn replace_in(&self, from: String, replacement: &str) -> String {
        let is_possible = match self {
            Self::Percent(text) => from.contains('%') || (text.contains(' ') && from.contains('+')),
            Self::Escaped(_) => from.contains('\\'),
            Self::Lines(_) => from.contains('\n') || from.contains("\\n"),
        };
        if !is_possible {
            return from;
        }
        let bytes = from.as_bytes();
        let (mut left, mut seen, mut position) = (String::new(), 0, 0);
        while position < bytes.len() {
            // A match must begin and end at character boundaries.
            let end = self.match_length(&bytes[position..]).map(|end| position + end);
            match end.and_then(|end| Some((end, from.get(seen..position)?, from.get(end..)?))) {
                Some((end, before, _)) => {
                    left.push_str(before);
                    left.push_str(replacement);
                    (seen, position) = (end, end);
                }
                None => position += 1,
            }
        }
        if seen == 0 {
            return from;
        }
        left.push_str(&from[seen..]);
        left
    }

    fn match_length(&self, text: &[u8]) -> Option<usize> {
        let mut position = 0;
        if let Self::Escaped(secret) = self {
            for char in secret.chars() {
                position += match_json_escaped(text.get(position..)?, char)?;
            }
            return (position > 0).then_some(position);
        }
        for byte in self.text().bytes() {
            let rest = text.get(position..)?;
            position += match self {
                Self::Percent(_) => match_percent_encoded(rest, byte)?,
                Self::Escaped(_) | Self::Lines(_) => {
                    let between = if position == 0 { 0 } else { break_length(rest) };
                    (rest.get(between) == Some(&byte)).then_some(between + 1)?
                }
            };
        }
        (position > 0).then_some(position)
    }
}

/// Returns the length of a byte, encoded or not, at the start of a text.
fn match_percent_encoded(text: &[u8], byte: u8) -> Option<usize> {
    if let [b'%', high, low, ..] = text {
        let digit = |letter: u8| char::from(letter).to_digit(16);
        let code = digit(*high).zip(digit(*low)).map(|(high, low)| high * 16 + low);
        if code == Some(u32::from(byte)) {
            return Some(3);
        }
    }
    let is_plain = *text.first()? == byte || (byte == b' ' && text[0] == b'+');
    is_plain.then_some(1)
}

/// Returns the length of a character, escaped or not, at the start of a text.
fn match_json_escaped(text: &[u8], char: char) -> Option<usize> {
    let mut units = [0; 2];
    let units = char.encode_utf16(&mut units);
    let mut escaped = text.chunks(ESCAPED_UNIT_BYTES).map(parse_escaped_unit);
    if units.iter().all(|unit| escaped.next().flatten() == Some(*unit)) {
        return Some(units.len() * ESCAPED_UNIT_BYTES);
    }
    let mut buffer = [0; 4];
    let plain = char.encode_utf8(&mut buffer).as_bytes();
    let short: &[u8] = match char {
        '\n' => b"n",
        '\r' => b"r",
        '\t' => b"t",
        _ => plain,
    };
    // An escaped backslash must be checked first, because it begins with a backslash.
    if text.strip_prefix(b"\\").is_some_and(|rest| rest.starts_with(short)) {
        return Some(1 + short.len());
    }
    text.starts_with(plain).then_some(plain.len())
}

/// Parses a code unit in the form `\uXXXX`.
fn parse_escaped_unit(escaped: &[u8]) -> Option<u16> {
    let digits = escaped.strip_prefix(b"\\u").filter(|digits| digits.len() == 4)?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn break_length(text: &[u8]) -> usize {
    let mut position = 0;
    while let Some(mark) = LINE_BREAKS.iter().find(|mark| text[position..].starts_with(mark))
        && position < MAX_BREAK_BYTES
    {
        position += mark.len();
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_with_any_characters_percent_encoded() {
        let encoded_secret = EncodedSecret::Percent("p%ss ä!".to_owned());
        for (text, expected) in [
            ("a p%25ss%20%C3%A4! b", "a X b"),
            ("p%25ss+ä%21p%25ss%20%c3%a4!", "XX"),
            ("%70%25%73%73%20%c3%a4%21", "X"),
            ("ä%p%25ss%20%C3", "ä%p%25ss%20%C3"),
            ("%%p", "%%p"),
            ("100% ä", "100% ä"),
            ("", ""),
        ] {
            assert_eq!(encoded_secret.replace_in(text.to_owned(), "X"), expected, "{text}");
        }
        assert_eq!(encoded_secret.max_secret_bytes(), 24);
    }

    #[test]
    fn a_secret_is_found_with_any_characters_escaped() {
        let encoded_secret = EncodedSecret::Escaped("g/A&<\\Ü😀\n\"x".to_owned());
        for (text, expected) in [
            (r#"a g/A\u0026\u003c\\\u00dc\ud83d\uDE00\n\"x b"#, "a X b"),
            (r"g\/A&\u003C\u005cÜ😀\u000a\u0022\u0078", "X"),
            (r"g/A\u0026<\\\u00dc\ud83d", r"g/A\u0026<\\\u00dc\ud83d"),
            (r"\u", r"\u"),
            (r"g\", r"g\"),
            ("", ""),
        ] {
            assert_eq!(encoded_secret.replace_in(text.to_owned(), "X"), expected, "{text}");
        }
        let bytes: usize = "g/A&<\\Ü😀\n\"x".encode_utf16().count() * 6;
        assert_eq!(encoded_secret.max_secret_bytes(), bytes);
    }

    #[test]
    fn an_encoded_secret_is_found_across_line_breaks() {
        let encoded_secret = EncodedSecret::Lines("QUJDREVG".to_owned());
        for (text, expected) in [
            ("QUJD\nREVG", "X"),
            ("xQUJ\r\n  DRE\r\n  VGx\n", "xXx\n"),
            (r#"{"a": "QU\nJDRE\nVG"}"#, r#"{"a": "X"}"#),
            ("\nQUJDxREVG\n", "\nQUJDxREVG\n"),
            ("QUJD\n", "QUJD\n"),
        ] {
            assert_eq!(encoded_secret.replace_in(text.to_owned(), "X"), expected, "{text}");
        }
        let far = format!("QUJD{}REVG", "\n".repeat(100));
        assert_eq!(encoded_secret.replace_in(far.clone(), "X"), far);
    }
}
