//! The connection of one command: to a running server, or to the engine of this process. The engine
//! is opened for the command and closed after it.

use std::{sync::Arc, time::Duration};

use client::{Client, drive::Drive, failure::Failure, remote::Remote};
use engine::Engine;
use shared::{
    execution::ExecutionState,
    id::ExecutionId,
    store::{Command, ExecutionHead, Store, memory::Memory},
};
use tokio::time;

use super::{
    App,
    signals::{self, EndSignals},
};
pub(crate) use crate::local_engine::Need;
use crate::local_engine::{LocalEngine, missing_store};
use crate::screen::Screen;

const DRAIN_NOTICE_DELAY: Duration = Duration::from_millis(100);
const READER_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of polls without a reader after which the inbox of an execution counts as unread.
const READER_POLLS: usize = 30;

pub(crate) struct Session<'a> {
    pub(crate) app: &'a App,
    pub(crate) screen: &'a Screen,
    pub(crate) client: Client,
    local: Option<LocalEngine>,
    /// Set if this process has a worker. A signal then ends the command and not the process, so
    /// that running calls can end and are recorded.
    end_signals: Option<EndSignals>,
}

impl<'a> Session<'a> {
    pub(crate) async fn open(app: &'a App, need: Need) -> Result<Self, Failure> {
        if let Some(session) = Self::connect(app)? {
            return Ok(session);
        }
        Ok(Self::from_local(app, LocalEngine::open(app.setup(), need).await?))
    }

    /// Opens a session for a command that only reads or steers. It creates no store, because a new
    /// store would be empty.
    pub(crate) async fn open_existing(app: &'a App, need: Need) -> Result<Self, Failure> {
        if let Some(session) = Self::connect(app)? {
            return Ok(session);
        }
        let Some(path) = missing_store(app.setup()) else { return Self::open(app, need).await };
        if need != Need::Tools {
            let path = path.display();
            app.screen.hint(&format!("there is no store at `{path}` yet: `faber run` creates it"));
        }
        let store = Arc::new(Memory::new());
        Ok(Self::from_local(app, LocalEngine::open_over(app.setup(), need, store).await?))
    }

    fn connect(app: &'a App) -> Result<Option<Self>, Failure> {
        let Some(server) = &app.config.server else { return Ok(None) };
        let remote = Remote::new(&server.value, app.environment.token.as_ref())?;
        let client = Client::Remote(remote);
        Ok(Some(Self { app, screen: &app.screen, client, local: None, end_signals: None }))
    }

    fn from_local(app: &'a App, local: LocalEngine) -> Self {
        let client = Client::local(local.schema.clone());
        let end_signals = local.worker_handle().and_then(|_| EndSignals::listen().ok());
        Self { app, screen: &app.screen, client, local: Some(local), end_signals }
    }

    pub(crate) async fn close_after<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let stopped = async {
            match &self.end_signals {
                Some(signals) => signals.dispatch().await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            biased;
            done = work(&self) => done,
            () = stopped => Err(Failure::new(
                "DETACHED",
                "stopped; `faber list executions` shows whether an execution has started",
            )),
        };
        self.close().await;
        done
    }

    /// Waits for a signal that ends the command: Ctrl-C, and if this process has a worker, SIGTERM
    /// and SIGHUP.
    pub(crate) async fn await_end_signal(&self) {
        match &self.end_signals {
            Some(signals) => signals.receive().await,
            None => signals::await_interrupt().await,
        }
    }

    pub(crate) fn engine(&self) -> Option<&Engine> {
        Some(&self.local.as_ref()?.engine)
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(self.engine()?.store())
    }

    /// Returns a driver for executions that a command names. Returns `None` if this process has no
    /// worker.
    pub(crate) fn new_drive(&self) -> Option<Drive> {
        let local = self.local.as_ref()?;
        let (store, clock) = (Arc::clone(local.engine.store()), Arc::clone(local.engine.clock()));
        Some(Drive::new(store, clock, local.worker_handle()?, local.has_tools))
    }

    /// Drives an execution in this process, if it has a worker. Never returns.
    pub(crate) async fn drive_forever(&self, id: ExecutionId) -> std::convert::Infallible {
        match self.new_drive() {
            Some(drive) => drive.drive_forever(id).await,
            None => std::future::pending().await,
        }
    }

    pub(crate) async fn is_unowned(&self, id: ExecutionId) -> Result<bool, Failure> {
        let head = self.unowned_head(id).await?;
        Ok(head.is_some_and(|head| !head.state.is_finished()))
    }

    pub(crate) async fn is_stalled(&self, id: ExecutionId) -> Result<bool, Failure> {
        use ExecutionState::{Compensating, InProgress, Pending};

        let (Some(engine), Some(head)) = (self.engine(), self.unowned_head(id).await?) else {
            return Ok(false);
        };
        let now = engine.clock().now();
        let can_continue = match head.due {
            // A waiting execution can continue if its inbox contains a command, such as the answer
            // of a person or a signal.
            _ if head.state == ExecutionState::Waiting => {
                return Ok(!self.load_inbox(id).await?.is_empty());
            }
            _ if head.owner.is_some() => true,
            Some(due) if due <= now => true,
            // The execution sleeps. If no worker exists that can claim it later, this process must
            // drive it.
            Some(_) => engine.store().list_workers(now).await?.is_empty(),
            None => false,
        };
        Ok(can_continue && matches!(head.state, Pending | InProgress | Compensating))
    }

    pub(crate) async fn lacks_replanner(&self, id: ExecutionId) -> Result<bool, Failure> {
        let head = self.unowned_head(id).await?;
        Ok(head.is_some_and(|head| head.state.is_finished() && head.owner.is_some()))
    }

    async fn unowned_head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, Failure> {
        let Some(engine) = self.engine() else { return Ok(None) };
        let Some(head) = engine.store().head(id).await? else { return Ok(None) };
        let Some(owner) = head.owner else { return Ok(Some(head)) };
        let live = engine.store().list_workers(engine.clock().now()).await?;
        Ok((!live.contains(&owner)).then_some(head))
    }

    pub(crate) async fn load_inbox(&self, id: ExecutionId) -> Result<Vec<Command>, Failure> {
        let Some(store) = self.store() else { return Ok(Vec::new()) };
        let inbox = store.list_commands(Some(id)).await?;
        Ok(inbox.into_iter().map(|envelope| envelope.command).collect())
    }

    pub(crate) async fn has_other_workers(&self) -> Result<bool, Failure> {
        let Some(local) = &self.local else { return Ok(true) };
        let worker_id = local.worker_handle().map(|handle| handle.worker());
        let now = local.engine.clock().now();
        let live = local.engine.store().list_workers(now).await?;
        Ok(live.iter().any(|worker| Some(*worker) != worker_id))
    }

    /// Returns `false` if no worker will read the commands in the inbox of the execution. Waits a
    /// few seconds for a worker to read them.
    pub(crate) async fn has_reader(&self, id: ExecutionId) -> Result<bool, Failure> {
        let Some(engine) = self.engine() else { return Ok(true) };
        for _ in 0..READER_POLLS {
            if !self.is_unowned(id).await? || self.load_inbox(id).await?.is_empty() {
                return Ok(true);
            }
            if engine.store().list_workers(engine.clock().now()).await?.is_empty() {
                return Ok(false);
            }
            time::sleep(READER_POLL_INTERVAL).await;
        }
        Ok(false)
    }

    /// Stops the worker of this process after a signal, and tells the user if it has to wait for
    /// calls. Returns `false` if there is no worker, or if another Ctrl-C ended the wait.
    pub(crate) async fn drain(&self) -> bool {
        let Some(local) = self.local.as_ref().filter(|local| local.worker_handle().is_some())
        else {
            return false;
        };
        let limit = self.app.config.limits.drain_time().as_secs_f64();
        let notice = async {
            time::sleep(DRAIN_NOTICE_DELAY).await;
            if !self.screen.json {
                self.screen.hint(&format!(
                    "stopping: waits up to {limit} s for running calls (Ctrl-C stops them)"
                ));
            }
            std::future::pending().await
        };
        // Receives further signals and ignores them. A closed terminal sends several signals, and a
        // second signal without a receiver would stop the command.
        let received = async {
            loop {
                self.await_end_signal().await;
            }
        };
        tokio::select! {
            () = local.drain() => true,
            () = signals::await_interrupt() => false,
            never = notice => never,
            never = received => never,
        }
    }

    /// Waits for running calls, at most for the time in `limits.drain_ms`, and closes everything.
    /// SIGTERM and SIGHUP do not end the wait, because a closed terminal sends several of them.
    pub(crate) async fn close(self) {
        if let Some(local) = self.local {
            tokio::select! {
                () = local.close() => (),
                () = signals::await_interrupt() => (),
            }
        }
    }
}
