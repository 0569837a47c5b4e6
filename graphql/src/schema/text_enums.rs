//! Enums for fields that are strings. Such a field keeps its type, and a field beside it, with the
//! ending `Enum`, has the enum. The values are spelt as the strings are.

use async_graphql::{ComplexObject, Enum, Error, Result, resolver_utils::EnumType};
use planner::{calls, toolkit};
use shared::{event, plan};
use toolbox::SetStatus;

use super::{
    audit::AuditEntry,
    request::{PlanningError, TranscriptEntry},
    timeline::TimelineEntry,
    toolkit::ToolkitEdge,
    waits::Wait,
};

/// Returns the value that is spelt like a text, or `None` if there is no such value.
pub(super) fn find_value<T: EnumType>(text: &str) -> Option<T> {
    T::items().iter().find(|item| item.name == text).map(|item| item.value)
}

fn require_value<T: EnumType>(text: &str) -> Result<T> {
    find_value(text).ok_or_else(|| Error::new(format!("the schema has no value `{text}`")))
}

/// Type of an event of an execution or a request, or kind of an entry of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
pub(super) enum EventType {
    /// The execution was created.
    Created,
    /// A worker claimed the execution.
    Claimed,
    /// An attempt of a step started, or the items of its list are known.
    StepStarted,
    /// A step succeeded.
    StepSucceeded,
    /// A tool reported progress.
    StepProgress,
    /// A dry run checked the parameters of a step.
    StepChecked,
    /// An attempt failed, and another one is scheduled.
    StepRetryScheduled,
    /// An attempt was interrupted, and the step can run again.
    StepInterrupted,
    /// A step failed.
    StepFailed,
    /// A step will not run.
    StepSkipped,
    /// A step waits for a person or a signal.
    StepWaiting,
    /// A person approved a step, or asked for another attempt.
    StepApproved,
    /// A person decided how a call with an unknown outcome ended.
    StepSettled,
    /// A step was stopped, or prevented from starting.
    StepCancelled,
    /// The call that undoes a step started.
    StepCompensationStarted,
    /// A step was undone.
    StepCompensated,
    /// The tool of the call that undoes a step reported progress.
    StepCompensationProgress,
    /// The call that undoes a step failed, and another attempt is scheduled.
    StepCompensationRetryScheduled,
    /// The call that undoes a step was interrupted, and can run again.
    StepCompensationInterrupted,
    /// The call that undoes a step failed.
    StepCompensationFailed,
    /// A signal arrived.
    SignalReceived,
    /// A signal was not stored, because the execution already keeps the maximum number.
    SignalRefused,
    /// A command changed nothing.
    CommandIgnored,
    /// Somebody asked for a cancellation.
    CancelRequested,
    /// The execution failed as a whole.
    ExecutionFailed,
    /// The deadline of the execution passed.
    DeadlinePassed,
    /// A worker shortened waits that a wrong clock had recorded.
    WaitsShortened,
    /// The execution was paused.
    Paused,
    /// The execution was resumed.
    Resumed,
    /// The execution began to undo its steps.
    CompensationStarted,
    /// The execution finished.
    Finished,
    /// A caller asked for a plan. Only in timelines.
    Request,
    /// An entry was added to the transcript of planning. Not in executions.
    Transcript,
    /// A version of the plan was created. Not in executions.
    PlanCreated,
}

impl EventType {
    pub(super) fn of(event: &event::Event) -> Self {
        find_value(event.kind()).expect("each type of the log is a value of the enum")
    }
}

/// Reason why a step did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "event::SkipReason", rename_items = "snake_case")]
pub(super) enum SkipReason {
    /// A step on which the step depends did not succeed.
    Dependency,
    /// The execution failed before the step started.
    ExecutionFailed,
    /// The condition of the step is false.
    Condition,
    /// The execution is a dry run.
    DryRun,
}

/// Reason why a step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
pub(super) enum StepWait {
    /// A person must approve the step before it starts.
    Approval,
    /// An attempt failed, and a person must decide whether the step is tried again.
    Decision,
    /// The step waits for a signal.
    Signal,
}

impl From<&event::WaitReason> for StepWait {
    fn from(reason: &event::WaitReason) -> Self {
        match reason {
            event::WaitReason::Approval => Self::Approval,
            event::WaitReason::Decision { .. } => Self::Decision,
            event::WaitReason::Signal { .. } => Self::Signal,
        }
    }
}

/// Kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
pub(super) enum WaitKind {
    /// A step waits for an approval.
    Approval,
    /// A step failed and waits for the decision of a person.
    Decision,
    /// A step waits for a signal.
    Signal,
    /// A step waits for its next attempt.
    Retry,
    /// A step sleeps.
    Sleep,
    /// A step waits for its child execution.
    Child,
    /// A call waits because of a limit on calls.
    Limit,
    /// A call is running.
    Call,
    /// Items of a list are running.
    Items,
    /// The execution is paused.
    Paused,
    /// The execution waits for `startAt`.
    Start,
    /// No worker has a tool that the execution needs.
    Tool,
    /// No worker drives the execution.
    Worker,
}

/// Rule for a failure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "plan::OnError", rename_items = "snake_case")]
pub(super) enum OnError {
    /// The execution fails.
    Fail,
    /// Dependent steps are skipped, and other steps continue.
    Continue,
    /// The output of the step is null, and all steps continue.
    Ignore,
    /// A person decides whether the step is tried again.
    Wait,
}

/// Status of a call outside plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
pub(super) enum ToolResultStatus {
    /// The tool returned a result.
    Success,
    /// The call failed.
    Error,
}

/// Status of the source of a toolset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
pub(super) enum ToolSetStatus {
    /// No tool of the source has been needed yet.
    Idle,
    /// Faber connects to the source.
    Connecting,
    /// The tools can be used.
    Ready,
    /// The source failed. See `ToolSet.error`.
    Failed,
    /// The condition of the toolset is false.
    Hidden,
}

impl From<&SetStatus> for ToolSetStatus {
    fn from(status: &SetStatus) -> Self {
        match status {
            SetStatus::Idle => Self::Idle,
            SetStatus::Connecting => Self::Connecting,
            SetStatus::Ready => Self::Ready,
            SetStatus::Failed { .. } => Self::Failed,
            SetStatus::Hidden => Self::Hidden,
        }
    }
}

/// Format of a tool call in the reply of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "calls::CallFormat", rename_items = "snake_case")]
pub(super) enum ToolCallFormat {
    /// `{"tool": "set.name", "args": {…}}`
    Json,
    /// `set.name(key=value)`
    FunctionCall,
    /// `TOOL: set.name ARGS: {…}`
    Simple,
    /// `use set.name with key=value`
    NaturalLanguage,
    /// `<tool_call>…</tool_call>`
    Xml,
    /// JSON of the interfaces of `OpenAI`.
    Openai,
    /// JSON of the interface of Anthropic.
    Anthropic,
}

/// Kind of an edge of the toolkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "toolkit::EdgeKind", rename_items = "snake_case")]
pub(super) enum ToolkitEdgeKind {
    /// The edge leads to an action that can follow.
    Next,
    /// The edge leads to a tool.
    Call,
}

/// Kind of an entry of the transcript of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
pub(super) enum TranscriptKind {
    /// Tools that were selected for the query.
    Selection,
    /// Parts into which the offline planner divided the query.
    Clauses,
    /// Tools that the offline planner considered for each part.
    Candidates,
    /// Plan of the same query that was reused.
    Cache,
    /// Messages to the model.
    Prompt,
    /// Reply of the model.
    Reply,
    /// Problems of a draft that the model was asked to repair.
    Repair,
    /// Tokens and cost of the requests to the model.
    Usage,
    /// Draft of the plan.
    Draft,
    /// Doubts about the plan of a model, and their effect.
    Guard,
    /// Problems of the draft, so that planning failed.
    Diagnostics,
    /// Summary of the plan.
    Plan,
    /// Options of an agent.
    Agent,
    /// Attempt of an automatic replan.
    Replan,
    /// Reason why an automatic replan was given up.
    ReplanGivenUp,
    /// Error, so that planning failed.
    Error,
}

/// Name of an action in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
pub(super) enum AuditAction {
    /// A plan or its next version was created, or planning failed.
    Plan,
    /// A plan was saved under a name.
    SavePlan,
    /// The name of a saved plan was removed.
    RemoveSavedPlan,
    /// An execution was started.
    Execute,
    /// An execution was retried.
    Retry,
    /// An execution was replanned.
    Replan,
    /// An execution was forked.
    Fork,
    /// A step was approved.
    Approve,
    /// A step was rejected.
    Reject,
    /// The outcome of a call was settled.
    Settle,
    /// A signal was sent.
    Signal,
    /// An execution was cancelled.
    Cancel,
    /// An execution was paused.
    Pause,
    /// An execution was resumed.
    Resume,
    /// An action was applied to many executions.
    BulkControl,
    /// Old data was removed.
    Prune,
    /// The data of a context was changed.
    SetContext,
    /// A tool was called outside plans.
    CallTool,
    /// A tool was registered.
    RegisterTool,
    /// A tool was removed.
    RemoveTool,
    /// A toolset was added.
    AddToolSet,
    /// A toolset was removed.
    RemoveToolSet,
    /// A toolset was activated.
    ActivateToolSet,
    /// A toolset was deactivated.
    DeactivateToolSet,
    /// An action was added to the toolkit.
    AddAction,
    /// An action was removed from the toolkit.
    RemoveAction,
    /// A tool was connected to actions.
    ConnectTool,
    /// A tool was disconnected from actions.
    DisconnectTool,
    /// The score of an edge was set.
    SetScore,
    /// The toolkit was replaced or extended.
    UpdateToolkit,
    /// A backup of the store was made.
    Backup,
    /// The history was exported.
    Export,
    /// A backup was written into the store.
    Restore,
    /// A history was written into the store.
    Import,
    /// Old values were encrypted with the active key.
    Rekey,
}

/// Code of an error of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum ErrorCode {
    /// There is no such object.
    NotFound,
    /// The draft does not compile.
    InvalidPlan,
    /// An argument is invalid.
    InvalidArgument,
    /// The state of the object does not allow the operation.
    Conflict,
    /// The planner or its model cannot be reached.
    PlannerUnavailable,
    /// The planner found no plan for the query.
    NoPlanFound,
    /// A limit is exceeded.
    LimitExceeded,
    /// The caller sent no known token.
    Unauthenticated,
    /// The caller is not allowed to do this.
    Forbidden,
    /// The store cannot be reached.
    StoreUnavailable,
    /// Fault of Faber. The log has details.
    Internal,
}

#[ComplexObject]
impl TimelineEntry {
    /// `kind` as an enum.
    #[expect(clippy::unused_async, reason = "fields of the API are asynchronous")]
    async fn kind_enum(&self) -> Result<EventType> {
        require_value(&self.kind)
    }
}

#[ComplexObject]
impl Wait {
    /// `kind` as an enum.
    #[expect(clippy::unused_async, reason = "fields of the API are asynchronous")]
    async fn kind_enum(&self) -> Result<WaitKind> {
        require_value(&self.kind)
    }
}

#[ComplexObject]
impl ToolkitEdge {
    /// `kind` as an enum.
    #[expect(clippy::unused_async, reason = "fields of the API are asynchronous")]
    async fn kind_enum(&self) -> Result<ToolkitEdgeKind> {
        require_value(&self.kind)
    }
}

#[ComplexObject]
impl TranscriptEntry {
    /// `kind` as an enum. Null if another version of Faber recorded an unknown kind.
    async fn kind_enum(&self) -> Option<TranscriptKind> {
        find_value(&self.kind)
    }
}

#[ComplexObject]
impl PlanningError {
    /// `code` as an enum. Null if another version of Faber recorded an unknown code.
    async fn code_enum(&self) -> Option<ErrorCode> {
        find_value(&self.code)
    }
}

#[ComplexObject]
impl AuditEntry {
    /// `action` as an enum. Null if another version of Faber recorded an unknown action.
    async fn action_enum(&self) -> Option<AuditAction> {
        find_value(&self.action)
    }
}

#[cfg(test)]
mod tests {
    use shared::store;

    use super::*;

    fn list_values<T: EnumType>() -> Vec<&'static str> {
        T::items().iter().map(|item| item.name).collect()
    }

    #[test]
    fn every_action_of_the_audit_log_is_a_value() {
        let actions: Vec<_> =
            store::AuditAction::ALL.iter().map(store::AuditAction::as_str).collect();
        assert_eq!(list_values::<AuditAction>(), actions);
    }

    #[test]
    fn values_are_spelt_as_the_strings_are() {
        for value in list_values::<OnError>() {
            let rule: plan::OnError = find_value::<OnError>(value).unwrap().into();
            assert_eq!(rule.as_str(), value);
        }
        for value in list_values::<ToolCallFormat>() {
            let format: calls::CallFormat = find_value::<ToolCallFormat>(value).unwrap().into();
            assert_eq!(format.as_str(), value);
        }
        for value in list_values::<ToolkitEdgeKind>() {
            let kind: toolkit::EdgeKind = find_value::<ToolkitEdgeKind>(value).unwrap().into();
            assert_eq!(kind.as_str(), value);
        }
        for value in list_values::<SkipReason>() {
            let reason = find_value::<SkipReason>(value).unwrap().into();
            assert_eq!(super::super::event::skip_reason_name(reason), value);
        }
    }
}
