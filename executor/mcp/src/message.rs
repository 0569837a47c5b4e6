//! Reads and changes messages, and routes progress reports. Used by all transports.
//!
//! Progress reports do not reach rmcp, because rmcp would spawn a task for each report, which loses
//! the order of the reports.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use rmcp::{
    model::{
        CallToolResult, ClientRequest, ConstString, ContentBlock, CustomResult, ErrorData, GetMeta,
        JsonRpcMessage, JsonRpcResponse, ListToolsResult, NumberOrString,
        ProgressNotificationMethod, ProgressNotificationParam, ProgressToken, RequestId,
        RequestParamsMeta, ServerNotification, ServerResult, Tool,
    },
    service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage},
};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{json::parse_lenient, tool::Progress};
use toolbox::progress::Reporter;

use super::{
    answer::{TOO_LARGE_CODE, UNREADABLE_CODE, is_own_code},
    redaction::Secrets,
};

/// Factor by which a message may be larger than the output that it contains. A message may contain
/// the output twice, as structured content and as text, and escaping can turn each byte into six.
pub(super) const MESSAGE_OVERHEAD: usize = 16;
/// Bytes that are kept of the start of a message that is too long, and of its end, because one of
/// the two contains the id of the call.
pub(super) const KEPT_END_BYTES: usize = 256;

/// Replaces the progress token that rmcp generates for each request by the token of the call.
pub(super) fn restore_progress_token(message: &mut TxJsonRpcMessage<RoleClient>) {
    let JsonRpcMessage::Request(request) = message else { return };
    let ClientRequest::CallToolRequest(call) = &request.request else { return };
    if let Some(token) = call.params.progress_token() {
        request.request.get_meta_mut().set_progress_token(token);
    }
}

/// Delivers a progress report to its call. Returns any other message.
pub(super) fn take_progress(
    message: RxJsonRpcMessage<RoleClient>,
    tokens: &ProgressTokens,
) -> Option<RxJsonRpcMessage<RoleClient>> {
    let JsonRpcMessage::Notification(notification) = message else { return Some(message) };
    match notification.notification {
        ServerNotification::ProgressNotification(progress) => {
            tokens.deliver_report(progress.params);
        }
        // The report is invalid, so it is dropped.
        ServerNotification::CustomNotification(custom)
            if custom.method == ProgressNotificationMethod::VALUE => {}
        _ => return Some(JsonRpcMessage::Notification(notification)),
    }
    None
}

/// Parses a message of a server. An invalid answer that cannot be repaired becomes the error of the
/// call that it answers, and other invalid messages are ignored.
pub(super) fn parse_message(text: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    if text.trim_ascii().is_empty() {
        return None;
    }
    let marked = mark_task_tools(text);
    let text = marked.as_deref().unwrap_or(text);
    match parse_lenient(text) {
        // Replaces the code, because a server must not send the codes of this client.
        Ok(JsonRpcMessage::Error(mut error)) if is_own_code(error.error.code) => {
            error.error.code = rmcp::model::ErrorCode::INTERNAL_ERROR;
            Some(JsonRpcMessage::Error(error))
        }
        Ok(JsonRpcMessage::Response(JsonRpcResponse {
            result: ServerResult::CustomResult(CustomResult(result)),
            id,
            ..
        })) => Some(JsonRpcMessage::response(recover_result(result), id)),
        Ok(message) => Some(message),
        Err(err) => {
            // The log does not show the message itself, because it may contain a secret.
            tracing::debug!(%err, bytes = text.len(), "ignored an invalid message of an MCP server");
            unreadable_error(text, &err)
        }
    }
}

/// Parses a message of a server, and returns it as JSON. Fuzz tests need this function, because the
/// types of messages are private.
#[doc(hidden)]
pub fn message_as_json(text: &[u8]) -> Option<Value> {
    // An answer that is too long is read in another way, which must accept any bytes, too.
    too_long_error(text);
    serde_json::to_value(parse_message(text)?).ok()
}

/// The field of `_meta` that marks a tool which requires a task. It replaces `taskSupport:
/// required`, because rmcp drops `taskSupport`.
pub(super) const DEMANDS_TASK_FIELD: &str = "faber/demandsTask";

/// Marks the tools of a list that [require a task](DEMANDS_TASK_FIELD). Returns `None` if no tool
/// requires one.
fn mark_task_tools(text: &[u8]) -> Option<Vec<u8>> {
    const TASK_SUPPORT_KEY: &[u8] = b"\"taskSupport\"";
    if !text.windows(TASK_SUPPORT_KEY.len()).any(|word| word == TASK_SUPPORT_KEY) {
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
            meta[DEMANDS_TASK_FIELD] = json!(true);
            is_any = true;
        }
    }
    is_any.then(|| message.to_string().into_bytes())
}

/// Converts an unreadable message to the error of the call that the message answers. Returns `None`
/// if the message names no call.
fn unreadable_error(text: &[u8], err: &serde_json::Error) -> Option<RxJsonRpcMessage<RoleClient>> {
    let id = match parse_lenient::<Value>(text) {
        Ok(Value::Array(batch)) => {
            // Some servers send the answer inside a list, which an older version of MCP allowed.
            let mut answers = batch.iter().filter(|message| answered_id(message).is_some());
            let answer = answers.next().filter(|_| answers.next().is_none())?;
            return parse_message(answer.to_string().as_bytes());
        }
        Ok(message) => answered_id(&message)?,
        Err(_) => answered_id_in_text(text)?,
    };
    let reason = format!("the server's answer is not a valid MCP message: {err}");
    Some(JsonRpcMessage::error(ErrorData::new(UNREADABLE_CODE, reason, None), Some(id)))
}

fn answered_id(message: &Value) -> Option<RequestId> {
    let is_answer = message.get("result").or(message.get("error")).is_some()
        || message.get("jsonrpc").is_some() && message.get("method").is_none();
    let id = message.get("id").filter(|_| is_answer)?;
    serde_json::from_value(id.clone()).ok()
}

/// Returns the id of the call that a text answers, if the text is not valid JSON. Reads only the
/// start and the end of the text.
fn answered_id_in_text(text: &[u8]) -> Option<RequestId> {
    let head = String::from_utf8_lossy(&text[..text.len().min(KEPT_END_BYTES)]);
    let body = ["\"result\"", "\"error\""].into_iter().filter_map(|field| head.find(field)).min();
    let is_answer = !head[..body.unwrap_or(head.len())].contains("\"method\"")
        && (body.is_some() || head.contains("\"jsonrpc\""));
    let tail = &text[text.len().saturating_sub(KEPT_END_BYTES)..];
    let id = find_id(text, MessageEnd::Head).or_else(|| find_id(tail, MessageEnd::Tail));
    id.filter(|_| is_answer).map(RequestId::Number)
}

/// Repairs a result that rmcp cannot parse. Skips invalid tools of a list, and turns contents of an
/// unknown type into texts.
fn recover_result(mut result: Value) -> ServerResult {
    if let Some(Value::Array(tools)) = result.get_mut("tools") {
        let mut number = 0;
        tools.retain(|tool| {
            number += 1;
            let problem = Tool::deserialize(tool).err();
            if let Some(err) = &problem {
                let reason = remove_quoted_parts(&err.to_string());
                tracing::warn!(number, why = %reason, "skipped an invalid tool in the server's list");
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

/// Removes quoted parts from a message, because they may contain a secret.
fn remove_quoted_parts(err: &str) -> String {
    // Keeps the quotes, because this message quotes the name of a field only.
    if err.starts_with("missing field") {
        return err.to_owned();
    }
    let quotes = |letter: char| matches!(letter, '"' | '`');
    match (err.find(quotes), err.rfind(quotes)) {
        (Some(begin), Some(end)) => format!("{}…{}", &err[..begin], &err[end + 1..]),
        _ => err.to_owned(),
    }
}

/// Returns an error for the call whose answer is too long. `line` has the start and the end of the
/// answer.
pub(super) fn too_long_error(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    let (head, tail) = line.split_at(KEPT_END_BYTES.min(line.len()));
    let id = find_id(head, MessageEnd::Head).or_else(|| find_id(tail, MessageEnd::Tail))?;
    let error = ErrorData::new(TOO_LARGE_CODE, "the answer is too long", None);
    Some(JsonRpcMessage::error(error, Some(RequestId::Number(id))))
}

#[derive(Clone, Copy, PartialEq)]
enum MessageEnd {
    Head,
    Tail,
}

fn find_id(end: &[u8], message_end: MessageEnd) -> Option<i64> {
    let end =
        if message_end == MessageEnd::Head { &end[..end.len().min(KEPT_END_BYTES)] } else { end };
    let text = String::from_utf8_lossy(end);
    let key = "\"id\":";
    let at = if message_end == MessageEnd::Head {
        // Searches only before the result, because the result may contain other ids.
        text[..text.find("\"result\"").unwrap_or(text.len())].find(key)
    } else {
        text.rfind(key)
    };
    let digits = text[at? + key.len()..].trim_start();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[derive(Debug, Default)]
pub(super) struct ProgressTokens {
    next: AtomicI64,
    calls: Mutex<BTreeMap<i64, ProgressListener>>,
}

type ProgressListener = (Reporter, Arc<Secrets>);

/// The token of one call. Reports that arrive after the token is dropped are ignored.
#[derive(Debug)]
pub(super) struct CallToken {
    number: i64,
    tokens: Arc<ProgressTokens>,
}

impl ProgressTokens {
    /// Creates a token. The reports of the call go to `reporter` after `secrets` are removed from
    /// them.
    pub(super) fn register_call(
        self: &Arc<Self>,
        reporter: Reporter,
        secrets: Arc<Secrets>,
    ) -> CallToken {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock_calls().insert(number, (reporter, secrets));
        CallToken { number, tokens: Arc::clone(self) }
    }

    pub(super) fn deliver_report(&self, report: ProgressNotificationParam) {
        let ProgressToken(NumberOrString::Number(number)) = report.progress_token else { return };
        let Some((reporter, secrets)) = self.lock_calls().get(&number).cloned() else { return };
        let message = report.message.map(|text| secrets.redact(text).into());
        reporter.report(Progress { progress: report.progress, total: report.total, message });
    }

    fn lock_calls(&self) -> MutexGuard<'_, BTreeMap<i64, ProgressListener>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallToken {
    pub(super) fn progress_token(&self) -> ProgressToken {
        ProgressToken(NumberOrString::Number(self.number))
    }
}

impl Drop for CallToken {
    fn drop(&mut self) {
        self.tokens.lock_calls().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use secrets::Redaction;
    use toolbox::progress::report_channel;

    use super::*;

    #[test]
    fn quoted_values_are_removed_from_parse_errors() {
        for (text, expected) in [
            ("missing field `name`", "missing field `name`"),
            (
                r#"invalid type: string "a \"sesame\"", expected a map"#,
                "invalid type: string …, expected a map",
            ),
            ("unknown variant `sesame`, expected `a` or `b`", "unknown variant …"),
            ("invalid length 1", "invalid length 1"),
        ] {
            assert_eq!(remove_quoted_parts(text), expected);
        }
    }

    #[test]
    fn progress_reaches_only_the_call_with_its_token() {
        let tokens = Arc::new(ProgressTokens::default());
        let (reporter, mut other) = report_channel();
        let _other = tokens.register_call(reporter, Arc::default());
        let (reporter, mut listener) = report_channel();
        let mut redaction = Redaction::default();
        redaction.add_secret("KEY", "the secret");
        let token = tokens.register_call(reporter, Arc::new(Secrets::new(redaction)));
        let mut hear = |token: ProgressToken| {
            tokens.deliver_report(
                ProgressNotificationParam::new(token, 1.0).with_message("x: the secret"),
            );
            listener.next().now_or_never().map(|report| report.progress)
        };
        let expected =
            Progress { progress: 1.0, total: None, message: Some("x: ***KEY***".into()) };
        assert_eq!(hear(token.progress_token()), Some(expected));
        assert_eq!(hear(ProgressToken(NumberOrString::Number(i64::MAX))), None);
        assert_eq!(hear(ProgressToken(NumberOrString::String("1".into()))), None);
        let late = token.progress_token();
        drop(token);
        assert_eq!(hear(late), None);
        assert!(other.next().now_or_never().is_none());
        assert_eq!(tokens.lock_calls().len(), 1);
    }
}
