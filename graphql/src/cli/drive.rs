//! Carries on the one execution that a command names, unless somebody else does.

use std::{convert::Infallible, sync::Arc, time::Duration};

use executor::worker::Handle;
use shared::{
    clock::Clock,
    execution::ExecutionState,
    id::ExecutionId,
    store::{Command, Envelope, Head, Store, StoreError},
};
use tokio::time;

/// How often it looks whether somebody who had the execution is gone.
const LOOK: Duration = Duration::from_millis(500);
/// How many executions without an owner one look reads.
const ORPHANS: usize = 1_024;

/// How an execution looks to somebody who carries it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Nothing can happen any more.
    Over,
    /// It could go on, and nobody has it.
    Wanted,
    /// It waits, or somebody has it.
    Fine,
}

/// Carries executions on in this process.
#[derive(Clone, Debug)]
pub(super) struct Drive {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    /// Whether steps may begin here; else only commands are heard.
    begins: bool,
}

impl Drive {
    /// Makes one that carries executions on.
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, handle: Handle) -> Self {
        Self { store, clock, handle, begins: true }
    }

    /// Makes one that only lets executions hear commands.
    pub(super) fn for_commands(self) -> Self {
        Self { begins: false, ..self }
    }

    /// Takes an execution whenever its time or a command has come and nobody has it, and when its
    /// owner is gone. It never ends by itself.
    pub(super) async fn on(&self, id: ExecutionId) -> Infallible {
        self.to_end(id).await;
        std::future::pending().await
    }

    /// Does so until the execution is over.
    pub(super) async fn to_end(&self, id: ExecutionId) {
        let hints = self.store.hints();
        let (mut work, mut inbox) = (hints.work(), hints.inbox());
        loop {
            match self.look(id).await {
                Ok(Look::Over) => return,
                Ok(Look::Wanted) => self.handle.claim(id).await,
                Ok(Look::Fine) => (),
                Err(err) => tracing::warn!(%err, "cannot look after the execution"),
            }
            tokio::select! {
                _ = work.changed() => (),
                _ = inbox.changed() => (),
                () = time::sleep(LOOK) => (),
            }
        }
    }

    /// Waits until an execution has been told to stop, or to pause.
    pub(super) async fn until_told_to_stop(&self, id: ExecutionId) {
        until_told_to_stop(&*self.store, id).await;
    }

    async fn look(&self, id: ExecutionId) -> Result<Look, StoreError> {
        let Some(head) = self.store.head(id).await? else { return Ok(Look::Fine) };
        // What is over and has an owner is to be planned anew; parts see to their parents themselves.
        let is_owed = head.owner.is_some() && head.parent.is_none();
        if head.state.is_over() && !is_owed {
            return Ok(Look::Over);
        }
        let is_wanted = self.is_wanted(&head).await?;
        Ok(if is_wanted { Look::Wanted } else { Look::Fine })
    }

    async fn is_wanted(&self, head: &Head) -> Result<bool, StoreError> {
        let (id, now) = (head.execution, self.clock.now());
        if head.owner == Some(self.handle.worker()) {
            return Ok(false);
        }
        if head.owner.is_some() {
            let orphans = self.store.orphans(now, ORPHANS).await?;
            return Ok(orphans.iter().any(|it| it.execution == id));
        }
        // What runs, though nothing of it is ever due, waits for executions that it began: nobody
        // carries these on either, before whoever has it looks after them.
        let has_parts = head.state == ExecutionState::InProgress && head.due.is_none();
        let is_due = self.begins && (has_parts || head.due.is_some_and(|it| it <= now));
        Ok((is_due && self.can_go_on(head).await?) || !self.store.inbox(Some(id)).await?.is_empty())
    }

    async fn can_go_on(&self, head: &Head) -> Result<bool, StoreError> {
        executor::can_go_on(&*self.store, self.handle.toolbox(), head, self.clock.now()).await
    }
}

/// Waits until an execution has been told to stop, or to pause: who takes it before begins what is
/// not to begin.
pub(super) async fn until_told_to_stop(store: &dyn Store, id: ExecutionId) {
    let mut inbox = store.hints().inbox();
    let stops = |it: &Envelope| matches!(it.command, Command::Cancel { .. } | Command::Pause);
    loop {
        match store.inbox(Some(id)).await {
            Ok(found) if found.iter().any(stops) => return,
            Ok(_) => (),
            Err(err) => tracing::warn!(%err, "cannot look what the execution was told"),
        }
        tokio::select! {
            _ = inbox.changed() => (),
            () = time::sleep(LOOK) => (),
        }
    }
}
