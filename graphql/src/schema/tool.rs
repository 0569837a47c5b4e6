//! Tools and toolsets.

use std::sync::Arc;

use async_graphql::{Context, Object, Result};
use planner::calls;
use serde_json::{Value, json};
use shared::{id::ToolName, store::Usage, tool::ToolDefinition};
use toolbox::{Found, SetStatus, ToolSet as Set};
use toolsets::registry::Switched;

use super::{
    loaders::Loaders,
    plan::Effect,
    rounded,
    scalar::{DateTime, int},
};
use crate::engine::{DirectCall, Engine};

/// What tools belong to that only the toolkit knows.
const TOOLKIT: &str = "toolkit";
/// What is said of a set that was added under a condition that does not hold.
const HIDDEN: &str = "it is not there while its `condition` does not hold: `setContext` changes the data that the \
                      condition asks for";

/// Something that a plan can call.
pub(super) struct Tool {
    definition: Arc<ToolDefinition>,
    source: String,
    is_active: bool,
}

impl Tool {
    /// Returns the tools of a set, in the order of their source.
    pub(super) fn of(set: &Set) -> Vec<Self> {
        set.tools.iter().map(|tool| Self::new(tool.definition(), set)).collect()
    }

    /// Returns a tool of a set.
    pub(super) fn new(definition: &Arc<ToolDefinition>, set: &Set) -> Self {
        let definition = Arc::clone(definition);
        Self { definition, source: set.source.clone(), is_active: set.is_active }
    }

    /// Returns a tool as the toolkit calls it.
    pub(super) fn called(mut self, name: ToolName) -> Self {
        if self.definition.name != name {
            Arc::make_mut(&mut self.definition).name = name;
        }
        self
    }

    /// Returns what is known of a tool that the toolkit names and nobody has registered.
    pub(super) fn unregistered(name: ToolName, description: &str) -> Self {
        let definition = ToolDefinition {
            name,
            set: TOOLKIT.parse().expect("the name of the set is a literal"),
            description: description.to_owned(),
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            effect: shared::tool::Effect::Once,
            examples: Vec::new(),
            is_callable: false,
        };
        Self { definition: Arc::new(definition), source: TOOLKIT.to_owned(), is_active: false }
    }

    pub(super) fn qualified(&self) -> ToolName {
        self.definition.qualified_name()
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns whether every word occurs in the tool's name, description or examples. The words
    /// are in lower case.
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

/// Something that a plan can call.
#[Object]
impl Tool {
    /// The name that its source gives it.
    async fn name(&self) -> &str {
        self.definition.name.as_str()
    }

    /// The name that always means this tool and that plans store: `set.name`.
    async fn qualified_name(&self) -> String {
        self.definition.qualified_name().to_string()
    }

    /// The tool, as `set.name`, that the plain name means instead, because an earlier set has it.
    /// Null where it means this one, or nothing.
    async fn shadowed_by(&self, ctx: &Context<'_>) -> Option<String> {
        let meant = ctx.data_unchecked::<Engine>().tools.find_shadowing(&self.definition);
        meant.map(|tool| tool.to_string())
    }

    /// What it does, in words.
    async fn description(&self) -> &str {
        &self.definition.description
    }

    /// The toolset that it belongs to.
    async fn tool_set(&self) -> &str {
        self.definition.set.as_str()
    }

    /// Where it comes from: `mcp`, `local`, `builtin`, `openapi`, `graphql`, or a context's name; `toolkit` where only the toolkit knows it.
    async fn source(&self) -> &str {
        &self.source
    }

    /// Whether its toolset is switched on, so that plans may use it.
    async fn active(&self) -> bool {
        self.is_active
    }

    /// Whether it can be called. One that cannot is known for selection only.
    async fn callable(&self) -> bool {
        self.definition.is_callable
    }

    /// What a second call does.
    async fn effect(&self) -> Effect {
        self.definition.effect.into()
    }

    /// The JSON Schema of its parameters.
    async fn input_schema(&self) -> &Value {
        &self.definition.input_schema
    }

    /// The JSON Schema of its output, where its source says.
    async fn output_schema(&self) -> Option<&Value> {
        self.definition.output_schema.as_ref()
    }

    /// Sentences that people would say when they want it.
    async fn examples(&self) -> &[String] {
        &self.definition.examples
    }

    /// How often it was called, in plans and outside, by every node.
    async fn usage(&self, ctx: &Context<'_>) -> Result<ToolUsage> {
        // The toolkit may call it otherwise.
        let (name, toolbox) =
            (self.definition.qualified_name(), ctx.data::<Engine>()?.tools.inventory.toolbox());
        let name = match toolbox.find(&name) {
            Found::Tool(tool) | Found::Inactive(tool) => toolbox.shown(tool.definition()),
            _ => name,
        };
        let usage = ctx.data::<Loaders>()?.usage(&name).await?;
        Ok(usage.map_or_else(|| ToolUsage::none(&name), ToolUsage::from))
    }
}

/// How often a tool was called.
pub(super) struct ToolUsage {
    tool: ToolName,
    counted: Option<Usage>,
}

impl From<Usage> for ToolUsage {
    fn from(usage: Usage) -> Self {
        Self { tool: usage.tool.clone(), counted: Some(usage) }
    }
}

impl ToolUsage {
    /// Returns that of a tool that was never called.
    fn none(tool: &ToolName) -> Self {
        Self { tool: tool.clone(), counted: None }
    }

    fn quantile(&self, share: f64) -> Option<f64> {
        self.counted.as_ref()?.quantile(share).map(|time| time.as_secs_f64() * 1e3)
    }
}

/// How often a tool was called.
#[Object]
impl ToolUsage {
    /// The tool: `set.name`, or a name such as `file_tools.glob` where that means it.
    async fn tool_name(&self) -> &str {
        self.tool.as_str()
    }

    /// The name that always means it: `set.name`. That by which it was counted, if it is not there any
    /// more.
    async fn qualified_name(&self, ctx: &Context<'_>) -> String {
        match ctx.data_unchecked::<Engine>().tools.inventory.toolbox().find(&self.tool) {
            Found::Tool(tool) | Found::Inactive(tool) => {
                tool.definition().qualified_name().to_string()
            }
            _ => self.tool.to_string(),
        }
    }

    /// Calls that have ended, failed ones included.
    async fn calls(&self) -> i64 {
        self.counted.as_ref().map_or(0, |usage| int(usage.calls))
    }

    /// Those that failed.
    async fn failures(&self) -> i64 {
        self.counted.as_ref().map_or(0, |usage| int(usage.failures))
    }

    /// When the last one ended.
    async fn last_called_at(&self) -> Option<DateTime> {
        self.counted.as_ref().map(|usage| usage.last.into())
    }

    /// Half of the calls took no longer, to a tenth.
    async fn p50_ms(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// All but one in a hundred took no longer, to a tenth.
    async fn p99_ms(&self) -> Option<f64> {
        self.quantile(0.99)
    }
}

/// What came of a call outside any plan.
pub(super) struct ToolResult(pub(super) DirectCall);

/// What came of a call outside any plan.
#[Object]
impl ToolResult {
    /// `call_…`
    async fn call_id(&self) -> &str {
        &self.0.id
    }

    /// The tool: `set.name`, or a name such as `file_tools.glob` where that means it, or what was asked
    /// for where there is no such tool.
    async fn tool(&self) -> &str {
        &self.0.tool
    }

    /// `success` or `error`.
    async fn status(&self) -> &'static str {
        if self.0.result.is_ok() { "success" } else { "error" }
    }

    /// What it was given.
    async fn parameters(&self) -> &Value {
        &self.0.parameters
    }

    /// What it returned.
    async fn result(&self) -> Option<&Value> {
        self.0.result.as_ref().ok()
    }

    /// Why it failed.
    async fn error(&self) -> Option<&str> {
        self.0.result.as_ref().err().map(String::as_str)
    }

    /// What is worth knowing about its parameters and its result: numbers beyond 64 bits.
    async fn warnings(&self) -> Vec<String> {
        let parameters = rounded::warnings(&self.0.parameters, "parameters");
        let result = self.0.result.as_ref().map(|output| rounded::warnings(output, "result"));
        parameters.into_iter().chain(result.unwrap_or_default()).collect()
    }

    /// How long it took.
    async fn duration_ms(&self) -> f64 {
        self.0.duration_ms
    }

    /// When it began.
    async fn at(&self) -> DateTime {
        self.0.at.into()
    }
}

/// A call that a model's reply asks for.
pub(super) struct ToolCall(pub(super) calls::ToolCall);

/// A call that a model's reply asks for.
#[Object]
impl ToolCall {
    /// The tool, by the name that is registered.
    async fn tool(&self) -> &str {
        self.0.tool.as_str()
    }

    /// What it is to be given, exactly as written.
    async fn args(&self) -> Value {
        Value::Object(self.0.args.clone())
    }

    /// How it was written: `json`, `function_call`, `simple`, `natural_language`, `xml`, `openai`
    /// or `anthropic`.
    async fn format(&self) -> &str {
        self.0.format.as_str()
    }

    /// The text that it was read from.
    async fn raw(&self) -> &str {
        &self.0.raw
    }
}

/// What became of toolsets that were to be switched on or off.
pub(super) struct ToolSetChange {
    pub(super) switched: Switched,
    pub(super) tool_sets: Vec<ToolSet>,
}

/// What became of toolsets that were to be switched on or off.
#[Object]
impl ToolSetChange {
    /// Those that were not as asked for, and are now.
    async fn changed(&self) -> &[String] {
        &self.switched.changed
    }

    /// Names of no toolset.
    async fn not_found(&self) -> &[String] {
        &self.switched.not_found
    }

    /// Those that are always switched on.
    async fn refused(&self) -> &[String] {
        &self.switched.refused
    }

    /// Every toolset as it now is.
    async fn tool_sets(&self) -> &[ToolSet] {
        &self.tool_sets
    }
}

/// A named group of tools from one source.
pub(super) struct ToolSet(pub(super) Set);

/// A named group of tools from one source.
#[Object]
impl ToolSet {
    /// Its name.
    async fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// What it is for, in words.
    async fn description(&self) -> &str {
        &self.0.description
    }

    /// Whether plans may use it.
    async fn active(&self) -> bool {
        self.0.is_active
    }

    /// Where its tools come from: `mcp`, `local`, `builtin`, `openapi`, `graphql`, or a context's name.
    async fn source(&self) -> &str {
        &self.0.source
    }

    /// Its tools, in the order of their source.
    async fn tools(&self) -> Vec<Tool> {
        Tool::of(&self.0)
    }

    /// Whether its tools are known: `connecting`, `ready` or `failed`; `hidden` where it was added and
    /// is not there yet, as its condition does not hold.
    async fn status(&self) -> &'static str {
        match self.0.status {
            SetStatus::Connecting => "connecting",
            SetStatus::Ready => "ready",
            SetStatus::Failed { .. } => "failed",
            SetStatus::Hidden => "hidden",
        }
    }

    /// Why its source could not be asked, which of its tools are left out and why, or why it is
    /// hidden; and what to do.
    async fn error(&self) -> Option<String> {
        match &self.0.status {
            SetStatus::Failed { error } => Some(error.clone()),
            SetStatus::Hidden => Some(HIDDEN.to_owned()),
            SetStatus::Connecting | SetStatus::Ready => {
                let left_out = &self.0.left_out;
                (!left_out.is_empty()).then(|| left_out.join("; "))
            }
        }
    }
}
