//! The state of a server as its tools see it. Calls wait here while the server starts.

use std::{sync::Arc, time::Duration};

use shared::tool::{ErrorCode, ToolError};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::session::Session;

/// Time limit for a call that waits for a delayed start.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The state of a server, shared by its tools.
#[derive(Debug)]
pub struct Availability {
    state: watch::Sender<ServerState>,
    wanted: Notify,
}

/// The state of a server.
#[derive(Clone, Debug)]
pub(super) enum ServerState {
    /// It is being started.
    Starting,
    /// It can be called.
    Up(Arc<Session>),
    /// It cannot be called. The next call starts it again.
    Down {
        /// The reason.
        error: Arc<str>,
        /// When it may be started again.
        retry_at: Instant,
    },
    /// It was stopped and will not start again.
    Stopped,
}

impl Availability {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(ServerState::Starting), wanted: Notify::new() }
    }

    pub(super) fn set_state(&self, state: ServerState) {
        self.state.send_replace(state);
    }

    /// Waits until a call needs the server.
    pub(super) async fn wait_for_demand(&self) {
        self.wanted.notified().await;
    }

    /// Requests a start of a server that is down. Returns whether it starts.
    pub fn request_start(&self) -> bool {
        let is_due = self.state.send_if_modified(|state| {
            let is_due =
                matches!(state, ServerState::Down { retry_at, .. } if *retry_at <= Instant::now());
            if is_due {
                *state = ServerState::Starting;
            }
            is_due
        });
        if is_due {
            self.wanted.notify_one();
        }
        is_due
    }

    /// Waits for a working session.
    pub(super) async fn wait_for_session(&self) -> Result<Arc<Session>, ToolError> {
        let mut state = self.state.subscribe();
        let mut has_asked = false;
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                ServerState::Up(session) if !session.is_closed() => return Ok(session),
                ServerState::Up(_) | ServerState::Starting => {}
                ServerState::Down { error, retry_at } => {
                    if has_asked || retry_at > Instant::now() + MAX_WAIT {
                        return Err(down_error(&error, retry_at));
                    }
                    has_asked = true;
                    self.wanted.notify_one();
                }
                ServerState::Stopped => return Err(stopped_error()),
            }
            if state.changed().await.is_err() {
                return Err(stopped_error());
            }
        }
    }
}

fn down_error(error: &str, retry_at: Instant) -> ToolError {
    let wait = retry_at.saturating_duration_since(Instant::now());
    let when = if wait.is_zero() {
        String::new()
    } else {
        format!("; it may be started again in {} s", wait.as_secs_f32().ceil())
    };
    ToolError::new(ErrorCode::UNAVAILABLE, format!("{error}{when}"))
}

fn stopped_error() -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, "the MCP server was stopped with this process")
}
