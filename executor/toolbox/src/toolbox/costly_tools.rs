//! Tools whose schemas cost too much to check are left out, and patterns that are too large are
//! reported.

use shared::{
    id::{ToolName, ToolSetName},
    schema::{check_cost, find_large_patterns},
    tool::ToolDefinition,
};

use super::{ReadyTool, ToolSet};
use crate::LOG_TARGET;

/// Maximum number of large patterns of one toolset that are compiled to see whether they can be
/// enforced. Further patterns are reported when their tool is called for the first time.
const MAX_TRIED_PATTERNS: usize = 64;
/// Maximum number of characters of a pattern that a message shows.
const MAX_SHOWN_CHARS: usize = 60;

impl ToolSet {
    pub(super) fn without_costly_tools(mut self) -> Self {
        let left_out = remove_costly_tools(&self.name, &mut self.tools);
        self.left_out.extend(left_out);
        self
    }
}

/// Removes tools whose schemas cost too much to check. Returns a message for each removed
/// tool, and for each pattern of the remaining tools that is too large to be enforced.
pub(super) fn remove_costly_tools(set: &ToolSetName, tools: &mut Vec<ReadyTool>) -> Vec<String> {
    let mut left_out = Vec::new();
    tools.retain(|tool| {
        let refusal = find_refusal(tool.definition());
        if let Some(reason) = &refusal {
            tracing::warn!(target: LOG_TARGET, %set, why = %reason, "a tool is left out");
        }
        let is_kept = refusal.is_none();
        left_out.extend(refusal);
        is_kept
    });
    left_out.extend(report_patterns(set, tools));
    left_out
}

fn report_patterns(set: &ToolSetName, tools: &mut [ReadyTool]) -> Vec<String> {
    let mut left = MAX_TRIED_PATTERNS;
    let mut messages = Vec::new();
    for tool in tools {
        let definition = tool.definition();
        let patterns = find_large_patterns(&definition.input_schema, &mut left);
        for pattern in &patterns {
            let reason = describe_pattern(&definition.name, pattern);
            tracing::warn!(%set, why = %reason, "a part of a schema is not enforced");
            messages.push(reason);
        }
        tool.logged_patterns = patterns.into();
    }
    messages
}

pub(super) fn describe_pattern(tool: &ToolName, pattern: &str) -> String {
    let shown_pattern: String = pattern.chars().take(MAX_SHOWN_CHARS).collect();
    let more = if shown_pattern.len() < pattern.len() { "…" } else { "" };
    format!(
        "the pattern `{shown_pattern}{more}` in the `inputSchema` of `{tool}` is not enforced: it is not a \
         regular expression, or it is too large; use fewer repetitions"
    )
}

fn find_refusal(tool: &ToolDefinition) -> Option<String> {
    let output = tool.output_schema.as_ref().map(|schema| ("outputSchema", schema));
    let mut schemas = std::iter::once(("inputSchema", &tool.input_schema)).chain(output);
    schemas.find_map(|(field, schema)| {
        let reason = check_cost(schema).err()?;
        Some(format!("the `{field}` of `{}` is refused: {reason}", tool.name))
    })
}
