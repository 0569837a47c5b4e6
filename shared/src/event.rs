//! What happened. The log of these is the only truth about an execution.

mod size;

use std::{io::Write, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    clock::Timestamp,
    execution::ExecutionOptions,
    id::{Attempt, CommandId, Epoch, ExecutionId, Part, PlanId, RequestId, Seq, StepId, WorkerId},
    tool::{Progress, ToolError},
};

/// An event, where and when it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Where in the log. A store keeps it once an append, not once an event.
    pub seq: Seq,
    /// When, by the clock of the writer. Never used for ordering.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// Something that happened to an execution. Past tense, never edited, never removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Someone asked for the plan to be run.
    Created(Created),
    /// A worker took the execution. Fences every earlier worker.
    Claimed(Claimed),
    /// An attempt is about to begin. Recorded before a tool with an effect is called.
    StepStarted(StepStarted),
    /// The tool returned. The step is over.
    StepSucceeded {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// Which try it was.
        attempt: Attempt,
        /// What the tool returned. Nothing where it is the list of what the items returned.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "even_if_null"
        )]
        output: Option<Arc<Value>>,
        /// Whether it was returned earlier, to another call with the same parameters.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cached: bool,
        /// The end of what it wrote to standard error, where it is a command that wrote anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr: Option<String>,
    },
    /// The tool says how far it is.
    StepProgress {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// Which try it is.
        attempt: Attempt,
        /// How far.
        progress: Progress,
    },
    /// The parameters of a step that will not be called, in a dry run.
    StepChecked {
        /// The step.
        step: StepId,
        /// The parameters; templates over outputs stand as they were written.
        parameters: Arc<Value>,
        /// What is worth knowing about them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The attempt failed and there will be another.
    StepRetryScheduled {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// Which try failed.
        attempt: Attempt,
        /// Why.
        error: ToolError,
        /// When the next attempt may start.
        #[serde(with = "chrono::serde::ts_microseconds")]
        until: Timestamp,
    },
    /// The worker died during the attempt, and the step may be repeated; or the tool was gone before
    /// it was called, and the step begins again once it is there.
    StepInterrupted {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// Which try it was.
        attempt: Attempt,
        /// Why nothing was called; nothing where the worker died.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolError>,
    },
    /// The step failed and there will be no other attempt. The step is over.
    StepFailed {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// Which try it was.
        attempt: Attempt,
        /// Why.
        error: ToolError,
        /// What made it happen, where a person said no, so that it happens once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<CommandId>,
    },
    /// The step will not run. The step is over.
    StepSkipped {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// Why.
        reason: SkipReason,
    },
    /// The step waits for somebody.
    StepWaiting {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// For what.
        reason: WaitReason,
        /// The parameters as rendered.
        parameters: Arc<Value>,
        /// What is worth knowing about them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// A person agreed, or asked for another try. (A refusal fails the step.)
    StepApproved {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
        /// What the person said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
        /// What made it happen, so that it happens once.
        command: CommandId,
    },
    /// The step was stopped, or will not run, because the execution was cancelled; or it only slept
    /// when the execution failed. The step is over.
    StepCancelled {
        /// The step.
        step: StepId,
        /// Which part of it.
        #[serde(default, skip_serializing_if = "Part::is_whole")]
        part: Part,
    },
    /// A signal came. A step that waits for it takes it; otherwise it is kept.
    SignalReceived {
        /// Its name.
        name: String,
        /// What it brought.
        payload: Arc<Value>,
        /// What made it happen, so that it happens once.
        command: CommandId,
    },
    /// A signal came, and too many are kept already.
    SignalRefused {
        /// Its name.
        name: String,
        /// What made it happen, so that it happens once.
        command: CommandId,
    },
    /// Somebody asked for something that changed nothing: to go on where nothing was paused, or to
    /// agree to what asked nobody. It is kept, so that it changes nothing later either.
    CommandIgnored {
        /// What was asked for: `pause`, `resume`, `approve` or `reject`.
        asked: String,
        /// What made it happen, so that it happens once.
        command: CommandId,
    },
    /// Someone asked for the execution to stop.
    CancelRequested {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The execution fails as a whole: its input lacks what templates need, or what came next can
    /// never be written. No further step starts.
    ExecutionFailed {
        /// Why.
        error: ToolError,
    },
    /// The execution's time is up.
    DeadlinePassed,
    /// No further step starts until somebody resumes.
    Paused {
        /// What made it happen, so that it happens once.
        command: CommandId,
    },
    /// Steps start again.
    Resumed {
        /// What made it happen, so that it happens once.
        command: CommandId,
    },
    /// What succeeded is undone, the latest first: the execution did not end well.
    CompensationStarted,
    /// Every step is over. Nothing follows.
    Finished {
        /// How it ended.
        outcome: Outcome,
    },
}

/// What an execution is to do, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Created {
    /// The plan to run.
    pub plan: PlanId,
    /// The request it belongs to.
    pub request: RequestId,
    /// How.
    pub options: ExecutionOptions,
    /// The step that began it, where it is part of another execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The execution that it does again, from some step on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<ExecutionId>,
    /// What steps returned there that are not done again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reused: Vec<(StepId, Arc<Value>)>,
}

impl Created {
    /// An execution that stands for itself.
    pub fn new(plan: PlanId, request: RequestId, options: ExecutionOptions) -> Self {
        Self { plan, request, options, parent: None, retry_of: None, reused: Vec::new() }
    }
}

/// The step that began an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The execution that it is a step of.
    pub execution: ExecutionId,
    /// The step.
    pub step: StepId,
    /// Which part of it.
    #[serde(default, skip_serializing_if = "Part::is_whole")]
    pub part: Part,
    /// Which try.
    pub attempt: Attempt,
    /// How many executions are above this one.
    pub depth: u32,
}

/// Who took an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claimed {
    /// The worker.
    pub worker: WorkerId,
    /// The name of its machine, for people.
    pub node: Arc<str>,
    /// The number of this claim.
    pub epoch: Epoch,
    /// Whether it had the execution already and only says so once more, because its lease ran out
    /// in between: what is under way goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renewed: bool,
}

/// An attempt that is about to begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepStarted {
    /// The step.
    pub step: StepId,
    /// Which part of it.
    #[serde(default, skip_serializing_if = "Part::is_whole")]
    pub part: Part,
    /// Which try this is.
    pub attempt: Attempt,
    /// The parameters, with every hole filled.
    pub parameters: Arc<Value>,
    /// What is worth knowing about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// For a step that only waits for a time: until when.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "chrono::serde::ts_microseconds_option"
    )]
    pub until: Option<Timestamp>,
    /// For a step that is done for every item of a list: how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// For a step that executes another plan: the execution that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ExecutionId>,
}

/// Why a step did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A step it depends on did not succeed.
    Dependency,
    /// The execution failed before it started.
    ExecutionFailed,
    /// Its condition does not hold.
    Condition,
    /// Nothing is called in a dry run.
    DryRun,
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum WaitReason {
    /// A person's consent before it starts.
    Approval,
    /// A signal of this name.
    Signal {
        /// The name.
        name: String,
        /// Until when, where the plan says for how long.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "chrono::serde::ts_microseconds_option"
        )]
        until: Option<Timestamp>,
    },
    /// A person's decision after it failed: another try, or not.
    Decision {
        /// How it failed.
        error: ToolError,
    },
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every step that had to succeed did.
    Completed,
    /// Some step failed that must not, or the time was up.
    Failed,
    /// Someone asked it to stop, and it did.
    Cancelled,
}

impl Event {
    /// Returns whether no event can follow this one.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Finished { .. })
    }

    /// Returns the step the event is about, if it is about one.
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
            | Self::Paused { .. }
            | Self::Resumed { .. }
            | Self::CompensationStarted
            | Self::Finished { .. } => None,
        }
    }

    /// Returns the part of the step that the event is about.
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
            | Self::StepProgress { part, .. }
            | Self::StepCancelled { part, .. } => *part,
            _ => Part::WHOLE,
        }
    }

    /// Returns the attempt the event is about, if it is about one.
    pub fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::StepStarted(StepStarted { attempt, .. })
            | Self::StepSucceeded { attempt, .. }
            | Self::StepRetryScheduled { attempt, .. }
            | Self::StepInterrupted { attempt, .. }
            | Self::StepProgress { attempt, .. }
            | Self::StepFailed { attempt, .. } => Some(*attempt),
            _ => None,
        }
    }

    /// Returns the command that made it happen, if one did that must count once.
    pub fn command(&self) -> Option<CommandId> {
        match self {
            Self::StepApproved { command, .. }
            | Self::SignalReceived { command, .. }
            | Self::SignalRefused { command, .. }
            | Self::CommandIgnored { command, .. }
            | Self::StepFailed { command: Some(command), .. }
            | Self::Paused { command }
            | Self::Resumed { command } => Some(*command),
            _ => None,
        }
    }

    /// Returns the word for the event that logs and the API use.
    pub fn kind(&self) -> &'static str {
        if self.part().undo {
            return self.kind_of_undo();
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
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Finished { .. } => "finished",
        }
    }

    /// Returns the word for an event of a compensation: whoever counts calls of a step must not
    /// count those that undo it.
    fn kind_of_undo(&self) -> &'static str {
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

/// Reads an output that may be null, which is not the same as none.
fn even_if_null<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<Value>>, D::Error> {
    Arc::<Value>::deserialize(deserializer).map(Some)
}

/// An event as a store keeps it: its position comes from the append that it is part of.
#[derive(Deserialize)]
struct Restored {
    #[serde(with = "chrono::serde::ts_microseconds")]
    at: Timestamp,
    #[serde(flatten)]
    event: Event,
}

/// Writes events as the JSON array that stores keep: `[{"at":…,"type":…,…},…]`.
pub fn to_json(events: &[Recorded]) -> String {
    let mut json = Vec::with_capacity(256 * events.len());
    json.push(b'[');
    for (n, Recorded { at, event, .. }) in events.iter().enumerate() {
        let separator = if n == 0 { "" } else { "," };
        write!(json, "{separator}{{\"at\":{}", at.timestamp_micros()).expect("memory is writable");
        let object = json.len();
        serde_json::to_writer(&mut json, event).expect("events are JSON");
        // The object that begins here goes on with the one that began before it.
        json[object] = b',';
    }
    json.push(b']');
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// Reads the JSON array that stores keep; its first event is at `first`.
pub fn from_json(first: Seq, text: &str) -> Result<Vec<Recorded>, serde_json::Error> {
    let restored: Vec<Restored> = serde_json::from_str(text)?;
    let numbered = restored.into_iter().enumerate();
    Ok(numbered
        .map(|(n, Restored { at, event })| Recorded { seq: first.plus(n), at, event })
        .collect())
}
