//! The tools that a plan may use, as they are when it is made.

use std::sync::{Arc, OnceLock};

use shared::{
    id::ToolSetName,
    tool::{Names, ToolDefinition},
};

use crate::offline::Read;

/// The tools that a plan may use. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Arc<Listed>);

#[derive(Debug, Default)]
struct Listed {
    tools: Vec<CatalogTool>,
    names: Names<usize>,
    /// Made when words are first planned with it.
    read: OnceLock<Read>,
}

/// A tool, and whether it may be planned.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogTool {
    /// What the tool is.
    pub definition: Arc<ToolDefinition>,
    /// Whether its set is switched on.
    pub is_active: bool,
}

impl Catalog {
    /// Collects tools, in the order in which their sets were registered.
    pub fn new(tools: impl IntoIterator<Item = CatalogTool>) -> Self {
        let tools: Vec<CatalogTool> = tools.into_iter().collect();
        let mut names = Names::default();
        for (at, tool) in tools.iter().enumerate() {
            names.add(&tool.definition, at);
        }
        Self(Arc::new(Listed { tools, names, read: OnceLock::new() }))
    }

    /// Returns what a name means: `set.name`, or the plain name of the earliest set that has it.
    pub fn find(&self, name: &str) -> Option<&CatalogTool> {
        self.0.names.get(name).map(|at| &self.0.tools[at])
    }

    /// Returns what the planner without a model makes of the tools, which it does once.
    pub(crate) fn read(&self, read: impl FnOnce(&Self) -> Read) -> &Read {
        self.0.read.get_or_init(|| read(self))
    }

    /// Returns every tool.
    pub fn tools(&self) -> &[CatalogTool] {
        &self.0.tools
    }

    /// Returns the tools that can be planned: active and callable.
    pub fn plannable(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.tools()
            .iter()
            .filter(|it| it.is_active && it.definition.is_callable)
            .map(|it| &it.definition)
    }

    /// Returns this catalog with only the given sets, if any are given.
    #[must_use]
    pub fn only(&self, sets: &[ToolSetName]) -> Self {
        if sets.is_empty() {
            return self.clone();
        }
        Self::new(self.tools().iter().filter(|it| sets.contains(&it.definition.set)).cloned())
    }
}
