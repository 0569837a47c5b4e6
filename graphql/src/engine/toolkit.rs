//! The toolkit graph: the same on every node.
//!
//! A node begins with what the files of its configuration say. What was changed since is one
//! record in the store, [apart](Changes) from that. Who changes the graph reads the record, changes
//! it, and writes it only if nobody else was faster; otherwise it begins again with what the other
//! wrote. So nothing is lost, and what a change depends on is what was there when it was made.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use executor::toolbox::{Found, ReadyTool};
use planner::{
    nearest::did_you_mean,
    toolkit::{Changes, Node, NodeKind, Reach, Toolkit, ToolkitError, Warning, written::Written},
};
use serde_json::Value;
use shared::{
    clock::Timestamp,
    id::{NodeName, ToolName},
    limits,
    store::{Record, RecordKind, StoreError, Unless},
    tool::ToolDefinition,
};
use tokio::sync::Mutex as AsyncMutex;

use super::{Engine, EngineError};

/// The record that has what was changed.
const RECORD: &str = "graph";
/// How often a change is tried where other nodes are faster: of all that try at once, one is done.
const TRIES: usize = 64;
/// How far from the actions of a request planning looks.
const HOPS: usize = 1;

/// The toolkit as this process knows it.
#[derive(Debug, Default)]
pub(super) struct Kit {
    /// What the configuration says.
    configured: Toolkit,
    known: Mutex<Known>,
    /// Held while something is changed: who is in one process need not race.
    changing: AsyncMutex<()>,
}

/// What was last read.
#[derive(Debug, Default)]
struct Known {
    revision: Option<u64>,
    at: Option<Timestamp>,
    toolkit: Option<Arc<Toolkit>>,
}

/// An edge that is asked for: the other end, and the score.
pub type Link = (NodeName, f64);

/// An action that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAction {
    /// Its name.
    pub name: NodeName,
    /// What it is for, in words.
    pub description: String,
    /// The actions that may follow it.
    pub next: Vec<Link>,
    /// The actions that it may follow.
    pub before: Vec<Link>,
    /// The tools that it calls.
    pub tools: Vec<Link>,
}

/// A graph that was changed.
#[derive(Clone, Debug)]
pub struct ToolkitChange {
    /// The graph as it is now.
    pub toolkit: Arc<Toolkit>,
    /// What was left out, and why; and what is most probably misspelt.
    pub warnings: Vec<String>,
}

impl Engine {
    /// Returns the same engine with a toolkit that begins with a graph.
    #[must_use]
    pub fn with_toolkit(self, configured: Toolkit) -> Self {
        Self { kit: Arc::new(Kit { configured, ..Kit::default() }), ..self }
    }

    /// Returns the toolkit as it is by now, with the tools that whoever asks may use.
    pub async fn toolkit(&self) -> Result<Arc<Toolkit>, EngineError> {
        // Asked before the record: what changes in between is only read again.
        let revision = self.store.records_revision().await?;
        if let Some(known) = self.kit.known_at(revision) {
            return Ok(self.visible_part(known));
        }
        let record = self.store.record(RecordKind::Toolkit, RECORD).await?;
        let toolkit = self.kit.take_in(revision, record.as_ref())?;
        Ok(self.visible_part(toolkit))
    }

    /// Returns the part of the toolkit that is near some actions.
    pub async fn recommend(
        &self,
        actions: &[String],
        reach: Reach,
    ) -> Result<Toolkit, EngineError> {
        let toolkit = self.toolkit().await?;
        Ok(toolkit.recommend(actions.iter().map(String::as_str), reach))
    }

    /// Returns the tools that are recommended for some actions and for those that may follow them;
    /// nothing where no action is named.
    pub(super) async fn near(
        &self,
        actions: &[String],
    ) -> Result<Option<BTreeSet<ToolName>>, EngineError> {
        if actions.is_empty() {
            return Ok(None);
        }
        let found = self.recommend(actions, Reach { hops: HOPS, ..Reach::default() }).await?;
        let tools = found.tools_and_actions().tools;
        if tools.is_empty() {
            let names = actions.join("`, `");
            let why = format!(
                "the toolkit recommends no tool for `{names}`: `faber toolkit show` lists its actions"
            );
            return Err(EngineError::InvalidArgument(why));
        }
        self.settled().await;
        Ok(Some(tools.into_iter().map(|(name, _)| self.meant(name)).collect()))
    }

    /// Adds an action with its edges.
    pub async fn add_action(&self, action: &NewAction) -> Result<ToolkitChange, EngineError> {
        Self::check_description(&action.description)?;
        let changed = self.change_toolkit(|graph| {
            let NewAction { name, description, next, before, tools } = action;
            let mut warnings = graph.add_action(name, description, next, before)?;
            for (tool, score) in tools {
                let tool = self.known_as(graph, tool);
                let action = [(name.clone(), *score)];
                warnings.extend(graph.add_tool(&tool, &Node::tool(""), &action)?);
            }
            Ok(warnings)
        });
        let change = told(changed.await?);
        Ok(self.with_misspelt(change, action.tools.iter().map(|(tool, _)| tool)).await)
    }

    /// Connects a tool with the actions that call it.
    pub async fn connect_tool(
        &self,
        name: &NodeName,
        actions: &[Link],
    ) -> Result<ToolkitChange, EngineError> {
        let changed = self.change_toolkit(|graph| {
            let tool = self.known_as(graph, name);
            graph.add_tool(&tool, &Node::tool(""), actions)
        });
        let change = told(changed.await?);
        Ok(self.with_misspelt(change, [name]).await)
    }

    /// Takes in a graph as a file has it.
    pub async fn update_toolkit(&self, file: Written) -> Result<ToolkitChange, EngineError> {
        let Written { toolkit: other, warnings } = file;
        for (_, node) in other.nodes() {
            Self::check_description(&node.description)?;
        }
        let ((), toolkit) = self.change_toolkit(|graph| graph.update(&other)).await?;
        let change = ToolkitChange { toolkit, warnings };
        let tools = other.nodes().filter(|(_, node)| node.kind == NodeKind::Tool);
        Ok(self.with_misspelt(change, tools.map(|(name, _)| name)).await)
    }

    /// Adds warnings of tools that nobody has registered and that are called nearly as others are.
    ///
    /// A graph may know of tools that come later, so one that is like no other is no mistake.
    async fn with_misspelt<'a>(
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
        let names: Vec<_> = known.clone().map(|it| it.qualified()).collect();
        let plain = known.map(|it| it.name.as_str());
        let names = plain.chain(names.iter().map(ToolName::as_str));
        for tool in tools.iter().filter(|it| is_unknown(it)) {
            if let Some(help) = did_you_mean(tool.as_str(), names.clone()) {
                change.warnings.push(format!("no tool `{tool}` is registered: {help}"));
            }
        }
        change
    }

    /// Removes an action or a tool from the graph, with the tools that only the action calls, and
    /// says whether there was one. Which tools there are is another matter.
    pub async fn remove_from_toolkit(
        &self,
        name: &str,
        kind: NodeKind,
    ) -> Result<bool, EngineError> {
        let changed = self.change_toolkit(|graph| {
            if graph.get(name).is_none_or(|it| it.kind != kind) {
                return Ok(false);
            }
            graph.remove(name);
            Ok(true)
        });
        Ok(changed.await?.0)
    }

    /// Gives an edge a score, and says whether there is one.
    pub async fn set_score(
        &self,
        from: &NodeName,
        to: &NodeName,
        score: f64,
    ) -> Result<bool, EngineError> {
        let changed = self.change_toolkit(|graph| graph.set_score(from, to, score)).await?;
        Ok(changed.0)
    }

    /// Changes the graph, and keeps the change. It may be tried several times, each time with the
    /// graph as it then is.
    async fn change_toolkit<T>(
        &self,
        change: impl Fn(&mut Toolkit) -> Result<T, ToolkitError>,
    ) -> Result<(T, Arc<Toolkit>), EngineError> {
        let _changing = self.kit.changing.lock().await;
        for _ in 0..TRIES {
            let record = self.store.record(RecordKind::Toolkit, RECORD).await?;
            let mut changes = changes_of(record.as_ref())?;
            let before = changes.applied_to(&self.kit.configured);
            let mut after = before.clone();
            let returned = change(&mut after)?;
            self.check_change(&before, &after)?;
            if after == before {
                return Ok((returned, self.visible_part(Arc::new(after))));
            }
            changes.note(&self.kit.configured, &before, &after);
            if self.keep_changes(record.as_ref(), &changes).await? {
                return Ok((returned, self.visible_part(Arc::new(after))));
            }
        }
        let why = "the toolkit is being changed from too many places at once: try again";
        Err(EngineError::Conflict(why.to_owned()))
    }

    /// Writes what was changed, unless somebody was faster.
    async fn keep_changes(
        &self,
        before: Option<&Record>,
        changes: &Changes,
    ) -> Result<bool, EngineError> {
        let (unless, at) = Unless::since(before, self.clock.now());
        let value =
            serde_json::to_value(changes).map_err(|err| StoreError::corrupt(RECORD, err))?;
        let name = RECORD.to_owned();
        let record = Record { kind: RecordKind::Toolkit, name, value: Arc::new(value), at };
        Ok(self.store.put_record(&record, unless).await?)
    }

    /// Refuses a graph that has become too large, actions that are called as tools are, and tools
    /// that whoever asks may not use.
    fn check_change(&self, before: &Toolkit, after: &Toolkit) -> Result<(), EngineError> {
        after.check_size()?;
        for (name, node) in after.nodes().filter(|(it, _)| before.get(it.as_str()).is_none()) {
            let tool = self.registered(name);
            match node.kind {
                NodeKind::Action => {
                    let is_tool = |it: &Arc<ToolDefinition>| {
                        it.name.as_str() == name.as_str()
                            || it.qualified().as_str() == name.as_str()
                    };
                    if tool.as_ref().is_some_and(is_tool) {
                        let is = NodeKind::Tool;
                        return Err(ToolkitError::Clash { name: name.clone(), is }.into());
                    }
                }
                NodeKind::Tool => {
                    self.grant.check_tools([&self.meant(name)])?;
                }
            }
        }
        Ok(())
    }

    fn check_description(text: &str) -> Result<(), EngineError> {
        if text.len() <= limits::TEXT_BYTES {
            return Ok(());
        }
        let (has, most) = (text.len(), limits::TEXT_BYTES);
        Err(EngineError::LimitExceeded(format!(
            "a description has {has} bytes; the most is {most}"
        )))
    }

    /// Refuses a tool that is called as an action is.
    pub(super) async fn check_no_action(&self, tool: Option<&str>) -> Result<(), EngineError> {
        let Some(name) = tool else { return Ok(()) };
        if self.toolkit().await?.action(name).is_none() {
            return Ok(());
        }
        let name = name.parse::<NodeName>().map_err(invalid)?;
        Err(ToolkitError::Clash { name, is: NodeKind::Action }.into())
    }

    /// Returns the tool that a name in the graph means, if it is registered.
    pub fn registered(&self, name: &NodeName) -> Option<Arc<ToolDefinition>> {
        match self.toolbox.find(&tool_name(name)) {
            Found::Tool(it) | Found::Inactive(it) => Some(Arc::clone(it.definition())),
            Found::Connecting | Found::Failed { .. } | Found::Unknown => None,
        }
    }

    /// Returns the name that always means the tool of a name in the graph.
    pub fn meant(&self, name: &NodeName) -> ToolName {
        self.registered(name).map_or_else(|| tool_name(name), |it| it.qualified())
    }

    /// Returns how the graph calls a tool: as it is written, unless the graph has the same tool by
    /// another name.
    fn known_as(&self, graph: &Toolkit, name: &NodeName) -> NodeName {
        let tools = graph.nodes().filter(|(_, it)| it.kind == NodeKind::Tool);
        if graph.get(name.as_str()).is_some() {
            return name.clone();
        }
        let Some(meant) = self.registered(name).map(|it| it.qualified()) else {
            return name.clone();
        };
        let is_it = |it: &&NodeName| self.registered(it).is_some_and(|it| it.qualified() == meant);
        tools.map(|(it, _)| it).find(is_it).unwrap_or(name).clone()
    }

    /// Returns a graph without the tools that whoever asks may not use.
    fn visible_part(&self, toolkit: Arc<Toolkit>) -> Arc<Toolkit> {
        if self.grant.allows_every_tool() {
            return toolkit;
        }
        let is_allowed = |(name, node): &(&NodeName, &Node)| {
            node.kind == NodeKind::Action || self.grant.allows(&self.meant(name))
        };
        let kept = toolkit.nodes().filter(is_allowed).map(|(name, _)| name.as_str());
        Arc::new(toolkit.subgraph(kept))
    }
}

impl Kit {
    fn known_at(&self, revision: u64) -> Option<Arc<Toolkit>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.revision == Some(revision) { known.toolkit.clone() } else { None }
    }

    /// Takes note of what a record says, which was read after this revision.
    fn take_in(&self, revision: u64, record: Option<&Record>) -> Result<Arc<Toolkit>, StoreError> {
        let at = record.map(|it| it.at);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let toolkit = match &known.toolkit {
            Some(toolkit) if known.at == at => Arc::clone(toolkit),
            _ => Arc::new(changes_of(record)?.applied_to(&self.configured)),
        };
        *known = Known { revision: Some(revision), at, toolkit: Some(Arc::clone(&toolkit)) };
        Ok(toolkit)
    }
}

fn changes_of(record: Option<&Record>) -> Result<Changes, StoreError> {
    let Some(record) = record else { return Ok(Changes::default()) };
    let value: &Value = &record.value;
    serde_json::from_value(value.clone()).map_err(|err| StoreError::corrupt("the toolkit", err))
}

fn told((warnings, toolkit): (Vec<Warning>, Arc<Toolkit>)) -> ToolkitChange {
    ToolkitChange { toolkit, warnings: warnings.iter().map(ToString::to_string).collect() }
}

/// Every name in the graph could be a tool's.
fn tool_name(name: &NodeName) -> ToolName {
    name.as_str().parse().expect("both kinds of names have the same rule")
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn invalid(err: impl ToString) -> EngineError {
    EngineError::InvalidArgument(err.to_string())
}

impl From<ToolkitError> for EngineError {
    fn from(err: ToolkitError) -> Self {
        let message = err.to_string();
        match err {
            ToolkitError::Clash { .. } => Self::Conflict(message),
            ToolkitError::Score { .. } => Self::InvalidArgument(message),
            ToolkitError::TooMany { .. } => Self::LimitExceeded(message),
        }
    }
}
