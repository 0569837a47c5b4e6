//! Untrusted plans, as a model or a person writes them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::{
    diagnostic::Diagnostic,
    plan::{Compensation, Plan, RetryPolicy, StepKind, StepPolicy, ToolExecution},
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Draft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    pub tools: Vec<DraftStep>,
    /// The author's execution order. The compiler only checks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_order: Option<Vec<String>>,
    /// Warnings and errors of the reader. The compiler reports them with its own diagnostics.
    #[serde(skip)]
    pub notices: Vec<Diagnostic>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DraftStep {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name of a tool. A step has exactly one of `name`, `toolName` and `plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The plan that the step executes, instead of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<SubDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Dependencies besides the dependencies that follow from templates: null, a name, or a list of
    /// names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Value>,
    /// `{"path in the output": "variable"}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_mapping: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<DraftRetry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_approval: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Value>,
    /// The longest time in milliseconds in which an attempt may report no progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<i64>,
    /// The time in milliseconds for which the output may be taken from the output cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl_ms: Option<i64>,
    /// If true, a template that refers to a missing field fails the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_templates: Option<bool>,
}

/// A plan that a step executes, as written. Serde's error messages are never shown, because
/// `compile::parse_value` reads drafts and reports the errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SubDraft {
    Named(String),
    Inline(Box<Draft>),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DraftCompensation {
    /// The name of a tool. A compensation has exactly one of `name` and `toolName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<DraftRetry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DraftRetry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_backoff_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// `true` draws each wait at random between half of its length and its full length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<bool>,
}

impl Draft {
    /// Converts a plan to a draft, which compiles to the same steps with the same tools. The
    /// compiler needs the plans of [`SubPlans::of_plan`](crate::sub_plans::SubPlans::of_plan).
    pub fn from_plan(plan: &Plan) -> Self {
        Self {
            query: Some(plan.info().query.clone()),
            tools: plan.steps().iter().map(|step| DraftStep::from_step(plan, step)).collect(),
            ..Self::default()
        }
    }
}

impl Draft {
    /// Writes a plan as a person would, without default values. It compiles to the same steps as
    /// [`from_plan`](Self::from_plan).
    pub fn for_export(plan: &Plan) -> Self {
        let mut draft = Self::from_plan(plan);
        for (written, step) in draft.tools.iter_mut().zip(plan.steps()) {
            written.clear_defaults(step);
        }
        draft
    }
}

impl DraftStep {
    fn clear_defaults(&mut self, step: &ToolExecution) {
        fn clear_if<T>(is_default: bool, written: &mut Option<T>) {
            if is_default {
                *written = None;
            }
        }
        let (usual, policy) = (StepPolicy::default(), &step.policy);
        let has_none = step.parameters.as_object().is_some_and(Map::is_empty);
        clear_if(has_none, &mut self.parameters);
        clear_if(step.depends_on.is_empty(), &mut self.depends_on);
        clear_if(step.output_mapping.is_empty(), &mut self.output_mapping);
        clear_if(policy.retry == usual.retry, &mut self.retry);
        clear_if(policy.timeout_ms == usual.timeout_ms, &mut self.timeout_ms);
        clear_if(policy.on_error == usual.on_error, &mut self.on_error);
        clear_if(!policy.requires_approval, &mut self.requires_approval);
        let undo = self.compensate.as_mut().and_then(Value::as_object_mut);
        if let (Some(written), Some(undo)) = (undo, &step.compensate) {
            if undo.policy.retry == usual.retry {
                written.shift_remove("retry");
            }
            if undo.policy.timeout_ms == usual.timeout_ms {
                written.shift_remove("timeoutMs");
            }
        }
    }

    fn from_step(plan: &Plan, step: &ToolExecution) -> Self {
        let tool = step.tool.to_string();
        let (name, sub_plan) = match step.kind {
            StepKind::Plan(_) => (None, Some(SubDraft::Named(tool))),
            _ => (Some(tool), None),
        };
        let on = step.depends_on.iter().map(|number| plan.step(*number).id.as_str());
        let mapping = step.output_mapping.iter();
        let mapping =
            mapping.map(|mapping| (mapping.written.clone(), Value::from(&*mapping.variable)));
        let policy = &step.policy;
        Self {
            id: Some(step.id.to_string()),
            name,
            tool_name: None,
            plan: sub_plan,
            parameters: Some((*step.parameters).clone()),
            depends_on: Some(on.collect()),
            output_mapping: Some(mapping.collect()),
            retry: Some(DraftRetry::from_policy(&policy.retry)),
            timeout_ms: Some(to_draft_number(policy.timeout_ms)),
            on_error: Some(policy.on_error.to_string()),
            requires_approval: Some(policy.requires_approval),
            when: step.when.as_ref().map(|condition| condition.source().to_owned()),
            for_each: step.for_each.as_ref().map(|list| list.written.clone()),
            max_parallel: policy.max_parallel.map(i64::from),
            compensate: step.compensate.as_deref().map(DraftCompensation::from_compensation),
            idle_timeout_ms: policy.idle_timeout_ms.map(to_draft_number),
            cache_ttl_ms: policy.cache_ttl_ms.map(to_draft_number),
            strict_templates: policy.strict_templates,
        }
    }
}

impl DraftCompensation {
    fn from_compensation(undo: &Compensation) -> Value {
        let StepPolicy { retry, timeout_ms, .. } = &undo.policy;
        let draft = Self {
            name: Some(undo.tool.to_string()),
            tool_name: None,
            parameters: Some((*undo.parameters).clone()),
            retry: Some(DraftRetry::from_policy(retry)),
            timeout_ms: Some(to_draft_number(*timeout_ms)),
        };
        serde_json::to_value(draft).expect("the keys of a compensation are text")
    }
}

impl DraftRetry {
    fn from_policy(policy: &RetryPolicy) -> Self {
        Self {
            max_attempts: Some(policy.max_attempts.into()),
            backoff_ms: Some(to_draft_number(policy.backoff_ms)),
            max_backoff_ms: Some(to_draft_number(policy.max_backoff_ms)),
            multiplier: Some(policy.multiplier),
            jitter: Some(policy.jitter),
        }
    }
}

/// Converts a number of a plan to the number type of drafts. Every number of a plan fits.
fn to_draft_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl From<&str> for SubDraft {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}
