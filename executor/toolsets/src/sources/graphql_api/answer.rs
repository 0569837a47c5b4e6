use http_client::HttpReply;
use secrets::Redaction;
use serde_json::Value;
use shared::tool::{Effect, ToolError};

use crate::{
    http::answer::{error_for_status, read_output},
    template::text,
};

const MAX_SHOWN_ERRORS: usize = 10;

pub(super) fn read_data(
    reply: HttpReply,
    field: &str,
    effect: Effect,
    max_bytes: usize,
    redaction: &Redaction,
) -> Result<Value, ToolError> {
    let host = reply.host.clone();
    // Reads GraphQL errors first, because they describe the failure better than the error status.
    let refused =
        if reply.status.is_success() { None } else { status_error(&reply, effect, redaction) };
    if let Some(refused) = refused {
        return Err(refused);
    }
    let answer = read_output(reply, effect, max_bytes, redaction)?;
    let answer = match answer {
        // Parses a text, because some servers declare JSON as text.
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
        other => other,
    };
    if let Some(message) = first_error(&answer) {
        let error = ToolError::failed(message);
        // Without `data`, the request is invalid and will stay invalid. A retry of a `once` call
        // would repeat the part of a mutation that succeeded.
        let retry_may_help = answer.get("data").is_some() && effect != Effect::Once;
        return Err(if retry_may_help { error } else { error.without_retry() });
    }
    let found = answer.get("data").and_then(|data| data.get(field));
    found.cloned().ok_or_else(|| {
        ToolError::failed(format!("`{host}` did not answer as a GraphQL endpoint does"))
            .without_retry()
    })
}

fn status_error(reply: &HttpReply, effect: Effect, redaction: &Redaction) -> Option<ToolError> {
    let answer: Value = serde_json::from_slice(&reply.body).ok()?;
    let first = redaction.redact(first_error(&answer)?);
    let message = format!("`{}` answered {}: {first}", reply.host, reply.status);
    Some(error_for_status(reply.status, effect, message))
}

fn first_error(answer: &Value) -> Option<String> {
    let errors = answer.get("errors")?.as_array().filter(|errors| !errors.is_empty())?;
    let messages = errors.iter().take(MAX_SHOWN_ERRORS).map(|error| {
        let message =
            error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
        match error.get("path").and_then(Value::as_array) {
            Some(path) if path.len() > 1 => {
                let path = path.iter().map(text);
                format!("{message} (at {})", path.collect::<Vec<_>>().join("."))
            }
            _ => message.to_owned(),
        }
    });
    Some(messages.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use reqwest::{StatusCode, header::HeaderMap};
    use serde_json::json;
    use shared::tool::ErrorCode;

    use super::*;

    fn call_error(status: u16, effect: Effect, answer: &Value) -> ToolError {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "application/json".parse().unwrap());
        let reply = HttpReply {
            host: "h".to_owned(),
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: answer.to_string().into_bytes(),
            is_cut: false,
        };
        read_data(reply, "f", effect, 999, &Redaction::default()).unwrap_err()
    }

    #[test]
    fn graphql_errors_decide_whether_to_retry() {
        let errors = json!([{ "message": "no" }]);
        let (started, refused) =
            (json!({ "data": { "f": null }, "errors": errors }), json!({ "errors": errors }));
        for (status, effect, answer, code, retryable, is_definite) in [
            (200, Effect::Read, &started, ErrorCode::FAILED, true, true),
            (200, Effect::Once, &started, ErrorCode::FAILED, false, true),
            (200, Effect::Read, &refused, ErrorCode::FAILED, false, true),
            (400, Effect::Once, &refused, ErrorCode::FAILED, false, true),
            (502, Effect::Read, &refused, ErrorCode::UNAVAILABLE, true, true),
            (502, Effect::Once, &refused, ErrorCode::OUTCOME_UNKNOWN, false, false),
            (504, Effect::Once, &refused, ErrorCode::OUTCOME_UNKNOWN, false, false),
            (503, Effect::Once, &refused, ErrorCode::UNAVAILABLE, true, true),
        ] {
            let err = call_error(status, effect, answer);
            let found = (err.code, err.retryable, err.is_definite);
            assert_eq!(found, (code, retryable, is_definite), "{status} {effect:?} {answer}");
        }
    }
}
