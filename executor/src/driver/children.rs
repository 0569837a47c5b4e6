//! Steps that are executions of their own.
//!
//! A step that executes a plan begins an execution under an identifier that follows from the step
//! and the attempt, so that it is begun once, whoever begins it. The parent holds no driver while
//! it waits: a child that ends tells it by its inbox, and whoever then has the parent looks at the
//! child's log. A child keeps its owner until it has told, so that one whose worker is lost in
//! between is found as an orphan, and told for. The word stays in the inbox until what the child
//! came to is in the parent's log: a driver that is lost before takes nothing along.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use shared::{
    event::{Created, Parent},
    execution::{AttemptKind, Execution, ExecutionOptions, ExecutionState, Phase, StepState},
    id::{Attempt, CommandId, ExecutionId, PlanId, RequestId, StepNumber, Task},
    json,
    plan::{OnError, StepKind},
    store::{Command, ExecutionHead, StoreError},
    tool::{ErrorCode, ToolError},
};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Context, DriveError, Driver, calls::Done, load};
use crate::{call::Ended, machine::Answer, required_tools::can_go_on};

/// How often one that cannot be told, or that no other process looks after, is looked at again.
const LOOK: Duration = Duration::from_millis(250);

/// An execution that a step began, or is to begin.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) task: Task,
    attempt: Attempt,
    id: ExecutionId,
    plan: PlanId,
    request: RequestId,
    options: ExecutionOptions,
    parent: Parent,
    /// Whether it is to stop, because its parent does.
    is_stopped: bool,
    /// Whether it has said that it is over. Then its log knows that, even where its head lags:
    /// it does not say so again.
    has_ended: bool,
}

impl Child {
    /// Returns the child of a task that is under way.
    pub(super) fn of(execution: &Execution, task: Task) -> Option<Self> {
        let state = execution.task(task)?;
        let StepState::Running { attempt, how: AttemptKind::Executing { child } } = state.state
        else {
            return None;
        };
        let step = execution.plan().step(task.step);
        let callee = step.call_of_part(task.part);
        let StepKind::Plan(plan) = callee.kind else { return None };
        let own = execution.options();
        let options = ExecutionOptions {
            mode: own.mode,
            max_parallel: own.max_parallel,
            strict_templates: own.strict_templates,
            priority: own.priority,
            compensate_on_failure: own.compensate_on_failure,
            deadline_ms: callee.policy.explicit_timeout_ms(),
            input: state.parameters.clone().unwrap_or_default(),
            ..ExecutionOptions::default()
        };
        let depth = execution.parent().map_or(0, |it| it.depth) + 1;
        let (id, part) = (execution.id(), task.part);
        let parent = Parent { execution: id, step: step.id.clone(), part, attempt, depth };
        let request = execution.request();
        let is_stopped = matches!(execution.phase(), Phase::Cancelling | Phase::Expired);
        let has_ended = false;
        let it = Self {
            task,
            attempt,
            id: child,
            plan,
            request,
            options,
            parent,
            is_stopped,
            has_ended,
        };
        Some(it)
    }

    /// Begins the child if nobody has, and says what came of it if it is over.
    async fn attend(self, context: Arc<Context>) -> Seen {
        loop {
            let is_seen = match self.look(&context).await {
                Ok(Some(result)) => {
                    let bytes = result.as_ref().map_or(256, |it| json::json_size(&it.output));
                    let (task, attempt) = (self.task, self.attempt);
                    let ended = Ended { task, attempt, result, bytes, is_gone: false };
                    return Seen::Over(ended);
                }
                Ok(None) if context.is_alone || self.has_ended => true,
                Ok(None) => return Seen::GoesOn,
                Err(err) => {
                    warn!(child = %self.id, %err, "cannot look after a child yet");
                    false
                }
            };
            time::sleep(LOOK).await;
            if context.drain.is_cancelled() && !self.has_ended && !self.goes_on(&context).await {
                return if is_seen { Seen::GoesOn } else { Seen::Nothing };
            }
        }
    }

    /// Returns whether the child is still driven by a worker that is about to end.
    async fn goes_on(&self, context: &Context) -> bool {
        match context.store.head(self.id).await {
            Ok(head) => head.is_some_and(|it| it.owner == Some(context.worker)),
            Err(_) => false,
        }
    }

    async fn look(
        &self,
        context: &Context,
    ) -> Result<Option<Result<Answer, ToolError>>, DriveError> {
        let Some(head) = context.store.head(self.id).await? else {
            let Some(plan) = context.store.plan(self.plan).await? else {
                let why = format!("its plan `{}` is not in the store any more", self.plan);
                return Ok(Some(Err(ToolError::new(ErrorCode::UNAVAILABLE, why).without_retry())));
            };
            let mut created = Created::new(self.plan, self.request, self.options.clone());
            created.parent = Some(self.parent.clone());
            context.control.start_child(self.id, &plan, created).await?;
            self.stop(context).await?;
            return Ok(None);
        };
        if head.state.is_finished() || self.has_ended {
            let child = load(&*context.store, self.id).await?;
            if child.state().is_finished() {
                return Ok(Some(result(&child, context.options.output_bytes)));
            }
        }
        if context.is_alone {
            context.adopt(&head).await?;
        }
        self.stop(context).await?;
        Ok(None)
    }

    async fn stop(&self, context: &Context) -> Result<(), StoreError> {
        if !self.is_stopped {
            return Ok(());
        }
        let reason = Some(format!("`{}`, which it is a part of, stops", self.parent.execution));
        context.control.tell(self.id, Command::Cancel { reason }).await
    }
}

impl Context {
    /// Takes an execution that nobody has, where this process is the only one that would.
    async fn adopt(&self, head: &ExecutionHead) -> Result<(), StoreError> {
        let is_free = match head.owner {
            None => true,
            Some(owner) if owner == self.worker => false,
            Some(owner) => !self.store.workers(self.clock.now()).await?.contains(&owner),
        };
        if !is_free || head.state.is_finished() {
            return Ok(());
        }
        let can_go_on = can_go_on(&*self.store, &self.toolbox, head, self.clock.now()).await?;
        if can_go_on || !self.store.inbox(Some(head.execution)).await?.is_empty() {
            self.handle.claim(head.execution).await;
        }
        Ok(())
    }
}

/// What a look after a child has found.
#[derive(Debug)]
pub(super) enum Seen {
    /// It is over.
    Over(Ended),
    /// It is not over, and will say so when it is.
    GoesOn,
    /// The worker ends, and the look did not succeed: perhaps the child has not even begun.
    Nothing,
}

/// What a driver knows of the children that its steps have begun.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// Those that were told to stop.
    stopped: BTreeSet<Task>,
    /// Until when it is worth waiting for one to end before the parent is put aside.
    pub(super) until: Option<time::Instant>,
    /// The looks that are under way, one a task.
    looks: BTreeMap<Task, Look>,
    /// How many looks there were.
    looked: u64,
    /// Whether a look came to nothing, so that somebody else must look.
    is_unseen: bool,
}

/// A look after a child that is under way.
#[derive(Debug)]
struct Look {
    number: u64,
    child: ExecutionId,
    has_ended: bool,
    is_stopped: bool,
    /// The words in the inbox that say that it has ended.
    words: BTreeSet<CommandId>,
    /// Ends the look, because another one that knows more takes its place.
    cut: CancellationToken,
}

impl Children {
    /// Notes what a look has found. Returns the words that have led to it, which are not needed any
    /// more.
    pub(super) fn seen(&mut self, task: Task, number: u64, seen: &Seen) -> BTreeSet<CommandId> {
        self.is_unseen |= matches!(seen, Seen::Nothing);
        if self.looks.get(&task).is_none_or(|it| it.number != number) {
            return BTreeSet::new();
        }
        self.looks.remove(&task).map(|it| it.words).unwrap_or_default()
    }

    /// Returns whether somebody else must look after a child.
    pub(super) fn is_unseen(&self) -> bool {
        self.is_unseen
    }

    /// Keeps a word until the look after the child that it tells of has succeeded.
    fn keep(&mut self, task: Task, word: CommandId) {
        if let Some(look) = self.looks.get_mut(&task) {
            look.words.insert(word);
        }
    }

    /// Returns the number of a new look after `child`, and what cuts it off; nothing if one that
    /// knows as much is under way. What an earlier one knew the new one knows, too.
    fn look(&mut self, child: &mut Child) -> Option<(u64, CancellationToken)> {
        let mut words = BTreeSet::new();
        if let Some(before) = self.looks.get_mut(&child.task)
            && before.child == child.id
        {
            let knows_more =
                (child.has_ended && !before.has_ended) || (child.is_stopped && !before.is_stopped);
            if !knows_more {
                return None;
            }
            child.has_ended |= before.has_ended;
            child.is_stopped |= before.is_stopped;
            words = mem::take(&mut before.words);
        }
        self.looked += 1;
        let (number, cut) = (self.looked, CancellationToken::new());
        let look = Look {
            number,
            child: child.id,
            has_ended: child.has_ended,
            is_stopped: child.is_stopped,
            words,
            cut: cut.clone(),
        };
        if let Some(before) = self.looks.insert(child.task, look) {
            before.cut.cancel();
        }
        Some((number, cut))
    }
}

impl Driver {
    /// Looks after every child that is under way, as whoever has just taken the parent does.
    pub(super) fn attend_all(&mut self) {
        let delegated = self.execution.agenda().in_children().iter();
        let delegated: Vec<Task> = delegated.copied().collect();
        for task in delegated {
            self.attend(task);
        }
    }

    /// Looks after the child that has just ended, as a word in the inbox says. The word is taken
    /// from there with what the child came to, or at once if nothing waits for that.
    pub(super) fn attend_ended(&mut self, child: ExecutionId, word: CommandId) {
        let is_it = |task: &Task| self.execution.task(*task).and_then(|it| it.child) == Some(child);
        let task = self.execution.agenda().in_children().iter().copied().find(is_it);
        match task.and_then(|it| Child::of(&self.execution, it)) {
            Some(child) => {
                let task = child.task;
                self.look_after(Child { has_ended: true, ..child });
                self.children.keep(task, word);
            }
            None => self.pending.heard(word),
        }
    }

    /// Tells every child to stop that was not told.
    pub(super) fn stop_children(&mut self) {
        let delegated = self.execution.agenda().in_children().iter();
        let left: Vec<Task> =
            delegated.filter(|it| !self.children.stopped.contains(it)).copied().collect();
        for task in left {
            if !self.is_held(task) {
                self.attend(task);
            }
        }
    }

    /// Looks after the child of a task.
    pub(super) fn attend(&mut self, task: Task) {
        if let Some(child) = Child::of(&self.execution, task) {
            self.look_after(child);
        }
    }

    /// Looks after a child, unless somebody does who knows as much: what it came to is read once.
    fn look_after(&mut self, mut child: Child) {
        if child.is_stopped {
            self.children.stopped.insert(child.task);
        }
        self.children.until = Some(time::Instant::now() + self.context.options.park_after);
        let task = child.task;
        let Some((number, cut)) = self.children.look(&mut child) else { return };
        let context = Arc::clone(&self.context);
        self.attempts.spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => Done::Nothing,
                seen = child.attend(context) => Done::Looked(task, number, seen),
            }
        });
    }
}

/// Tells the parent of an execution that it is over, and lets go of the execution then.
pub(crate) async fn tell_parent(
    context: &Context,
    execution: &Execution,
) -> Result<(), StoreError> {
    let Some(parent) = execution.parent() else { return Ok(()) };
    let command = Command::ChildEnded { child: execution.id() };
    loop {
        let head = context.store.head(parent.execution).await?;
        if head.is_none_or(|it| it.state.is_finished()) {
            break;
        }
        match context.control.tell(parent.execution, command.clone()).await {
            Ok(()) => break,
            // So many have ended that the parent has enough to do: it is told a little later.
            Err(StoreError::Full { .. }) => time::sleep(LOOK).await,
            Err(err) => return Err(err),
        }
    }
    context.store.put_head(ExecutionHead::from_execution(execution, None, None)).await
}

/// Reads what a child that is over means for its parent's step.
fn result(child: &Execution, most: usize) -> Result<Answer, ToolError> {
    match child.state() {
        ExecutionState::Completed => {
            let output = child.outputs();
            let bytes = json::json_size(&output);
            if bytes > most {
                let why = format!(
                    "its steps returned {bytes} bytes, the most is {most}: let them return less"
                );
                return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, why));
            }
            Ok(output.into())
        }
        ExecutionState::Cancelled => {
            let why = format!("`{}` was cancelled", child.id());
            Err(ToolError::new(ErrorCode::CANCELLED, why))
        }
        _ => Err(failure(child)),
    }
}

/// Returns why a child failed of which no step had to succeed and did not.
fn failed_as_a_whole(child: &Execution) -> ToolError {
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

/// Returns the first failure that made a child fail.
fn failure(child: &Execution) -> ToolError {
    let steps = child.steps().iter().enumerate();
    let failed = steps.filter_map(|(at, step)| match &step.state {
        StepState::Failed(error) => Some((child.plan().step(StepNumber::new(at)), step, error)),
        _ => None,
    });
    let must_succeed = |it: OnError| matches!(it, OnError::Fail | OnError::Wait);
    let failed = failed.filter(|(planned, ..)| must_succeed(planned.policy.on_error));
    match failed.min_by_key(|(_, step, _)| step.finished_at) {
        Some((planned, _, error)) => {
            let message = format!("`{}` of `{}`: {}", planned.id, child.id(), error.message);
            // The child has ended: whatever its calls did, nothing of it will happen later.
            ToolError { is_definite: true, message: message.as_str().into(), ..error.clone() }
        }
        None if child.missed_deadline() => {
            let why = format!("the time of `{}` was up", child.id());
            ToolError::new(ErrorCode::DEADLINE, why)
        }
        None => failed_as_a_whole(child),
    }
}
