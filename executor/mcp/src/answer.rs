use rmcp::model::{
    CallToolResult, ContentBlock, ErrorCode as RpcCode, ErrorData, ResourceContents,
};
use serde_json::Value;
use shared::{
    json,
    schema::Schema,
    tool::{ErrorCode, ToolError},
};
use toolbox::blobs::Binary;

/// The JSON-RPC code by which a transport reports an answer that is too long.
pub(super) const TOO_LARGE_CODE: RpcCode = RpcCode(-32_099);
/// [`super::http`] reports the outcome of a call by this code and the next three codes.
/// [`super::message`] replaces these codes if a server sends them, so that a server cannot fake an
/// outcome.
///
/// This code means that the server cannot have read the call.
pub(super) const UNSENT_CODE: RpcCode = RpcCode(i32::MIN);
/// The server may have read the call.
pub(super) const LOST_CODE: RpcCode = RpcCode(i32::MIN + 1);
/// The server refuses the call, and will refuse it again.
pub(super) const REFUSED_CODE: RpcCode = RpcCode(i32::MIN + 2);
/// The server refuses the call for now.
pub(super) const BUSY_CODE: RpcCode = RpcCode(i32::MIN + 3);

pub(super) const UNREADABLE_CODE: RpcCode = RpcCode(i32::MIN + 4);

pub(super) fn is_own_code(code: RpcCode) -> bool {
    matches!(code, UNSENT_CODE | LOST_CODE | REFUSED_CODE | BUSY_CODE | UNREADABLE_CODE)
}

const CONTENT_FIELD: &str = "$content";

#[derive(Debug, PartialEq)]
pub(super) struct Output {
    pub(super) value: Value,
    pub(super) binaries: Vec<Binary>,
}

/// Returns the output of a call result. Fails without a retry if structured content does not match
/// the output schema, because the server has already carried the call out.
pub(super) fn read_output(
    result: CallToolResult,
    output_schema: Option<&Schema>,
    max_bytes: usize,
) -> Result<Output, ToolError> {
    if result.is_error == Some(true) {
        return Err(ToolError::failed(failure_text(&result)));
    }
    let checked_output = output_schema.zip(result.structured_content.as_ref());
    if let Some(reason) = checked_output.and_then(|(schema, value)| schema.complaint(value)) {
        let message =
            format!("the server's output does not fit the tool's `outputSchema`: {reason}");
        return Err(ToolError::failed(message).without_retry());
    }
    let output = match result.structured_content {
        Some(value) => structured_output(value, result.content),
        None => content_output(result.content),
    };
    if json::json_size(&output.value) > max_bytes {
        return Err(too_large_error(max_bytes));
    }
    Ok(output)
}

pub(super) fn convert_error(error: &ErrorData, max_bytes: usize) -> ToolError {
    let message = error.message.as_ref();
    match error.code {
        TOO_LARGE_CODE => too_large_error(max_bytes),
        // The server may have carried out the call, so the outcome is unknown.
        UNREADABLE_CODE => ToolError::failed(message).with_unknown_outcome(),
        REFUSED_CODE => ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry(),
        BUSY_CODE | RpcCode::METHOD_NOT_FOUND => ToolError::new(ErrorCode::UNAVAILABLE, message),
        RpcCode::INVALID_PARAMS if is_unknown_tool(message) => {
            ToolError::new(ErrorCode::UNAVAILABLE, message)
        }
        RpcCode::INVALID_PARAMS => ToolError::new(ErrorCode::INVALID_PARAMETERS, message),
        _ => ToolError::failed(message),
    }
}

/// Returns whether a message reports an unknown tool. MCP has one code for unknown tools and
/// invalid parameters, so only the message tells them apart.
fn is_unknown_tool(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("unknown tool") || (message.contains("tool") && message.contains("not found"))
}

fn too_large_error(max_bytes: usize) -> ToolError {
    let message =
        format!("the server answered more than {max_bytes} bytes: request less data, or a file");
    ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, message)
}

fn failure_text(result: &CallToolResult) -> String {
    let texts: Vec<_> = result
        .content
        .iter()
        .filter_map(ContentBlock::as_text)
        .map(|text| text.text.as_str())
        .collect();
    match (texts.is_empty(), &result.structured_content) {
        (false, _) => texts.join("\n"),
        (true, Some(structured)) => structured.to_string(),
        (true, None) => "the tool failed without a message".to_owned(),
    }
}

/// Adds other contents to structured content, whose fields stay in place because plans refer to
/// them. Texts are dropped, because they repeat the structured content.
fn structured_output(mut value: Value, contents: Vec<ContentBlock>) -> Output {
    let beside = contents.into_iter().filter(|block| block.as_text().is_none());
    let (places, values): (Vec<_>, Vec<_>) =
        beside.map(|block| (binary_pointer(&block), content_value(block))).unzip();
    let mut binaries = Vec::new();
    match &mut value {
        Value::Object(fields) if !values.is_empty() && !fields.contains_key(CONTENT_FIELD) => {
            fields.insert(CONTENT_FIELD.to_owned(), Value::Array(values));
        }
        _ => return Output { value, binaries },
    }
    for (n, place) in places.into_iter().enumerate() {
        let Some((pointer, mime_type)) = place else { continue };
        binaries.extend(Binary::extract(
            &mut value,
            format!("/{CONTENT_FIELD}/{n}{pointer}"),
            &mime_type,
        ));
    }
    Output { value, binaries }
}

fn content_output(contents: Vec<ContentBlock>) -> Output {
    let (places, mut values): (Vec<_>, Vec<_>) =
        contents.into_iter().map(|block| (binary_pointer(&block), content_value(block))).unzip();
    let is_one = values.len() == 1;
    let mut value = match values.len() {
        0 => Value::Null,
        1 => values.remove(0),
        _ => Value::Array(values),
    };
    let mut binaries = Vec::new();
    for (n, place) in places.into_iter().enumerate() {
        let Some((pointer, mime_type)) = place else { continue };
        let pointer = if is_one { pointer.to_owned() } else { format!("/{n}{pointer}") };
        binaries.extend(Binary::extract(&mut value, pointer, &mime_type));
    }
    Output { value, binaries }
}

fn binary_pointer(content: &ContentBlock) -> Option<(&'static str, String)> {
    let unknown = || "application/octet-stream".to_owned();
    match content {
        ContentBlock::Image(image) => Some(("/data", image.mime_type.clone())),
        ContentBlock::Audio(audio) => Some(("/data", audio.mime_type.clone())),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::BlobResourceContents { mime_type, .. } => {
                Some(("/resource/blob", mime_type.clone().unwrap_or_else(unknown)))
            }
            _ => None,
        },
        _ => None,
    }
}

fn content_value(content: ContentBlock) -> Value {
    match content {
        ContentBlock::Text(text) => {
            json::parse_lenient(text.text.as_bytes()).unwrap_or_else(|_| Value::String(text.text))
        }
        other => serde_json::to_value(other).unwrap_or(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_read_output(result: Value, expected: Expect) {
        let result = serde_json::from_value(result).unwrap();
        let text = read_output(result, None, 60)
            .map_or_else(|err| err.to_string(), |output| output.value.to_string());
        expected.assert_eq(&text);
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn content_becomes_a_json_value() {
        check_read_output(json!({ "content": [] }), expect!["null"]);
        check_read_output(json!({ "content": [text("Hi ü")] }), expect![[r#""Hi ü""#]]);
        check_read_output(
            json!({ "content": [text(r#"{"b":1,"a":1.0}"#)] }),
            expect![[r#"{"b":1,"a":1.0}"#]],
        );
        check_read_output(json!({ "content": [text("null")] }), expect!["null"]);
        check_read_output(json!({ "content": [text("1"), text("x")] }), expect![[r#"[1,"x"]"#]]);
        check_read_output(
            json!({ "content": [text("x")], "structuredContent": { "id": 9_007_199_254_740_993_i64 } }),
            expect![[r#"{"id":9007199254740993}"#]],
        );
        check_read_output(
            json!({ "content": [{ "type": "image", "data": "AA==", "mimeType": "image/png" }] }),
            expect![[r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#]],
        );
    }

    #[test]
    fn content_beside_a_structure_is_kept_under_its_own_key() {
        let image = |data: &str| json!({ "type": "image", "data": data, "mimeType": "image/png" });
        let read = |structured: Value, content: Value| {
            let result = json!({ "content": content, "structuredContent": structured });
            let result = serde_json::from_value(result).unwrap();
            let Output { value, binaries } = read_output(result, None, 1_000).unwrap();
            (value, binaries.into_iter().map(|binary| binary.pointer).collect::<Vec<_>>())
        };
        let large = "A".repeat(shared::limits::INLINE_BINARY_BYTES + 4);
        let (value, places) =
            read(json!({ "n": 1 }), json!([text("{}"), image("AA=="), image(&large)]));
        assert_eq!(value, json!({ "n": 1, "$content": [image("AA=="), image("")] }));
        assert_eq!(places, ["/$content/1/data"]);
        for plain in [json!([1]), json!("x"), json!({ "$content": 1 })] {
            let (value, places) = read(plain.clone(), json!([image(&large), text("x")]));
            assert_eq!(
                (value, places),
                (plain, Vec::new()),
                "the structured content keeps its place for plans"
            );
        }
    }

    #[test]
    fn an_output_that_violates_the_output_schema_is_an_error() {
        let schema = json!({
            "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        });
        let schema = Schema::new(&schema).unwrap();
        let read = |result: Value| {
            read_output(serde_json::from_value(result).unwrap(), Some(&schema), 1_000)
        };
        let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
        let fits = json!({ "content": [image], "structuredContent": { "n": 1 } });
        assert_eq!(read(fits).unwrap().value["n"], 1);
        // Only structured content is checked against the output schema, so a text is accepted.
        assert_eq!(read(json!({ "content": [text("x")] })).unwrap().value, "x");
        for (structured, reason) in [
            (json!({ "n": "str" }), "at `/n`: \"str\" is not of type \"integer\""),
            (json!({}), "\"n\" is a required property"),
        ] {
            let result = json!({ "content": [], "structuredContent": structured });
            let err = read(result).unwrap_err();
            let expected = format!(
                "tool.failed: the server's output does not fit the tool's `outputSchema`: {reason}"
            );
            assert_eq!(err.to_string(), expected);
            assert!(err.is_definite && !err.retryable);
        }
        let failed = json!({ "content": [text("no")], "structuredContent": {}, "isError": true });
        assert_eq!(read(failed).unwrap_err().to_string(), "tool.failed: no");
    }

    #[test]
    fn a_failed_call_returns_the_servers_message() {
        check_read_output(
            json!({ "content": [text("no"), text("way")], "isError": true }),
            expect!["tool.failed: no\nway"],
        );
        check_read_output(
            json!({ "content": [], "structuredContent": { "e": 1 }, "isError": true }),
            expect![[r#"tool.failed: {"e":1}"#]],
        );
        check_read_output(
            json!({ "content": [], "isError": true }),
            expect!["tool.failed: the tool failed without a message"],
        );
    }

    #[test]
    fn a_too_large_output_is_an_error() {
        let long = "x".repeat(59);
        check_read_output(
            json!({ "content": [text(&long)] }),
            expect![
                "tool.output_too_large: the server answered more than 60 bytes: request less data, \
                 or a file"
            ],
        );
    }

    #[test]
    fn large_binaries_are_moved_to_blobs() {
        let data = "A".repeat(shared::limits::INLINE_BINARY_BYTES + 4);
        let image = json!({ "type": "image", "data": data, "mimeType": "image/png" });
        let blob = json!({ "uri": "a:b", "blob": data });
        let contents = [text("x"), json!({ "type": "resource", "resource": blob }), image];
        let read = |contents: &[Value]| {
            let result = serde_json::from_value(json!({ "content": contents })).unwrap();
            let Output { value, binaries } = read_output(result, None, 1_000).unwrap();
            let places = binaries
                .into_iter()
                .map(|binary| (binary.pointer, binary.mime_type, binary.base64.len()));
            (value, places.collect::<Vec<_>>())
        };
        let (value, places) = read(&contents);
        assert_eq!(
            value[1],
            json!({ "type": "resource", "resource": { "uri": "a:b", "blob": "" } })
        );
        let expected = [
            ("/1/resource/blob".to_owned(), "application/octet-stream".to_owned(), data.len()),
            ("/2/data".to_owned(), "image/png".to_owned(), data.len()),
        ];
        assert_eq!(places, expected);
        let (value, places) = read(&contents[2..]);
        assert_eq!(value, json!({ "type": "image", "data": "", "mimeType": "image/png" }));
        assert_eq!(places, [("/data".to_owned(), "image/png".to_owned(), data.len())]);
    }

    #[test]
    fn json_rpc_codes_are_converted_to_error_codes() {
        let code = |code: RpcCode, message: &'static str| {
            convert_error(&ErrorData::new(code, message, None), 60).code
        };
        assert_eq!(code(RpcCode::INVALID_PARAMS, "`a` is missing"), ErrorCode::INVALID_PARAMETERS);
        assert_eq!(code(RpcCode::INVALID_PARAMS, "Unknown tool: x"), ErrorCode::UNAVAILABLE);
        assert_eq!(code(RpcCode::METHOD_NOT_FOUND, "tools/call"), ErrorCode::UNAVAILABLE);
        assert_eq!(code(RpcCode::INTERNAL_ERROR, "boom"), ErrorCode::FAILED);
    }
}
