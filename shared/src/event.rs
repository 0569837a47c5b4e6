//! Events. An execution's log of events is the only truth about the execution.
//!
//! The JSON of events is a stored format. If a name changes, the old name stays as an alias, and a
//! new field needs a default, so that old logs stay readable.

mod size;
mod unknown_call;

use std::{io::Write, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::unknown_call::{
    CallKey, CallPlace, Settled, SettledCall, Settlement, hash_parameters, idempotency_key,
};
use crate::{
    actor::Actor,
    clock::Timestamp,
    execution::ExecutionOptions,
    id::{Attempt, CommandId, Epoch, ExecutionId, Part, PlanId, RequestId, Seq, StepId, WorkerId},
    tool::{Effect, Progress, ToolError},
    trace::SpanContext,
};

/// An event with its position and time.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    /// The position in the log. A store keeps only the position of a document's first event.
    pub seq: Seq,
    /// The time by the writer's clock. Only `seq` orders the events of a log.
    pub at: Timestamp,
    /// The caller whose command caused the event. `None` for events that no command caused, and for
    /// events that earlier versions of Faber recorded.
    pub by: Option<Arc<Actor>>,
    pub event: Event,
}

/// An event in the life of an execution. An event with a `part` is about an item of a step's list,
/// or about a compensation, and not about the whole step.
///
/// `command` is the inbox command that caused an event. The log keeps it, so that the same command
/// has no second effect.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    Created(Box<Created>),
    /// A worker claimed the execution. Appends of every earlier worker fail from now on.
    Claimed(Claimed),
    /// An attempt starts. Recorded before a tool with an effect is called.
    StepStarted(StepStarted),
    /// The attempt succeeded: for example the tool returned a result, or the signal arrived. The
    /// step is finished.
    StepSucceeded {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        attempt: Attempt,
        /// The result. Absent if it is the list of the items' results.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "deserialize_nullable"
        )]
        output: Option<Arc<Value>>,
        /// `true` if an earlier call with the same parameters returned the result.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cached: bool,
        /// The end of the text that a command tool wrote to standard error, if it wrote any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr: Option<String>,
    },
    StepProgress {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        attempt: Attempt,
        progress: Progress,
    },
    /// A dry run checked the parameters of a step instead of calling its tool.
    StepChecked {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        /// The parameters. Templates that read outputs stay as they were written.
        parameters: Arc<Value>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The attempt failed, and another attempt is planned.
    StepRetryScheduled {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        attempt: Attempt,
        error: ToolError,
        /// The earliest time of the next attempt.
        #[serde(with = "chrono::serde::ts_microseconds")]
        until: Timestamp,
    },
    /// The attempt was interrupted, and the step can run again.
    ///
    /// Either the worker died during the attempt, or the tool disappeared before it was called.
    StepInterrupted {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        attempt: Attempt,
        /// The reason why the tool was not called. Absent if the worker died.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolError>,
    },
    /// The step failed, and there will be no further attempt. The step is finished.
    StepFailed {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        attempt: Attempt,
        error: ToolError,
        /// The command by which a person refused the step. It prevents a second effect of the same
        /// command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<CommandId>,
    },
    /// The step will not run. It is finished.
    StepSkipped {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        reason: SkipReason,
    },
    /// The step waits for a person or a signal.
    StepWaiting {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        reason: WaitReason,
        /// The rendered parameters.
        parameters: Arc<Value>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// A person approved the step, or asked for another attempt. (A refusal fails the step.)
    StepApproved {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
        command: CommandId,
    },
    /// A person decided how a call with an unknown outcome ended. The step is finished.
    ///
    /// Without a command, the decision is about an item's call in an earlier execution.
    StepSettled {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// The attempt that made the call.
        attempt: Attempt,
        outcome: Settled,
        /// The output of the call. Absent if the call had no effect.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "deserialize_nullable"
        )]
        output: Option<Arc<Value>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
        /// The command that caused the event. Absent if the decision comes from the execution that
        /// this execution repeats.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<CommandId>,
    },
    /// The step was stopped, or will not run. It is finished.
    ///
    /// Either the execution was cancelled, or it failed before every item of the step's list had
    /// run.
    StepCancelled {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
    },
    /// A signal arrived. If a step waits for it, the step succeeds with its payload. Otherwise the
    /// execution keeps the signal for a later step.
    SignalReceived {
        name: String,
        payload: Arc<Value>,
        command: CommandId,
    },
    /// A signal arrived, but the execution already keeps the maximum number of signals.
    SignalRefused {
        name: String,
        command: CommandId,
    },
    /// A command changed nothing, such as `resume` for an execution that is not paused.
    ///
    /// The command is recorded, so that it has no effect later either.
    CommandIgnored {
        /// The command: `pause`, `resume`, `approve`, `reject` or `settle`.
        asked: String,
        command: CommandId,
    },
    CancelRequested {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The execution fails as a whole, and no further step starts.
    ///
    /// Either its input lacks values that templates need, or the store can never write the next
    /// event.
    ExecutionFailed {
        error: ToolError,
    },
    DeadlinePassed,
    /// A worker found that the waits were recorded by a clock that was ahead, and shortened them.
    ///
    /// Each wait that began after the time of this event starts again now, with its full length. So
    /// does the deadline, if the execution started after that time. A planned start keeps its time.
    WaitsShortened {
        /// The clock was ahead by at least this many milliseconds.
        #[serde(rename = "aheadMs", alias = "ahead_ms")]
        ahead_ms: u64,
    },
    /// The execution was paused. No further step starts.
    Paused {
        command: CommandId,
    },
    Resumed {
        command: CommandId,
    },
    /// The execution did not succeed. Now it undoes its successful steps that have a compensation,
    /// latest first.
    CompensationStarted,
    /// Every step is finished. No event follows.
    Finished {
        outcome: Outcome,
    },
}

/// The plan of an execution, and its options.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    #[serde(rename = "planId", alias = "plan")]
    pub plan: PlanId,
    #[serde(rename = "requestId", alias = "request")]
    pub request: RequestId,
    pub options: ExecutionOptions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The execution that this execution repeats, in whole or in part.
    #[serde(default, alias = "retry_of", skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<ExecutionId>,
    /// `true` if the execution repeats `retry_of` with a new plan. Earlier versions did not record
    /// this.
    #[serde(default, rename = "replan", skip_serializing_if = "std::ops::Not::not")]
    pub is_replan: bool,
    /// The execution that this execution repeats with changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ExecutionId>,
    /// Outputs that this execution reuses from the steps of the execution that it repeats. They
    /// include outputs that a person gave when settling a call or forking the execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reused: Vec<(StepId, Arc<Value>)>,
    /// Idempotency keys of calls in earlier executions whose outcome is still unknown.
    #[serde(default, alias = "call_keys", skip_serializing_if = "Vec::is_empty")]
    pub call_keys: Vec<CallKey>,
    /// Calls of earlier executions that a person settled as succeeded. The retry does not repeat
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<SettledCall>,
    /// The span of the caller that started the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<SpanContext>>,
}

impl Created {
    /// Makes the event of an execution without parent or reused outputs.
    pub fn new(plan: PlanId, request: RequestId, options: ExecutionOptions) -> Self {
        Self {
            plan,
            request,
            options,
            parent: None,
            retry_of: None,
            is_replan: false,
            forked_from: None,
            reused: Vec::new(),
            call_keys: Vec::new(),
            settled: Vec::new(),
            trace: None,
        }
    }
}

/// The step that started a child execution.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    #[serde(rename = "executionId", alias = "execution")]
    pub execution: ExecutionId,
    #[serde(rename = "stepId", alias = "step")]
    pub step: StepId,
    #[serde(default, skip_serializing_if = "Part::is_whole")]
    pub part: Part,
    pub attempt: Attempt,
    /// The number of executions above the child: its parent, the parent of its parent, and so on.
    pub depth: u32,
}

/// A claim of an execution by a worker.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    pub worker: WorkerId,
    /// The name of the worker's node, for people.
    pub node: Arc<str>,
    pub epoch: Epoch,
    /// `true` if the worker already owned the execution and claims it again because its lease ran
    /// out. Running attempts continue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renewed: bool,
}

/// The start of an attempt.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepStarted {
    #[serde(rename = "stepId", alias = "step")]
    pub step: StepId,
    #[serde(default, skip_serializing_if = "Part::is_whole")]
    pub part: Part,
    pub attempt: Attempt,
    /// The rendered parameters.
    pub parameters: Arc<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The wake-up time of a sleeping step.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "chrono::serde::ts_microseconds_option"
    )]
    pub until: Option<Timestamp>,
    /// The number of items of a step that repeats for a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// The child execution of a step that executes a plan.
    #[serde(
        default,
        rename = "childExecutionId",
        alias = "child",
        skip_serializing_if = "Option::is_none"
    )]
    pub child: Option<ExecutionId>,
    /// The idempotency key of an earlier execution's call, which this attempt sends again because
    /// the outcome of that call is unknown.
    #[serde(
        default,
        rename = "idempotencyKey",
        alias = "key",
        skip_serializing_if = "Option::is_none"
    )]
    pub key: Option<Arc<str>>,
    /// The effect of the call, if the tool's effect has changed since planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// The reason why a step did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A step on which this step depends did not succeed.
    Dependency,
    /// The execution failed, or its deadline passed, before the step started.
    ExecutionFailed,
    /// The step's condition is false.
    Condition,
    /// The execution is a dry run, which calls no tool.
    DryRun,
}

/// The reason why a step waits.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum WaitReason {
    /// A person must approve the step before it starts.
    Approval,
    Signal {
        name: String,
        /// The end of the wait, if the plan limits it.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "chrono::serde::ts_microseconds_option"
        )]
        until: Option<Timestamp>,
    },
    /// The step failed, and a person must decide whether the step is attempted again.
    Decision { error: ToolError },
}

/// The outcome of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No required step failed.
    Completed,
    /// A required step failed, the deadline passed, or the execution failed as a whole.
    Failed,
    /// The execution was cancelled.
    Cancelled,
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Event {
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Finished { .. })
    }

    pub fn step(&self) -> Option<&StepId> {
        match self {
            Self::StepStarted(StepStarted { step, .. })
            | Self::StepSucceeded { step, .. }
            | Self::StepRetryScheduled { step, .. }
            | Self::StepInterrupted { step, .. }
            | Self::StepFailed { step, .. }
            | Self::StepSkipped { step, .. }
            | Self::StepWaiting { step, .. }
            | Self::StepApproved { step, .. }
            | Self::StepSettled { step, .. }
            | Self::StepProgress { step, .. }
            | Self::StepChecked { step, .. }
            | Self::StepCancelled { step, .. } => Some(step),
            Self::Created(_)
            | Self::Claimed(_)
            | Self::SignalReceived { .. }
            | Self::SignalRefused { .. }
            | Self::CommandIgnored { .. }
            | Self::CancelRequested { .. }
            | Self::ExecutionFailed { .. }
            | Self::DeadlinePassed
            | Self::WaitsShortened { .. }
            | Self::Paused { .. }
            | Self::Resumed { .. }
            | Self::CompensationStarted
            | Self::Finished { .. } => None,
        }
    }

    pub fn part(&self) -> Part {
        match self {
            Self::StepStarted(StepStarted { part, .. })
            | Self::StepSucceeded { part, .. }
            | Self::StepRetryScheduled { part, .. }
            | Self::StepInterrupted { part, .. }
            | Self::StepFailed { part, .. }
            | Self::StepSkipped { part, .. }
            | Self::StepWaiting { part, .. }
            | Self::StepApproved { part, .. }
            | Self::StepSettled { part, .. }
            | Self::StepProgress { part, .. }
            | Self::StepCancelled { part, .. } => *part,
            _ => Part::WHOLE,
        }
    }

    pub fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::StepStarted(StepStarted { attempt, .. })
            | Self::StepSucceeded { attempt, .. }
            | Self::StepRetryScheduled { attempt, .. }
            | Self::StepInterrupted { attempt, .. }
            | Self::StepProgress { attempt, .. }
            | Self::StepSettled { attempt, .. }
            | Self::StepFailed { attempt, .. } => Some(*attempt),
            _ => None,
        }
    }

    /// Returns the command that caused the event, if it must take effect only once.
    pub fn command(&self) -> Option<CommandId> {
        match self {
            Self::StepApproved { command, .. }
            | Self::SignalReceived { command, .. }
            | Self::SignalRefused { command, .. }
            | Self::CommandIgnored { command, .. }
            | Self::StepFailed { command: Some(command), .. }
            | Self::StepSettled { command: Some(command), .. }
            | Self::Paused { command }
            | Self::Resumed { command } => Some(*command),
            _ => None,
        }
    }

    /// Returns the event's name in logs and in the API.
    pub fn kind(&self) -> &'static str {
        if self.part().undo {
            return self.compensation_kind();
        }
        match self {
            Self::Created(_) => "created",
            Self::Claimed(_) => "claimed",
            Self::StepStarted(_) => "step_started",
            Self::StepSucceeded { .. } => "step_succeeded",
            Self::StepRetryScheduled { .. } => "step_retry_scheduled",
            Self::StepInterrupted { .. } => "step_interrupted",
            Self::StepFailed { .. } => "step_failed",
            Self::StepSkipped { .. } => "step_skipped",
            Self::StepWaiting { .. } => "step_waiting",
            Self::StepApproved { .. } => "step_approved",
            Self::StepSettled { .. } => "step_settled",
            Self::StepCancelled { .. } => "step_cancelled",
            Self::StepProgress { .. } => "step_progress",
            Self::StepChecked { .. } => "step_checked",
            Self::CompensationStarted => "compensation_started",
            Self::SignalReceived { .. } => "signal_received",
            Self::SignalRefused { .. } => "signal_refused",
            Self::CommandIgnored { .. } => "command_ignored",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::ExecutionFailed { .. } => "execution_failed",
            Self::DeadlinePassed => "deadline_passed",
            Self::WaitsShortened { .. } => "waits_shortened",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Finished { .. } => "finished",
        }
    }

    /// Returns the name of an event of a compensation. These names differ so that counts of a
    /// step's calls exclude its compensation.
    fn compensation_kind(&self) -> &'static str {
        match self {
            Self::StepStarted(_) => "step_compensation_started",
            Self::StepSucceeded { .. } => "step_compensated",
            Self::StepRetryScheduled { .. } => "step_compensation_retry_scheduled",
            Self::StepInterrupted { .. } => "step_compensation_interrupted",
            Self::StepProgress { .. } => "step_compensation_progress",
            _ => "step_compensation_failed",
        }
    }
}

/// Reads an output that is present as `Some`, even if it is null, so that a null output differs
/// from an absent output.
fn deserialize_nullable<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<Value>>, D::Error> {
    Arc::<Value>::deserialize(deserializer).map(Some)
}

/// An event as a store keeps it. It has no position, because the position follows from the document
/// that contains the event.
#[derive(Deserialize)]
struct StoredEvent {
    #[serde(with = "chrono::serde::ts_microseconds")]
    at: Timestamp,
    #[serde(default)]
    by: Option<Arc<Actor>>,
    #[serde(flatten)]
    event: Event,
}

/// Serializes events to the JSON array that stores keep: `[{"at":…,"type":…,…},…]`.
pub fn encode_events(events: &[RecordedEvent]) -> String {
    let mut json = Vec::with_capacity(256 * events.len());
    json.push(b'[');
    for (n, RecordedEvent { at: recorded_at, by, event, .. }) in events.iter().enumerate() {
        let separator = if n == 0 { "" } else { "," };
        write!(json, "{separator}{{\"at\":{}", recorded_at.timestamp_micros())
            .expect("memory is writable");
        if let Some(by) = by {
            json.extend_from_slice(b",\"by\":");
            serde_json::to_writer(&mut json, by).expect("actors are JSON");
        }
        let object = json.len();
        serde_json::to_writer(&mut json, event).expect("events are JSON");
        // Replaces the opening brace, because the event's fields continue the object that begins
        // with `at`.
        json[object] = b',';
    }
    json.push(b']');
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// Parses the JSON array that stores keep. `first` is the position of its first event.
pub fn decode_events(first: Seq, text: &str) -> Result<Vec<RecordedEvent>, serde_json::Error> {
    let restored: Vec<StoredEvent> = serde_json::from_str(text)?;
    let numbered = restored.into_iter().enumerate();
    Ok(numbered
        .map(|(n, StoredEvent { at, by, event })| RecordedEvent {
            seq: first.advance_by(n),
            at,
            by,
            event,
        })
        .collect())
}
