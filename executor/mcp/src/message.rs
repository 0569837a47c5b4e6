//! Changes to messages, the same for each transport.
//!
//! Reports of progress end here: rmcp makes a task of each, which loses their order and lets a
//! server that floods fill the memory.

use rmcp::{
    model::{
        CallToolResult, ClientRequest, ConstString, ContentBlock, CustomResult, ErrorData, GetMeta,
        JsonRpcMessage, JsonRpcResponse, ListToolsResult, ProgressNotificationMethod, RequestId,
        RequestParamsMeta, ServerNotification, ServerResult, Tool,
    },
    service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage},
};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::json::parse_lenient;

use super::{
    answer::{TOO_LARGE, UNREADABLE, is_ours},
    tokens::Tokens,
};

/// How much longer a message may be than an output: the output may stand in it twice, as structure
/// and as text, each of its bytes escaped to six.
pub(super) const OVERHEAD: usize = 16;
/// Bytes kept of either end of a message that is too long: its id is there.
pub(super) const ENDS: usize = 256;

/// Puts a call's own progress token in the place of the one that rmcp draws for every request.
pub(super) fn keep_token(message: &mut TxJsonRpcMessage<RoleClient>) {
    let JsonRpcMessage::Request(request) = message else { return };
    let ClientRequest::CallToolRequest(call) = &request.request else { return };
    if let Some(token) = call.params.progress_token() {
        request.request.get_meta_mut().set_progress_token(token);
    }
}

/// Takes a report of progress to its call, and returns any other message.
pub(super) fn report(
    message: RxJsonRpcMessage<RoleClient>,
    tokens: &Tokens,
) -> Option<RxJsonRpcMessage<RoleClient>> {
    let JsonRpcMessage::Notification(notification) = message else { return Some(message) };
    match notification.notification {
        ServerNotification::ProgressNotification(progress) => tokens.hear(progress.params),
        // A report that is not as MCP wants it.
        ServerNotification::CustomNotification(custom)
            if custom.method == ProgressNotificationMethod::VALUE => {}
        _ => return Some(JsonRpcMessage::Notification(notification)),
    }
    None
}

/// Reads a message of a server, if it is one for us. An answer that is JSON but not MCP is that
/// call's failure.
pub(super) fn parse(text: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    if text.trim_ascii().is_empty() {
        return None;
    }
    let marked = marked(text);
    let text = marked.as_deref().unwrap_or(text);
    match parse_lenient(text) {
        // What only we may say is not believed.
        Ok(JsonRpcMessage::Error(mut error)) if is_ours(error.error.code) => {
            error.error.code = rmcp::model::ErrorCode::INTERNAL_ERROR;
            Some(JsonRpcMessage::Error(error))
        }
        Ok(JsonRpcMessage::Response(JsonRpcResponse {
            result: ServerResult::CustomResult(CustomResult(result)),
            id,
            ..
        })) => Some(JsonRpcMessage::response(readable(result), id)),
        Ok(message) => Some(message),
        Err(err) => {
            // Not what it says: that may repeat a secret that the server was given.
            tracing::debug!(%err, bytes = text.len(), "what an MCP server says is not a message");
            refusal(text, &err)
        }
    }
}

/// What the `_meta` of a tool says here that demands a task: rmcp knows no such word.
pub(super) const DEMANDS_TASK: &str = "faber/demandsTask";

/// Returns a list of tools with those marked that [demand a task](DEMANDS_TASK), if there are any.
fn marked(text: &[u8]) -> Option<Vec<u8>> {
    const WORD: &[u8] = b"\"taskSupport\"";
    if !text.windows(WORD.len()).any(|word| word == WORD) {
        return None;
    }
    let mut message: Value = parse_lenient(text).ok()?;
    let mut is_any = false;
    for tool in message.pointer_mut("/result/tools")?.as_array_mut()? {
        if tool.pointer("/execution/taskSupport").is_some_and(|support| support == "required")
            && let Some(tool) = tool.as_object_mut()
        {
            let meta = tool.entry("_meta").or_insert_with(|| json!({}));
            if !meta.is_object() {
                *meta = json!({});
            }
            meta[DEMANDS_TASK] = json!(true);
            is_any = true;
        }
    }
    is_any.then(|| message.to_string().into_bytes())
}

/// Makes of what cannot be read the failure of the call that it answers, where it says which.
fn refusal(text: &[u8], err: &serde_json::Error) -> Option<RxJsonRpcMessage<RoleClient>> {
    let id = match parse_lenient::<Value>(text) {
        Ok(Value::Array(batch)) => {
            // Some servers answer a call that came alone with a list, as MCP let them for a while.
            let mut answers = batch.iter().filter(|message| answered(message).is_some());
            let answer = answers.next().filter(|_| answers.next().is_none())?;
            return parse(answer.to_string().as_bytes());
        }
        Ok(message) => answered(&message)?,
        Err(_) => answered_in(text)?,
    };
    let why = format!("the server's answer is not MCP: {err}");
    Some(JsonRpcMessage::error(ErrorData::new(UNREADABLE, why, None), Some(id)))
}

/// Returns the call that a message answers, if it is an answer, however bad.
fn answered(message: &Value) -> Option<RequestId> {
    let is_answer = message.get("result").or(message.get("error")).is_some()
        || message.get("jsonrpc").is_some() && message.get("method").is_none();
    let id = message.get("id").filter(|_| is_answer)?;
    serde_json::from_value(id.clone()).ok()
}

/// Returns the call that a text answers which is no JSON, by its ends.
fn answered_in(text: &[u8]) -> Option<RequestId> {
    let head = String::from_utf8_lossy(&text[..text.len().min(ENDS)]);
    let body = ["\"result\"", "\"error\""].into_iter().filter_map(|field| head.find(field)).min();
    let is_answer = !head[..body.unwrap_or(head.len())].contains("\"method\"")
        && (body.is_some() || head.contains("\"jsonrpc\""));
    let tail = &text[text.len().saturating_sub(ENDS)..];
    let id = id_at(text, Place::Head).or_else(|| id_at(tail, Place::Tail));
    id.filter(|_| is_answer).map(RequestId::Number)
}

/// Makes of a result that is none of those that rmcp knows one of them, where only parts of it are
/// strange: a tool that is described wrongly takes no others with it, and a content of a kind that
/// is not known here is kept as it is.
fn readable(mut result: Value) -> ServerResult {
    if let Some(Value::Array(tools)) = result.get_mut("tools") {
        let mut number = 0;
        tools.retain(|tool| {
            number += 1;
            let problem = Tool::deserialize(tool).err();
            if let Some(err) = &problem {
                let why = unquoted(&err.to_string());
                tracing::warn!(number, %why, "a tool in the server's list is left out");
            }
            problem.is_none()
        });
        if let Ok(tools) = ListToolsResult::deserialize(&result) {
            return ServerResult::ListToolsResult(tools);
        }
    }
    if let Some(Value::Array(contents)) = result.get_mut("content") {
        for content in contents {
            if ContentBlock::deserialize(&*content).is_err() {
                *content = json!({ "type": "text", "text": content.to_string() });
            }
        }
        if let Ok(called) = CallToolResult::deserialize(&result) {
            return ServerResult::CallToolResult(called);
        }
    }
    ServerResult::CustomResult(CustomResult(result))
}

/// Returns what an error says without what it quotes: that may repeat a secret that the server was
/// given.
fn unquoted(err: &str) -> String {
    // That names what is missing, and quotes nothing.
    if err.starts_with("missing field") {
        return err.to_owned();
    }
    let quotes = |letter: char| matches!(letter, '"' | '`');
    match (err.find(quotes), err.rfind(quotes)) {
        (Some(begin), Some(end)) => format!("{}…{}", &err[..begin], &err[end + 1..]),
        _ => err.to_owned(),
    }
}

/// Answers a call whose answer is too long, by the ends of it. Its id is in either, and a text
/// inside the answer cannot look like it: its quotes would be escaped.
pub(super) fn cut_short(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    let (head, tail) = line.split_at(ENDS.min(line.len()));
    let id = id_at(head, Place::Head).or_else(|| id_at(tail, Place::Tail))?;
    let error = ErrorData::new(TOO_LARGE, "the answer is too long", None);
    Some(JsonRpcMessage::error(error, Some(RequestId::Number(id))))
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Head,
    Tail,
}

fn id_at(end: &[u8], place: Place) -> Option<i64> {
    let end = if place == Place::Head { &end[..end.len().min(ENDS)] } else { end };
    let text = String::from_utf8_lossy(end);
    let key = "\"id\":";
    let at = if place == Place::Head {
        // Beyond this begins the result, which may have ids of its own.
        text[..text.find("\"result\"").unwrap_or(text.len())].find(key)
    } else {
        text.rfind(key)
    };
    let digits = text[at? + key.len()..].trim_start();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_quotes_is_not_repeated() {
        for (said, expected) in [
            ("missing field `name`", "missing field `name`"),
            (
                r#"invalid type: string "a \"sesame\"", expected a map"#,
                "invalid type: string …, expected a map",
            ),
            ("unknown variant `sesame`, expected `a` or `b`", "unknown variant …"),
            ("invalid length 1", "invalid length 1"),
        ] {
            assert_eq!(unquoted(said), expected);
        }
    }
}
