use async_graphql::{ErrorExtensionValues, Response, ServerError, Value};
use async_graphql_axum::GraphQLResponse;
use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response as HttpResponse},
};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::negotiate::Format;

pub(super) const JSON_MEDIA_TYPE: &str = "application/json; charset=utf-8";

pub(super) const GRAPHQL_RESPONSE_MEDIA_TYPE: &str =
    "application/graphql-response+json; charset=utf-8";

/// The code for errors of the GraphQL library, which have no code. They mean that the operation
/// itself is wrong.
const DEFAULT_CODE: &str = "INVALID_ARGUMENT";

/// Returns whether a response has only errors because its operation never started.
fn is_request_error(response: &Response) -> bool {
    response.data == Value::Null
        && !response.errors.is_empty()
        && response.errors.iter().all(|error| error.path.is_empty())
}

pub(super) fn to_http_response(response: Response, format: Format) -> HttpResponse {
    let (status, content_type) = match format {
        Format::GraphqlResponse => (http_status(&response), GRAPHQL_RESPONSE_MEDIA_TYPE),
        Format::Json | Format::EventStream => (StatusCode::OK, JSON_MEDIA_TYPE),
    };
    let mut answer = if is_request_error(&response) {
        // The library's response would contain `data: null`, which means that the operation ran.
        let headers = response.http_headers.clone();
        let mut answer = to_json(response).into_response();
        merge_headers(answer.headers_mut(), headers);
        answer
    } else {
        GraphQLResponse::from(response).into_response()
    };
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

pub(super) fn to_json(response: Response) -> String {
    serde_json::to_string(&Body::from(response)).expect("GraphQL values are always valid JSON")
}

/// The body of a response. It is an HTTP body, or a part of an event or of a WebSocket message.
#[derive(Debug)]
pub(super) struct Body {
    was_executed: bool,
    response: Response,
}

impl From<Response> for Body {
    fn from(mut response: Response) -> Self {
        let was_executed = !is_request_error(&response);
        if !was_executed {
            response.errors.iter_mut().for_each(add_code);
        }
        Self { was_executed, response }
    }
}

impl Body {
    pub(super) fn request_errors(&self) -> Option<&[ServerError]> {
        (!self.was_executed).then_some(&self.response.errors)
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.response.errors.is_empty() {
            map.serialize_entry("errors", &self.response.errors)?;
        }
        if self.was_executed {
            map.serialize_entry("data", &self.response.data)?;
        }
        if !self.response.extensions.is_empty() {
            map.serialize_entry("extensions", &self.response.extensions)?;
        }
        map.end()
    }
}

fn add_code(error: &mut ServerError) {
    let extensions = error.extensions.get_or_insert_with(ErrorExtensionValues::default);
    if extensions.get("code").is_none() {
        extensions.set("code", DEFAULT_CODE);
    }
}

fn http_status(response: &Response) -> StatusCode {
    if !is_request_error(response) {
        return StatusCode::OK;
    }
    let code =
        response.errors.iter().find_map(|error| match error.extensions.as_ref()?.get("code") {
            Some(Value::String(code)) => Some(code.as_str()),
            _ => None,
        });
    match code {
        Some("UNAUTHENTICATED") => StatusCode::UNAUTHORIZED,
        Some("FORBIDDEN") => StatusCode::FORBIDDEN,
        Some("INTERNAL") => StatusCode::INTERNAL_SERVER_ERROR,
        Some("STORE_UNAVAILABLE" | "PLANNER_UNAVAILABLE") => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn merge_headers(headers: &mut HeaderMap, more: HeaderMap) {
    for (name, value) in more {
        if let Some(name) = name {
            headers.append(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::{PathSegment, value};
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check(response: Response, expected: Expect) {
        expected.assert_eq(&format!("{} {}", http_status(&response).as_u16(), to_json(response)));
    }

    fn error_with_code(code: &str) -> ServerError {
        let mut error = ServerError::new("no", None);
        error.extensions.insert(ErrorExtensionValues::default()).set("code", code);
        error
    }

    #[test]
    fn an_answer_has_data_only_if_something_was_executed() {
        check(Response::new(value!({ "a": 1 })), expect![[r#"200 {"data":{"a":1}}"#]]);
        let field = ServerError::new("no", None).with_path(vec![PathSegment::Field("a".into())]);
        check(
            Response::from_errors(vec![field]),
            expect![[r#"200 {"errors":[{"message":"no","path":["a"]}],"data":null}"#]],
        );
        check(
            Response::from_errors(vec![ServerError::new("no", None)]),
            expect![[
                r#"400 {"errors":[{"message":"no","extensions":{"code":"INVALID_ARGUMENT"}}]}"#
            ]],
        );
    }

    #[test]
    fn each_error_code_has_its_http_status() {
        let status =
            |code| http_status(&Response::from_errors(vec![error_with_code(code)])).as_u16();
        assert_eq!(status("UNAUTHENTICATED"), 401);
        assert_eq!(status("FORBIDDEN"), 403);
        assert_eq!(status("STORE_UNAVAILABLE"), 503);
        assert_eq!(status("INTERNAL"), 500);
        assert_eq!(status("NOT_FOUND"), 400);
    }
}
