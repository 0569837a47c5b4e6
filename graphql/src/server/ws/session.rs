//! The state of a WebSocket. It decides how to react to messages, and does no input or output
//! itself.

use std::collections::BTreeMap;

use async_graphql::{Request, Response, ServerError};
use axum::http::StatusCode;
use futures::stream::{AbortHandle, AbortRegistration};

use super::{
    super::{
        operation::{Operation, OperationResult, parse_operation},
        refusal::Refusal,
        reply::Body,
    },
    close::Closing,
    message::{ClientMessage, Subprotocol, parse_message},
};

#[derive(Debug)]
pub(super) enum SessionEffect {
    IdentifyClient(Option<serde_json::Value>),
    Send(String),
    Start { id: String, operation: Box<Operation>, abort: AbortRegistration },
    Close(Closing),
}

#[derive(Debug)]
pub(super) enum Output {
    Answer(Box<OperationResult>),
    End,
}

#[derive(Debug)]
pub(super) struct Session {
    protocol: Subprotocol,
    is_acknowledged: bool,
    running_operations: BTreeMap<String, AbortHandle>,
    max_operations: usize,
    max_message_bytes: usize,
}

impl Session {
    pub(super) fn new(
        protocol: Subprotocol,
        max_operations: usize,
        max_message_bytes: usize,
    ) -> Self {
        Self {
            protocol,
            is_acknowledged: false,
            running_operations: BTreeMap::new(),
            max_operations,
            max_message_bytes,
        }
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    pub(super) fn wants_keep_alive(&self) -> bool {
        self.protocol == Subprotocol::Legacy && self.is_acknowledged
    }

    /// Returns the message to a rejected client, if the protocol has such a message. The current
    /// protocol only has a close code.
    pub(super) fn refusal_message(&self, reason: &str) -> Option<String> {
        (self.protocol == Subprotocol::Legacy)
            .then(|| Subprotocol::connection_error_message(reason))
    }

    pub(super) fn receive_message(&mut self, text: &str) -> Vec<SessionEffect> {
        if text.len() > self.max_message_bytes {
            return vec![SessionEffect::Close(Closing::too_big(self.max_message_bytes))];
        }
        let message = match parse_message(self.protocol, text) {
            Ok(message) => message,
            Err(reason) => return vec![SessionEffect::Close(Closing::invalid_message(&reason))],
        };
        match message {
            ClientMessage::Init(payload) => self.accept_init(payload),
            ClientMessage::Subscribe { id, request } => self.start_operation(id, *request),
            ClientMessage::Complete { id } => {
                if let Some(running) = self.running_operations.remove(&id) {
                    running.abort();
                }
                Vec::new()
            }
            ClientMessage::Ping(payload) => {
                vec![SessionEffect::Send(Subprotocol::pong_message(payload))]
            }
            ClientMessage::Pong => Vec::new(),
            ClientMessage::Terminate => vec![SessionEffect::Close(Closing::normal())],
        }
    }

    fn accept_init(&mut self, payload: Option<serde_json::Value>) -> Vec<SessionEffect> {
        if self.is_acknowledged {
            return vec![SessionEffect::Close(Closing::too_many_inits())];
        }
        self.is_acknowledged = true;
        let mut effects = vec![
            SessionEffect::IdentifyClient(payload),
            SessionEffect::Send(Subprotocol::ack_message()),
        ];
        if self.wants_keep_alive() {
            effects.push(SessionEffect::Send(Subprotocol::keep_alive_message()));
        }
        effects
    }

    fn start_operation(&mut self, id: String, request: Request) -> Vec<SessionEffect> {
        if !self.is_acknowledged {
            return vec![SessionEffect::Close(Closing::unauthorized())];
        }
        match (self.protocol, self.running_operations.contains_key(&id)) {
            (Subprotocol::TransportWs, true) => {
                return vec![SessionEffect::Close(Closing::duplicate(&id))];
            }
            // In the older protocol, a new operation replaces the running one with the same id.
            (Subprotocol::Legacy, true) => {
                if let Some(replaced) = self.running_operations.remove(&id) {
                    replaced.abort();
                }
            }
            (_, false) => {}
        }
        if self.running_operations.len() >= self.max_operations {
            let message = format!(
                "this connection has {} operations running already; complete some first",
                self.max_operations
            );
            let refusal = Refusal::limit_exceeded(StatusCode::TOO_MANY_REQUESTS, message);
            return vec![self.refuse_operation(&id, &[refusal.into_server_error()])];
        }
        match parse_operation(request) {
            Ok(operation) => {
                let (handle, abort) = AbortHandle::new_pair();
                self.running_operations.insert(id.clone(), handle);
                vec![SessionEffect::Start { id, operation: Box::new(operation), abort }]
            }
            Err(response) => vec![self.answer_operation(&id, *response)],
        }
    }

    pub(super) fn output_effect(&mut self, id: &str, output: Output) -> Option<SessionEffect> {
        match output {
            Output::Answer(outcome) => Some(match *outcome {
                Ok(response) => self.answer_operation(id, response),
                Err(refusal) => {
                    self.stop_operation(id);
                    self.refuse_operation(id, &[refusal.into_server_error()])
                }
            }),
            Output::End => {
                self.running_operations.remove(id)?;
                Some(SessionEffect::Send(Subprotocol::complete_message(id)))
            }
        }
    }

    /// Sends a response. An operation that never started ends with this response.
    fn answer_operation(&mut self, id: &str, response: Response) -> SessionEffect {
        let body = Body::from(response);
        match body.request_errors() {
            Some(errors) => {
                self.stop_operation(id);
                self.refuse_operation(id, errors)
            }
            None => SessionEffect::Send(self.protocol.next_message(id, &body)),
        }
    }

    fn refuse_operation(&self, id: &str, errors: &[ServerError]) -> SessionEffect {
        SessionEffect::Send(self.protocol.error_message(id, errors))
    }

    fn stop_operation(&mut self, id: &str) {
        if let Some(running) = self.running_operations.remove(id) {
            running.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::value;
    use expect_test::{Expect, expect};

    use super::*;

    const SUBSCRIBE_MESSAGE: &str = r#"{"type":"subscribe","id":"1","payload":{"query":"{a}"}}"#;
    const START_MESSAGE: &str = r#"{"type":"start","id":"1","payload":{"query":"{a}"}}"#;
    const INIT_MESSAGE: &str = r#"{"type":"connection_init"}"#;

    fn describe_effects(effects: impl IntoIterator<Item = SessionEffect>) -> String {
        let lines = effects.into_iter().map(|effect| match effect {
            SessionEffect::IdentifyClient(payload) => format!("greet {payload:?}\n"),
            SessionEffect::Send(text) => format!("send {text}\n"),
            SessionEffect::Start { id, .. } => format!("start {id}\n"),
            SessionEffect::Close(closing) => format!("{closing:?}\n"),
        });
        lines.collect()
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check(protocol: Subprotocol, messages: &[&str], expected: Expect) -> Session {
        let mut session = Session::new(protocol, 2, 200);
        let effects = messages.iter().flat_map(|message| session.receive_message(message));
        expected.assert_eq(&describe_effects(effects.collect::<Vec<_>>()));
        session
    }

    #[test]
    fn a_protocol_violation_closes_the_connection() {
        let protocol = Subprotocol::TransportWs;
        check(
            protocol,
            &[SUBSCRIBE_MESSAGE],
            expect![[r#"
            Closing { code: 4401, reason: "Unauthorized" }
        "#]],
        );
        check(
            protocol,
            &[INIT_MESSAGE, INIT_MESSAGE],
            expect![[r#"
            greet None
            send {"type":"connection_ack"}
            Closing { code: 4429, reason: "Too many initialisation requests" }
        "#]],
        );
        check(
            protocol,
            &[INIT_MESSAGE, SUBSCRIBE_MESSAGE, SUBSCRIBE_MESSAGE],
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
            &[INIT_MESSAGE, r#"{"type":"subscribe","id":"1","payload":{"query":"{"}}"#],
            expect![[r#"
                greet None
                send {"type":"connection_ack"}
                send {"id":"1","type":"error","payload":[{"message":" --> 1:2\n  |\n1 | {\n  |  ^---\n  |\n  = expected selection","locations":[{"line":1,"column":2}],"extensions":{"code":"INVALID_ARGUMENT"}}]}
            "#]],
        );
        let second = SUBSCRIBE_MESSAGE.replace("\"1\"", "\"2\"");
        let third = SUBSCRIBE_MESSAGE.replace("\"1\"", "\"3\"");
        check(
            Subprotocol::TransportWs,
            &[INIT_MESSAGE, SUBSCRIBE_MESSAGE, &second, &third],
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
        let messages = [INIT_MESSAGE, SUBSCRIBE_MESSAGE, complete, SUBSCRIBE_MESSAGE];
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
        .assert_eq(&describe_effects(session.output_effect("1", answer)));
        expect![[r#"
            send {"id":"1","type":"complete"}
        "#]]
        .assert_eq(&describe_effects(session.output_effect("1", Output::End)));
        expect![""].assert_eq(&describe_effects(session.output_effect("1", Output::End)));
        expect![[r"
            start 1
        "]]
        .assert_eq(&describe_effects(session.receive_message(SUBSCRIBE_MESSAGE)));
    }

    #[test]
    fn the_older_protocol_gets_its_own_messages() {
        let messages =
            [INIT_MESSAGE, START_MESSAGE, START_MESSAGE, r#"{"type":"connection_terminate"}"#];
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
        .assert_eq(&describe_effects(session.output_effect("1", Output::Answer(Box::new(Ok(wrong))))));
    }
}
