//! Conversion of GraphQL answers into outputs and errors.

use http_client::Reply;
use secrets::Redaction;
use serde_json::Value;
use shared::tool::{Effect, ErrorCode, ToolError};

use crate::http::answer::output;

/// Errors of one answer that are shown.
const ERRORS: usize = 10;

/// Returns what is in `data` under `field`; errors are a failure, with data or without.
pub(super) fn data(
    reply: Reply,
    field: &str,
    effect: Effect,
    (most, seen): (usize, &Redaction),
) -> Result<Value, ToolError> {
    let host = reply.host.clone();
    // A refusal may be GraphQL, too, and then says more than its status.
    let refused = if reply.status.is_success() { None } else { refusal(&reply, effect, seen) };
    if let Some(refused) = refused {
        return Err(refused);
    }
    let answer = output(reply, effect, most, seen)?;
    let answer = match answer {
        // Some servers call their JSON text.
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
        other => other,
    };
    if let Some(message) = complaint(&answer) {
        let error = ToolError::failed(message);
        // Without `data` nothing was carried out: the request is wrong, and stays so. With it a part
        // of a mutation was, and would be again.
        let is_begun = answer.get("data").is_some();
        let may_help = is_begun && effect != Effect::Once;
        return Err(if may_help { error } else { error.without_retry() });
    }
    let found = answer.get("data").and_then(|it| it.get(field));
    found.cloned().ok_or_else(|| {
        ToolError::failed(format!("`{host}` did not answer as a GraphQL endpoint does"))
            .without_retry()
    })
}

fn refusal(reply: &Reply, effect: Effect, seen: &Redaction) -> Option<ToolError> {
    let answer: Value = serde_json::from_slice(&reply.body).ok()?;
    let said = seen.clean(complaint(&answer)?);
    let message = format!("`{}` answered {}: {said}", reply.host, reply.status);
    Some(match reply.status.as_u16() {
        // A gateway does not know what became of the call behind it.
        502 | 504 if effect == Effect::Once => {
            ToolError::outcome_unknown(&message).with_unknown_outcome()
        }
        429 | 500..=599 => ToolError::new(ErrorCode::UNAVAILABLE, message),
        _ => ToolError::failed(message).without_retry(),
    })
}

/// Returns what the errors of an answer say.
fn complaint(answer: &Value) -> Option<String> {
    let errors = answer.get("errors")?.as_array().filter(|it| !it.is_empty())?;
    let said = errors.iter().take(ERRORS).map(|it| {
        let message = it.get("message").and_then(Value::as_str).unwrap_or("an error without words");
        match it.get("path").and_then(Value::as_array) {
            Some(path) if path.len() > 1 => {
                let path = path.iter().map(crate::sources::graphql_api::select::part);
                format!("{message} (at {})", path.collect::<Vec<_>>().join("."))
            }
            _ => message.to_owned(),
        }
    });
    Some(said.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use reqwest::{StatusCode, header::HeaderMap};
    use serde_json::json;

    use super::*;

    fn failure(status: u16, effect: Effect, answer: &Value) -> ToolError {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "application/json".parse().unwrap());
        let reply = Reply {
            host: "h".to_owned(),
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: answer.to_string().into_bytes(),
            is_cut: false,
        };
        data(reply, "f", effect, (999, &Redaction::default())).unwrap_err()
    }

    #[test]
    fn errors_say_whether_to_try_again() {
        let errors = json!([{ "message": "no" }]);
        let (begun, refused) =
            (json!({ "data": { "f": null }, "errors": errors }), json!({ "errors": errors }));
        for (status, effect, answer, code, retryable, is_definite) in [
            (200, Effect::Read, &begun, ErrorCode::FAILED, true, true),
            (200, Effect::Once, &begun, ErrorCode::FAILED, false, true),
            (200, Effect::Read, &refused, ErrorCode::FAILED, false, true),
            (400, Effect::Once, &refused, ErrorCode::FAILED, false, true),
            (502, Effect::Read, &refused, ErrorCode::UNAVAILABLE, true, true),
            (502, Effect::Once, &refused, ErrorCode::OUTCOME_UNKNOWN, false, false),
            (504, Effect::Once, &refused, ErrorCode::OUTCOME_UNKNOWN, false, false),
            (503, Effect::Once, &refused, ErrorCode::UNAVAILABLE, true, true),
        ] {
            let err = failure(status, effect, answer);
            let found = (err.code, err.retryable, err.is_definite);
            assert_eq!(found, (code, retryable, is_definite), "{status} {effect:?} {answer}");
        }
    }
}
