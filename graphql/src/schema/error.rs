use std::str::FromStr;

use async_graphql::{Error, ErrorExtensionValues, ID, Value};
use engine::EngineError;
use serde::Serialize;

/// Characters of references. Letters that look like digits are left out, because people copy
/// references by hand.
const REFERENCE_ALPHABET: [char; 32] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'j', 'k', 'm', 'n', 'p', 'q', 'r', 's', 't', 'u', 'v',
    'w', 'x', 'y', 'z', '2', '3', '4', '5', '6', '7', '8', '9', '1',
];
const REFERENCE_LEN: usize = 12;
/// Codes of errors about missing rights and exceeded limits. Faber logs each error with such a
/// code.
const REFUSAL_CODES: [&str; 3] = ["FORBIDDEN", "LIMIT_EXCEEDED", "UNAUTHENTICATED"];

/// Error of the engine, which becomes a GraphQL error with a code.
#[derive(Clone, Debug)]
pub(super) struct ApiError(EngineError);

pub(super) type ApiResult<T> = Result<T, ApiError>;

impl<E: Into<EngineError>> From<E> for ApiError {
    fn from(err: E) -> Self {
        Self(err.into())
    }
}

impl From<ApiError> for Error {
    fn from(ApiError(err): ApiError) -> Self {
        let code = err.code();
        let mut extensions = ErrorExtensionValues::default();
        extensions.set("code", code);
        if code == "INTERNAL" {
            return internal_error(&err, extensions);
        }
        if REFUSAL_CODES.contains(&code) {
            let request = err.request().map(|request| request.to_string());
            tracing::info!(target: "faber::refusal", code, request, "operation refused: {err}");
        }
        if let Some(request) = err.request() {
            extensions.set("requestId", request.to_string());
        }
        if let Some(wait) = err.retry_after() {
            // Rounds up, so that a caller that waits exactly this time is not too early.
            let millis = wait.as_micros().div_ceil(1_000);
            extensions.set("retryAfterMs", u64::try_from(millis).unwrap_or(u64::MAX));
        }
        match &err {
            EngineError::InvalidPlan { diagnostics, .. } => {
                extensions.set("diagnostics", to_graphql_value(diagnostics));
            }
            EngineError::NoPlanFound { nearest, .. } => {
                extensions.set("nearest", to_graphql_value(nearest));
            }
            _ => (),
        }
        Self { extensions: Some(extensions), ..Self::new(err.to_string()) }
    }
}

/// Logs an internal error. The client gets only a reference to the log entry, because the details
/// could be secret.
fn internal_error(err: &EngineError, mut extensions: ErrorExtensionValues) -> Error {
    let reference = nanoid::nanoid!(REFERENCE_LEN, &REFERENCE_ALPHABET);
    tracing::error!(%reference, %err, "internal error");
    let message = format!("internal error; look for `{reference}` in the log");
    extensions.set("reference", reference);
    Error { extensions: Some(extensions), ..Error::new(message) }
}

fn to_graphql_value(value: &impl Serialize) -> Value {
    async_graphql::to_value(value).unwrap_or_default()
}

pub(super) fn invalid_argument(reason: impl Into<String>) -> ApiError {
    ApiError(EngineError::InvalidArgument(reason.into()))
}

pub(super) fn limit_exceeded(reason: impl Into<String>) -> ApiError {
    ApiError(EngineError::LimitExceeded(reason.into()))
}

pub(super) fn not_found(kind: &str, id: &str) -> ApiError {
    let id: String = id.chars().take(64).collect();
    ApiError(EngineError::not_found(kind, id))
}

/// Parses an id. An id of a wrong form is as unknown as an id that was never given out.
pub(super) fn parse_id<Id: FromStr>(kind: &str, id: &ID) -> ApiResult<Id> {
    id.parse().map_err(|_| not_found(kind, id))
}

#[cfg(test)]
mod tests {
    use shared::store::StoreError;

    use super::*;

    fn code_and_extensions(err: EngineError) -> (String, ErrorExtensionValues) {
        let error = Error::from(ApiError(err));
        (error.message, error.extensions.unwrap_or_default())
    }

    #[test]
    fn an_internal_error_shows_only_a_reference() {
        let (message, extensions) =
            code_and_extensions(StoreError::corrupt("exec_1", "a secret").into());
        assert_eq!(extensions.get("code"), Some(&Value::from("INTERNAL")));
        let Some(Value::String(reference)) = extensions.get("reference") else {
            panic!("{extensions:?}")
        };
        assert!(message.contains(reference.as_str()) && !message.contains("secret"), "{message}");
        let (_, again) = code_and_extensions(StoreError::corrupt("exec_1", "a secret").into());
        assert_ne!(again.get("reference"), extensions.get("reference"));
    }

    #[test]
    fn a_reached_limit_says_when_to_try_again() {
        let retry_after = std::time::Duration::from_micros(1_500_001);
        let reached = EngineError::LimitReached { message: "m".to_owned(), retry_after };
        let request = "req_1_aaaaaaaaa".parse().unwrap();
        for err in [reached.clone(), EngineError::Planning { request, error: Box::new(reached) }] {
            let (_, extensions) = code_and_extensions(err);
            assert_eq!(extensions.get("code"), Some(&Value::from("LIMIT_EXCEEDED")));
            assert_eq!(extensions.get("retryAfterMs"), Some(&Value::from(1_501)));
        }
    }

    #[test]
    fn planning_errors_have_the_id_of_their_request() {
        let request = Some("req_1_aaaaaaaaa".parse().unwrap());
        let (message, nearest) = ("m".to_owned(), vec!["t".to_owned()]);
        let (_, extensions) =
            code_and_extensions(EngineError::NoPlanFound { message, nearest, request });
        assert_eq!(extensions.get("requestId"), Some(&Value::from("req_1_aaaaaaaaa")));
        assert_eq!(extensions.get("nearest"), Some(&Value::from(vec!["t"])));
    }
}
