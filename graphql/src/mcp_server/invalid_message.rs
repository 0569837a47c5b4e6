//! Errors for invalid messages, with the id of the request if it is readable.

use rmcp::model::ErrorCode;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

/// Bytes at the start of a long message that are searched for its id.
const HEAD: usize = 1 << 10;

/// The readable parts of an invalid message.
#[derive(Deserialize)]
struct Torn {
    id: Option<Value>,
    method: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// Returns the error for an invalid message, or `None` for responses and notifications.
pub(crate) fn refusal(text: &[u8], err: &serde_json::Error) -> Option<Value> {
    if let Err(err) = serde_json::from_slice::<IgnoredAny>(text) {
        let why = format!("this is no JSON: {err}");
        return Some(error(None, ErrorCode::PARSE_ERROR, &why));
    }
    let is_object = text.trim_ascii_start().starts_with(b"{");
    let Some(torn) = serde_json::from_slice::<Torn>(text).ok().filter(|_| is_object) else {
        return Some(invalid("a message is one JSON object, and each is sent by itself"));
    };
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    let id = torn.id.filter(is_id);
    if torn.result.is_some() || torn.error.is_some() || (id.is_none() && torn.method.is_some()) {
        return None;
    }
    let why = format!("the message cannot be read: {err}");
    Some(error(id, ErrorCode::INVALID_REQUEST, &why))
}

/// Returns the error for a message that is too long, given its start.
pub(crate) fn too_long(head: &[u8], most: usize) -> Value {
    let head = String::from_utf8_lossy(&head[..head.len().min(HEAD)]);
    // Parameters may contain ids of their own.
    let own = head.split("\"params\"").next().unwrap_or_default();
    let id = own.split_once("\"id\":").map(|(_, rest)| rest.trim_start());
    let id = id.and_then(|text| serde_json::Deserializer::from_str(text).into_iter().next()?.ok());
    let id = id.filter(|id: &Value| id.is_string() || id.is_i64() || id.is_u64());
    let why = format!("the message has more than {most} bytes");
    error(id, ErrorCode::INVALID_REQUEST, &why)
}

/// Returns an error for an unknown request.
pub(crate) fn invalid(why: &str) -> Value {
    error(None, ErrorCode::INVALID_REQUEST, why)
}

/// MCP omits an unreadable id.
fn error(id: Option<Value>, code: ErrorCode, why: &str) -> Value {
    let mut told = json!({ "jsonrpc": "2.0" });
    if let Some(id) = id {
        told["id"] = id;
    }
    told["error"] = json!({ "code": code.0, "message": why });
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<(Value, Value)> {
        type Message = rmcp::service::RxJsonRpcMessage<rmcp::RoleServer>;
        let err = serde_json::from_str::<Message>(text).map(|_| ()).unwrap_err();
        let said = refusal(text.as_bytes(), &err)?;
        Some((said["id"].clone(), said["error"]["code"].clone()))
    }

    #[test]
    fn who_asks_is_told() {
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
            assert_eq!(told(text), Some((id, json!(code))), "{text}");
        }
        // An error about an error could repeat for ever.
        for text in [
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{deep}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":"x"}}"#.to_owned(),
        ] {
            assert_eq!(told(&text), None, "{text}");
        }
    }
}
