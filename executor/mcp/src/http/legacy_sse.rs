//! The legacy transport of MCP before March 2025: the server sends all messages on one stream,
//! which cannot resume. The first event of the stream is the endpoint for messages to the server.

use std::time::Duration;

use reqwest::{StatusCode, Url};
use tokio::time::timeout;

use super::{
    connection::{Connection, has_media_type},
    events::{Event, EventStream},
};
use crate::message::{parse_message, too_long_error};

const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns whether a server that answers `initialize` with this status may be a legacy server.
pub(super) fn can_be_legacy(status: StatusCode) -> bool {
    // The excluded codes are about authorization or rates, not about the transport.
    status.is_client_error() && !matches!(status.as_u16(), 401 | 403 | 407 | 429)
}

/// Opens the stream of a legacy server. From now on, messages go to the endpoint that the server
/// names.
pub(super) async fn open_legacy(connection: &Connection) -> Result<(), String> {
    let host = &connection.host;
    let opening = timeout(OPEN_TIMEOUT, read_endpoint(connection)).await;
    let seconds = OPEN_TIMEOUT.as_secs();
    let (stream, message_url) = opening.unwrap_or_else(|_| {
        Err(format!("`{host}` did not name its URL for messages within {seconds} s"))
    })?;
    let endpoint = connection.url.join(message_url.trim());
    let endpoint = endpoint
        .map_err(|_| format!("`{host}` named an invalid URL for messages: `{message_url}`"))?;
    if endpoint.origin() != connection.url.origin() {
        // Tokens of this server must not reach another server.
        return Err(format!(
            "`{host}` named the URL of another server for messages: `{}`",
            origin_text(&endpoint)
        ));
    }
    connection.switch_to_legacy(endpoint, stream);
    Ok(())
}

fn origin_text(endpoint: &Url) -> String {
    endpoint.origin().ascii_serialization()
}

async fn read_endpoint(connection: &Connection) -> Result<(EventStream, String), String> {
    let host = &connection.host;
    let response = connection.open_stream(None).await.map_err(|err| err.to_string())?;
    let status = response.status();
    if !status.is_success() || !has_media_type(&response, "text/event-stream") {
        return Err(format!("`{host}` offers no event stream at this URL: it answered {status}"));
    }
    let mut stream = EventStream::new(response, connection.max_bytes);
    match stream.next().await {
        Some(Event { data: Some(data), is_endpoint: true, is_cut: false, .. }) => {
            Ok((stream, String::from_utf8_lossy(&data).into_owned()))
        }
        Some(_) => Err(format!("`{host}` does not name its URL for messages in the first event")),
        None => Err(format!("`{host}` closed the stream before it named its URL for messages")),
    }
}

pub(super) async fn read_legacy_stream(connection: &Connection, mut stream: EventStream) {
    while let Some(event) = stream.next().await {
        let Some(data) = event.data.filter(|_| !event.is_endpoint) else { continue };
        let message = if event.is_cut { too_long_error(&data) } else { parse_message(&data) };
        if let Some(message) = message {
            connection.deliver_message(message).await;
        }
    }
    connection.close_with_reason(format!("`{}` ended its stream", connection.host));
}
