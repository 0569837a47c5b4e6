use serde_json::{Map, Value, json};

use super::{Answer, object_schema, read_arguments, read_text};
use crate::model::{Message, NativeCall, Question, Settings, Stop, Tokens, names::WireNames};

pub(super) const API_VERSION: &str = "2023-06-01";
/// The limit of an answer, which the format requires. Every model since Claude Opus 4 allows it.
const DEFAULT_MAX_TOKENS: u32 = 32_000;
/// Prefixes of older models with their limits. `claude-3-7` is not one of these models.
const OLD_MODELS: [(&str, u32); 2] = [("claude-3-5", 8_192), ("claude-3-", 4_096)];

pub(super) fn write_request(question: &Question, names: &WireNames, settings: &Settings) -> Value {
    let mut body = Map::new();
    let model = settings.model.as_str();
    let old = OLD_MODELS.iter().find(|(prefix, _)| model.starts_with(prefix));
    let is_3_7 = model.starts_with("claude-3-7");
    let default = old.filter(|_| !is_3_7).map_or(DEFAULT_MAX_TOKENS, |(_, limit)| *limit);
    body.insert("model".to_owned(), json!(model));
    body.insert("max_tokens".to_owned(), json!(settings.max_tokens.unwrap_or(default)));
    let rules: Vec<&str> = question
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::System(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    if !rules.is_empty() {
        body.insert("system".to_owned(), json!(rules.join("\n\n")));
    }
    if !question.tools.is_empty() {
        let tools = question.tools.iter().map(|tool| {
            json!({
                "name": names.wire_name(tool.name.as_str()),
                "description": tool.description,
                "input_schema": object_schema(&tool.schema),
            })
        });
        body.insert("tools".to_owned(), tools.collect());
    }
    let messages = question.messages.iter().filter_map(|message| write_message(message, names));
    body.insert("messages".to_owned(), messages.collect());
    if let Some(temperature) = settings.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    Value::Object(body)
}

fn write_message(message: &Message, names: &WireNames) -> Option<Value> {
    match message {
        Message::System(_) => None,
        Message::User(text) => Some(json!({ "role": "user", "content": text })),
        Message::Assistant { text, calls } => {
            // Leaves out an empty text, because a text block must not be empty.
            let text_block = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
            let calls = calls.iter().map(|call| {
                let input = if call.arguments.is_object() { &call.arguments } else { &json!({}) };
                let name = names.wire_name(&call.tool);
                json!({ "type": "tool_use", "id": call.id, "name": name, "input": input })
            });
            let content: Vec<Value> = text_block.into_iter().chain(calls).collect();
            (!content.is_empty()).then(|| json!({ "role": "assistant", "content": content }))
        }
        Message::Results(results) => {
            let results = results.iter().map(|result| {
                json!({ "type": "tool_result", "tool_use_id": result.id, "content": result.text })
            });
            Some(json!({ "role": "user", "content": results.collect::<Value>() }))
        }
    }
}

pub(super) fn read_answer(answer: &Value, names: &WireNames) -> Answer {
    let parts = || answer["content"].as_array().into_iter().flatten();
    let calls = parts().filter(|part| part["type"] == "tool_use").map(|part| NativeCall {
        id: read_text(&part["id"]),
        tool: names.tool_name(&read_text(&part["name"])),
        arguments: read_arguments(&part["input"]),
        signatures: Vec::new(),
    });
    let stop = answer["stop_reason"].as_str().map(|reason| match reason {
        "end_turn" | "stop_sequence" => Stop::End,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "tool_use" => Stop::Calls,
        "refusal" => Stop::Filter,
        _ => Stop::Other,
    });
    let count = |key: &str| answer["usage"][key].as_u64().unwrap_or_default();
    Answer {
        text: parts()
            .filter(|part| part["type"] == "text")
            .map(|part| read_text(&part["text"]))
            .collect(),
        calls: calls.collect(),
        stop,
        // Adds the cached tokens, because `input_tokens` does not include them.
        tokens: Tokens {
            input: count("input_tokens")
                + count("cache_creation_input_tokens")
                + count("cache_read_input_tokens"),
            output: count("output_tokens"),
        },
    }
}
