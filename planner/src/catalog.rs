//! The tools that a plan may use, as they are when it is made.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use shared::{
    id::{ToolName, ToolSetName},
    tool::ToolDefinition,
};

/// The tools that a plan may use.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tools: Vec<CatalogTool>,
    names: BTreeMap<ToolName, usize>,
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
        let names = tools.iter().enumerate().map(|(at, it)| (&*it.definition, at));
        let names = shared::tool::index(names);
        Self { tools, names }
    }

    /// Returns what a name means: `set.name`, or the plain name of the earliest set that has it.
    pub fn find(&self, name: &str) -> Option<&CatalogTool> {
        self.names.get(name).map(|at| &self.tools[*at])
    }

    /// Returns every tool.
    pub fn tools(&self) -> &[CatalogTool] {
        &self.tools
    }

    /// Returns the tools that can be planned: active and callable.
    pub fn plannable(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.tools
            .iter()
            .filter(|it| it.is_active && it.definition.is_callable)
            .map(|it| &it.definition)
    }

    /// Returns this catalog with only these tools, by the names that always mean them.
    #[must_use]
    pub fn among(&self, tools: &HashSet<ToolName>) -> Self {
        let is_there = |it: &&CatalogTool| tools.contains(&it.definition.qualified());
        Self::new(self.tools.iter().filter(is_there).cloned())
    }

    /// Returns this catalog with only the given sets, if any are given.
    #[must_use]
    pub fn only(&self, sets: &[ToolSetName]) -> Self {
        if sets.is_empty() {
            return self.clone();
        }
        Self::new(self.tools.iter().filter(|it| sets.contains(&it.definition.set)).cloned())
    }
}
