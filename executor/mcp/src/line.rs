//! Where calls wait for a server that works.

use std::{sync::Arc, time::Duration};

use shared::tool::{ErrorCode, ToolError};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::link::Link;

/// How long a call waits for a server whose next start is put off.
const PATIENCE: Duration = Duration::from_secs(1);

/// What calls know about a server: its link, and how to ask for one.
#[derive(Debug)]
pub struct Line {
    state: watch::Sender<State>,
    wanted: Notify,
}

/// Whether a server can be called.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// It is being started.
    Starting,
    /// It can be called.
    Up(Arc<Link>),
    /// It cannot, and is started again when somebody wants it.
    Down {
        /// Why.
        error: Arc<str>,
        /// When it may be started again.
        retry_at: Instant,
    },
    /// It was stopped for good.
    Stopped,
}

impl Line {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(State::Starting), wanted: Notify::new() }
    }

    pub(super) fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Returns when somebody wants the server.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Asks for the server where it is down and may be started again; returns whether it will be.
    pub fn wake(&self) -> bool {
        let is_due = self.state.send_if_modified(|state| {
            let is_due =
                matches!(state, State::Down { retry_at, .. } if *retry_at <= Instant::now());
            if is_due {
                *state = State::Starting;
            }
            is_due
        });
        if is_due {
            self.wanted.notify_one();
        }
        is_due
    }

    /// Returns a link that works, once there is one.
    pub(super) async fn link(&self) -> Result<Arc<Link>, ToolError> {
        let mut state = self.state.subscribe();
        let mut has_asked = false;
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                State::Up(link) if !link.is_closed() => return Ok(link),
                State::Up(_) | State::Starting => {}
                State::Down { error, retry_at } => {
                    if has_asked || retry_at > Instant::now() + PATIENCE {
                        return Err(down(&error, retry_at));
                    }
                    has_asked = true;
                    self.wanted.notify_one();
                }
                State::Stopped => return Err(stopped()),
            }
            if state.changed().await.is_err() {
                return Err(stopped());
            }
        }
    }
}

fn down(error: &str, retry_at: Instant) -> ToolError {
    let wait = retry_at.saturating_duration_since(Instant::now());
    let when = if wait.is_zero() {
        String::new()
    } else {
        format!("; it may be started again in {} s", wait.as_secs_f32().ceil())
    };
    ToolError::new(ErrorCode::UNAVAILABLE, format!("{error}{when}"))
}

fn stopped() -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, "the MCP server was stopped with this process")
}
