//! Reads JSON from other programs, including texts that were cut inside a character.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// Parses JSON as programs print it. U+FFFD replaces a character that was cut, which leaves half of
/// an escaped pair (`\ud83d`) or bytes that are not UTF-8.
pub fn parse_lenient<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    serde_json::from_slice(text).or_else(|err| {
        let whole = String::from_utf8_lossy(text);
        let repaired = replace_lone_surrogates(&whole);
        let is_new = matches!(whole, Cow::Owned(_)) || matches!(repaired, Cow::Owned(_));
        if is_new { serde_json::from_str(&repaired) } else { Err(err) }
    })
}

/// Replaces each escaped half of a surrogate pair whose other half is missing.
fn replace_lone_surrogates(text: &str) -> Cow<'_, str> {
    let (mut repaired, mut seen, mut position) = (String::new(), 0, 0);
    while let Some(next) = text[position..].find('\\') {
        position += next;
        let pair =
            (leading_unit(&text[position..]), text.get(position + 6..).and_then(leading_unit));
        position += match pair {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                repaired.push_str(&text[seen..position]);
                repaired.push_str("\\ufffd");
                seen = position + 6;
                6
            }
            // Skips the next character, too, because the character after a backslash never starts
            // an escape.
            _ => 1 + text[position + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if seen == 0 {
        return text.into();
    }
    repaired.push_str(&text[seen..]);
    repaired.into()
}

fn leading_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits
        .bytes()
        .all(|digit| digit.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn unpaired_surrogates_are_replaced() {
        for (text, expected) in [
            (&br#"{"a":"x\ud83d"}"#[..], json!({ "a": "x\u{fffd}" })),
            (br#"["\ud83d\ude00","\ude00\ud83d","\ud83dx"]"#, json!(["😀", "��", "�x"])),
            (br#"["\\ud83d","\\\ud83d","\u00e4"]"#, json!(["\\ud83d", "\\\u{fffd}", "ä"])),
            (b"\xEF\xBB\xBF{\"a\":1}", json!({ "a": 1 })),
            (b"\"caf\xe9\"", json!("caf\u{fffd}")),
        ] {
            assert_eq!(parse_lenient::<Value>(text).unwrap(), expected);
        }
    }

    #[test]
    fn invalid_json_stays_invalid() {
        for text in ["", "{", "\\", "\"\\", "\\u", "\"\\ud83d", "\"\\ud8", "NaN", "[1e999]", "\\ä"]
        {
            assert!(parse_lenient::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn valid_json_stays_unchanged(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            let json = json!({ text.as_str(): [text.as_str()] }).to_string();
            prop_assert_eq!(replace_lone_surrogates(&json), json.as_str());
            let _ = parse_lenient::<Value>(&bytes);
            let _ = replace_lone_surrogates(&text);
        }
    }
}
