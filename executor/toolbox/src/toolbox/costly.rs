//! Tools whose schemas cost too much to check are left out.

use shared::{id::ToolSetName, schema::check_cost, tool::ToolDefinition};

use super::{ReadyTool, ToolSet};

impl ToolSet {
    pub(super) fn without_costly(mut self) -> Self {
        let left_out = leave_out_costly(&self.name, &mut self.tools);
        self.left_out.extend(left_out);
        self
    }
}

/// Removes tools whose schemas cost too much to check. Returns the reasons.
pub(super) fn leave_out_costly(set: &ToolSetName, tools: &mut Vec<ReadyTool>) -> Vec<String> {
    let mut left_out = Vec::new();
    tools.retain(|tool| {
        let refusal = refusal(tool.definition());
        if let Some(why) = &refusal {
            tracing::warn!(%set, %why, "a tool is left out");
        }
        let is_kept = refusal.is_none();
        left_out.extend(refusal);
        is_kept
    });
    left_out
}

fn refusal(tool: &ToolDefinition) -> Option<String> {
    let output = tool.output_schema.as_ref().map(|schema| ("outputSchema", schema));
    let mut schemas = std::iter::once(("inputSchema", &tool.input_schema)).chain(output);
    schemas.find_map(|(field, schema)| {
        let why = check_cost(schema).err()?;
        Some(format!("the `{field}` of `{}` is refused: {why}", tool.name))
    })
}
