use std::sync::{Arc, LazyLock};

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{
    arguments::{
        ApproveArguments, CancelArguments, DebugArguments, DraftArguments, ExecuteArguments,
        ListArguments, NoArguments, PlanArguments, RunArguments, SelectArguments, SettleArguments,
        SignalArguments, StatusArguments,
    },
    input_schema::input_schema,
};

/// Sent to each client when it connects.
pub(crate) const INSTRUCTIONS: &str = "Faber turns a request in words into a plan of tool calls \
    and executes it. An execution survives crashes and restarts. Use `run` to plan and execute in \
    one call, or `plan` and then `execute` to look at the plan first. To write a plan yourself, \
    look up tools with `list_tools`, check the plan with `validate`, and store it with \
    `create_plan`. In parameters, `{{step.path}}` inserts a part of an earlier step's output. \
    `execute`, `run`, and `status` with `wait: true` wait for the end and report progress. An \
    execution continues after the wait. If it waits for a person, ask the user, and then call \
    `approve`, `settle` or `signal`. If it failed, call `debug` with its `requestId` to see which \
    step failed and why.";

#[derive(Clone, Copy)]
enum ToolBehaviour {
    ReadsOnly,
    AddsData,
    /// Calls tools, so it can have any effect.
    CallsTools,
    StopsExecution,
}

pub(crate) static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    [planning_tools(), execution_tools(), status_tools(), catalog_tools()].concat()
});

fn planning_tools() -> Vec<Tool> {
    vec![
        build_tool::<PlanArguments>(
            "plan",
            "Plan a query",
            "Turns a request in words into a plan of tool calls and stores the plan. Calls no \
             tool. Use it to look at a plan before you execute it; `run` plans and executes in one \
             call. Returns the plan's id, its steps in execution order, and the assumptions of the \
             planner. If no plan fits, the error is `NO_PLAN_FOUND`. Next: \
             `execute` with the `planId`.",
            ToolBehaviour::AddsData,
            plan_schema(),
        ),
        build_tool::<DraftArguments>(
            "validate",
            "Check a plan",
            "Checks a plan that you wrote and stores nothing. Finds unknown tools, invalid \
             parameters, templates that refer to nothing, and cycles. Returns all problems at \
             once, each with a suggestion. Next: `create_plan` with the same plan.",
            ToolBehaviour::ReadsOnly,
            output_schema(
                json!({
                    "valid": { "type": "boolean",
                        "description": "True if the plan can be executed" },
                    "diagnostics": diagnostics_schema(),
                    "executionOrder": string_list_schema("Step ids; each step comes after its \
                        dependencies"),
                    "layers": layers_schema(),
                }),
                &["valid", "diagnostics"],
            ),
        ),
        build_tool::<DraftArguments>(
            "create_plan",
            "Store a plan",
            "Checks a plan that you wrote and stores it. Use it in place of `plan` when you know \
             which tools to call. Returns the stored plan, or the error `INVALID_PLAN` with all \
             diagnostics. With a `requestId`, the plan becomes the next version of that request's \
             plan. Next: `execute` with the `planId`.",
            ToolBehaviour::AddsData,
            plan_schema(),
        ),
    ]
}

fn execution_tools() -> Vec<Tool> {
    vec![
        build_tool::<ExecuteArguments>(
            "execute",
            "Execute a plan",
            "Executes a stored plan and waits until the execution finishes, at most `timeoutMs` \
             milliseconds (45,000 by default). Reports progress during the wait. Also continues an \
             execution (`exec_…`) whose process has ended. Returns the state, the outputs of the \
             steps, and the errors. `done: false` means that the execution still runs or waits for \
             a person; `next` names the call to make. The execution continues after the wait, even \
             if you cancel the request. Use `cancel` to stop it.",
            ToolBehaviour::CallsTools,
            execution_schema(),
        ),
        build_tool::<RunArguments>(
            "run",
            "Plan and execute a query",
            "Turns a request in words into a plan, executes it at once, and waits until it \
             finishes, as `execute` does. Use `plan` and `execute` if the user wants to see the \
             plan first. Returns the state, the outputs of the steps, and the errors. If no plan \
             fits, the error `NO_PLAN_FOUND` names what is missing, and no tool was called.",
            ToolBehaviour::CallsTools,
            execution_schema(),
        ),
        build_tool::<CancelArguments>(
            "cancel",
            "Cancel an execution",
            "Cancels an execution and waits until it has stopped. Faber tells running steps to \
             stop and starts no others. If the execution compensates, Faber then undoes the steps \
             that succeeded. A finished execution does not change. Returns the execution.",
            ToolBehaviour::StopsExecution,
            execution_schema(),
        ),
        build_tool::<ApproveArguments>(
            "approve",
            "Approve or reject a step",
            "Approves or rejects a step that waits for a person, as `waitsFor` of an execution \
             shows. The decision is the user's: ask first. A step that was approved starts, or \
             tries again if it failed before. A step that was rejected fails. Returns the \
             execution.",
            ToolBehaviour::CallsTools,
            execution_schema(),
        ),
        build_tool::<SettleArguments>(
            "settle",
            "Settle a call with an unknown outcome",
            "Records the outcome of a call that failed with `tool.outcome_unknown`. Only a person \
             who has looked at the other service knows it: ask the user first. A step that waits \
             succeeds with the output, or fails. If the step has failed already, a retry reuses \
             the output. Returns the execution.",
            ToolBehaviour::CallsTools,
            execution_schema(),
        ),
        build_tool::<SignalArguments>(
            "signal",
            "Send a signal to an execution",
            "Sends a named signal to an execution. A `flow.wait` step that waits for this name \
             succeeds, with the payload as its output. A signal that arrives before a step waits \
             for it is stored. Returns the execution.",
            ToolBehaviour::CallsTools,
            execution_schema(),
        ),
    ]
}

fn status_tools() -> Vec<Tool> {
    vec![
        build_tool::<StatusArguments>(
            "status",
            "Show an execution",
            "Returns an execution: its state, its steps, the outputs and errors so far, and what \
             it waits for. With `wait: true` it waits until the execution finishes, as `execute` \
             does.",
            ToolBehaviour::ReadsOnly,
            execution_schema(),
        ),
        build_tool::<DebugArguments>(
            "debug",
            "Show everything about a request",
            "Returns everything about a request. Use it to find out why a plan or a step failed. \
             Shows how the plan was made, which tools were candidates, and the parameters, output, \
             error, attempts and times of each step. The answer can be large; `status` is shorter.",
            ToolBehaviour::ReadsOnly,
            output_schema(
                json!({
                    "requestId": string_schema("`req_…`"),
                    "query": string_schema("The request in words"),
                    "transcript": object_list_schema("How each plan was made: prompts, replies and \
                        diagnostics"),
                    "plans": object_list_schema("Every version of the plan"),
                    "executions": object_list_schema("Every execution of these plans"),
                }),
                &["requestId", "transcript", "plans", "executions"],
            ),
        ),
    ]
}

fn catalog_tools() -> Vec<Tool> {
    let matches = json!({ "type": "array", "description": "The best match first",
        "items": { "type": "object", "properties": {
            "name": string_schema("The name to write in a plan"),
            "description": string_schema("The purpose of the tool"),
            "score": { "type": "number", "description": "Higher is better" },
            "hit": { "type": "boolean", "description": "True if the tool fits well enough to be \
                used" },
        } } });
    let tools = json!({ "type": "array", "items": { "type": "object", "properties": {
        "name": string_schema("The name to write in a plan"),
        "description": string_schema("The purpose of the tool"),
        "toolSet": string_schema("The toolset of the tool"),
        "effect": string_schema("What a second call does. READ: it changes nothing. IDEMPOTENT: it \
            leaves the same result as the first call. ONCE: it can do harm"),
        "active": { "type": "boolean", "description": "True if plans can use the tool" },
        "parameters": { "type": "object", "description": "JSON Schema of the parameters" },
    } } });
    let plans = json!({ "type": "array", "items": { "type": "object", "properties": {
        "name": string_schema("The `id` for `execute`"),
        "planId": string_schema("`plan_…`"),
        "inputs": { "type": "object",
            "description": "JSON Schema of the `input` that `execute` needs" },
    } } });
    vec![
        build_tool::<ListArguments>(
            "list_tools",
            "List tools",
            "Lists the tools that plans can use, at most 200. Use their names in the steps of a \
             plan. If there are more, `more` counts the rest; narrow the list with `search` or \
             `toolSet`.",
            ToolBehaviour::ReadsOnly,
            output_schema(
                json!({ "tools": tools, "more": { "type": "integer",
                    "description": "The number of tools that were left out" } }),
                &["tools"],
            ),
        ),
        build_tool::<SelectArguments>(
            "select_tools",
            "Select tools for a query",
            "Ranks the tools by how well they fit a query, and returns the best ones with their \
             scores. Use it in place of `list_tools` if there are many tools.",
            ToolBehaviour::ReadsOnly,
            output_schema(json!({ "matches": matches }), &["matches"]),
        ),
        build_tool::<NoArguments>(
            "saved_plans",
            "List saved plans",
            "Lists at most 200 plans that were saved under a name, with the schema of their input. \
             Next: `execute` with the name as `id`.",
            ToolBehaviour::ReadsOnly,
            output_schema(json!({ "plans": plans }), &["plans"]),
        ),
    ]
}

fn build_tool<T: JsonSchema>(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    behaviour: ToolBehaviour,
    output: Map<String, Value>,
) -> Tool {
    let hints = ToolAnnotations::with_title(title);
    let hints = match behaviour {
        ToolBehaviour::ReadsOnly => {
            hints.read_only(true).destructive(false).idempotent(true).open_world(false)
        }
        ToolBehaviour::AddsData => {
            hints.read_only(false).destructive(false).idempotent(false).open_world(false)
        }
        ToolBehaviour::CallsTools => {
            hints.read_only(false).destructive(true).idempotent(false).open_world(true)
        }
        ToolBehaviour::StopsExecution => {
            hints.read_only(false).destructive(true).idempotent(true).open_world(false)
        }
    };
    Tool::new(name, description, Arc::new(input_schema::<T>()))
        .with_title(title)
        .with_annotations(hints)
        .with_raw_output_schema(Arc::new(output))
}

fn string_schema(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn object_list_schema(description: &str) -> Value {
    json!({ "type": "array", "description": description, "items": { "type": "object" } })
}

fn string_list_schema(description: &str) -> Value {
    json!({ "type": "array", "description": description, "items": { "type": "string" } })
}

fn layers_schema() -> Value {
    json!({
        "type": "array",
        "description": "Step ids in groups; the steps of a group can run at the same time",
        "items": { "type": "array", "items": { "type": "string" } },
    })
}

fn diagnostics_schema() -> Value {
    json!({
        "type": "array",
        "description": "Problems and notes. Only errors prevent the execution of a plan",
        "items": { "type": "object", "properties": {
            "severity": { "type": "string", "enum": ["ERROR", "WARNING"] },
            "code": string_schema("Stable code, such as `plan.unknown_tool`"),
            "path": string_schema("Place in the plan, such as `tools[1].parameters.authorId`"),
            "message": string_schema("The problem"),
            "help": string_schema("How to solve it"),
        } },
    })
}

fn plan_schema() -> Map<String, Value> {
    output_schema(
        json!({
            "planId": string_schema("The `id` for `execute`"),
            "requestId": string_schema("The `id` for `debug`"),
            "version": { "type": "integer",
                "description": "The number of the plan within its request, from 1" },
            "query": string_schema("The request in words"),
            "planner": string_schema("The author of the plan: `offline`, a model, or `explicit` \
                for a plan that a caller wrote"),
            "executionOrder": string_list_schema("Step ids; each step comes after its \
                dependencies"),
            "layers": layers_schema(),
            "tools": object_list_schema("The steps, in execution order"),
            "diagnostics": diagnostics_schema(),
        }),
        &["planId", "requestId", "tools", "diagnostics"],
    )
}

fn execution_schema() -> Map<String, Value> {
    let count = |description: &str| json!({ "type": "integer", "description": description });
    output_schema(
        json!({
            "executionId": string_schema("The `id` for `status`, `cancel`, `approve`, `settle` and \
                `signal`"),
            "requestId": string_schema("The `id` for `debug`"),
            "planId": string_schema("`plan_…`"),
            "state": { "type": "string", "enum": ["PENDING", "IN_PROGRESS", "PAUSED", "WAITING", "COMPENSATING",
                "COMPLETED", "FAILED", "CANCELLED"] },
            "done": { "type": "boolean", "description": "True if the execution has finished and no \
                automatic replan is pending" },
            "total": count("Number of steps"),
            "successful": count("Steps that succeeded"),
            "failed": count("Steps that failed"),
            "skipped": count("Steps that did not run"),
            "cancelled": count("Steps that a cancellation stopped"),
            "outputs": { "type": "object", "description": "The outputs by step id" },
            "variables": { "type": "object",
                "description": "The variables that the steps' `outputMapping` set" },
            "errors": object_list_schema("Failed steps: `stepId`, `code`, `message`"),
            "steps": object_list_schema("All steps: `stepId`, `toolName`, `state`, `attempts`, \
                `durationMs`, `warnings`"),
            "waitsFor": object_list_schema("The reasons why an unfinished execution does not \
                continue: `kind`, `stepId`, `message`"),
            "next": string_schema("The call to make next"),
        }),
        &["executionId", "requestId", "planId", "state", "done"],
    )
}

fn output_schema(properties: Value, required: &[&str]) -> Map<String, Value> {
    let mut properties = properties;
    properties["error"] = json!({
        "type": "object",
        "description": "Set if the call failed; then all other fields are missing",
        "properties": {
            "code": { "type": "string", "description": "Such as `NOT_FOUND`, `INVALID_PLAN`, \
                `NO_PLAN_FOUND`, `CONFLICT`, `FORBIDDEN`" },
            "message": { "type": "string", "description": "What happened, and what to do" },
            "requestId": { "type": "string", "description": "The `id` for `debug`" },
            "diagnostics": { "type": "array", "items": { "type": "object" } },
        },
        "required": ["code", "message"],
    });
    properties["cut"] = json!({
        "type": "boolean",
        "description": "True if large values were shortened; `faber debug` shows everything",
    });
    let schema = json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
    });
    schema.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shared::schema::Schema;

    use super::*;

    #[test]
    fn every_tool_has_a_description_and_valid_schemas() {
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
}
