use http_client::{HttpError, HttpReply};
use reqwest::{StatusCode, header};
use secrets::Redaction;
use serde_json::{Value, json};
use shared::{
    json::parse_lenient,
    tool::{Effect, ErrorCode, ToolError},
};

/// Maximum bytes at the end of an error's body that a message shows.
const MAX_SHOWN_BODY_BYTES: usize = 2 << 10;

/// Returns the output of a successful response, or the error of a failed response.
pub(crate) fn read_output(
    reply: HttpReply,
    effect: Effect,
    max_bytes: usize,
    redaction: &Redaction,
) -> Result<Value, ToolError> {
    if !reply.status.is_success() {
        return Err(status_error(&reply, effect, redaction));
    }
    if reply.is_cut {
        let host = &reply.host;
        let message = format!("`{host}` answered more than {max_bytes} bytes: request less data");
        return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, message));
    }
    read_value(reply, effect).map(|output| redaction.redact_value(output))
}

/// Converts JSON to a value and text to a string. For any other body, returns the media type and
/// the size.
fn read_value(reply: HttpReply, effect: Effect) -> Result<Value, ToolError> {
    if reply.body.is_empty() {
        return Ok(Value::Null);
    }
    let written = reply.header(header::CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    let (kind, charset) = written.split_once(';').unwrap_or((&written, ""));
    let kind = kind.trim();
    if is_json(kind) {
        return parse_lenient(&reply.body).map_err(|err| {
            let host = &reply.host;
            let error = ToolError::failed(format!(
                "`{host}` declared its answer as JSON, but it is not: {err}"
            ));
            // Fails without a retry, because the server has carried out the request and another
            // attempt would repeat the effect.
            if effect == Effect::Once { error.without_retry() } else { error }
        });
    }
    if kind.is_empty()
        && let Ok(value) = parse_lenient(&reply.body)
    {
        return Ok(value);
    }
    if charset.contains("8859-1") {
        return Ok(reply.body.into_iter().map(char::from).collect::<String>().into());
    }
    let is_text = is_text(kind);
    match String::from_utf8(reply.body) {
        Ok(text) if is_text || (kind.is_empty() && !text.contains('\0')) => Ok(text.into()),
        Err(err) if is_text => Ok(String::from_utf8_lossy(err.as_bytes()).into()),
        Ok(text) => Ok(describe_binary(kind, text.len())),
        Err(err) => Ok(describe_binary(kind, err.as_bytes().len())),
    }
}

fn describe_binary(kind: &str, bytes: usize) -> Value {
    let kind = if kind.is_empty() { "application/octet-stream" } else { kind };
    json!({ "contentType": kind, "bytes": bytes })
}

/// Returns `true` for a JSON media type, such as `application/problem+json`.
pub(crate) fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
        || kind.eq_ignore_ascii_case("text/json")
        || kind.to_ascii_lowercase().ends_with("+json")
}

fn is_text(kind: &str) -> bool {
    let tail = kind.rsplit(['/', '+']).next().unwrap_or_default();
    kind.starts_with("text/")
        || matches!(
            tail,
            "xml"
                | "yaml"
                | "x-yaml"
                | "javascript"
                | "x-ndjson"
                | "jsonl"
                | "toml"
                | "graphql"
                | "sql"
                | "csv"
                | "x-www-form-urlencoded"
        )
}

fn status_error(reply: &HttpReply, effect: Effect, redaction: &Redaction) -> ToolError {
    let HttpReply { host, status, .. } = reply;
    let mut message = format!("`{host}` answered {status}");
    if let Some(wait) = reply.header(header::RETRY_AFTER) {
        let unit = if wait.bytes().all(|byte| byte.is_ascii_digit()) { " s" } else { "" };
        message = format!("{message}, and asks to wait: {wait}{unit}");
    }
    if status.is_redirection() {
        let to = reply.header(header::LOCATION).unwrap_or("nowhere");
        message = format!(
            "{message}, a redirect to {to} that Faber does not follow: configure that address"
        );
    }
    let body =
        clip_to_tail(redaction.redact(String::from_utf8_lossy(&reply.body).into_owned()).trim());
    if !body.is_empty() {
        message = format!("{message}: {body}");
    }
    error_for_status(*status, effect, redaction.redact(message))
}

/// Makes the error for an error status. Decides whether another attempt may help.
pub(crate) fn error_for_status(status: StatusCode, effect: Effect, message: String) -> ToolError {
    match status.as_u16() {
        // The outcome is unknown, because a gateway does not know the outcome of the call that it
        // forwarded.
        502 | 504 if effect == Effect::Once => {
            ToolError::outcome_unknown(&message).with_unknown_outcome()
        }
        429 | 500..=599 => ToolError::new(ErrorCode::UNAVAILABLE, message),
        _ => ToolError::failed(message).without_retry(),
    }
}

fn clip_to_tail(text: &str) -> String {
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_SHOWN_BODY_BYTES));
    let cut = if start > 0 { "… " } else { "" };
    format!("{cut}{}", &text[start..])
}

/// Makes the error for a missing response. Decides whether the call may have happened.
pub(crate) fn call_error(broken: &HttpError, effect: Effect, redaction: &Redaction) -> ToolError {
    let message = redaction.redact(broken.to_string());
    match broken {
        HttpError::Unsent(_) | HttpError::Later(_) => {
            ToolError::new(ErrorCode::UNAVAILABLE, message)
        }
        HttpError::Refused(_) => ToolError::failed(message).without_retry(),
        HttpError::Denied(_) => ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry(),
        HttpError::Lost(_) if effect == Effect::Once => {
            ToolError::outcome_unknown(&message).with_unknown_outcome()
        }
        HttpError::Lost(_) => {
            ToolError::new(ErrorCode::UNAVAILABLE, message).with_unknown_outcome()
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use reqwest::header::HeaderMap;

    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> HttpReply {
        let headers = headers
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()));
        HttpReply {
            host: "h".to_owned(),
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect::<HeaderMap>(),
            body: body.to_owned(),
            is_cut: false,
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_read_output(kind: &str, body: &[u8], expected: Expect) {
        let headers = if kind.is_empty() { vec![] } else { vec![("content-type", kind)] };
        let reply = reply(200, &headers, body);
        let output = read_output(reply, Effect::Read, 99, &Redaction::default());
        expected.assert_eq(&output.map_or_else(|err| err.to_string(), |value| value.to_string()));
    }

    #[test]
    fn an_answer_is_converted_by_its_media_type() {
        check_read_output("application/json; charset=utf-8", b"{\"a\":1}", expect![[r#"{"a":1}"#]]);
        check_read_output("application/problem+json", b"[1]", expect!["[1]"]);
        check_read_output("", b"[1]", expect!["[1]"]);
        check_read_output("application/json", b"\xEF\xBB\xBF[1]", expect!["[1]"]);
        check_read_output("", b"hi", expect![[r#""hi""#]]);
        check_read_output(
            "",
            &[0, 159],
            expect![[r#"{"contentType":"application/octet-stream","bytes":2}"#]],
        );
        check_read_output("text/plain", b"[1]", expect![[r#""[1]""#]]);
        check_read_output("text/html; charset=ISO-8859-1", &[0xe4], expect![[r#""ä""#]]);
        check_read_output("image/svg+xml", b"<svg/>", expect![[r#""<svg/>""#]]);
        check_read_output(
            "image/png",
            b"PNG",
            expect![[r#"{"contentType":"image/png","bytes":3}"#]],
        );
        check_read_output("application/json", b"", expect!["null"]);
        check_read_output(
            "application/json",
            b"<html>",
            expect![
                "tool.failed: `h` declared its answer as JSON, but it is not: expected value at line 1 column 1"
            ],
        );
    }

    #[test]
    fn the_status_decides_whether_an_error_is_retryable() {
        let mut redaction = Redaction::default();
        redaction.add_secret("KEY", "hidden");
        for (status, effect, code, retryable, is_definite) in [
            (400, Effect::Read, ErrorCode::FAILED, false, true),
            (404, Effect::Once, ErrorCode::FAILED, false, true),
            (429, Effect::Once, ErrorCode::UNAVAILABLE, true, true),
            (500, Effect::Once, ErrorCode::UNAVAILABLE, true, true),
            (503, Effect::Once, ErrorCode::UNAVAILABLE, true, true),
            (502, Effect::Idempotent, ErrorCode::UNAVAILABLE, true, true),
            (504, Effect::Once, ErrorCode::OUTCOME_UNKNOWN, false, false),
            (302, Effect::Once, ErrorCode::FAILED, false, true),
        ] {
            let err =
                read_output(reply(status, &[], b"hidden"), effect, 99, &redaction).unwrap_err();
            let is_unknown = err.code == ErrorCode::OUTCOME_UNKNOWN;
            assert_eq!(
                (err.code, err.retryable, err.is_definite),
                (code, retryable, is_definite),
                "{status}"
            );
            let (message, hint) = err.message.split_once("; ").unwrap_or((&err.message, ""));
            assert!(message.ends_with(": ***KEY***"), "{}", err.message);
            assert_eq!(hint.ends_with("check before you retry"), is_unknown, "{}", err.message);
        }
        let busy = reply(429, &[("retry-after", "30")], b"slow down");
        expect!["tool.unavailable: `h` answered 429 Too Many Requests, and asks to wait: 30 s: slow down"]
            .assert_eq(&read_output(busy, Effect::Read, 99, &redaction).unwrap_err().to_string());
        let moved = reply(302, &[("location", "/b")], b"");
        expect![
            "tool.failed: `h` answered 302 Found, a redirect to /b that Faber does not follow: \
             configure that address"
        ]
        .assert_eq(&read_output(moved, Effect::Once, 99, &redaction).unwrap_err().to_string());
    }

    #[test]
    fn an_unreadable_answer_does_not_repeat_a_once_call() {
        for (effect, retryable) in
            [(Effect::Read, true), (Effect::Idempotent, true), (Effect::Once, false)]
        {
            let reply = reply(201, &[("content-type", "application/json")], b"{\"id\":");
            let err = read_output(reply, effect, 99, &Redaction::default()).unwrap_err();
            assert_eq!((err.code, err.retryable), (ErrorCode::FAILED, retryable), "{effect:?}");
        }
    }

    #[test]
    fn a_long_error_answer_keeps_its_tail() {
        let body = format!("{}end", "ä".repeat(MAX_SHOWN_BODY_BYTES));
        let err =
            read_output(reply(400, &[], body.as_bytes()), Effect::Read, 99, &Redaction::default());
        let message = err.unwrap_err().message;
        assert!(
            message.ends_with("äend") && message.len() < MAX_SHOWN_BODY_BYTES + 100,
            "{message}"
        );
    }
}
