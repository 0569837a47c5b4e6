//! Plans as stores keep them, before they are checked.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PlanInfo, StepPolicy};
use crate::{
    condition::ConditionError,
    diagnostic::Diagnostic,
    id::{PlanId, StepId, StepNumber, ToolName},
    limits,
    template::TemplateError,
};

/// A plan as stores keep it. It may be invalid.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedPlan {
    pub about: PlanInfo,
    /// The steps in topological order.
    pub steps: Vec<UncheckedStep>,
    /// The numbers of the steps in the order of the draft. Empty if that is the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<StepNumber>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
}

/// A step as stores keep it.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UncheckedStep {
    #[serde(rename = "stepId", alias = "id")]
    pub id: StepId,
    #[serde(rename = "toolName", alias = "tool")]
    pub tool: ToolName,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// The steps that must finish before this step starts, including the steps that its templates
    /// read.
    #[serde(default, alias = "depends_on", skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// Pairs of an output path and the variable that it fills.
    #[serde(default, alias = "output_mapping", skip_serializing_if = "Vec::is_empty")]
    pub output_mapping: Vec<(String, String)>,
    pub policy: StepPolicy,
    /// The plan that the step executes. `tool` is then the name by which the author of the draft
    /// called that plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// The JSON Schema of the inputs of the executed plan, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Arc<Value>>,
    /// The condition, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The template of the list to repeat the step for, as written.
    #[serde(default, alias = "for_each", skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Box<UncheckedCompensation>>,
}

/// The call that undoes a step, as stores keep it.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedCompensation {
    #[serde(rename = "toolName", alias = "tool")]
    pub tool: ToolName,
    pub parameters: Arc<Value>,
    pub policy: StepPolicy,
}

/// The reason why a plan cannot run.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("the plan has no steps")]
    Empty,
    #[error("the plan has {0} steps; the limit is {max}", max = limits::PLAN_STEPS)]
    TooLarge(usize),
    #[error("two steps are called `{0}`")]
    Duplicate(StepId),
    /// The given [`StepNames`](super::StepNames) do not belong to the steps.
    #[error("the names do not match the plan's steps")]
    Names,
    /// The order of the draft does not name each step exactly once.
    #[error("the order of the draft does not name each step exactly once")]
    Written,
    /// A step depends on itself, a later or an unknown step, reads a value that is not known when
    /// it starts, or lists its dependencies in the wrong order.
    #[error("step `{step}` depends on `{on}`, which does not come before it")]
    Order { step: StepId, on: String },
    #[error("step `{step}`, at `{}`: {error}", error.at)]
    Template { step: StepId, error: TemplateError },
    #[error("the condition of step `{step}` is wrong: {error}")]
    Condition { step: StepId, error: ConditionError },
    /// The list of a `forEach` is not a single whole template.
    #[error("`forEach` of step `{0}` must be one whole template, such as `{{{{list}}}}`")]
    ForEach(StepId),
    #[error("step `{step}` maps `{path}`, which is not a path")]
    Mapping { step: StepId, path: String },
}

/// The reason why a stored plan cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum StoredPlanError {
    /// The text is not the JSON of a plan.
    #[error("the stored plan cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The plan cannot run.
    #[error("the stored plan cannot run: {0}")]
    Plan(#[from] PlanError),
}
