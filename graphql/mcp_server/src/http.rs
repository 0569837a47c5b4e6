//! Handles requests to `/mcp` before rmcp does, because clients do not understand some of its
//! rejections.

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

use super::invalid_message::{invalid_message_error, invalid_request_error};

const ACCEPTED_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Accepts clients that accept any media type, and answers an invalid message with a JSON-RPC
/// error.
pub(crate) async fn handle_request(
    State(limit): State<usize>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    if accepts_any_type(&parts.headers) {
        parts.headers.insert(header::ACCEPT, ACCEPTED_TYPES);
    }
    if parts.method != Method::POST || !is_json(&parts.headers) {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let Ok(body) = to_bytes(body, limit).await else {
        let reason = format!("the message has more than {limit} bytes or is incomplete");
        return json_response(StatusCode::PAYLOAD_TOO_LARGE, invalid_request_error(&reason));
    };
    let request = Request::from_parts(parts, Body::from(body.clone()));
    let response = next.run(request).await;
    // The media type of this request is correct, so rmcp sent this status because of the request's
    // content.
    if response.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return response;
    }
    json_response(StatusCode::BAD_REQUEST, describe_invalid_body(&body))
}

fn describe_invalid_body(body: &Bytes) -> Value {
    let error = match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(body) {
        Ok(_) => None,
        Err(err) => invalid_message_error(body, &err),
    };
    error.unwrap_or_else(|| {
        invalid_request_error("the message is not a request that this server accepts")
    })
}

fn json_response(status: StatusCode, error: Value) -> Response {
    (status, Json(error)).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn accepts_any_type(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().peekable();
    let is_anything = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let is_none = |parameter: &str| {
            let weight = parameter.strip_prefix("q=").or(parameter.strip_prefix("Q="));
            weight.and_then(|weight| weight.parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
        };
        parts.next() == Some("*/*") && !parts.any(is_none)
    };
    accepted.peek().is_none()
        || accepted
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(is_anything)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_accept_header_decides_which_types_a_client_accepts() {
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
            assert_eq!(accepts_any_type(&headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn an_invalid_body_gets_an_error_with_a_code() {
        let code = |body: &'static str| {
            describe_invalid_body(&Bytes::from_static(body.as_bytes()))["error"]["code"].clone()
        };
        assert_eq!(code("{"), json!(-32700));
        assert_eq!(code("[]"), json!(-32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":5}"#), json!(-32600));
    }
}
