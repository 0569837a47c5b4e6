//! Finds integers beyond 64 bits, which JSON readers round to doubles.

use shared::diagnostic::Diagnostic;

use super::{names::clip, place};

const MAX_SHOWN: usize = 100;

/// Returns a warning for each, with its path below `root`. `text` must be JSON.
pub(super) fn find_rounded(text: &str, root: &str) -> Vec<Diagnostic> {
    let mut scanner = Scanner { text, root, at: 0, levels: Vec::new(), found: Vec::new() };
    while scanner.found.len() < MAX_SHOWN
        && let Some(byte) = text.as_bytes().get(scanner.at)
    {
        scanner.read_token(*byte);
    }
    scanner.found
}

struct Scanner<'a> {
    text: &'a str,
    root: &'a str,
    at: usize,
    levels: Vec<Level<'a>>,
    found: Vec<Diagnostic>,
}

enum Level<'a> {
    Item(usize),
    /// A field of an object: its quoted key, after it was read.
    Field(Option<&'a str>),
}

impl Scanner<'_> {
    fn read_token(&mut self, byte: u8) {
        let start = self.at;
        self.at += 1;
        match byte {
            b'{' => self.levels.push(Level::Field(None)),
            b'[' => self.levels.push(Level::Item(0)),
            b'}' | b']' => drop(self.levels.pop()),
            b',' => match self.levels.last_mut() {
                Some(Level::Item(item)) => *item += 1,
                Some(Level::Field(key)) => *key = None,
                None => (),
            },
            b'"' => {
                self.skip_string();
                if let Some(Level::Field(key @ None)) = self.levels.last_mut() {
                    *key = self.text.get(start..self.at);
                }
            }
            b'-' | b'0'..=b'9' => self.check_number(start),
            _ => (),
        }
    }

    fn skip_string(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'"' => return,
                _ => (),
            }
        }
    }

    fn check_number(&mut self, start: usize) {
        let rest = self.text.as_bytes()[self.at..].iter();
        let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        self.at += rest.take_while(is_part).count();
        let number = &self.text[start..self.at];
        let is_whole = !number.contains(['.', 'e', 'E']);
        if is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
            let number = clip(number);
            let message = format!("`{number}` is too large for 64 bits and becomes a double");
            let help = format!("write it as text, `\"{number}\"`, if every digit matters");
            let notice = Diagnostic::warning("plan.number_rounded", self.current_path(), message);
            self.found.push(notice.with_help(help));
        }
    }

    fn current_path(&self) -> String {
        let inside = self.levels.iter().map(|level| match level {
            Level::Item(item) => format!("[{item}]"),
            Level::Field(key) => {
                let key = key.and_then(|key| serde_json::from_str::<String>(key).ok());
                place::key_path(&key.unwrap_or_default())
            }
        });
        let place = format!("{}{}", self.root, inside.collect::<String>());
        place.strip_prefix('.').map_or(place.clone(), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: &Expect) {
        serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        let found: Vec<_> = find_rounded(text, "").into_iter().map(|it| it.to_string()).collect();
        expected.assert_eq(&found.join("\n"));
    }

    #[test]
    fn integers_above_64_bits_are_reported_with_their_path() {
        check(
            r#"{"a": [1, {"b\"}": 18446744073709551616}], "c d": -9223372036854775809}"#,
            &expect![[r#"
                warning[plan.number_rounded] a[1]["b\"}"]: `18446744073709551616` is too large for 64 bits and becomes a double (write it as text, `"18446744073709551616"`, if every digit matters)
                warning[plan.number_rounded] ["c d"]: `-9223372036854775809` is too large for 64 bits and becomes a double (write it as text, `"-9223372036854775809"`, if every digit matters)"#]],
        );
        let inside = r#"[18446744073709551615, -9223372036854775808, 1e30, 123456789012345678901.5,
            "99999999999999999999999", "\\\"99999999999999999999999", {"99999999999999999999": 0}]"#;
        check(inside, &expect![[""]]);
    }
}
