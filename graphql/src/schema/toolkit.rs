//! The toolkit graph: which tools go with which actions.

use std::{str::FromStr, sync::Arc};

use async_graphql::{Context, InputObject, Object, Result, SimpleObject};
use planner::toolkit::{self as graph, Node, NodeKind, Reach, draw, written};
use shared::{id::NodeName, limits};
use tokio::task;

use super::{
    error::{ApiError, ApiResult},
    layout::{self, Graph, Layout, LayoutDirection, Wish},
    tool::Tool,
};
use crate::{
    config::yaml,
    engine::{Engine, EngineError, Link, NewAction, ToolkitChange as Change},
};

/// The toolkit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolkitQuery;

/// The toolkit.
#[Object]
impl ToolkitQuery {
    /// All actions and tools, and how they are connected.
    async fn toolkit(&self, ctx: &Context<'_>) -> Result<Toolkit> {
        let toolkit = ctx.data::<Engine>()?.selection.toolkit().await.map_err(ApiError::from)?;
        Ok(Toolkit(toolkit))
    }

    /// Some actions and tools, and every edge between them. Unknown names are left out.
    async fn toolkit_subgraph(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The names of actions and tools.")] names: Vec<String>,
    ) -> Result<Toolkit> {
        let part =
            ctx.data::<Engine>()?.selection.toolkit_part(&names).await.map_err(ApiError::from)?;
        Ok(Toolkit(Arc::new(part)))
    }

    /// The score of an edge; 1.0 where there is none.
    async fn toolkit_score(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "An action.")] from: String,
        #[graphql(desc = "An action that may follow it, or a tool that it calls.")] to: String,
    ) -> Result<f64> {
        let score = ctx.data::<Engine>()?.selection.toolkit_score(&from, &to).await;
        Ok(score.map_err(ApiError::from)?)
    }

    /// What is near some actions: those at most so many `next` edges away, the tools that any of
    /// them calls, and the edges between all these, wherever a score is at least the threshold.
    async fn recommend_subgraph(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The names of actions. Unknown ones are left out.")] actions: Vec<String>,
        #[graphql(desc = "The least score that counts.", default_with = "Some(0.5)")]
        threshold: Option<f64>,
        #[graphql(desc = "How many `next` edges away.", default_with = "Some(0)")] hops: Option<
            i32,
        >,
    ) -> Result<Toolkit> {
        let found = recommended(ctx, &actions, threshold, hops).await?;
        Ok(Toolkit(Arc::new(found)))
    }

    /// The tools and actions of `recommendSubgraph`, each in topological order.
    async fn recommend_tools_actions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The names of actions. Unknown ones are left out.")] actions: Vec<String>,
        #[graphql(desc = "The least score that counts.", default_with = "Some(0.5)")]
        threshold: Option<f64>,
        #[graphql(desc = "How many `next` edges away.", default_with = "Some(0)")] hops: Option<
            i32,
        >,
    ) -> Result<ToolsAndActions> {
        let found = recommended(ctx, &actions, threshold, hops).await?;
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.settled().await;
        Ok(ToolsAndActions { tools: tools(engine, &found), actions: actions_of(&found) })
    }

    /// The tools that usually come after one, the likeliest first, as executions that succeeded
    /// have taught.
    async fn tool_followers(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name, or `set.name`.")] name: String,
        #[graphql(desc = "At most so many, 1 to 100.", default_with = "Some(5)")] first: Option<
            i32,
        >,
    ) -> Result<Vec<ToolFollower>> {
        let first = first.unwrap_or(5);
        let most = usize::try_from(first).ok().filter(|first| (1..=100).contains(first));
        let most = most.ok_or_else(|| unfit(format!("`first` is {first}; it is 1 to 100")))?;
        let Ok(name) = name.parse() else { return Ok(Vec::new()) };
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.settled().await;
        let found = engine.selection.followers(&name, most).await.map_err(ApiError::from)?;
        let follower = |follower: graph::learned::Follower| ToolFollower {
            tool_name: engine.tools.inventory.toolbox().shown_of(&follower.tool).to_string(),
            score: follower.score,
        };
        Ok(found.into_iter().map(follower).collect())
    }
}

async fn recommended(
    ctx: &Context<'_>,
    actions: &[String],
    threshold: Option<f64>,
    hops: Option<i32>,
) -> Result<graph::Toolkit> {
    let default = Reach::default();
    // Fewer than none is none.
    let hops = usize::try_from(hops.unwrap_or(0)).unwrap_or(0);
    let reach = Reach { threshold: threshold.unwrap_or(default.threshold), hops };
    let found = ctx.data::<Engine>()?.selection.recommend(actions, reach).await;
    Ok(found.map_err(ApiError::from)?)
}

/// The toolkit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolkitMutation;

/// The toolkit.
#[Object]
impl ToolkitMutation {
    /// Adds an action to the toolkit, on every node and for good. One that is there stays as it
    /// is; its edges are added, and those that are there get the new scores.
    async fn add_action(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The action.")] input: ActionInput,
    ) -> Result<ToolkitChange> {
        let action = input.into_action()?;
        let change = ctx.data::<Engine>()?.selection.add_action(&action).await;
        Ok(ToolkitChange(change.map_err(ApiError::from)?))
    }

    /// Connects a tool with the actions that call it, and adds it to the toolkit where it is not
    /// there. Actions that are not there are left out, and so is a tool that none would call.
    async fn connect_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name, or `set.name`. It need not be registered yet.")] name: String,
        #[graphql(desc = "The actions.")] actions: Vec<EdgeInput>,
    ) -> Result<ToolkitChange> {
        let change = ctx
            .data::<Engine>()?
            .selection
            .connect_tool(&known(&name)?, &links(Some(actions))?)
            .await;
        Ok(ToolkitChange(change.map_err(ApiError::from)?))
    }

    /// Takes in a toolkit as chat2graph's files have it (`tools`, `actions` and chains of actions
    /// under `toolkit`): what is not there is added, what is there is described anew, and an edge
    /// that is there keeps its score.
    async fn update_toolkit(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The file.")] yaml: String,
    ) -> Result<ToolkitChange> {
        let file = yaml::value(&yaml).and_then(|file| written::read(&file)).map_err(unfit)?;
        let change = ctx.data::<Engine>()?.selection.update_toolkit(file).await;
        Ok(ToolkitChange(change.map_err(ApiError::from)?))
    }

    /// Removes an action from the toolkit, with the tools that only it calls; false where there is
    /// none. The tools stay registered.
    async fn remove_action(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name.")] name: String,
    ) -> Result<bool> {
        removed(ctx, &name, NodeKind::Action).await
    }

    /// Removes a tool from the toolkit; false where it is not there. It stays registered.
    async fn disconnect_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name, or `set.name`.")] name: String,
    ) -> Result<bool> {
        removed(ctx, &name, NodeKind::Tool).await
    }

    /// Gives an edge a score; false where there is no such edge.
    async fn set_score(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "An action.")] from: String,
        #[graphql(desc = "An action that may follow it, or a tool that it calls.")] to: String,
        #[graphql(desc = "The score; 0 to 1 where nothing else is meant.")] score: f64,
    ) -> Result<bool> {
        let (Ok(from), Ok(to)) = (from.parse(), to.parse()) else { return Ok(false) };
        let set = ctx.data::<Engine>()?.selection.set_score(&from, &to, score).await;
        Ok(set.map_err(ApiError::from)?)
    }
}

async fn removed(ctx: &Context<'_>, name: &str, kind: NodeKind) -> Result<bool> {
    let removed = ctx.data::<Engine>()?.selection.remove_from_toolkit(name, kind).await;
    Ok(removed.map_err(ApiError::from)?)
}

fn unfit(why: impl Into<String>) -> ApiError {
    ApiError::from(EngineError::InvalidArgument(why.into()))
}

fn known(name: &str) -> ApiResult<NodeName> {
    NodeName::from_str(name).map_err(|err| unfit(err.to_string()))
}

fn links(edges: Option<Vec<EdgeInput>>) -> ApiResult<Vec<Link>> {
    let link =
        |edge: EdgeInput| Ok((known(&edge.name)?, edge.score.unwrap_or(graph::DEFAULT_SCORE)));
    edges.unwrap_or_default().into_iter().map(link).collect()
}

/// An action to be added.
#[derive(InputObject)]
pub(super) struct ActionInput {
    /// Its name.
    name: String,
    /// What it is for, in words.
    description: String,
    /// The actions that may follow it.
    next: Option<Vec<EdgeInput>>,
    /// The actions that it may follow.
    prev: Option<Vec<EdgeInput>>,
    /// The tools that it calls.
    tools: Option<Vec<EdgeInput>>,
}

impl ActionInput {
    fn into_action(self) -> ApiResult<NewAction> {
        if self.name.trim().is_empty() {
            return Err(unfit("the name of an action cannot be blank: write what it does"));
        }
        Ok(NewAction {
            name: known(&self.name)?,
            description: self.description,
            next: links(self.next)?,
            before: links(self.prev)?,
            tools: links(self.tools)?,
        })
    }
}

/// An edge, from or to something.
#[derive(InputObject)]
pub(super) struct EdgeInput {
    /// The other end.
    name: String,
    /// How strong the connection is.
    #[graphql(default_with = "Some(1.0)")]
    score: Option<f64>,
}

/// A graph of actions and tools. Everything comes in topological order: generation by generation,
/// and within one as it was added; on a cycle all as it was added.
pub(super) struct Toolkit(Arc<graph::Toolkit>);

/// A graph of actions and tools. Everything comes in topological order: generation by generation,
/// and within one as it was added; on a cycle all as it was added.
#[Object]
impl Toolkit {
    /// What can be done.
    async fn actions(&self) -> Vec<Action> {
        actions_of(&self.0)
    }

    /// What actions call, by the names that the graph has for them. One that is not registered is
    /// of the source `toolkit`.
    async fn tools(&self, ctx: &Context<'_>) -> Result<Vec<Tool>> {
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.settled().await;
        Ok(tools(engine, &self.0))
    }

    /// Which action may follow which, and which tools each calls.
    async fn edges(&self, ctx: &Context<'_>) -> Result<Vec<ToolkitEdge>> {
        let engine = ctx.data::<Engine>()?;
        let learned = if ctx.look_ahead().field("learned").exists() {
            Some(engine.selection.learning.learned().await.map_err(ApiError::from)?)
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

    /// The graph as a Mermaid flowchart.
    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn mermaid(&self) -> Result<String> {
        self.check_drawn()?;
        Ok(draw::mermaid(&self.0))
    }

    /// The graph for Graphviz.
    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn dot(&self) -> Result<String> {
        self.check_drawn()?;
        Ok(draw::dot(&self.0))
    }

    /// The graph as an SVG image.
    async fn svg(
        &self,
        #[graphql(desc = "What stands above it.", default_with = "Some(\"Toolkit\".to_owned())")]
        title: Option<String>,
    ) -> Result<String> {
        self.check_drawn()?;
        let (toolkit, title) = (Arc::clone(&self.0), title.unwrap_or_default());
        // A large one takes a while, in which others want to be answered.
        let drawn = task::spawn_blocking(move || draw::svg(&toolkit, &title)).await;
        Ok(drawn.map_err(|err| unfit(format!("the graph cannot be drawn: {err}")))?)
    }

    /// Where everything is drawn, for clients that draw it themselves.
    async fn layout(
        &self,
        #[graphql(desc = "Which way edges lead.", default_with = "Some(LayoutDirection::Right)")]
        direction: Option<LayoutDirection>,
        #[graphql(desc = "How wide a node is, 1 to 2000.", default_with = "Some(200.0)")]
        node_width: Option<f64>,
        #[graphql(desc = "How high a node is, 1 to 2000.", default_with = "Some(52.0)")]
        node_height: Option<f64>,
    ) -> Result<Layout> {
        self.check_drawn()?;
        let (names, edges) = self.0.numbered();
        let graph = Graph { names: names.into_iter().map(ToString::to_string).collect(), edges };
        let (width, height) = (node_width, node_height);
        let wish = Wish { direction, width, height, sizes: Vec::new() };
        Ok(layout::draw(graph, wish).await?)
    }

    /// The graph as `toolkit_files` and `updateToolkit` take it.
    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn yaml(&self) -> Result<String> {
        Ok(yaml::text(&written::write(&self.0)).map_err(unfit)?)
    }
}

impl Toolkit {
    fn check_drawn(&self) -> ApiResult<()> {
        for (has, most, what) in [
            (self.0.len(), limits::DRAWN_NODES, "actions and tools"),
            (self.0.edge_count(), limits::DRAWN_EDGES, "edges"),
        ] {
            if has > most {
                let help = "draw a part of it: `toolkitSubgraph`, `recommendSubgraph`";
                let why =
                    format!("a picture shows at most {most} {what}, and there are {has}; {help}");
                return Err(ApiError::from(EngineError::LimitExceeded(why)));
            }
        }
        Ok(())
    }
}

/// Something that can be done.
#[derive(SimpleObject)]
pub(super) struct Action {
    /// Its name.
    name: String,
    /// What it is for, in words.
    description: String,
}

/// An edge of the toolkit.
#[derive(SimpleObject)]
pub(super) struct ToolkitEdge {
    /// The action that it leads from.
    from: String,
    /// The action or tool that it leads to.
    to: String,
    /// `next`, to an action that may follow, or `call`, to a tool.
    kind: String,
    /// How strong the connection is, as it was configured. Recommendations go by it.
    score: f64,
    /// How often executions that succeeded went this way, as a share; null where none came near.
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

/// A tool that usually comes after another.
#[derive(SimpleObject)]
pub(super) struct ToolFollower {
    /// Its name, `set.name`.
    tool_name: String,
    /// How likely it is.
    score: f64,
}

/// What is recommended, each in topological order.
#[derive(SimpleObject)]
pub(super) struct ToolsAndActions {
    /// Tools.
    tools: Vec<Tool>,
    /// Actions.
    actions: Vec<Action>,
}

/// The toolkit after it was changed.
pub(super) struct ToolkitChange(Change);

/// The toolkit after it was changed.
#[Object]
impl ToolkitChange {
    /// All of it.
    async fn toolkit(&self) -> Toolkit {
        Toolkit(Arc::clone(&self.0.toolkit))
    }

    /// What was missing, and was left out.
    async fn warnings(&self) -> &[String] {
        &self.0.warnings
    }
}

fn actions_of(toolkit: &graph::Toolkit) -> Vec<Action> {
    let actions = toolkit.tools_and_actions().actions.into_iter();
    actions
        .map(|(name, node)| Action {
            name: name.to_string(),
            description: node.description.clone(),
        })
        .collect()
}

fn tools(engine: &Engine, toolkit: &graph::Toolkit) -> Vec<Tool> {
    let sets = engine.tools.inventory.toolbox().sets();
    let tool = |(name, node): (&NodeName, &Node)| {
        let called = name.as_str().parse().ok()?;
        let registered = engine.tools.inventory.registered(name).and_then(|tool| {
            let set = sets.iter().find(|set| set.name == tool.set)?;
            Some(Tool::new(&tool, set))
        });
        Some(match registered {
            Some(tool) => tool.called(called),
            None => Tool::unregistered(called, &node.description),
        })
    };
    toolkit.tools_and_actions().tools.into_iter().filter_map(tool).collect()
}
