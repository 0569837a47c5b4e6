//! Drives one execution, from its claim until it finishes, waits, or has another owner.
//!
//! The driver calls a tool with an effect only when the `step_started` event is durable, because
//! another worker must know after a crash that the call may have happened.

mod calls;
pub(crate) mod children;
pub(crate) mod failed_appends;
mod parking;
mod pending;
mod permit_requests;
pub(crate) mod slow_store;
pub(crate) mod telemetry;
mod tool_presence;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, OnceLock},
};

use shared::{
    clock::Clock,
    event::{Event, RecordedEvent},
    execution::{Execution, Phase},
    id::{CommandId, Epoch, ExecutionId, Seq, Task, ToolName, WorkerId},
    store::{self, AppendError, Command, ExecutionHead, SentCommand, Store, StoreError},
    tool::{Effect, Progress, ToolError},
    trace::SpanSink,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;
use toolbox::{Toolbox, dispatch, progress::Reports};
use tracing::{debug, warn};

use self::{
    calls::HeldStart,
    children::{ChildStatus, Children},
    failed_appends::FailedAppendLog,
    parking::{CROWDED_DELAY, StartPermission},
    pending::PendingEvents,
    permit_requests::PermitRequests,
    slow_store::SlowStoreLog,
    telemetry::Telemetry,
    tool_presence::ToolPresence,
};
use crate::{
    call::{AttemptKey, FinishedCall},
    control::Control,
    lease::{LeaseClock, Term},
    machine::{self, DecisionContext, Input},
    options::Options,
    permits::{HeldPermit, Permits},
    replan::Replanner,
    worker_handle::WorkerHandle,
};

#[derive(Debug)]
pub(crate) struct WorkerContext {
    pub(crate) worker: WorkerId,
    pub(crate) node: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) toolbox: Toolbox,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<Options>,
    pub(crate) lease: LeaseClock,
    pub(crate) control: Control,
    pub(crate) handle: WorkerHandle,
    pub(crate) permits: Arc<Permits>,
    pub(crate) replanner: OnceLock<Arc<dyn Replanner>>,
    pub(crate) span_sink: OnceLock<Arc<dyn SpanSink>>,
    pub(crate) slow_store: SlowStoreLog,
    pub(crate) failed_appends: FailedAppendLog,
    pub(crate) slots: Arc<Semaphore>,
    /// Memory slots for executions that wait for permits. An execution that continues keeps its
    /// waiting slot if no normal slot is free.
    pub(crate) waiting_slots: Arc<Semaphore>,
    /// `true` if the worker drives only the executions that this process gives to it, and their
    /// children. Such a worker does not scan for other executions.
    pub(crate) is_alone: bool,
    pub(crate) drain: CancellationToken,
}

pub(crate) struct Driver {
    context: Arc<WorkerContext>,
    execution: Execution,
    inputs: ControlInputs,
    claim: Claim,
    pending: PendingEvents,
    held_starts: VecDeque<(Seq, HeldStart)>,
    results: VecDeque<JobResult>,
    jobs: JoinSet<JobResult>,
    children: Children,
    permit_requests: PermitRequests,
    reports: Reports<AttemptKey>,
    /// Number of recorded reports of each call, and the time of the last recorded report.
    progress_counts: BTreeMap<Task, (u32, time::Instant)>,
    cancel: CancellationToken,
    /// The memory slot of the execution, taken from [`WorkerContext::slots`] or
    /// [`WorkerContext::waiting_slots`].
    slot: OwnedSemaphorePermit,
    tool_presence: ToolPresence,
    telemetry: Telemetry,
}

struct ControlInputs {
    commands: mpsc::Receiver<SentCommand>,
    /// Commands that were applied. They are ignored when the inbox delivers them again.
    applied_commands: BTreeSet<CommandId>,
    is_draining: bool,
}

struct Claim {
    term: Term,
    /// A new claim that is not in the log yet.
    renewal: Option<Renewal>,
    /// `true` if the plan or a started call has effects, so no task starts while the lease is in
    /// doubt.
    needs_safe_lease: bool,
    /// `true` if the lease or a missing tool prevented a start, so the driver decides again as soon
    /// as it is allowed to start tasks.
    needs_decision: bool,
}

struct Renewal {
    term: Term,
    seq: Seq,
}

pub(crate) struct NewExecution {
    pub(crate) execution: Execution,
    pub(crate) created: RecordedEvent,
    pub(crate) commands: mpsc::Receiver<SentCommand>,
    pub(crate) stored: oneshot::Sender<Result<(), AppendError>>,
    pub(crate) slot: OwnedSemaphorePermit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverStop {
    Finished,
    /// The execution has finished and needs a replan. This worker still owns it.
    NeedsReplan,
    /// The execution waits. Any worker can claim it when it is due or gets a command.
    Parked,
    /// The execution waits, but its head could not be written. Other workers cannot find it yet.
    HeadUnwritten(Box<ExecutionHead>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DriveError {
    /// The log rejected an append, because another worker owns the execution or because a late
    /// append of this worker succeeded. Both happen in normal operation.
    #[error("the log has newer events")]
    Fenced,
    #[error("another worker was faster")]
    ClaimedElsewhere(Epoch),
    #[error("the log is not in the store")]
    NoLog,
    /// The store failed for too long, or permanently.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DriveError {
    /// Returns whether a retry is useless: the log cannot be read, or the next events cannot be
    /// written.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::NoLog => true,
            Self::Store(err) => err.is_permanent(),
            Self::Fenced | Self::ClaimedElsewhere(_) => false,
        }
    }
}

#[derive(Debug)]
enum JobResult {
    Ended(FinishedCall),
    Permitted(Task, u64, HeldPermit),
    ChildChecked(Task, u64, ChildStatus),
    Cancelled,
}

enum DriverInput {
    Appended(Result<(), AppendError>),
    JobEnded(JobResult),
    Reported(AttemptKey, Progress),
    Command(SentCommand),
    Woken,
    Draining,
}

impl Driver {
    /// Returns the driver of a new execution. The execution's creation, its claim and the first
    /// starts share one append.
    pub(crate) fn start_new(context: Arc<WorkerContext>, new: NewExecution) -> Self {
        let NewExecution { execution, created, commands, stored, slot } = new;
        let mut driver = Self::new(context, execution, Seq::START, commands, slot);
        driver.pending.push([created]);
        driver.pending.set_created_notice(stored);
        driver.record_claim(false);
        driver.decide(Input::Woken);
        driver
    }

    pub(crate) fn resume(
        context: Arc<WorkerContext>,
        execution: Execution,
        inbox: Vec<SentCommand>,
        commands: mpsc::Receiver<SentCommand>,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let durable = execution.seq();
        let mut driver = Self::new(context, execution, durable, commands, slot);
        driver.record_claim(!inbox.is_empty());
        driver.watch_children();
        for envelope in inbox {
            driver.apply_command(envelope, false);
        }
        driver.decide(Input::Woken);
        driver
    }

    /// Remembers that this worker continues the execution of a lost worker. Telemetry reports this
    /// when the claim is durable.
    pub(crate) fn note_lost_worker(&mut self, lost: Option<WorkerId>) {
        self.telemetry.note_lost_worker(lost);
    }

    /// Claims a stored execution whose next events are too large for the store, and fails the tasks
    /// that would start.
    pub(crate) fn fail_unwritable(
        context: Arc<WorkerContext>,
        execution: Execution,
        error: ToolError,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let durable = execution.seq();
        // Takes no commands, because one of them may have caused the event that is too large.
        let (_, commands) = mpsc::channel(1);
        let mut driver = Self::new(context, execution, durable, commands, slot);
        driver.record_claim(false);
        driver.watch_children();
        driver.decide_with(Input::Unwritable(error), false);
        driver
    }

    fn new(
        context: Arc<WorkerContext>,
        mut execution: Execution,
        durable: Seq,
        commands: mpsc::Receiver<SentCommand>,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        let term = context.lease.term();
        let (calls, tools) = (context.options.calls.get(), execution.plan().called_tools());
        let mut limited: BTreeSet<ToolName> = calls.limited_tools(tools).cloned().collect();
        if !calls.is_empty() {
            // The tool that an agent calls is chosen later, so each dispatch tool counts as
            // limited.
            let tools = execution.plan().called_tools();
            let dispatched =
                tools.filter(|tool| dispatch::is_dispatch_tool(&context.toolbox, tool));
            limited.extend(dispatched.cloned());
        }
        execution.set_limited_tools(Arc::new(limited));
        let needs_safe_lease = execution
            .plan()
            .steps()
            .iter()
            .any(|step| step.policy.effect != Effect::Read || step.compensate.is_some());
        Self {
            telemetry: Telemetry::new(&context, &execution),
            tool_presence: ToolPresence::default(),
            inputs: ControlInputs {
                commands,
                applied_commands: BTreeSet::new(),
                is_draining: false,
            },
            claim: Claim { term, renewal: None, needs_safe_lease, needs_decision: false },
            context,
            execution,
            pending: PendingEvents::new(durable),
            held_starts: VecDeque::new(),
            results: VecDeque::new(),
            jobs: JoinSet::new(),
            children: Children::default(),
            permit_requests: PermitRequests::default(),
            reports: Reports::default(),
            progress_counts: BTreeMap::new(),
            cancel: CancellationToken::new(),
            slot,
        }
    }

    /// Runs until the driver stops. Dropping the future is safe: it has the same effect as a crash.
    pub(crate) async fn run(mut self) -> Result<DriverStop, DriveError> {
        loop {
            // Checks the drain signal first. Otherwise a call that the drain cancelled would be
            // handled as if the worker still started tasks.
            self.inputs.is_draining = self.context.drain.is_cancelled();
            self.refresh_tool_presence();
            if self.claim.needs_decision && self.start_permission() == StartPermission::Now {
                self.decide(Input::Woken);
            }
            self.apply_results();
            if self.pending.is_empty() {
                if let Phase::Finished(outcome) = self.execution.phase() {
                    debug!(execution = %self.execution.id(), ?outcome, "finished");
                    children::notify_parent(&self.context, &self.execution).await?;
                    let needs_replan = self.execution.replan_cause().is_some();
                    return Ok(if needs_replan {
                        DriverStop::NeedsReplan
                    } else {
                        DriverStop::Finished
                    });
                }
                if self.can_park() {
                    return Ok(self.park(self.next_due_at()).await);
                }
                if !self.switch_slot() {
                    let due = self.context.clock.now() + CROWDED_DELAY;
                    self.withdraw_permit_requests();
                    return Ok(self.park(self.next_due_at().into_iter().chain([due]).min()).await);
                }
            }
            match self.next_input().await {
                DriverInput::Appended(result) => self.finish_append(result).await?,
                DriverInput::JobEnded(done) => self.collect_results(done),
                DriverInput::Reported(key, progress) => self.record_progress(key, progress),
                DriverInput::Command(envelope) => self.apply_command(envelope, true),
                DriverInput::Woken => self.decide(Input::Woken),
                DriverInput::Draining => (),
            }
        }
    }

    fn apply_results(&mut self) {
        loop {
            while !self.pending.is_full()
                && let Some(done) = self.results.pop_front()
            {
                self.apply_result(done);
            }
            self.start_held_tasks();
            self.renew_claim();
            self.request_permits();
            self.pending.send_append(&self.context, &self.execution);
            // Continues if the machine ignored all results, because then there is nothing to append
            // and more results may wait.
            if self.results.is_empty() || !self.pending.is_empty() {
                return;
            }
        }
    }

    /// Claims the execution again after the lease expired and was renewed. The append of the claim
    /// fails if another worker has claimed the execution in the meantime.
    fn renew_claim(&mut self) {
        let term = self.context.lease.term();
        let is_stale = self.is_lease_doubtful() && self.context.lease.is_safe(term);
        // Claims only if a task can start afterwards, because any other claim would only lengthen
        // the log.
        let is_claim_useful =
            !self.held_starts.is_empty() || self.start_permission() != StartPermission::Elsewhere;
        if !is_stale || !is_claim_useful || self.claim.renewal.is_some() {
            return;
        }
        let WorkerContext { worker, node, .. } = &*self.context;
        let input = Input::Renewed { worker: *worker, node: Arc::clone(node) };
        self.decide_with(input, false);
        self.claim.renewal = Some(Renewal { term, seq: self.execution.seq() });
        // Writes the head, because it names the epoch of the claim.
        self.pending.rewrite_head();
    }

    fn record_claim(&mut self, commands_follow: bool) {
        let WorkerContext { worker, node, .. } = &*self.context;
        let (worker, node) = (*worker, Arc::clone(node));
        let input = Input::Claimed { worker, node, commands_follow };
        self.decide_with(input, false);
    }

    fn apply_command(&mut self, envelope: SentCommand, is_start_allowed: bool) {
        if let Command::ChildEnded { child } = envelope.command {
            return self.watch_finished_child(child, envelope.id);
        }
        self.pending.mark_handled(envelope.id);
        if !self.inputs.applied_commands.insert(envelope.id) {
            return;
        }
        self.decide_with(Input::Command(envelope), is_start_allowed);
    }

    fn decide(&mut self, input: Input) {
        self.decide_with(input, true);
    }

    fn decide_with(&mut self, input: Input, is_start_allowed: bool) {
        self.refresh_tool_presence();
        let begins = self.start_permission();
        if is_start_allowed {
            self.claim.needs_decision = begins == StartPermission::Later;
        }
        let is_start_allowed = is_start_allowed && begins == StartPermission::Now;
        let now = self.context.clock.now();
        let moment =
            DecisionContext { now, is_start_allowed, effects: Some(&self.context.toolbox) };
        let events = machine::decide(&mut self.execution, input, moment);
        for RecordedEvent { seq, event, .. } in &events {
            match event {
                Event::StepStarted(started) => self.prepare_start(*seq, started),
                Event::WaitsShortened { ahead_ms } => warn!(
                    execution = %self.execution.id(), ahead_ms,
                    "the clock was ahead when waits of the execution began, so they start again \
                     with their full length"
                ),
                _ => (),
            }
        }
        self.pending.push(events);
        self.release_permits();
        if matches!(self.execution.phase(), Phase::Cancelling | Phase::Expired) {
            self.cancel.cancel();
            self.stop_children();
        }
    }

    /// Collects all jobs that have ended, so that their events can share an append.
    fn collect_results(&mut self, done: JobResult) {
        self.results.push_back(done);
        while let Some(done) = self.jobs.try_join_next() {
            self.results.push_back(done.expect("calls catch their tools' panics"));
        }
    }

    async fn finish_append(&mut self, result: Result<(), AppendError>) -> Result<(), DriveError> {
        let id = self.execution.id();
        let events = self.pending.finish_append(result, &self.context, id).await?;
        self.telemetry.report_events(&self.execution, &events);
        let durable = self.pending.durable_seq();
        if let Some(renewal) = self.claim.renewal.take_if(|renewal| renewal.seq <= durable) {
            self.claim.term = renewal.term;
            self.decide(Input::Woken);
        }
        Ok(())
    }

    async fn next_input(&mut self) -> DriverInput {
        let wake = self.wake_delay();
        let is_full = self.pending.is_full();
        tokio::select! {
            biased;
            result = self.pending.wait_for_append(), if !self.pending.is_empty() => {
                DriverInput::Appended(result)
            }
            Some(done) = self.jobs.join_next(), if !is_full => {
                DriverInput::JobEnded(done.expect("calls catch their tools' panics"))
            }
            (key, progress) = self.reports.recv(), if !is_full => DriverInput::Reported(key, progress),
            Some(envelope) = self.inputs.commands.recv(), if !is_full => DriverInput::Command(envelope),
            () = time::sleep(wake.unwrap_or_default()), if wake.is_some() && !is_full => {
                DriverInput::Woken
            }
            () = self.tool_presence.wait_for_change(), if !is_full => DriverInput::Woken,
            () = self.context.drain.cancelled(), if !self.inputs.is_draining => DriverInput::Draining,
        }
    }
}

pub(crate) async fn load_existing(
    store: &dyn Store,
    id: ExecutionId,
) -> Result<Execution, DriveError> {
    store::load_execution(store, id).await?.ok_or(DriveError::NoLog)
}

#[cfg(test)]
mod tests;
