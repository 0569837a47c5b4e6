//! The tools with the schemas of their arguments and results.

use std::sync::{Arc, LazyLock};

use rmcp::model::{Tool, ToolAnnotations};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::arguments::{
    ApproveArguments, CancelArguments, DebugArguments, DraftArguments, ExecuteArguments,
    ListArguments, NoArguments, PlanArguments, RunArguments, SelectArguments, SettleArguments,
    SignalArguments, StatusArguments,
};

/// Instructions for clients.
pub(crate) const INSTRUCTIONS: &str = "Faber turns a request in words into a plan of tool calls \
    and carries it out to the end, whatever crashes on the way. `run` does both; `plan`, then \
    `execute`, lets you look in between. Write plans yourself with `validate` and `create_plan`: \
    `{{step.path}}` in a parameter passes on what an earlier step returned. `execute`, `run` and \
    `status` wait and report progress; an execution goes on when nobody waits for it. When \
    something failed, `debug` with the request's id says where and why.";

/// The effect of a tool.
#[derive(Clone, Copy)]
enum Does {
    Looks,
    Adds,
    /// Calls tools, which may do anything.
    Acts,
    /// Idempotent.
    Stops,
}

pub(crate) static TOOLS: LazyLock<Vec<Tool>> =
    LazyLock::new(|| [planning(), executing(), looking()].concat());

fn planning() -> Vec<Tool> {
    vec![
        tool::<PlanArguments>(
            ("plan", "Plan a query"),
            "Turns a request in words into a plan of tool calls and keeps it; calls nothing. \
             Answers the plan with its steps, and what was assumed. Execute it with `execute`.",
            Does::Adds,
            plan_schema(),
        ),
        tool::<DraftArguments>(
            ("validate", "Check a plan"),
            "Checks a plan that you wrote: unknown tools, wrong parameters, templates that lead \
             nowhere, cycles. Answers every problem at once, with what to do, and keeps nothing.",
            Does::Looks,
            output(
                json!({
                    "valid": { "type": "boolean", "description": "Whether it could be executed" },
                    "diagnostics": diagnostics(),
                    "executionOrder": names(),
                    "layers": { "type": "array", "items": names() },
                }),
                &["valid", "diagnostics"],
            ),
        ),
        tool::<DraftArguments>(
            ("create_plan", "Keep a plan"),
            "Checks a plan that you wrote and keeps it, to be executed by its id. With a \
             `requestId` in it, it is the next version of that request's plan.",
            Does::Adds,
            plan_schema(),
        ),
    ]
}

fn executing() -> Vec<Tool> {
    vec![
        tool::<ExecuteArguments>(
            ("execute", "Execute a plan"),
            "Executes a plan and waits for its end, at most `timeoutMs` (45 s where nothing is \
             said), reporting progress. Answers the outputs of the steps, and what failed. With \
             `wait: false` it answers at once. The execution goes on when nobody waits for it any \
             more, also when the call is cancelled: `status` tells, `cancel` stops it.",
            Does::Acts,
            execution_schema(),
        ),
        tool::<RunArguments>(
            ("run", "Plan and execute a query"),
            "Turns a request in words into a plan, executes it, and waits for its end as `execute` \
             does. Answers the outputs of the steps, and what failed.",
            Does::Acts,
            execution_schema(),
        ),
        tool::<CancelArguments>(
            ("cancel", "Stop an execution"),
            "Stops an execution: running steps are told, the others do not begin. One that has \
             ended stays as it is.",
            Does::Stops,
            execution_schema(),
        ),
        tool::<ApproveArguments>(
            ("approve", "Approve or refuse a step"),
            "Lets a step go on that waits for a person, or with `approved: false` refuses it. Ask \
             the person first.",
            Does::Acts,
            execution_schema(),
        ),
        tool::<SettleArguments>(
            ("settle", "Settle a call with an unknown outcome"),
            "Records what became of a call whose outcome is unknown (`tool.outcome_unknown`). A step \
             that waits goes on with the output, or fails; otherwise a retry reuses the output. Only \
             a person who has looked can know: ask first.",
            Does::Acts,
            execution_schema(),
        ),
        tool::<SignalArguments>(
            ("signal", "Signal an execution"),
            "Tells an execution what a `flow.wait` step waits for, or will wait for later.",
            Does::Acts,
            execution_schema(),
        ),
    ]
}

fn looking() -> Vec<Tool> {
    let match_ = json!({ "type": "array", "items": { "type": "object", "properties": {
        "name": text("As plans write it"), "description": text("What it does"),
        "score": { "type": "number" },
        "hit": { "type": "boolean", "description": "Whether it is near enough" },
    } } });
    let listed = json!({ "type": "array", "items": { "type": "object", "properties": {
        "name": text("As plans write it"), "description": text("What it does"),
        "toolSet": text("The set that it belongs to"),
        "effect": text("What a second call does: READ nothing, IDEMPOTENT the same, ONCE more"),
        "active": { "type": "boolean" },
        "parameters": { "type": "object", "description": "JSON Schema of what it takes" },
    } } });
    let saved = json!({ "type": "array", "items": { "type": "object", "properties": {
        "name": text("Execute it by this name"), "planId": text("`plan_…`"),
        "inputs": { "type": "object",
            "description": "JSON Schema of what it is given as `input`" },
    } } });
    vec![
        tool::<StatusArguments>(
            ("status", "How an execution stands"),
            "Says how an execution stands: its state, its steps, outputs and errors so far, and \
             what it waits for. With `wait: true` it waits for the end as `execute` does.",
            Does::Looks,
            execution_schema(),
        ),
        tool::<DebugArguments>(
            ("debug", "Everything about a request"),
            "Tells a request from the query to the last step: how the plan came to be, which tools \
             were candidates, each step's parameters, output, error, attempts and times.",
            Does::Looks,
            output(
                json!({
                    "requestId": text("`req_…`"), "query": text("What was asked for"),
                    "transcript": list("How the plan came to be"),
                    "plans": list("Every version"), "executions": list("Every run"),
                    "cut": { "type": "boolean", "description": "Whether what is large was cut" },
                }),
                &["requestId", "transcript", "plans", "executions"],
            ),
        ),
        tool::<ListArguments>(
            ("list_tools", "List tools"),
            "Lists the tools that plans may use: these names go into a plan's steps.",
            Does::Looks,
            output(json!({ "tools": listed, "more": { "type": "integer" } }), &["tools"]),
        ),
        tool::<SelectArguments>(
            ("select_tools", "Choose tools for a query"),
            "Finds the tools that fit a query best, with scores.",
            Does::Looks,
            output(json!({ "matches": match_ }), &["matches"]),
        ),
        tool::<NoArguments>(
            ("saved_plans", "List saved plans"),
            "Lists the plans that were saved under a name, with what they are given: `execute` \
             takes the name as `id`.",
            Does::Looks,
            output(json!({ "plans": saved }), &["plans"]),
        ),
    ]
}

fn tool<T: JsonSchema>(
    (name, title): (&'static str, &'static str),
    description: &'static str,
    does: Does,
    answers: Map<String, Value>,
) -> Tool {
    let hints = ToolAnnotations::with_title(title);
    let hints = match does {
        Does::Looks => hints.read_only(true).destructive(false).idempotent(true).open_world(false),
        Does::Adds => hints.read_only(false).destructive(false).idempotent(false).open_world(false),
        Does::Acts => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
        Does::Stops => hints.read_only(false).destructive(true).idempotent(true).open_world(false),
    };
    Tool::new(name, description, Arc::new(input::<T>()))
        .with_title(title)
        .with_annotations(hints)
        .with_raw_output_schema(Arc::new(answers))
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn list(description: &str) -> Value {
    json!({ "type": "array", "description": description, "items": { "type": "object" } })
}

fn names() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

fn diagnostics() -> Value {
    json!({
        "type": "array",
        "description": "What is wrong, or worth knowing",
        "items": { "type": "object", "properties": {
            "severity": { "type": "string", "enum": ["ERROR", "WARNING"] },
            "code": { "type": "string" },
            "path": text("Where, like `tools[1].parameters.authorId`"),
            "message": { "type": "string" },
            "help": text("What to do about it"),
        } },
    })
}

fn plan_schema() -> Map<String, Value> {
    output(
        json!({
            "planId": text("What `execute` takes"), "requestId": text("What `debug` takes"),
            "version": { "type": "integer" }, "query": { "type": "string" },
            "planner": text("Who wrote it: `offline`, `explicit`, or a model"),
            "executionOrder": names(),
            "layers": { "type": "array", "items": names(),
                "description": "What may run at the same time" },
            "tools": list("The steps, in execution order"),
            "diagnostics": diagnostics(),
        }),
        &["planId", "requestId", "tools", "diagnostics"],
    )
}

fn execution_schema() -> Map<String, Value> {
    let count = json!({ "type": "integer" });
    output(
        json!({
            "executionId": text("What `status`, `cancel`, `approve`, `settle` and `signal` take"),
            "requestId": text("What `debug` takes"), "planId": { "type": "string" },
            "state": { "type": "string", "enum": ["PENDING", "IN_PROGRESS", "PAUSED", "WAITING", "COMPENSATING",
                "COMPLETED", "FAILED", "CANCELLED"] },
            "done": { "type": "boolean", "description": "Whether nothing can happen any more" },
            "total": count, "successful": count, "failed": count, "skipped": count,
            "cancelled": count,
            "outputs": { "type": "object", "description": "What each step returned, by its id" },
            "variables": { "type": "object", "description": "By `outputMapping`" },
            "errors": list("What failed: `stepId`, `code`, `message`"),
            "steps": list("How each step stands"),
            "waitsFor": list("Why it does not go on"),
            "next": text("What to do now, where there is something"),
        }),
        &["executionId", "requestId", "planId", "state", "done"],
    )
}

/// Keywords that do not help a caller.
const NOISE: [&str; 3] = ["$schema", "title", "format"];

/// Returns the schema of the arguments of a tool.
pub(crate) fn input<T: JsonSchema>() -> Map<String, Value> {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.shift_remove("description");
            schema.entry("properties").or_insert_with(|| json!({}));
            schema
        }
        _ => Map::new(),
    }
}

/// Returns the schema of a result: these properties, or an error.
pub(crate) fn output(properties: Value, required: &[&str]) -> Map<String, Value> {
    let mut properties = properties;
    properties["error"] = json!({
        "type": "object",
        "description": "Instead of everything else, where it was refused or did not work out",
        "properties": {
            "code": { "type": "string", "description": "Such as `NOT_FOUND`, `INVALID_PLAN`, \
                `NO_PLAN_FOUND`, `CONFLICT`, `FORBIDDEN`" },
            "message": { "type": "string", "description": "What happened, and what to do" },
            "requestId": { "type": "string" },
            "diagnostics": { "type": "array", "items": { "type": "object" } },
        },
        "required": ["code", "message"],
    });
    properties["cut"] = json!({
        "type": "boolean",
        "description": "Whether something large was left out; `faber debug` shows it whole",
    });
    let schema = json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
    });
    schema.as_object().cloned().unwrap_or_default()
}

/// Removes null from the types of optional properties, because some clients cannot read lists of
/// types.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for name in NOISE {
                if fields.get(name).is_some_and(Value::is_string) {
                    fields.shift_remove(name);
                }
            }
            if fields.get("default").is_some_and(Value::is_null) {
                fields.shift_remove("default");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    fields.insert("type".to_owned(), one);
                }
            }
            flatten(fields);
            for (_, inner) in fields.iter_mut() {
                tidy(inner);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(tidy),
        _ => (),
    }
}

/// Removes null from `anyOf` and `enum`.
fn flatten(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(choices)) = fields.get_mut("anyOf") else { return };
    choices.retain(|choice| choice["type"] != "null");
    let [Value::Object(_)] = choices.as_slice() else { return };
    let only = choices.remove(0);
    fields.shift_remove("anyOf");
    for (name, value) in only.as_object().into_iter().flatten() {
        fields.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Deserialize;
    use shared::schema::Schema;

    use super::*;

    #[test]
    fn every_tool_says_what_it_does_takes_and_answers() {
        let names: BTreeSet<_> = TOOLS.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names.len(), TOOLS.len());
        for tool in TOOLS.iter() {
            let name = &tool.name;
            let hints = tool.annotations.as_ref().unwrap();
            assert!(hints.read_only_hint.is_some() && hints.destructive_hint.is_some(), "{name}");
            assert!(tool.description.as_ref().is_some_and(|text| text.len() < 500), "{name}");
            let input = Value::Object((*tool.input_schema).clone());
            assert_eq!(input["type"], "object", "{name}");
            Schema::new(&input).unwrap();
            for (parameter, schema) in input["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{name}: {parameter}");
            }
            let output = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
            assert_eq!(output["type"], "object", "{name}");
            let output = Schema::new(&output).unwrap();
            let error = json!({ "error": { "code": "NOT_FOUND", "message": "m" } });
            assert_eq!(output.complaint(&error), None, "{name}");
            assert!(output.complaint(&json!({})).is_some(), "{name}");
        }
    }

    /// The description of the type is not part of the schema.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        /// One thing.
        one: String,
        /// Another, with a
        /// long story.
        #[schemars(range(min = 1))]
        other_thing: Option<i32>,
        kind: Option<Kind>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[schemars(inline)]
    enum Kind {
        A,
        B,
    }

    #[test]
    fn what_may_be_left_out_is_not_null() {
        let expected = json!({
            "type": "object",
            "properties": {
                "one": { "description": "One thing.", "type": "string" },
                "otherThing": { "description": "Another, with a long story.", "type": "integer", "minimum": 1 },
                "kind": { "type": "string", "enum": ["A", "B"] },
            },
            "additionalProperties": false,
            "required": ["one"],
        });
        assert_eq!(Value::Object(input::<Sample>()), expected);
    }
}
