use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shared::limits;

const MAX_KEY_BYTES: usize = 256;
const ESCAPE: char = '%';

/// A group of memories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Scope {
    Global,
    #[default]
    Project,
    Snippets,
}

impl Scope {
    pub(super) const ALL: [Self; 3] = [Self::Global, Self::Project, Self::Snippets];

    fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Project => "project",
            Self::Snippets => "snippets",
        }
    }

    pub(super) fn name_prefix(self) -> String {
        format!("{self}/")
    }

    pub(super) fn record_name(self, key: &Key) -> String {
        let mut name = self.name_prefix();
        name.extend(key.0.chars().flat_map(|char| {
            let (escape, written) =
                escape_char(char).map_or((None, char), |code| (Some(ESCAPE), code));
            escape.into_iter().chain([written])
        }));
        name
    }

    pub(super) fn key_of_record(self, name: &str) -> Option<Key> {
        let rest = name.strip_prefix(self.as_str())?.strip_prefix('/')?;
        let (mut key, mut chars) = (String::new(), rest.chars());
        while let Some(char) = chars.next() {
            key.push(if char == ESCAPE { unescape_char(chars.next()?)? } else { char });
        }
        Some(Key(key))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The key of a memory: a text of 1 to 256 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(inline)]
pub(super) struct Key(String);

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = text.len();
        if bytes == 0 {
            return Err("a key is a text that is not empty".to_owned());
        }
        let key = Self(text);
        // In the name of a record, an escaped character takes two characters, so the name can be
        // too long even if the key is not.
        let longest = Scope::Snippets.record_name(&key).len();
        if bytes > MAX_KEY_BYTES || longest > limits::NAME_BYTES {
            return Err(format!(
                "the key has {bytes} bytes; the limit is {MAX_KEY_BYTES}: use a short name, and \
                 put the text into the value"
            ));
        }
        Ok(key)
    }
}

impl Key {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes control characters, so a key takes one line.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            if char.is_control() {
                write!(f, "{}", char.escape_default())?;
            } else {
                write!(f, "{char}")?;
            }
        }
        Ok(())
    }
}

/// Returns the character to write after the escape character, if `char` needs an escape. C0 control
/// characters use the caret notation, C1 control characters use other characters of Latin-1.
fn escape_char(char: char) -> Option<char> {
    match char {
        ESCAPE => Some(ESCAPE),
        '/' => Some('-'),
        '\u{7f}' => Some('?'),
        '\0'..='\u{1f}' => shift_char(char, '\0', '@'),
        '\u{80}'..='\u{9f}' => shift_char(char, '\u{80}', '\u{a0}'),
        _ => None,
    }
}

fn unescape_char(char: char) -> Option<char> {
    match char {
        ESCAPE => Some(ESCAPE),
        '-' => Some('/'),
        '?' => Some('\u{7f}'),
        '@'..='_' => shift_char(char, '@', '\0'),
        '\u{a0}'..='\u{bf}' => shift_char(char, '\u{a0}', '\u{80}'),
        _ => None,
    }
}

fn shift_char(char: char, from: char, to: char) -> Option<char> {
    char::from_u32(char as u32 - from as u32 + to as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> Key {
        text.to_owned().try_into().unwrap()
    }

    #[test]
    fn a_record_name_keeps_the_readable_characters_of_its_key() {
        for (text, name) in [
            ("deploy target", "project/deploy target"),
            ("a/b", "project/a%-b"),
            ("100%", "project/100%%"),
            ("\0\n\u{7f}\u{80}\u{9f}", "project/%@%J%?%\u{a0}%\u{bf}"),
            ("日本", "project/日本"),
        ] {
            assert_eq!(Scope::Project.record_name(&key(text)), name);
            assert_eq!(Scope::Project.key_of_record(name), Some(key(text)));
        }
        for name in ["project", "projects/a", "global/a", "project/%", "project/%x"] {
            assert_eq!(Scope::Project.key_of_record(name), None, "{name}");
        }
    }

    #[test]
    fn a_key_must_not_be_empty_or_too_long() {
        assert!(Key::try_from(String::new()).unwrap_err().contains("not empty"));
        assert!(Key::try_from("ö".repeat(MAX_KEY_BYTES / 2)).is_ok());
        assert!(Key::try_from("x".repeat(MAX_KEY_BYTES + 1)).unwrap_err().contains("257"));
        assert!(Key::try_from("/".repeat(250)).is_ok());
    }

    proptest! {
        #[test]
        fn a_record_name_is_valid_and_decodes_to_its_key(
            text in "([/%\u{0}-\u{a0}]|\\PC){1,40}",
            scope in prop::sample::select(Scope::ALL.to_vec()),
        ) {
            let key = key(&text);
            let name = scope.record_name(&key);
            prop_assert!(name.len() <= limits::NAME_BYTES && !name.contains(char::is_control));
            prop_assert_eq!(name.matches('/').count(), 1);
            prop_assert_eq!(scope.key_of_record(&name), Some(key));
        }
    }
}
