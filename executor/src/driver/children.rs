//! Child executions: steps that execute another plan.
//!
//! The parent's `step_started` event contains the id of the child, so starting a child twice
//! creates only one execution.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use shared::{
    event::{Created, Parent},
    execution::{
        AttemptKind, ChildCalls, Execution, ExecutionOptions, ExecutionState, Phase, StepState,
    },
    id::{Attempt, CommandId, ExecutionId, PlanId, RequestId, StepNumber, Task},
    json,
    plan::{OnError, StepKind},
    store::{ChildPath, Command, ExecutionHead, StoreError},
    tool::{ErrorCode, ToolError},
    trace::SpanContext,
};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{DriveError, Driver, JobResult, WorkerContext, load_existing};
use crate::{call::FinishedCall, machine::CallOutput, required_tools::can_continue};

/// Interval at which this process checks a child again, and at which a child tries again while the
/// parent's inbox is full.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) task: Task,
    attempt: Attempt,
    id: ExecutionId,
    plan: PlanId,
    request: RequestId,
    options: ExecutionOptions,
    parent: Parent,
    calls: ChildCalls,
    /// The child of the previous attempt, whose calls this child takes over.
    earlier: Option<ExecutionId>,
    /// The span of the attempt, or of the parent's caller.
    trace: Option<SpanContext>,
    /// `true` if the parent is cancelled or past its deadline, so the child must stop, too.
    is_stopped: bool,
    /// `true` if the child has sent the command that reports that it finished. Its log then
    /// contains `finished`, even if its head still lags behind.
    has_ended: bool,
}

impl Child {
    pub(super) fn for_task(execution: &Execution, task: Task) -> Option<Self> {
        let state = execution.task(task)?;
        let StepState::Running { attempt, how: AttemptKind::Executing { child } } = state.state
        else {
            return None;
        };
        let step = execution.plan().step(task.step);
        let callee = step.call_of_part(task.part);
        let StepKind::Plan(plan) = callee.kind else { return None };
        let parent_options = execution.options();
        let options = ExecutionOptions {
            mode: parent_options.mode,
            max_parallel: parent_options.max_parallel,
            strict_templates: parent_options.strict_templates,
            priority: parent_options.priority,
            compensate_on_failure: parent_options.compensate_on_failure,
            deadline_ms: callee.policy.explicit_timeout_ms(),
            input: state.parameters.clone().unwrap_or_default(),
            labels: parent_options.labels.clone(),
            ..ExecutionOptions::default()
        };
        let depth = execution.parent().map_or(0, |parent| parent.depth) + 1;
        let (id, part) = (execution.id(), task.part);
        let parent = Parent { execution: id, step: step.id.clone(), part, attempt, depth };
        Some(Self {
            task,
            attempt,
            id: child,
            plan,
            request: execution.request(),
            options,
            parent,
            calls: execution.calls_for_child(task),
            earlier: state.earlier_child.as_deref().copied(),
            trace: None,
            is_stopped: matches!(execution.phase(), Phase::Cancelling | Phase::Expired),
            has_ended: false,
        })
    }

    /// Starts the child if it does not exist, and waits for its end if this process must watch it.
    /// Returns `Running` if the inbox will report the end of the child, and `Unknown` if the worker
    /// drains and the last check failed.
    async fn watch(self, context: Arc<WorkerContext>) -> ChildStatus {
        loop {
            let is_seen = match self.start_or_check(&context).await {
                Ok(Some(result)) => {
                    let bytes =
                        result.as_ref().map_or(256, |output| json::json_size(&output.output));
                    let (task, attempt) = (self.task, self.attempt);
                    let ended =
                        FinishedCall { task, attempt, result, bytes, is_tool_missing: false };
                    return ChildStatus::Finished(ended);
                }
                Ok(None) if context.is_alone || self.has_ended => true,
                Ok(None) => return ChildStatus::Running,
                Err(err) => {
                    warn!(child = %self.id, %err, "cannot watch a child yet, will retry");
                    false
                }
            };
            time::sleep(POLL_INTERVAL).await;
            if context.drain.is_cancelled()
                && !self.has_ended
                && !self.is_driven_here(&context).await
            {
                return if is_seen { ChildStatus::Running } else { ChildStatus::Unknown };
            }
        }
    }

    async fn is_driven_here(&self, context: &WorkerContext) -> bool {
        match context.store.head(self.id).await {
            Ok(head) => head.is_some_and(|head| head.owner == Some(context.worker)),
            Err(_) => false,
        }
    }

    async fn start_or_check(
        &self,
        context: &WorkerContext,
    ) -> Result<Option<Result<CallOutput, ToolError>>, DriveError> {
        let Some(head) = context.store.head(self.id).await? else {
            let Some(plan) = context.store.plan(self.plan).await? else {
                let reason = format!("its plan `{}` is no longer in the store", self.plan);
                return Ok(Some(Err(
                    ToolError::new(ErrorCode::UNAVAILABLE, reason).without_retry()
                )));
            };
            let mut created = Created::new(self.plan, self.request, self.options.clone());
            created.parent = Some(self.parent.clone());
            created.trace = self.trace.clone().map(Box::new);
            self.calls_to_take_over(context).await?.add_to(&mut created);
            context.control.start_child(self.id, &plan, created).await?;
            self.cancel_if_stopped(context).await?;
            return Ok(None);
        };
        if head.state.is_finished() || self.has_ended {
            let child = load_existing(&*context.store, self.id).await?;
            if child.state().is_finished() {
                return Ok(Some(child_result(&child, context.options.output_bytes)));
            }
        }
        if context.is_alone {
            context.adopt_orphan(&head).await?;
        }
        self.cancel_if_stopped(context).await?;
        Ok(None)
    }

    /// Returns the calls whose outcome is unknown, or that a person settled, in the child of the
    /// previous attempt. Without such a child, returns those of an earlier execution.
    async fn calls_to_take_over(&self, context: &WorkerContext) -> Result<ChildCalls, StoreError> {
        let Some(execution) = self.earlier else { return Ok(self.calls.clone()) };
        let path = ChildPath { steps: Vec::new(), execution };
        let (call_keys, settled) = context.store.calls_of_children(vec![path]).await?;
        Ok(ChildCalls::from_earlier_child(call_keys, settled))
    }

    async fn cancel_if_stopped(&self, context: &WorkerContext) -> Result<(), StoreError> {
        if !self.is_stopped {
            return Ok(());
        }
        let reason = Some(format!("the parent execution `{}` stops", self.parent.execution));
        context.control.send_command(self.id, Command::Cancel { reason }).await
    }
}

impl WorkerContext {
    /// Claims a child without a living owner if it can continue here or has commands, because no
    /// other process would claim it.
    async fn adopt_orphan(&self, head: &ExecutionHead) -> Result<(), StoreError> {
        let is_free = match head.owner {
            None => true,
            Some(owner) if owner == self.worker => false,
            Some(owner) => !self.store.list_workers(self.clock.now()).await?.contains(&owner),
        };
        if !is_free || head.state.is_finished() {
            return Ok(());
        }
        let can_go_on = can_continue(&*self.store, &self.toolbox, head, self.clock.now()).await?;
        if can_go_on || !self.store.list_commands(Some(head.execution)).await?.is_empty() {
            self.handle.claim_execution(head.execution).await;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) enum ChildStatus {
    Finished(FinishedCall),
    Running,
    /// The worker drains and no watch has succeeded yet, so the child may not even exist.
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct Children {
    stopped: BTreeSet<Task>,
    pub(super) linger_until: Option<time::Instant>,
    watches: BTreeMap<Task, Watch>,
    watch_count: u64,
    /// `true` if a watch has failed, so that another worker must watch the child.
    has_unknown_status: bool,
}

#[derive(Debug)]
struct Watch {
    number: u64,
    child: ExecutionId,
    has_ended: bool,
    is_stopped: bool,
    commands: BTreeSet<CommandId>,
    stop_token: CancellationToken,
}

impl Children {
    /// Records the end of a watch. Returns the inbox commands of the watch, which are handled now.
    pub(super) fn finish_watch(
        &mut self,
        task: Task,
        number: u64,
        status: &ChildStatus,
    ) -> BTreeSet<CommandId> {
        self.has_unknown_status |= matches!(status, ChildStatus::Unknown);
        if self.watches.get(&task).is_none_or(|watch| watch.number != number) {
            return BTreeSet::new();
        }
        self.watches.remove(&task).map(|watch| watch.commands).unwrap_or_default()
    }

    pub(super) fn has_unknown_status(&self) -> bool {
        self.has_unknown_status
    }

    fn keep_command(&mut self, task: Task, command: CommandId) {
        if let Some(watch) = self.watches.get_mut(&task) {
            watch.commands.insert(command);
        }
    }

    /// Registers a new watch of `child`, which replaces the running watch. Returns its number and
    /// the token that stops it, or `None` if the running watch already has the same information.
    fn start_watch(&mut self, child: &mut Child) -> Option<(u64, CancellationToken)> {
        let mut commands = BTreeSet::new();
        if let Some(before) = self.watches.get_mut(&child.task)
            && before.child == child.id
        {
            let knows_more =
                (child.has_ended && !before.has_ended) || (child.is_stopped && !before.is_stopped);
            if !knows_more {
                return None;
            }
            child.has_ended |= before.has_ended;
            child.is_stopped |= before.is_stopped;
            commands = mem::take(&mut before.commands);
        }
        self.watch_count += 1;
        let (number, cut) = (self.watch_count, CancellationToken::new());
        let watch = Watch {
            number,
            child: child.id,
            has_ended: child.has_ended,
            is_stopped: child.is_stopped,
            commands,
            stop_token: cut.clone(),
        };
        if let Some(before) = self.watches.insert(child.task, watch) {
            before.stop_token.cancel();
        }
        Some((number, cut))
    }
}

impl Driver {
    pub(super) fn watch_children(&mut self) {
        let in_children = self.execution.agenda().in_children().iter();
        let in_children: Vec<Task> = in_children.copied().collect();
        for task in in_children {
            self.watch_child(task);
        }
    }

    /// Watches a child that has finished, as an inbox command reports. The command leaves the inbox
    /// with the child's result, or immediately if no task waits for the child.
    pub(super) fn watch_finished_child(&mut self, child: ExecutionId, command: CommandId) {
        let is_waiting_for_child =
            |task: &Task| self.execution.task(*task).and_then(|step| step.child) == Some(child);
        let task = self.execution.agenda().in_children().iter().copied().find(is_waiting_for_child);
        match task.and_then(|task| Child::for_task(&self.execution, task)) {
            Some(child) => {
                let task = child.task;
                self.spawn_watch(Child { has_ended: true, ..child });
                self.children.keep_command(task, command);
            }
            None => self.pending.mark_handled(command),
        }
    }

    pub(super) fn stop_children(&mut self) {
        let in_children = self.execution.agenda().in_children().iter();
        let left: Vec<Task> =
            in_children.filter(|task| !self.children.stopped.contains(task)).copied().collect();
        for task in left {
            if !self.is_held(task) {
                self.watch_child(task);
            }
        }
    }

    pub(super) fn watch_child(&mut self, task: Task) {
        if let Some(child) = Child::for_task(&self.execution, task) {
            self.spawn_watch(child);
        }
    }

    fn spawn_watch(&mut self, mut child: Child) {
        if child.is_stopped {
            self.children.stopped.insert(child.task);
        }
        self.children.linger_until = Some(time::Instant::now() + self.context.options.park_after);
        let task = child.task;
        let scope = self.telemetry.call_scope(&self.execution, task, child.attempt);
        child.trace = scope.map(|scope| scope.span);
        let Some((number, cut)) = self.children.start_watch(&mut child) else { return };
        let context = Arc::clone(&self.context);
        self.jobs.spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => JobResult::Cancelled,
                status = child.watch(context) => JobResult::ChildChecked(task, number, status),
            }
        });
    }
}

/// Notifies an unfinished parent of a finished child, and then clears the owner of the child. Does
/// nothing for an execution without a parent.
pub(crate) async fn notify_parent(
    context: &WorkerContext,
    execution: &Execution,
) -> Result<(), StoreError> {
    let Some(parent) = execution.parent() else { return Ok(()) };
    let command = Command::ChildEnded { child: execution.id() };
    loop {
        let head = context.store.head(parent.execution).await?;
        if head.is_none_or(|head| head.state.is_finished()) {
            break;
        }
        match context.control.send_command(parent.execution, command.clone()).await {
            Ok(()) => break,
            // Waits and tries again, because the parent's driver has not handled the commands in
            // the full inbox yet.
            Err(StoreError::Full { .. }) => time::sleep(POLL_INTERVAL).await,
            Err(err) => return Err(err),
        }
    }
    context.store.put_head(ExecutionHead::from_execution(execution, None, None)).await
}

fn child_result(child: &Execution, max_bytes: usize) -> Result<CallOutput, ToolError> {
    match child.state() {
        ExecutionState::Completed => {
            let output = child.outputs();
            let bytes = json::json_size(&output);
            if bytes > max_bytes {
                let reason = format!(
                    "its steps returned {bytes} bytes as JSON; the limit is {max_bytes}: let them \
                     return less"
                );
                return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, reason));
            }
            Ok(output.into())
        }
        ExecutionState::Cancelled => {
            let reason = format!("`{}` was cancelled", child.id());
            Err(ToolError::new(ErrorCode::CANCELLED, reason))
        }
        _ => Err(required_failure(child)),
    }
}

/// Returns the first failure of a child in which every required step succeeded.
fn first_failure(child: &Execution) -> ToolError {
    let errors = child.steps().iter().filter_map(|step| match &step.state {
        StepState::Failed(error) => Some((step.finished_at, error)),
        _ => None,
    });
    match errors.min_by_key(|(finished_at, _)| *finished_at) {
        Some((_, error)) => {
            let message = format!("`{}`: {}", child.id(), error.message);
            ToolError { is_definite: true, message: message.as_str().into(), ..error.clone() }
        }
        None => ToolError::failed(format!("`{}` failed", child.id())),
    }
}

fn required_failure(child: &Execution) -> ToolError {
    let steps = child.steps().iter().enumerate();
    let failed = steps.filter_map(|(number, step)| match &step.state {
        StepState::Failed(error) => Some((child.plan().step(StepNumber::new(number)), step, error)),
        _ => None,
    });
    let must_succeed = |on_error: OnError| matches!(on_error, OnError::Fail | OnError::Wait);
    let failed = failed.filter(|(planned, ..)| must_succeed(planned.policy.on_error));
    match failed.min_by_key(|(_, step, _)| step.finished_at) {
        Some((planned, _, error)) => {
            let message = format!("`{}` of `{}`: {}", planned.id, child.id(), error.message);
            // The failure of a finished child is definite, even if the outcome of one of its calls
            // is unknown.
            ToolError { is_definite: true, message: message.as_str().into(), ..error.clone() }
        }
        None if child.missed_deadline() => {
            let reason = format!("the deadline of `{}` passed", child.id());
            ToolError::new(ErrorCode::DEADLINE, reason)
        }
        None => first_failure(child),
    }
}
