use std::{convert::Infallible, sync::Arc, time::Duration};

use executor::worker::WorkerHandle;
use shared::{
    clock::Clock,
    execution::ExecutionState,
    id::ExecutionId,
    store::{Command, ExecutionHead, HeadQuery, SentCommand, Store, StoreError},
};
use tokio::time;

/// Poll interval. Polling is needed because no hint tells that the process of an execution's owner
/// was killed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const MAX_READ_ORPHANS: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriveNeed {
    Finished,
    ShouldClaim,
    CheckLater,
}

#[derive(Clone, Debug)]
pub struct Drive {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    handle: WorkerHandle,
    /// `true` if the worker has tools, so that it can start steps. A worker without tools only
    /// applies commands.
    starts_steps: bool,
}

impl Drive {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        handle: WorkerHandle,
        starts_steps: bool,
    ) -> Self {
        Self { store, clock, handle, starts_steps }
    }

    /// Drives an execution and never returns, for use in `select!`.
    pub async fn drive_forever(&self, id: ExecutionId) -> Infallible {
        self.drive_to_end(id).await;
        std::future::pending().await
    }

    /// Drives an execution until it is finished. Claims it whenever it is due, has a command in its
    /// inbox, or has lost its owner.
    pub async fn drive_to_end(&self, id: ExecutionId) {
        let hints = self.store.hints();
        let (mut work, mut inbox) = (hints.subscribe_work(), hints.subscribe_inbox());
        loop {
            match self.poll_execution(id).await {
                Ok(DriveNeed::Finished) => return,
                Ok(DriveNeed::ShouldClaim) => self.handle.claim_execution(id).await,
                Ok(DriveNeed::CheckLater) => (),
                Err(err) => tracing::warn!(%err, "cannot poll the execution"),
            }
            tokio::select! {
                _ = work.changed() => (),
                _ = inbox.changed() => (),
                () = time::sleep(POLL_INTERVAL) => (),
            }
        }
    }

    async fn poll_execution(&self, id: ExecutionId) -> Result<DriveNeed, StoreError> {
        let Some(head) = self.store.head(id).await? else { return Ok(DriveNeed::CheckLater) };
        // A finished execution without a parent has an owner only while it needs a replan.
        let needs_plan = head.owner.is_some() && head.parent.is_none();
        if head.state.is_finished() && !needs_plan {
            return Ok(DriveNeed::Finished);
        }
        let is_wanted = self.should_claim(&head).await?;
        Ok(if is_wanted { DriveNeed::ShouldClaim } else { DriveNeed::CheckLater })
    }

    async fn should_claim(&self, head: &ExecutionHead) -> Result<bool, StoreError> {
        let (id, now) = (head.execution, self.clock.now());
        if head.owner == Some(self.handle.worker()) {
            return Ok(false);
        }
        if head.owner.is_some() {
            let orphans =
                self.store.find_heads(HeadQuery::Orphans { now }, MAX_READ_ORPHANS).await?;
            return Ok(orphans.iter().any(|orphan| orphan.execution == id));
        }
        // A running execution that is never due waits for its children. Other workers drive the
        // children only after the parent has an owner.
        let has_children = head.state == ExecutionState::InProgress && head.due.is_none();
        let is_due = has_children || head.due.is_some_and(|due| due <= now);
        let toolbox = self.handle.toolbox();
        let can_start = self.starts_steps
            && is_due
            && executor::can_continue(&*self.store, toolbox, head, now).await?;
        Ok(can_start || !self.store.list_commands(Some(id)).await?.is_empty())
    }
}

/// Waits until the inbox of an execution has a command to cancel or pause. A worker that claims the
/// execution earlier could start steps.
pub async fn await_stop_command(store: &dyn Store, id: ExecutionId) {
    let mut inbox = store.hints().subscribe_inbox();
    let stops = |envelope: &SentCommand| {
        matches!(envelope.command, Command::Cancel { .. } | Command::Pause)
    };
    loop {
        match store.list_commands(Some(id)).await {
            Ok(found) if found.iter().any(stops) => return,
            Ok(_) => (),
            Err(err) => tracing::warn!(%err, "cannot read the inbox of the execution"),
        }
        tokio::select! {
            _ = inbox.changed() => (),
            () = time::sleep(POLL_INTERVAL) => (),
        }
    }
}
