use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::Text;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Tool {
    pub name: Text,
    pub qualified_name: Text,
    pub shadowed_by: Option<Text>,
    pub description: Text,
    pub tool_set: Text,
    pub active: bool,
    pub effect: Text,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
}

impl Tool {
    pub const FIELDS: &str = "id name qualifiedName shadowedBy description toolSet source active \
        callable effect inputSchema outputSchema examples";

    /// Returns the name without the toolset if it identifies this tool. Otherwise returns the
    /// qualified name.
    pub fn shortest_name(&self) -> &Text {
        if self.shadowed_by.is_none() { &self.name } else { &self.qualified_name }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolMatch {
    pub tool: Tool,
    pub score: f64,
    pub hit: bool,
    pub least_similar: Option<f64>,
}

impl ToolMatch {
    pub fn fields() -> String {
        format!("tool {{ {} }} score hit leastSimilar leastSimilarExample learned", Tool::FIELDS)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ToolSet {
    pub name: Text,
    pub description: Text,
    pub active: bool,
    pub source: Text,
    pub tools: Vec<IgnoredAny>,
    pub status: Text,
    pub error: Option<Text>,
}

impl ToolSet {
    pub fn fields() -> String {
        format!("id name description active source tools {{ {} }} status error", Tool::FIELDS)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSetChange {
    pub changed: Vec<Text>,
    pub not_found: Vec<Text>,
    pub refused: Vec<Text>,
    #[serde(rename = "toolSets")]
    pub tool_sets: Vec<ToolSet>,
}

impl ToolSetChange {
    pub fn fields() -> String {
        format!("changed notFound refused toolSets {{ {} }}", ToolSet::fields())
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct ToolResult {
    pub tool: Text,
    pub status: Text,
    pub result: Value,
    pub error: Option<Text>,
    #[serde(rename = "durationMs")]
    pub duration_ms: f64,
    pub at: Text,
}

impl ToolResult {
    pub const FIELDS: &str = "callId tool status parameters result error warnings durationMs at";
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolUsage {
    pub tool_name: Text,
    pub calls: u64,
    pub failures: u64,
    pub last_called_at: Option<Text>,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

impl ToolUsage {
    pub const FIELDS: &str = "toolName qualifiedName calls failures lastCalledAt p50Ms p99Ms";
}

/// Two tools that the same sentences select.
#[derive(Clone, Debug, Deserialize)]
pub struct ToolCollision {
    pub a: Text,
    pub b: Text,
    pub similarity: f64,
}

impl ToolCollision {
    pub const FIELDS: &str = "a b similarity";
}

#[derive(Clone, Debug, Deserialize)]
pub struct Toolkit {
    pub actions: Vec<NamedElement>,
    pub tools: Vec<NamedElement>,
    #[serde(default)]
    pub edges: Vec<ToolkitEdge>,
}

impl Toolkit {
    pub const FIELDS: &str = "actions { name description } tools { name description toolSet \
        source active effect } edges { from to kind score learned } mermaid dot svg yaml";
    pub const VIEW_FIELDS: &str =
        "actions { name description } tools { name } edges { from to kind score learned }";
    pub const NAME_FIELDS: &str = "actions { name } tools { name }";
}

#[derive(Clone, Debug, Deserialize)]
pub struct NamedElement {
    pub name: Text,
    #[serde(default)]
    pub description: Text,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ToolkitEdge {
    pub from: Text,
    pub to: Text,
    pub kind: Text,
    pub score: f64,
    pub learned: Option<f64>,
}
