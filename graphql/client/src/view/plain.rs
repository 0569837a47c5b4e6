//! Escapes texts of tools, plans and servers for a terminal, so that a text cannot control it or
//! forge a line of Faber's.

use std::{borrow::Cow, fmt::Write as _};

pub fn safe_line(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (before, letter, after) in with_neighbours(text.trim_end_matches(['\r', '\n'])) {
        match letter {
            '\r' if after == '\n' => (),
            '\n' => escaped.push('⏎'),
            '\t' => escaped.push(' '),
            letter => push_escaped(&mut escaped, before, letter, after),
        }
    }
    escaped
}

pub fn safe_block(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (before, letter, after) in with_neighbours(text) {
        match letter {
            '\r' if after == '\n' => (),
            '\n' | '\t' => escaped.push(letter),
            letter => push_escaped(&mut escaped, before, letter, after),
        }
    }
    escaped
}

/// Escapes unsafe characters in a JSON document without changing its meaning.
pub fn safe_json(text: &str) -> Cow<'_, str> {
    if !with_neighbours(text)
        .any(|(before, letter, after)| letter != '\n' && should_escape(before, letter, after))
    {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for (before, letter, after) in with_neighbours(text) {
        if letter != '\n' && should_escape(before, letter, after) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(letter);
        }
    }
    Cow::Owned(escaped)
}

pub fn safe_coloured(text: &str) -> String {
    let (text, end) = text.strip_suffix('\n').map_or((text, ""), |text| (text, "\n"));
    let mut escaped = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    escaped.push_str(&safe_line(parts.next().unwrap_or_default()));
    for part in parts {
        let digits = part
            .find(|letter: char| !letter.is_ascii_digit() && letter != ';')
            .unwrap_or(part.len());
        let (code, rest) = part.split_at(digits);
        match rest.strip_prefix('m') {
            Some(rest) => {
                let _ = write!(escaped, "\u{1b}[{code}m{}", safe_line(rest));
            }
            None => {
                let _ = write!(escaped, "␛[{}", safe_line(part));
            }
        }
    }
    escaped + end
}

pub fn push_escaped(escaped: &mut String, before: char, letter: char, after: char) {
    match letter {
        letter if !should_escape(before, letter, after) => escaped.push(letter),
        '\u{7f}' => escaped.push('␡'),
        // Replaces a control character by its visible picture. Unicode has these pictures in the
        // same order as the control characters.
        '\0'..='\u{1f}' => escaped.push(char::from_u32(0x2400 + u32::from(letter)).unwrap_or('�')),
        letter => escaped.extend(letter.escape_unicode()),
    }
}

/// Returns each character with its neighbours. The first and the last character have a space as
/// neighbour.
pub fn with_neighbours(text: &str) -> impl Iterator<Item = (char, char, char)> {
    let after = text.chars().skip(1).chain([' ']);
    let before = [' '].into_iter().chain(text.chars());
    before.zip(text.chars()).zip(after).map(|((before, letter), after)| (before, letter, after))
}

/// Returns whether a character is escaped. Joiners are kept between two harmless characters from
/// U+0300 on, which include the letters and emojis that need them.
fn should_escape(before: char, letter: char, after: char) -> bool {
    match letter {
        '\u{200c}' | '\u{200d}' => {
            before < '\u{300}'
                || after < '\u{300}'
                || can_control_terminal(before)
                || can_control_terminal(after)
        }
        letter => can_control_terminal(letter),
    }
}

fn can_control_terminal(letter: char) -> bool {
    matches!(letter,
        '\0'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, escaped) in [
            ("plain, Straße, 日本", "plain, Straße, 日本"),
            ("\u{1b}[2J\u{1b}]0;t\u{7}", "␛[2J␛]0;t␇"),
            ("\u{7f}\u{9b}2J", "␡\\u{9b}2J"),
            ("a\u{202e}b\u{2066}\u{200b}", "a\\u{202e}b\\u{2066}\\u{200b}"),
            ("one\r\ntwo\nthree\rfour\n", "one⏎two⏎three␍four"),
            ("a\tb", "a b"),
            ("pay\u{200d}pal 👩\u{200d}💻", "pay\\u{200d}pal 👩\u{200d}💻"),
            ("\u{fdd1}\u{e0041}\u{feff}", "\\u{fdd1}\\u{e0041}\\u{feff}"),
        ] {
            assert_eq!(safe_line(text), escaped);
        }
        assert_eq!(safe_block("one\r\ntwo\n\u{8}"), "one\ntwo\n␈");
    }

    #[test]
    fn escaped_json_has_the_same_meaning() {
        let document = json!({ "k\u{9b}": "a\u{202e}\u{e0041}\u{7f}\n👩\u{200d}💻" });
        let written = serde_json::to_string_pretty(&document).unwrap();
        let escaped = safe_json(&written);
        assert!(escaped.contains(r"a\u202e\udb40\udc41\u007f"), "{escaped}");
        assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), document);
    }

    #[test]
    fn fabers_colours_are_kept() {
        let text = "\u{1b}[33mWARN\u{1b}[0m a\nWARN b \u{1b}[2J\u{1b}]0;x\u{7}\n";
        assert_eq!(safe_coloured(text), "\u{1b}[33mWARN\u{1b}[0m a⏎WARN b ␛[2J␛]0;x␇\n");
    }

    proptest! {
        #[test]
        fn no_escaped_text_controls_a_terminal(text in ".*") {
            let is_quiet = |shown: &str| !shown.chars().any(|char| char.is_control() && char != '\n' && char != '\t');
            prop_assert!(is_quiet(&safe_block(&text)));
            prop_assert!(is_quiet(&safe_json(&text)));
            let one = safe_line(&text);
            prop_assert!(is_quiet(&one) && !one.contains(['\n', '\t']), "{one:?}");
            prop_assert_eq!(safe_line(&one), one);
        }
    }
}
