//! Arguments of the tools. The input schemas come from these types.

use schemars::{JsonSchema, Schema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PlanArguments {
    /// The request in words, with one clause for each step and all values that the tools need.
    /// Example: `Create author Alice with email alice@test.com, then create blog by Alice titled
    /// Hello`.
    pub(crate) query: String,
    /// Plan only with tools of these toolsets. Default: all active toolsets.
    pub(crate) tool_sets: Option<Vec<String>>,
    /// Maximum number of tools that the planner sees, from 1 to 1,000. The tools that fit the query
    /// best are kept. Default: 256. A model sees all if there are at most 24, otherwise the best 8.
    #[schemars(range(min = 1))]
    pub(crate) max_tools: Option<i32>,
    /// `offline`, `model`, or the name of the configured provider or model. Default: the configured
    /// planner.
    pub(crate) planner: Option<String>,
    /// A stricter rule for calls of a model's plan that the query does not ask for, or whose values
    /// it does not contain: `APPROVE` lets the steps wait for `approve`. `STRICT` refuses the plan
    /// if the query does not ask for a call. Default: the configured rule.
    pub(crate) guard: Option<Guard>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DraftArguments {
    /// The plan to check: a list of steps in `tools`.
    #[schemars(schema_with = "draft_schema")]
    pub(crate) plan: Map<String, Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExecuteArguments {
    /// A plan (`plan_…`), a request (`req_…`, its newest plan), or the name of a saved plan. An
    /// execution (`exec_…`) is continued if its process has ended.
    pub(crate) id: String,
    /// The values of `{{input.x}}` in the plan. Default: none.
    #[serde(default)]
    #[schemars(schema_with = "object_schema")]
    pub(crate) input: Option<Value>,
    /// `PARALLEL` starts each step as soon as it is ready. `SEQUENTIAL` runs one step after
    /// another. Default: `PARALLEL`.
    pub(crate) mode: Option<Mode>,
    /// Checks the plan and the input without calling any tool.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Makes it safe to repeat the request: a second request with the same key returns the first
    /// execution. Fails with `CONFLICT` if the key was used with another plan or other options.
    pub(crate) idempotency_key: Option<String>,
    /// Milliseconds from the start of the execution to its deadline. An execution that has not
    /// finished by then fails. Default: no deadline.
    #[schemars(range(min = 1))]
    pub(crate) deadline_ms: Option<i32>,
    /// Maximum number of consecutive replans of the execution, from 0 to 16: after a failure, or
    /// when a `flow.replan` step asks for it. Without a configured model, only plans of the
    /// `offline` planner are replanned, around failed `READ` calls. Default: never after a failure,
    /// and up to 4 times for `flow.replan`.
    #[schemars(range(min = 0))]
    pub(crate) replans: Option<i32>,
    /// Undoes the steps that succeeded if the execution fails or is cancelled, with the calls in
    /// `compensate` of each step. Default: true if a step of the plan or of a sub-plan has
    /// `compensate` and no automatic replan is possible, neither after a failure (`replans`) nor by
    /// a `flow.replan` step.
    pub(crate) compensate_on_failure: Option<bool>,
    /// Waits until the execution finishes. If false, the tool returns at once, and `status` shows
    /// the result later.
    #[serde(default = "default_true")]
    pub(crate) wait: bool,
    /// Milliseconds to wait, from 0 to 3,600,000. After this time, the tool returns and the
    /// execution continues. Default: 45,000.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RunArguments {
    /// The request in words, with one clause for each step and all values that the tools need.
    /// Example: `Create author Alice with email alice@test.com, then create blog by Alice titled
    /// Hello`.
    pub(crate) query: String,
    /// Plan only with tools of these toolsets. Default: all active toolsets.
    pub(crate) tool_sets: Option<Vec<String>>,
    /// Maximum number of tools that the planner sees, from 1 to 1,000. The tools that fit the query
    /// best are kept. Default: 256. A model sees all if there are at most 24, otherwise the best 8.
    #[schemars(range(min = 1))]
    pub(crate) max_tools: Option<i32>,
    /// `offline`, `model`, or the name of the configured provider or model. Default: the configured
    /// planner.
    pub(crate) planner: Option<String>,
    /// A stricter rule for calls of a model's plan that the query does not ask for, or whose values
    /// it does not contain: `APPROVE` lets the steps wait for `approve`. `STRICT` refuses the plan
    /// if the query does not ask for a call. Default: the configured rule.
    pub(crate) guard: Option<Guard>,
    /// `PARALLEL` starts each step as soon as it is ready. `SEQUENTIAL` runs one step after
    /// another. Default: `PARALLEL`.
    pub(crate) mode: Option<Mode>,
    /// Checks the plan and the input without calling any tool.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Makes it safe to repeat the request: a second request with the same key plans nothing and
    /// returns the first execution. Fails with `CONFLICT` if the key was used with another query or
    /// other options.
    pub(crate) idempotency_key: Option<String>,
    /// Milliseconds from the start of the execution to its deadline. An execution that has not
    /// finished by then fails. Default: no deadline.
    #[schemars(range(min = 1))]
    pub(crate) deadline_ms: Option<i32>,
    /// Maximum number of consecutive replans of the execution, from 0 to 16: after a failure, or
    /// when a `flow.replan` step asks for it. Without a configured model, only plans of the
    /// `offline` planner are replanned, around failed `READ` calls. Default: never after a failure,
    /// and up to 4 times for `flow.replan`.
    #[schemars(range(min = 0))]
    pub(crate) replans: Option<i32>,
    /// Undoes the steps that succeeded if the execution fails or is cancelled, with the calls in
    /// `compensate` of each step. Default: true if a step of the plan or of a sub-plan has
    /// `compensate` and no automatic replan is possible, neither after a failure (`replans`) nor by
    /// a `flow.replan` step.
    pub(crate) compensate_on_failure: Option<bool>,
    /// Waits until the execution finishes. If false, the tool returns at once, and `status` shows
    /// the result later.
    #[serde(default = "default_true")]
    pub(crate) wait: bool,
    /// Milliseconds to wait, from 0 to 3,600,000. After this time, the tool returns and the
    /// execution continues. Default: 45,000.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StatusArguments {
    /// An execution (`exec_…`), or a plan (`plan_…`) or request (`req_…`) for its newest execution.
    pub(crate) id: String,
    /// Waits until the execution finishes, and reports progress during the wait.
    #[serde(default)]
    pub(crate) wait: bool,
    /// Milliseconds to wait, from 0 to 3,600,000. Default: 45,000. Without `wait` it has no effect.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DebugArguments {
    /// A request (`req_…`), or one of its plans (`plan_…`) or executions (`exec_…`).
    pub(crate) id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CancelArguments {
    /// An execution (`exec_…`), or a plan (`plan_…`) or request (`req_…`) for its newest execution.
    pub(crate) id: String,
    /// The reason, which is stored with the execution.
    pub(crate) reason: Option<String>,
    /// Milliseconds to wait until the execution has stopped, from 0 to 3,600,000. Default: 45,000.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApproveArguments {
    /// An execution (`exec_…`), or a plan (`plan_…`) or request (`req_…`) for its newest execution.
    pub(crate) id: String,
    /// The id of the step that waits. For a step with `forEach`, `step[3]` is the item with index
    /// 3, and `step` means all waiting items.
    pub(crate) step_id: String,
    /// True approves the step; false rejects it, and the step fails.
    #[serde(default = "default_true")]
    pub(crate) approved: bool,
    /// The reason, which is stored with the execution.
    pub(crate) comment: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SettleArguments {
    /// An execution (`exec_…`), or a plan (`plan_…`) or request (`req_…`) for its newest execution.
    pub(crate) id: String,
    /// The id of the step whose call has an unknown outcome. For a step with `forEach`, `step[3]`
    /// is the item with index 3.
    pub(crate) step_id: String,
    /// The index of the item if the step has `forEach`, from 0.
    pub(crate) item: Option<u32>,
    /// `SUCCEEDED` if the call took effect, `FAILED` if it had no effect.
    pub(crate) outcome: Outcome,
    /// The output of the call if it succeeded. It must fit the tool's output schema. Default: null.
    #[serde(default)]
    #[schemars(schema_with = "any_json_schema")]
    pub(crate) output: Option<Value>,
    /// The reason, which is stored with the execution.
    pub(crate) comment: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SignalArguments {
    /// An execution (`exec_…`), or a plan (`plan_…`) or request (`req_…`) for its newest execution.
    pub(crate) id: String,
    /// The name that the `flow.wait` step waits for.
    pub(crate) name: String,
    /// The output of the `flow.wait` step. Default: null.
    #[serde(default)]
    #[schemars(schema_with = "any_json_schema")]
    pub(crate) payload: Option<Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListArguments {
    /// Lists only tools with all of these words in their name, description or examples.
    pub(crate) search: Option<String>,
    /// Lists only tools of this toolset.
    pub(crate) tool_set: Option<String>,
    /// Lists only tools that plans can use now, and not the tools of inactive toolsets.
    #[serde(default = "default_true")]
    pub(crate) active_only: bool,
    /// Includes the JSON Schema of each tool's parameters.
    #[serde(default)]
    pub(crate) with_parameters: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SelectArguments {
    /// The task in words.
    pub(crate) query: String,
    /// Maximum number of tools to return, from 1 to 100.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 100))]
    pub(crate) limit: i32,
    /// Method to rank tools. `HYBRID`: by meaning and words. `CENTROID`: by the tools' examples.
    /// `DESCRIPTION`: by the tools' descriptions. `LEXICAL`: by words only. Default: `HYBRID`.
    #[serde(default)]
    pub(crate) by: Criterion,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoArguments {}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(crate) enum Mode {
    Sequential,
    Parallel,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(crate) enum Guard {
    Strict,
    Approve,
    Off,
}

impl Guard {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "STRICT",
            Self::Approve => "APPROVE",
            Self::Off => "OFF",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(crate) enum Criterion {
    #[default]
    Hybrid,
    Centroid,
    Description,
    Lexical,
}

impl Mode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sequential => "SEQUENTIAL",
            Self::Parallel => "PARALLEL",
        }
    }
}

impl Criterion {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hybrid => "HYBRID",
            Self::Centroid => "CENTROID",
            Self::Description => "DESCRIPTION",
            Self::Lexical => "LEXICAL",
        }
    }
}

fn default_true() -> bool {
    true
}

fn default_limit() -> i32 {
    5
}

/// Accepts any JSON except null. The schema lists the types, because some clients reject an empty
/// schema.
fn any_json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    let kinds = ["object", "array", "string", "number", "boolean"];
    let kinds = kinds.map(|kind| json!({ "type": kind }));
    json_schema!({ "anyOf": kinds })
}

fn object_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// Describes the fields of a draft without their rules, which the compiler checks.
fn draft_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number = |description: &str| json!({ "type": "integer", "description": description });
    json_schema!({
        "type": "object",
        "required": ["tools"],
        "properties": {
            "query": text("The purpose of the plan in words. Default: the names of the tools"),
            "requestId": text("The request (`req_…`) whose next version this plan becomes. \
                Default: a new request"),
            "executionOrder": {
                "type": "array", "items": { "type": "string" },
                "description": "Step ids in the order that you expect. Faber computes the order, \
                    and warns if your order differs"
            },
            "tools": {
                "type": "array",
                "minItems": 1,
                "description": "The steps, in any order",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": text("The name of the step within the plan. Default: the name of \
                            its tool"),
                        "name": text("The tool to call, named as in `list_tools`"),
                        "plan": { "anyOf": [{ "type": "string" }, { "type": "object" }],
                            "description": "A plan to execute in place of a tool: its id, its \
                            saved name, or the plan itself" },
                        "parameters": { "type": "object", "description": "The parameters of the \
                            tool. `{{step.path}}` inserts a part of an earlier step's output, and \
                            `{{input.x}}` a part of the execution's input" },
                        "dependsOn": { "type": "array", "items": { "type": "string" },
                            "description": "Steps that must finish first. Steps that templates \
                            name are added" },
                        "when": text("A condition in CEL over outputs of earlier steps, such as \
                            `find.count > 0`. If it is false, the step is skipped"),
                        "forEach": text("One template whose value is a list. The step calls its \
                            tool once for each `{{item}}`"),
                        "maxParallel": number("Maximum number of items of `forEach` that run at \
                            the same time, from 1 to 10,000. Default: 256"),
                        "outputMapping": { "type": "object", "description": "Variables from the \
                            output: `{\"path\": \"variable\"}`, used as `{{vars.variable}}`" },
                        "onError": { "type": "string", "enum": ["fail", "continue", "ignore", "wait"],
                            "description": "The consequence of a failure. `fail`: the execution \
                            fails. `continue`: dependent steps are skipped. `ignore`: dependent \
                            steps run with the output null. `wait`: a person decides. Default: \
                            `fail`" },
                        "retry": { "type": "object", "description": "Further attempts after a \
                            failure: `{maxAttempts, backoffMs, multiplier, maxBackoffMs, jitter}`. \
                            Default: one attempt" },
                        "timeoutMs": number("The time limit of one attempt in milliseconds. \
                            Default: 300,000"),
                        "requiresApproval": { "type": "boolean", "description": "A person must \
                            approve the step before it starts. Default: false" },
                        "compensate": { "type": "object", "description": "The call that undoes the \
                            step: `{name, parameters}`" }
                    }
                }
            }
        }
    })
}
