//! Warnings about integers that 64 bits cannot hold, because parsers of JSON turn them into
//! doubles.

use std::{collections::BTreeMap, fmt::Write};

use serde_json::{Number, Value};
use shared::diagnostic::Diagnostic;

use crate::compile::key_path;

const MAX_WARNINGS: usize = 100;
const MAX_INTEGERS: usize = 1_000;
const MAX_SHOWN_DIGITS: usize = 64;
/// Least number of digits of an integer that 64 bits cannot hold.
const MIN_DIGITS: usize = 19;
/// 2⁶³. A double of at least this size without a fraction was an integer that 64 bits cannot hold,
/// or was written with an exponent or a decimal point.
const MIN_LARGE_INTEGER: f64 = 9_223_372_036_854_775_808.0;
/// Larger doubles without a fraction count as written with an exponent, because people do not write
/// forty digits.
const MAX_WRITTEN_INTEGER: f64 = 1e40;

/// Integers of a text that 64 bits cannot hold, by the double that each became. Strings are
/// searched, too.
#[derive(Clone, Debug, Default)]
pub struct LargeIntegers(BTreeMap<u64, Box<str>>);

impl LargeIntegers {
    pub fn find(text: &[u8]) -> Self {
        let (mut found, mut position) = (Self::default(), 0);
        while position < text.len() && found.0.len() < MAX_INTEGERS {
            let digits = text[position..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits >= MIN_DIGITS {
                found.add_integer(text, position, position + digits);
            }
            position += digits.max(1);
        }
        found
    }

    fn add_integer(&mut self, text: &[u8], start: usize, end: usize) {
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
            let more = if number.len() > MAX_SHOWN_DIGITS { "…" } else { "" };
            let shortened = format!("{}{more}", &number[..number.len().min(MAX_SHOWN_DIGITS)]);
            self.0.insert(double.to_bits(), shortened.into());
        }
    }
}

/// Warns about each double below `root` that was written as an integer, or that may have been if
/// the text of the value is not known. Adds at most `MAX_WARNINGS`.
pub fn warn_of_input(
    value: &Value,
    root: &str,
    written: Option<&LargeIntegers>,
    warnings: &mut Vec<Diagnostic>,
) {
    if written.is_some_and(|integers| integers.0.is_empty()) {
        return;
    }
    visit_doubles(value, &mut root.to_owned(), &mut |path, double, number| {
        if warnings.len() >= MAX_WARNINGS {
            return;
        }
        let (message, help) = match written.map(|integers| integers.0.get(&double.to_bits())) {
            Some(Some(text)) => (
                format!("`{text}` is too large for 64 bits and becomes a double"),
                format!("write it as text, `\"{text}\"`, if every digit matters"),
            ),
            None if may_be_rounded(double) => (
                format!("`{number}` is beyond 64 bits and kept as a double"),
                "write it as text if every digit matters".to_owned(),
            ),
            Some(None) | None => return,
        };
        let path = path.strip_prefix('.').unwrap_or(path);
        let warning = Diagnostic::warning("plan.number_rounded", path, message);
        warnings.push(warning.with_help(help));
    });
}

/// Returns a warning for each double that may have been written as an integer, up to
/// `MAX_WARNINGS`. The last digits of such an integer may be lost.
pub fn output_warnings(value: &Value, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    visit_doubles(value, &mut root.to_owned(), &mut |path, double, number| {
        if found.len() < MAX_WARNINGS && may_be_rounded(double) {
            found.push(format!(
                "`{path}` is beyond 64 bits and kept as the double `{number}`: if it was written \
                 as a whole number, its last digits may be lost; pass it as text if they matter"
            ));
        }
    });
    found
}

fn may_be_rounded(double: f64) -> bool {
    (MIN_LARGE_INTEGER..MAX_WRITTEN_INTEGER).contains(&double.abs()) && double.fract() == 0.0
}

fn visit_doubles(value: &Value, path: &mut String, visit: &mut impl FnMut(&str, f64, &Number)) {
    let inside = path.len();
    match value {
        Value::Number(number) if number.is_f64() => {
            visit(path, number.as_f64().unwrap_or_default(), number);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                visit_doubles(item, path, visit);
                path.truncate(inside);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                path.push_str(&key_path(key));
                visit_doubles(field, path, visit);
                path.truncate(inside);
            }
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(text: &str, root: &str, expected: &Expect) {
        let value = serde_json::from_str(text).expect("JSON");
        let mut found = Vec::new();
        warn_of_input(&value, root, Some(&LargeIntegers::find(text.as_bytes())), &mut found);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        expected.assert_eq(&found.join("\n"));
    }

    #[test]
    fn integers_above_64_bits_are_reported_with_their_path() {
        check(
            r#"{"a": [1, {"b\"}": 18446744073709551616}], "c d": -9223372036854775809}"#,
            "",
            &expect![[r#"
                warning[plan.number_rounded] a[1]["b\"}"]: `18446744073709551616` is too large for 64 bits and becomes a double (write it as text, `"18446744073709551616"`, if every digit matters)
                warning[plan.number_rounded] ["c d"]: `-9223372036854775809` is too large for 64 bits and becomes a double (write it as text, `"-9223372036854775809"`, if every digit matters)"#]],
        );
        check(
            r#"{"a": [1e30, 99999999999999999999, -12345678901234567890123], "b": 1.5e19,
            "c": 18446744073709551615, "d": 123456789012345678901.5, "e": 20000000000000000000.0}"#,
            "x",
            &expect![[r#"
                warning[plan.number_rounded] x.a[1]: `99999999999999999999` is too large for 64 bits and becomes a double (write it as text, `"99999999999999999999"`, if every digit matters)
                warning[plan.number_rounded] x.a[2]: `-12345678901234567890123` is too large for 64 bits and becomes a double (write it as text, `"-12345678901234567890123"`, if every digit matters)"#]],
        );
        let inside = r#"[18446744073709551615, -9223372036854775808, 1e30, 123456789012345678901.5,
            "99999999999999999999999", "\\\"99999999999999999999999", {"99999999999999999999": 0}]"#;
        check(inside, "", &expect![[""]]);
        let endless = LargeIntegers::find("9".repeat(200).as_bytes());
        assert_eq!(endless.0.values().next().unwrap().chars().count(), MAX_SHOWN_DIGITS + 1);
    }

    #[test]
    fn without_the_text_possible_integers_are_reported() {
        let value = json!({ "n": 1e30, "m": 1e40, "k": 0.5, "i": u64::MAX });
        let mut found = Vec::new();
        warn_of_input(&value, "", None, &mut found);
        assert_eq!(found.len(), 1);
        expect![[r#"["`output.n` is beyond 64 bits and kept as the double `1e+30`: if it was written as a whole number, its last digits may be lost; pass it as text if they matter"]"#]]
            .assert_eq(&format!("{:?}", output_warnings(&value, "output")));
    }
}
