//! Objects of the API as commands read them, each with the selection of its fields.
//!
//! `FIELDS` selects every field of an object, because `--json` prints all of them. The struct has
//! the fields that views use. A test compares both with the schema.

#![expect(clippy::struct_field_names, reason = "fields have the names of the API")]

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    ops::Deref,
};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use shared::{
    clock::Timestamp, diagnostic::Diagnostic, execution::ExecutionState, id::ExecutionId,
};

use crate::cli::view::plain;

/// A text of foreign origin. `Display` escapes it and keeps it in one line, so that it can neither
/// control a terminal nor forge a line. It dereferences to the original text.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(crate) struct Text(String);

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

/// The fields of an execution that commands need to steer it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecutionHead {
    pub(crate) execution_id: ExecutionId,
    pub(crate) plan_id: Text,
    pub(crate) state: ExecutionState,
}

impl ExecutionHead {
    pub(crate) const FIELDS: &str = "executionId planId state";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Execution {
    pub(crate) execution_id: Text,
    pub(crate) request_id: Text,
    pub(crate) plan_id: Text,
    pub(crate) plan: Plan,
    pub(crate) state: ExecutionState,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) node: Option<Text>,
    pub(crate) input: Option<Value>,
    pub(crate) dry_run: bool,
    pub(crate) parent_execution_id: Option<Text>,
    pub(crate) parent_step_id: Option<Text>,
    pub(crate) retry_of: Option<Text>,
    pub(crate) next: Option<NextExecution>,
    pub(crate) replanning: Option<Replanning>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) total: u64,
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) cancelled: u64,
    pub(crate) steps: Vec<StepStatus>,
    pub(crate) outputs: Value,
    pub(crate) execution_results: ExecutionResults,
    /// Only [`Self::SUMMARY`] selects them.
    pub(crate) retries: Vec<RetriedExecution>,
}

impl Execution {
    /// The fields of an execution that are not objects.
    pub(crate) const VALUES: &str = "executionId requestId planId state mode priority startAt deadline \
        createdAt startedAt finishedAt node seq input dryRun compensateOnFailure parentExecutionId \
        parentStepId parentIndex retryOf total successful failed skipped cancelled outputs";
    /// The fields that the summary of a finished execution shows.
    pub(crate) const SUMMARY: &str = "executionId requestId state dryRun startedAt createdAt finishedAt \
        total successful failed skipped cancelled outputs plan { tools { stepId toolName dependsOn \
        retry onError } } executionResults { errors { stepId toolName index code message attempt \
        retryable } } steps { stepId state resolvedParameters items { index \
        resolvedParameters } } retries { executionId state } findings { code severity kind stepId \
        index message remedies { label command isDangerous } }";

    pub(crate) fn fields() -> String {
        let (plan, step, error) = (Plan::fields(), StepStatus::fields(), StepError::FIELDS);
        format!(
            "{} plan {{ {plan} }} steps {{ {step} }} executionResults {{ outputs errors {{ {error} }} \
             variables }} findings {{ {} }} waitsFor {{ {} }} replanning {{ {} }} next {{ executionId }}",
            Self::VALUES,
            Finding::FIELDS,
            WAIT,
            Replanning::FIELDS
        )
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NextExecution {
    pub(crate) execution_id: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetriedExecution {
    pub(crate) execution_id: Text,
    pub(crate) state: ExecutionState,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replanning {
    pub(crate) state: ReplanningState,
    pub(crate) reason: Text,
    pub(crate) given_up: Option<Text>,
}

impl Replanning {
    pub(crate) const FIELDS: &str = "state reason givenUp";
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ReplanningState {
    Pending,
    Begun,
    GivenUp,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExecutionResults {
    pub(crate) errors: Vec<StepError>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StepError {
    pub(crate) step_id: Text,
    pub(crate) index: Option<u64>,
    pub(crate) tool_name: Text,
    pub(crate) code: Text,
    pub(crate) message: Text,
    pub(crate) attempt: u64,
    pub(crate) retryable: bool,
}

impl StepError {
    pub(crate) const FIELDS: &str = "stepId index toolName code message attempt retryable";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StepStatus {
    pub(crate) step_id: Text,
    pub(crate) index: Option<u64>,
    pub(crate) tool_name: Text,
    pub(crate) state: StepState,
    pub(crate) attempts: u64,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) duration_ms: Option<f64>,
    pub(crate) work_ms: Option<f64>,
    pub(crate) waited_ms: Option<f64>,
    pub(crate) resolved_parameters: Option<Value>,
    pub(crate) output: Option<Value>,
    pub(crate) error: Option<StepError>,
    pub(crate) warnings: Vec<Text>,
    pub(crate) reused: bool,
    pub(crate) skip_reason: Option<Text>,
    pub(crate) waits_for: Option<Text>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) items: Vec<StepStatus>,
    pub(crate) item_tally: Option<ItemTally>,
    pub(crate) child_execution_id: Option<Text>,
    pub(crate) compensation: Option<Box<StepStatus>>,
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
pub(crate) enum StepState {
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
    /// Used by the live view only. In the API, such a step has succeeded.
    #[serde(skip)]
    CompensationFailed,
}

impl StepState {
    pub(crate) fn as_str(self) -> &'static str {
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
pub(crate) struct ItemTally {
    pub(crate) total: u64,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) cancelled: u64,
}

impl ItemTally {
    const FIELDS: &str = "total pending running waiting successful failed skipped cancelled";
}

/// The fields of what an execution waits for. `--json` prints them, and views show findings.
const WAIT: &str = "kind stepId index name executionId until message";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) code: Text,
    pub(crate) severity: Severity,
    pub(crate) kind: FindingKind,
    pub(crate) step_id: Option<Text>,
    pub(crate) index: Option<u64>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) message: Text,
    pub(crate) remedies: Vec<Remedy>,
}

impl Finding {
    pub(crate) const FIELDS: &str = "code severity kind stepId index at until message causeSeq \
        causeExecutionId remedies { label command mutation variables isDangerous }";
    pub(crate) const ROW: &str = "severity kind message";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Remedy {
    pub(crate) label: Text,
    pub(crate) command: Option<Text>,
    pub(crate) is_dangerous: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum FindingKind {
    Failure,
    Wait,
    Skip,
    Takeover,
    /// Also a kind that a newer server has.
    #[default]
    #[serde(other)]
    Warning,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Severity {
    Error,
    Warning,
    /// Also a severity that a newer server has.
    #[default]
    #[serde(other)]
    Info,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Plan {
    pub(crate) plan_id: Text,
    pub(crate) version: u64,
    pub(crate) query: Text,
    pub(crate) created_at: Option<Text>,
    pub(crate) planner: Text,
    pub(crate) tools: Vec<PlannedStep>,
    pub(crate) execution_order: Vec<Text>,
    pub(crate) layers: Vec<Vec<Text>>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Plan {
    pub(crate) const VALUES: &str = "planId requestId version query createdAt planner executionOrder \
        layers mermaid dot";
    /// The fields that views show.
    pub(crate) const SHOWN: &str = "planId requestId version query planner layers executionOrder \
        tools { stepId toolName plan parameters dependsOn when forEach compensate requiresApproval } \
        diagnostics { severity code path message help }";

    pub(crate) fn fields() -> String {
        let (values, step) = (Self::VALUES, PlannedStep::FIELDS);
        format!("{values} tools {{ {step} }} diagnostics {{ {DIAGNOSTIC} }}")
    }
}

pub(crate) const DIAGNOSTIC: &str = "severity code path message help";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PlannedStep {
    pub(crate) step_id: Text,
    pub(crate) tool_name: Text,
    pub(crate) parameters: Value,
    pub(crate) depends_on: Vec<Text>,
    pub(crate) plan: Option<Text>,
    pub(crate) when: Option<Text>,
    pub(crate) for_each: Option<Text>,
    pub(crate) compensate: Option<Compensation>,
    pub(crate) retry: Option<Retry>,
    pub(crate) on_error: Text,
    pub(crate) requires_approval: bool,
}

impl PlannedStep {
    const FIELDS: &str = "stepId toolName parameters dependsOn outputMapping effect plan when forEach \
        compensate timeoutMs idleTimeoutMs cacheTtlMs strictTemplates maxParallel retry onError \
        requiresApproval";

    pub(crate) fn max_attempts(&self) -> u64 {
        self.retry.as_ref().and_then(|retry| retry.max_attempts).unwrap_or(1)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Compensation {
    pub(crate) tool_name: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Retry {
    pub(crate) max_attempts: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PlanPayload {
    pub(crate) plan: Option<Value>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) request_id: Text,
    pub(crate) query: Text,
    pub(crate) created_at: Option<Text>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) executions: Vec<Execution>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) transcript: Vec<TranscriptEntry>,
    pub(crate) timeline: Vec<TimelineEntry>,
}

impl Request {
    pub(crate) const VALUES: &str = "requestId query createdAt";

    /// Selects all fields of a request, with its `last` newest executions.
    pub(crate) fn fields(last: i32) -> String {
        format!(
            "{} plans {{ {} }} executions(last: {last}) {{ {} }} findings {{ {} }} \
             transcript {{ at kind content }} timeline {{ {} }}",
            Self::VALUES,
            Plan::fields(),
            Execution::fields(),
            Finding::FIELDS,
            TimelineEntry::FIELDS
        )
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TranscriptEntry {
    pub(crate) at: Text,
    pub(crate) kind: Text,
    pub(crate) content: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TimelineEntry {
    pub(crate) kind: Text,
    pub(crate) execution_id: Option<Text>,
    pub(crate) step_id: Option<Text>,
    pub(crate) message: Text,
    #[serde(deserialize_with = "or_default")]
    pub(crate) detail: EventData,
}

impl TimelineEntry {
    pub(crate) const FIELDS: &str = "at kind executionId stepId attempt node message detail durationMs \
        waitedMs";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Event {
    pub(crate) seq: u64,
    pub(crate) at: Option<Timestamp>,
    #[serde(rename = "type")]
    pub(crate) kind: Text,
    pub(crate) step_id: Option<Text>,
    pub(crate) attempt: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) data: EventData,
}

impl Event {
    pub(crate) const FIELDS: &str = "seq at type stepId attempt data(maxBytes: 0)";
}

/// The data of events that views show. Each type of event has some of the fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EventData {
    pub(crate) index: Option<u64>,
    pub(crate) items: Option<u64>,
    pub(crate) child_execution_id: Option<Text>,
    pub(crate) error: Option<EventError>,
    pub(crate) until: Option<Timestamp>,
    #[serde(rename = "for")]
    pub(crate) awaited: Option<Text>,
    pub(crate) name: Text,
    pub(crate) reason: Option<Text>,
    pub(crate) outcome: Text,
    pub(crate) progress: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: Option<Text>,
    pub(crate) cached: bool,
    pub(crate) reused: BTreeMap<Text, Value>,
    pub(crate) worker: Text,
    pub(crate) node: Text,
    pub(crate) epoch: u64,
    pub(crate) renewed: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventError {
    pub(crate) code: Option<Text>,
    pub(crate) message: Text,
}

/// Reads data of an event. Returns the default if the data has an unknown form.
fn or_default<'de, D: serde::Deserializer<'de>>(source: D) -> Result<EventData, D::Error> {
    let value = Value::deserialize(source)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A call of a *once* tool that a retry would repeat.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RepeatedCall {
    pub(crate) step_id: Text,
    pub(crate) tool_name: Text,
    pub(crate) calls: u64,
    pub(crate) outcome_unknown: bool,
}

impl RepeatedCall {
    pub(crate) const FIELDS: &str = "stepId toolName calls outcomeUnknown";
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UndoCall {
    pub(crate) step_id: Text,
    pub(crate) index: Option<u32>,
    pub(crate) tool_name: Text,
}

impl UndoCall {
    pub(crate) const FIELDS: &str = "stepId index toolName";
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedPlan {
    pub(crate) name: Text,
    pub(crate) plan_id: Text,
    pub(crate) inputs: Option<Value>,
    pub(crate) saved_at: Text,
}

impl SavedPlan {
    pub(crate) const FIELDS: &str = "name planId inputs savedAt";
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Tool {
    pub(crate) name: Text,
    pub(crate) qualified_name: Text,
    pub(crate) shadowed_by: Option<Text>,
    pub(crate) description: Text,
    pub(crate) tool_set: Text,
    pub(crate) active: bool,
    pub(crate) effect: Text,
    pub(crate) input_schema: Value,
    pub(crate) output_schema: Option<Value>,
}

impl Tool {
    pub(crate) const FIELDS: &str = "name qualifiedName shadowedBy description toolSet source active \
        callable effect inputSchema outputSchema examples";

    /// Returns the plain name if it means this tool, else the qualified name.
    pub(crate) fn shortest_name(&self) -> &Text {
        if self.shadowed_by.is_none() { &self.name } else { &self.qualified_name }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolMatch {
    pub(crate) tool: Tool,
    pub(crate) score: f64,
    pub(crate) hit: bool,
    pub(crate) least_similar: Option<f64>,
}

impl ToolMatch {
    pub(crate) fn fields() -> String {
        format!("tool {{ {} }} score hit leastSimilar leastSimilarExample learned", Tool::FIELDS)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ToolSet {
    pub(crate) name: Text,
    pub(crate) description: Text,
    pub(crate) active: bool,
    pub(crate) source: Text,
    pub(crate) tools: Vec<IgnoredAny>,
    pub(crate) status: Text,
    pub(crate) error: Option<Text>,
}

impl ToolSet {
    pub(crate) fn fields() -> String {
        format!("name description active source tools {{ {} }} status error", Tool::FIELDS)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolSetChange {
    pub(crate) changed: Vec<Text>,
    pub(crate) not_found: Vec<Text>,
    pub(crate) refused: Vec<Text>,
    #[serde(rename = "toolSets")]
    pub(crate) tool_sets: Vec<ToolSet>,
}

impl ToolSetChange {
    pub(crate) fn fields() -> String {
        format!("changed notFound refused toolSets {{ {} }}", ToolSet::fields())
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolResult {
    pub(crate) tool: Text,
    pub(crate) status: Text,
    pub(crate) result: Value,
    pub(crate) error: Option<Text>,
    #[serde(rename = "durationMs")]
    pub(crate) duration_ms: f64,
    pub(crate) at: Text,
}

impl ToolResult {
    pub(crate) const FIELDS: &str =
        "callId tool status parameters result error warnings durationMs at";
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolUsage {
    pub(crate) tool_name: Text,
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    pub(crate) last_called_at: Option<Text>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

impl ToolUsage {
    pub(crate) const FIELDS: &str =
        "toolName qualifiedName calls failures lastCalledAt p50Ms p99Ms";
}

/// Two tools that the same sentences select.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolCollision {
    pub(crate) a: Text,
    pub(crate) b: Text,
    pub(crate) similarity: f64,
}

impl ToolCollision {
    pub(crate) const FIELDS: &str = "a b similarity";
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Toolkit {
    pub(crate) actions: Vec<Named>,
    pub(crate) tools: Vec<Named>,
    #[serde(default)]
    pub(crate) edges: Vec<ToolkitEdge>,
}

impl Toolkit {
    pub(crate) const FIELDS: &str = "actions { name description } tools { name description toolSet \
        source active effect } edges { from to kind score learned } mermaid dot svg yaml";
    /// The fields that views show.
    pub(crate) const SHOWN: &str =
        "actions { name description } tools { name } edges { from to kind score learned }";
    pub(crate) const NAMES: &str = "actions { name } tools { name }";
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: Text,
    #[serde(default)]
    pub(crate) description: Text,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolkitEdge {
    pub(crate) from: Text,
    pub(crate) to: Text,
    pub(crate) kind: Text,
    pub(crate) score: f64,
    pub(crate) learned: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, serde::Serialize)]
pub(crate) struct Pruned {
    pub(crate) executions: u64,
    pub(crate) plans: u64,
    pub(crate) requests: u64,
    #[serde(skip_serializing)]
    pub(crate) more: bool,
}

impl Pruned {
    pub(crate) const FIELDS: &str = "executions plans requests more";
}

pub(crate) const BLOB: &str = "id mimeType bytes sha256 at data";
