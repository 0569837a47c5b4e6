//! Messages, tools and calls as `genai` has them.

use genai::chat::{
    ChatMessage, ChatRequest, ContentPart, MessageContent, Tool, ToolCall, ToolResponse,
};
use serde_json::{Value, json};

use super::{Message, NativeCall, OfferedTool, Question, names::WireNames};

/// Returns a question.
pub(super) fn request(question: &Question, names: &WireNames) -> ChatRequest {
    let (system, messages) = messages(&question.messages, names);
    let mut request = ChatRequest::new(messages);
    request.system = system;
    if !question.tools.is_empty() {
        request.tools = Some(question.tools.iter().map(|it| tool(it, names)).collect());
    }
    request
}

/// Returns the rules, and what was said.
fn messages(said: &[Message], names: &WireNames) -> (Option<String>, Vec<ChatMessage>) {
    let mut rules: Vec<&str> = Vec::new();
    let mut messages = Vec::with_capacity(said.len());
    for message in said {
        match message {
            Message::System(text) => rules.push(text),
            Message::User(text) => messages.push(ChatMessage::user(text.as_str())),
            Message::Assistant { text, calls } => messages.push(assistant(text, calls, names)),
            Message::Results(results) => messages.extend(results.iter().map(|it| {
                let response = ToolResponse::new(it.id.as_str(), it.text.as_str());
                ChatMessage::from(response.with_fn_name(names.wire(&it.tool)))
            })),
        }
    }
    ((!rules.is_empty()).then(|| rules.join("\n\n")), messages)
}

fn assistant(text: &str, calls: &[NativeCall], names: &WireNames) -> ChatMessage {
    let mut parts: Vec<ContentPart> = Vec::new();
    if !text.is_empty() || calls.is_empty() {
        parts.push(ContentPart::from_text(text));
    }
    parts.extend(calls.iter().map(|it| {
        ContentPart::ToolCall(ToolCall {
            call_id: it.id.clone(),
            fn_name: names.wire(&it.tool),
            fn_arguments: it.arguments.clone(),
            thought_signatures: (!it.signatures.is_empty()).then(|| it.signatures.clone()),
        })
    }));
    ChatMessage::assistant(MessageContent::from_parts(parts))
}

/// Returns a tool as it is offered.
fn tool(tool: &OfferedTool, names: &WireNames) -> Tool {
    let offered = Tool::new(names.wire(tool.name.as_str()));
    offered.with_description(tool.description.as_str()).with_schema(object(&tool.schema))
}

/// Providers want the schema of an object, whatever the tool says of itself.
fn object(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) if !fields.is_empty() => {
            let mut fields = fields.clone();
            // It says where the schema comes from, which some refuse to hear.
            fields.shift_remove("$schema");
            fields.entry("type").or_insert_with(|| json!("object"));
            if fields["type"] == "object" {
                fields.entry("properties").or_insert_with(|| json!({}));
            }
            Value::Object(fields)
        }
        _ => json!({ "type": "object", "properties": {} }),
    }
}

/// Returns a call as it was meant.
pub(super) fn call(call: ToolCall, names: &WireNames) -> NativeCall {
    // Some write the object as text, and some nothing where there is nothing to say.
    let arguments = match call.fn_arguments {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    };
    NativeCall {
        id: call.call_id,
        tool: names.tool(&call.fn_name),
        arguments,
        signatures: call.thought_signatures.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_those_of_objects() {
        for (schema, expected) in [
            (json!(true), json!({ "type": "object", "properties": {} })),
            (json!({}), json!({ "type": "object", "properties": {} })),
            (json!({ "type": "object" }), json!({ "type": "object", "properties": {} })),
            (
                json!({ "$schema": "x", "properties": { "a": {} } }),
                json!({ "properties": { "a": {} }, "type": "object" }),
            ),
        ] {
            assert_eq!(object(&schema), expected);
        }
    }

    #[test]
    fn arguments_may_be_written_as_text() {
        for (written, expected) in [
            (json!({ "a": 1 }), json!({ "a": 1 })),
            (json!("{\"a\":1}"), json!({ "a": 1 })),
            (json!(null), json!({})),
            (json!(" "), json!({})),
            (json!("{a"), json!("{a")),
        ] {
            let raw = ToolCall {
                call_id: "1".to_owned(),
                fn_name: "f".to_owned(),
                fn_arguments: written,
                thought_signatures: None,
            };
            assert_eq!(call(raw, &WireNames::default()).arguments, expected);
        }
    }
}
