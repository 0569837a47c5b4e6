//! JSON that others wrote, and what is nearly JSON: texts that were cut within a character.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// Reads JSON as programs really print it: a byte order mark may stand before it, and a text in it
/// may have been cut in the middle of a character, which leaves half of an escaped pair (`\ud83d`)
/// or bytes that are not UTF-8. In the place of such a half stands U+FFFD.
pub fn from_foreign<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    serde_json::from_slice(text).or_else(|err| {
        let whole = String::from_utf8_lossy(text);
        let mended = mended(&whole);
        let is_new = matches!(whole, Cow::Owned(_)) || matches!(mended, Cow::Owned(_));
        if is_new { serde_json::from_str(&mended) } else { Err(err) }
    })
}

/// Returns JSON in which no escaped half of a pair stands alone.
fn mended(text: &str) -> Cow<'_, str> {
    let (mut mended, mut seen, mut at) = (String::new(), 0, 0);
    while let Some(next) = text[at..].find('\\') {
        at += next;
        let pair = (unit(&text[at..]), text.get(at + 6..).and_then(unit));
        at += match pair {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                mended.push_str(&text[seen..at]);
                mended.push_str("\\ufffd");
                seen = at + 6;
                6
            }
            // What is escaped is no escape itself.
            _ => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if seen == 0 {
        return text.into();
    }
    mended.push_str(&text[seen..]);
    mended.into()
}

/// Returns the code unit that a text begins with as `\uXXXX`.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|it| it.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn halves_of_characters_are_replaced() {
        for (text, expected) in [
            (&br#"{"a":"x\ud83d"}"#[..], json!({ "a": "x\u{fffd}" })),
            (br#"["\ud83d\ude00","\ude00\ud83d","\ud83dx"]"#, json!(["😀", "��", "�x"])),
            (br#"["\\ud83d","\\\ud83d","\u00e4"]"#, json!(["\\ud83d", "\\\u{fffd}", "ä"])),
            (b"\xEF\xBB\xBF{\"a\":1}", json!({ "a": 1 })),
            (b"\"caf\xe9\"", json!("caf\u{fffd}")),
        ] {
            assert_eq!(from_foreign::<Value>(text).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for text in ["", "{", "\\", "\"\\", "\\u", "\"\\ud83d", "\"\\ud8", "NaN", "[1e999]", "\\ä"]
        {
            assert!(from_foreign::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_read_as_it_is(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            let json = json!({ text.as_str(): [text.as_str()] }).to_string();
            prop_assert_eq!(mended(&json), json.as_str());
            let _ = from_foreign::<Value>(&bytes);
            let _ = mended(&text);
        }
    }
}
