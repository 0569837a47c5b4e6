//! Errors of providers: which of them are temporary, and the wait before a retry. No message shows
//! a key.

use std::time::Duration;

use chrono::DateTime;
use reqwest::{
    StatusCode,
    header::{DATE, HeaderMap, HeaderName, RETRY_AFTER},
};

use super::{
    super::{
        Key, ModelError,
        http::{ExchangeError, MAX_ANSWER_BYTES},
    },
    Provider,
};

const MAX_SHOWN_CHARS: usize = 300;
const SCHEMA_WORDS: [&str; 2] = ["response_format", "json_schema"];

impl Provider {
    pub(super) fn exchange_failed(&self, err: ExchangeError) -> ModelError {
        match err {
            ExchangeError::Unreachable(cause) => self.unavailable_error(
                format!(
                    "it cannot be reached ({}): check that it runs, and check `planner.base_url`",
                    self.shorten_without_key(&cause)
                ),
                None,
            ),
            ExchangeError::ConnectionLost(cause) => self.unavailable_error(
                format!("its answer ended early ({})", self.shorten_without_key(&cause)),
                None,
            ),
            ExchangeError::TooLong => self.refused_error(format!(
                "its answer has more than {} MB, and was not read completely: check \
                 `planner.base_url`, or set `planner.max_tokens`",
                MAX_ANSWER_BYTES >> 20
            )),
        }
    }

    pub(super) fn status_error(
        &self,
        status: StatusCode,
        body: &str,
        wait: Option<Duration>,
    ) -> ModelError {
        let reason = format!("it answered {status}: {}", self.shorten_without_key(body));
        match status {
            // The account has no credit left, so waiting does not help.
            StatusCode::TOO_MANY_REQUESTS if body.contains("insufficient_quota") => {
                self.refused_error(reason)
            }
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS => self.unavailable_error(reason, wait),
            _ if status.is_server_error() => self.unavailable_error(reason, wait),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                self.refused_error(match &self.settings.key {
                    Key::Variable(name, _) => {
                        format!("{reason}; check the key in the variable `{name}`")
                    }
                    Key::File(file) => {
                        format!("{reason}; check the key in the file `{}`", file.written())
                    }
                    Key::None => {
                        format!("{reason}; name the variable with its key in `planner.api_key_env`")
                    }
                })
            }
            StatusCode::NOT_FOUND => self.refused_error(format!(
                "{reason}; check `planner.provider`, `planner.base_url` and `planner.model`"
            )),
            _ => match SCHEMA_WORDS.iter().find(|word| body.contains(**word)) {
                // Adds the word, because the shortened message no longer contains it.
                Some(word) if !reason.contains(*word) => {
                    self.refused_error(format!("{reason} (it mentions `{word}`)"))
                }
                _ => self.refused_error(reason),
            },
        }
    }

    pub(super) fn unavailable_error(&self, reason: String, wait: Option<Duration>) -> ModelError {
        ModelError::Unavailable { model: self.name.clone(), reason, wait }
    }

    pub(super) fn refused_error(&self, reason: String) -> ModelError {
        ModelError::Refused { model: self.name.clone(), reason }
    }

    pub(super) fn shorten_without_key(&self, message: &str) -> String {
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = match &self.settings.key {
            Key::Variable(_, Some(key)) => message.replace(key.as_str(), "***"),
            Key::File(file) => match file.read() {
                Ok(key) => message.replace(key.as_str(), "***"),
                Err(_) => message,
            },
            Key::None | Key::Variable(_, None) => message,
        };
        match message.char_indices().nth(MAX_SHOWN_CHARS) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message,
        }
    }
}

pub(super) fn mentions_answer_schema(reason: &str) -> bool {
    SCHEMA_WORDS.iter().any(|word| reason.contains(word))
}

/// Returns the wait that a provider asks for: in seconds, in milliseconds, or until a time of its
/// clock.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let date = |name: HeaderName| {
        let written = headers.get(name)?.to_str().ok()?;
        DateTime::parse_from_rfc2822(written.trim()).ok()
    };
    let seconds =
        number("retry-after-ms").map(|millis| millis / 1e3).or_else(|| number("retry-after"));
    match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => (date(RETRY_AFTER)? - date(DATE)?).to_std().ok(),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::{super::tests::unreachable_provider, *};

    #[test]
    fn the_status_decides_whether_to_retry() {
        let provider = unreachable_provider();
        for (status, body, may_pass) in [
            (429, "slow down", true),
            (429, r#"{"error":{"code":"insufficient_quota"}}"#, false),
            (500, "", true),
            (503, "", true),
            (529, "overloaded", true),
            (408, "", true),
            (400, "what?", false),
            (401, "who?", false),
            (404, "where?", false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let err = provider.status_error(status, body, None);
            let is_passing = matches!(err, ModelError::Unavailable { .. });
            assert_eq!(is_passing, may_pass, "{status} {body}: {err}");
        }
    }

    #[test]
    fn a_wait_is_parsed_in_seconds_and_milliseconds() {
        for (name, value, expected) in [
            ("retry-after", "2", Some(2_000)),
            ("retry-after", "0.5", Some(500)),
            ("retry-after-ms", "1500", Some(1_500)),
            ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("retry-after", "-1", None),
            ("other", "1", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            let expected = expected.map(Duration::from_millis);
            assert_eq!(retry_after(&headers), expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_wait_until_a_date_uses_the_providers_clock() {
        let wait = |until, now| {
            let now = HeaderValue::from_static(now);
            let until = HeaderValue::from_static(until);
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, until), (DATE, now)]))
        };
        let noon = "Wed, 21 Oct 2026 12:00:00 GMT";
        assert_eq!(wait("Wed, 21 Oct 2026 12:00:07 GMT", noon), Some(Duration::from_secs(7)));
        assert_eq!(wait(noon, noon), Some(Duration::ZERO));
        assert_eq!(wait("Wed, 21 Oct 2026 11:59:59 GMT", noon), None, "the time has passed");
        assert_eq!(wait("later", noon), None);
    }

    #[test]
    fn errors_hide_the_key() {
        let provider = unreachable_provider();
        let err = provider.status_error(StatusCode::UNAUTHORIZED, "bad key sk-secret", None);
        assert!(
            err.to_string().contains("bad key ***; check the key in the variable `K`"),
            "{err}"
        );
        assert!(!format!("{provider:?}").contains("sk-secret"));
        assert!(provider.shorten_without_key(&"x".repeat(1_000)).len() < 400);
    }

    #[test]
    fn a_rejected_schema_is_recognised_late_in_a_message() {
        let provider = unreachable_provider();
        let late = format!("{} response_format", "x ".repeat(1_000));
        for (body, expected) in [(late.as_str(), true), ("no `json_schema`", true), ("no", false)] {
            let err = provider.status_error(StatusCode::BAD_REQUEST, body, None);
            assert_eq!(mentions_answer_schema(err.reason()), expected, "{err}");
        }
    }
}
