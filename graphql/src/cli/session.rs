//! The connection of one command: to a running server, or to the engine of this process, which is opened
//! for the command and closed after it.

use std::{sync::Arc, time::Duration};

use shared::{
    execution::ExecutionState,
    id::ExecutionId,
    store::{Command, ExecutionHead, Store, memory::Memory},
};
use tokio::time;

use super::{
    App,
    client::{Client, remote::Remote},
    drive::Drive,
    failure::Failure,
    signals,
};
pub(crate) use crate::local_engine::Need;
use crate::{
    engine::Engine,
    local_engine::{LocalEngine, missing_store, open_store},
};

/// Poll interval while a command waits for the owner of an execution to read its inbox.
const READER_POLL: Duration = Duration::from_millis(100);
/// Polls without a reader after which this process drives the execution itself.
const READER_POLLS: usize = 30;

/// A connection to a server, or the engine of this process.
pub(crate) struct Session {
    client: Client,
    local: Option<LocalEngine>,
}

impl Session {
    /// Opens a session for `work` and closes it afterwards. An embedded store is created if there is
    /// none.
    pub(crate) async fn with<T>(
        app: &App,
        need: Need,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::open(app, need).await?.finish(work).await
    }

    /// Does the same for a command that only reads or steers: it creates no store, and finds nothing
    /// where there is none.
    pub(crate) async fn with_existing<T>(
        app: &App,
        need: Need,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::open_existing(app, need).await?.finish(work).await
    }

    pub(crate) async fn finish<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let done = work(&self).await;
        self.close().await;
        done
    }

    pub(crate) async fn open(app: &App, need: Need) -> Result<Self, Failure> {
        match Self::of_server(app)? {
            Some(session) => Ok(session),
            None => Ok(Self::of_local(LocalEngine::open(app.setup(), need).await?)),
        }
    }

    pub(crate) async fn open_existing(app: &App, need: Need) -> Result<Self, Failure> {
        if let Some(session) = Self::of_server(app)? {
            return Ok(session);
        }
        let store = match missing_store(app.setup()) {
            None => open_store(app.setup()).await?,
            Some(path) => {
                if need != Need::Tools {
                    let path = path.display();
                    app.screen
                        .hint(&format!("there is no store at `{path}` yet: `faber run` makes one"));
                }
                Arc::new(Memory::new())
            }
        };
        Ok(Self::of_local(LocalEngine::over(app.setup(), need, store).await?))
    }

    fn of_server(app: &App) -> Result<Option<Self>, Failure> {
        let Some(server) = &app.config.server else { return Ok(None) };
        let remote = Remote::new(&server.value, app.environment.token.as_ref())?;
        Ok(Some(Self { client: Client::Remote(remote), local: None }))
    }

    fn of_local(local: LocalEngine) -> Self {
        Self { client: Client::local(local.schema.clone()), local: Some(local) }
    }

    /// Returns the engine, if this process has one.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        Some(&self.local.as_ref()?.engine)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the store, if this process has opened one.
    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(self.engine()?.store())
    }

    /// Returns what drives executions in this process, if it has a worker.
    pub(crate) fn drive(&self) -> Option<Drive> {
        let local = self.local.as_ref()?;
        let (store, clock) = (Arc::clone(local.engine.store()), Arc::clone(local.engine.clock()));
        Some(Drive::new(store, clock, local.worker()?, local.has_tools))
    }

    /// Drives an execution in this process, if it has a worker. Never returns.
    pub(crate) async fn drive_forever(&self, id: ExecutionId) -> std::convert::Infallible {
        match self.drive() {
            Some(drive) => drive.forever(id).await,
            None => std::future::pending().await,
        }
    }

    /// Returns whether an execution is open and no live worker owns it.
    pub(crate) async fn is_unowned(&self, id: ExecutionId) -> Result<bool, Failure> {
        let head = self.unowned_head(id).await?;
        Ok(head.is_some_and(|head| !head.state.is_finished()))
    }

    /// Returns whether an execution could go on now and no live worker drives it.
    pub(crate) async fn is_stalled(&self, id: ExecutionId) -> Result<bool, Failure> {
        use ExecutionState::{Compensating, InProgress, Pending};

        let (Some(engine), Some(head)) = (self.engine(), self.unowned_head(id).await?) else {
            return Ok(false);
        };
        let now = engine.clock().now();
        let may_go_on = match head.due {
            // A step that waited for a person or a signal has its answer.
            _ if head.state == ExecutionState::Waiting => return self.has_commands(id).await,
            _ if head.owner.is_some() => true,
            Some(due) if due <= now => true,
            // It sleeps, and no worker is there to wake it.
            Some(_) => engine.store().workers(now).await?.is_empty(),
            None => false,
        };
        Ok(may_go_on && matches!(head.state, Pending | InProgress | Compensating))
    }

    /// Returns whether a finished execution needs a new plan and no live worker makes one.
    pub(crate) async fn lacks_replanner(&self, id: ExecutionId) -> Result<bool, Failure> {
        let head = self.unowned_head(id).await?;
        Ok(head.is_some_and(|head| head.state.is_finished() && head.owner.is_some()))
    }

    /// Returns the head of an execution without an owner, or whose owner is gone.
    async fn unowned_head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, Failure> {
        let Some(engine) = self.engine() else { return Ok(None) };
        let Some(head) = engine.store().head(id).await? else { return Ok(None) };
        let Some(owner) = head.owner else { return Ok(Some(head)) };
        let live = engine.store().workers(engine.clock().now()).await?;
        Ok((!live.contains(&owner)).then_some(head))
    }

    /// Returns the commands in the inbox of an execution, oldest first.
    pub(crate) async fn inbox(&self, id: ExecutionId) -> Result<Vec<Command>, Failure> {
        let Some(store) = self.store() else { return Ok(Vec::new()) };
        let inbox = store.inbox(Some(id)).await?;
        Ok(inbox.into_iter().map(|envelope| envelope.command).collect())
    }

    pub(crate) async fn has_commands(&self, id: ExecutionId) -> Result<bool, Failure> {
        Ok(!self.inbox(id).await?.is_empty())
    }

    /// Returns whether a live worker owns an execution, or reads its inbox within a few seconds.
    pub(crate) async fn has_reader(&self, id: ExecutionId) -> Result<bool, Failure> {
        let Some(engine) = self.engine() else { return Ok(true) };
        for _ in 0..READER_POLLS {
            if !self.is_unowned(id).await? || !self.has_commands(id).await? {
                return Ok(true);
            }
            if engine.store().workers(engine.clock().now()).await?.is_empty() {
                return Ok(false);
            }
            time::sleep(READER_POLL).await;
        }
        Ok(false)
    }

    /// Lets short calls end and closes everything. Ctrl-C skips the wait.
    pub(crate) async fn close(self) {
        if let Some(local) = self.local {
            tokio::select! {
                () = local.close() => (),
                () = signals::interrupted() => (),
            }
        }
    }
}
