//! Drives one execution, from a claim to its end or to the loss of the lease.
//!
//! The driver asks the [`machine`] what happens, sends that to the store, and acts
//! on it. A tool with an effect is called only once the log durably says so; a tool that only
//! reads is called at once, its record on its way. At most one append is in flight; what happens
//! meanwhile becomes the next.
//!
//! An append whose fate is unknown is looked up and, if it is not there, offered again, the same
//! at the same position: the position makes that safe. If something else is there, another
//! worker has the execution, and everything here is dropped.

mod calls;
pub(crate) mod children;
mod gates;
mod idle;
mod pending;
mod tools;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, OnceLock},
};

use shared::{
    clock::Clock,
    event::{Event, Recorded},
    execution::{Execution, Phase},
    id::{CommandId, Epoch, ExecutionId, Seq, Task, ToolName, WorkerId},
    store::{self, AppendError, Command, Envelope, Head, Store, StoreError},
    tool::{Effect, Progress, ToolError},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;
use toolbox::{Toolbox, dispatch, progress::Reports};
use tracing::debug;

use self::{
    calls::{Done, Held},
    children::Children,
    gates::Gates,
    idle::{Begins, CROWDED},
    pending::Pending,
    tools::Tools,
};
use crate::{
    call::Key,
    control::Control,
    lease::{LeaseClock, Term},
    machine::{self, Input, Moment},
    onward::Onward,
    options::Options,
    permits::Permits,
    worker::Handle,
};

/// What every driver of a worker shares.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) worker: WorkerId,
    pub(crate) node: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) toolbox: Toolbox,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<Options>,
    pub(crate) lease: LeaseClock,
    /// Begins the executions of sub-plans.
    pub(crate) control: Control,
    /// Gives this worker executions.
    pub(crate) handle: Handle,
    pub(crate) permits: Arc<Permits>,
    /// Plans anew what is over; nothing where this process does not.
    pub(crate) onward: OnceLock<Arc<dyn Onward>>,
    /// Places for executions in memory.
    pub(crate) room: Arc<Semaphore>,
    /// Places for those that only wait for permits: they keep nobody else out.
    pub(crate) patience: Arc<Semaphore>,
    /// Whether no worker looks for executions: this one drives only what it is given.
    pub(crate) is_alone: bool,
    /// Fires when the worker is about to end.
    pub(crate) drain: CancellationToken,
}

/// Drives one execution.
pub(crate) struct Driver {
    context: Arc<Context>,
    execution: Execution,
    commands: mpsc::Receiver<Envelope>,
    pending: Pending,
    /// What waits until the log durably says that it begins.
    held: VecDeque<(Seq, Held)>,
    /// What is over and the machine has not heard of.
    done: VecDeque<Done>,
    /// Commands that the machine has heard of: the inbox may bring them again.
    obeyed: BTreeSet<CommandId>,
    attempts: JoinSet<Done>,
    children: Children,
    gates: Gates,
    /// What calls report while they run.
    reports: Reports<Key>,
    /// How many reports of each call were recorded, and when the last was.
    noted: BTreeMap<Task, (u32, time::Instant)>,
    cancel: CancellationToken,
    /// The term of the worker's lease in which this was claimed.
    term: Term,
    /// The term in which it is being claimed once more, and where the log says so.
    renewal: Option<(Term, Seq)>,
    /// Its place in memory: one to be driven, or to wait for permits.
    place: OwnedSemaphorePermit,
    is_draining: bool,
    tools: Tools,
    /// Whether something of the plan does more than look: then only a lease that is safe lets
    /// anything begin.
    has_effects: bool,
    /// Whether the lease, or a tool that was gone, kept the last decision from beginning anything: it is
    /// made once more when the lease is safe and the tool back, however soon that is.
    owes_a_look: bool,
}

/// How a driver hears of things, tells of the beginning, and has its place.
type Begin =
    (mpsc::Receiver<Envelope>, oneshot::Sender<Result<(), AppendError>>, OwnedSemaphorePermit);

/// Why a driver stopped, nothing being wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The execution is over.
    Finished,
    /// The execution is over, and is to be planned anew: it is still this worker's.
    Owes,
    /// Nothing is to be done here for a while: whoever is there when it is takes it.
    PutAside,
    /// The same, but the store could not be told: nobody finds it before this head is written.
    Unwritten(Box<Head>),
}

/// Why a driver stopped before the execution was over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriveError {
    /// Another worker has the execution. Not a fault.
    #[error("another worker has the execution")]
    Fenced,
    /// Another worker took the execution since it was found free. The number is its claim's.
    #[error("another worker was faster")]
    Taken(Epoch),
    /// There is no log.
    #[error("the log is not in the store")]
    NoLog,
    /// The store failed for too long.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DriveError {
    /// Returns whether what the store has of the execution cannot be read, or what comes next cannot
    /// be written, so that it is no use to try again soon.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::NoLog => true,
            Self::Store(err) => err.is_damage(),
            Self::Fenced | Self::Taken(_) => false,
        }
    }
}

/// What a driver waits for.
enum Next {
    Appended(Result<(), AppendError>),
    Done(Done),
    Reported(Key, Progress),
    Command(Envelope),
    Woken,
    Draining,
}

impl Driver {
    /// Takes an execution that is new: creation, claim and first steps share one append.
    pub(crate) fn begin(
        context: Arc<Context>,
        (execution, created): (Execution, Recorded),
        (commands, born, place): Begin,
    ) -> Self {
        let mut driver = Self::new(context, execution, Seq::START, commands, place);
        driver.pending.push([created]);
        driver.pending.announce(born);
        driver.claim();
        driver.decide(Input::Woken);
        driver
    }

    /// Takes an execution that is in the store, with what outsiders asked of it meanwhile.
    pub(crate) fn resume(
        context: Arc<Context>,
        execution: Execution,
        inbox: Vec<Envelope>,
        commands: mpsc::Receiver<Envelope>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let durable = execution.seq();
        let mut driver = Self::new(context, execution, durable, commands, place);
        driver.claim();
        driver.attend_all();
        for envelope in inbox {
            driver.obey(envelope, false);
        }
        driver.decide(Input::Woken);
        driver
    }

    /// Takes an execution that is in the store and of which the next events are too large for it, to
    /// end it. Calling its tools again would give the same.
    pub(crate) fn end_unwritten(
        context: Arc<Context>,
        execution: Execution,
        error: ToolError,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let durable = execution.seq();
        // Commands stay in the inbox until the execution is over: one of them may be what is too large.
        let (_, commands) = mpsc::channel(1);
        let mut driver = Self::new(context, execution, durable, commands, place);
        driver.claim();
        driver.attend_all();
        driver.decide_at(Input::Unwritable(error), false);
        driver
    }

    fn new(
        context: Arc<Context>,
        mut execution: Execution,
        durable: Seq,
        commands: mpsc::Receiver<Envelope>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let term = context.lease.term();
        let (calls, tools) = (&context.options.calls, execution.plan().tools());
        let mut limited: BTreeSet<ToolName> = calls.among(tools).cloned().collect();
        if !calls.is_empty() {
            // Which tool they call, and so whether that has a limit, turns out later.
            let may_have = execution.plan().tools().filter(|it| dispatch::is(&context.toolbox, it));
            limited.extend(may_have.cloned());
        }
        execution.limit(Arc::new(limited));
        let has_effects = execution
            .plan()
            .steps()
            .iter()
            .any(|it| it.policy.effect != Effect::Read || it.compensate.is_some());
        Self {
            tools: Tools::default(),
            has_effects,
            context,
            execution,
            commands,
            pending: Pending::new(durable),
            held: VecDeque::new(),
            done: VecDeque::new(),
            obeyed: BTreeSet::new(),
            attempts: JoinSet::new(),
            children: Children::default(),
            gates: Gates::default(),
            reports: Reports::default(),
            noted: BTreeMap::new(),
            cancel: CancellationToken::new(),
            term,
            renewal: None,
            place,
            is_draining: false,
            owes_a_look: false,
        }
    }

    /// Runs until there is nothing to do here. Dropping the future is a crash, and is safe.
    pub(crate) async fn run(mut self) -> Result<Stop, DriveError> {
        loop {
            // Whatever woke it: what ends because of the drain must not be heard of before that.
            self.is_draining = self.context.drain.is_cancelled();
            self.look_at_tools();
            if self.owes_a_look && self.begins() == Begins::Now {
                self.decide(Input::Woken);
            }
            self.go_on();
            if self.pending.is_empty() {
                if let Phase::Finished(outcome) = self.execution.phase() {
                    debug!(execution = %self.execution.id(), ?outcome, "finished");
                    children::tell_parent(&self.context, &self.execution).await?;
                    let owes = self.execution.anew().is_some();
                    return Ok(if owes { Stop::Owes } else { Stop::Finished });
                }
                if self.may_put_aside() {
                    return Ok(self.put_aside(self.due()).await);
                }
                if !self.keep_place() {
                    let due = self.context.clock.now() + CROWDED;
                    self.withdraw();
                    return Ok(self.put_aside(self.due().into_iter().chain([due]).min()).await);
                }
            }
            match self.next().await {
                Next::Appended(result) => self.appended(result).await?,
                Next::Done(done) => self.gather(done),
                Next::Reported(key, progress) => self.note(key, progress),
                Next::Command(envelope) => self.obey(envelope, true),
                Next::Woken => self.decide(Input::Woken),
                Next::Draining => (),
            }
        }
    }

    /// Takes everything that has ended, and sends what is to be written.
    fn go_on(&mut self) {
        loop {
            while !self.pending.is_full()
                && let Some(done) = self.done.pop_front()
            {
                self.settle(done);
            }
            self.begin_held();
            self.renew();
            self.ask_for_permits();
            self.pending.flush(&self.context, &self.execution);
            // What the machine has no use for leaves nothing to be written, and room for more.
            if self.done.is_empty() || !self.pending.is_empty() {
                return;
            }
        }
    }

    /// Claims the execution once more where the lease ran out and began anew: others may have
    /// claimed it in between, and the log says whether they did. What is under way goes on.
    fn renew(&mut self) {
        let term = self.context.lease.term();
        let is_stale = self.is_lease_doubtful() && self.context.lease.is_safe(term);
        // Where nothing may begin any more there is nothing to claim it for.
        let is_of_use = !self.held.is_empty() || self.begins() != Begins::Elsewhere;
        if !is_stale || !is_of_use || self.renewal.is_some() {
            return;
        }
        let Context { worker, node, .. } = &*self.context;
        let input = Input::Renewed { worker: *worker, node: Arc::clone(node) };
        self.decide_at(input, false);
        self.renewal = Some((term, self.execution.seq()));
        // Others find it by the number of its claim.
        self.pending.forget_head();
    }

    fn claim(&mut self) {
        let Context { worker, node, .. } = &*self.context;
        let input = Input::Claimed { worker: *worker, node: Arc::clone(node) };
        self.decide_at(input, false);
    }

    fn obey(&mut self, envelope: Envelope, may_start: bool) {
        if let Command::ChildEnded { child } = envelope.command {
            return self.attend_ended(child, envelope.id);
        }
        self.pending.heard(envelope.id);
        if !self.obeyed.insert(envelope.id) {
            return;
        }
        self.decide_at(Input::Command(envelope), may_start);
    }

    fn decide(&mut self, input: Input) {
        self.decide_at(input, true);
    }

    fn decide_at(&mut self, input: Input, may_start: bool) {
        self.look_at_tools();
        let begins = self.begins();
        if may_start {
            self.owes_a_look = begins == Begins::Later;
        }
        let may_start = may_start && begins == Begins::Now;
        let moment = Moment { now: self.context.clock.now(), may_start };
        let events = machine::decide(&mut self.execution, input, moment);
        for Recorded { seq, event, .. } in &events {
            if let Event::StepStarted(started) = event {
                self.prepare(*seq, started);
            }
        }
        self.pending.push(events);
        self.release_what_ended();
        if matches!(self.execution.phase(), Phase::Cancelling | Phase::Expired) {
            self.cancel.cancel();
            self.stop_children();
        }
    }

    /// Takes all attempts that have ended by now, so that they share an append.
    fn gather(&mut self, done: Done) {
        self.done.push_back(done);
        while let Some(done) = self.attempts.try_join_next() {
            self.done.push_back(done.expect("calls catch their tools' panics"));
        }
    }

    async fn appended(&mut self, result: Result<(), AppendError>) -> Result<(), DriveError> {
        self.pending.settle(result, &self.context, self.execution.id()).await?;
        let durable = self.pending.durable();
        if let Some((term, _)) = self.renewal.take_if(|it| it.1 <= durable) {
            self.term = term;
            self.decide(Input::Woken);
        }
        Ok(())
    }

    /// Waits for the outside world. The only place that does.
    async fn next(&mut self) -> Next {
        let wake = self.wake_in();
        let is_full = self.pending.is_full();
        tokio::select! {
            biased;
            result = self.pending.appended(), if !self.pending.is_empty() => {
                Next::Appended(result)
            }
            Some(done) = self.attempts.join_next(), if !is_full => {
                Next::Done(done.expect("calls catch their tools' panics"))
            }
            (key, progress) = self.reports.recv(), if !is_full => Next::Reported(key, progress),
            Some(envelope) = self.commands.recv(), if !is_full => Next::Command(envelope),
            () = time::sleep(wake.unwrap_or_default()), if wake.is_some() && !is_full => {
                Next::Woken
            }
            () = self.tools.changed(), if !is_full => Next::Woken,
            () = self.context.drain.cancelled(), if !self.is_draining => Next::Draining,
        }
    }
}

/// Reads an execution from the store, as far as its log goes.
pub(crate) async fn load(store: &dyn Store, id: ExecutionId) -> Result<Execution, DriveError> {
    store::load(store, id).await?.ok_or(DriveError::NoLog)
}

#[cfg(test)]
mod tests;
