//! Reports why an execution that a command drives does not continue.

use std::time::Duration;

use client::{failure::Failure, types::Text};
use serde::Deserialize;
use shared::{execution::ExecutionState, id::ExecutionId};
use tokio::time::Instant;

use super::missing_tools;
use crate::session::Session;

/// Time without an event after which a command looks for the reason why the execution does not
/// continue. The command looks again after pauses of at most `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct QuietTimer {
    pub(super) next_check_at: Instant,
    pause: Duration,
    pub(super) is_user_told: bool,
}

impl QuietTimer {
    pub(super) fn new() -> Self {
        Self {
            next_check_at: Instant::now() + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            is_user_told: false,
        }
    }

    pub(super) fn mark_user_told(self) -> Self {
        Self { is_user_told: true, ..self }
    }

    pub(super) fn begin_longer_pause(self) -> Self {
        let pause = (self.pause * 2).min(MAX_PAUSE);
        Self { next_check_at: Instant::now() + pause, pause, is_user_told: false }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WaitState {
    state: ExecutionState,
    waits_for: Vec<Wait>,
}

#[derive(Deserialize)]
struct Wait {
    kind: Text,
    message: Text,
}

impl WaitState {
    async fn read(session: &Session<'_>, id: ExecutionId) -> Result<Self, Failure> {
        session.client.query_execution(id, "state waitsFor { kind message }").await
    }

    fn find_wait_for_worker(&self) -> Option<&Wait> {
        let of_kind = |kind| self.waits_for.iter().find(|wait| &*wait.kind == kind);
        of_kind("tool").or_else(|| of_kind("worker"))
    }
}

pub(super) async fn lacks_worker(session: &Session<'_>, id: ExecutionId) -> Result<bool, Failure> {
    Ok(WaitState::read(session, id).await?.find_wait_for_worker().is_some())
}

pub(super) async fn find_reason(
    session: &Session<'_>,
    id: ExecutionId,
) -> Result<Option<String>, Failure> {
    let waits = WaitState::read(session, id).await?;
    if let Some(wait) = waits.find_wait_for_worker() {
        let missing = missing_tools::check_execution(session, id).await;
        let missing = missing.err().filter(|failure| failure.code == "TOOL_UNAVAILABLE");
        return Ok(Some(missing.map_or_else(|| wait.message.to_string(), |found| found.message)));
    }
    let is_waiting = waits.state == ExecutionState::Waiting;
    Ok(waits.waits_for.first().filter(|_| is_waiting).map(|wait| wait.message.to_string()))
}
