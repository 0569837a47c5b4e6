//! The toolkit as one caller sees and changes it.
//!
//! A tool can have several names. The graph uses one of them, and callers can use any of them.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use planner::{
    suggest::did_you_mean,
    toolkit::{
        Node, NodeKind, RecommendationReach, Toolkit, ToolkitError, Warning, written::ReadToolkit,
    },
};
use shared::{
    id::{NodeName, ToolName},
    limits,
};
use toolbox::{ReadyTool, ToolLookup};

use super::Selection;
use crate::{error::EngineError, tools::inventory::to_tool_name};

/// Number of `next` edges that planning follows from the named actions. It uses the tools of all
/// these actions, except along edges below the default threshold.
const PLANNING_HOPS: usize = 1;

/// The action or tool to which a new edge leads or from which it comes, and the score of the edge.
pub type WeightedEdge = (NodeName, f64);

#[derive(Clone, Debug, PartialEq)]
pub struct NewAction {
    pub name: NodeName,
    pub description: String,
    pub next: Vec<WeightedEdge>,
    pub before: Vec<WeightedEdge>,
    pub tools: Vec<WeightedEdge>,
}

#[derive(Clone, Debug)]
pub struct ToolkitChange {
    pub toolkit: Arc<Toolkit>,
    /// Messages about parts that were left out, and about names that are probably misspelt.
    pub warnings: Vec<String>,
}

impl ToolkitChange {
    fn new(warnings: &[Warning], toolkit: Arc<Toolkit>) -> Self {
        Self { toolkit, warnings: warnings.iter().map(ToString::to_string).collect() }
    }
}

impl Selection {
    pub async fn toolkit(&self) -> Result<Arc<Toolkit>, EngineError> {
        Ok(self.visible_part(self.tools.toolkit.load().await?))
    }

    /// Returns some actions and tools of the toolkit, and every edge between them. Ignores unknown
    /// names.
    pub async fn toolkit_part(&self, names: &[String]) -> Result<Toolkit, EngineError> {
        let toolkit = self.toolkit().await?;
        self.wait_for_tools_unless_in(&toolkit, names.iter().map(String::as_str)).await;
        let graph_names_cell = OnceCell::new();
        let graph_names = names.iter().map(|name| {
            let Ok(name) = name.parse::<NodeName>() else { return name.clone() };
            if toolkit.get(name.as_str()).is_some() {
                return name.to_string();
            }
            // The names of the graph are computed once and not for each given name, because both
            // lists can be long.
            let names_in_graph = graph_names_cell.get_or_init(|| self.names_in_graph(&toolkit));
            names_in_graph
                .get(&self.tools.inventory.qualify_name(&name))
                .unwrap_or(&name)
                .to_string()
        });
        let graph_names: Vec<String> = graph_names.collect();
        Ok(toolkit.subgraph(graph_names.iter().map(String::as_str)))
    }

    pub async fn toolkit_score(&self, from: &str, to: &str) -> Result<f64, EngineError> {
        let toolkit = self.toolkit().await?;
        self.wait_for_tools_unless_in(&toolkit, [to]).await;
        let graph_name = to.parse().map(|to| self.name_in_graph(&toolkit, &to));
        Ok(toolkit.score(from, graph_name.as_ref().map_or(to, |graph_name| graph_name.as_str())))
    }

    pub async fn recommend(
        &self,
        actions: &[String],
        reach: RecommendationReach,
    ) -> Result<Toolkit, EngineError> {
        let toolkit = self.toolkit().await?;
        Ok(toolkit.recommend(actions.iter().map(String::as_str), reach))
    }

    /// Returns the tools that the toolkit recommends for some actions and for their successors.
    /// Without actions, returns `None`. Fails if the toolkit recommends no tool for the actions.
    pub(crate) async fn recommended_tools(
        &self,
        actions: &[String],
    ) -> Result<Option<BTreeSet<ToolName>>, EngineError> {
        if actions.is_empty() {
            return Ok(None);
        }
        let found = self
            .recommend(
                actions,
                RecommendationReach { hops: PLANNING_HOPS, ..RecommendationReach::default() },
            )
            .await?;
        let tools = found.tools_and_actions().tools;
        if tools.is_empty() {
            let names = actions.join("`, `");
            let reason = format!(
                "the toolkit recommends no tool for `{names}`: `faber toolkit show` lists its actions"
            );
            return Err(EngineError::InvalidArgument(reason));
        }
        self.tools.inventory.wait_until_connected().await;
        let qualified = |(name, _): (&NodeName, _)| self.tools.inventory.qualify_name(name);
        Ok(Some(tools.into_iter().map(qualified).collect()))
    }

    pub async fn add_action(&self, action: &NewAction) -> Result<ToolkitChange, EngineError> {
        check_description(&action.description)?;
        let tools = action.tools.iter().map(|(tool, _)| tool.as_str());
        self.wait_for_tools_unless_in(&*self.toolkit().await?, tools).await;
        let changed = self.change_toolkit(|graph| {
            let NewAction { name, description, next, before, tools } = action;
            let mut warnings = graph.add_action(name, description, next, before)?;
            for (tool, score) in tools {
                let tool = self.name_in_graph(graph, tool);
                let action = [(name.clone(), *score)];
                warnings.extend(graph.add_tool(&tool, &Node::tool(""), &action)?);
            }
            Ok(warnings)
        });
        let (warnings, toolkit) = changed.await?;
        let change = ToolkitChange::new(&warnings, toolkit);
        Ok(self.add_suggestions(change, action.tools.iter().map(|(tool, _)| tool)).await)
    }

    pub async fn connect_tool(
        &self,
        name: &NodeName,
        actions: &[WeightedEdge],
    ) -> Result<ToolkitChange, EngineError> {
        self.wait_for_tools_unless_in(&*self.toolkit().await?, [name.as_str()]).await;
        let changed = self.change_toolkit(|graph| {
            let tool = self.name_in_graph(graph, name);
            graph.add_tool(&tool, &Node::tool(""), actions)
        });
        let (warnings, toolkit) = changed.await?;
        let change = ToolkitChange::new(&warnings, toolkit);
        Ok(self.add_suggestions(change, [name]).await)
    }

    pub async fn update_toolkit(&self, file: ReadToolkit) -> Result<ToolkitChange, EngineError> {
        let ReadToolkit { toolkit: other, warnings } = file;
        for (_, node) in other.nodes() {
            check_description(&node.description)?;
        }
        let nodes = || other.nodes().filter(|(_, node)| node.kind == NodeKind::Tool);
        let tools = || nodes().map(|(name, _)| name);
        let names = tools().map(NodeName::as_str);
        self.wait_for_tools_unless_in(&*self.toolkit().await?, names).await;
        let qualified = |name: &NodeName| self.tools.inventory.qualify_name(name);
        let changed = self.change_toolkit(|graph| {
            let mut known_names = self.names_in_graph(graph);
            // If the file uses two names for one tool, the graph uses the first name for both.
            for name in tools() {
                known_names.entry(qualified(name)).or_insert_with(|| name.clone());
            }
            let graph_name = |name: &NodeName| match graph.get(name.as_str()) {
                None => known_names.get(&qualified(name)).unwrap_or(name).clone(),
                Some(_) => name.clone(),
            };
            graph.update(&other.with_renamed_tools(graph_name))
        });
        let ((), toolkit) = changed.await?;
        let change = ToolkitChange { toolkit, warnings };
        Ok(self.add_suggestions(change, tools()).await)
    }

    /// Removes a tool, or an action with the tools that only this action calls, from the toolkit.
    /// Returns whether the name existed. Tools stay registered.
    pub async fn remove_from_toolkit(
        &self,
        name: &str,
        kind: NodeKind,
    ) -> Result<bool, EngineError> {
        if kind == NodeKind::Tool {
            self.wait_for_tools_unless_in(&*self.toolkit().await?, [name]).await;
        }
        let changed = self.change_toolkit(|graph| {
            let graph_name = match name.parse() {
                Ok(name) if kind == NodeKind::Tool => self.name_in_graph(graph, &name).to_string(),
                _ => name.to_owned(),
            };
            if graph.get(&graph_name).is_none_or(|node| node.kind != kind) {
                return Ok(false);
            }
            graph.remove(&graph_name);
            Ok(true)
        });
        Ok(changed.await?.0)
    }

    pub async fn set_score(
        &self,
        from: &NodeName,
        to: &NodeName,
        score: f64,
    ) -> Result<bool, EngineError> {
        self.wait_for_tools_unless_in(&*self.toolkit().await?, [to.as_str()]).await;
        let changed = self.change_toolkit(|graph| {
            let to = self.name_in_graph(graph, to);
            graph.set_score(from, &to, score)
        });
        Ok(changed.await?.0)
    }

    /// Stores a change. Calls `change` again if another node has changed the toolkit.
    async fn change_toolkit<T>(
        &self,
        change: impl Fn(&mut Toolkit) -> Result<T, ToolkitError>,
    ) -> Result<(T, Arc<Toolkit>), EngineError> {
        let check = |before: &Toolkit, after: &Toolkit| {
            after.check_size()?;
            let is_new = |(name, _): &(&NodeName, &Node)| before.get(name.as_str()).is_none();
            for (name, node) in after.nodes().filter(is_new) {
                if node.kind == NodeKind::Tool {
                    let tool = self.tools.inventory.qualify_name(name);
                    self.tools.grant.check_tools([&tool])?;
                } else if self.tools.inventory.find_tool(name).is_some_and(|tool| {
                    [tool.name.as_str(), tool.qualified_name().as_str()].contains(&name.as_str())
                }) {
                    return Err(
                        ToolkitError::Clash { name: name.clone(), is: NodeKind::Tool }.into()
                    );
                }
            }
            Ok(())
        };
        let (returned, toolkit) = self.tools.toolkit.change(change, check).await?;
        Ok((returned, self.visible_part(toolkit)))
    }

    fn visible_part(&self, toolkit: Arc<Toolkit>) -> Arc<Toolkit> {
        let Selection { tools, .. } = self;
        if tools.grant.allows_every_tool() {
            return toolkit;
        }
        let is_allowed = |(name, node): &(&NodeName, &Node)| {
            node.kind == NodeKind::Action || tools.grant.allows(&tools.inventory.qualify_name(name))
        };
        let visible = toolkit.nodes().filter(is_allowed).map(|(name, _)| name.as_str());
        Arc::new(toolkit.subgraph(visible))
    }

    /// Returns the name that the graph uses for a tool, or the given name if the graph does not
    /// have the tool.
    fn name_in_graph(&self, graph: &Toolkit, name: &NodeName) -> NodeName {
        let inventory = &self.tools.inventory;
        if graph.get(name.as_str()).is_some() || inventory.find_tool(name).is_none() {
            return name.clone();
        }
        self.names_in_graph(graph)
            .remove(&inventory.qualify_name(name))
            .unwrap_or_else(|| name.clone())
    }

    fn names_in_graph(&self, graph: &Toolkit) -> BTreeMap<ToolName, NodeName> {
        let mut known_names = BTreeMap::new();
        for (name, _) in graph.nodes().filter(|(_, node)| node.kind == NodeKind::Tool) {
            if let Some(tool) = self.tools.inventory.find_tool(name) {
                known_names.entry(tool.qualified_name()).or_insert_with(|| name.clone());
            }
        }
        known_names
    }

    /// Waits for connecting toolsets. Does not wait if the graph contains all of these names,
    /// because then no tool must be looked up.
    async fn wait_for_tools_unless_in<'a>(
        &self,
        graph: &Toolkit,
        names: impl IntoIterator<Item = &'a str>,
    ) {
        if names.into_iter().any(|name| graph.get(name).is_none()) {
            self.tools.inventory.wait_until_connected().await;
        }
    }

    /// Adds a warning for each unregistered tool whose name is similar to that of a registered
    /// tool. Other unregistered tools get no warning, because they can be registered later.
    async fn add_suggestions<'a>(
        &self,
        mut change: ToolkitChange,
        tools: impl IntoIterator<Item = &'a NodeName>,
    ) -> ToolkitChange {
        let toolbox = self.tools.inventory.toolbox();
        let is_unknown = |tool: &ToolName| matches!(toolbox.find(tool), ToolLookup::Unknown);
        let mut tools: Vec<ToolName> = tools.into_iter().map(to_tool_name).collect();
        tools.retain(|tool| {
            is_unknown(tool) || matches!(toolbox.find(tool), ToolLookup::Connecting)
        });
        if tools.is_empty() {
            return change;
        }
        self.tools.inventory.wait_for_tools(&tools).await;
        let sets = self.tools.sets();
        let definitions = sets.iter().flat_map(|set| set.tools.iter().map(ReadyTool::definition));
        let names: Vec<_> = definitions.clone().map(|tool| tool.qualified_name()).collect();
        let plain = definitions.map(|tool| tool.name.as_str());
        let names = plain.chain(names.iter().map(ToolName::as_str));
        for tool in tools.iter().filter(|tool| is_unknown(tool)) {
            if let Some(help) = did_you_mean(tool.as_str(), names.clone()) {
                change.warnings.push(format!("no tool `{tool}` is registered: {help}"));
            }
        }
        change
    }
}

fn check_description(text: &str) -> Result<(), EngineError> {
    if text.len() <= limits::TEXT_BYTES {
        return Ok(());
    }
    let (has, limit) = (text.len(), limits::TEXT_BYTES);
    Err(EngineError::LimitExceeded(format!("a description has {has} bytes; the limit is {limit}")))
}
