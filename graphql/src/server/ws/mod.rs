//! GraphQL over WebSockets, in both of its subprotocols.
//!
//! `message` reads and writes messages, `session` decides what they mean (no input or output
//! there), `connection` waits for whatever happens next and carries it out.

mod close;
mod connection;
mod message;
mod session;

use std::sync::Arc;

use async_graphql::Executor;
use axum::{
    extract::{FromRequestParts as _, ws::WebSocketUpgrade},
    http::{header, request::Parts},
    response::{IntoResponse as _, Response},
};

use super::{app::App, entry, refusal::Refusal};
use close::Closing;
use connection::Connection;
use message::Subprotocol;

/// A message may be this many times too large and still be answered with a proper close code.
const FRAME_SLACK: usize = 4;

/// Whether a request wants to become a WebSocket.
pub(super) fn wants_upgrade(parts: &Parts) -> bool {
    let upgrade = parts.headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// Turns a request into a WebSocket, which the server's loop then owns.
pub(super) async fn upgrade<E: Executor>(app: &Arc<App<E>>, mut parts: Parts) -> Response {
    let caller = match entry::opening(&app.options.access, &parts) {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            return Refusal::invalid(rejection.status(), rejection.body_text()).into_response();
        }
    };
    let limit = app.options.max_body_bytes.saturating_mul(FRAME_SLACK);
    let mut upgrade = upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .protocols(Subprotocol::ALL.map(Subprotocol::name));
    let chosen = upgrade.selected_protocol().and_then(Subprotocol::of);
    if chosen.is_none() {
        // Clients hide the close code behind an error of their own unless one of the protocols
        // that they offered is taken.
        let offered = upgrade.requested_protocols().next().cloned();
        if let Some(offered) = offered.filter(|offered| !offered.is_empty()) {
            upgrade.set_selected_protocol(offered);
        }
    }
    let app = Arc::clone(app);
    // The WebSocket counts as the connection that it was.
    let counted = parts.extensions.get::<Arc<super::connections::Connection>>().cloned();
    upgrade.on_upgrade(move |socket| async move {
        let nursery = app.nursery.clone();
        let task = async move {
            let _counted = counted;
            match chosen {
                Some(protocol) => Connection::new(app, socket, protocol, caller).run().await,
                None => close::close(socket, Closing::unknown_subprotocol()).await,
            }
        };
        nursery.adopt_subscription(Box::pin(task)).await;
    })
}
