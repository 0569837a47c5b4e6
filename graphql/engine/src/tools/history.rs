use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    id::ToolName,
    json::json_size,
    limits,
    store::{Cursor, Record, RecordKind, RecordPage, Store, StoreError, WriteCondition},
};

/// Maximum number of calls that one request returns. Also the maximum number of record names in one
/// read of the store.
const MAX_CALLS: usize = 1_000;

/// Maximum number of stored bytes of a call's parameters, and of its output.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// Separates the id of a call from the token in the name of a record. An id does not contain it.
const TOKEN_SEPARATOR: char = '@';

#[derive(Clone, Debug, PartialEq)]
pub struct DirectCall {
    pub id: String,
    /// The name of the tool. The history stores the qualified name. Callers see the shorter name if
    /// the tool has one. If no tool has the name, it is the name from the request.
    pub tool: String,
    pub parameters: Value,
    pub result: Result<Value, String>,
    pub duration_ms: f64,
    pub at: Timestamp,
}

/// Stores a call. `token` is the name of the caller's token.
pub(super) async fn store_call(
    store: &dyn Store,
    call: &DirectCall,
    token: Option<&str>,
) -> Result<(), StoreError> {
    let result = call.result.as_ref().map(shorten_value);
    match put_call(store, call, token, &shorten_value(&call.parameters), result).await {
        Err(StoreError::TooLarge { .. } | StoreError::Unfit { .. }) => {
            // If parameters or result cannot be stored, stores an error instead. The caller still
            // gets the result, because the call was made.
            let reason = "cannot store a call's parameters or result".to_owned();
            let reason = call.result.as_ref().err().unwrap_or(&reason);
            put_call(store, call, token, &Value::Null, Err(reason)).await
        }
        stored => stored,
    }
}

async fn put_call(
    store: &dyn Store,
    call: &DirectCall,
    token: Option<&str>,
    parameters: &Value,
    result: Result<Value, &String>,
) -> Result<(), StoreError> {
    let (result, error) = match result {
        Ok(result) => (result, Value::Null),
        Err(error) => (Value::Null, Value::from(error.as_str())),
    };
    let value = json!({
        "tool": call.tool,
        "parameters": parameters,
        "result": result,
        "error": error,
        "durationMs": call.duration_ms,
    });
    // The names of records begin with the time, which sorts them. They also contain the token and
    // the tool, so that a list for one of them reads no other records.
    let mut name = record_name_start(call.at, &call.id);
    if let Some(token) = token {
        name.push(TOKEN_SEPARATOR);
        name.push_str(&encode_token(token));
    }
    if let Ok(tool) = call.tool.parse::<ToolName>() {
        name.extend([" ", tool.as_str()]);
    }
    let record = Record { kind: RecordKind::Call, name, value: Arc::new(value), at: call.at };
    store.put_record(&record, WriteCondition::Never).await.map(drop)
}

fn record_name_start(at: Timestamp, id: &str) -> String {
    format!("{:020} {id}", at.timestamp_micros())
}

/// Part of the list of calls, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallListing {
    pub calls: Vec<DirectCall>,
    /// `true` if older calls follow. It can be `true` by mistake if the name of a removed tool is
    /// invalid.
    pub has_more: bool,
}

/// Lists calls that are older than the call with the cursor `after`.
pub(super) async fn list_calls(
    store: &dyn Store,
    after: Option<&Cursor>,
    first: usize,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<CallListing, StoreError> {
    let (mut calls, mut bytes) = (Vec::new(), 0);
    // The start of a record's name comes before the name itself, so the newest-first list continues
    // with older records.
    let mut after = after.map(|cursor| record_name_start(cursor.at, &cursor.id));
    let maximum = first.min(MAX_CALLS);
    loop {
        let page = RecordPage { after, newest: true, ..RecordPage::first_records(MAX_CALLS) };
        let names = store.list_records(RecordKind::Call, page.names_only()).await?;
        let names: Vec<String> = names.into_iter().map(|record| record.name).collect();
        after = names.last().cloned();
        let is_last = names.len() < MAX_CALLS;
        for name in names.iter().filter(|name| tool_in_record_name(name).is_none_or(&is_wanted)) {
            if calls.len() >= maximum || bytes >= limits::ANSWER_BYTES {
                return Ok(CallListing { calls, has_more: true });
            }
            let found = store.find_record(RecordKind::Call, name).await?.and_then(read_call);
            if let Some(call) = found.filter(|call| is_wanted(&call.tool)) {
                let result = call.result.as_ref().map_or_else(String::len, json_size);
                bytes += json_size(&call.parameters) + result;
                calls.push(call);
            }
        }
        if is_last {
            return Ok(CallListing { calls, has_more: false });
        }
    }
}

/// Counts calls by the names of their records. Reads a record only if its name has no tool.
pub(super) async fn count_calls(
    store: &dyn Store,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<usize, StoreError> {
    let all = RecordPage::first_records(usize::MAX).names_only();
    let mut count = 0;
    for record in store.list_records(RecordKind::Call, all).await? {
        let is_counted = if let Some(tool) = tool_in_record_name(&record.name) {
            is_wanted(tool)
        } else {
            let found = store.find_record(RecordKind::Call, &record.name).await?;
            found.and_then(read_call).is_some_and(|call| is_wanted(&call.tool))
        };
        count += usize::from(is_counted);
    }
    Ok(count)
}

/// Returns the stored form of a value. A long value becomes a text with its size and its beginning.
fn shorten_value(value: &Value) -> Value {
    let bytes = json_size(value);
    if bytes <= MAX_VALUE_BYTES {
        return value.clone();
    }
    let text = value.to_string();
    let head = &text[..text.floor_char_boundary(MAX_VALUE_BYTES)];
    Value::from(format!(
        "{bytes} bytes, of which the history keeps the first {MAX_VALUE_BYTES}: {head}…"
    ))
}

/// Replaces the spaces, because a space ends the token in the name of a record.
fn encode_token(token: &str) -> String {
    token.replace('%', "%25").replace(' ', "%20")
}

fn tool_in_record_name(name: &str) -> Option<&str> {
    name.splitn(3, ' ').nth(2)
}

pub(crate) fn token_in_record_name(name: &str) -> Option<String> {
    let (_, token) = name.split(' ').nth(1)?.split_once(TOKEN_SEPARATOR)?;
    Some(token.replace("%20", " ").replace("%25", "%"))
}

fn read_call(record: Record) -> Option<DirectCall> {
    let Record { name, value, at, .. } = record;
    let mut value = Arc::unwrap_or_clone(value);
    let result = match value["error"].as_str() {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(value["result"].take()),
    };
    Some(DirectCall {
        id: name.split(' ').nth(1)?.split(TOKEN_SEPARATOR).next()?.to_owned(),
        tool: value["tool"].as_str()?.to_owned(),
        parameters: value["parameters"].take(),
        result,
        duration_ms: value["durationMs"].as_f64().unwrap_or_default(),
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_record_contains_the_token_and_the_tool() {
        for (name, expected) in [
            ("1 call_1", (None, None)),
            ("1 call_1 s.a tool @x", (None, Some("s.a tool @x"))),
            ("1 call_1@the%20shop s.a tool", (Some("the shop"), Some("s.a tool"))),
            ("1 call_1@ci", (Some("ci"), None)),
        ] {
            let found = (token_in_record_name(name), tool_in_record_name(name));
            assert_eq!((found.0.as_deref(), found.1), expected, "{name}");
        }
        let token = "50 %20 @ ci";
        let name = format!("1 call_1@{}", encode_token(token));
        assert_eq!(token_in_record_name(&name).as_deref(), Some(token));
    }

    #[test]
    fn long_parameters_and_outputs_are_cut() {
        let short = json!({ "text": "x".repeat(MAX_VALUE_BYTES / 2) });
        assert_eq!(shorten_value(&short), short);
        let long = json!({ "text": "ü".repeat(MAX_VALUE_BYTES) });
        let Value::String(text) = shorten_value(&long) else { panic!("a text") };
        assert!(text.len() < MAX_VALUE_BYTES + 200, "{}", text.len());
        let expected = format!("{} bytes, of which the history keeps the first", json_size(&long));
        assert!(text.starts_with(&expected) && text.contains(r#"{"text":"üü"#));
    }
}
