//! The state of a WebSocket: decides what its messages mean, without input and output.

use std::collections::BTreeMap;

use async_graphql::{Request, Response, ServerError};
use axum::http::StatusCode;
use futures::stream::{AbortHandle, AbortRegistration};

use super::{
    super::{
        operation::{Operation, Outcome, prepare},
        refusal::Refusal,
        reply::Body,
    },
    close::Closing,
    message::{ClientMessage, Subprotocol, parse},
};

#[derive(Debug)]
pub(super) enum Effect {
    Greet(Option<serde_json::Value>),
    Send(String),
    /// Run an operation until it ends or is aborted.
    Start {
        id: String,
        operation: Box<Operation>,
        abort: AbortRegistration,
    },
    Close(Closing),
}

#[derive(Debug)]
pub(super) enum Output {
    Answer(Box<Outcome>),
    End,
}

#[derive(Debug)]
pub(super) struct Session {
    protocol: Subprotocol,
    acknowledged: bool,
    running: BTreeMap<String, AbortHandle>,
    max_operations: usize,
    max_message: usize,
}

impl Session {
    pub(super) fn new(protocol: Subprotocol, max_operations: usize, max_message: usize) -> Self {
        Self {
            protocol,
            acknowledged: false,
            running: BTreeMap::new(),
            max_operations,
            max_message,
        }
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.acknowledged
    }

    pub(super) fn wants_keep_alive(&self) -> bool {
        self.protocol == Subprotocol::Legacy && self.acknowledged
    }

    /// Returns the message to a rejected client. The current protocol has only a close code.
    pub(super) fn refusal(&self, why: &str) -> Option<String> {
        (self.protocol == Subprotocol::Legacy).then(|| Subprotocol::connection_error(why))
    }

    pub(super) fn on_message(&mut self, text: &str) -> Vec<Effect> {
        if text.len() > self.max_message {
            return vec![Effect::Close(Closing::too_big(self.max_message))];
        }
        let message = match parse(self.protocol, text) {
            Ok(message) => message,
            Err(reason) => return vec![Effect::Close(Closing::invalid_message(&reason))],
        };
        match message {
            ClientMessage::Init(payload) => self.on_init(payload),
            ClientMessage::Subscribe { id, request } => self.on_subscribe(id, *request),
            ClientMessage::Complete { id } => {
                if let Some(running) = self.running.remove(&id) {
                    running.abort();
                }
                Vec::new()
            }
            ClientMessage::Ping(payload) => vec![Effect::Send(Subprotocol::pong(payload))],
            ClientMessage::Pong => Vec::new(),
            ClientMessage::Terminate => vec![Effect::Close(Closing::normal())],
        }
    }

    fn on_init(&mut self, payload: Option<serde_json::Value>) -> Vec<Effect> {
        if self.acknowledged {
            return vec![Effect::Close(Closing::too_many_inits())];
        }
        self.acknowledged = true;
        let mut effects = vec![Effect::Greet(payload), Effect::Send(Subprotocol::ack())];
        if self.wants_keep_alive() {
            effects.push(Effect::Send(Subprotocol::keep_alive()));
        }
        effects
    }

    fn on_subscribe(&mut self, id: String, request: Request) -> Vec<Effect> {
        if !self.acknowledged {
            return vec![Effect::Close(Closing::unauthorized())];
        }
        match (self.protocol, self.running.contains_key(&id)) {
            (Subprotocol::TransportWs, true) => {
                return vec![Effect::Close(Closing::duplicate(&id))];
            }
            // The older protocol replaces such an operation.
            (Subprotocol::Legacy, true) => {
                if let Some(replaced) = self.running.remove(&id) {
                    replaced.abort();
                }
            }
            (_, false) => {}
        }
        if self.running.len() >= self.max_operations {
            let message = format!(
                "this connection has {} operations running already; complete some first",
                self.max_operations
            );
            let refusal = Refusal::limit(StatusCode::TOO_MANY_REQUESTS, message);
            return vec![self.refuse(&id, &[refusal.into_error()])];
        }
        match prepare(request) {
            Ok(operation) => {
                let (handle, abort) = AbortHandle::new_pair();
                self.running.insert(id.clone(), handle);
                vec![Effect::Start { id, operation: Box::new(operation), abort }]
            }
            Err(response) => vec![self.answer(&id, *response)],
        }
    }

    pub(super) fn on_output(&mut self, id: &str, output: Output) -> Option<Effect> {
        match output {
            Output::Answer(outcome) => Some(match *outcome {
                Ok(response) => self.answer(id, response),
                Err(refusal) => {
                    self.forget(id);
                    self.refuse(id, &[refusal.into_error()])
                }
            }),
            Output::End => {
                self.running.remove(id)?;
                Some(Effect::Send(Subprotocol::complete(id)))
            }
        }
    }

    /// Sends a response. An operation that never started ends with it.
    fn answer(&mut self, id: &str, response: Response) -> Effect {
        let body = Body::from(response);
        match body.request_errors() {
            Some(errors) => {
                self.forget(id);
                self.refuse(id, errors)
            }
            None => Effect::Send(self.protocol.next(id, &body)),
        }
    }

    fn refuse(&self, id: &str, errors: &[ServerError]) -> Effect {
        Effect::Send(self.protocol.error(id, errors))
    }

    /// Stops an operation without a message.
    fn forget(&mut self, id: &str) {
        if let Some(running) = self.running.remove(id) {
            running.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::value;
    use expect_test::{Expect, expect};

    use super::*;

    const SUBSCRIBE: &str = r#"{"type":"subscribe","id":"1","payload":{"query":"{a}"}}"#;
    const START: &str = r#"{"type":"start","id":"1","payload":{"query":"{a}"}}"#;
    const INIT: &str = r#"{"type":"connection_init"}"#;

    fn show(effects: impl IntoIterator<Item = Effect>) -> String {
        let lines = effects.into_iter().map(|effect| match effect {
            Effect::Greet(payload) => format!("greet {payload:?}\n"),
            Effect::Send(text) => format!("send {text}\n"),
            Effect::Start { id, .. } => format!("start {id}\n"),
            Effect::Close(closing) => format!("{closing:?}\n"),
        });
        lines.collect()
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check(protocol: Subprotocol, messages: &[&str], expected: Expect) -> Session {
        let mut session = Session::new(protocol, 2, 200);
        let effects = messages.iter().flat_map(|message| session.on_message(message));
        expected.assert_eq(&show(effects.collect::<Vec<_>>()));
        session
    }

    #[test]
    fn a_protocol_violation_closes_the_connection() {
        let protocol = Subprotocol::TransportWs;
        check(
            protocol,
            &[SUBSCRIBE],
            expect![[r#"
            Closing { code: 4401, reason: "Unauthorized" }
        "#]],
        );
        check(
            protocol,
            &[INIT, INIT],
            expect![[r#"
            greet None
            send {"type":"connection_ack"}
            Closing { code: 4429, reason: "Too many initialisation requests" }
        "#]],
        );
        check(
            protocol,
            &[INIT, SUBSCRIBE, SUBSCRIBE],
            expect![[r#"
            greet None
            send {"type":"connection_ack"}
            start 1
            Closing { code: 4409, reason: "Subscriber for 1 already exists" }
        "#]],
        );
        check(
            protocol,
            &["{}"],
            expect![[r#"
            Closing { code: 4400, reason: "Invalid message: `type` is missing" }
        "#]],
        );
        check(
            protocol,
            &[&" ".repeat(201)],
            expect![[r#"
            Closing { code: 1009, reason: "Message larger than 200 bytes" }
        "#]],
        );
    }

    #[test]
    fn an_invalid_operation_does_not_close_the_connection() {
        check(
            Subprotocol::TransportWs,
            &[INIT, r#"{"type":"subscribe","id":"1","payload":{"query":"{"}}"#],
            expect![[r#"
                greet None
                send {"type":"connection_ack"}
                send {"id":"1","type":"error","payload":[{"message":" --> 1:2\n  |\n1 | {\n  |  ^---\n  |\n  = expected selection","locations":[{"line":1,"column":2}],"extensions":{"code":"INVALID_ARGUMENT"}}]}
            "#]],
        );
        let second = SUBSCRIBE.replace("\"1\"", "\"2\"");
        let third = SUBSCRIBE.replace("\"1\"", "\"3\"");
        check(
            Subprotocol::TransportWs,
            &[INIT, SUBSCRIBE, &second, &third],
            expect![[r#"
            greet None
            send {"type":"connection_ack"}
            start 1
            start 2
            send {"id":"3","type":"error","payload":[{"message":"this connection has 2 operations running already; complete some first","extensions":{"code":"LIMIT_EXCEEDED"}}]}
        "#]],
        );
    }

    #[test]
    fn an_operation_id_can_be_used_again_after_its_end() {
        let complete = r#"{"type":"complete","id":"1"}"#;
        let messages = [INIT, SUBSCRIBE, complete, SUBSCRIBE];
        let mut session = check(
            Subprotocol::TransportWs,
            &messages,
            expect![[r#"
            greet None
            send {"type":"connection_ack"}
            start 1
            start 1
        "#]],
        );
        let answer = Output::Answer(Box::new(Ok(Response::new(value!({ "a": 1 })))));
        expect![[r#"
            send {"id":"1","type":"next","payload":{"data":{"a":1}}}
        "#]]
        .assert_eq(&show(session.on_output("1", answer)));
        expect![[r#"
            send {"id":"1","type":"complete"}
        "#]]
        .assert_eq(&show(session.on_output("1", Output::End)));
        expect![""].assert_eq(&show(session.on_output("1", Output::End)));
        expect![[r"
            start 1
        "]]
        .assert_eq(&show(session.on_message(SUBSCRIBE)));
    }

    #[test]
    fn the_older_protocol_gets_its_own_messages() {
        let messages = [INIT, START, START, r#"{"type":"connection_terminate"}"#];
        let mut session = check(
            Subprotocol::Legacy,
            &messages,
            expect![[r#"
            greet None
            send {"type":"connection_ack"}
            send {"type":"ka"}
            start 1
            start 1
            Closing { code: 1000, reason: "" }
        "#]],
        );
        let wrong = Response::from_errors(vec![ServerError::new("no", None)]);
        expect![[r#"
            send {"id":"1","type":"error","payload":{"message":"no","extensions":{"code":"INVALID_ARGUMENT"}}}
        "#]]
        .assert_eq(&show(session.on_output("1", Output::Answer(Box::new(Ok(wrong))))));
    }
}
