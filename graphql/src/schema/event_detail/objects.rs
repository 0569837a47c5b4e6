use std::sync::Arc;

use async_graphql::{ID, SimpleObject};
use serde_json::Value;
use shared::{
    event::{CallPlace, Event, Parent},
    id::{Attempt, StepId},
    tool::ToolError,
};

use super::super::{
    execution::{ExecutionMode, ExecutionState},
    plan::Effect,
    scalar::DateTime,
    step::SettledOutcome,
    step_progress::Progress,
    text_enums::{EventType, SkipReason, StepWait},
};

/// Fields of every event of a step.
#[derive(SimpleObject)]
pub(super) struct StepFields {
    /// Type of the event.
    #[graphql(name = "type")]
    kind: EventType,
    /// Id of the step within the plan.
    step_id: String,
    /// Index of the item in the step's `forEach` list, from 0. Null if the event is about the step
    /// itself.
    index: Option<u32>,
}

impl StepFields {
    pub(super) fn of(event: &Event) -> Self {
        Self {
            kind: EventType::of(event),
            step_id: event.step().map(StepId::to_string).unwrap_or_default(),
            index: event.part().item,
        }
    }
}

/// Fields of every event of an attempt.
#[derive(SimpleObject)]
pub(super) struct AttemptFields {
    #[graphql(flatten)]
    step: StepFields,
    /// Number of the attempt, from 1.
    attempt: u32,
}

impl AttemptFields {
    pub(super) fn of(event: &Event) -> Self {
        Self {
            step: StepFields::of(event),
            attempt: event.attempt().unwrap_or(Attempt::FIRST).get(),
        }
    }
}

/// Error that an event records.
#[derive(SimpleObject)]
pub(super) struct EventError {
    /// Stable code such as `tool.timeout`.
    code: String,
    /// Message: what happened, and what to do.
    message: String,
    /// True if another attempt can succeed.
    retryable: bool,
}

impl From<&ToolError> for EventError {
    fn from(ToolError { code, message, retryable, .. }: &ToolError) -> Self {
        Self { code: code.to_string(), message: message.to_string(), retryable: *retryable }
    }
}

/// Step that started a child execution.
#[derive(SimpleObject)]
pub(super) struct EventParent {
    /// Id of the parent, `exec_…`.
    execution_id: ID,
    /// Id of the step of the parent.
    step_id: String,
    /// Index of the item in the step's `forEach` list, from 0. Null for a step without a list.
    index: Option<u32>,
    /// Number of the attempt of the parent's step, from 1.
    attempt: u32,
}

impl From<&Parent> for EventParent {
    fn from(Parent { execution, step, part, attempt, .. }: &Parent) -> Self {
        Self {
            execution_id: ID(execution.to_string()),
            step_id: step.to_string(),
            index: part.item,
            attempt: attempt.get(),
        }
    }
}

/// Output that an execution reuses from the execution that it repeats.
#[derive(SimpleObject)]
pub(super) struct EventReusedOutput {
    /// Id of the step within the plan.
    pub(super) step_id: String,
    /// Output of the step.
    pub(super) output: Arc<Value>,
}

/// Call of an earlier execution whose outcome is unknown, or was settled.
#[derive(SimpleObject)]
pub(super) struct EventCall {
    /// Id of the step that made the call, or that started the child execution.
    step_id: String,
    /// Index of the item in the step's `forEach` list, from 0. Null for a step without a list.
    index: Option<u32>,
    /// Call in the child execution. Null if the step itself made the call.
    child: Option<Box<Self>>,
    /// Idempotency key that the call sends again. Null for a settled call, and if `child` is not
    /// null.
    key: Option<String>,
    /// Comment of the person who settled the call. Null without a comment.
    comment: Option<String>,
}

impl EventCall {
    pub(super) fn new(
        CallPlace { step, item, child }: &CallPlace,
        key: Option<&str>,
        comment: Option<&str>,
    ) -> Self {
        Self {
            step_id: step.to_string(),
            index: *item,
            child: child.as_deref().map(|child| Box::new(Self::new(child, None, None))),
            key: key.map(str::to_owned),
            comment: comment.map(str::to_owned),
        }
    }
}

/// Event `created`: the plan of the execution and its options.
#[derive(SimpleObject)]
pub(in crate::schema) struct CreatedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Id of the plan, `plan_…`.
    pub(super) plan_id: ID,
    /// Id of the request, `req_…`.
    pub(super) request_id: ID,
    /// Input of the execution. Null without input.
    pub(super) input: Arc<Value>,
    /// Order in which steps run.
    pub(super) mode: ExecutionMode,
    /// Priority of the execution.
    pub(super) priority: i32,
    /// Maximum number of steps that run at the same time. Null means the default.
    pub(super) max_parallel: Option<u32>,
    /// Time in milliseconds after the start at which the execution fails. Null without a deadline.
    pub(super) deadline_ms: Option<i64>,
    /// True if a template that refers to a missing field fails its step. Null if steps and effects
    /// decide.
    pub(super) strict_templates: Option<bool>,
    /// Time before which no step starts. Null if the execution starts at once.
    pub(super) start_at: Option<DateTime>,
    /// True if Faber undoes successful steps when the execution fails or is cancelled.
    pub(super) compensate_on_failure: bool,
    /// True if the execution only checks the plan.
    pub(super) dry_run: bool,
    /// Step that started the execution. Null for an execution without a parent.
    pub(super) parent: Option<EventParent>,
    /// Id of the execution that this execution repeats, `exec_…`. Null if it repeats none.
    pub(super) retry_of: Option<ID>,
    /// Id of the execution that this execution repeats with changes, `exec_…`. Null unless it is a
    /// fork.
    pub(super) forked_from: Option<ID>,
    /// Outputs that the execution reuses.
    pub(super) reused: Vec<EventReusedOutput>,
    /// Calls of earlier executions whose outcome is unknown. The execution sends their keys again.
    pub(super) call_keys: Vec<EventCall>,
    /// Calls of earlier executions that a person settled as succeeded.
    pub(super) settled: Vec<EventCall>,
}

/// Event `claimed`: a worker claimed the execution.
#[derive(SimpleObject)]
pub(in crate::schema) struct ClaimedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Id of the worker, `work_…`.
    pub(super) worker: String,
    /// Name of the worker's machine.
    pub(super) node: String,
    /// Number of the claim, from 1. Each claim has a higher number than the claim before it.
    pub(super) epoch: i64,
    /// True if the worker owned the execution before and claimed it again after its lease ran out.
    pub(super) renewed: bool,
}

/// Event `step_started`: an attempt started.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepStartedEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Parameters, with all templates rendered. Null for the start of a list.
    pub(super) parameters: Option<Arc<Value>>,
    /// Warnings about the parameters.
    pub(super) warnings: Vec<String>,
    /// End of the sleep. Null unless the step sleeps.
    pub(super) until: Option<DateTime>,
    /// Number of items of the step's list. Null unless this is the start of a list.
    pub(super) items: Option<u32>,
    /// Id of the child execution that the attempt started, `exec_…`. Null for a call of a tool.
    pub(super) child_execution_id: Option<ID>,
    /// Idempotency key of a call in an earlier execution, which this attempt sends again. Null if
    /// the attempt has a new key.
    pub(super) idempotency_key: Option<String>,
    /// Effect of the tool. Null if it is the effect that the tool had when the plan was compiled.
    pub(super) effect: Option<Effect>,
}

/// Event `step_succeeded`: a step, or an item of its list, succeeded.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepSucceededEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Output. Null if the output is null, and for the end of a list, whose items have the outputs.
    pub(super) output: Option<Arc<Value>>,
    /// True if an earlier call with the same parameters returned the output.
    pub(super) cached: bool,
    /// End of the text that a command wrote to standard error. Null if it wrote none.
    pub(super) stderr: Option<String>,
}

/// Event `step_progress`: a tool reported progress.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepProgressEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Report of the tool.
    pub(super) progress: Progress,
}

/// Event `step_checked`: a dry run checked the parameters of a step.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCheckedEvent {
    #[graphql(flatten)]
    pub(super) fields: StepFields,
    /// Parameters. Templates that read outputs stay as they were written.
    pub(super) parameters: Arc<Value>,
    /// Warnings about the parameters.
    pub(super) warnings: Vec<String>,
}

/// Event `step_retry_scheduled`: an attempt failed, and another one will follow.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepRetryScheduledEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Error of the attempt.
    pub(super) error: EventError,
    /// Earliest time of the next attempt.
    pub(super) until: DateTime,
}

/// Event `step_interrupted`: an attempt was interrupted, and the step can run again.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepInterruptedEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Reason why the tool was not called. Null if the worker was lost.
    pub(super) error: Option<EventError>,
}

/// Event `step_failed`: a step failed, and no further attempt follows.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepFailedEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Error of the step.
    pub(super) error: EventError,
}

/// Event `step_skipped`: a step will not run.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepSkippedEvent {
    #[graphql(flatten)]
    pub(super) fields: StepFields,
    /// Reason why the step does not run.
    pub(super) reason: SkipReason,
}

/// Event `step_waiting`: a step waits for a person or a signal.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepWaitingEvent {
    #[graphql(flatten)]
    pub(super) fields: StepFields,
    /// Reason for the wait.
    pub(super) waits_for: StepWait,
    /// Name of the awaited signal. Null if the step waits for a person.
    pub(super) name: Option<String>,
    /// End of the wait for a signal. Null if the wait has no end, or is for a person.
    pub(super) until: Option<DateTime>,
    /// Error about which a person must decide. Null for other waits.
    pub(super) error: Option<EventError>,
    /// Parameters, with all templates rendered.
    pub(super) parameters: Arc<Value>,
    /// Warnings about the parameters.
    pub(super) warnings: Vec<String>,
}

/// Event `step_approved`: a person approved a step, or asked for another attempt.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepApprovedEvent {
    #[graphql(flatten)]
    pub(super) fields: StepFields,
    /// Comment of the person. Null without a comment.
    pub(super) comment: Option<String>,
}

/// Event `step_settled`: a person decided how a call with an unknown outcome ended.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepSettledEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Outcome of the call.
    pub(super) outcome: SettledOutcome,
    /// Output of the call. Null if the output is null, or if the call had no effect.
    pub(super) output: Option<Arc<Value>>,
    /// Comment of the person. Null without a comment.
    pub(super) comment: Option<String>,
}

/// Event `step_cancelled`: a step was stopped, or prevented from starting.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCancelledEvent {
    #[graphql(flatten)]
    pub(super) fields: StepFields,
}

/// Event `step_compensation_started`: the call that undoes a step started.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCompensationStartedEvent {
    #[graphql(flatten)]
    pub(super) event: StepStartedEvent,
}

/// Event `step_compensated`: a step was undone.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCompensatedEvent {
    #[graphql(flatten)]
    pub(super) event: StepSucceededEvent,
}

/// Event `step_compensation_progress`: the tool of the call that undoes a step reported progress.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCompensationProgressEvent {
    #[graphql(flatten)]
    pub(super) event: StepProgressEvent,
}

/// Event `step_compensation_retry_scheduled`: the call that undoes a step failed, and another
/// attempt will follow.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCompensationRetryScheduledEvent {
    #[graphql(flatten)]
    pub(super) event: StepRetryScheduledEvent,
}

/// Event `step_compensation_interrupted`: the call that undoes a step was interrupted, and can run
/// again.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCompensationInterruptedEvent {
    #[graphql(flatten)]
    pub(super) event: StepInterruptedEvent,
}

/// Event `step_compensation_failed`: the call that undoes a step failed, and no further attempt
/// follows.
#[derive(SimpleObject)]
pub(in crate::schema) struct StepCompensationFailedEvent {
    #[graphql(flatten)]
    pub(super) fields: AttemptFields,
    /// Error of the call. Null if the call was stopped.
    pub(super) error: Option<EventError>,
}

/// Event `signal_received`: a signal arrived.
#[derive(SimpleObject)]
pub(in crate::schema) struct SignalReceivedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Name of the signal.
    pub(super) name: String,
    /// Payload of the signal. Null without a payload.
    pub(super) payload: Arc<Value>,
}

/// Event `signal_refused`: a signal was not stored, because too many are stored.
#[derive(SimpleObject)]
pub(in crate::schema) struct SignalRefusedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Name of the signal.
    pub(super) name: String,
}

/// Event `command_ignored`: a command changed nothing.
#[derive(SimpleObject)]
pub(in crate::schema) struct CommandIgnoredEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Command: `pause`, `resume`, `approve`, `reject` or `settle`.
    pub(super) asked: String,
}

/// Event `cancel_requested`: a caller asked for a cancellation.
#[derive(SimpleObject)]
pub(in crate::schema) struct CancelRequestedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Reason of the caller. Null without a reason.
    pub(super) reason: Option<String>,
}

/// Event `execution_failed`: the execution failed as a whole.
#[derive(SimpleObject)]
pub(in crate::schema) struct ExecutionFailedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Error of the execution.
    pub(super) error: EventError,
}

/// Event `deadline_passed`: the deadline of the execution passed.
#[derive(SimpleObject)]
pub(in crate::schema) struct DeadlinePassedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
}

/// Event `waits_shortened`: a worker shortened waits that a wrong clock had recorded.
#[derive(SimpleObject)]
pub(in crate::schema) struct WaitsShortenedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Milliseconds by which the clock was ahead, or more.
    pub(super) ahead_ms: i64,
}

/// Event `paused`: the execution was paused.
#[derive(SimpleObject)]
pub(in crate::schema) struct PausedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
}

/// Event `resumed`: the execution was resumed.
#[derive(SimpleObject)]
pub(in crate::schema) struct ResumedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
}

/// Event `compensation_started`: the execution began to undo its steps.
#[derive(SimpleObject)]
pub(in crate::schema) struct CompensationStartedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
}

/// Event `finished`: the execution finished.
#[derive(SimpleObject)]
pub(in crate::schema) struct FinishedEvent {
    /// Type of the event.
    #[graphql(name = "type")]
    pub(super) kind: EventType,
    /// Final state of the execution.
    pub(super) state: ExecutionState,
}
