use std::{collections::BTreeMap, fmt::Display};

use serde_json::Value;
use shared::clock::Timestamp;

use super::plain;
use crate::types::Text;

const TABLE_TEXT_CHARS: usize = 300;

pub fn format_duration(ms: f64) -> String {
    if ms < 9.95 {
        format!("{ms:.1} ms")
    } else if ms < 999.5 {
        format!("{ms:.0} ms")
    } else if ms < 59_950.0 {
        format!("{:.1} s", ms / 1_000.0)
    } else {
        let seconds = (ms / 1_000.0).round();
        format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

pub fn count_noun<N: Copy + Display + PartialEq + From<u8>>(n: N, singular: &str) -> String {
    let ending = if n == N::from(1) { "" } else { "s" };
    format!("{n} {singular}{ending}")
}

pub fn ms_between(from: Timestamp, until: Timestamp) -> Option<f64> {
    let micros = u64::try_from((until - from).num_microseconds()?).ok()?;
    Some(std::time::Duration::from_micros(micros).as_secs_f64() * 1_000.0)
}

pub fn format_second(at: &str) -> String {
    plain::safe_line(at.split('.').next().unwrap_or_default().trim_end_matches('Z'))
        .replace('T', " ")
}

pub fn clip_text(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    format!("{kept}…")
}

pub fn first_line(text: &str) -> String {
    plain::safe_line(&clip_text(text.lines().next().unwrap_or_default(), TABLE_TEXT_CHARS))
}

pub fn format_labels(labels: &BTreeMap<Text, Text>) -> String {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

pub fn json_line(value: &Value, max: usize) -> String {
    clip_text(&plain::safe_line(&value.to_string()), max)
}

pub fn pretty_json(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

pub fn indent_json(value: &Value, columns: usize) -> String {
    let lead = " ".repeat(columns);
    let lines: Vec<String> =
        pretty_json(value).lines().map(|line| format!("{lead}{line}")).collect();
    lines.join("\n")
}

pub fn format_step_name(step: &str, index: Option<u64>) -> String {
    match index {
        Some(index) => format!("{step}[{index}]"),
        None => step.to_owned(),
    }
}

pub fn list_names<T: AsRef<str>>(names: &[T], max: usize) -> String {
    let mut shown_names: Vec<String> = names
        .iter()
        .take(max)
        .map(|name| format!("`{}`", plain::safe_line(name.as_ref())))
        .collect();
    match (names.len().saturating_sub(max), shown_names.pop()) {
        (_, None) => String::new(),
        (0, Some(last)) if shown_names.is_empty() => last,
        (0, Some(last)) => format!("{} and {last}", shown_names.join(", ")),
        (more, Some(last)) => {
            shown_names.push(last);
            format!("{} and {more} more", shown_names.join(", "))
        }
    }
}

pub fn quote_for_shell(name: &str) -> String {
    engine::quote_for_shell(&plain::safe_line(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_is_short_and_escaped() {
        assert_eq!(list_names(&["a", "b", "c"], 3), "`a`, `b` and `c`");
        assert_eq!(list_names(&["a", "b", "c"], 2), "`a`, `b` and 1 more");
        assert_eq!(list_names(&["a"], 2), "`a`");
        assert_eq!(
            (quote_for_shell("a.b-1"), quote_for_shell("l[1]")),
            ("a.b-1".into(), "'l[1]'".into())
        );
        assert_eq!(
            (quote_for_shell("it's"), quote_for_shell("-x")),
            (r"'it'\''s'".into(), "'-x'".into())
        );
    }

    #[test]
    fn durations_are_formatted_briefly() {
        for (ms, expected) in [
            (0.04, "0.0 ms"),
            (9.0, "9.0 ms"),
            (12.3, "12 ms"),
            (1_500.0, "1.5 s"),
            (999.7, "1.0 s"),
            (59_949.0, "59.9 s"),
            (59_970.0, "1 min 0 s"),
            (61_000.0, "1 min 1 s"),
            (119_999.0, "2 min 0 s"),
            (7_200_000.0, "120 min 0 s"),
        ] {
            assert_eq!(format_duration(ms), expected);
        }
    }
}
