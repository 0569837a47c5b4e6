//! A set of tools, and its tools.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use shared::{id::ToolSetName, schema::Schema, tool::ToolDefinition};

use super::costly_tools;
use crate::{tool::Tool, tool_names};

/// A named group of tools from one source.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug)]
pub struct ToolSet {
    pub name: ToolSetName,
    pub description: String,
    /// The kind of the source for people, such as `mcp`, `local` or `builtin`.
    pub source: String,
    /// `true` for a built-in set that reads or changes this machine, under any name.
    pub acts_on_this_machine: bool,
    /// `true` if plans may use the set.
    pub is_active: bool,
    pub status: SetStatus,
    pub tools: Vec<ReadyTool>,
    /// The reasons why tools of the source are left out, or parts of their schemas are not
    /// enforced.
    pub left_out: Vec<String>,
}

/// The state of a set's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetStatus {
    /// The source has not started, because nothing has needed its tools. [`Toolbox::has_all`](super::Toolbox::has_all) and
    /// the functions that wait start the sets that they need.
    Idle,
    /// The source is connecting.
    Connecting,
    /// The tools are known.
    Ready,
    /// The source could not connect.
    Failed {
        /// The reason, and what to do.
        error: String,
    },
    /// The condition of the set does not hold.
    Hidden,
}

/// The tools that a source has, or the reason why it has failed.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Debug)]
pub struct SourceTools {
    pub status: SetStatus,
    pub tools: Vec<ReadyTool>,
    /// The reasons why other tools of the source are left out.
    pub left_out: Vec<String>,
}

impl SourceTools {
    /// Makes the result of a source whose tools can all be used.
    pub fn ready(tools: Vec<ReadyTool>) -> Self {
        Self { status: SetStatus::Ready, tools, left_out: Vec::new() }
    }

    /// Makes the result of a source that has failed and whose tools are unknown.
    pub fn failed(error: String) -> Self {
        Self { status: SetStatus::Failed { error }, tools: Vec::new(), left_out: Vec::new() }
    }
}

/// A tool with the compiled schema of its parameters. The schema is compiled at the first use,
/// because a plan calls few of thousands of tools.
#[derive(Clone, Debug)]
pub struct ReadyTool {
    tool: Arc<dyn Tool>,
    /// `None` if the schema is invalid. The source must then check the parameters itself.
    schema: Arc<OnceLock<Option<Schema>>>,
    /// Unenforced patterns of the schema about which a warning was logged already.
    pub(super) logged_patterns: Arc<[String]>,
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl ReadyTool {
    pub fn new(tool: Arc<dyn Tool>) -> Self {
        Self { tool, schema: Arc::default(), logged_patterns: Arc::default() }
    }

    pub fn definition(&self) -> &Arc<ToolDefinition> {
        self.tool.definition()
    }

    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// Returns the mistakes in parameters, if there are any.
    pub fn complaint(&self, parameters: &Value) -> Option<String> {
        self.schema.get_or_init(|| self.compile()).as_ref()?.complaint(parameters)
    }

    /// Returns the patterns about which no warning was logged yet.
    pub(super) fn unlogged_patterns(&self, mut patterns: Vec<String>) -> Vec<String> {
        patterns.retain(|pattern| !self.logged_patterns.contains(pattern));
        patterns
    }

    fn compile(&self) -> Option<Schema> {
        let name = self.definition().qualified_name();
        match Schema::without_large_patterns(&self.definition().input_schema) {
            Ok((schema, removed)) => {
                for pattern in self.unlogged_patterns(removed) {
                    let reason = costly_tools::describe_pattern(&name, &pattern);
                    tracing::warn!(why = %reason, "a part of a schema is not enforced");
                }
                Some(schema)
            }
            Err(err) => {
                tracing::warn!(%name, %err, "the schema of the tool's parameters is wrong");
                None
            }
        }
    }
}

impl ToolSet {
    /// Makes an active set with `tools`.
    pub fn ready(
        name: ToolSetName,
        source: &str,
        description: &str,
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
    ) -> Self {
        Self {
            name,
            description: description.to_owned(),
            source: source.to_owned(),
            acts_on_this_machine: false,
            is_active: true,
            status: SetStatus::Ready,
            tools: tools.into_iter().map(ReadyTool::new).collect(),
            left_out: Vec::new(),
        }
    }

    /// Stores the tools of the source, and the reasons for tools that are left out.
    pub(super) fn set_tools(
        &mut self,
        status: SetStatus,
        tools: Vec<ReadyTool>,
        left_out: Vec<String>,
    ) {
        self.status = status;
        self.tools = tools;
        self.left_out = left_out;
        tool_names::remove_invalid_names(self);
    }

    pub(super) fn without_tools(&self) -> Self {
        Self {
            name: self.name.clone(),
            description: self.description.clone(),
            source: self.source.clone(),
            acts_on_this_machine: self.acts_on_this_machine,
            is_active: self.is_active,
            status: self.status.clone(),
            tools: Vec::new(),
            left_out: self.left_out.clone(),
        }
    }
}
