//! HTTP as it was before March 2025: one stream of all that a server says, which begins with the
//! address of what it is told.
//!
//! Nothing of it can be taken up again. When the stream ends, so does the connection, and calls
//! that are under way are lost.

use std::time::Duration;

use reqwest::{StatusCode, Url};
use tokio::time::timeout;

use super::{
    connection::{Connection, is_kind},
    events::{Event, EventStream},
};
use crate::message::{cut_short, parse};

/// Time limit for the endpoint event.
const OPENING: Duration = Duration::from_secs(10);

/// Returns whether a server that answers a greeting like this may be an older one.
pub(super) fn may_be_older(status: StatusCode) -> bool {
    // The others of 4xx are about who asks, or how often.
    status.is_client_error() && !matches!(status.as_u16(), 401 | 403 | 407 | 429)
}

/// Opens the stream of an older server; all that is told to it goes where it says from now on.
pub(super) async fn open(connection: &Connection) -> Result<(), String> {
    let host = &connection.host;
    let opening = timeout(OPENING, begin(connection)).await;
    let seconds = OPENING.as_secs();
    let (stream, told) = opening.unwrap_or_else(|_| {
        Err(format!("`{host}` did not say within {seconds} s where to send messages"))
    })?;
    let endpoint = connection.url.join(told.trim());
    let endpoint = endpoint.map_err(|_| format!("`{host}` wants messages at `{told}`"))?;
    if endpoint.origin() != connection.url.origin() {
        // What is for this server, such as a token, is not told to another.
        return Err(format!(
            "`{host}` wants messages sent to another server: `{}`",
            shown(&endpoint)
        ));
    }
    connection.turn_older(endpoint, stream);
    Ok(())
}

fn shown(endpoint: &Url) -> String {
    endpoint.origin().ascii_serialization()
}

async fn begin(connection: &Connection) -> Result<(EventStream, String), String> {
    let host = &connection.host;
    let response = connection.get(None).await.map_err(|err| err.to_string())?;
    let status = response.status();
    if !status.is_success() || !is_kind(&response, "text/event-stream") {
        return Err(format!("`{host}` has no stream there: it answered {status}"));
    }
    let mut stream = EventStream::new(response, connection.most);
    match stream.next().await {
        Some(Event { data: Some(told), is_endpoint: true, is_cut: false, .. }) => {
            Ok((stream, String::from_utf8_lossy(&told).into_owned()))
        }
        Some(_) => Err(format!("`{host}` does not begin with where to send messages")),
        None => Err(format!("`{host}` broke off before it said where to send messages")),
    }
}

/// Hears a server until its stream ends.
pub(super) async fn hear(connection: &Connection, mut stream: EventStream) {
    while let Some(event) = stream.next().await {
        let Some(data) = event.data.filter(|_| !event.is_endpoint) else { continue };
        let message = if event.is_cut { cut_short(&data) } else { parse(&data) };
        if let Some(message) = message {
            connection.deliver(message).await;
        }
    }
    connection.end(format!("`{}` ended its stream", connection.host));
}
