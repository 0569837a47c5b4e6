//! Times of options such as `--since`, which are absolute or an age.

use chrono::{SecondsFormat, TimeDelta};
use client::failure::Failure;
use engine::age;
use shared::clock::{Clock as _, Timestamp, WallClock};

/// Parses the time of an option, if it is given. Returns the time in the format of the API.
pub(super) fn parse_option(flag: &str, text: Option<&str>) -> Result<Option<String>, Failure> {
    text.map(|text| parse_time(flag, text, WallClock.now())).transpose()
}

fn parse_time(flag: &str, text: &str, now: Timestamp) -> Result<String, Failure> {
    let format = |time: Timestamp| time.to_rfc3339_opts(SecondsFormat::Micros, true);
    if let Ok(time) = text.parse() {
        return Ok(format(time));
    }
    let age = age::parse(text).ok().and_then(|age| TimeDelta::from_std(age).ok());
    let time = age.and_then(|age| now.checked_sub_signed(age));
    time.map(format).ok_or_else(|| {
        Failure::usage(format!(
            "`{flag} {text}` is not a time: write one such as `2026-01-02T03:04:05Z`, or an age \
             such as `7d`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_absolute_or_an_age() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let parse = |text| parse_time("--since", text, now);
        assert_eq!(parse("2025-12-31T01:00:00+01:00").unwrap(), "2025-12-31T00:00:00.000000Z");
        assert_eq!(parse("1d").unwrap(), "2026-01-01T00:00:00.000000Z");
        let failure = parse("yesterday").unwrap_err();
        assert!(failure.message.starts_with("`--since yesterday` is not a time"), "{failure:?}");
        assert_eq!(failure.status(), 2);
    }
}
