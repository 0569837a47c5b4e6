//! Plans as stores keep them and as nobody should trust them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{About, StepPolicy};
use crate::{
    condition::ConditionError,
    diagnostic::Diagnostic,
    id::{PlanId, StepId, StepIx, ToolName},
    limits,
    template::TemplateError,
};

/// A plan as a store keeps it and as the compiler proposes it: perhaps one that cannot run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedPlan {
    /// What it is for and where it came from.
    pub about: About,
    /// The steps, in topological order.
    pub steps: Vec<UncheckedStep>,
    /// Their numbers in the order in which they were written; empty where that is the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<StepIx>,
    /// What its author should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
}

/// A step as a store keeps it and as the compiler proposes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedStep {
    /// Its name within the plan.
    pub id: StepId,
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// What must be over before it starts, templates' steps included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<StepId>,
    /// Which path of its output fills which variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_mapping: Vec<(String, String)>,
    /// How it is carried out.
    pub policy: StepPolicy,
    /// The plan that it executes; the tool's name is then what the author called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    /// The JSON Schema of what that plan is given, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Arc<Value>>,
    /// Its condition, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The template of the list for each item of which it is done, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    /// What undoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Box<UncheckedCompensation>>,
}

/// The call that undoes a step, as a store keeps it and as the compiler proposes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UncheckedCompensation {
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// How it is carried out.
    pub policy: StepPolicy,
}

/// Why a plan cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is nothing to do.
    #[error("the plan has no steps")]
    Empty,
    /// There is too much to do.
    #[error("the plan has {0} steps; the most is {max}", max = limits::PLAN_STEPS)]
    TooLarge(usize),
    /// Two steps have one name.
    #[error("two steps are called `{0}`")]
    Duplicate(StepId),
    /// The names are not those of the steps.
    #[error("the names are not those of the plan's steps")]
    Names,
    /// The order in which the steps were written does not name each of them once.
    #[error("the order in which the steps were written is not one of the plan's steps")]
    Written,
    /// A step depends on itself, on a later one, or on none of the plan's.
    #[error("step `{step}` depends on `{on}`, which does not come before it")]
    Order {
        /// The step.
        step: StepId,
        /// What it depends on.
        on: String,
    },
    /// A template is wrong.
    #[error("step `{step}`, at `{}`: {error}", error.at)]
    Template {
        /// The step.
        step: StepId,
        /// What is wrong.
        error: TemplateError,
    },
    /// A condition is wrong.
    #[error("the condition of step `{step}` is wrong: {error}")]
    Condition {
        /// The step.
        step: StepId,
        /// What is wrong.
        error: ConditionError,
    },
    /// What a step is to be done for each item of is not one template.
    #[error("`forEach` of step `{0}` must be one whole template, such as `{{{{list}}}}`")]
    ForEach(StepId),
    /// An output mapping is wrong.
    #[error("step `{step}` maps `{path}`, which is not a path")]
    Mapping {
        /// The step.
        step: StepId,
        /// The path.
        path: String,
    },
}

/// Why what a store keeps is not a plan.
#[derive(Debug, thiserror::Error)]
pub enum StoredPlanError {
    /// It is not the JSON of a plan.
    #[error("the stored plan cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It is the JSON of a plan that cannot run.
    #[error("the stored plan cannot run: {0}")]
    Plan(#[from] PlanError),
}
