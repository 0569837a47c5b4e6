use async_graphql::{ErrorExtensionValues, ServerError};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// A rejection: an HTTP status, an error code of the API, and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn malformed_request(message: impl Into<String>) -> Self {
        Self::invalid_request(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn invalid_request(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: "INVALID_ARGUMENT", message: message.into() }
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, code: "FORBIDDEN", message: message.into() }
    }

    pub(super) fn unauthenticated(message: impl Into<String>) -> Self {
        Self { status: StatusCode::UNAUTHORIZED, code: "UNAUTHENTICATED", message: message.into() }
    }

    pub(super) fn limit_exceeded(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: "LIMIT_EXCEEDED", message: message.into() }
    }

    pub(super) fn internal(reference: &str) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: "INTERNAL",
            message: format!("internal error; see the log entry with the reference `{reference}`"),
        }
    }

    pub(super) fn server_stopping() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "INTERNAL",
            message: "the server is shutting down; check whether the operation took effect, then \
                      try again"
                .to_owned(),
        }
    }

    /// Converts to a GraphQL error, for transports without an HTTP status.
    pub(super) fn into_server_error(self) -> ServerError {
        let mut error = ServerError::new(self.message, None);
        let mut extensions = ErrorExtensionValues::default();
        extensions.set("code", self.code);
        error.extensions = Some(extensions);
        error
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({
            "errors": [{ "message": self.message, "extensions": { "code": self.code } }],
        });
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(super::reply::JSON_MEDIA_TYPE));
        if self.status == StatusCode::UNAUTHORIZED {
            let wanted = HeaderValue::from_static("Bearer realm=\"faber\"");
            headers.insert(header::WWW_AUTHENTICATE, wanted);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
