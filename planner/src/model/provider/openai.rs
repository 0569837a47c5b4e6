use serde_json::{Map, Value, json};

use super::{Answer, object_schema, read_arguments, read_text, remove_thoughts};
use crate::model::{
    AnswerForm, Message, NativeCall, OfferedTool, Question, Settings, Stop, Tokens,
    names::WireNames,
};

/// Prefixes of models that want `max_completion_tokens` instead of `max_tokens`.
const COMPLETION_LIMIT_MODELS: [&str; 5] = ["gpt-5", "gpt-6", "o1", "o3", "o4"];
/// The field of a call with data that Gemini wants back, such as thought signatures.
const EXTRA_FIELD: &str = "extra_content";

pub(super) fn write_request(
    question: &Question,
    names: &WireNames,
    settings: &Settings,
    form: Option<&AnswerForm>,
) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(settings.model));
    if !question.tools.is_empty() {
        let tools = question.tools.iter().map(|offered| write_tool(offered, names));
        body.insert("tools".to_owned(), tools.collect());
    }
    let messages = question.messages.iter().flat_map(|text| write_messages(text, names));
    body.insert("messages".to_owned(), messages.collect());
    if let Some(form) = form {
        // Does not ask for a strict schema, because strict schemas forbid objects with arbitrary
        // fields, such as parameters.
        let typed = form.typed.as_ref().filter(|_| settings.provider.has_grammars());
        let schema = typed.unwrap_or(&form.schema);
        let schema = json!({ "name": form.name, "strict": false, "schema": schema });
        let format = json!({ "type": "json_schema", "json_schema": schema });
        body.insert("response_format".to_owned(), format);
    }
    if let Some(limit) = settings.max_tokens {
        let is_new =
            COMPLETION_LIMIT_MODELS.iter().any(|prefix| settings.model.starts_with(prefix));
        let key = if is_new { "max_completion_tokens" } else { "max_tokens" };
        body.insert(key.to_owned(), json!(limit));
    }
    if let Some(temperature) = settings.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    Value::Object(body)
}

fn write_tool(tool: &OfferedTool, names: &WireNames) -> Value {
    json!({ "type": "function", "function": {
        "name": names.wire_name(tool.name.as_str()),
        "description": tool.description,
        "parameters": object_schema(&tool.schema),
    } })
}

fn write_messages(message: &Message, names: &WireNames) -> Vec<Value> {
    match message {
        Message::System(text) => vec![json!({ "role": "system", "content": text })],
        Message::User(text) => vec![json!({ "role": "user", "content": text })],
        Message::Assistant { text, calls } => {
            let mut message = json!({ "role": "assistant", "content": text });
            if !calls.is_empty() {
                let calls = calls.iter().map(|written| write_call(written, names));
                message["tool_calls"] = calls.collect();
            }
            vec![message]
        }
        Message::Results(results) => results
            .iter()
            .map(|result| {
                json!({ "role": "tool", "tool_call_id": result.id, "content": result.text })
            })
            .collect(),
    }
}

fn write_call(call: &NativeCall, names: &WireNames) -> Value {
    let name = names.wire_name(&call.tool);
    let function = json!({ "name": name, "arguments": call.arguments.to_string() });
    let mut written = json!({ "id": call.id, "type": "function", "function": function });
    if let Some(extra) = call.signatures.first().and_then(|text| serde_json::from_str(text).ok()) {
        written[EXTRA_FIELD] = extra;
    }
    written
}

pub(super) fn read_answer(answer: &Value, names: &WireNames) -> Answer {
    let choice = &answer["choices"][0];
    let message = &choice["message"];
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls = calls.map(|call| NativeCall {
        id: read_text(&call["id"]),
        tool: names.tool_name(&read_text(&call["function"]["name"])),
        arguments: read_arguments(&call["function"]["arguments"]),
        signatures: call.get(EXTRA_FIELD).map(Value::to_string).into_iter().collect(),
    });
    let stop = choice["finish_reason"].as_str().map(|reason| match reason {
        "stop" | "stop_sequence" => Stop::End,
        "length" | "max_tokens" => Stop::Length,
        "tool_calls" | "function_call" => Stop::Calls,
        "content_filter" => Stop::Filter,
        _ => Stop::Other,
    });
    let count = |key: &str| answer["usage"][key].as_u64().unwrap_or_default();
    let text = message_text(&message["content"]);
    // If the model refuses, the reason is in a field of its own and the content is empty.
    let text = if text.trim().is_empty() { read_text(&message["refusal"]) } else { text };
    Answer {
        text: remove_thoughts(&text).to_owned(),
        calls: calls.collect(),
        stop,
        tokens: Tokens { input: count("prompt_tokens"), output: count("completion_tokens") },
    }
}

/// Returns the text of a message. Mistral sends parts, and those that are thoughts are left out.
fn message_text(content: &Value) -> String {
    let parts = content.as_array().into_iter().flatten();
    let texts: String = parts.filter_map(|part| part["text"].as_str()).collect();
    content.as_str().map_or(texts, str::to_owned)
}
