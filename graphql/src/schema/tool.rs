//! Tools and toolsets.

use std::sync::Arc;

use async_graphql::Object;
use executor::toolbox::{SetStatus, ToolSet as Set};
use serde_json::Value;
use shared::tool::ToolDefinition;

use super::plan::Effect;

/// Something that a plan can call.
pub(super) struct Tool {
    definition: Arc<ToolDefinition>,
    source: String,
    is_active: bool,
}

impl Tool {
    /// Returns the tools of a set, in the order of their source.
    pub(super) fn of(set: &Set) -> Vec<Self> {
        let tools = set.tools.iter().map(|it| Self {
            definition: Arc::clone(it.definition()),
            source: set.source.clone(),
            is_active: set.is_active,
        });
        tools.collect()
    }

    /// Returns whether this is what `definition` is.
    pub(super) fn is(&self, definition: &ToolDefinition) -> bool {
        self.definition.set == definition.set && self.definition.name == definition.name
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns whether every word occurs in the tool's name, description or examples. The words
    /// are in lower case.
    pub(super) fn has_words(&self, words: &[String]) -> bool {
        let it = &self.definition;
        let mut text = format!("{} {}", it.qualified(), it.description).to_lowercase();
        for example in &it.examples {
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
        self.definition.qualified().to_string()
    }

    /// What it does, in words.
    async fn description(&self) -> &str {
        &self.definition.description
    }

    /// The toolset that it belongs to.
    async fn tool_set(&self) -> &str {
        self.definition.set.as_str()
    }

    /// Where it comes from: `mcp`, `local`, `builtin`.
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

    /// Where its tools come from: `mcp`, `local`, `builtin`.
    async fn source(&self) -> &str {
        &self.0.source
    }

    /// Its tools, in the order of their source.
    #[graphql(complexity = "1 + 10 * child_complexity")]
    async fn tools(&self) -> Vec<Tool> {
        Tool::of(&self.0)
    }

    /// Whether its tools are known: `connecting`, `ready` or `failed`.
    async fn status(&self) -> &'static str {
        match self.0.status {
            SetStatus::Connecting => "connecting",
            SetStatus::Ready => "ready",
            SetStatus::Failed { .. } => "failed",
        }
    }

    /// Why its source could not be asked, and what to do.
    async fn error(&self) -> Option<&str> {
        match &self.0.status {
            SetStatus::Failed { error } => Some(error),
            _ => None,
        }
    }
}
