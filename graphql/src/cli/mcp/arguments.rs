//! What the tools take. The schemas that clients see are made of these types.

use schemars::{JsonSchema, Schema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What `plan` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PlanArguments {
    /// What is to be done, in words: one clause for each step, as in `Create author Alice with
    /// email alice@test.com, then create blog by Alice titled Hello`.
    pub(super) query: String,
    /// Only tools of these sets.
    pub(super) tool_sets: Option<Vec<String>>,
    /// Show the planner at most so many tools: those that fit the query best.
    #[schemars(range(min = 1))]
    pub(super) max_tools: Option<i32>,
    /// Which planner; the configured one where nothing is said.
    pub(super) planner: Option<String>,
}

/// What `validate` and `create_plan` take.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DraftArguments {
    /// The plan.
    #[schemars(schema_with = "draft")]
    pub(super) plan: Map<String, Value>,
}

/// What `execute` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExecuteArguments {
    /// `plan_…`, `req_…` for its newest plan, or the name of a saved plan; `exec_…` carries an
    /// execution on that nobody has.
    pub(super) id: String,
    /// What the plan is given as `{{input.x}}`.
    #[serde(default)]
    #[schemars(schema_with = "inputs")]
    pub(super) input: Option<Value>,
    /// One step at a time, or whatever is ready (the default).
    pub(super) mode: Option<Mode>,
    /// Check everything and call nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// The same key gives the same execution, however often it is asked for.
    pub(super) idempotency_key: Option<String>,
    /// How long the execution may take, from its start.
    #[schemars(range(min = 1))]
    pub(super) deadline_ms: Option<i32>,
    /// How often a model may plan anew by itself what fails.
    #[schemars(range(min = 0))]
    pub(super) replans: Option<i32>,
    /// Undo what succeeded where it fails, by the steps' `compensate`.
    #[serde(default)]
    pub(super) compensate_on_failure: bool,
    /// Whether to wait for the end. If not, `status` tells how it goes.
    #[serde(default = "yes")]
    pub(super) wait: bool,
    /// How long to wait; the execution goes on behind that.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// What `run` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RunArguments {
    /// What is to be done, in words: one clause for each step.
    pub(super) query: String,
    /// Only tools of these sets.
    pub(super) tool_sets: Option<Vec<String>>,
    /// Show the planner at most so many tools: those that fit the query best.
    #[schemars(range(min = 1))]
    pub(super) max_tools: Option<i32>,
    /// Which planner; the configured one where nothing is said.
    pub(super) planner: Option<String>,
    /// One step at a time, or whatever is ready (the default).
    pub(super) mode: Option<Mode>,
    /// Check everything and call nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// The same key gives the same execution, and plans nothing again.
    pub(super) idempotency_key: Option<String>,
    /// How long the execution may take, from its start.
    #[schemars(range(min = 1))]
    pub(super) deadline_ms: Option<i32>,
    /// How often a model may plan anew by itself what fails.
    #[schemars(range(min = 0))]
    pub(super) replans: Option<i32>,
    /// Whether to wait for the end. If not, `status` tells how it goes.
    #[serde(default = "yes")]
    pub(super) wait: bool,
    /// How long to wait; the execution goes on behind that.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// What `status` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StatusArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(super) id: String,
    /// Whether to wait for the end, reporting progress.
    #[serde(default)]
    pub(super) wait: bool,
    /// How long to wait.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// What `debug` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DebugArguments {
    /// `req_…`, or a `plan_…` or `exec_…` of it.
    pub(super) id: String,
}

/// What `cancel` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CancelArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(super) id: String,
    /// Why, for those who look at it later.
    pub(super) reason: Option<String>,
    /// How long to wait until everything has stopped.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// What `approve` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ApproveArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(super) id: String,
    /// The step that waits; `step[3]` is one item of a list.
    pub(super) step_id: String,
    /// Whether it may go on.
    #[serde(default = "yes")]
    pub(super) approved: bool,
    /// Why, for those who look at it later.
    pub(super) comment: Option<String>,
}

/// What `signal` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SignalArguments {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(super) id: String,
    /// The signal's name.
    pub(super) name: String,
    /// What it brings.
    #[serde(default)]
    #[schemars(schema_with = "anything")]
    pub(super) payload: Option<Value>,
}

/// What `list_tools` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListArguments {
    /// Only those with these words.
    pub(super) search: Option<String>,
    /// Only those of this set.
    pub(super) tool_set: Option<String>,
    /// Only those that plans may use.
    #[serde(default = "yes")]
    pub(super) active_only: bool,
    /// With the JSON Schema of what each takes.
    #[serde(default)]
    pub(super) with_parameters: bool,
}

/// What `select_tools` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SelectArguments {
    /// What is wanted, in words.
    pub(super) query: String,
    /// At most so many.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 100))]
    pub(super) limit: i32,
    /// By what tools are chosen: by meaning and words (the default), by the middle of their
    /// examples, by their description, or by words alone.
    #[serde(default)]
    pub(super) by: By,
}

/// What a tool takes that takes nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoArguments {}

/// One step at a time, or whatever is ready.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(super) enum Mode {
    Sequential,
    Parallel,
}

/// By what tools are chosen.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub(super) enum By {
    #[default]
    Hybrid,
    Centroid,
    Description,
    Lexical,
}

impl Mode {
    /// Returns how the API calls it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Sequential => "SEQUENTIAL",
            Self::Parallel => "PARALLEL",
        }
    }
}

impl By {
    /// Returns how the API calls it.
    pub(super) fn as_str(self) -> &'static str {
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

/// Any JSON besides null; not every client reads a schema that says nothing.
fn anything(_: &mut schemars::SchemaGenerator) -> Schema {
    let kinds = ["object", "array", "string", "number", "boolean"];
    let kinds = kinds.map(|it| json!({ "type": it }));
    json_schema!({ "anyOf": kinds })
}

fn inputs(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// What a plan looks like. The compiler says what else is wrong with one, all at once.
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
