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

mod pending;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use futures::FutureExt;
use shared::{
    clock::{Clock, Timestamp},
    event::{Event, Recorded, StepStarted},
    execution::{Execution, Phase, ReplayError},
    id::{CommandId, Epoch, ExecutionId, Part, Seq, Task, WorkerId},
    plan::StepKind,
    store::{AppendError, Envelope, Head, Store, StoreError},
    tool::Effect,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::pending::Pending;
use crate::{
    call::{Call, Ended, Key},
    lease::{LeaseClock, Term},
    machine::{self, Answer, Input, Moment},
    options::Options,
    tool::{StepCall, ToolContext, progress::Reports},
    toolbox::Toolbox,
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
    /// Fires when the worker is about to end.
    pub(crate) drain: CancellationToken,
}

/// Drives one execution.
pub(crate) struct Driver {
    context: Arc<Context>,
    execution: Execution,
    commands: mpsc::Receiver<Envelope>,
    pending: Pending,
    /// Calls that wait until the log durably says that they begin.
    held: VecDeque<(Seq, Call)>,
    /// Attempts that ended and that the machine has not heard of.
    ended: VecDeque<Ended>,
    /// Commands that the machine has heard of: the inbox may bring them again.
    obeyed: BTreeSet<CommandId>,
    attempts: JoinSet<Ended>,
    /// What calls report while they run.
    reports: Reports<Key>,
    cancel: CancellationToken,
    /// The term of the worker's lease in which this was claimed.
    term: Term,
    is_draining: bool,
    /// Whether this node lacks a tool of the plan: then it only does what commands ask for.
    lacks_tools: bool,
}

/// Why a driver stopped, nothing being wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The execution is over.
    Finished,
    /// Nothing is to be done here for a while: whoever is there when it is takes it.
    PutAside,
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
    /// This worker did not renew its lease in time. Not a fault of the execution.
    #[error("the lease has run out")]
    LeaseLost,
    /// The log cannot be what it says.
    #[error("the log is corrupt: {0}")]
    Corrupt(#[from] ReplayError),
    /// The plan of the execution is not there.
    #[error("the plan of the execution is not in the store")]
    NoPlan,
    /// The store failed for too long.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a driver waits for.
enum Next {
    Appended(Result<(), AppendError>),
    Ended(Ended),
    Command(Envelope),
    Woken,
    Draining,
}

impl Driver {
    /// Takes an execution that is new: creation, claim and first steps share one append.
    pub(crate) fn begin(
        context: Arc<Context>,
        execution: Execution,
        created: Recorded,
        commands: mpsc::Receiver<Envelope>,
        born: oneshot::Sender<Result<(), AppendError>>,
    ) -> Self {
        let mut driver = Self::new(context, execution, Seq::START, commands);
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
    ) -> Self {
        let durable = execution.seq();
        let mut driver = Self::new(context, execution, durable, commands);
        driver.claim();
        for envelope in inbox {
            driver.obey(envelope, false);
        }
        driver.decide(Input::Woken);
        driver
    }

    fn new(
        context: Arc<Context>,
        execution: Execution,
        durable: Seq,
        commands: mpsc::Receiver<Envelope>,
    ) -> Self {
        let term = context.lease.term();
        let lacks_tools = !context.toolbox.has_all(execution.plan().tools());
        Self {
            lacks_tools,
            context,
            execution,
            commands,
            pending: Pending::new(durable),
            held: VecDeque::new(),
            ended: VecDeque::new(),
            obeyed: BTreeSet::new(),
            attempts: JoinSet::new(),
            reports: Reports::default(),
            cancel: CancellationToken::new(),
            term,
            is_draining: false,
        }
    }

    /// Runs until there is nothing to do here. Dropping the future is a crash, and is safe.
    pub(crate) async fn run(mut self) -> Result<Stop, DriveError> {
        loop {
            while !self.pending.is_full()
                && let Some(ended) = self.ended.pop_front()
            {
                self.settle(ended);
            }
            self.pending.flush(&self.context, &self.execution);
            if self.pending.is_empty() {
                if let Phase::Finished(outcome) = self.execution.phase() {
                    debug!(execution = %self.execution.id(), ?outcome, "finished");
                    return Ok(Stop::Finished);
                }
                if self.may_put_aside() {
                    self.put_aside().await;
                    return Ok(Stop::PutAside);
                }
            }
            match self.next().await {
                Next::Appended(result) => self.appended(result).await?,
                Next::Ended(ended) => self.gather(ended),
                Next::Command(envelope) => self.obey(envelope, true),
                Next::Woken => self.decide(Input::Woken),
                Next::Draining => self.is_draining = true,
            }
        }
    }

    fn claim(&mut self) {
        let Context { worker, node, .. } = &*self.context;
        let input = Input::Claimed { worker: *worker, node: Arc::clone(node) };
        self.decide_at(input, false);
    }

    fn settle(&mut self, ended: Ended) {
        let Ended { task, attempt, result, bytes } = ended;
        self.pending.weigh(bytes);
        self.decide(Input::Ended { task, attempt, result: result.map(Answer::from) });
    }

    fn obey(&mut self, envelope: Envelope, may_start: bool) {
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
        let may_start = may_start && !self.is_draining && !self.lacks_tools;
        let moment = Moment { now: self.context.clock.now(), may_start };
        let events = machine::decide(&mut self.execution, input, moment);
        for Recorded { seq, event, .. } in &events {
            if let Event::StepStarted(started) = event {
                self.prepare(*seq, started);
            }
        }
        self.pending.push(events);
        if matches!(self.execution.phase(), Phase::Cancelling | Phase::Expired) {
            self.cancel.cancel();
        }
    }

    /// Prepares a call: it begins at once if it only reads, else once its record is durable.
    fn prepare(&mut self, seq: Seq, started: &StepStarted) {
        let plan = Arc::clone(self.execution.plan());
        let step = plan.number(&started.step).expect("the machine starts steps of the plan");
        let task = Task { step, part: started.part };
        let callee = plan.step(step).callee(started.part);
        if callee.kind != StepKind::Call || started.items.is_some() {
            return;
        }
        let call = StepCall {
            execution: self.execution.id(),
            step: started.step.clone(),
            part: started.part,
            attempt: started.attempt,
        };
        let call = Call {
            task,
            attempt: started.attempt,
            tool: callee.tool.clone(),
            parameters: Arc::clone(&started.parameters),
            timeout: callee.policy.timeout(),
            idle_timeout: callee.policy.idle_timeout_ms.map(Duration::from_millis),
            progress: self.reports.sink((task, started.attempt)),
            cx: ToolContext {
                call: Some(call),
                cancel: self.token(started.part),
                ..ToolContext::detached()
            },
        };
        if callee.policy.effect == Effect::Read {
            self.launch(call);
        } else {
            self.held.push_back((seq, call));
        }
    }

    /// Returns what tells a call to stop. What undoes something is not stopped: the end of the
    /// execution is why it runs.
    fn token(&self, part: Part) -> CancellationToken {
        if part.undo { CancellationToken::new() } else { self.cancel.child_token() }
    }

    /// Begins a call. One that is over at once costs no task.
    fn launch(&mut self, call: Call) {
        let Context { toolbox, options, .. } = &*self.context;
        let mut call = Box::pin(call.carry_out(toolbox.clone(), Arc::clone(options)));
        match call.as_mut().now_or_never() {
            Some(ended) => self.ended.push_back(ended),
            None => drop(self.attempts.spawn(call)),
        }
    }

    /// Takes all attempts that have ended by now, so that they share an append.
    fn gather(&mut self, ended: Ended) {
        self.ended.push_back(ended);
        while let Some(ended) = self.attempts.try_join_next() {
            self.ended.push_back(ended.expect("calls catch their tools' panics"));
        }
    }

    async fn appended(&mut self, result: Result<(), AppendError>) -> Result<(), DriveError> {
        let durable = self.pending.settle(result, &self.context, self.execution.id()).await?;
        while let Some((seq, _)) = self.held.front()
            && *seq <= durable
        {
            if !self.context.lease.is_safe(self.term) {
                return Err(DriveError::LeaseLost);
            }
            let (_, call) = self.held.pop_front().expect("there is a first");
            self.launch(call);
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
            Some(ended) = self.attempts.join_next(), if !is_full => {
                Next::Ended(ended.expect("calls catch their tools' panics"))
            }
            Some(envelope) = self.commands.recv(), if !is_full => Next::Command(envelope),
            () = time::sleep(wake.unwrap_or_default()), if wake.is_some() && !is_full => {
                Next::Woken
            }
            () = self.context.drain.cancelled(), if !self.is_draining => Next::Draining,
        }
    }

    fn wake_in(&self) -> Option<Duration> {
        // Before its start an execution is only put aside; whoever claims it then begins it.
        self.execution.started_at()?;
        let at = machine::wake_at(&self.execution)?;
        let wait = (at - self.context.clock.now()).to_std().unwrap_or_default();
        // A step that is due and may not begin any more must not keep this awake.
        let least = if self.is_draining { self.context.options.poll } else { Duration::ZERO };
        Some(wait.max(least))
    }

    /// Returns whether nothing here is under way that needs a driver.
    fn may_put_aside(&self) -> bool {
        let is_idle = self.attempts.is_empty() && self.held.is_empty() && self.ended.is_empty();
        if !is_idle || self.execution.agenda().has_calls() {
            return false;
        }
        let begins_nothing = self.is_draining || self.lacks_tools;
        if begins_nothing || self.execution.started_at().is_none() {
            return true;
        }
        let soon = TimeDelta::from_std(self.context.options.park_after).unwrap_or(TimeDelta::MAX);
        self.due().is_none_or(|it| it - self.context.clock.now() > soon)
    }

    /// Returns when a worker should take the execution again, if nobody asks before.
    fn due(&self) -> Option<Timestamp> {
        let has_work = self.execution.agenda().has_work() && !self.execution.is_paused();
        if (self.is_draining || self.lacks_tools) && has_work {
            return Some(self.context.clock.now());
        }
        machine::wake_at(&self.execution)
    }

    /// Lets the execution go. The head is what others find it by, so it is written until it is.
    async fn put_aside(&mut self) {
        let head = Head::of(&self.execution, None, self.due());
        debug!(execution = %head.execution, due = ?head.due, "put aside");
        while let Err(err) = self.context.store.put_head(head.clone()).await {
            warn!(execution = %head.execution, %err, "cannot put an execution aside yet");
            time::sleep(self.context.options.poll).await;
        }
    }
}

/// Reads an execution from the store, as far as its log goes.
pub(crate) async fn load(
    store: &dyn Store,
    plans: &crate::plans::Plans,
    id: ExecutionId,
) -> Result<Execution, DriveError> {
    let mut events = store.read(id, Seq::START).await?;
    let plan = match events.first().map(|it| &it.event) {
        Some(Event::Created(created)) => created.plan,
        Some(other) => return Err(ReplayError::NotCreated(other.kind()).into()),
        None => return Err(ReplayError::Empty.into()),
    };
    let plan = plans.get(store, plan).await?.ok_or(DriveError::NoPlan)?;
    let mut execution = Execution::replay(id, plan, &events)?;
    loop {
        events = store.read(id, execution.seq()).await?;
        if events.is_empty() {
            return Ok(execution);
        }
        for recorded in &events {
            execution.apply(recorded)?;
        }
    }
}
