//! Objects of the API as commands read them, each with the selection of its fields. `FIELDS`
//! selects every field, because `--json` prints all of them, but the struct has only the fields
//! that views use.

mod counts;
#[cfg(test)]
mod tests;
mod tools;
mod workers;

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    ops::Deref,
};

use serde::Deserialize;
use serde_json::Value;
use shared::{
    clock::Timestamp, diagnostic::Diagnostic, execution::ExecutionState, id::ExecutionId,
};

pub use self::{
    counts::ExecutionCount,
    tools::{
        NamedElement, Tool, ToolCollision, ToolMatch, ToolResult, ToolSet, ToolSetChange,
        ToolUsage, Toolkit, ToolkitEdge,
    },
    workers::Worker,
};
use crate::view::plain;

/// A text from outside Faber. `Display` escapes it and keeps it in one line, so that it can neither
/// control a terminal nor forge a line. It dereferences to the original text.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub struct Text(String);

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&plain::safe_line(&self.0))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionHead {
    pub execution_id: ExecutionId,
    pub plan_id: Text,
    pub state: ExecutionState,
}

impl ExecutionHead {
    pub const FIELDS: &str = "executionId planId state";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExecutionStatus {
    pub execution_id: Text,
    pub request_id: Text,
    pub plan_id: Text,
    pub plan: Plan,
    pub state: ExecutionState,
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub node: Option<Text>,
    pub input: Option<Value>,
    pub dry_run: bool,
    pub labels: BTreeMap<Text, Text>,
    pub parent_execution_id: Option<Text>,
    pub parent_step_id: Option<Text>,
    pub retry_of: Option<Text>,
    pub forked_from: Option<Text>,
    pub next: Option<NextExecution>,
    pub replanning: Option<Replanning>,
    pub findings: Vec<Finding>,
    pub total: u64,
    pub successful: u64,
    pub failed: u64,
    pub skipped: u64,
    pub cancelled: u64,
    pub steps: Vec<StepStatus>,
    pub outputs: Value,
    pub execution_results: ExecutionResults,
    /// Empty unless the field was selected by [`Self::SUMMARY_FIELDS`], the only selection that
    /// contains it.
    pub retries: Vec<RetriedExecution>,
    /// Empty, as `retries`, unless [`Self::SUMMARY_FIELDS`] selected the field.
    pub forks: Vec<RetriedExecution>,
}

impl ExecutionStatus {
    pub const VALUES: &str = "executionId requestId planId state mode priority startAt deadline \
        createdAt startedAt finishedAt node seq input dryRun compensateOnFailure labels parentExecutionId \
        parentStepId parentIndex retryOf forkedFrom total successful failed skipped cancelled outputs";
    pub const SUMMARY_FIELDS: &str = "executionId requestId state dryRun startedAt createdAt \
        finishedAt total successful failed skipped cancelled outputs plan { tools { stepId \
        toolName dependsOn retry onError } } executionResults { errors { stepId toolName index \
        code message attempt retryable } } steps { stepId state resolvedParameters items { index \
        resolvedParameters } } retries { executionId state } forks { executionId state } findings { code severity kind stepId \
        index message remedies { label command isDangerous } }";

    pub fn fields() -> String {
        let (plan, step, error) = (Plan::fields(), StepStatus::fields(), StepError::FIELDS);
        format!(
            "{} plan {{ {plan} }} steps {{ {step} }} executionResults {{ outputs errors {{ {error} }} \
             variables }} findings {{ {} }} waitsFor {{ {} }} replanning {{ {} }} next {{ executionId }}",
            Self::VALUES,
            Finding::FIELDS,
            WAIT_FIELDS,
            Replanning::FIELDS
        )
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextExecution {
    pub execution_id: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetriedExecution {
    pub execution_id: Text,
    pub state: ExecutionState,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replanning {
    pub state: ReplanningState,
    pub reason: Text,
    pub given_up: Option<Text>,
}

impl Replanning {
    pub const FIELDS: &str = "state reason givenUp";
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReplanningState {
    Pending,
    Begun,
    GivenUp,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExecutionResults {
    pub errors: Vec<StepError>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StepError {
    pub step_id: Text,
    pub index: Option<u64>,
    pub tool_name: Text,
    pub code: Text,
    pub message: Text,
    pub attempt: u64,
    pub retryable: bool,
}

impl StepError {
    pub const FIELDS: &str = "stepId index toolName code message attempt retryable";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StepStatus {
    pub step_id: Text,
    pub index: Option<u64>,
    pub tool_name: Text,
    pub state: ShownState,
    pub attempts: u64,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub duration_ms: Option<f64>,
    pub work_ms: Option<f64>,
    pub waited_ms: Option<f64>,
    pub resolved_parameters: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<StepError>,
    pub warnings: Vec<Text>,
    pub reused: bool,
    pub skip_reason: Option<Text>,
    pub waits_for: Option<Text>,
    pub until: Option<Timestamp>,
    pub items: Vec<StepStatus>,
    pub item_tally: Option<ItemTally>,
    pub child_execution_id: Option<Text>,
    pub compensation: Option<Box<StepStatus>>,
}

impl StepStatus {
    fn fields() -> String {
        let part = format!(
            "stepId index toolName state attempts startedAt finishedAt durationMs workMs waitedMs \
             resolvedParameters output error {{ {} }} warnings reused settled settledOutput \
             settledComment skipReason waitsFor until \
             progress {{ progress total message }} childExecutionId",
            StepError::FIELDS
        );
        let tally = ItemTally::FIELDS;
        format!("{part} items {{ {part} }} itemTally {{ {tally} }} compensation {{ {part} }}")
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ShownState {
    #[default]
    Pending,
    Running,
    Retrying,
    Waiting,
    Succeeded,
    Failed,
    Skipped,
    Cancelled,
    Compensated,
    /// The step succeeded, but its compensation failed. Only events lead to this state, because the
    /// API reports such a step as `SUCCEEDED`.
    #[serde(skip)]
    CompensationFailed,
}

impl ShownState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Retrying => "RETRYING",
            Self::Waiting => "WAITING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Skipped => "SKIPPED",
            Self::Cancelled => "CANCELLED",
            Self::Compensated => "COMPENSATED",
            Self::CompensationFailed => "COMPENSATION_FAILED",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ItemTally {
    pub total: u64,
    pub running: u64,
    pub waiting: u64,
    pub successful: u64,
    pub failed: u64,
    pub skipped: u64,
    pub cancelled: u64,
}

impl ItemTally {
    const FIELDS: &str = "total pending running waiting successful failed skipped cancelled";
}

/// The selection of `waitsFor`. Only `--json` prints these fields, because views show findings
/// instead.
const WAIT_FIELDS: &str = "kind stepId index name executionId until message";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Finding {
    pub code: Text,
    pub severity: Severity,
    pub kind: FindingKind,
    pub step_id: Option<Text>,
    pub index: Option<u64>,
    pub until: Option<Timestamp>,
    pub message: Text,
    pub remedies: Vec<Remedy>,
}

impl Finding {
    pub const FIELDS: &str = "code severity kind stepId index at until message causeSeq \
        causeExecutionId remedies { label command mutation variables isDangerous }";
    pub const ROW_FIELDS: &str = "severity kind message";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Remedy {
    pub label: Text,
    pub command: Option<Text>,
    pub is_dangerous: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FindingKind {
    Failure,
    Wait,
    Skip,
    Takeover,
    /// A kind that only newer servers know is read as this value, too.
    #[default]
    #[serde(other)]
    Warning,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    Error,
    Warning,
    /// A severity that only newer servers know is read as this value, too.
    #[default]
    #[serde(other)]
    Info,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Plan {
    pub plan_id: Text,
    pub request_id: Text,
    pub version: u64,
    pub query: Text,
    pub created_at: Option<Text>,
    pub planner: Text,
    pub tools: Vec<PlannedStep>,
    pub execution_order: Vec<Text>,
    pub layers: Vec<Vec<Text>>,
    pub diagnostics: Vec<Diagnostic>,
}

impl Plan {
    pub const VALUES: &str = "planId requestId version query createdAt planner executionOrder \
        layers mermaid dot";
    pub const VIEW_FIELDS: &str = "planId requestId version query planner layers executionOrder \
        tools { stepId toolName plan parameters dependsOn effect when forEach compensate \
        requiresApproval } \
        diagnostics { severity code path message help }";

    pub fn fields() -> String {
        let (values, step) = (Self::VALUES, PlannedStep::FIELDS);
        format!("{values} tools {{ {step} }} diagnostics {{ {DIAGNOSTIC_FIELDS} }}")
    }
}

pub const DIAGNOSTIC_FIELDS: &str = "severity code path message help";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PlannedStep {
    pub step_id: Text,
    pub tool_name: Text,
    pub parameters: Value,
    pub depends_on: Vec<Text>,
    pub effect: Text,
    pub plan: Option<Text>,
    pub when: Option<Text>,
    pub for_each: Option<Text>,
    pub compensate: Option<Compensation>,
    pub retry: Option<Retry>,
    pub on_error: Text,
    pub requires_approval: bool,
}

impl PlannedStep {
    const FIELDS: &str = "stepId toolName parameters dependsOn outputMapping effect plan when forEach \
        compensate timeoutMs idleTimeoutMs cacheTtlMs strictTemplates maxParallel retry onError \
        requiresApproval";

    pub fn max_attempts(&self) -> u64 {
        self.retry.as_ref().and_then(|retry| retry.max_attempts).unwrap_or(1)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compensation {
    pub tool_name: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    pub max_attempts: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct PlanPayload {
    pub plan: Option<Value>,
    pub diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Request {
    pub request_id: Text,
    pub query: Text,
    pub created_at: Option<Text>,
    pub labels: BTreeMap<Text, Text>,
    pub plans: Vec<Plan>,
    pub executions: Vec<ExecutionStatus>,
    pub findings: Vec<Finding>,
    pub transcript: Vec<TranscriptEntry>,
    pub timeline: Vec<TimelineEntry>,
}

impl Request {
    pub const VALUES: &str = "requestId query createdAt labels";

    pub fn fields(last: i32) -> String {
        format!(
            "{} plans {{ {} }} executions(last: {last}) {{ {} }} findings {{ {} }} \
             transcript {{ at kind content }} timeline {{ {} }}",
            Self::VALUES,
            Plan::fields(),
            ExecutionStatus::fields(),
            Finding::FIELDS,
            TimelineEntry::FIELDS
        )
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TranscriptEntry {
    pub at: Text,
    pub kind: Text,
    pub content: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TimelineEntry {
    pub kind: Text,
    pub execution_id: Option<Text>,
    pub step_id: Option<Text>,
    pub message: Text,
    #[serde(deserialize_with = "or_default")]
    pub detail: EventData,
}

impl TimelineEntry {
    pub const FIELDS: &str = "at kind executionId stepId attempt node message detail durationMs \
        waitedMs";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Event {
    pub seq: u64,
    pub at: Option<Timestamp>,
    #[serde(rename = "type")]
    pub kind: Text,
    pub step_id: Option<Text>,
    pub attempt: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    pub data: EventData,
}

impl Event {
    pub const FIELDS: &str = "seq at type stepId attempt data(maxBytes: 0)";
}

/// The data of events that views show. Each type of event has some of the fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventData {
    pub index: Option<u64>,
    pub items: Option<u64>,
    pub child_execution_id: Option<Text>,
    pub error: Option<EventError>,
    pub until: Option<Timestamp>,
    #[serde(rename = "for")]
    pub awaited: Option<Text>,
    pub name: Text,
    pub reason: Option<Text>,
    pub outcome: Text,
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<Text>,
    pub cached: bool,
    pub reused: BTreeMap<Text, Value>,
    pub worker: Text,
    pub node: Text,
    pub epoch: u64,
    pub renewed: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventError {
    pub code: Option<Text>,
    pub message: Text,
}

/// Reads the data of an event. Returns empty data if the form is unknown, because newer servers can
/// send other forms.
fn or_default<'de, D: serde::Deserializer<'de>>(source: D) -> Result<EventData, D::Error> {
    let value = Value::deserialize(source)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepeatedCall {
    pub step_id: Text,
    pub tool_name: Text,
    pub calls: u64,
    pub outcome_unknown: bool,
    pub remedies: Vec<Remedy>,
}

impl RepeatedCall {
    pub const FIELDS: &str =
        "stepId toolName calls outcomeUnknown remedies { label command isDangerous }";
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkPreview {
    pub kept_steps: Vec<Text>,
    pub once_calls: Vec<OnceCall>,
}

impl ForkPreview {
    pub fn fields() -> String {
        format!("keptSteps onceCalls {{ {} }}", OnceCall::FIELDS)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnceCall {
    pub step_id: Text,
    pub tool_name: Text,
    pub calls: Option<u64>,
    pub repeated: bool,
    pub outcome_unknown: bool,
    pub remedies: Vec<Remedy>,
}

impl OnceCall {
    pub const FIELDS: &str = "stepId toolName calls repeated outcomeUnknown remedies { label command \
        isDangerous }";
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoCall {
    pub step_id: Text,
    pub index: Option<u32>,
    pub tool_name: Text,
}

impl UndoCall {
    pub const FIELDS: &str = "stepId index toolName";
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedPlan {
    pub name: Text,
    pub plan_id: Text,
    pub inputs: Option<Value>,
    pub saved_at: Text,
}

impl SavedPlan {
    pub const FIELDS: &str = "name planId inputs savedAt";
}

#[derive(Clone, Copy, Debug, Default, Deserialize, serde::Serialize)]
pub struct Pruned {
    pub executions: u64,
    pub plans: u64,
    pub requests: u64,
    #[serde(skip_serializing)]
    pub more: bool,
}

impl Pruned {
    pub const FIELDS: &str = "executions plans requests more";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuditEntry {
    pub at: String,
    pub actor: Actor,
    pub action: Text,
    pub request_id: Option<Text>,
    pub plan_id: Option<Text>,
    pub execution_id: Option<Text>,
    pub step_id: Option<Text>,
    pub name: Option<Text>,
    pub detail: Value,
}

impl AuditEntry {
    pub const FIELDS: &str = "id at actor { kind name client } action requestId planId \
        executionId stepId name detail";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Actor {
    pub kind: Text,
    pub name: Option<Text>,
    pub client: Option<Text>,
}

/// Writes the actor in the form that `faber audit --actor` reads, followed by the MCP client.
impl Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.to_string().to_lowercase())?;
        if let Some(name) = &self.name {
            write!(f, ":{name}")?;
        }
        match &self.client {
            Some(client) => write!(f, " through {client}"),
            None => Ok(()),
        }
    }
}

pub const BLOB_FIELDS: &str = "id mimeType bytes sha256 at data";
