//! The tools of this process by set, and which of them are available.
//!
//! A set is registered immediately, and its tools arrive when its source has connected. Until then,
//! a name may still change its meaning, so callers wait with [`Toolbox::wait_for_names`] first. A
//! set whose source has failed connects again when a call needs a tool that the set lacks.
//!
//! Plans store qualified names (`set.name`), which always mean the same tool. If that tool is
//! missing, [`Toolbox::find_planned`] returns no other tool of a similar name.

mod costly_tools;
mod listing;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak},
    time::Duration,
};

use serde_json::Value;
use shared::{
    id::{ToolName, ToolSetName},
    schema::Schema,
    tool::{Effect, NameOrigin, ToolDefinition, ToolNames, set_prefix},
};
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;

pub use self::listing::Listing;
use self::{costly_tools::remove_costly_tools, listing::ListedTools};
use super::{tool::Tool, tool_names, usage::Meter};

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
    /// The source has not started, because nothing has needed its tools. [`Toolbox::has_all`] and
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
    logged_patterns: Arc<[String]>,
}

/// The result of a look-up by name.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug)]
pub enum ToolLookup {
    /// A tool that can be called.
    Tool(ReadyTool),
    /// A tool of an inactive set.
    Inactive(ReadyTool),
    /// The name may belong to a set that is connecting or has not started.
    Connecting,
    /// The name may belong to a set whose connection failed.
    Failed {
        set: ToolSetName,
        /// The reason, and what to do.
        error: String,
    },
    Unknown,
}

/// The tools of this process. All clones share one state.
#[derive(Clone)]
pub struct Toolbox(Arc<ToolboxState>);

/// A reference to the toolbox, for tools inside the toolbox. It does not keep the toolbox alive.
#[derive(Clone)]
pub struct WeakToolbox(Weak<ToolboxState>);

struct ToolboxState {
    inventory: RwLock<Inventory>,
    changes: watch::Sender<()>,
    meter: Meter,
    /// Connects failed sets again.
    reconnect: OnceLock<Reconnect>,
    start: OnceLock<StartSource>,
}

type StartSource = Box<dyn Fn(&ToolSetName) + Send + Sync>;

/// Connects a failed set again. Returns `false` if the set has not failed, or its next attempt is
/// not due yet.
type Reconnect = Box<dyn Fn(&ToolSetName) -> bool + Send + Sync>;

#[derive(Debug, Default)]
struct Inventory {
    sets: Vec<ToolSet>,
    /// Tools that belong to no set. Only plans that this program writes name them.
    internal: BTreeMap<ToolName, ReadyTool>,
    /// Failed sets that are connecting again. Only calls that need their tools wait for them.
    reconnecting: BTreeSet<ToolSetName>,
    /// The positions of set and tool by name. Built at the first look-up.
    names: OnceLock<ToolNames<(usize, usize)>>,
    revision: u64,
    listed: OnceLock<Arc<ListedTools>>,
}

/// The error for a second set of the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a toolset called `{0}` exists already")]
pub struct SetExists(pub ToolSetName);

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
    fn unlogged_patterns(&self, mut patterns: Vec<String>) -> Vec<String> {
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
}

impl ToolSet {
    /// Stores the tools of the source, and the reasons for tools that are left out.
    fn set_tools(&mut self, status: SetStatus, tools: Vec<ReadyTool>, left_out: Vec<String>) {
        self.status = status;
        self.tools = tools;
        self.left_out = left_out;
        tool_names::remove_invalid_names(self);
    }

    fn without_tools(&self) -> Self {
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

impl Default for Toolbox {
    fn default() -> Self {
        let shared = ToolboxState {
            inventory: RwLock::default(),
            changes: watch::Sender::new(()),
            meter: Meter::default(),
            reconnect: OnceLock::new(),
            start: OnceLock::new(),
        };
        Self(Arc::new(shared))
    }
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Toolbox {
    /// Makes a toolbox with `sets`, in this order.
    ///
    /// # Panics
    ///
    /// If two sets have the same name.
    pub fn new(sets: impl IntoIterator<Item = ToolSet>) -> Self {
        let toolbox = Self::default();
        for set in sets {
            toolbox.register_set(set).expect("sets have different names");
        }
        toolbox
    }

    /// Adds a set at the end.
    pub fn register_set(&self, set: ToolSet) -> Result<(), SetExists> {
        let mut set = set.without_costly_tools();
        tool_names::remove_invalid_names(&mut set);
        self.change_sets(|sets| {
            if sets.iter().any(|other| other.name == set.name) {
                return Err(SetExists(set.name));
            }
            sets.push(set);
            Ok(())
        })
    }

    /// Stores the state and the tools of a set.
    pub fn update_set(&self, name: &ToolSetName, status: SetStatus, tools: Vec<ReadyTool>) {
        let found = SourceTools { status, tools, left_out: Vec::new() };
        self.update_set_unless(&CancellationToken::new(), name, found);
    }

    /// Stores the state and the tools of a set, unless `stop` is cancelled. After the cancellation,
    /// the name may belong to another set.
    pub fn update_set_unless(
        &self,
        stop: &CancellationToken,
        name: &ToolSetName,
        found: SourceTools,
    ) {
        let SourceTools { mut status, mut tools, mut left_out } = found;
        left_out.extend(remove_costly_tools(name, &mut tools));
        if let Some(reason) = left_out.first()
            && tools.is_empty()
            && status == SetStatus::Ready
        {
            status = SetStatus::Failed { error: reason.clone() };
        }
        self.change_sets(|sets| {
            if let Some(set) = sets.iter_mut().find(|set| set.name == *name && !stop.is_cancelled())
            {
                set.set_tools(status, tools, left_out);
            }
        });
    }

    /// Sets the function that connects failed sets again. Later calls have no effect.
    pub fn set_reconnect(&self, reconnect: impl Fn(&ToolSetName) -> bool + Send + Sync + 'static) {
        let _ = self.0.reconnect.set(Box::new(reconnect));
    }

    /// Sets the function that starts the source of an idle set. Later calls have no effect.
    pub fn set_start(&self, start: impl Fn(&ToolSetName) + Send + Sync + 'static) {
        let _ = self.0.start.set(Box::new(start));
    }

    /// Starts the idle sets that are needed. Returns `true` if a set starts.
    pub fn start_sets(&self, is_needed: impl Fn(&ToolSet) -> bool) -> bool {
        let must_start = |set: &ToolSet| set.status == SetStatus::Idle && is_needed(set);
        if !self.lock_inventory().sets.iter().any(must_start) {
            return false;
        }
        let names: Vec<ToolSetName> = self.change_sets(|sets| {
            let started = sets.iter_mut().filter(|set| must_start(set));
            let started = started.map(|set| {
                set.status = SetStatus::Connecting;
                set.name.clone()
            });
            started.collect()
        });
        for name in &names {
            if let Some(start) = self.0.start.get() {
                start(name);
            }
        }
        !names.is_empty()
    }

    /// Starts the idle sets that could have a tool with one of these names: the named set, or all
    /// sets if the name has no set.
    fn start_sets_of<'a>(&self, names: impl IntoIterator<Item = &'a ToolName>) {
        for name in names {
            let inventory = self.lock_inventory();
            let is_known = matches!(
                inventory.name_index().find(name.as_str()),
                Some((NameOrigin::Qualified, _))
            );
            let named_set = inventory.find_named_set(name).map(|set| set.name.clone());
            drop(inventory);
            if !is_known {
                self.start_sets(|set| named_set.as_ref().is_none_or(|name| *name == set.name));
            }
        }
    }

    /// Connects a failed set again, unless its next attempt is not due yet. Returns `true` if the
    /// set starts to connect. The set keeps its tools while it connects.
    pub fn reconnect_set(&self, name: &ToolSetName) -> bool {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        let is_failed = |set: &ToolSet| matches!(set.status, SetStatus::Failed { .. });
        let set = inventory.sets.iter_mut().find(|set| set.name == *name && is_failed(set));
        let Some(set) = set else { return false };
        // Keeps the lock until the state is `Connecting`, because the result must not arrive before
        // that state.
        if !self.0.reconnect.get().is_some_and(|reconnect| reconnect(name)) {
            return false;
        }
        set.status = SetStatus::Connecting;
        inventory.reconnecting.insert(name.clone());
        inventory.revision += 1;
        drop(inventory);
        self.0.changes.send_replace(());
        true
    }

    /// Connects every failed set again.
    pub fn reconnect_all(&self) {
        let failed: Vec<ToolSetName> = {
            let inventory = self.lock_inventory();
            let is_failed = |set: &&ToolSet| matches!(set.status, SetStatus::Failed { .. });
            inventory.sets.iter().filter(is_failed).map(|set| set.name.clone()).collect()
        };
        for name in failed {
            self.reconnect_set(&name);
        }
    }

    /// Replaces the set of the same name, or adds the set at the end.
    pub fn put_set(&self, set: ToolSet) {
        let mut set = set.without_costly_tools();
        tool_names::remove_invalid_names(&mut set);
        // Forgets a reconnect of the old set, because the new set has not been connected before.
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        inventory.reconnecting.remove(&set.name);
        drop(inventory);
        self.change_sets(|sets| match sets.iter_mut().find(|known| known.name == set.name) {
            Some(there) => *there = set,
            None => sets.push(set),
        });
    }

    /// Adds a tool to an existing set. The cost does not grow with the number of tools, because
    /// thousands may be registered one by one.
    ///
    /// The caller must have checked the tool's schemas.
    pub fn add_tool(&self, name: &ToolSetName, tool: ReadyTool) {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        inventory.add_tool(name, tool);
        drop(inventory);
        self.0.changes.send_replace(());
    }

    /// Removes a set. Returns `false` if no set has the name.
    pub fn remove_set(&self, name: &ToolSetName) -> bool {
        self.change_sets(|sets| {
            let before = sets.len();
            sets.retain(|set| set.name != *name);
            sets.len() < before
        })
    }

    /// Activates (`true`) or deactivates (`false`) sets. Ignores unknown names.
    pub fn switch_sets(&self, switches: &BTreeMap<ToolSetName, bool>) {
        self.change_sets(|sets| {
            for set in sets {
                set.is_active = switches.get(&set.name).copied().unwrap_or(set.is_active);
            }
        });
    }

    /// Sorts the sets by their position in `names`. Other sets come first.
    pub fn sort_sets(&self, names: &[ToolSetName]) {
        self.change_sets(|sets| {
            sets.sort_by_key(|set| names.iter().position(|other| *other == set.name));
        });
    }

    pub fn sets(&self) -> Vec<ToolSet> {
        self.lock_inventory().sets.clone()
    }

    pub fn set_names(&self) -> BTreeSet<ToolSetName> {
        self.lock_inventory().sets.iter().map(|set| set.name.clone()).collect()
    }

    pub fn revision(&self) -> u64 {
        self.lock_inventory().revision
    }

    pub fn set(&self, name: &ToolSetName) -> Option<ToolSet> {
        let inventory = self.lock_inventory();
        let set = inventory.sets.iter().find(|set| set.name == *name)?;
        Some(set.without_tools())
    }

    pub fn set_with_tools(&self, name: &ToolSetName) -> Option<ToolSet> {
        self.lock_inventory().sets.iter().find(|set| set.name == *name).cloned()
    }

    /// Returns the tools of a set. An unknown set has none.
    pub fn tools(&self, name: &ToolSetName) -> Vec<ReadyTool> {
        let inventory = self.lock_inventory();
        let set = inventory.sets.iter().find(|set| set.name == *name);
        set.map(|set| set.tools.clone()).unwrap_or_default()
    }

    /// Returns `true` if a connecting set may change the meaning of a name. A set that has failed
    /// before cannot take a name from another set.
    pub fn may_change(&self, name: &ToolName) -> bool {
        let inventory = self.lock_inventory();
        let rivals = match inventory.name_index().find(name.as_str()) {
            Some((NameOrigin::Qualified, _)) => return false,
            // Checks only this set, because a name with the prefix of a set belongs to that set.
            Some((_, (set, _))) if set_prefix(name.as_str()) == Some(inventory.set_name(set)) => {
                return inventory.sets[set].status == SetStatus::Connecting;
            }
            Some((NameOrigin::Own, (set, _))) => &inventory.sets[..set],
            Some((NameOrigin::Short, _)) => inventory.sets.as_slice(),
            None => return matches!(inventory.explain_missing(name), ToolLookup::Connecting),
        };
        rivals.iter().any(|rival| inventory.is_first_connecting(rival))
    }

    /// Finds a tool by `set.name` or by the name in the earliest set that has it. The set may be
    /// inactive.
    pub fn find(&self, name: &ToolName) -> ToolLookup {
        let inventory = self.lock_inventory();
        inventory.to_lookup(name, inventory.name_index().get(name.as_str()))
    }

    /// Adds tools that belong to no set, for plans that this program writes. They are not listed,
    /// and no draft or direct call can name them.
    pub fn add_internal_tools(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        for tool in tools.into_iter().map(ReadyTool::new) {
            inventory.internal.insert(tool.definition().qualified_name(), tool);
        }
        drop(inventory);
        self.0.changes.send_replace(());
    }

    /// Returns a tool that was added with [`add_internal_tools`](Self::add_internal_tools).
    pub fn find_internal_tool(&self, name: &ToolName) -> Option<ReadyTool> {
        self.lock_inventory().internal.get(name).cloned()
    }

    pub fn downgrade(&self) -> WeakToolbox {
        WeakToolbox(Arc::downgrade(&self.0))
    }

    /// Finds a tool of a plan by its qualified name. No other tool is ever called instead.
    pub fn find_planned(&self, name: &ToolName) -> ToolLookup {
        let inventory = self.lock_inventory();
        inventory.to_lookup(name, inventory.find_qualified(name))
    }

    /// Finds a tool of a plan by its qualified name, and returns its present effect.
    pub fn planned_effect(&self, name: &ToolName) -> Option<Effect> {
        let inventory = self.lock_inventory();
        let (set, tool) = inventory.find_qualified(name)?;
        Some(inventory.sets[set].tools[tool].definition().effect)
    }

    /// Finds a tool by its qualified name or the name from its source, not by a short name. The set
    /// may be inactive.
    pub fn find_own(&self, name: &ToolName) -> Option<ReadyTool> {
        let inventory = self.lock_inventory();
        match inventory.name_index().find(name.as_str())? {
            (NameOrigin::Qualified | NameOrigin::Own, (set, tool)) => {
                Some(inventory.sets[set].tools[tool].clone())
            }
            (NameOrigin::Short, _) => None,
        }
    }

    /// Returns the name of a tool as people and models read it: see [`ToolNames::display_name`].
    pub fn display_name(&self, tool: &ToolDefinition) -> ToolName {
        self.lock_inventory().name_index().display_name(tool)
    }

    /// Returns the name that people and models read instead of a qualified name. An unknown name is
    /// returned unchanged.
    pub fn display_name_of(&self, name: &ToolName) -> ToolName {
        let inventory = self.lock_inventory();
        match inventory.find_qualified(name) {
            Some((set, tool)) => {
                inventory.name_index().display_name(inventory.sets[set].tools[tool].definition())
            }
            None => name.clone(),
        }
    }

    /// Returns `true` if all tools of a plan exist, active or not. Starts the idle sets of missing
    /// tools, because a worker waits for changes of the toolbox until it has them.
    pub fn has_all<'a>(&self, names: impl IntoIterator<Item = &'a ToolName>) -> bool {
        let inventory = self.lock_inventory();
        let lacks = |tool: &&ToolName| {
            !inventory.internal.contains_key(*tool) && inventory.find_qualified(tool).is_none()
        };
        let missing: Vec<&ToolName> = names.into_iter().filter(lacks).collect();
        drop(inventory);
        self.start_sets_of(missing.iter().copied());
        missing.is_empty()
    }

    pub fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Subscribes to changes of the sets.
    pub fn subscribe_changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// Starts all idle sets. Waits at most `timeout` until no set is connecting for the first time.
    pub async fn wait_for_sets(&self, timeout: Duration) {
        self.wait_for_started_sets(timeout, |_| true).await;
    }

    /// Starts the idle sets that are needed, and leaves others idle. Waits at most `timeout` until
    /// no set is connecting for the first time.
    pub async fn wait_for_started_sets(
        &self,
        timeout: Duration,
        is_needed: impl Fn(&ToolSet) -> bool,
    ) {
        let is_connected = || {
            self.start_sets(&is_needed);
            !self.has_first_connecting()
        };
        self.wait_until(timeout, is_connected).await;
    }

    /// Waits at most `timeout` until a set is not connecting, and starts it if it is idle. Returns
    /// its state, or `None` for an unknown set.
    pub async fn wait_for_set(&self, name: &ToolSetName, timeout: Duration) -> Option<SetStatus> {
        let status = || {
            self.start_sets(|set| set.name == *name);
            self.set(name).map(|set| set.status)
        };
        self.wait_until(timeout, || status() != Some(SetStatus::Connecting)).await;
        status()
    }

    /// Starts the idle sets that could have these names. Waits at most `timeout` until no
    /// connecting set can change the meaning of these names.
    pub async fn wait_for_names(&self, names: &[ToolName], timeout: Duration) {
        let are_final = || {
            self.start_sets_of(names);
            !names.iter().any(|name| self.may_change(name))
        };
        self.wait_until(timeout, are_final).await;
    }

    /// Waits at most `timeout` until a condition on the sets holds.
    async fn wait_until(&self, timeout: Duration, holds: impl Fn() -> bool) {
        let mut changes = self.subscribe_changes();
        let wait = async {
            loop {
                changes.mark_unchanged();
                if holds() || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = time::timeout(timeout, wait).await;
    }

    fn has_first_connecting(&self) -> bool {
        let inventory = self.lock_inventory();
        inventory.sets.iter().any(|set| inventory.is_first_connecting(set))
    }

    /// Locks the inventory. No caller holds the lock across an await.
    fn lock_inventory(&self) -> RwLockReadGuard<'_, Inventory> {
        // Ignores a poisoned lock, because no change can panic half-way.
        self.0.inventory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_sets<T>(&self, change: impl FnOnce(&mut Vec<ToolSet>) -> T) -> T {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        let Inventory { sets, reconnecting, .. } = &mut *inventory;
        let result = change(sets);
        reconnecting.retain(|name| {
            sets.iter().any(|set| set.name == *name && set.status != SetStatus::Ready)
        });
        inventory.names = OnceLock::new();
        inventory.listed = OnceLock::new();
        inventory.revision += 1;
        drop(inventory);
        self.0.changes.send_replace(());
        result
    }
}

impl WeakToolbox {
    /// Returns the toolbox, unless it was dropped.
    pub fn upgrade(&self) -> Option<Toolbox> {
        self.0.upgrade().map(Toolbox)
    }
}

impl fmt::Debug for WeakToolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakToolbox")
    }
}

impl Inventory {
    fn add_tool(&mut self, name: &ToolSetName, tool: ReadyTool) {
        let Some(index) = self.sets.iter().position(|set| set.name == *name) else { return };
        let tools = &mut self.sets[index].tools;
        if let Some(names) = self.names.get_mut() {
            names.add_tool(tool.definition(), (index, tools.len()));
        }
        tools.push(tool);
        self.revision += 1;
        self.listed = OnceLock::new();
    }

    fn name_index(&self) -> &ToolNames<(usize, usize)> {
        self.names.get_or_init(|| {
            let mut names = ToolNames::for_sets(self.sets.iter().map(|set| set.name.clone()));
            for (index, set) in self.sets.iter().enumerate() {
                for (n, tool) in set.tools.iter().enumerate() {
                    names.add_tool(tool.definition(), (index, n));
                }
            }
            names
        })
    }

    fn find_qualified(&self, name: &ToolName) -> Option<(usize, usize)> {
        match self.name_index().find(name.as_str())? {
            (NameOrigin::Qualified, position) => Some(position),
            _ => None,
        }
    }

    fn to_lookup(&self, name: &ToolName, position: Option<(usize, usize)>) -> ToolLookup {
        let Some((set, tool)) = position else { return self.explain_missing(name) };
        let set = &self.sets[set];
        let tool = set.tools[tool].clone();
        if set.is_active { ToolLookup::Tool(tool) } else { ToolLookup::Inactive(tool) }
    }

    fn set_name(&self, set: usize) -> &str {
        self.sets[set].name.as_str()
    }

    fn is_first_connecting(&self, set: &ToolSet) -> bool {
        set.status == SetStatus::Connecting && !self.reconnecting.contains(&set.name)
    }

    fn listed(&self) -> &Arc<ListedTools> {
        self.listed.get_or_init(|| Arc::new(ListedTools::new(&self.sets, self.name_index())))
    }

    fn find_named_set(&self, name: &ToolName) -> Option<&ToolSet> {
        let prefix = set_prefix(name.as_str());
        self.sets.iter().find(|set| Some(set.name.as_str()) == prefix)
    }

    /// Returns the reason why a name is unknown. Its set may still be connecting.
    fn explain_missing(&self, name: &ToolName) -> ToolLookup {
        let named_set = self.find_named_set(name);
        let suspects = named_set.map_or(self.sets.as_slice(), std::slice::from_ref);
        let may_connect =
            |set: &ToolSet| matches!(set.status, SetStatus::Connecting | SetStatus::Idle);
        if suspects.iter().any(may_connect) {
            return ToolLookup::Connecting;
        }
        let failed = suspects.iter().find_map(|set| match &set.status {
            SetStatus::Failed { error } => {
                Some(ToolLookup::Failed { set: set.name.clone(), error: error.clone() })
            }
            _ => None,
        });
        failed.unwrap_or(ToolLookup::Unknown)
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock_inventory().sets.iter().map(|set| &set.name)).finish()
    }
}

#[cfg(test)]
mod tests;
