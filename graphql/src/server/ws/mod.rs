//! GraphQL over WebSockets in both subprotocols.

mod close;
mod connection;
mod message;
mod session;

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts as _, ws::WebSocketUpgrade},
    http::{header, request::Parts},
    response::{IntoResponse as _, Response},
};

use super::{app::App, entry, refusal::Refusal, refusal_log::RefusedRequest};
use close::Closing;
use connection::Connection;
use message::Subprotocol;

/// The WebSocket library accepts messages up to this multiple of the limit, so that the server can
/// answer them with a close code. After a larger message, the client perhaps gets no code.
const OVERSIZE_FACTOR: usize = 4;

pub(super) fn wants_upgrade(parts: &Parts) -> bool {
    let upgrade = parts.headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

pub(super) async fn upgrade_request(app: &Arc<App>, mut parts: Parts) -> Response {
    let caller = match entry::read_handshake(&app.options.access, &parts) {
        Ok(caller) => caller,
        Err(refusal) => {
            app.metrics.log_refusal(&refusal, &RefusedRequest::from(&parts));
            return refusal.into_response();
        }
    };
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            return Refusal::invalid_request(rejection.status(), rejection.body_text())
                .into_response();
        }
    };
    let limit = app.options.max_body_bytes.saturating_mul(OVERSIZE_FACTOR);
    let mut upgrade = upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .protocols(Subprotocol::BY_PREFERENCE.map(Subprotocol::name));
    let chosen = upgrade.selected_protocol().and_then(Subprotocol::from_header);
    if chosen.is_none() {
        // If the client offers no known protocol, accepts its first protocol anyway. Otherwise the
        // client would report an error of its own and not the close code.
        let offered_protocol = upgrade.requested_protocols().next().cloned();
        if let Some(offered_protocol) =
            offered_protocol.filter(|offered_protocol| !offered_protocol.is_empty())
        {
            upgrade.set_selected_protocol(offered_protocol);
        }
    }
    let app = Arc::clone(app);
    // Keeps the guard of the HTTP connection, so that the WebSocket counts as one connection for
    // the limits.
    let connection_guard = parts.extensions.get::<Arc<super::connections::Connection>>().cloned();
    upgrade.on_upgrade(move |socket| async move {
        let task_sender = app.task_sender.clone();
        let task = async move {
            let _counted = connection_guard;
            match chosen {
                Some(protocol) => Connection::new(app, socket, protocol, caller).run().await,
                None => close::close(socket, Closing::unknown_subprotocol()).await,
            }
        };
        task_sender.send_subscription(Box::pin(task)).await;
    })
}
