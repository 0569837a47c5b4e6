use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shared::{
    schema::{Schema, check_cost},
    tool::{ErrorCode, ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext};

/// A tool whose outputs must fit its `outputSchema`, because plans refer to the fields that the
/// schema promises.
#[derive(Debug)]
struct CheckedTool {
    tool: Arc<dyn Tool>,
    schema: Schema,
}

/// Makes `tool` fail after a call whose output does not fit the `outputSchema` of its definition.
pub(crate) fn check_outputs(tool: Arc<dyn Tool>) -> Result<Arc<dyn Tool>, String> {
    let definition = tool.definition();
    let Some(schema) = &definition.output_schema else { return Ok(tool) };
    let name = &definition.name;
    check_cost(schema)
        .map_err(|error| format!("the `outputSchema` of `{name}` is refused: {error}"))?;
    let schema = Schema::new(schema)
        .map_err(|err| format!("the `outputSchema` of `{name}` is not a JSON Schema: {err}"))?;
    Ok(Arc::new(CheckedTool { tool, schema }))
}

#[async_trait]
impl Tool for CheckedTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        self.tool.definition()
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let output = self.tool.call(parameters, cx).await?;
        match self.schema.complaint(&output) {
            None => Ok(output),
            Some(complaint) => {
                let reason =
                    format!("the output does not fit the tool's `outputSchema`: {complaint}");
                Err(ToolError::new(ErrorCode::FAILED, reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox::Launcher;
    use serde_json::json;

    use super::*;
    use crate::command::CommandTool;

    fn make_tool(output: &str, schema: &Value) -> Result<Arc<dyn Tool>, String> {
        let written = json!({
            "name": "t", "run": { "command": ["echo", output] }, "outputSchema": schema,
        });
        let tool = serde_json::from_value::<CommandTool>(written).unwrap();
        tool.into_tool(&"s".parse().unwrap(), 1 << 20, &Launcher::unconfined())
    }

    #[tokio::test]
    async fn an_output_that_does_not_fit_the_output_schema_is_an_error() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        for (output, expected) in [
            (r#"{"n":1}"#, None),
            (r#"{"n":"x"}"#, Some("at `/n`: \"x\" is not of type \"integer\"")),
            ("no JSON", Some("\"no JSON\" is not of type \"object\"")),
        ] {
            let tool = make_tool(output, &schema).unwrap();
            assert_eq!(tool.definition().output_schema.as_ref(), Some(&schema));
            let result = tool.call(Arc::new(json!({})), ToolContext::detached()).await;
            let complaint = result.err().map(|err| err.to_string());
            let expected = expected.map(|reason| {
                format!("tool.failed: the output does not fit the tool's `outputSchema`: {reason}")
            });
            assert_eq!(complaint, expected, "{output}");
        }
    }

    #[test]
    fn an_invalid_output_schema_is_refused() {
        let error = make_tool("x", &json!({ "type": "wrong" })).unwrap_err();
        assert!(error.starts_with("the `outputSchema` of `t` is not a JSON Schema"), "{error}");
    }
}
