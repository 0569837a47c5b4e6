//! What a provider did instead of answering: which of that may pass, and how long to wait. No key
//! is ever shown.

use std::time::Duration;

use chrono::DateTime;
use genai::webc;
use reqwest::{
    StatusCode,
    header::{DATE, HeaderMap, HeaderName, RETRY_AFTER},
};

use super::{
    super::{
        Key, ModelError,
        exchange::{ANSWER_BYTES, Broken},
    },
    Provider,
    form::about_form,
};

/// Characters of what a provider says about an error that are repeated.
const SAID: usize = 300;

impl Provider {
    /// Says which errors may pass.
    pub(super) fn failed(&self, err: Broken) -> ModelError {
        let err = match err {
            Broken::Said(err) => *err,
            Broken::Lost(why) => return self.lost(self.shown(&why), None),
            Broken::TooLong => {
                return self.refused(format!(
                    "its answer has more than {} MB, and was not read to its end: check \
                     `planner.base_url`, or set `planner.max_tokens`",
                    ANSWER_BYTES >> 20
                ));
            }
        };
        let status = err.status();
        let wait = err.headers().and_then(retry_after);
        if let Some(status) = status {
            return self.answered(status, body(&err), wait);
        }
        match err {
            genai::Error::WebModelCall { webc_error, .. }
            | genai::Error::WebAdapterCall { webc_error, .. } => match webc_error {
                webc::Error::ResponseFailedNotJson { body, .. }
                | webc::Error::ResponseFailedInvalidJson { body, .. } => {
                    self.lost(format!("it answered what is no JSON: {}", self.shown(&body)), None)
                }
                other => self.lost(self.shown(&other.to_string()), None),
            },
            genai::Error::ChatResponseGeneration { cause, .. } => {
                self.lost(format!("its answer cannot be read: {}", self.shown(&cause)), None)
            }
            other => self.refused(self.shown(&other.to_string())),
        }
    }

    fn answered(&self, status: StatusCode, body: &str, wait: Option<Duration>) -> ModelError {
        let why = format!("it answered {status}: {}", self.shown(body));
        match status {
            // No money, which does not come back by waiting.
            StatusCode::TOO_MANY_REQUESTS if body.contains("insufficient_quota") => {
                self.refused(why)
            }
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS => self.lost(why, wait),
            _ if status.is_server_error() => self.lost(why, wait),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                self.refused(match &self.settings.key {
                    Key::Variable(name, _) => {
                        format!("{why}; check the key in the variable `{name}`")
                    }
                    Key::None => {
                        format!("{why}; name the variable with its key by `planner.api_key_env`")
                    }
                })
            }
            StatusCode::NOT_FOUND => self.refused(format!(
                "{why}; check `planner.provider`, `planner.base_url` and `planner.model`"
            )),
            _ => match about_form(body) {
                // It may stand behind what is shown.
                Some(word) if !why.contains(word) => {
                    self.refused(format!("{why} (it speaks of `{word}`)"))
                }
                _ => self.refused(why),
            },
        }
    }

    pub(super) fn lost(&self, why: String, wait: Option<Duration>) -> ModelError {
        ModelError::Unavailable { model: self.name.clone(), why, wait }
    }

    pub(super) fn refused(&self, why: String) -> ModelError {
        ModelError::Refused { model: self.name.clone(), why }
    }

    /// Returns the beginning of what a provider said, without the key: some repeat it.
    pub(super) fn shown(&self, said: &str) -> String {
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = match &self.settings.key {
            Key::Variable(_, Some(key)) => said.replace(key.as_str(), "***"),
            _ => said,
        };
        match said.char_indices().nth(SAID) {
            Some((end, _)) => format!("{}…", &said[..end]),
            None => said,
        }
    }
}

/// Returns what a provider said with an error.
fn body(err: &genai::Error) -> &str {
    match err {
        genai::Error::WebModelCall { webc_error, .. }
        | genai::Error::WebAdapterCall { webc_error, .. } => match webc_error {
            webc::Error::ResponseFailedStatus { body, .. } => body,
            _ => "",
        },
        genai::Error::HttpError { body, .. } => body,
        _ => "",
    }
}

/// Returns how long a provider wants one to wait, where it says so: in (milli)seconds, or until
/// when by its own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let date = |name: HeaderName| {
        let written = headers.get(name)?.to_str().ok()?;
        DateTime::parse_from_rfc2822(written.trim()).ok()
    };
    let seconds = number("retry-after-ms").map(|it| it / 1e3).or_else(|| number("retry-after"));
    match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => (date(RETRY_AFTER)? - date(DATE)?).to_std().ok(),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::{super::tests::provider, *};

    #[test]
    fn what_may_pass_is_asked_again() {
        let provider = provider();
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
            let err = provider.answered(status, body, None);
            let is_passing = matches!(err, ModelError::Unavailable { .. });
            assert_eq!(is_passing, may_pass, "{status} {body}: {err}");
        }
    }

    #[test]
    fn waits_are_read_in_seconds_and_milliseconds() {
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
    fn waits_until_a_time_are_by_the_clock_of_the_provider() {
        let wait = |until, now| {
            let now = HeaderValue::from_static(now);
            let until = HeaderValue::from_static(until);
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, until), (DATE, now)]))
        };
        let noon = "Wed, 21 Oct 2026 12:00:00 GMT";
        assert_eq!(wait("Wed, 21 Oct 2026 12:00:07 GMT", noon), Some(Duration::from_secs(7)));
        assert_eq!(wait(noon, noon), Some(Duration::ZERO));
        assert_eq!(wait("Wed, 21 Oct 2026 11:59:59 GMT", noon), None, "it has passed");
        assert_eq!(wait("later", noon), None);
    }

    #[test]
    fn keys_are_shown_nowhere() {
        let provider = provider();
        let err = provider.answered(StatusCode::UNAUTHORIZED, "bad key sk-secret", None);
        assert!(
            err.to_string().contains("bad key ***; check the key in the variable `K`"),
            "{err}"
        );
        assert!(!format!("{provider:?}").contains("sk-secret"));
        assert!(provider.shown(&"x".repeat(1_000)).len() < 400);
    }

    #[test]
    fn that_it_is_about_the_form_is_seen_however_late_it_is_said() {
        let provider = provider();
        let late = format!("{} response_format", "x ".repeat(1_000));
        for (body, expected) in [(late.as_str(), true), ("no `json_schema`", true), ("no", false)] {
            let err = provider.answered(StatusCode::BAD_REQUEST, body, None);
            assert_eq!(about_form(err.why()).is_some(), expected, "{err}");
        }
    }
}
