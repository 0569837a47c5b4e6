//! Claims executions and drives them.
//!
//! New executions, resumed ones and those of workers that died are the same thing here: somebody
//! claims them, and the log says what is to be done. There is no recovery code.

mod looking;
mod owing;
mod unwritten;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use chrono::TimeDelta;
use shared::{
    clock::{Clock, Timestamp},
    event::Recorded,
    execution::Execution,
    id::{Epoch, ExecutionId, WorkerId},
    store::{AppendError, CallLimit, Envelope, Head, Lease, Store, StoreError},
    tool::{ErrorCode, ToolError},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinSet,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use toolbox::Toolbox;
use tracing::{debug, error, info, warn};

use self::{owing::Owing, unwritten::Unwritten};
use crate::{
    control::Control,
    driver::{Context, DriveError, Driver, Stop, children::tell_parent, load},
    lease::LeaseClock,
    needs::Needs,
    onward::Onward,
    options::Options,
    permits::{Granted, Permits},
};

/// What a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Whatever is there and can be done with the tools at hand.
    Everything,
    /// Only what it is given.
    Given,
}

/// Claims executions and drives them.
pub struct Worker {
    context: Arc<Context>,
    scope: Scope,
    room: Arc<Semaphore>,
    /// Where commands for the executions that are driven here go.
    local: Arc<Local>,
    orders: mpsc::Receiver<Order>,
    drivers: JoinSet<Driven>,
    /// Executions that drivers gave up, to be claimed again unless another worker has them, with
    /// the newest claim that is known of.
    again: BTreeMap<ExecutionId, Epoch>,
    /// How many executions were due at the last look whose tools are not at hand.
    lacking: usize,
    /// What those of them need that have begun.
    needs: BTreeMap<ExecutionId, Needs>,
    /// How far this worker has gone through what is due behind those, while they are many.
    past: Option<(Timestamp, ExecutionId)>,
    /// Executions of workers that are gone and that fall to others, since when.
    orphans: BTreeMap<ExecutionId, Instant>,
    /// Executions that could not be driven, and until when they are left alone.
    damaged: BTreeMap<ExecutionId, Instant>,
    /// Executions that were put aside, and of which the store does not say so yet.
    unwritten: Unwritten,
    /// Executions that are over and that are to be planned anew here.
    owing: Owing,
    /// When it last looked whether all that is its own is driven.
    swept_at: Instant,
}

/// Gives a worker of this process executions to drive.
#[derive(Clone, Debug)]
pub struct Handle {
    orders: mpsc::Sender<Order>,
    room: Arc<Semaphore>,
    toolbox: Toolbox,
    permits: Arc<Permits>,
    worker: WorkerId,
}

/// The right to one call outside any execution. Dropping it gives it back.
#[derive(Debug)]
pub struct CallPermit {
    _granted: Granted,
}

/// An execution for a worker of this process.
#[derive(Debug)]
enum Order {
    /// One that is new.
    Begin {
        execution: Box<Execution>,
        created: Box<Recorded>,
        born: oneshot::Sender<Result<(), AppendError>>,
        /// Notified when this worker has finished the execution.
        over: Option<oneshot::Sender<()>>,
        permit: OwnedSemaphorePermit,
    },
    /// One that is in the store.
    Claim(ExecutionId),
}

/// How an execution left a driver.
type Driven = (ExecutionId, Result<Stop, DriveError>);

/// The executions that are driven here.
#[derive(Debug, Default)]
struct Local(Mutex<BTreeMap<ExecutionId, mpsc::Sender<Envelope>>>);

/// How many commands a driver lets wait; more stay in the inbox.
const COMMANDS: usize = 64;
/// How many orders may wait.
const ORDERS: usize = 1_024;

/// What a worker is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The name of its machine, for people.
    pub node: String,
    /// Where executions are.
    pub store: Arc<dyn Store>,
    /// What it can run.
    pub toolbox: Toolbox,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// How it works.
    pub options: Options,
    /// What it takes.
    pub scope: Scope,
}

impl Worker {
    /// Makes a worker. It works when it is [run](Self::run).
    ///
    /// When `drain` fires it begins nothing, lets short steps end and leaves the rest to others.
    pub fn new(parts: Parts, id: WorkerId, drain: CancellationToken) -> (Self, Handle) {
        let Parts { node, store, toolbox, clock, options, scope } = parts;
        let (sender, orders) = mpsc::channel(ORDERS);
        let [room, patience] = [(); 2].map(|()| Arc::new(Semaphore::new(options.executions)));
        let lease = LeaseClock::new(options.lease);
        let permits = Permits::new(id, Arc::clone(&store), Arc::clone(&clock), options.poll);
        let handle = Handle {
            orders: sender,
            room: Arc::clone(&room),
            toolbox: toolbox.clone(),
            permits: Arc::clone(&permits),
            worker: id,
        };
        let options = Arc::new(options);
        let node = node.into();
        let own = Some(handle.clone());
        let context = Context {
            worker: id,
            node,
            control: Control::new(Arc::clone(&store), Arc::clone(&clock), own),
            store,
            toolbox,
            clock,
            options,
            lease,
            drain,
            handle: handle.clone(),
            permits,
            onward: OnceLock::new(),
            room: Arc::clone(&room),
            patience,
            is_alone: scope == Scope::Given,
        };
        let (context, local) = (Arc::new(context), Arc::default());
        let drivers = JoinSet::new();
        let worker = Self {
            context,
            scope,
            room,
            local,
            orders,
            drivers,
            again: BTreeMap::new(),
            lacking: 0,
            needs: BTreeMap::new(),
            past: None,
            orphans: BTreeMap::new(),
            damaged: BTreeMap::new(),
            unwritten: Unwritten::default(),
            owing: Owing::default(),
            swept_at: Instant::now(),
        };
        (worker, handle)
    }

    /// Lets executions be planned anew in this process. Without it they are left to others.
    pub fn plan_anew(&self, by: Arc<dyn Onward>) {
        // The first one stays: nobody has reason to give another.
        let _ = self.context.onward.set(by);
    }

    /// Works until told to end. Dropping the future is a crash; others take over.
    pub async fn run(mut self) {
        let context = Arc::clone(&self.context);
        heartbeat(&context).await;
        let beats = async {
            let mut beats = time::interval(context.options.lease / 3);
            beats.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
            loop {
                beats.tick().await;
                heartbeat(&context).await;
            }
        };
        let work = async {
            self.work().await;
            self.wind_down().await;
        };
        tokio::select! {
            biased;
            () = work => (),
            () = beats => unreachable!("hearts beat until the work is done"),
            () = context.permits.give_back() => unreachable!("permits come back until then"),
        }
        if let Err(err) = context.store.retire(context.worker).await {
            warn!(%err, "cannot say goodbye; the lease will run out");
        }
    }

    /// Returns what drivers share.
    #[cfg(test)]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    async fn work(&mut self) {
        let drain = self.context.drain.clone();
        let hints = self.context.store.hints();
        let (mut work, mut inbox) = (hints.work(), hints.inbox());
        let mut tools = self.context.toolbox.changes();
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = drain.cancelled() => return,
                Some(ended) = self.drivers.join_next(), if !self.drivers.is_empty() => {
                    let (id, result) = ended.expect("drivers do not panic");
                    self.ended(id, result);
                }
                Some((id, went)) = self.owing.next() => self.went_on(id, went),
                Some(order) = self.orders.recv() => self.take(order),
                _ = inbox.changed() => self.deliver().await,
                _ = work.changed() => look_at = Instant::now(),
                _ = tools.changed() => look_at = Instant::now(),
                () = time::sleep_until(look_at) => {
                    self.deliver().await;
                    look_at = Instant::now() + self.look().await;
                }
            }
        }
    }

    /// Notes that a driver ended. When there is a look next does not depend on it: many end.
    fn ended(&mut self, id: ExecutionId, result: Result<Stop, DriveError>) {
        self.local.remove(id);
        match result {
            Ok(Stop::Finished) => (),
            Ok(Stop::Owes) => self.owe(id),
            // A command may have come while it was put aside.
            Ok(Stop::PutAside) => self.context.store.hints().poke_inbox(),
            Ok(Stop::Unwritten(head)) => {
                self.unwritten.keep(*head, self.context.clock.now());
                self.context.store.hints().poke_inbox();
            }
            Err(DriveError::Taken(epoch)) => {
                // Unless it did not, and only its head lags.
                self.again.insert(id, epoch);
            }
            Err(DriveError::Fenced) => {
                // Or a late write of this worker came between, and nobody has it.
                info!(execution = %id, "another worker has the execution");
                self.again(id);
            }
            Err(err) if err.is_damage() => {
                error!(execution = %id, %err, "cannot be driven; the others go on");
                self.note_damage(id);
            }
            Err(err) => {
                warn!(execution = %id, %err, "will be claimed again");
                self.again(id);
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Begin { execution, created, born, over, permit } => {
                let id = execution.id();
                if self.local.has(id) {
                    // Asked for again under its key, before the first answer.
                    let _ = born.send(Err(AppendError::Conflict));
                    return;
                }
                let (sender, commands) = mpsc::channel(COMMANDS);
                self.local.insert(id, sender);
                let context = Arc::clone(&self.context);
                let begin = (commands, born, permit);
                let driver = Driver::begin(Arc::clone(&context), (*execution, *created), begin);
                self.drivers.spawn(async move {
                    let result = end_unwritten(&context, id, driver.run().await).await;
                    looking::leave_damaged(&context, id, &result).await;
                    if let (Ok(Stop::Finished | Stop::Owes), Some(over)) = (&result, over) {
                        // Whoever asked may have gone.
                        let _ = over.send(());
                    }
                    (id, result)
                });
            }
            Order::Claim(id) => {
                // Whoever names it wants it here.
                if !self.claim(id, Epoch(u64::MAX)) {
                    self.again(id);
                }
            }
        }
    }

    /// Takes an execution that is in the store, unless it is driven here already. Returns whether
    /// there was room for it. It is left alone if somebody claimed it after the claim `seen`, with
    /// which it was found free: that one is alive.
    fn claim(&mut self, id: ExecutionId, seen: Epoch) -> bool {
        if self.local.has(id) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else { return false };
        self.unwritten.forget(id);
        let (sender, commands) = mpsc::channel(COMMANDS);
        self.local.insert(id, sender);
        let context = Arc::clone(&self.context);
        self.drivers.spawn(async move {
            let result = drive(Arc::clone(&context), (id, seen), commands, permit).await;
            let result = end_unwritten(&context, id, result).await;
            looking::leave_damaged(&context, id, &result).await;
            (id, result)
        });
        true
    }

    /// Lets drivers end what is short, then cuts them off.
    async fn wind_down(&mut self) {
        // A model may take long: what is owed is still this worker's, and others will find it.
        self.owing.shutdown().await;
        // Whoever still asks for a beginning here begins it elsewhere.
        self.orders.close();
        while self.orders.try_recv().is_ok() {}
        let all = async { while self.drivers.join_next().await.is_some() {} };
        if time::timeout(self.context.options.drain, all).await.is_err() {
            info!(left = self.drivers.len(), "left to others what still runs");
            self.drivers.shutdown().await;
        }
    }
}

/// Reads an execution, claims it and drives it.
async fn drive(
    context: Arc<Context>,
    (id, seen): (ExecutionId, Epoch),
    commands: mpsc::Receiver<Envelope>,
    place: OwnedSemaphorePermit,
) -> Result<Stop, DriveError> {
    let store = Arc::clone(&context.store);
    let execution = load(&*store, id).await?;
    let inbox = store.inbox(Some(id)).await?;
    if execution.state().is_over() {
        // The head lagged, or its owner was lost before it told the parent, or before it was planned
        // anew; the log knows.
        tell_parent(&context, &execution).await?;
        store.discard(inbox.iter().map(|it| it.id).collect()).await?;
        return owing::keep_if_owed(&context, &execution).await;
    }
    if seen < execution.epoch() {
        mend(&*store, &execution).await?;
        return Err(DriveError::Taken(execution.epoch()));
    }
    debug!(execution = %id, seq = %execution.seq(), "claiming");
    Driver::resume(context, execution, inbox, commands, place).run().await
}

/// Ends an execution whose next events are too large for the store. To set it aside would call its
/// tools again each time it is taken, and its deadline would pass unseen.
async fn end_unwritten(
    context: &Arc<Context>,
    id: ExecutionId,
    result: Result<Stop, DriveError>,
) -> Result<Stop, DriveError> {
    let Err(DriveError::Store(err @ StoreError::TooLarge { .. })) = &result else { return result };
    error!(execution = %id, %err, "what comes next cannot be written: it ends here");
    let place = Arc::clone(&context.room).acquire_owned().await;
    let place = place.expect("the room of a worker is never closed");
    let execution = load(&*context.store, id).await?;
    if execution.state().is_over() {
        return Ok(Stop::Finished);
    }
    let why = format!("what comes next cannot be written: {err}");
    let error = ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, why);
    Driver::end_unwritten(Arc::clone(context), execution, error, place).run().await
}

/// Lets a head that lags behind a claim say who claimed. Whoever did may have died before it said
/// so itself, and then nobody would ever look there. What it said since has a later position.
async fn mend(store: &dyn Store, execution: &Execution) -> Result<(), StoreError> {
    let head = store.head(execution.id()).await?;
    if let Some(head) = head.filter(|it| it.epoch < execution.epoch()) {
        let (owner, epoch) = (execution.worker(), execution.epoch());
        store.put_head(Head { owner, epoch, due: None, ..head }).await?;
    }
    Ok(())
}

async fn heartbeat(context: &Context) {
    let asked = Instant::now();
    let lease = context.options.lease;
    let until = context.clock.now() + TimeDelta::from_std(lease).unwrap_or(TimeDelta::MAX);
    let beat = Lease { worker: context.worker, node: context.node.to_string(), until };
    match context.store.heartbeat(beat).await {
        Ok(()) => context.lease.extend(asked, lease),
        Err(err) => warn!(%err, "cannot renew the lease"),
    }
    let asked = Instant::now();
    if let Ok(time) = context.store.time().await {
        // The answer was on its way for about half of that.
        let since = TimeDelta::from_std(asked.elapsed() / 2).unwrap_or_default();
        context.clock.approach(time + since);
    }
}

impl Handle {
    /// Returns the worker's identifier.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Returns the tools that the worker can run.
    pub fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// Returns how many calls wait for a limit here.
    pub fn waiting_for_permits(&self) -> usize {
        self.permits.waiting()
    }

    /// Waits, at most so long, until a call outside any execution fits into limits that every node
    /// shares; nothing if there was no room in time.
    pub async fn permit(
        &self,
        holder: String,
        limits: Vec<CallLimit>,
        most: Duration,
    ) -> Option<CallPermit> {
        let granted = time::timeout(most, self.permits.acquire(holder, limits, 0)).await;
        granted.ok().map(|it| CallPermit { _granted: it })
    }

    /// Gives the worker a new execution, and returns when its creation is durable; or returns
    /// the execution, if the worker has no room for it or lacks a tool.
    pub(crate) async fn begin(
        &self,
        execution: Execution,
        created: Recorded,
        over: Option<oneshot::Sender<()>>,
    ) -> Result<Result<(), AppendError>, (Box<Execution>, Box<Recorded>)> {
        let give_back = |execution, created| Err((Box::new(execution), Box::new(created)));
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            return give_back(execution, created);
        };
        if !self.toolbox.has_all(execution.plan().tools()) {
            return give_back(execution, created);
        }
        let (born, answer) = oneshot::channel();
        let (execution, created) = (Box::new(execution), Box::new(created));
        let order = Order::Begin { execution, created, born, over, permit };
        if let Err(mpsc::error::SendError(order)) = self.orders.send(order).await {
            let Order::Begin { execution, created, .. } = order else {
                unreachable!("what could not be sent comes back")
            };
            return Err((execution, created));
        }
        let lost = || StoreError::Unavailable("the worker ended meanwhile".to_owned());
        Ok(answer.await.unwrap_or_else(|_| Err(lost().into())))
    }

    /// Asks the worker to take an execution that is in the store.
    pub async fn claim(&self, id: ExecutionId) {
        // A worker that is gone takes nothing; whoever finds the execution does.
        let _ = self.orders.send(Order::Claim(id)).await;
    }
}

impl Local {
    fn map(&self) -> std::sync::MutexGuard<'_, BTreeMap<ExecutionId, mpsc::Sender<Envelope>>> {
        // A map of channels is never half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, id: ExecutionId, commands: mpsc::Sender<Envelope>) {
        self.map().insert(id, commands);
    }

    fn remove(&self, id: ExecutionId) {
        self.map().remove(&id);
    }

    fn has(&self, id: ExecutionId) -> bool {
        self.map().contains_key(&id)
    }

    /// Gives a command to the driver of its execution, if that is here. What does not fit stays
    /// in the inbox and is found again.
    fn deliver(&self, envelope: &Envelope) -> bool {
        match self.map().get(&envelope.execution) {
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
