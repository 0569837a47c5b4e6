//! Which tools the names in the graph mean. A tool may have several names; in the graph it has one.

use std::{collections::BTreeMap, sync::Arc};

use planner::{
    suggest::did_you_mean,
    toolkit::{NodeKind, Toolkit},
};
use shared::{
    id::{NodeName, ToolName},
    tool::ToolDefinition,
};
use toolbox::{Found, ReadyTool};

use super::ToolkitChange;
use crate::engine::Engine;

impl Engine {
    /// Returns the tool that a name in the graph means, if it is registered.
    pub fn registered(&self, name: &NodeName) -> Option<Arc<ToolDefinition>> {
        match self.toolbox.find(&tool_name(name)) {
            Found::Tool(it) | Found::Inactive(it) => Some(Arc::clone(it.definition())),
            Found::Connecting | Found::Failed { .. } | Found::Unknown => None,
        }
    }

    /// Returns the name that always means the tool of a name in the graph.
    pub fn meant(&self, name: &NodeName) -> ToolName {
        self.registered(name).map_or_else(|| tool_name(name), |it| it.qualified_name())
    }

    /// Returns how the graph calls a tool: as it is written, unless the graph has the same tool by
    /// another name.
    pub(super) fn known_as(&self, graph: &Toolkit, name: &NodeName) -> NodeName {
        if graph.get(name.as_str()).is_some() || self.registered(name).is_none() {
            return name.clone();
        }
        self.meanings(graph).remove(&self.meant(name)).unwrap_or_else(|| name.clone())
    }

    /// Returns how the graph calls the tools that are registered, by the names that always mean them.
    pub(super) fn meanings(&self, graph: &Toolkit) -> BTreeMap<ToolName, NodeName> {
        let mut known = BTreeMap::new();
        for (name, _) in graph.nodes().filter(|(_, it)| it.kind == NodeKind::Tool) {
            if let Some(tool) = self.registered(name) {
                known.entry(tool.qualified_name()).or_insert_with(|| name.clone());
            }
        }
        known
    }

    /// Waits until it is known what tools there are, unless the graph has all of these names itself.
    pub(super) async fn settled_unless_in<'a>(
        &self,
        graph: &Toolkit,
        names: impl IntoIterator<Item = &'a str>,
    ) {
        if names.into_iter().any(|it| graph.get(it).is_none()) {
            self.settled().await;
        }
    }

    /// Adds warnings of tools that nobody has registered and that are called nearly as others are.
    ///
    /// A graph may know of tools that come later, so one that is like no other is no mistake.
    pub(super) async fn with_misspelt<'a>(
        &self,
        mut change: ToolkitChange,
        tools: impl IntoIterator<Item = &'a NodeName>,
    ) -> ToolkitChange {
        let is_unknown = |it: &ToolName| matches!(self.toolbox.find(it), Found::Unknown);
        let mut tools: Vec<ToolName> = tools.into_iter().map(tool_name).collect();
        tools.retain(|it| is_unknown(it) || matches!(self.toolbox.find(it), Found::Connecting));
        if tools.is_empty() {
            return change;
        }
        self.certain(&tools).await;
        let sets = self.sets();
        let known = sets.iter().flat_map(|set| set.tools.iter().map(ReadyTool::definition));
        let names: Vec<_> = known.clone().map(|it| it.qualified_name()).collect();
        let plain = known.map(|it| it.name.as_str());
        let names = plain.chain(names.iter().map(ToolName::as_str));
        for tool in tools.iter().filter(|it| is_unknown(it)) {
            if let Some(help) = did_you_mean(tool.as_str(), names.clone()) {
                change.warnings.push(format!("no tool `{tool}` is registered: {help}"));
            }
        }
        change
    }
}

/// Every name in the graph could be a tool's.
fn tool_name(name: &NodeName) -> ToolName {
    name.as_str().parse().expect("both kinds of names have the same rule")
}
