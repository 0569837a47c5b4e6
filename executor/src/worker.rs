//! Claims executions and drives them. A new, resumed or orphaned execution is handled in the same
//! way: its log is continued.

mod backlog;
mod pending_heads;
mod replan_queue;
mod scan;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use chrono::TimeDelta;
use shared::{
    clock::Clock,
    execution::Execution,
    id::{Epoch, ExecutionId, WorkerId},
    store::{AppendError, ExecutionHead, Lease, SentCommand, Store, StoreError},
    tool::{ErrorCode, ToolError},
    trace::SpanSink,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use toolbox::Toolbox;
use tracing::{debug, error, info, warn};

use self::{backlog::Backlog, replan_queue::ReplanQueue};
use crate::{
    control::Control,
    driver::{
        DriveError, Driver, DriverStop, NewExecution, WorkerContext, children::notify_parent,
        failed_appends::FailedAppendLog, load_existing, slow_store::SlowStoreLog,
        telemetry::resend_spans,
    },
    lease::LeaseClock,
    options::Options,
    permits::Permits,
    replan::Replanner,
    worker_handle::{Crowd, MAX_REQUESTS, WorkerRequest},
};

pub use crate::worker_handle::{CallPermit, WorkerHandle};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerScope {
    Everything,
    /// Executions that this process gives to the worker, and their children.
    Given,
}

pub struct Worker {
    context: Arc<WorkerContext>,
    scope: WorkerScope,
    slots: Arc<Semaphore>,
    local: Arc<LocalDrivers>,
    requests: mpsc::Receiver<WorkerRequest>,
    drivers: JoinSet<DriverResult>,
    backlog: Backlog,
    replan_queue: ReplanQueue,
}

type DriverResult = (ExecutionId, Result<DriverStop, DriveError>);

#[derive(Debug, Default)]
struct LocalDrivers(Mutex<BTreeMap<ExecutionId, mpsc::Sender<SentCommand>>>);

/// Time from the end of a driver to the next scan, if due executions of tokens wait for a slot. It
/// is not zero, so that drivers that end together cause one scan.
const CROWDED_SCAN_DELAY: Duration = Duration::from_millis(20);
/// Maximum number of commands that wait at a driver. Further commands stay in the inbox.
const MAX_COMMANDS: usize = 64;

#[derive(Clone, Debug)]
pub struct WorkerParts {
    pub node: String,
    pub store: Arc<dyn Store>,
    pub toolbox: Toolbox,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub scope: WorkerScope,
}

impl Worker {
    /// Creates a worker. [`Self::run`] runs it. When `drain` is cancelled, the worker starts
    /// nothing, and waits up to [`Options::drain`] for running steps.
    pub fn new(parts: WorkerParts, id: WorkerId, drain: CancellationToken) -> (Self, WorkerHandle) {
        let WorkerParts { node, store, toolbox, clock, options, scope } = parts;
        let (sender, requests) = mpsc::channel(MAX_REQUESTS);
        let [slots, waiting_slots] = [(); 2].map(|()| Arc::new(Semaphore::new(options.executions)));
        let lease = LeaseClock::new(options.lease);
        let permits = Permits::new(id, Arc::clone(&store), Arc::clone(&clock), options.poll);
        let handle = WorkerHandle {
            requests: sender,
            slots: Arc::clone(&slots),
            toolbox: toolbox.clone(),
            permits: Arc::clone(&permits),
            worker: id,
            crowd: Arc::new(Crowd::new(scope == WorkerScope::Everything)),
        };
        let options = Arc::new(options);
        let node = node.into();
        let worker_handle = Some(handle.clone());
        let context = WorkerContext {
            worker: id,
            node,
            control: Control::new(Arc::clone(&store), Arc::clone(&clock), worker_handle),
            store,
            toolbox,
            clock,
            options,
            lease,
            drain,
            handle: handle.clone(),
            permits,
            replanner: OnceLock::new(),
            span_sink: OnceLock::new(),
            slow_store: SlowStoreLog::default(),
            failed_appends: FailedAppendLog::default(),
            slots: Arc::clone(&slots),
            waiting_slots,
            is_alone: scope == WorkerScope::Given,
        };
        let (context, local) = (Arc::new(context), Arc::default());
        let drivers = JoinSet::new();
        let worker = Self {
            context,
            scope,
            slots,
            local,
            requests,
            drivers,
            backlog: Backlog::new(),
            replan_queue: ReplanQueue::default(),
        };
        (worker, handle)
    }

    /// Sets the replanner of finished executions. Without a replanner, other processes replan.
    /// Later calls have no effect.
    pub fn set_replanner(&self, replanner: Arc<dyn Replanner>) {
        let _ = self.context.replanner.set(replanner);
    }

    /// Exports the spans of executions. Later calls have no effect.
    pub fn set_span_sink(&self, sink: Arc<dyn SpanSink>) {
        let _ = self.context.span_sink.set(sink);
    }

    /// Runs until it is drained. Dropping the future has the effect of a crash, after which other
    /// workers take over.
    pub async fn run(mut self) {
        let context = Arc::clone(&self.context);
        renew_lease(&context).await;
        let heartbeat = async {
            let mut heartbeat = time::interval(context.options.lease / 3);
            heartbeat.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
            loop {
                heartbeat.tick().await;
                renew_lease(&context).await;
            }
        };
        let work = async {
            self.run_event_loop().await;
            self.shut_down().await;
        };
        tokio::select! {
            biased;
            () = work => (),
            () = heartbeat => unreachable!("the lease is renewed until the work is done"),
            () = context.permits.release_returned() => unreachable!("permits are released until the work is done"),
        }
        if let Err(err) = context.store.remove_worker(context.worker).await {
            warn!(%err, "cannot unregister this worker; its lease will expire instead");
        }
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> &Arc<WorkerContext> {
        &self.context
    }

    async fn run_event_loop(&mut self) {
        let drain = self.context.drain.clone();
        let hints = self.context.store.hints();
        let (mut work, mut inbox) = (hints.subscribe_work(), hints.subscribe_inbox());
        let mut tools = self.context.toolbox.subscribe_changes();
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = drain.cancelled() => return,
                Some(ended) = self.drivers.join_next(), if !self.drivers.is_empty() => {
                    let (id, result) = ended.expect("drivers do not panic");
                    self.record_driver_end(id, result);
                    if self.context.handle.is_crowded() {
                        look_at = look_at.min(Instant::now() + CROWDED_SCAN_DELAY);
                    }
                }
                Some((id, result)) = self.replan_queue.next() => self.record_replan_end(id, result),
                Some(request) = self.requests.recv() => self.accept_request(request),
                _ = inbox.changed() => self.deliver_commands().await,
                _ = work.changed() => look_at = Instant::now(),
                _ = tools.changed() => look_at = Instant::now(),
                () = time::sleep_until(look_at) => {
                    self.deliver_commands().await;
                    look_at = Instant::now() + self.scan().await;
                }
            }
        }
    }

    /// Handles the end of a driver. Does not scan itself, because drivers end very often.
    fn record_driver_end(&mut self, id: ExecutionId, result: Result<DriverStop, DriveError>) {
        self.local.remove(id);
        match result {
            Ok(DriverStop::Finished) => (),
            Ok(DriverStop::NeedsReplan) => self.queue_replan(id),
            // Delivers commands again, because a command may have arrived while the driver ended.
            Ok(DriverStop::Parked) => self.context.store.hints().wake_inbox(),
            Ok(DriverStop::HeadUnwritten(head)) => {
                self.backlog.pending_heads.push(*head, self.context.clock.now());
                self.context.store.hints().wake_inbox();
            }
            Err(DriveError::ClaimedElsewhere(epoch)) => {
                // Logs nothing, because another worker often claims first. The next scan claims the
                // execution again if it has no other owner.
                self.backlog.given_up.insert(id, epoch);
            }
            Err(DriveError::Fenced) => {
                // Another worker owns the execution, or a late append of this worker succeeded.
                info!(execution = %id, "given up, because its log has newer events");
                self.backlog.give_up(id);
            }
            Err(DriveError::Store(err)) if err.is_locked() => {
                warn!(execution = %id, %err, "left to nodes with the key");
                self.note_locked(id);
            }
            Err(err) if err.is_damage() => {
                error!(execution = %id, %err, "this execution cannot be driven; other executions are not affected");
                self.note_damage(id);
            }
            Err(err) => {
                warn!(execution = %id, %err, "will be claimed again");
                self.backlog.give_up(id);
            }
        }
    }

    fn accept_request(&mut self, request: WorkerRequest) {
        match request {
            WorkerRequest::Start { execution, created, stored, finished, permit } => {
                let id = execution.id();
                if self.local.contains(id) {
                    // Reports a conflict, because a second start with the same key arrived before
                    // the first was answered.
                    let _ = stored.send(Err(AppendError::Conflict));
                    return;
                }
                let (sender, commands) = mpsc::channel(MAX_COMMANDS);
                self.local.insert(id, sender);
                let context = Arc::clone(&self.context);
                let (execution, created) = (*execution, *created);
                let new = NewExecution { execution, created, commands, stored, slot: permit };
                let driver = Driver::start_new(Arc::clone(&context), new);
                let pause = self.backlog.damaged.next_pause(id);
                self.drivers.spawn(async move {
                    let result = fail_unwritable(&context, id, driver.run().await).await;
                    scan::postpone_if_damaged(&context, id, pause, &result).await;
                    if let (Ok(DriverStop::Finished | DriverStop::NeedsReplan), Some(finished)) =
                        (&result, finished)
                    {
                        let _ = finished.send(());
                    }
                    (id, result)
                });
            }
            WorkerRequest::Claim(id) => {
                // Claims the execution even if its log has a newer claim, because this process
                // asked for it.
                if !self.claim_execution(id, Epoch(u64::MAX)) {
                    self.backlog.give_up(id);
                }
            }
        }
    }

    /// Claims a stored execution, unless this worker drives it already. Returns `false` if the
    /// worker has no free slot.
    ///
    /// If the log has a newer claim than the caller knows, this worker leaves an unfinished execution
    /// to the worker of that claim.
    fn claim_execution(&mut self, id: ExecutionId, known: impl Into<KnownClaim>) -> bool {
        let known = known.into();
        if self.local.contains(id) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() else { return false };
        self.backlog.pending_heads.remove(id);
        let (sender, commands) = mpsc::channel(MAX_COMMANDS);
        self.local.insert(id, sender);
        let context = Arc::clone(&self.context);
        let pause = self.backlog.damaged.next_pause(id);
        self.drivers.spawn(async move {
            let result = drive_execution(Arc::clone(&context), id, known, commands, permit).await;
            let result = fail_unwritable(&context, id, result).await;
            scan::postpone_if_damaged(&context, id, pause, &result).await;
            (id, result)
        });
        true
    }

    async fn shut_down(&mut self) {
        // Does not wait for replans, because a model may take long. Other workers find these
        // executions by their owner.
        self.replan_queue.shutdown().await;
        // Closes the channel, so that callers in this process start executions through the store
        // from now on.
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
        let all = async { while self.drivers.join_next().await.is_some() {} };
        if time::timeout(self.context.options.drain, all).await.is_err() {
            info!(left = self.drivers.len(), "released running executions to other workers");
            self.drivers.shutdown().await;
        }
    }
}

/// The newest claim of an execution that a worker knows.
#[derive(Clone, Copy, Debug)]
struct KnownClaim {
    epoch: Epoch,
    /// The owner, if its lease has expired.
    lost_worker: Option<WorkerId>,
}

impl From<Epoch> for KnownClaim {
    fn from(epoch: Epoch) -> Self {
        Self { epoch, lost_worker: None }
    }
}

async fn drive_execution(
    context: Arc<WorkerContext>,
    id: ExecutionId,
    known: KnownClaim,
    commands: mpsc::Receiver<SentCommand>,
    slot: OwnedSemaphorePermit,
) -> Result<DriverStop, DriveError> {
    let store = Arc::clone(&context.store);
    let KnownClaim { epoch: known_epoch, lost_worker } = known;
    let execution = load_existing(&*store, id).await?;
    let inbox = store.list_commands(Some(id)).await?;
    if known_epoch >= execution.epoch() {
        resend_spans(&context, &execution).await;
    }
    if execution.state().is_finished() {
        // The execution has finished, but its head lagged or its owner crashed before it notified
        // the parent or replanned.
        notify_parent(&context, &execution).await?;
        store.remove_commands(inbox.iter().map(|envelope| envelope.id).collect()).await?;
        return replan_queue::keep_for_replan(&context, &execution).await;
    }
    if known_epoch < execution.epoch() {
        repair_owner(&*store, &execution).await?;
        return Err(DriveError::ClaimedElsewhere(execution.epoch()));
    }
    debug!(execution = %id, seq = %execution.seq(), "claiming");
    let mut driver = Driver::resume(context, execution, inbox, commands, slot);
    driver.note_lost_worker(lost_worker);
    driver.run().await
}

/// Ends an execution whose next events are too large for the store. Otherwise each claim would call
/// its tools again, and its deadline would pass unnoticed.
async fn fail_unwritable(
    context: &Arc<WorkerContext>,
    id: ExecutionId,
    result: Result<DriverStop, DriveError>,
) -> Result<DriverStop, DriveError> {
    let Err(DriveError::Store(err @ StoreError::TooLarge { .. })) = &result else { return result };
    error!(execution = %id, %err, "the next events of the execution cannot be written, so it fails");
    let slot = Arc::clone(&context.slots).acquire_owned().await;
    let slot = slot.expect("the slots of a worker are never closed");
    let execution = load_existing(&*context.store, id).await?;
    if execution.state().is_finished() {
        return Ok(DriverStop::Finished);
    }
    let reason = format!("the next events cannot be written: {err}");
    let error = ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, reason);
    Driver::fail_unwritable(Arc::clone(context), execution, error, slot).run().await
}

/// Writes the owner into a head that lags behind a claim, because the claiming worker may have
/// crashed before it wrote the head.
async fn repair_owner(store: &dyn Store, execution: &Execution) -> Result<(), StoreError> {
    let head = store.head(execution.id()).await?;
    if let Some(head) = head.filter(|head| head.epoch < execution.epoch()) {
        let (owner, epoch) = (execution.worker(), execution.epoch());
        store.put_head(ExecutionHead { owner, epoch, due: None, ..head }).await?;
    }
    Ok(())
}

async fn renew_lease(context: &WorkerContext) {
    let started_at = Instant::now();
    let lease = context.options.lease;
    let until = context.clock.now() + TimeDelta::from_std(lease).unwrap_or(TimeDelta::MAX);
    let beat = Lease { worker: context.worker, node: context.node.to_string(), until };
    match context.store.renew_lease(beat).await {
        Ok(()) => context.lease.extend(started_at, lease),
        Err(err) => warn!(%err, "cannot renew the lease"),
    }
    let started_at = Instant::now();
    if let Ok(time) = context.store.shared_time().await {
        // Adds half of the request's duration, because the store read its time near the middle of
        // the request.
        let since = TimeDelta::from_std(started_at.elapsed() / 2).unwrap_or_default();
        context.clock.approach(time + since);
    }
}

impl LocalDrivers {
    fn lock_map(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<ExecutionId, mpsc::Sender<SentCommand>>> {
        // Ignores a poisoned lock, because a panic cannot leave the map in an invalid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, id: ExecutionId, commands: mpsc::Sender<SentCommand>) {
        self.lock_map().insert(id, commands);
    }

    fn remove(&self, id: ExecutionId) {
        self.lock_map().remove(&id);
    }

    fn contains(&self, id: ExecutionId) -> bool {
        self.lock_map().contains_key(&id)
    }

    /// Gives a command to the driver of its execution, and returns whether this worker has the
    /// driver. A command that does not fit stays in the inbox and is delivered later.
    fn deliver_command(&self, envelope: &SentCommand) -> bool {
        match self.lock_map().get(&envelope.execution) {
            Some(driver) => {
                let _ = driver.try_send(envelope.clone());
                true
            }
            None => false,
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("id", &self.context.worker).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
