//! The toolkit graph: the same on every node.
//!
//! A node begins with what the files of its configuration say. What was changed since is one
//! record in the store, [apart](Changes) from that. Who changes the graph reads the record, changes
//! it, and writes it only if nobody else was faster; otherwise it begins again with what the other
//! wrote. So nothing is lost, and what a change depends on is what was there when it was made.

mod names;

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use planner::toolkit::{
    Changes, Node, NodeKind, Reach, Toolkit, ToolkitError, Warning, written::Written,
};
use serde_json::Value;
use shared::{
    clock::Timestamp,
    id::{NodeName, ToolName},
    limits,
    store::{Record, RecordKind, StoreError, WriteCondition},
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
        let record = self.store.find_record(RecordKind::Toolkit, RECORD).await?;
        let toolkit = self.kit.take_in(revision, record.as_ref())?;
        Ok(self.visible_part(toolkit))
    }

    /// Returns some actions and tools of the toolkit, and every edge between them. A tool is found
    /// by whatever name means it; unknown names are left out.
    pub async fn toolkit_part(&self, names: &[String]) -> Result<Toolkit, EngineError> {
        let toolkit = self.toolkit().await?;
        self.settled_unless_in(&toolkit, names.iter().map(String::as_str)).await;
        let known = OnceCell::new();
        let own = names.iter().map(|name| {
            let Ok(name) = name.parse::<NodeName>() else { return name.clone() };
            if toolkit.get(name.as_str()).is_some() {
                return name.to_string();
            }
            // There may be many of both.
            let known = known.get_or_init(|| self.meanings(&toolkit));
            known.get(&self.meant(&name)).unwrap_or(&name).to_string()
        });
        let own: Vec<String> = own.collect();
        Ok(toolkit.subgraph(own.iter().map(String::as_str)))
    }

    /// Returns the score of an edge of the toolkit, and 1.0 where there is none. A tool is found by
    /// whatever name means it.
    pub async fn toolkit_score(&self, from: &str, to: &str) -> Result<f64, EngineError> {
        let toolkit = self.toolkit().await?;
        self.settled_unless_in(&toolkit, [to]).await;
        let own = to.parse().map(|it| self.known_as(&toolkit, &it));
        Ok(toolkit.score(from, own.as_ref().map_or(to, |it| it.as_str())))
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
        let tools = action.tools.iter().map(|(tool, _)| tool.as_str());
        self.settled_unless_in(&*self.toolkit().await?, tools).await;
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
        self.settled_unless_in(&*self.toolkit().await?, [name.as_str()]).await;
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
        let tools = || other.nodes().filter(|it| it.1.kind == NodeKind::Tool).map(|it| it.0);
        let names = tools().map(NodeName::as_str);
        self.settled_unless_in(&*self.toolkit().await?, names).await;
        let changed = self.change_toolkit(|graph| {
            let mut known = self.meanings(graph);
            // Also within the file a tool may have two names.
            for name in tools() {
                known.entry(self.meant(name)).or_insert_with(|| name.clone());
            }
            let own = |name: &NodeName| match graph.get(name.as_str()) {
                None => known.get(&self.meant(name)).unwrap_or(name).clone(),
                Some(_) => name.clone(),
            };
            graph.update(&other.with_tools_called(own))
        });
        let ((), toolkit) = changed.await?;
        let change = ToolkitChange { toolkit, warnings };
        Ok(self.with_misspelt(change, tools()).await)
    }

    /// Removes an action or a tool from the graph, with the tools that only the action calls, and
    /// says whether there was one. Which tools there are is another matter.
    pub async fn remove_from_toolkit(
        &self,
        name: &str,
        kind: NodeKind,
    ) -> Result<bool, EngineError> {
        if kind == NodeKind::Tool {
            self.settled_unless_in(&*self.toolkit().await?, [name]).await;
        }
        let changed = self.change_toolkit(|graph| {
            let own = match name.parse() {
                Ok(name) if kind == NodeKind::Tool => self.known_as(graph, &name).to_string(),
                _ => name.to_owned(),
            };
            if graph.get(&own).is_none_or(|it| it.kind != kind) {
                return Ok(false);
            }
            graph.remove(&own);
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
        self.settled_unless_in(&*self.toolkit().await?, [to.as_str()]).await;
        let changed = self.change_toolkit(|graph| {
            let to = self.known_as(graph, to);
            graph.set_score(from, &to, score)
        });
        Ok(changed.await?.0)
    }

    /// Changes the graph, and keeps the change. It may be tried several times, each time with the
    /// graph as it then is.
    async fn change_toolkit<T>(
        &self,
        change: impl Fn(&mut Toolkit) -> Result<T, ToolkitError>,
    ) -> Result<(T, Arc<Toolkit>), EngineError> {
        let _changing = self.kit.changing.lock().await;
        for _ in 0..TRIES {
            let record = self.store.find_record(RecordKind::Toolkit, RECORD).await?;
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
        let (unless, at) = WriteCondition::unless_changed(before, self.clock.now());
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
                            || it.qualified_name().as_str() == name.as_str()
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
