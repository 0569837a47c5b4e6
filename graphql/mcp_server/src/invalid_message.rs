use rmcp::model::ErrorCode;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

/// Number of bytes at the start of a long message that are searched for its id.
const SEARCHED_BYTES: usize = 1 << 10;

#[derive(Deserialize)]
struct PartialMessage {
    id: Option<Value>,
    method: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// Returns the error for an invalid message. Returns `None` for responses and notifications,
/// because JSON-RPC forbids answers to them.
pub(crate) fn invalid_message_error(text: &[u8], err: &serde_json::Error) -> Option<Value> {
    if let Err(err) = serde_json::from_slice::<IgnoredAny>(text) {
        let reason = format!("the message is not valid JSON: {err}");
        return Some(build_error(None, ErrorCode::PARSE_ERROR, &reason));
    }
    let is_object = text.trim_ascii_start().starts_with(b"{");
    let Some(message) = serde_json::from_slice::<PartialMessage>(text).ok().filter(|_| is_object)
    else {
        return Some(invalid_request_error(
            "a message must be one JSON object; send each message by itself",
        ));
    };
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    let id = message.id.filter(is_id);
    if message.result.is_some()
        || message.error.is_some()
        || (id.is_none() && message.method.is_some())
    {
        return None;
    }
    let reason = format!("the message is not a valid request: {err}");
    Some(build_error(id, ErrorCode::INVALID_REQUEST, &reason))
}

pub(crate) fn long_message_error(head: &[u8], max_bytes: usize) -> Value {
    let head = String::from_utf8_lossy(&head[..head.len().min(SEARCHED_BYTES)]);
    // Parameters can contain a field `id`, too, so the search for the id ends before them.
    let before_parameters = head.split("\"params\"").next().unwrap_or_default();
    let id = before_parameters.split_once("\"id\":").map(|(_, rest)| rest.trim_start());
    let id = id.and_then(|text| serde_json::Deserializer::from_str(text).into_iter().next()?.ok());
    let id = id.filter(|id: &Value| id.is_string() || id.is_i64() || id.is_u64());
    let reason = format!("the message has more than {max_bytes} bytes; send a smaller one");
    build_error(id, ErrorCode::INVALID_REQUEST, &reason)
}

pub(crate) fn invalid_request_error(reason: &str) -> Value {
    build_error(None, ErrorCode::INVALID_REQUEST, reason)
}

/// Leaves out the field `id` if the id of the request is unreadable, as MCP requires.
fn build_error(id: Option<Value>, code: ErrorCode, reason: &str) -> Value {
    let mut message = json!({ "jsonrpc": "2.0" });
    if let Some(id) = id {
        message["id"] = id;
    }
    message["error"] = json!({ "code": code.0, "message": reason });
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_for(text: &str) -> Option<(Value, Value)> {
        type Message = rmcp::service::RxJsonRpcMessage<rmcp::RoleServer>;
        let err = serde_json::from_str::<Message>(text).map(|_| ()).unwrap_err();
        let error = invalid_message_error(text.as_bytes(), &err)?;
        Some((error["id"].clone(), error["error"]["code"].clone()))
    }

    #[test]
    fn an_invalid_request_gets_an_error_with_its_id() {
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        for (text, id, code) in [
            ("not json", Value::Null, -32700),
            (r#"{"jsonrpc":"2.0","id":1,"#, Value::Null, -32700),
            ("\"\u{1}\"", Value::Null, -32700),
            ("[]", Value::Null, -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null, -32600),
            ("[1, 2, 3, 4]", Value::Null, -32600),
            ("5", Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":91}"#, json!(91), -32600),
            (r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, json!("a"), -32600),
            (r#"{"id":{},"params":[]}"#, Value::Null, -32600),
            (r#"{"id":1,"id":2}"#, Value::Null, -32600),
            (
                &format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"a":{deep}}},"id":108}}"#),
                json!(108),
                -32600,
            ),
        ] {
            assert_eq!(error_for(text), Some((id, json!(code))), "{text}");
        }
        // Responses and notifications get no error, because an error about an error could repeat
        // for ever.
        for text in [
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{deep}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":"x"}}"#.to_owned(),
        ] {
            assert_eq!(error_for(&text), None, "{text}");
        }
    }
}
