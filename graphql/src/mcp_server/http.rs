//! Handles requests to `/mcp` that rmcp would reject in a way that clients do not understand.

use axum::{
    Json,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use rmcp::{RoleServer, service::RxJsonRpcMessage};
use serde_json::Value;

use super::invalid_message::{invalid, refusal};

/// The media types of responses.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Accepts clients that accept any media type, and answers an invalid message with a JSON-RPC
/// error.
pub(crate) async fn enter(State(most): State<usize>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if takes_anything(&parts.headers) {
        parts.headers.insert(header::ACCEPT, BOTH);
    }
    if parts.method != Method::POST || !is_json(&parts.headers) {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let Ok(body) = to_bytes(body, most).await else {
        let why = format!("the message has more than {most} bytes, or broke off");
        return said(StatusCode::PAYLOAD_TOO_LARGE, invalid(&why));
    };
    let request = Request::from_parts(parts, Body::from(body.clone()));
    let response = next.run(request).await;
    // The media type of this request is right, so rmcp rejected its content.
    if response.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return response;
    }
    said(StatusCode::BAD_REQUEST, misread(&body))
}

fn misread(body: &Bytes) -> Value {
    let told = match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(body) {
        Ok(_) => None,
        Err(err) => refusal(body, &err),
    };
    told.unwrap_or_else(|| invalid("this is no message that is expected here"))
}

fn said(status: StatusCode, error: Value) -> Response {
    (status, Json(error)).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// Returns whether a client accepts any media type, or sends no `Accept`.
fn takes_anything(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all(header::ACCEPT).iter().peekable();
    let is_anything = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let is_none = |parameter: &str| {
            let weight = parameter.strip_prefix("q=").or(parameter.strip_prefix("Q="));
            weight.and_then(|weight| weight.parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
        };
        parts.next() == Some("*/*") && !parts.any(is_none)
    };
    said.peek().is_none()
        || said
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(is_anything)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_takes_anything_is_known() {
        for (accept, expected) in [
            (None, true),
            (Some("*/*"), true),
            (Some("text/html, */*;q=0.1"), true),
            (Some("*/*;q=0"), false),
            (Some("application/json"), false),
            (Some("application/json, text/event-stream"), false),
            (Some(""), false),
        ] {
            let accept = accept.map(|value| (header::ACCEPT, HeaderValue::from_static(value)));
            let headers: HeaderMap = accept.into_iter().collect();
            assert_eq!(takes_anything(&headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_told_so() {
        let code = |body: &'static str| {
            misread(&Bytes::from_static(body.as_bytes()))["error"]["code"].clone()
        };
        assert_eq!(code("{"), json!(-32700));
        assert_eq!(code("[]"), json!(-32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":5}"#), json!(-32600));
    }
}
