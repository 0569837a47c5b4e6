//! A plan as a model or a person writes it. Untrusted.
//!
//! The JSON is `{"tools":[{"name","parameters","dependsOn","outputMapping"}],"executionOrder":[…]}`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::{
    diagnostic::Diagnostic,
    plan::{Compensation, Plan, RetryPolicy, StepKind, StepPolicy, ToolExecution},
};

/// A plan as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Draft {
    /// What it is for, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The request that it is to be the next version of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The steps, in any order.
    pub tools: Vec<DraftStep>,
    /// The order that the author thinks is right. Only checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_order: Option<Vec<String>>,
    /// What was noticed when it was read; it becomes part of the plan's diagnostics.
    #[serde(skip)]
    pub notices: Vec<Diagnostic>,
}

/// A step as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DraftStep {
    /// A name for the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name of a tool. Exactly one of `name`, `toolName` and `plan` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The plan that the step executes, instead of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<SubDraft>,
    /// The parameters, perhaps with `{{step.path}}` in them. An object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// What to wait for, besides what templates name: null, a name, or a list of names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Value>,
    /// `{"path in the output": "variable"}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_mapping: Option<Map<String, Value>>,
    /// How often and when it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<DraftRetry>,
    /// How long an attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// `fail`, `continue`, `ignore` or `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<String>,
    /// Whether a person must agree before it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_approval: Option<bool>,
    /// A condition, in CEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The template of the list for each item of which the step is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    /// How many items are done at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<i64>,
    /// What undoes the step: a [`DraftCompensation`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Value>,
    /// How long an attempt may take without saying anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<i64>,
    /// How long what the tool returns may be taken for what it would return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl_ms: Option<i64>,
    /// Whether a template that finds nothing fails the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_templates: Option<bool>,
}

/// A plan that a step executes, as written.
///
/// The reader of drafts is written by hand, so nobody ever reads what serde says of this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SubDraft {
    /// The id of a plan, or the name that it was saved under.
    Named(String),
    /// A plan of its own, written where it is used.
    Inline(Box<Draft>),
}

/// The call that undoes a step, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DraftCompensation {
    /// The name of a tool. Exactly one of `name` and `toolName` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The parameters, perhaps with `{{step.path}}` in them. An object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// How often and when it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<DraftRetry>,
    /// How long an attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
}

/// How often and when a step is tried again, as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DraftRetry {
    /// Tries in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// The wait before the second try, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<i64>,
    /// The longest wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_backoff_ms: Option<i64>,
    /// What the wait is multiplied by each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// Whether each wait is drawn between half of it and all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<bool>,
}

impl Draft {
    /// Writes a plan down again: compiled with the same tools, and with the plans that
    /// [`SubPlans::of`](crate::plans::SubPlans::of) finds in it, it gives the same steps.
    pub fn from_plan(plan: &Plan) -> Self {
        Self {
            query: Some(plan.info().query.clone()),
            tools: plan.steps().iter().map(|it| DraftStep::from_step(plan, it)).collect(),
            ..Self::default()
        }
    }
}

impl Draft {
    /// Writes a plan down as a person would: what is as it always is, is left out. It means what
    /// [`from_plan`](Self::from_plan) means.
    pub fn exported(plan: &Plan) -> Self {
        let mut draft = Self::from_plan(plan);
        for (written, step) in draft.tools.iter_mut().zip(plan.steps()) {
            written.leave_out_the_usual(step);
        }
        draft
    }
}

impl DraftStep {
    fn leave_out_the_usual(&mut self, step: &ToolExecution) {
        fn unless<T>(is_usual: bool, written: &mut Option<T>) {
            if is_usual {
                *written = None;
            }
        }
        let (usual, policy) = (StepPolicy::default(), &step.policy);
        let has_none = step.parameters.as_object().is_some_and(Map::is_empty);
        unless(has_none, &mut self.parameters);
        unless(step.depends_on.is_empty(), &mut self.depends_on);
        unless(step.output_mapping.is_empty(), &mut self.output_mapping);
        unless(policy.retry == usual.retry, &mut self.retry);
        unless(policy.timeout_ms == usual.timeout_ms, &mut self.timeout_ms);
        unless(policy.on_error == usual.on_error, &mut self.on_error);
        unless(!policy.requires_approval, &mut self.requires_approval);
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
        let on = step.depends_on.iter().map(|it| plan.step(*it).id.as_str());
        let mapping = step.output_mapping.iter();
        let mapping = mapping.map(|it| (it.written.clone(), Value::from(&*it.variable)));
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
            timeout_ms: Some(written(policy.timeout_ms)),
            on_error: Some(policy.on_error.to_string()),
            requires_approval: Some(policy.requires_approval),
            when: step.when.as_ref().map(|it| it.source().to_owned()),
            for_each: step.for_each.as_ref().map(|it| it.written.clone()),
            max_parallel: policy.max_parallel.map(i64::from),
            compensate: step.compensate.as_deref().map(DraftCompensation::from_compensation),
            idle_timeout_ms: policy.idle_timeout_ms.map(written),
            cache_ttl_ms: policy.cache_ttl_ms.map(written),
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
            timeout_ms: Some(written(*timeout_ms)),
        };
        serde_json::to_value(draft).expect("the keys of a compensation are text")
    }
}

impl DraftRetry {
    fn from_policy(policy: &RetryPolicy) -> Self {
        Self {
            max_attempts: Some(policy.max_attempts.into()),
            backoff_ms: Some(written(policy.backoff_ms)),
            max_backoff_ms: Some(written(policy.max_backoff_ms)),
            multiplier: Some(policy.multiplier),
            jitter: Some(policy.jitter),
        }
    }
}

/// Returns a number as drafts have it; a plan has none that is larger.
fn written(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl From<&str> for SubDraft {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}
