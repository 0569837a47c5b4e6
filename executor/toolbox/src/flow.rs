//! The toolset `flow`, with steps that wait, sleep, calculate, fail or pass values on.

mod compute;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{
    condition::COMPUTE,
    execution::REPLAN,
    id::Attempt,
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
};

pub use self::compute::evaluate as evaluate_compute;
use super::{Tool, ToolContext, ToolSet};

/// The name of the set of control-flow tools.
pub const SET: &str = "flow";
/// The longest sleep in milliseconds: ten years. Longer sleeps are rejected, because they are
/// probably written in a wrong unit.
pub const MAX_SLEEP_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1_000;

/// Makes the set `flow`, which needs no configuration.
pub fn flow() -> ToolSet {
    let tools = FLOW_TOOLS.iter().map(|entry| Arc::new(FlowTool::new(entry)) as Arc<dyn Tool>);
    ToolSet::ready(
        SET.parse().expect("the set's name is a literal"),
        "builtin",
        "Steps that wait, sleep, calculate, pass values on, ask for a new plan, or fail on purpose.",
        tools,
    )
}

/// Returns the milliseconds in the parameters of `flow.sleep`.
pub fn sleep_ms(parameters: &Value) -> Option<u64> {
    read_whole_number(parameters.get("ms")?).filter(|ms| *ms <= MAX_SLEEP_MS)
}

/// Reads a whole number, which may be written as `1000.0`. JSON Schema calls such a number an
/// integer.
fn read_whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
        format!("{number:.0}").parse().ok()
    })
}

struct FlowToolEntry {
    kind: FlowToolKind,
    name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
}

#[derive(Clone, Copy, Debug)]
enum FlowToolKind {
    Echo,
    Noop,
    Effect,
    Sleep,
    Fail,
    Wait,
    Replan,
    Compute,
}

const FLOW_TOOLS: &[FlowToolEntry] = &[
    FlowToolEntry {
        kind: FlowToolKind::Echo,
        name: "flow.echo",
        description: "Returns its parameters.",
        schema: any_value_schema,
    },
    FlowToolEntry {
        kind: FlowToolKind::Noop,
        name: "flow.noop",
        description: "Does nothing and returns null. Ignores parameters.",
        schema: any_value_schema,
    },
    FlowToolEntry {
        kind: FlowToolKind::Effect,
        name: "flow.effect",
        description: "Does nothing and returns null, but counts as a call that must not be repeated.",
        schema: any_value_schema,
    },
    FlowToolEntry {
        kind: FlowToolKind::Sleep,
        name: "flow.sleep",
        description: "Waits for some milliseconds and returns null.",
        schema: || {
            json!({
                "type": "object",
                "properties": {
                    "ms": {
                        "type": "integer",
                        "description": "Duration in milliseconds.",
                        "minimum": 0,
                        "maximum": MAX_SLEEP_MS,
                    },
                },
                "required": ["ms"],
                "additionalProperties": false,
            })
        },
    },
    FlowToolEntry {
        kind: FlowToolKind::Fail,
        name: "flow.fail",
        description: "Fails, or fails a few times and then returns null.",
        schema: || {
            json!({
                "type": "object",
                "properties": {
                    "message": { "type": "string", "description": "Message of the error." },
                    "code": { "type": "string", "description": "Code of the error. Default: `tool.failed`.", "minLength": 1 },
                    "retryable": { "type": "boolean", "description": "True if another attempt may succeed. Default: the code decides." },
                    "times": {
                        "type": "integer",
                        "description": "Number of attempts that fail before one succeeds. Default: all fail.",
                        "minimum": 0,
                    },
                },
                "required": ["message"],
                "additionalProperties": false,
            })
        },
    },
    FlowToolEntry {
        kind: FlowToolKind::Wait,
        name: "flow.wait",
        description: "Waits for a signal and returns its payload.",
        schema: || {
            json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "Name of the signal.", "minLength": 1 },
                },
                "required": ["name"],
                "additionalProperties": false,
            })
        },
    },
    FlowToolEntry {
        kind: FlowToolKind::Replan,
        name: REPLAN,
        description: "Asks a model for the next version of the plan after all steps have finished. The model gets all outputs.",
        schema: || {
            json!({
                "type": "object",
                "properties": {
                    "goal": { "type": "string", "description": "The work that is left to do, in words." },
                },
            })
        },
    },
    FlowToolEntry {
        kind: FlowToolKind::Compute,
        name: COMPUTE,
        description: "Calculates a value with a CEL expression. The fields of `values` are its variables.",
        schema: compute::schema,
    },
];

fn any_value_schema() -> Value {
    json!({ "type": "object" })
}

#[derive(Debug)]
struct FlowTool {
    kind: FlowToolKind,
    definition: Arc<ToolDefinition>,
}

impl FlowTool {
    fn new(entry: &FlowToolEntry) -> Self {
        let effect = match entry.kind {
            FlowToolKind::Effect => Effect::Once,
            _ => Effect::Read,
        };
        let definition = ToolDefinition {
            name: entry.name.parse().expect("tool names are literals"),
            set: SET.parse().expect("the set's name is a literal"),
            description: entry.description.to_owned(),
            input_schema: (entry.schema)(),
            output_schema: None,
            effect,
            examples: Vec::new(),
            is_callable: true,
        };
        Self { kind: entry.kind, definition: Arc::new(definition) }
    }
}

#[async_trait]
impl Tool for FlowTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        match self.kind {
            FlowToolKind::Echo | FlowToolKind::Replan => Ok(Arc::unwrap_or_clone(parameters)),
            FlowToolKind::Noop | FlowToolKind::Effect => Ok(Value::Null),
            FlowToolKind::Sleep => sleep(&parameters, &cx).await,
            FlowToolKind::Fail => fail(Arc::unwrap_or_clone(parameters), &cx),
            FlowToolKind::Wait => Err(wait_outside_plan_error(&parameters)),
            FlowToolKind::Compute => compute::compute(parameters).await,
        }
    }
}

async fn sleep(parameters: &Value, cx: &ToolContext) -> Result<Value, ToolError> {
    let ms = sleep_ms(parameters).ok_or_else(|| {
        let message = format!("`ms` must be a whole number from 0 to {MAX_SLEEP_MS}");
        ToolError::new(ErrorCode::INVALID_PARAMETERS, message)
    })?;
    tokio::select! {
        biased;
        () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(Value::Null),
        () = cx.cancel.cancelled() => {
            Err(ToolError::new(ErrorCode::CANCELLED, "the sleep was cancelled"))
        }
    }
}

fn wait_outside_plan_error(parameters: &Value) -> ToolError {
    let name = parameters.get("name").and_then(Value::as_str).unwrap_or_default();
    ToolError::failed(format!(
        "`flow.wait` needs an execution that receives the signal `{name}`: \
         make it a step of a plan"
    ))
    .without_retry()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    message: String,
    code: Option<String>,
    retryable: Option<bool>,
    times: Option<Value>,
}

fn fail(parameters: Value, cx: &ToolContext) -> Result<Value, ToolError> {
    let fail: Fail = serde_json::from_value(parameters)
        .map_err(|err| ToolError::new(ErrorCode::INVALID_PARAMETERS, err.to_string()))?;
    let attempt = cx.call.as_ref().map_or(Attempt::FIRST, |call| call.attempt);
    let times = fail.times.as_ref().and_then(read_whole_number).unwrap_or(u64::MAX);
    if u64::from(attempt.get()) > times {
        return Ok(Value::Null);
    }
    let code = fail.code.map_or(ErrorCode::FAILED, ErrorCode::custom);
    // A code of an unknown family is retryable by default, as `tool.failed` is.
    let is_foreign = !code.is_in_own_family();
    let mut error = ToolError::new(code, fail.message);
    error.retryable = fail.retryable.unwrap_or(error.retryable || is_foreign);
    Err(error)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use shared::{
        clock::Timestamp,
        id::{ExecutionId, Part},
    };

    use super::*;
    use crate::{StepCall, ToolLookup, Toolbox};

    async fn call(name: &str, parameters: Value, attempt: u32) -> Result<Value, ToolError> {
        let toolbox = Toolbox::new([flow()]);
        let ToolLookup::Tool(tool) = toolbox.find(&name.parse().unwrap()) else { panic!("{name}") };
        if let Some(complaint) = tool.complaint(&parameters) {
            return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, complaint));
        }
        let call = StepCall {
            execution: ExecutionId::draw(Timestamp::UNIX_EPOCH),
            step: "s".parse().unwrap(),
            part: Part::WHOLE,
            attempt: Attempt::nth_after(attempt - 1),
            key: None,
        };
        let cx = ToolContext { call: Some(call), ..ToolContext::detached() };
        tool.tool().call(Arc::new(parameters), cx).await
    }

    async fn check_result(name: &str, parameters: Value, attempt: u32, expected: Expect) {
        let text = match call(name, parameters, attempt).await {
            Ok(value) => value.to_string(),
            Err(err) => format!("{err} (retryable: {})", err.retryable),
        };
        expected.assert_eq(&text);
    }

    #[tokio::test]
    async fn echo_returns_its_parameters_and_noop_null() {
        let value = json!({ "b": [1, null], "a": "ü" });
        check_result("flow.echo", value, 1, expect![[r#"{"b":[1,null],"a":"ü"}"#]]).await;
        check_result("flow.noop", json!({}), 1, expect!["null"]).await;
        check_result("flow.effect", json!({}), 1, expect!["null"]).await;
        check_result("flow.noop", json!({ "x": 1 }), 1, expect!["null"]).await;
    }

    #[tokio::test]
    async fn fail_returns_the_requested_error_the_requested_number_of_times() {
        let message = "m";
        let all = json!({ "message": message });
        check_result("flow.fail", all, 7, expect!["tool.failed: m (retryable: true)"]).await;
        let twice = json!({ "message": message, "times": 2 });
        check_result("flow.fail", twice.clone(), 2, expect!["tool.failed: m (retryable: true)"])
            .await;
        check_result("flow.fail", twice, 3, expect!["null"]).await;
        let own_error = json!({ "message": message, "code": "my.code" });
        check_result("flow.fail", own_error, 1, expect!["my.code: m (retryable: true)"]).await;
        let faber_error = json!({ "message": message, "code": "tool.invalid_parameters" });
        check_result(
            "flow.fail",
            faber_error,
            1,
            expect!["tool.invalid_parameters: m (retryable: false)"],
        )
        .await;
        let terminal = json!({ "message": message, "retryable": false });
        check_result("flow.fail", terminal, 1, expect!["tool.failed: m (retryable: false)"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_sleeps_and_can_be_cancelled() {
        let start = tokio::time::Instant::now();
        check_result("flow.sleep", json!({ "ms": 90_000 }), 1, expect!["null"]).await;
        assert_eq!(start.elapsed().as_secs(), 90);
        let negative = json!({ "ms": -1 });
        check_result("flow.sleep", negative, 1, expect!["tool.invalid_parameters: at `/ms`: -1 is less than the minimum of 0 (retryable: false)"]).await;

        let cx = ToolContext::detached();
        cx.cancel.cancel();
        let err = sleep(&json!({ "ms": MAX_SLEEP_MS }), &cx).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::CANCELLED);
    }

    #[tokio::test]
    async fn wait_fails_outside_of_a_plan() {
        check_result("flow.wait", json!({ "name": "go" }), 1, expect!["tool.failed: `flow.wait` needs an execution that receives the signal `go`: make it a step of a plan (retryable: false)"]).await;
    }

    #[test]
    fn flow_effect_is_the_only_flow_tool_with_an_effect() {
        for tool in flow().tools {
            let definition = tool.definition();
            let expected =
                if definition.name.as_str() == "flow.effect" { Effect::Once } else { Effect::Read };
            assert_eq!(definition.effect, expected, "{}", definition.name);
        }
    }

    #[test]
    fn a_sleep_may_be_a_double_without_a_fraction() {
        assert_eq!(sleep_ms(&json!({ "ms": 1000.0 })), Some(1_000));
        assert_eq!(sleep_ms(&json!({ "ms": 1.5 })), None);
        assert_eq!(sleep_ms(&json!({ "ms": -1 })), None);
        assert_eq!(sleep_ms(&json!({ "ms": MAX_SLEEP_MS + 1 })), None);
        assert_eq!(sleep_ms(&json!({})), None);
    }
}
