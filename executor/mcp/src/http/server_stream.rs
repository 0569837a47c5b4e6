//! The stream on which a server sends messages that answer no request.

use std::{pin::pin, sync::Arc, time::Duration};

use http_client::HttpError;
use reqwest::Response;
use tokio::time::sleep;

use super::{
    connection::{Connection, has_media_type},
    events::Events,
    legacy_sse,
};
use crate::message::parse_message;

/// Default delay before a stream resumes. Doubles with each failure, up to [`MAX_RESUME_DELAY`].
pub(super) const RESUME_DELAY: Duration = Duration::from_secs(1);
pub(super) const MIN_RESUME_DELAY: Duration = Duration::from_millis(50);
pub(super) const MAX_RESUME_DELAY: Duration = Duration::from_secs(30);
/// Maximum number of refusals in a row after which the stream is opened again.
const MAX_DENIALS: u32 = 3;

/// Reads the server's stream once the session is initialized, until the server refuses it.
pub(super) async fn read_server_stream(connection: Arc<Connection>) {
    connection.initialized.notified().await;
    if let Some(stream) = connection.take_stream() {
        return legacy_sse::read_legacy_stream(&connection, stream).await;
    }
    let mut last = None;
    let mut has_heard = false;
    let mut denials = 0;
    let mut pause = RESUME_DELAY;
    loop {
        // The notification is enabled before the request, because another request may be accepted
        // while the server refuses the stream.
        let mut request_accepted = pin!(connection.request_accepted.notified());
        request_accepted.as_mut().enable();
        let answer = connection.open_stream(last.as_deref()).await;
        connection.stream_tried.notify_one();
        match answer {
            Ok(response) if is_stream(&response) => {
                (has_heard, denials) = (true, 0);
                pause = read_stream(&connection, response, &mut last).await;
            }
            Ok(response) if response.status().is_server_error() => {
                pause = (pause * 2).min(MAX_RESUME_DELAY);
            }
            Ok(response) => {
                if response.status() == 404 && has_heard && connection.has_session() {
                    connection.close_with_reason(format!(
                        "the session with `{}` has expired",
                        connection.host
                    ));
                }
                return;
            }
            Err(HttpError::Denied(_)) if denials < MAX_DENIALS => {
                // Waits until another request was accepted, because a retry before a login would
                // only refresh the token without success.
                denials += 1;
                request_accepted.await;
                continue;
            }
            Err(HttpError::Denied(_)) => return,
            Err(_) => pause = (pause * 2).min(MAX_RESUME_DELAY),
        }
        sleep(pause).await;
    }
}

fn is_stream(response: &Response) -> bool {
    response.status().is_success() && has_media_type(response, "text/event-stream")
}

/// Reads one stream until it ends. Returns the delay before the next stream.
async fn read_stream(
    connection: &Connection,
    mut response: Response,
    last: &mut Option<String>,
) -> Duration {
    let mut events = Events::new(connection.max_bytes);
    let mut pause = RESUME_DELAY;
    while let Ok(Some(chunk)) = response.chunk().await {
        let is_over = events.push(&chunk).is_err();
        while let Some(event) = events.next() {
            pause =
                event.retry.map_or(pause, |wait| wait.clamp(MIN_RESUME_DELAY, MAX_RESUME_DELAY));
            *last = event.id.or(last.take());
            if let Some(message) = event.data.as_deref().and_then(parse_message) {
                connection.deliver_message(message).await;
            }
        }
        if is_over {
            tracing::warn!(host = %connection.host, "an event of the MCP server is too long");
            break;
        }
    }
    pause
}

#[cfg(test)]
mod tests {
    use tokio::{task::JoinSet, time::timeout};

    use super::{super::connection::tests::connection, *};
    use crate::oauth::tests::test_server::TestServers;

    #[tokio::test]
    async fn the_server_stream_reopens_after_an_accepted_request() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().rejects_every_token = true;
        let (connection, _inbox) = connection(&servers);
        connection.initialized.notify_one();
        let mut stream_task = JoinSet::new();
        stream_task.spawn(read_server_stream(Arc::clone(&connection)));
        connection.stream_tried.notified().await;
        let denied = servers.count_requests("GET /mcp");
        assert!(denied > 0);
        servers.behavior().rejects_every_token = false;
        while servers.count_requests("GET /mcp") == denied {
            // An accepted request opens the stream again.
            let _ = connection.post(b"{}".to_vec()).await;
            tokio::task::yield_now().await;
        }
        connection.stream_tried.notified().await;
        assert!(stream_task.try_join_next().is_none(), "the stream task is still running");
    }

    #[tokio::test]
    async fn an_accepted_request_during_a_stream_request_is_not_missed() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().rejects_stream = true;
        servers.behavior().holds_next_answer = true;
        let (connection, _inbox) = connection(&servers);
        connection.initialized.notify_one();
        let mut stream_task = JoinSet::new();
        stream_task.spawn(read_server_stream(Arc::clone(&connection)));
        servers.gate.arrived.notified().await;
        connection.request_accepted.notify_waiters();
        let before = servers.count_requests("GET /mcp");
        servers.gate.opened.notify_one();
        let again = async {
            // Waits for two requests: one with the token that was held back, and one after the
            // accepted request.
            while servers.count_requests("GET /mcp") < before + 2 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_mins(1), again)
            .await
            .expect("the client opens the stream again by itself");
    }
}
