//! Arguments of the tools. The input schemas come from these types.

use schemars::{JsonSchema, Schema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Arguments of `plan`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PlanArguments {
    /// What is to be done, in words: one clause for each step, as in `Create author Alice with
    /// email alice@test.com, then create blog by Alice titled Hello`.
    pub(crate) query: String,
    /// Only tools of these sets.
    pub(crate) tool_sets: Option<Vec<String>>,
    /// Show the planner at most so many tools: those that fit the query best.
    #[schemars(range(min = 1))]
    pub(crate) max_tools: Option<i32>,
    /// Which planner; the configured one where nothing is said.
    pub(crate) planner: Option<String>,
}

/// Arguments of `validate` and `create_plan`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DraftArguments {
    /// The plan.
    #[schemars(schema_with = "draft")]
    pub(crate) plan: Map<String, Value>,
}

/// Arguments of `execute`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExecuteArguments {
    /// `plan_…`, `req_…` for its newest plan, or the name of a saved plan; `exec_…` carries an
    /// execution on that nobody has.
    pub(crate) id: String,
    /// What the plan is given as `{{input.x}}`.
    #[serde(default)]
    #[schemars(schema_with = "inputs")]
    pub(crate) input: Option<Value>,
    /// One step at a time, or whatever is ready (the default).
    pub(crate) mode: Option<Mode>,
    /// Check everything and call nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The same key gives the same execution, however often it is asked for.
    pub(crate) idempotency_key: Option<String>,
    /// How long the execution may take, from its start.
    #[schemars(range(min = 1))]
    pub(crate) deadline_ms: Option<i32>,
    /// How often a model may plan anew by itself what fails.
    #[schemars(range(min = 0))]
    pub(crate) replans: Option<i32>,
    /// Whether to undo what succeeded if it fails, by the steps' `compensate`. Left out: yes, if a
    /// step of the plan has `compensate` and no `replans` are asked for.
    pub(crate) compensate_on_failure: Option<bool>,
    /// Whether to wait for the end. If not, `status` tells how it goes.
    #[serde(default = "yes")]
    pub(crate) wait: bool,
    /// How long to wait; the execution goes on behind that.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

/// Arguments of `run`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RunArguments {
    /// What is to be done, in words: one clause for each step.
    pub(crate) query: String,
    /// Only tools of these sets.
    pub(crate) tool_sets: Option<Vec<String>>,
    /// Show the planner at most so many tools: those that fit the query best.
    #[schemars(range(min = 1))]
    pub(crate) max_tools: Option<i32>,
    /// Which planner; the configured one where nothing is said.
    pub(crate) planner: Option<String>,
    /// One step at a time, or whatever is ready (the default).
    pub(crate) mode: Option<Mode>,
    /// Check everything and call nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The same key gives the same execution, and plans nothing again.
    pub(crate) idempotency_key: Option<String>,
    /// How long the execution may take, from its start.
    #[schemars(range(min = 1))]
    pub(crate) deadline_ms: Option<i32>,
    /// How often a model may plan anew by itself what fails.
    #[schemars(range(min = 0))]
    pub(crate) replans: Option<i32>,
    /// Whether to undo what succeeded if it fails, by the steps' `compensate`. Left out: yes, if a
    /// step of the plan has `compensate` and no `replans` are asked for.
    pub(crate) compensate_on_failure: Option<bool>,
    /// Whether to wait for the end. If not, `status` tells how it goes.
    #[serde(default = "yes")]
    pub(crate) wait: bool,
    /// How long to wait; the execution goes on behind that.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

/// Arguments of `status`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StatusArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// Whether to wait for the end, reporting progress.
    #[serde(default)]
    pub(crate) wait: bool,
    /// How long to wait.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

/// Arguments of `debug`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DebugArguments {
    /// `req_…`, or a `plan_…` or `exec_…` of it.
    pub(crate) id: String,
}

/// Arguments of `cancel`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CancelArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// Why, for those who look at it later.
    pub(crate) reason: Option<String>,
    /// How long to wait until everything has stopped.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(crate) timeout_ms: Option<u64>,
}

/// Arguments of `approve`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApproveArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The step that waits; `step[3]` is one item of a list.
    pub(crate) step_id: String,
    /// Whether it may go on.
    #[serde(default = "yes")]
    pub(crate) approved: bool,
    /// Why, for those who look at it later.
    pub(crate) comment: Option<String>,
}

/// Arguments of `settle`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SettleArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The step whose call has an unknown outcome; `step[3]` is one item of a list.
    pub(crate) step_id: String,
    /// The item of the step's list, from 0.
    pub(crate) item: Option<u32>,
    /// What became of the call: it took effect, or it had none.
    pub(crate) outcome: Outcome,
    /// What the call returned, if it took effect. Null if it is left out.
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    pub(crate) output: Option<Value>,
    /// Why, for those who look at it later.
    pub(crate) comment: Option<String>,
}

/// What became of a call.
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

/// Arguments of `signal`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SignalArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The signal's name.
    pub(crate) name: String,
    /// What it brings.
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    pub(crate) payload: Option<Value>,
}

/// Arguments of `list_tools`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListArguments {
    /// Only those with these words.
    pub(crate) search: Option<String>,
    /// Only those of this set.
    pub(crate) tool_set: Option<String>,
    /// Only those that plans may use.
    #[serde(default = "yes")]
    pub(crate) active_only: bool,
    /// With the JSON Schema of what each takes.
    #[serde(default)]
    pub(crate) with_parameters: bool,
}

/// Arguments of `select_tools`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SelectArguments {
    /// What is wanted, in words.
    pub(crate) query: String,
    /// At most so many.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 100))]
    pub(crate) limit: i32,
    /// By what tools are chosen: by meaning and words (the default), by the middle of their
    /// examples, by their description, or by words alone.
    #[serde(default)]
    pub(crate) by: By,
}

/// Arguments of tools without arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoArguments {}

/// One step at a time, or whatever is ready.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(crate) enum Mode {
    Sequential,
    Parallel,
}

/// By what tools are chosen.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(crate) enum By {
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

impl By {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hybrid => "HYBRID",
            Self::Centroid => "CENTROID",
            Self::Description => "DESCRIPTION",
            Self::Lexical => "LEXICAL",
        }
    }
}

fn yes() -> bool {
    true
}

fn five() -> i32 {
    5
}

/// Any JSON except null. Some clients reject an empty schema.
fn anything(_: &mut schemars::SchemaGenerator) -> Schema {
    let kinds = ["object", "array", "string", "number", "boolean"];
    let kinds = kinds.map(|kind| json!({ "type": kind }));
    json_schema!({ "anyOf": kinds })
}

fn inputs(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// The shape of a draft. The compiler checks the rest.
fn draft(_: &mut schemars::SchemaGenerator) -> Schema {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let number = |description: &str| json!({ "type": "integer", "description": description });
    json_schema!({
        "type": "object",
        "required": ["tools"],
        "properties": {
            "query": text("What the plan is for, in words"),
            "requestId": text("The request that it is to be the next version of, `req_…`"),
            "executionOrder": {
                "type": "array", "items": { "type": "string" },
                "description": "The order that you think is right; only checked"
            },
            "tools": {
                "type": "array",
                "minItems": 1,
                "description": "The steps, in any order",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": text("A name for the step; its tool's name where it is left out"),
                        "name": text("The tool, as `list_tools` has it"),
                        "plan": { "anyOf": [{ "type": "string" }, { "type": "object" }],
                            "description": "Instead of a tool: a plan to execute, by its id or its \
                            saved name, or written out here" },
                        "parameters": { "type": "object", "description": "What the tool is given. \
                            `{{step.path}}` stands for a part of what an earlier step returned, \
                            `{{input.x}}` for what the execution is given" },
                        "dependsOn": { "type": "array", "items": { "type": "string" },
                            "description": "Steps to wait for besides those that templates name" },
                        "when": text("A condition in CEL over earlier steps, such as \
                            `find.count > 0`"),
                        "forEach": text("One template that gives a list: the step is done for \
                            each `{{item}}` of it"),
                        "maxParallel": number("How many items of the list at once"),
                        "outputMapping": { "type": "object", "description": "Variables from the \
                            output: `{\"path\": \"variable\"}`, used as `{{vars.variable}}`" },
                        "onError": { "type": "string", "enum": ["fail", "continue", "ignore", "wait"],
                            "description": "What a failure of the step means: for all, for what \
                            depends on it, for nothing, or what a person says" },
                        "retry": { "type": "object", "description": "`{maxAttempts, backoffMs, \
                            multiplier, maxBackoffMs, jitter}`" },
                        "timeoutMs": number("How long an attempt may take"),
                        "requiresApproval": { "type": "boolean", "description": "Whether a person \
                            must agree before it starts" },
                        "compensate": { "type": "object", "description": "What undoes the step: \
                            `{name, parameters}`" }
                    }
                }
            }
        }
    })
}
