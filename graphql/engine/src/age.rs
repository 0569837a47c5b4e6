use std::time::Duration;

const MAX_SECONDS: u64 = 100 * 366 * 86_400;

pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, unit) =
        text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let seconds: Option<u64> = match unit.trim() {
        "s" => Some(1),
        "m" | "min" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        "w" => Some(7 * 86_400),
        _ => None,
    };
    let read = seconds.and_then(|unit_s| number.parse::<u64>().ok()?.checked_mul(unit_s));
    read.filter(|seconds| *seconds <= MAX_SECONDS).map(Duration::from_secs).ok_or_else(|| {
        format!("`{text}` is not a duration: write one such as `30d`, `12h`, `90m` or `3600s`")
    })
}

/// Formats a duration in the largest unit, from days to seconds, that has no fraction.
pub fn format(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (unit, length) = [("d", 86_400), ("h", 3_600), ("m", 60)]
        .into_iter()
        .find(|(_, length)| seconds > 0 && seconds.is_multiple_of(*length))
        .unwrap_or(("s", 1));
    format!("{}{unit}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_duration_is_parsed_unchanged() {
        for (written, expected) in [
            ("30d", "30d"),
            ("2w", "14d"),
            ("36h", "36h"),
            ("90m", "90m"),
            ("3600s", "1h"),
            ("61s", "61s"),
            ("0s", "0s"),
        ] {
            let length = parse(written).unwrap();
            assert_eq!((&*format(length), parse(&format(length))), (expected, Ok(length)));
        }
    }

    #[test]
    fn a_duration_needs_a_unit() {
        for (text, expected) in [
            ("30d", Some(2_592_000)),
            ("12h", Some(43_200)),
            ("90m", Some(5_400)),
            (" 90 min ", Some(5_400)),
            ("3600s", Some(3_600)),
            ("2w", Some(1_209_600)),
            ("0s", Some(0)),
            ("30", None),
            ("", None),
            ("d", None),
            ("-1d", None),
            ("1.5d", None),
            ("1M", None),
            ("99999999d", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(parse(text).ok().map(|age| age.as_secs()), expected, "{text}");
        }
    }
}
