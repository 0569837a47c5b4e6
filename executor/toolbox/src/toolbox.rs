//! Every tool this process can run, by set, and whether it can be run right now.

mod costly;
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
    tool::{NameOrigin, ToolDefinition, ToolNames, set_prefix},
};
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;

pub use self::listing::Listing;
use self::{costly::leave_out_costly, listing::Listed};
use super::{tool::Tool, tool_names, usage::Meter};

/// A named group of tools from one source.
#[derive(Clone, Debug)]
pub struct ToolSet {
    /// Its name.
    pub name: ToolSetName,
    /// Its purpose, in words.
    pub description: String,
    /// The kind of its source, for people: `mcp`, `local`, `builtin`.
    pub source: String,
    /// Whether it is one of Faber's own sets that get at the machine it runs on, whatever it is
    /// called.
    pub acts_here: bool,
    /// `true` if plans may use it.
    pub is_active: bool,
    /// The state of its source.
    pub status: SetStatus,
    /// Its tools, in the order of their source.
    pub tools: Vec<ReadyTool>,
    /// Why tools are left out that its source has, for people.
    pub left_out: Vec<String>,
}

/// The state of a set's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetStatus {
    /// Not yet: the source is being asked.
    Connecting,
    /// They are.
    Ready,
    /// The source could not be asked.
    Failed {
        /// Why, and what to do.
        error: String,
    },
    /// It is not there, as its condition does not hold.
    Hidden,
}

/// A tool and the schema of its parameters, which is compiled when it is first needed: a source
/// may have thousands of tools of which a plan calls three.
#[derive(Clone, Debug)]
pub struct ReadyTool {
    tool: Arc<dyn Tool>,
    /// Nothing where the source's schema is itself wrong: then the source must judge.
    schema: Arc<OnceLock<Option<Schema>>>,
}

/// The result of a look-up by name.
#[derive(Clone, Debug)]
pub enum Found {
    /// A tool that can be called.
    Tool(ReadyTool),
    /// A tool whose set is switched off.
    Inactive(ReadyTool),
    /// Perhaps a tool: its set, or some set, is not known yet.
    Connecting,
    /// Perhaps a tool: its set could not be asked.
    Failed {
        /// The set.
        set: ToolSetName,
        /// Why, and what to do.
        error: String,
    },
    /// No tool.
    Unknown,
}

/// Every tool this process can run. Clones share one inventory.
#[derive(Clone)]
pub struct Toolbox(Arc<Shared>);

/// A toolbox that something inside it looks into, which must not keep it there.
#[derive(Clone)]
pub struct WeakToolbox(Weak<Shared>);

struct Shared {
    inventory: RwLock<Inventory>,
    changes: watch::Sender<()>,
    meter: Meter,
    /// Wakes sets that have failed.
    waker: OnceLock<Waker>,
}

/// Asks for a set that has failed; returns whether it will be asked for its tools now.
type Waker = Box<dyn Fn(&ToolSetName) -> bool + Send + Sync>;

/// The sets in the order in which they were registered, and an index of names.
#[derive(Debug, Default)]
struct Inventory {
    sets: Vec<ToolSet>,
    /// Tools of no set: only plans that this program writes itself name them.
    own: BTreeMap<ToolName, ReadyTool>,
    /// Sets that have failed before and are asked again: nobody waits for those that does not need
    /// them.
    again: BTreeSet<ToolSetName>,
    /// Set and tool by name. Built with the first look-up.
    names: OnceLock<ToolNames<(usize, usize)>>,
    /// The number of changes.
    revision: u64,
    /// Made when all tools are first asked for.
    listed: OnceLock<Arc<Listed>>,
}

/// A set of this name is registered already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a toolset called `{0}` exists already")]
pub struct SetExists(pub ToolSetName);

impl ReadyTool {
    /// Makes a tool ready.
    pub fn new(tool: Arc<dyn Tool>) -> Self {
        Self { tool, schema: Arc::default() }
    }

    /// Returns what the tool is.
    pub fn definition(&self) -> &Arc<ToolDefinition> {
        self.tool.definition()
    }

    /// Returns the tool.
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// Returns what is wrong with parameters, if anything is.
    pub fn complaint(&self, parameters: &Value) -> Option<String> {
        self.schema.get_or_init(|| self.compile()).as_ref()?.complaint(parameters)
    }

    fn compile(&self) -> Option<Schema> {
        let schema = Schema::new(&self.definition().input_schema);
        if let Err(err) = &schema {
            let name = self.definition().qualified_name();
            tracing::warn!(%name, %err, "the schema of the tool's parameters is wrong");
        }
        schema.ok()
    }
}

impl ToolSet {
    /// Makes an active set whose tools are known.
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
            acts_here: false,
            is_active: true,
            status: SetStatus::Ready,
            tools: tools.into_iter().map(ReadyTool::new).collect(),
            left_out: Vec::new(),
        }
    }
}

impl ToolSet {
    /// Takes over what a source answered, and why some of it is left out.
    fn settle(&mut self, status: SetStatus, tools: Vec<ReadyTool>, left_out: Vec<String>) {
        self.status = status;
        self.tools = tools;
        self.left_out = left_out;
        tool_names::sift(self);
    }

    /// Returns the set without its tools.
    fn bare(&self) -> Self {
        Self {
            name: self.name.clone(),
            description: self.description.clone(),
            source: self.source.clone(),
            acts_here: self.acts_here,
            is_active: self.is_active,
            status: self.status.clone(),
            tools: Vec::new(),
            left_out: self.left_out.clone(),
        }
    }
}

impl Default for Toolbox {
    fn default() -> Self {
        let shared = Shared {
            inventory: RwLock::default(),
            changes: watch::Sender::new(()),
            meter: Meter::default(),
            waker: OnceLock::new(),
        };
        Self(Arc::new(shared))
    }
}

impl Toolbox {
    /// Makes a toolbox of sets.
    ///
    /// # Panics
    ///
    /// If two sets have one name.
    pub fn new(sets: impl IntoIterator<Item = ToolSet>) -> Self {
        let toolbox = Self::default();
        for set in sets {
            toolbox.register(set).expect("sets have different names");
        }
        toolbox
    }

    /// Adds a set behind those that are there.
    pub fn register(&self, set: ToolSet) -> Result<(), SetExists> {
        let mut set = set.without_costly();
        tool_names::sift(&mut set);
        self.change(|sets| {
            if sets.iter().any(|other| other.name == set.name) {
                return Err(SetExists(set.name));
            }
            sets.push(set);
            Ok(())
        })
    }

    /// Records the answer of a set's source.
    pub fn settle(&self, name: &ToolSetName, status: SetStatus, tools: Vec<ReadyTool>) {
        self.settle_unless(&CancellationToken::new(), name, status, tools);
    }

    /// Says what became of asking a set's source, unless `stop` came first: then there may be
    /// another set of the name.
    pub fn settle_unless(
        &self,
        stop: &CancellationToken,
        name: &ToolSetName,
        status: SetStatus,
        mut tools: Vec<ReadyTool>,
    ) {
        let left_out = leave_out_costly(name, &mut tools);
        self.change(|sets| {
            if let Some(set) = sets.iter_mut().find(|set| set.name == *name && !stop.is_cancelled())
            {
                set.settle(status, tools, left_out);
            }
        });
    }

    /// Registers the function that wakes failed sets. Only the first registration counts.
    pub fn on_wanted(&self, waker: impl Fn(&ToolSetName) -> bool + Send + Sync + 'static) {
        let _ = self.0.waker.set(Box::new(waker));
    }

    /// Asks for a set where it has failed, unless that was a moment ago; returns whether it is
    /// connecting now. Its tools stay until it has answered.
    pub fn wake(&self, name: &ToolSetName) -> bool {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        let is_failed = |set: &ToolSet| matches!(set.status, SetStatus::Failed { .. });
        let set = inventory.sets.iter_mut().find(|set| set.name == *name && is_failed(set));
        let Some(set) = set else { return false };
        // Who answers has to wait until the set is said to be connecting.
        if !self.0.waker.get().is_some_and(|wake| wake(name)) {
            return false;
        }
        set.status = SetStatus::Connecting;
        inventory.again.insert(name.clone());
        inventory.revision += 1;
        drop(inventory);
        self.0.changes.send_replace(());
        true
    }

    /// Asks for every set that has failed, as [`wake`](Self::wake) does.
    pub fn wake_all(&self) {
        let failed: Vec<ToolSetName> = {
            let inventory = self.inventory();
            let is_failed = |set: &&ToolSet| matches!(set.status, SetStatus::Failed { .. });
            inventory.sets.iter().filter(is_failed).map(|set| set.name.clone()).collect()
        };
        for name in failed {
            self.wake(&name);
        }
    }

    /// Puts a set in the place of the one of its name, or behind those that are there.
    pub fn put(&self, set: ToolSet) {
        let mut set = set.without_costly();
        tool_names::sift(&mut set);
        // It is another one, which nobody has asked yet.
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        inventory.again.remove(&set.name);
        drop(inventory);
        self.change(|sets| match sets.iter_mut().find(|known| known.name == set.name) {
            Some(there) => *there = set,
            None => sets.push(set),
        });
    }

    /// Adds a tool to a set, if there is the set. What that costs does not grow with the tools that
    /// there are: thousands may be registered one by one.
    ///
    /// The tool's schemas must have been checked.
    pub fn extend(&self, name: &ToolSetName, tool: ReadyTool) {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        inventory.extend(name, tool);
        drop(inventory);
        self.0.changes.send_replace(());
    }

    /// Removes a set; returns whether there was one.
    pub fn remove(&self, name: &ToolSetName) -> bool {
        self.change(|sets| {
            let before = sets.len();
            sets.retain(|set| set.name != *name);
            sets.len() < before
        })
    }

    /// Switches sets on or off; those that are not there are passed over.
    pub fn switch(&self, switches: &BTreeMap<ToolSetName, bool>) {
        self.change(|sets| {
            for set in sets {
                set.is_active = switches.get(&set.name).copied().unwrap_or(set.is_active);
            }
        });
    }

    /// Puts the sets in the order in which `names` has them; the others stay before them.
    pub fn arrange(&self, names: &[ToolSetName]) {
        self.change(|sets| {
            sets.sort_by_key(|set| names.iter().position(|other| *other == set.name));
        });
    }

    /// Returns every set, in the order in which they were registered.
    pub fn sets(&self) -> Vec<ToolSet> {
        self.inventory().sets.clone()
    }

    /// Returns the name of every set.
    pub fn set_names(&self) -> BTreeSet<ToolSetName> {
        self.inventory().sets.iter().map(|set| set.name.clone()).collect()
    }

    /// Returns a number that is another one whenever something has changed.
    pub fn revision(&self) -> u64 {
        self.inventory().revision
    }

    /// Returns a set, if there is one, without its tools: of those there may be thousands.
    pub fn set(&self, name: &ToolSetName) -> Option<ToolSet> {
        let inventory = self.inventory();
        let set = inventory.sets.iter().find(|set| set.name == *name)?;
        Some(set.bare())
    }

    /// Returns a set with its tools, if there is one.
    pub fn whole_set(&self, name: &ToolSetName) -> Option<ToolSet> {
        self.inventory().sets.iter().find(|set| set.name == *name).cloned()
    }

    /// Returns the tools of a set; none where there is no such set.
    pub fn tools(&self, name: &ToolSetName) -> Vec<ReadyTool> {
        let inventory = self.inventory();
        let set = inventory.sets.iter().find(|set| set.name == *name);
        set.map(|set| set.tools.clone()).unwrap_or_default()
    }

    /// Returns whether a name may mean something else once the sets that are connecting are not any
    /// more: one of them may have a better claim to it. One that has failed before has none to what
    /// another set has.
    pub fn may_change(&self, name: &ToolName) -> bool {
        let inventory = self.inventory();
        let rivals = match inventory.names().find(name.as_str()) {
            Some((NameOrigin::Qualified, _)) => return false,
            // Nobody else's name begins with that of a set.
            Some((_, (set, _))) if set_prefix(name.as_str()) == Some(inventory.name_of(set)) => {
                return inventory.sets[set].status == SetStatus::Connecting;
            }
            Some((NameOrigin::Own, (set, _))) => &inventory.sets[..set],
            Some((NameOrigin::Short, _)) => inventory.sets.as_slice(),
            None => return matches!(inventory.missing(name), Found::Connecting),
        };
        rivals.iter().any(|rival| inventory.is_beginning(rival))
    }

    /// Returns what a name means right now: `set.name`, or the plain name of the earliest set
    /// that has it, active or not.
    pub fn find(&self, name: &ToolName) -> Found {
        let inventory = self.inventory();
        inventory.found(name, inventory.names().get(name.as_str()))
    }

    /// Adds tools of no set. No list has them, no draft can name them, and no direct call finds
    /// them: they are for plans that this program writes itself.
    pub fn keep(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        for tool in tools.into_iter().map(ReadyTool::new) {
            inventory.own.insert(tool.definition().qualified_name(), tool);
        }
        drop(inventory);
        self.0.changes.send_replace(());
    }

    /// Returns a tool of no set.
    pub fn own(&self, name: &ToolName) -> Option<ReadyTool> {
        self.inventory().own.get(name).cloned()
    }

    /// Returns the same toolbox for something inside it.
    pub fn downgrade(&self) -> WeakToolbox {
        WeakToolbox(Arc::downgrade(&self.0))
    }

    /// Returns what a name means right now that a plan has. Plans have the names that always mean a
    /// tool, `set.name`: no other tool is ever called in its place.
    pub fn find_planned(&self, name: &ToolName) -> Found {
        let inventory = self.inventory();
        inventory.found(name, inventory.qualified(name))
    }

    /// Returns the tool that has a name by itself, active or not: as `set.name`, or as its source
    /// calls it. What it is only short for is nothing.
    pub fn find_own(&self, name: &ToolName) -> Option<ReadyTool> {
        let inventory = self.inventory();
        match inventory.names().find(name.as_str())? {
            (NameOrigin::Qualified | NameOrigin::Own, (set, tool)) => {
                Some(inventory.sets[set].tools[tool].clone())
            }
            (NameOrigin::Short, _) => None,
        }
    }

    /// Returns the name that people and models are shown of a tool, which means it: see
    /// [`Names::shown`].
    pub fn shown(&self, tool: &ToolDefinition) -> ToolName {
        self.inventory().names().display_name(tool)
    }

    /// Returns the name to be shown of what is kept under a name that always means a tool; of what is
    /// not there any more, that name.
    pub fn shown_of(&self, name: &ToolName) -> ToolName {
        let inventory = self.inventory();
        match inventory.qualified(name) {
            Some((set, tool)) => {
                inventory.names().display_name(inventory.sets[set].tools[tool].definition())
            }
            None => name.clone(),
        }
    }

    /// Returns whether every one of `names`, which a plan has, can be called, or is only switched
    /// off.
    pub fn has_all<'a>(&self, names: impl IntoIterator<Item = &'a ToolName>) -> bool {
        let inventory = self.inventory();
        let has = |tool: &ToolName| {
            inventory.own.contains_key(tool) || inventory.qualified(tool).is_some()
        };
        names.into_iter().all(has)
    }

    /// Returns what counts the calls.
    pub fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Returns a hint that something about the sets has changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// Waits until no set is connecting for the first time any more, at most so long.
    pub async fn settled(&self, most: Duration) {
        self.until(most, || !self.has_beginners()).await;
    }

    /// Waits until a set is not connecting any more, at most so long, and returns its status;
    /// nothing where there is no such set.
    pub async fn settled_set(&self, name: &ToolSetName, most: Duration) -> Option<SetStatus> {
        let status = || self.set(name).map(|set| set.status);
        self.until(most, || status() != Some(SetStatus::Connecting)).await;
        status()
    }

    /// Waits until no set that is connecting can change what these names mean, at most so long.
    pub async fn certain(&self, names: &[ToolName], most: Duration) {
        self.until(most, || !names.iter().any(|name| self.may_change(name))).await;
    }

    /// Waits until something is so that changes with the sets, at most so long. Whoever waited sees
    /// what is there.
    async fn until(&self, most: Duration, is_so: impl Fn() -> bool) {
        let mut changes = self.changes();
        let wait = async {
            loop {
                changes.mark_unchanged();
                if is_so() || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = time::timeout(most, wait).await;
    }

    /// Returns whether a set is connecting that was never asked before.
    fn has_beginners(&self) -> bool {
        let inventory = self.inventory();
        inventory.sets.iter().any(|set| inventory.is_beginning(set))
    }

    /// Opens the inventory. Nobody holds it across a wait.
    fn inventory(&self) -> RwLockReadGuard<'_, Inventory> {
        // Nothing that changes it can panic half-way.
        self.0.inventory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<ToolSet>) -> T) -> T {
        let mut inventory = self.0.inventory.write().unwrap_or_else(PoisonError::into_inner);
        let Inventory { sets, again, .. } = &mut *inventory;
        let result = change(sets);
        again.retain(|name| {
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
    /// Returns the toolbox, if it is still there.
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
    fn extend(&mut self, name: &ToolSetName, tool: ReadyTool) {
        let Some(at) = self.sets.iter().position(|set| set.name == *name) else { return };
        let tools = &mut self.sets[at].tools;
        if let Some(names) = self.names.get_mut() {
            names.add_tool(tool.definition(), (at, tools.len()));
        }
        tools.push(tool);
        self.revision += 1;
        self.listed = OnceLock::new();
    }

    fn names(&self) -> &ToolNames<(usize, usize)> {
        self.names.get_or_init(|| {
            let mut names = ToolNames::for_sets(self.sets.iter().map(|set| set.name.clone()));
            for (at, set) in self.sets.iter().enumerate() {
                for (n, tool) in set.tools.iter().enumerate() {
                    names.add_tool(tool.definition(), (at, n));
                }
            }
            names
        })
    }

    /// Returns where the tool is whose `set.name` a name is.
    fn qualified(&self, name: &ToolName) -> Option<(usize, usize)> {
        match self.names().find(name.as_str())? {
            (NameOrigin::Qualified, at) => Some(at),
            _ => None,
        }
    }

    fn found(&self, name: &ToolName, at: Option<(usize, usize)>) -> Found {
        let Some((set, tool)) = at else { return self.missing(name) };
        let set = &self.sets[set];
        let tool = set.tools[tool].clone();
        if set.is_active { Found::Tool(tool) } else { Found::Inactive(tool) }
    }

    fn name_of(&self, set: usize) -> &str {
        self.sets[set].name.as_str()
    }

    /// Returns whether a set is connecting that was never asked before.
    fn is_beginning(&self, set: &ToolSet) -> bool {
        set.status == SetStatus::Connecting && !self.again.contains(&set.name)
    }

    fn listed(&self) -> &Arc<Listed> {
        self.listed.get_or_init(|| Arc::new(Listed::new(&self.sets, self.names())))
    }

    /// Returns why a name is unknown. Its set may not be known yet.
    fn missing(&self, name: &ToolName) -> Found {
        let prefix = set_prefix(name.as_str());
        let own = self.sets.iter().find(|set| Some(set.name.as_str()) == prefix);
        let suspects = own.map_or(self.sets.as_slice(), std::slice::from_ref);
        if suspects.iter().any(|set| set.status == SetStatus::Connecting) {
            return Found::Connecting;
        }
        let failed = suspects.iter().find_map(|set| match &set.status {
            SetStatus::Failed { error } => {
                Some(Found::Failed { set: set.name.clone(), error: error.clone() })
            }
            _ => None,
        });
        failed.unwrap_or(Found::Unknown)
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inventory().sets.iter().map(|set| &set.name)).finish()
    }
}

#[cfg(test)]
mod tests;
