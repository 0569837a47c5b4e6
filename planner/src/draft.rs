//! A plan as a model or a person writes it. Untrusted.
//!
//! The JSON is `{"tools":[{"name","parameters","dependsOn","outputMapping"}],"executionOrder":[…]}`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::diagnostic::Diagnostic;

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
    /// The name of a tool. Exactly one of `name` and `toolName` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
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
