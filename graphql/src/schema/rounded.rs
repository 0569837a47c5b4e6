//! Warnings about integers that 64 bits cannot hold, because parsers of JSON turn them into
//! doubles.

use std::{collections::BTreeMap, fmt::Write};

use serde_json::Value;
use shared::diagnostic::Diagnostic;

/// Maximum number of warnings.
const SHOWN: usize = 100;
/// Maximum number of integers that are remembered for one request.
const KEPT: usize = 1_000;
/// Digits of an integer that a warning shows.
const DIGITS: usize = 64;
/// Least number of digits of an integer that 64 bits cannot hold.
const FEWEST: usize = 19;
/// 2⁶³. A whole double from here on was an integer that 64 bits cannot hold, or was written with an
/// exponent.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;
/// Whole doubles from here on count as written with an exponent, because nobody writes forty
/// digits.
const WRITTEN_OUT: f64 = 1e40;

/// Integers in the text of a request that 64 bits cannot hold, by the double that each became.
///
/// Strings are searched, too. A number in a string matters only if the same double occurs
/// elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(BTreeMap<u64, Box<str>>);

impl Written {
    /// Finds the integers in a text.
    pub(crate) fn of(text: &[u8]) -> Self {
        let (mut written, mut at) = (Self::default(), 0);
        while at < text.len() && written.0.len() < KEPT {
            let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits >= FEWEST {
                written.note(text, at, at + digits);
            }
            at += digits.max(1);
        }
        written
    }

    fn note(&mut self, text: &[u8], start: usize, end: usize) {
        let is_part =
            |byte: &u8| matches!(byte, b'.' | b'e' | b'E' | b'_') || byte.is_ascii_alphabetic();
        let before = text[..start].iter().next_back();
        let start = if before == Some(&b'-') { start - 1 } else { start };
        if before.is_some_and(is_part) || text.get(end).is_some_and(is_part) {
            return;
        }
        let Ok(number) = str::from_utf8(&text[start..end]) else { return };
        if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
            return;
        }
        if let Ok(double) = number.parse::<f64>() {
            let more = if number.len() > DIGITS { "…" } else { "" };
            let shown = format!("{}{more}", &number[..number.len().min(DIGITS)]);
            self.0.insert(double.to_bits(), shown.into());
        }
    }
}

/// Warns about each double that was written as an integer. Without the text of the request, warns
/// about each double that may have been one.
pub(super) fn notice(
    value: &Value,
    path: &mut String,
    written: Option<&Written>,
    notices: &mut Vec<Diagnostic>,
) {
    let warn = |message: String, path: &str, help: String| {
        Diagnostic::warning("plan.number_rounded", path, message).with_help(help)
    };
    each(value, path, &mut |path, double, number| {
        if notices.len() >= SHOWN {
            return;
        }
        match written.map(|numbers| numbers.0.get(&double.to_bits())) {
            Some(Some(text)) => {
                let message = format!("`{text}` is too large for 64 bits and becomes a double");
                let help = format!("write it as text, `\"{text}\"`, if every digit matters");
                notices.push(warn(message, path, help));
            }
            None if is_suspect(double) => {
                let message = format!("`{number}` is beyond 64 bits and kept as a double");
                let help = "write it as text if every digit matters".to_owned();
                notices.push(warn(message, path, help));
            }
            Some(None) | None => (),
        }
    });
}

/// Returns a warning for each double that may have been an integer and has then lost its last
/// digits.
pub(super) fn warnings(value: &Value, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    each(value, &mut root.to_owned(), &mut |path, double, number| {
        if found.len() < SHOWN && is_suspect(double) {
            found.push(format!(
                "`{path}` is beyond 64 bits and kept as a double, `{number}`: a whole number has \
                 lost its last digits; pass it as text if they matter"
            ));
        }
    });
    found
}

fn is_suspect(double: f64) -> bool {
    (BEYOND..WRITTEN_OUT).contains(&double.abs()) && double.fract() == 0.0
}

/// Visits every double with its path.
fn each(value: &Value, path: &mut String, visit: &mut impl FnMut(&str, f64, &serde_json::Number)) {
    let inside = path.len();
    match value {
        Value::Number(number) if number.is_f64() => {
            visit(path, number.as_f64().unwrap_or_default(), number);
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let _ = write!(path, "[{at}]");
                each(item, path, visit);
                path.truncate(inside);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let is_plain =
                    key.chars().all(|character| character.is_alphanumeric() || character == '_');
                let _ = if is_plain { write!(path, ".{key}") } else { write!(path, "[{key:?}]") };
                each(field, path, visit);
                path.truncate(inside);
            }
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_integers_of_the_text_are_reported_as_rounded() {
        let text = br#"{"a": [1e30, 99999999999999999999, -12345678901234567890123], "b": 1.5e19,
            "c": 18446744073709551615, "d": 123456789012345678901.5, "e": 20000000000000000000.0}"#;
        let value: Value = serde_json::from_slice(text).unwrap();
        let mut notices = Vec::new();
        notice(&value, &mut "x".to_owned(), Some(&Written::of(text)), &mut notices);
        let told: Vec<_> = notices.iter().map(ToString::to_string).collect();
        expect![[r#"
            warning[plan.number_rounded] x.a[1]: `99999999999999999999` is too large for 64 bits and becomes a double (write it as text, `"99999999999999999999"`, if every digit matters)
            warning[plan.number_rounded] x.a[2]: `-12345678901234567890123` is too large for 64 bits and becomes a double (write it as text, `"-12345678901234567890123"`, if every digit matters)"#]]
        .assert_eq(&told.join("\n"));
        let endless = "9".repeat(200);
        let written = Written::of(endless.as_bytes());
        assert_eq!(written.0.values().next().unwrap().chars().count(), DIGITS + 1);
    }

    #[test]
    fn without_the_text_possible_integers_are_reported() {
        let value = json!({ "n": 1e30, "m": 1e40, "k": 0.5, "i": u64::MAX });
        let mut notices = Vec::new();
        notice(&value, &mut String::new(), None, &mut notices);
        assert_eq!(notices.len(), 1);
        expect![[r#"["`output.n` is beyond 64 bits and kept as a double, `1e+30`: a whole number has lost its last digits; pass it as text if they matter"]"#]]
            .assert_eq(&format!("{:?}", warnings(&value, "output")));
    }
}
