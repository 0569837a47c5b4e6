use async_graphql::{Request, Variables};
use axum::{extract::Query, http::Uri};
use planner::rounded::LargeIntegers;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refusal::Refusal;

pub(super) fn parse_json_body(body: &[u8]) -> Result<Request, Refusal> {
    if body.is_empty() {
        return Err(Refusal::malformed_request("the body is empty; send {\"query\": \"…\"}"));
    }
    let value = serde_json::from_slice(body)
        .map_err(|error| Refusal::malformed_request(format!("the body is not JSON: {error}")))?;
    Ok(parse_request(value)?.data(LargeIntegers::find(body)))
}

pub(super) fn parse_request(value: Value) -> Result<Request, Refusal> {
    let mut fields = match value {
        Value::Object(fields) => fields,
        Value::Array(_) => {
            return Err(Refusal::malformed_request(
                "batches are not supported; send one request for each operation",
            ));
        }
        other => {
            let kind = describe_kind(&other);
            return Err(Refusal::malformed_request(format!("expected an object, found {kind}")));
        }
    };
    let query = take_string(&mut fields, "query")?.ok_or_else(missing_query_error)?;
    let operation_name = take_string(&mut fields, "operationName")?;
    let variables = take_object(&mut fields, "variables")?;
    let extensions = take_object(&mut fields, "extensions")?;
    Ok(build_request(query, operation_name, variables, extensions))
}

pub(super) fn parse_uri(uri: &Uri) -> Result<Request, Refusal> {
    let Query(parameters) = Query::<UriParameters>::try_from_uri(uri)
        .map_err(|error| Refusal::malformed_request(format!("the URL cannot be read: {error}")))?;
    let query = parameters.query.ok_or_else(missing_query_error)?;
    let variables = parse_embedded(parameters.variables, "variables")?;
    let extensions = parse_embedded(parameters.extensions, "extensions")?;
    let operation_name = parameters.operation_name.filter(|name| !name.is_empty());
    Ok(build_request(query, operation_name, variables, extensions))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UriParameters {
    query: Option<String>,
    operation_name: Option<String>,
    variables: Option<String>,
    extensions: Option<String>,
}

fn build_request(
    query: String,
    operation_name: Option<String>,
    variables: Map<String, Value>,
    extensions: Map<String, Value>,
) -> Request {
    let mut request = Request::new(query).variables(Variables::from_json(Value::Object(variables)));
    request.operation_name = operation_name;
    if let Ok(extensions) = serde_json::from_value(Value::Object(extensions)) {
        request.extensions = extensions;
    }
    request
}

fn missing_query_error() -> Refusal {
    Refusal::malformed_request(
        "the parameter `query` is missing: set it to the text of an operation (there is an editor \
         at /graphiql)",
    )
}

fn take_string(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Refusal> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type_error(name, "a string", &other)),
    }
}

fn take_object(fields: &mut Map<String, Value>, name: &str) -> Result<Map<String, Value>, Refusal> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(other) => Err(wrong_type_error(name, "an object", &other)),
    }
}

fn parse_embedded(text: Option<String>, name: &str) -> Result<Map<String, Value>, Refusal> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Map::new()) };
    let value = serde_json::from_str(&text).map_err(|error| {
        Refusal::malformed_request(format!("the parameter `{name}` is not JSON: {error}"))
    })?;
    take_object(&mut Map::from_iter([(name.to_owned(), value)]), name)
}

fn wrong_type_error(name: &str, expected: &str, found: &Value) -> Refusal {
    let found = describe_kind(found);
    Refusal::malformed_request(format!("the parameter `{name}` must be {expected}, not {found}"))
}

fn describe_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn describe_request(request: Result<Request, Refusal>) -> String {
        match request {
            Ok(request) => format!(
                "{} {:?} {} {:?}",
                request.query,
                request.operation_name,
                serde_json::to_string(&request.variables).unwrap(),
                request.extensions.0,
            ),
            Err(refusal) => format!("{} {}", refusal.status.as_u16(), refusal.message),
        }
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check(body: &str, expected: Expect) {
        expected.assert_eq(&describe_request(parse_json_body(body.as_bytes())));
    }

    #[test]
    fn request_bodies_are_parsed_or_rejected() {
        check(
            r#"{"query":"{a}","operationName":"A","variables":{"n":9007199254740993,"x":0.1}}"#,
            expect![[r#"{a} Some("A") {"n":9007199254740993,"x":0.1} {}"#]],
        );
        check(
            r#"{"query":"{a}","operationName":null,"variables":null,"extensions":null}"#,
            expect!["{a} None {} {}"],
        );
        check("", expect![[r#"400 the body is empty; send {"query": "…"}"#]]);
        check(
            r#"{"query"#,
            expect!["400 the body is not JSON: EOF while parsing a string at line 1 column 7"],
        );
        check("7", expect!["400 expected an object, found a number"]);
        check(
            r#"[{"query":"{a}"}]"#,
            expect!["400 batches are not supported; send one request for each operation"],
        );
        check(
            "{}",
            expect![
                "400 the parameter `query` is missing: set it to the text of an operation (there \
                 is an editor at /graphiql)"
            ],
        );
        check(
            r#"{"query":7}"#,
            expect!["400 the parameter `query` must be a string, not a number"],
        );
        check(
            r#"{"query":"{a}","variables":[1]}"#,
            expect!["400 the parameter `variables` must be an object, not an array"],
        );
    }

    #[test]
    fn query_strings_are_parsed_or_rejected() {
        let read = |text: &str| describe_request(parse_uri(&text.parse().unwrap()));
        expect![[r#"{a b} None {"x":1} {}"#]]
            .assert_eq(&read("/graphql?query=%7Ba%20b%7D&variables=%7B%22x%22:1%7D"));
        expect!["400 the parameter `variables` is not JSON: expected value at line 1 column 1"]
            .assert_eq(&read("/graphql?query=a&variables=x"));
        expect!["400 the parameter `variables` must be an object, not a number"]
            .assert_eq(&read("/graphql?query=a&variables=7"));
        assert!(read("/graphql?query=a&query=b").starts_with("400 the URL cannot be read"));
        assert!(read("/graphql").starts_with("400 the parameter `query` is missing"));
    }
}
