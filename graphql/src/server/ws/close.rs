use std::time::Duration;

use axum::{
    Error,
    extract::ws::{CloseFrame, Message},
};
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};

/// Maximum number of bytes of a close reason. A control frame has at most 125 bytes, and the close
/// code needs two of them.
const MAX_REASON_BYTES: usize = 123;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Closing {
    code: u16,
    reason: String,
}

impl Closing {
    fn new(code: u16, reason: impl Into<String>) -> Self {
        Self { code, reason: truncate_reason(reason.into()) }
    }

    pub(super) fn normal() -> Self {
        Self::new(1000, "")
    }

    pub(super) fn going_away() -> Self {
        Self::new(1001, "Going away")
    }

    pub(super) fn too_big(limit: usize) -> Self {
        Self::new(1009, format!("Message larger than {limit} bytes"))
    }

    pub(super) fn invalid_message(reason: &str) -> Self {
        Self::new(4400, format!("Invalid message: {reason}"))
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(4401, "Unauthorized")
    }

    pub(super) fn forbidden(reason: impl Into<String>) -> Self {
        Self::new(4403, format!("Forbidden: {}", reason.into()))
    }

    pub(super) fn expired() -> Self {
        Self::forbidden("the sign-in has expired: sign in again")
    }

    pub(super) fn revoked() -> Self {
        Self::forbidden("the access token was changed or removed")
    }

    pub(super) fn unknown_subprotocol() -> Self {
        Self::new(4406, "Subprotocol not acceptable")
    }

    pub(super) fn init_timeout() -> Self {
        Self::new(4408, "Connection initialisation timeout")
    }

    pub(super) fn duplicate(id: &str) -> Self {
        Self::new(4409, format!("Subscriber for {id} already exists"))
    }

    pub(super) fn too_many_inits() -> Self {
        Self::new(4429, "Too many initialisation requests")
    }

    fn into_message(self) -> Message {
        Message::Close(Some(CloseFrame { code: self.code, reason: self.reason.into() }))
    }
}

/// Closes a WebSocket, and waits a short time for the client's close. Drops further messages,
/// because unread input would reset the connection before the client sees the code.
pub(super) async fn close<S>(socket: S, closing: Closing)
where
    S: Sink<Message, Error = Error> + Stream<Item = Result<Message, Error>> + Unpin,
{
    let (sink, stream) = socket.split();
    close_halves(sink, stream, Some(closing)).await;
}

/// Closes a WebSocket that is split into sink and stream. Without `closing`, answers the close of
/// the client.
pub(super) async fn close_halves(
    mut sink: impl Sink<Message, Error = Error> + Unpin,
    mut stream: impl Stream<Item = Result<Message, Error>> + Unpin,
    closing: Option<Closing>,
) {
    let handshake = async {
        let sent = match closing {
            Some(closing) => sink.send(closing.into_message()).await,
            None => sink.flush().await,
        };
        if sent.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    // Ignores the timeout. The connection then ends although the client has not answered the close.
    let _ = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
}

fn truncate_reason(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_reasons_are_cut_to_a_control_frame() {
        assert_eq!(Closing::duplicate("a").reason, "Subscriber for a already exists");
        assert_eq!(Closing::duplicate(&"x".repeat(500)).reason.len(), 123);
        let cut = Closing::duplicate(&"é".repeat(500)).reason;
        assert_eq!(cut.len(), 123);
        let cut = Closing::duplicate(&format!("x{}", "é".repeat(500))).reason;
        assert_eq!(cut.len(), 122, "the cut is never inside a character");
        assert!(cut.ends_with('é'));
    }
}
