use std::sync::Arc;

use async_graphql::{Context, ID, Object, Result};
use engine::{DirectCall, Engine};
use planner::{calls, rounded};
use serde_json::{Value, json};
use shared::{id::ToolName, store::Usage, tool::ToolDefinition};
use toolbox::{SetStatus, ToolLookup, ToolSet as Set};
use toolsets::registry::SwitchResult;

use super::{
    loaders::Loaders,
    plan::Effect,
    scalar::{DateTime, to_int},
    text_enums::{ToolCallFormat, ToolResultStatus, ToolSetStatus},
};

/// Beginning of the node id of a tool.
pub(super) const TOOL_PREFIX: &str = "tool:";
/// Beginning of the node id of a toolset.
pub(super) const TOOL_SET_PREFIX: &str = "toolset:";

/// The value of `toolSet` and `source` for a tool that the toolkit names but that is not
/// registered.
const TOOLKIT_SOURCE: &str = "toolkit";
/// Error of an added toolset that is hidden because its condition is false.
const HIDDEN_SET_ERROR: &str = "it exists only while its `condition` is true: `setContext` changes \
                      the data that the condition reads";

pub(super) struct Tool {
    definition: Arc<ToolDefinition>,
    source: String,
    is_active: bool,
}

impl Tool {
    pub(super) fn list_of_set(set: &Set) -> Vec<Self> {
        set.tools.iter().map(|tool| Self::new(tool.definition(), set)).collect()
    }

    pub(super) fn new(definition: &Arc<ToolDefinition>, set: &Set) -> Self {
        let definition = Arc::clone(definition);
        Self { definition, source: set.source.clone(), is_active: set.is_active }
    }

    pub(super) fn with_name(mut self, name: ToolName) -> Self {
        if self.definition.name != name {
            Arc::make_mut(&mut self.definition).name = name;
        }
        self
    }

    /// Returns a tool that the toolkit names and that is not registered.
    pub(super) fn new_unregistered(name: ToolName, description: &str) -> Self {
        let definition = ToolDefinition {
            name,
            set: TOOLKIT_SOURCE.parse().expect("the name of the set is a literal"),
            description: description.to_owned(),
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            effect: shared::tool::Effect::Once,
            examples: Vec::new(),
            is_callable: false,
        };
        Self {
            definition: Arc::new(definition),
            source: TOOLKIT_SOURCE.to_owned(),
            is_active: false,
        }
    }

    pub(super) fn is_unregistered(&self) -> bool {
        self.source == TOOLKIT_SOURCE
    }

    pub(super) fn node_id(&self) -> String {
        format!("{TOOL_PREFIX}{}", self.definition.qualified_name())
    }

    pub(super) fn qualified_tool_name(&self) -> ToolName {
        self.definition.qualified_name()
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns `true` if each word, in lower case, occurs in the tool's name, description or
    /// examples.
    pub(super) fn has_words(&self, words: &[String]) -> bool {
        let definition = &self.definition;
        let mut text =
            format!("{} {}", definition.qualified_name(), definition.description).to_lowercase();
        for example in &definition.examples {
            text.push(' ');
            text.push_str(&example.to_lowercase());
        }
        words.iter().all(|word| text.contains(word))
    }
}

/// Function that a plan can call.
#[Object]
impl Tool {
    /// Identifies the object in the whole API: `tool:set.name`.
    pub(super) async fn id(&self) -> ID {
        ID(self.node_id())
    }

    /// Name of the tool within its toolset.
    async fn name(&self) -> &str {
        self.definition.name.as_str()
    }

    /// Qualified name, `set.name`. It always identifies this tool, and plans store it.
    async fn qualified_name(&self) -> String {
        self.definition.qualified_name().to_string()
    }

    /// Qualified name of the tool that `name` means instead, because an earlier toolset has a tool
    /// with this name. Null if `name` means this tool, no tool, or a tool that the caller may not
    /// use.
    async fn shadowed_by(&self, ctx: &Context<'_>) -> Option<String> {
        let meant = ctx.data_unchecked::<Engine>().tools.find_shadowing(&self.definition);
        meant.map(|tool| tool.to_string())
    }

    /// Description of what the tool does.
    async fn description(&self) -> &str {
        &self.definition.description
    }

    /// Name of the toolset that the tool belongs to.
    async fn tool_set(&self) -> &str {
        self.definition.set.as_str()
    }

    /// Source of the tool: `mcp`, `local`, `builtin`, `openapi`, `graphql`, or the name of a
    /// context. `toolkit` if only the toolkit names the tool.
    async fn source(&self) -> &str {
        &self.source
    }

    /// True if the toolset is active. Only tools of active toolsets can be planned and called.
    async fn active(&self) -> bool {
        self.is_active
    }

    /// True if the tool can be called. A tool without `run` can be selected, but not called.
    async fn callable(&self) -> bool {
        self.definition.is_callable
    }

    /// Effect of the tool: what a second call does.
    async fn effect(&self) -> Effect {
        self.definition.effect.into()
    }

    /// JSON Schema of the parameters.
    async fn input_schema(&self) -> &Value {
        &self.definition.input_schema
    }

    /// JSON Schema of the output. Null if the source declares none.
    async fn output_schema(&self) -> Option<&Value> {
        self.definition.output_schema.as_ref()
    }

    /// Sentences with which people ask for the tool. Tool selection uses them.
    async fn examples(&self) -> &[String] {
        &self.definition.examples
    }

    /// Usage of the tool, in plans and outside plans, on all nodes.
    async fn usage(&self, ctx: &Context<'_>) -> Result<ToolUsage> {
        // Looks up the display name, because usage is listed under it, and the toolkit can use
        // another name.
        let (name, toolbox) =
            (self.definition.qualified_name(), ctx.data::<Engine>()?.tools.inventory.toolbox());
        let name = match toolbox.find(&name) {
            ToolLookup::Tool(tool) | ToolLookup::Inactive(tool) => {
                toolbox.display_name(tool.definition())
            }
            _ => name,
        };
        let usage = ctx.data::<Loaders>()?.usage(&name).await?;
        Ok(usage.map_or_else(|| ToolUsage::without_calls(&name), ToolUsage::from))
    }
}

pub(super) struct ToolUsage {
    tool: ToolName,
    recorded_usage: Option<Usage>,
}

impl From<Usage> for ToolUsage {
    fn from(usage: Usage) -> Self {
        Self { tool: usage.tool.clone(), recorded_usage: Some(usage) }
    }
}

impl ToolUsage {
    fn without_calls(tool: &ToolName) -> Self {
        Self { tool: tool.clone(), recorded_usage: None }
    }

    fn duration_quantile_ms(&self, share: f64) -> Option<f64> {
        self.recorded_usage.as_ref()?.quantile(share).map(|time| time.as_secs_f64() * 1e3)
    }
}

/// Usage of a tool: calls in plans and outside plans, on all nodes.
#[Object]
impl ToolUsage {
    /// Tool, as `set.name`. Tools of a built-in toolset have names such as `file_tools.glob`.
    async fn tool_name(&self) -> &str {
        self.tool.as_str()
    }

    /// Qualified name of the tool, `set.name`. If the tool was removed, the name under which its
    /// calls were counted.
    async fn qualified_name(&self, ctx: &Context<'_>) -> String {
        match ctx.data_unchecked::<Engine>().tools.inventory.toolbox().find(&self.tool) {
            ToolLookup::Tool(tool) | ToolLookup::Inactive(tool) => {
                tool.definition().qualified_name().to_string()
            }
            _ => self.tool.to_string(),
        }
    }

    /// Number of finished calls, including failed calls.
    async fn calls(&self) -> i64 {
        self.recorded_usage.as_ref().map_or(0, |usage| to_int(usage.calls))
    }

    /// Number of failed calls.
    async fn failures(&self) -> i64 {
        self.recorded_usage.as_ref().map_or(0, |usage| to_int(usage.failures))
    }

    /// Time at which the last call finished. Null if the tool was never called.
    async fn last_called_at(&self) -> Option<DateTime> {
        self.recorded_usage.as_ref().map(|usage| usage.last.into())
    }

    /// Median duration of a call in milliseconds, accurate to 10 %. Null without calls.
    async fn p50_ms(&self) -> Option<f64> {
        self.duration_quantile_ms(0.5)
    }

    /// 99th percentile of the duration of a call in milliseconds, accurate to 10 %. Null without
    /// calls.
    async fn p99_ms(&self) -> Option<f64> {
        self.duration_quantile_ms(0.99)
    }
}

pub(super) struct ToolResult(pub(super) DirectCall);

/// Result of one tool call outside plans.
#[Object]
impl ToolResult {
    /// Id of the call, `call_…`.
    async fn call_id(&self) -> &str {
        &self.0.id
    }

    /// Tool, as `set.name`. Tools of a built-in toolset have names such as `file_tools.glob`. If no
    /// tool has the name, the name from the request.
    async fn tool(&self) -> &str {
        &self.0.tool
    }

    /// Status of the call: `success` or `error`.
    async fn status(&self) -> &'static str {
        if self.0.result.is_ok() { "success" } else { "error" }
    }

    /// `status` as an enum.
    async fn status_enum(&self) -> ToolResultStatus {
        if self.0.result.is_ok() { ToolResultStatus::Success } else { ToolResultStatus::Error }
    }

    /// Parameters of the call. `toolHistory` shortens values above 64 KiB.
    async fn parameters(&self) -> &Value {
        &self.0.parameters
    }

    /// Output of the tool. Null after an error. `toolHistory` shortens values above 64 KiB.
    async fn result(&self) -> Option<&Value> {
        self.0.result.as_ref().ok()
    }

    /// Error message. Null after a success.
    async fn error(&self) -> Option<&str> {
        self.0.result.as_ref().err().map(String::as_str)
    }

    /// Warnings about parameters and result, such as numbers that 64 bits cannot hold.
    async fn warnings(&self) -> Vec<String> {
        let parameters = rounded::output_warnings(&self.0.parameters, "parameters");
        let result =
            self.0.result.as_ref().map(|output| rounded::output_warnings(output, "result"));
        parameters.into_iter().chain(result.unwrap_or_default()).collect()
    }

    /// Duration of the call in milliseconds.
    async fn duration_ms(&self) -> f64 {
        self.0.duration_ms
    }

    /// Time at which the call started.
    async fn at(&self) -> DateTime {
        self.0.at.into()
    }
}

pub(super) struct ToolCall(pub(super) calls::ToolCall);

/// Tool call that a model's reply contains.
#[Object]
impl ToolCall {
    /// Name of the registered tool.
    async fn tool(&self) -> &str {
        self.0.tool.as_str()
    }

    /// Parameters of the call.
    async fn args(&self) -> Value {
        Value::Object(self.0.args.clone())
    }

    /// Format of the call: `json`, `function_call`, `simple`, `natural_language`, `xml`, `openai`
    /// or `anthropic`.
    async fn format(&self) -> &str {
        self.0.format.as_str()
    }

    /// `format` as an enum.
    async fn format_enum(&self) -> ToolCallFormat {
        self.0.format.into()
    }

    /// Part of the reply that contains the call.
    async fn raw(&self) -> &str {
        &self.0.raw
    }
}

pub(super) struct ToolSetChange {
    pub(super) switch_result: SwitchResult,
    pub(super) tool_sets: Vec<ToolSet>,
}

/// Result of activating or deactivating toolsets.
#[Object]
impl ToolSetChange {
    /// Names of the toolsets that were changed.
    async fn changed(&self) -> &[String] {
        &self.switch_result.changed
    }

    /// Names that no toolset has.
    async fn not_found(&self) -> &[String] {
        &self.switch_result.not_found
    }

    /// Names of toolsets that cannot be deactivated, because they are always active.
    async fn refused(&self) -> &[String] {
        &self.switch_result.refused
    }

    /// All toolsets after the change.
    async fn tool_sets(&self) -> &[ToolSet] {
        &self.tool_sets
    }
}

pub(super) struct ToolSet(pub(super) Set);

/// Named group of tools from one source.
#[Object]
impl ToolSet {
    /// Identifies the object in the whole API: `toolset:name`.
    pub(super) async fn id(&self) -> ID {
        ID(format!("{TOOL_SET_PREFIX}{}", self.0.name))
    }

    /// Name of the toolset.
    async fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Purpose of the toolset, in words.
    async fn description(&self) -> &str {
        &self.0.description
    }

    /// True if the toolset is active. Only tools of active toolsets can be planned and called.
    async fn active(&self) -> bool {
        self.0.is_active
    }

    /// Source of the tools: `mcp`, `local`, `builtin`, `openapi`, `graphql`, or the name of a
    /// context.
    async fn source(&self) -> &str {
        &self.0.source
    }

    /// Tools of the toolset, in the order of their source.
    async fn tools(&self) -> Vec<Tool> {
        Tool::list_of_set(&self.0)
    }

    /// Status of the source: `idle` until a tool of it is needed, then `connecting`, `ready` or
    /// `failed`. `hidden` if the toolset was added through the API and its condition is false.
    async fn status(&self) -> &'static str {
        match self.0.status {
            SetStatus::Idle => "idle",
            SetStatus::Connecting => "connecting",
            SetStatus::Ready => "ready",
            SetStatus::Failed { .. } => "failed",
            SetStatus::Hidden => "hidden",
        }
    }

    /// `status` as an enum.
    async fn status_enum(&self) -> ToolSetStatus {
        (&self.0.status).into()
    }

    /// Reason why the source failed, why tools are left out, or why the toolset is hidden, and what
    /// to do. Null without such a problem.
    async fn error(&self) -> Option<String> {
        match &self.0.status {
            SetStatus::Failed { error } => Some(error.clone()),
            SetStatus::Hidden => Some(HIDDEN_SET_ERROR.to_owned()),
            SetStatus::Idle | SetStatus::Connecting | SetStatus::Ready => {
                let left_out = &self.0.left_out;
                (!left_out.is_empty()).then(|| left_out.join("; "))
            }
        }
    }
}
