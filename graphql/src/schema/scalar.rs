use async_graphql::{InputValueError, InputValueResult, Scalar, ScalarType, Value};
use chrono::{DurationRound, SecondsFormat, TimeDelta};
use shared::clock::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DateTime(pub(super) Timestamp);

/// Time with microseconds, in the format of RFC 3339: `2026-01-02T03:04:05.000006Z`. An input can
/// have any offset, and digits after microseconds are ignored.
#[Scalar(specified_by_url = "https://datatracker.ietf.org/doc/html/rfc3339")]
impl ScalarType for DateTime {
    fn parse(value: Value) -> InputValueResult<Self> {
        let Value::String(text) = value else {
            return Err(InputValueError::expected_type(value));
        };
        let parsed = text.parse::<Timestamp>().map_err(|err| {
            let hint = "write a time such as `2026-01-02T03:04:05Z`";
            InputValueError::custom(format!("`{text}` is not a timestamp: {err}; {hint}"))
        })?;
        Ok(Self(parsed.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(parsed)))
    }

    fn to_value(&self) -> Value {
        Value::String(format_time(self.0))
    }
}

impl From<Timestamp> for DateTime {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

pub(super) fn format_time(at: Timestamp) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Converts a number to a GraphQL integer. A number that is too large becomes the largest integer.
pub(super) fn to_int(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

pub(super) fn milliseconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to_milliseconds(to - from)
}

pub(super) fn to_milliseconds(time: TimeDelta) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a double counts microseconds for centuries")]
    let micros = time.num_microseconds().unwrap_or(i64::MAX) as f64;
    micros / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_with_any_offset_and_written_in_utc() {
        for (text, expected) in [
            ("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05.000000Z")),
            ("2026-01-02T03:04:05.1234567+02:00", Some("2026-01-02T01:04:05.123456Z")),
            ("2026-01-02", None),
            ("", None),
        ] {
            let read = DateTime::parse(Value::from(text)).ok();
            assert_eq!(read.map(|moment| format_time(moment.0)).as_deref(), expected, "{text}");
        }
        assert!(DateTime::parse(Value::from(5)).is_err());
    }
}
