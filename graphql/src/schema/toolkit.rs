use std::{str::FromStr, sync::Arc};

use async_graphql::{Context, InputObject, Object, Result, SimpleObject};
use engine::{Engine, EngineError, NewAction, ToolkitChange as Change, WeightedEdge, yaml};
use planner::toolkit::{self as graph, Node, NodeKind, RecommendationReach, draw, written};
use serde_json::{Value, json};
use shared::{
    id::NodeName,
    limits,
    store::{AuditAction, AuditTarget},
};
use tokio::task;

use super::{
    error::{ApiError, ApiResult},
    layout::{self, DrawingOptions, Graph, Layout, LayoutDirection},
    tool::Tool,
};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolkitQuery;

#[Object]
impl ToolkitQuery {
    /// The whole toolkit: all actions and tools, and the edges between them.
    async fn toolkit(&self, ctx: &Context<'_>) -> Result<Toolkit> {
        let toolkit = ctx.data::<Engine>()?.selection.toolkit().await.map_err(ApiError::from)?;
        Ok(Toolkit(toolkit))
    }

    /// Part of the toolkit: the named actions and tools, and the edges between them.
    async fn toolkit_subgraph(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Names of actions and tools. Unknown names are ignored.")] names: Vec<
            String,
        >,
    ) -> Result<Toolkit> {
        let part =
            ctx.data::<Engine>()?.selection.toolkit_part(&names).await.map_err(ApiError::from)?;
        Ok(Toolkit(Arc::new(part)))
    }

    /// Score of an edge, or 1.0 if there is no such edge.
    async fn toolkit_score(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the action from which the edge leads.")] from: String,
        #[graphql(desc = "Name of the action or tool to which the edge leads.")] to: String,
    ) -> Result<f64> {
        let score = ctx.data::<Engine>()?.selection.toolkit_score(&from, &to).await;
        Ok(score.map_err(ApiError::from)?)
    }

    /// Part of the toolkit near some actions: actions that are at most `hops` edges away, the tools
    /// that these actions call, and the edges between them. Edges with a score below `threshold`
    /// are ignored.
    async fn recommend_subgraph(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Names of the actions to start from. Unknown names are ignored.")] actions: Vec<String>,
        #[graphql(desc = "Lowest score of the edges to follow.", default_with = "Some(0.5)")]
        threshold: Option<f64>,
        #[graphql(desc = "Maximum number of `next` edges to follow.", default_with = "Some(0)")]
        hops: Option<i32>,
    ) -> Result<Toolkit> {
        let found = recommend(ctx, &actions, threshold, hops).await?;
        Ok(Toolkit(Arc::new(found)))
    }

    /// Tools and actions of `recommendSubgraph`, each in topological order.
    async fn recommend_tools_actions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Names of the actions to start from. Unknown names are ignored.")] actions: Vec<String>,
        #[graphql(desc = "Lowest score of the edges to follow.", default_with = "Some(0.5)")]
        threshold: Option<f64>,
        #[graphql(desc = "Maximum number of `next` edges to follow.", default_with = "Some(0)")]
        hops: Option<i32>,
    ) -> Result<ToolsAndActions> {
        let found = recommend(ctx, &actions, threshold, hops).await?;
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.wait_until_connected().await;
        Ok(ToolsAndActions { tools: list_tools(engine, &found), actions: list_actions(&found) })
    }

    /// Tools that probably come after a tool, most likely first, learned from executions that
    /// succeeded. Also contains tools that are called often, with low scores. Empty if no tool was
    /// observed after this tool.
    async fn tool_followers(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the tool, or `set.name`.")] name: String,
        #[graphql(desc = "Maximum number of tools, from 1 to 100.", default_with = "Some(5)")]
        first: Option<i32>,
    ) -> Result<Vec<ToolFollower>> {
        let first = first.unwrap_or(5);
        let maximum = usize::try_from(first).ok().filter(|first| (1..=100).contains(first));
        let maximum = maximum.ok_or_else(|| {
            invalid_toolkit(format!("`first` is {first}; write a number from 1 to 100"))
        })?;
        let Ok(name) = name.parse() else { return Ok(Vec::new()) };
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.wait_until_connected().await;
        let found = engine.selection.followers(&name, maximum).await.map_err(ApiError::from)?;
        let follower = |follower: graph::learned::Follower| ToolFollower {
            tool_name: engine.tools.inventory.toolbox().display_name_of(&follower.tool).to_string(),
            score: follower.score,
        };
        Ok(found.into_iter().map(follower).collect())
    }
}

async fn recommend(
    ctx: &Context<'_>,
    actions: &[String],
    threshold: Option<f64>,
    hops: Option<i32>,
) -> Result<graph::Toolkit> {
    let default = RecommendationReach::default();
    let hops = usize::try_from(hops.unwrap_or(0)).unwrap_or(0);
    let reach = RecommendationReach { threshold: threshold.unwrap_or(default.threshold), hops };
    let found = ctx.data::<Engine>()?.selection.recommend(actions, reach).await;
    Ok(found.map_err(ApiError::from)?)
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolkitMutation;

#[Object]
impl ToolkitMutation {
    /// Adds an action to the toolkit permanently, on all nodes. If the action exists, its
    /// description stays, missing edges are added, and existing edges get the new scores.
    async fn add_action(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Action to add.")] input: ActionInput,
    ) -> Result<ToolkitChange> {
        let action = input.into_action()?;
        let engine = ctx.data::<Engine>()?;
        let change = engine.selection.add_action(&action).await.map_err(ApiError::from)?;
        record_change(engine, AuditAction::ADD_ACTION, action.name.as_str(), Value::Null).await;
        Ok(ToolkitChange(change))
    }

    /// Connects a tool with the actions that call it. Adds the tool to the toolkit if it is
    /// missing. Unknown actions are left out with a warning. If all actions are unknown, a new tool
    /// is left out, too.
    async fn connect_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the tool, or `set.name`. The tool need not be registered.")] name: String,
        #[graphql(desc = "Actions that call the tool, with scores.")] actions: Vec<EdgeInput>,
    ) -> Result<ToolkitChange> {
        let engine = ctx.data::<Engine>()?;
        let edges = parse_edges(Some(actions))?;
        let change = engine.selection.connect_tool(&parse_name(&name)?, &edges).await;
        let change = change.map_err(ApiError::from)?;
        record_change(engine, AuditAction::CONNECT_TOOL, &name, Value::Null).await;
        Ok(ToolkitChange(change))
    }

    /// Merges a toolkit file in chat2graph's format: `tools`, `actions`, and chains of actions in
    /// `toolkit`. Adds missing elements and replaces descriptions. Existing edges keep their
    /// scores.
    async fn update_toolkit(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Content of the file, as YAML.")] yaml: String,
    ) -> Result<ToolkitChange> {
        let file =
            yaml::parse(&yaml).and_then(|file| written::read(&file)).map_err(invalid_toolkit)?;
        let engine = ctx.data::<Engine>()?;
        let change = engine.selection.update_toolkit(file).await.map_err(ApiError::from)?;
        let target = AuditTarget::default();
        engine.executions.record_action(AuditAction::UPDATE_TOOLKIT, target, Value::Null).await;
        Ok(ToolkitChange(change))
    }

    /// Removes an action from the toolkit, with the tools that only it calls. The tools stay
    /// registered. Returns false if there is no such action.
    async fn remove_action(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the action.")] name: String,
    ) -> Result<bool> {
        remove_node(ctx, &name, NodeKind::Action).await
    }

    /// Removes a tool from the toolkit. The tool stays registered. Returns false if the toolkit
    /// does not have it.
    async fn disconnect_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the tool, or `set.name`.")] name: String,
    ) -> Result<bool> {
        remove_node(ctx, &name, NodeKind::Tool).await
    }

    /// Sets the score of an edge. Returns false if there is no such edge.
    async fn set_score(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the action from which the edge leads.")] from: String,
        #[graphql(desc = "Name of the action or tool to which the edge leads.")] to: String,
        #[graphql(desc = "New score. Any number is accepted, and 0 to 1 is usual.")] score: f64,
    ) -> Result<bool> {
        let (Ok(from), Ok(to)) = (from.parse::<NodeName>(), to.parse::<NodeName>()) else {
            return Ok(false);
        };
        let engine = ctx.data::<Engine>()?;
        let is_set = engine.selection.set_score(&from, &to, score).await;
        let is_set = is_set.map_err(ApiError::from)?;
        if is_set {
            let detail = json!({ "to": to, "score": score });
            record_change(engine, AuditAction::SET_SCORE, from.as_str(), detail).await;
        }
        Ok(is_set)
    }
}

async fn remove_node(ctx: &Context<'_>, name: &str, kind: NodeKind) -> Result<bool> {
    let engine = ctx.data::<Engine>()?;
    let removed = engine.selection.remove_from_toolkit(name, kind).await;
    let removed = removed.map_err(ApiError::from)?;
    if removed {
        let action = match kind {
            NodeKind::Action => AuditAction::REMOVE_ACTION,
            NodeKind::Tool => AuditAction::DISCONNECT_TOOL,
        };
        record_change(engine, action, name, Value::Null).await;
    }
    Ok(removed)
}

async fn record_change(engine: &Engine, action: AuditAction, name: &str, detail: Value) {
    engine.executions.record_action(action, AuditTarget::named(name), detail).await;
}

fn invalid_toolkit(reason: impl Into<String>) -> ApiError {
    ApiError::from(EngineError::InvalidArgument(reason.into()))
}

fn parse_name(name: &str) -> ApiResult<NodeName> {
    NodeName::from_str(name).map_err(|err| invalid_toolkit(err.to_string()))
}

fn parse_edges(edges: Option<Vec<EdgeInput>>) -> ApiResult<Vec<WeightedEdge>> {
    let link =
        |edge: EdgeInput| Ok((parse_name(&edge.name)?, edge.score.unwrap_or(graph::DEFAULT_SCORE)));
    edges.unwrap_or_default().into_iter().map(link).collect()
}

/// Action to add to the toolkit.
#[derive(InputObject)]
pub(super) struct ActionInput {
    /// Name of the action.
    name: String,
    /// Purpose of the action, in words.
    description: String,
    /// Actions that can follow this action.
    next: Option<Vec<EdgeInput>>,
    /// Actions that this action can follow.
    prev: Option<Vec<EdgeInput>>,
    /// Tools that the action calls.
    tools: Option<Vec<EdgeInput>>,
}

impl ActionInput {
    fn into_action(self) -> ApiResult<NewAction> {
        if self.name.trim().is_empty() {
            return Err(invalid_toolkit("the name of an action must not be blank"));
        }
        Ok(NewAction {
            name: parse_name(&self.name)?,
            description: self.description,
            next: parse_edges(self.next)?,
            before: parse_edges(self.prev)?,
            tools: parse_edges(self.tools)?,
        })
    }
}

/// Edge of the action that is added, or of the tool that `connectTool` connects. Leads to or from
/// the named action or tool.
#[derive(InputObject)]
pub(super) struct EdgeInput {
    /// Name of the action or tool to which the edge leads, or from which it comes.
    name: String,
    /// Weight of the edge. Any number is accepted, and 0 to 1 is usual.
    #[graphql(default_with = "Some(1.0)")]
    score: Option<f64>,
}

pub(super) struct Toolkit(Arc<graph::Toolkit>);

/// Graph of actions and tools. Lists are in topological order, one generation after another, and
/// within a generation in the order in which elements were added. If the graph has a cycle, all
/// elements are in the order in which they were added.
#[Object]
impl Toolkit {
    /// Actions of the graph.
    async fn actions(&self) -> Vec<Action> {
        list_actions(&self.0)
    }

    /// Tools of the graph, under the names that the graph uses. A tool that is not registered has
    /// the source `toolkit`.
    async fn tools(&self, ctx: &Context<'_>) -> Result<Vec<Tool>> {
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.wait_until_connected().await;
        Ok(list_tools(engine, &self.0))
    }

    /// Edges of the graph.
    async fn edges(&self, ctx: &Context<'_>) -> Result<Vec<ToolkitEdge>> {
        let engine = ctx.data::<Engine>()?;
        let learned = if ctx.look_ahead().field("learned").exists() {
            Some(engine.selection.learning.load_learned().await.map_err(ApiError::from)?)
        } else {
            None
        };
        let edge = |edge: graph::Edge<'_>| {
            let score =
                |learned| engine.selection.learned_score(learned, &self.0, edge.from, edge.to);
            ToolkitEdge::new(edge, learned.as_ref().and_then(score))
        };
        Ok(self.0.ordered_edges().into_iter().map(edge).collect())
    }

    /// Drawing of the graph as a Mermaid flowchart.
    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn mermaid(&self) -> Result<String> {
        self.check_can_be_drawn()?;
        Ok(draw::mermaid(&self.0))
    }

    /// Drawing of the graph in Graphviz DOT.
    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn dot(&self) -> Result<String> {
        self.check_can_be_drawn()?;
        Ok(draw::dot(&self.0))
    }

    /// Drawing of the graph as an SVG image.
    async fn svg(
        &self,
        #[graphql(desc = "Title of the drawing.", default_with = "Some(\"Toolkit\".to_owned())")]
        title: Option<String>,
    ) -> Result<String> {
        self.check_can_be_drawn()?;
        let (toolkit, title) = (Arc::clone(&self.0), title.unwrap_or_default());
        // Runs on a blocking thread, because a large drawing would block other requests.
        let svg = task::spawn_blocking(move || draw::svg(&toolkit, &title)).await;
        Ok(svg.map_err(|err| invalid_toolkit(format!("the graph cannot be drawn: {err}")))?)
    }

    /// Positions for clients that draw the graph themselves.
    async fn layout(
        &self,
        #[graphql(desc = "Direction of the edges.", default_with = "Some(LayoutDirection::Right)")]
        direction: Option<LayoutDirection>,
        #[graphql(desc = "Node width in pixels, from 1 to 2000.", default_with = "Some(200.0)")]
        node_width: Option<f64>,
        #[graphql(desc = "Node height in pixels, from 1 to 2000.", default_with = "Some(52.0)")]
        node_height: Option<f64>,
    ) -> Result<Layout> {
        self.check_can_be_drawn()?;
        let (names, edges) = self.0.numbered_graph();
        let graph = Graph { names: names.into_iter().map(ToString::to_string).collect(), edges };
        let (width, height) = (node_width, node_height);
        let wish = DrawingOptions { direction, width, height, sizes: Vec::new() };
        Ok(layout::draw_graph(graph, wish).await?)
    }

    /// Graph as YAML, in the format that `updateToolkit` and the setting `toolkit_files` read.
    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn yaml(&self) -> Result<String> {
        Ok(yaml::format(&written::write(&self.0)).map_err(invalid_toolkit)?)
    }
}

impl Toolkit {
    fn check_can_be_drawn(&self) -> ApiResult<()> {
        for (has, maximum, noun) in [
            (self.0.len(), limits::DRAWN_NODES, "actions and tools"),
            (self.0.edge_count(), limits::DRAWN_EDGES, "edges"),
        ] {
            if has > maximum {
                let help = "draw a part of it: `toolkitSubgraph`, `recommendSubgraph`";
                let reason = format!(
                    "a drawing can have at most {maximum} {noun}, but there are {has}; {help}"
                );
                return Err(ApiError::from(EngineError::LimitExceeded(reason)));
            }
        }
        Ok(())
    }
}

/// Action of the toolkit: a goal that tools serve.
#[derive(SimpleObject)]
pub(super) struct Action {
    /// Name of the action.
    name: String,
    /// Purpose of the action, in words.
    description: String,
}

/// Edge of the toolkit.
#[derive(SimpleObject)]
#[graphql(complex)]
pub(super) struct ToolkitEdge {
    /// Name of the action from which the edge leads.
    from: String,
    /// Name of the action or tool to which the edge leads.
    to: String,
    /// Kind of the edge: `next` leads to an action that can follow, and `call` leads to a tool.
    pub(super) kind: String,
    /// Weight of the edge, as it was set. Recommendations use it.
    score: f64,
    /// Share of the observed calls or transitions from the action `from` that took this edge, from
    /// 0 to 1. Null without observations.
    learned: Option<f64>,
}

impl ToolkitEdge {
    fn new(edge: graph::Edge<'_>, learned: Option<f64>) -> Self {
        Self {
            learned,
            from: edge.from.to_string(),
            to: edge.to.to_string(),
            kind: edge.kind.as_str().to_owned(),
            score: edge.score,
        }
    }
}

/// Tool that probably comes after another tool.
#[derive(SimpleObject)]
pub(super) struct ToolFollower {
    /// Tool, as `set.name`. Tools of a built-in toolset have names such as `file_tools.glob`.
    tool_name: String,
    /// Estimated probability that the tool comes next, from 0 to 1.
    score: f64,
}

/// Recommended tools and actions, each in topological order.
#[derive(SimpleObject)]
pub(super) struct ToolsAndActions {
    /// Recommended tools, in topological order.
    tools: Vec<Tool>,
    /// Recommended actions, in topological order.
    actions: Vec<Action>,
}

pub(super) struct ToolkitChange(Change);

/// Result of a change of the toolkit.
#[Object]
impl ToolkitChange {
    /// Whole toolkit after the change.
    async fn toolkit(&self) -> Toolkit {
        Toolkit(Arc::clone(&self.0.toolkit))
    }

    /// Messages about elements that were left out, for example because an action is unknown, and
    /// about names that are probably misspelt.
    async fn warnings(&self) -> &[String] {
        &self.0.warnings
    }
}

fn list_actions(toolkit: &graph::Toolkit) -> Vec<Action> {
    let actions = toolkit.tools_and_actions().actions.into_iter();
    actions
        .map(|(name, node)| Action {
            name: name.to_string(),
            description: node.description.clone(),
        })
        .collect()
}

pub(super) fn list_tools(engine: &Engine, toolkit: &graph::Toolkit) -> Vec<Tool> {
    let sets = engine.tools.inventory.toolbox().sets();
    let tool = |(name, node): (&NodeName, &Node)| {
        let called = name.as_str().parse().ok()?;
        let registered = engine.tools.inventory.find_tool(name).and_then(|tool| {
            let set = sets.iter().find(|set| set.name == tool.set)?;
            Some(Tool::new(&tool, set))
        });
        Some(match registered {
            Some(tool) => tool.with_name(called),
            None => Tool::new_unregistered(called, &node.description),
        })
    };
    toolkit.tools_and_actions().tools.into_iter().filter_map(tool).collect()
}
