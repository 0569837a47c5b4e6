//! One request, and the messages of the server until its answer.

use std::{sync::Arc, time::Duration};

use http_client::HttpError;
use reqwest::{Response, StatusCode, header};
use rmcp::{
    model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId},
    service::{RoleClient, RxJsonRpcMessage},
};
use tokio::time::sleep;

use super::{
    connection::{Connection, has_media_type, read_refusal},
    events::Events,
    legacy_sse,
    server_stream::{MAX_RESUME_DELAY, MIN_RESUME_DELAY, RESUME_DELAY},
};
use crate::{
    answer::{BUSY_CODE, LOST_CODE, REFUSED_CODE, TOO_LARGE_CODE, UNSENT_CODE},
    config::Transport,
    message::parse_message,
};

/// Maximum number of consecutive attempts to resume a stream without an event id between them.
const MAX_RESUMES: u32 = 20;

type RequestError = (ErrorCode, String);

/// Sends a request, and delivers the messages that follow, the last of which is an answer or an
/// error. A legacy server answers on its stream instead.
pub(super) async fn run_request(
    connection: Arc<Connection>,
    id: RequestId,
    body: Vec<u8>,
    is_initialize: bool,
) {
    let ended = if is_initialize {
        send_initialize(&connection, &id, body).await
    } else {
        send_request(&connection, &id, body).await
    };
    if let Err((code, text)) = ended {
        let text = connection.redact(text);
        tracing::debug!(host = %connection.host, %text, "a request has no answer");
        connection
            .deliver_message(JsonRpcMessage::error(ErrorData::new(code, text, None), Some(id)))
            .await;
    }
}

async fn send_request(
    connection: &Connection,
    id: &RequestId,
    body: Vec<u8>,
) -> Result<(), RequestError> {
    let response =
        connection.post(body).await.map_err(|broken| request_error(connection, &broken))?;
    read_response(connection, id, response).await
}

async fn send_initialize(
    connection: &Connection,
    id: &RequestId,
    body: Vec<u8>,
) -> Result<(), RequestError> {
    if connection.transport == Some(Transport::Sse) {
        legacy_sse::open_legacy(connection).await.map_err(|text| (REFUSED_CODE, text))?;
        return send_request(connection, id, body).await;
    }
    let response =
        connection.post(body.clone()).await.map_err(|broken| request_error(connection, &broken))?;
    if connection.transport.is_none() && legacy_sse::can_be_legacy(response.status()) {
        match legacy_sse::open_legacy(connection).await {
            Ok(()) => return send_request(connection, id, body).await,
            Err(error) => {
                tracing::debug!(host = %connection.host, why = %error, "the server does not support the legacy transport either");
            }
        }
    }
    read_response(connection, id, response).await
}

fn request_error(connection: &Connection, broken: &HttpError) -> RequestError {
    let text = broken.to_string();
    match broken {
        HttpError::Unsent(_) => {
            connection.close_with_reason(text.clone());
            (UNSENT_CODE, text)
        }
        // The connection still works, and running calls continue.
        HttpError::Later(_) => (BUSY_CODE, text),
        HttpError::Refused(_) | HttpError::Denied(_) => (REFUSED_CODE, text),
        HttpError::Lost(_) => (LOST_CODE, text),
    }
}

async fn read_response(
    connection: &Connection,
    id: &RequestId,
    response: Response,
) -> Result<(), RequestError> {
    let status = response.status();
    if !status.is_success() {
        return convert_refusal(connection, id, response).await;
    }
    if connection.is_legacy() {
        // The answer arrives on the stream of the legacy server, and not in this response.
        return Ok(());
    }
    connection.record_session(&response);
    if has_media_type(&response, "text/event-stream") {
        return read_stream(connection, id, response).await;
    }
    if has_media_type(&response, "application/json") {
        return read_document(connection, id, response).await;
    }
    let host = &connection.host;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("nothing");
    // The server accepted the request and its answer is unreadable, so the outcome is unknown.
    Err((LOST_CODE, format!("`{host}` does not serve MCP: it answered {status} with {kind}")))
}

async fn read_document(
    connection: &Connection,
    id: &RequestId,
    mut response: Response,
) -> Result<(), RequestError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > connection.max_bytes => {
                return Err(too_long_error());
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(_) => return Err(broken_stream_error(connection)),
        }
    }
    match parse_message(&body).map(|message| with_request_id(message, id)) {
        Some(message) if is_answer(&message, id) => {
            connection.deliver_message(message).await;
            Ok(())
        }
        _ => {
            let text =
                format!("`{}` does not serve MCP: its answer is not a message", connection.host);
            Err((LOST_CODE, text))
        }
    }
}

enum StreamEnd {
    Answered,
    /// The stream broke. The fields are the id of the last event that has an id, and the delay
    /// before the stream is resumed.
    Interrupted(Option<String>, Duration),
}

/// Reads a stream, and the streams that resume it, until the request is answered.
async fn read_stream(
    connection: &Connection,
    id: &RequestId,
    response: Response,
) -> Result<(), RequestError> {
    let mut response = Some(response);
    let mut last: Option<String> = None;
    let mut pause = RESUME_DELAY;
    let mut resume_count = 0;
    while resume_count < MAX_RESUMES {
        resume_count += 1;
        if let Some(response) = response.take() {
            match read_events(connection, id, response, pause).await? {
                StreamEnd::Answered => return Ok(()),
                StreamEnd::Interrupted(None, wait) => pause = wait,
                StreamEnd::Interrupted(last_id, wait) => {
                    resume_count = 0;
                    (last, pause) = (last_id, wait);
                }
            }
        }
        let Some(last) = &last else { break };
        sleep(pause).await;
        match connection.open_stream(Some(last)).await {
            Ok(resumed)
                if resumed.status().is_success()
                    && has_media_type(&resumed, "text/event-stream") =>
            {
                response = Some(resumed);
            }
            Ok(resumed) if resumed.status().is_client_error() => break,
            // Gives up, because a retry would only refresh the token again without success.
            Err(HttpError::Denied(_)) => break,
            Ok(_) | Err(_) => pause = (pause * 2).min(MAX_RESUME_DELAY),
        }
    }
    Err(broken_stream_error(connection))
}

async fn read_events(
    connection: &Connection,
    id: &RequestId,
    mut response: Response,
    mut pause: Duration,
) -> Result<StreamEnd, RequestError> {
    let mut events = Events::new(connection.max_bytes);
    let mut last = None;
    while let Ok(Some(chunk)) = response.chunk().await {
        let pushed = events.push(&chunk);
        while let Some(event) = events.next() {
            pause =
                event.retry.map_or(pause, |wait| wait.clamp(MIN_RESUME_DELAY, MAX_RESUME_DELAY));
            last = event.id.or(last);
            let Some(message) = event.data.as_deref().and_then(parse_message) else { continue };
            let is_answer = is_answer(&message, id);
            connection.deliver_message(message).await;
            if is_answer {
                return Ok(StreamEnd::Answered);
            }
        }
        if pushed.is_err() {
            return Err(too_long_error());
        }
    }
    Ok(StreamEnd::Interrupted(last, pause))
}

fn is_answer(message: &RxJsonRpcMessage<RoleClient>, id: &RequestId) -> bool {
    match message {
        JsonRpcMessage::Response(response) => response.id == *id,
        JsonRpcMessage::Error(error) => error.id.as_ref() == Some(id),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => false,
    }
}

fn with_request_id(
    mut message: RxJsonRpcMessage<RoleClient>,
    id: &RequestId,
) -> RxJsonRpcMessage<RoleClient> {
    if let JsonRpcMessage::Error(error) = &mut message {
        error.id.get_or_insert_with(|| id.clone());
    }
    message
}

async fn convert_refusal(
    connection: &Connection,
    id: &RequestId,
    mut response: Response,
) -> Result<(), RequestError> {
    let (host, status) = (&connection.host, response.status());
    let location =
        response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
    let location = location.map(ToOwned::to_owned);
    let refusal = read_refusal(&mut response).await;
    let has_expired = status == StatusCode::NOT_FOUND
        || (status == StatusCode::BAD_REQUEST && refusal.to_lowercase().contains("session"));
    if has_expired && connection.has_session() {
        let text = format!("the session with `{host}` has expired");
        connection.close_with_reason(text.clone());
        return Err((UNSENT_CODE, text));
    }
    if status.is_client_error()
        && let Some(JsonRpcMessage::Error(mut error)) = parse_message(refusal.as_bytes())
        && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    {
        error.id = Some(id.clone());
        connection.deliver_message(JsonRpcMessage::Error(error)).await;
        return Ok(());
    }
    let (code, hint) = match status.as_u16() {
        401 | 403 => (REFUSED_CODE, ": check the `headers` of the server".to_owned()),
        404 | 405 => {
            (REFUSED_CODE, ": check that the `url` is an endpoint for streamable HTTP".to_owned())
        }
        300..=399 => {
            let target = location.unwrap_or_else(|| "nowhere".to_owned());
            (
                REFUSED_CODE,
                format!(
                    ", a redirect to {target} that Faber does not follow: configure that address"
                ),
            )
        }
        // The outcome is unknown, because a gateway does not know whether the server got the
        // request.
        502 | 504 => (LOST_CODE, String::new()),
        429 | 500..=599 => (BUSY_CODE, String::new()),
        _ => (REFUSED_CODE, String::new()),
    };
    let detail = if refusal.is_empty() { refusal } else { format!(": {refusal}") };
    Err((code, format!("`{host}` answered {status}{hint}{detail}")))
}

fn broken_stream_error(connection: &Connection) -> RequestError {
    (LOST_CODE, format!("`{}` closed the connection in the middle of its answer", connection.host))
}

fn too_long_error() -> RequestError {
    (TOO_LARGE_CODE, "the answer is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{super::connection::tests::connection, *};
    use crate::oauth::tests::test_server::TestServers;

    /// Returns the error of a request, or `None` if it was answered.
    async fn request_outcome(
        connection: &Arc<Connection>,
        inbox: &mut tokio::sync::mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    ) -> Option<(ErrorCode, String)> {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_vec();
        run_request(Arc::clone(connection), RequestId::Number(1), body, false).await;
        match inbox.recv().await.unwrap() {
            JsonRpcMessage::Error(error) => {
                Some((error.error.code, error.error.message.into_owned()))
            }
            _ => None,
        }
    }

    #[tokio::test]
    async fn a_failed_token_request_leaves_the_connection_open() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().fails_every_request = true;
        let (connection, mut inbox) = connection(&servers);
        let (code, text) = request_outcome(&connection, &mut inbox).await.unwrap();
        assert_eq!(code, BUSY_CODE, "{text}");
        assert!(text.ends_with("answered 503 Service Unavailable"), "{text}");
        assert!(!connection.is_closing(), "{:?}", connection.reason());
        assert_eq!(servers.count_requests("POST /mcp"), 0);
    }

    #[tokio::test]
    async fn an_unauthorized_stream_is_resumed_only_once() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        let (connection, mut inbox) = connection(&servers);
        assert_eq!(request_outcome(&connection, &mut inbox).await, None);
        servers.behavior().rejects_stream = true;
        servers.behavior().stream = Some("id: 7\nretry: 50\n\n".to_owned());
        servers.behavior().requests.clear();
        assert_eq!(request_outcome(&connection, &mut inbox).await.unwrap().0, LOST_CODE);
        // The client tries once with the rejected token, and once with a new token.
        assert_eq!(
            (servers.count_requests("GET /mcp"), servers.count_requests("POST /token")),
            (2, 1)
        );
    }
}
