//! The messages of both subprotocols. The package `graphql-ws` uses `graphql-transport-ws`, and the
//! older package `subscriptions-transport-ws` uses `graphql-ws`.

use async_graphql::{Request, ServerError};
use axum::http::HeaderValue;
use planner::rounded::LargeIntegers;
use serde_json::{Map, Value, json};

use super::super::{params, reply::Body};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subprotocol {
    TransportWs,
    Legacy,
}

impl Subprotocol {
    pub(super) const BY_PREFERENCE: [Self; 2] = [Self::TransportWs, Self::Legacy];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TransportWs => "graphql-transport-ws",
            Self::Legacy => "graphql-ws",
        }
    }

    pub(super) fn from_header(name: &HeaderValue) -> Option<Self> {
        Self::BY_PREFERENCE.into_iter().find(|protocol| name == protocol.name())
    }
}

#[derive(Debug)]
pub(super) enum ClientMessage {
    Init(Option<Value>),
    Subscribe { id: String, request: Box<Request> },
    Complete { id: String },
    Ping(Option<Value>),
    Pong,
    Terminate,
}

/// Parses a message. The error describes the problem, and becomes the reason of the close.
pub(super) fn parse_message(protocol: Subprotocol, text: &str) -> Result<ClientMessage, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut fields) = value else { return Err("not an object".to_owned()) };
    let kind = match fields.remove("type") {
        Some(Value::String(kind)) => kind,
        Some(_) => return Err("`type` is not a string".to_owned()),
        None => return Err("`type` is missing".to_owned()),
    };
    let payload = fields.remove("payload").filter(|payload| !payload.is_null());
    match (protocol, kind.as_str()) {
        (_, "connection_init") => Ok(ClientMessage::Init(optional_object(payload)?)),
        (Subprotocol::TransportWs, "subscribe") | (Subprotocol::Legacy, "start") => {
            parse_subscribe(&mut fields, payload, LargeIntegers::find(text.as_bytes()))
        }
        (Subprotocol::TransportWs, "complete") | (Subprotocol::Legacy, "stop") => {
            Ok(ClientMessage::Complete { id: take_operation_id(&mut fields)? })
        }
        (Subprotocol::TransportWs, "ping") => Ok(ClientMessage::Ping(optional_object(payload)?)),
        (Subprotocol::TransportWs, "pong") => {
            optional_object(payload)?;
            Ok(ClientMessage::Pong)
        }
        (Subprotocol::Legacy, "connection_terminate") => Ok(ClientMessage::Terminate),
        (_, other) => Err(format!("unknown type `{other}`")),
    }
}

fn parse_subscribe(
    fields: &mut Map<String, Value>,
    payload: Option<Value>,
    written: LargeIntegers,
) -> Result<ClientMessage, String> {
    let id = take_operation_id(fields)?;
    let payload = payload.ok_or("`payload` is missing")?;
    let request = params::parse_request(payload).map_err(|refusal| refusal.message)?;
    let request = request.data(written);
    Ok(ClientMessage::Subscribe { id, request: Box::new(request) })
}

fn take_operation_id(fields: &mut Map<String, Value>) -> Result<String, String> {
    match fields.remove("id") {
        Some(Value::String(id)) if !id.is_empty() => Ok(id),
        Some(_) => Err("`id` is not a string of at least one character".to_owned()),
        None => Err("`id` is missing".to_owned()),
    }
}

fn optional_object(payload: Option<Value>) -> Result<Option<Value>, String> {
    match payload {
        None | Some(Value::Object(_)) => Ok(payload),
        Some(_) => Err("`payload` is not an object".to_owned()),
    }
}

impl Subprotocol {
    pub(super) fn ack_message() -> String {
        json!({ "type": "connection_ack" }).to_string()
    }

    /// Formats the message of the older protocol that tells a client why it is rejected.
    pub(super) fn connection_error_message(reason: &str) -> String {
        json!({ "type": "connection_error", "payload": { "message": reason } }).to_string()
    }

    pub(super) fn pong_message(payload: Option<Value>) -> String {
        match payload {
            Some(payload) => json!({ "type": "pong", "payload": payload }).to_string(),
            None => json!({ "type": "pong" }).to_string(),
        }
    }

    pub(super) fn keep_alive_message() -> String {
        json!({ "type": "ka" }).to_string()
    }

    pub(super) fn next_message(self, id: &str, body: &Body) -> String {
        let kind = match self {
            Self::TransportWs => "next",
            Self::Legacy => "data",
        };
        json!({ "id": id, "type": kind, "payload": body }).to_string()
    }

    pub(super) fn error_message(self, id: &str, errors: &[ServerError]) -> String {
        let payload = match self {
            Self::TransportWs => json!(errors),
            // Sends only the first error, because the older protocol allows one error per message.
            Self::Legacy => json!(errors.first()),
        };
        json!({ "id": id, "type": "error", "payload": payload }).to_string()
    }

    pub(super) fn complete_message(id: &str) -> String {
        json!({ "id": id, "type": "complete" }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check(protocol: Subprotocol, text: &str, expected: Expect) {
        expected.assert_eq(&match parse_message(protocol, text) {
            Ok(ClientMessage::Subscribe { id, request }) => format!("{id}: {}", request.query),
            Ok(message) => format!("{message:?}"),
            Err(reason) => format!("error: {reason}"),
        });
    }

    #[test]
    fn messages_of_the_current_protocol_are_parsed() {
        let check = |text, expected| check(Subprotocol::TransportWs, text, expected);
        check(r#"{"type":"connection_init"}"#, expect!["Init(None)"]);
        check(
            r#"{"type":"connection_init","payload":{"token":"t"}}"#,
            expect![[r#"Init(Some(Object {"token": String("t")}))"#]],
        );
        check(
            r#"{"type":"connection_init","payload":7}"#,
            expect!["error: `payload` is not an object"],
        );
        check(r#"{"type":"subscribe","id":"1","payload":{"query":"{a}"}}"#, expect!["1: {a}"]);
        check(
            r#"{"type":"subscribe","id":"","payload":{"query":"{a}"}}"#,
            expect!["error: `id` is not a string of at least one character"],
        );
        check(
            r#"{"type":"subscribe","id":"1","payload":{"query":7}}"#,
            expect!["error: the parameter `query` must be a string, not a number"],
        );
        check(r#"{"type":"subscribe","id":"1"}"#, expect!["error: `payload` is missing"]);
        check(r#"{"type":"complete","id":"1"}"#, expect![[r#"Complete { id: "1" }"#]]);
        check(r#"{"type":"complete"}"#, expect!["error: `id` is missing"]);
        check(r#"{"type":"ping"}"#, expect!["Ping(None)"]);
        check(r#"{"type":"start","id":"1"}"#, expect!["error: unknown type `start`"]);
        check(r#"{"id":"1"}"#, expect!["error: `type` is missing"]);
        check("[]", expect!["error: not an object"]);
        check("hello", expect!["error: not JSON: expected value at line 1 column 1"]);
    }

    #[test]
    fn messages_of_the_older_protocol_are_parsed() {
        let check = |text, expected| check(Subprotocol::Legacy, text, expected);
        check(r#"{"type":"connection_init","payload":null}"#, expect!["Init(None)"]);
        check(r#"{"type":"start","id":"1","payload":{"query":"{a}"}}"#, expect!["1: {a}"]);
        check(r#"{"type":"stop","id":"1"}"#, expect![[r#"Complete { id: "1" }"#]]);
        check(r#"{"type":"connection_terminate"}"#, expect!["Terminate"]);
        check(r#"{"type":"ping"}"#, expect!["error: unknown type `ping`"]);
    }
}
