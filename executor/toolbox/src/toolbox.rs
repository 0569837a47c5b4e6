//! The tools of this process by set, and which of them are available.
//!
//! A set is registered immediately, and its tools arrive when its source has connected. Until then,
//! a name may still change its meaning, so callers wait with [`Toolbox::wait_for_names`] first.

mod costly_tools;
mod inventory;
mod listing;
mod set;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak},
};

use shared::{
    id::{ToolName, ToolSetName},
    tool::{Effect, NameOrigin, ToolDefinition, set_prefix},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::{costly_tools::remove_costly_tools, inventory::Inventory};
pub use self::{
    inventory::ToolLookup,
    listing::Listing,
    set::{ReadyTool, SetStatus, SourceTools, ToolSet},
};
use super::{tool::Tool, tool_names, usage::Meter};

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

/// The error for a second set of the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a toolset called `{0}` exists already")]
pub struct SetExists(pub ToolSetName);

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

    /// Adds a tool to an existing set. The caller must have checked the tool's schemas.
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

    /// Returns the name of a tool as people and models read it. See
    /// [`ToolNames::display_name`](shared::tool::ToolNames::display_name).
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

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock_inventory().sets.iter().map(|set| &set.name)).finish()
    }
}

#[cfg(test)]
mod tests;
