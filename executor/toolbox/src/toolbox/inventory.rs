//! The sets of a toolbox, and their tools by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use shared::{
    id::{ToolName, ToolSetName},
    tool::{NameOrigin, ToolNames, set_prefix},
};

use super::{ReadyTool, SetStatus, ToolSet, listing::ListedTools};

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

#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) sets: Vec<ToolSet>,
    /// Tools that belong to no set. Only plans that this program writes name them.
    pub(super) internal: BTreeMap<ToolName, ReadyTool>,
    /// Failed sets that are connecting again. Only calls that need their tools wait for them.
    pub(super) reconnecting: BTreeSet<ToolSetName>,
    /// The positions of set and tool by name. Built at the first look-up.
    pub(super) names: OnceLock<ToolNames<(usize, usize)>>,
    pub(super) revision: u64,
    pub(super) listed: OnceLock<Arc<ListedTools>>,
}

impl Inventory {
    pub(super) fn add_tool(&mut self, name: &ToolSetName, tool: ReadyTool) {
        let Some(index) = self.sets.iter().position(|set| set.name == *name) else { return };
        let tools = &mut self.sets[index].tools;
        if let Some(names) = self.names.get_mut() {
            names.add_tool(tool.definition(), (index, tools.len()));
        }
        tools.push(tool);
        self.revision += 1;
        self.listed = OnceLock::new();
    }

    pub(super) fn name_index(&self) -> &ToolNames<(usize, usize)> {
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

    pub(super) fn find_qualified(&self, name: &ToolName) -> Option<(usize, usize)> {
        match self.name_index().find(name.as_str())? {
            (NameOrigin::Qualified, position) => Some(position),
            _ => None,
        }
    }

    pub(super) fn to_lookup(
        &self,
        name: &ToolName,
        position: Option<(usize, usize)>,
    ) -> ToolLookup {
        let Some((set, tool)) = position else { return self.explain_missing(name) };
        let set = &self.sets[set];
        let tool = set.tools[tool].clone();
        if set.is_active { ToolLookup::Tool(tool) } else { ToolLookup::Inactive(tool) }
    }

    pub(super) fn set_name(&self, set: usize) -> &str {
        self.sets[set].name.as_str()
    }

    pub(super) fn is_first_connecting(&self, set: &ToolSet) -> bool {
        set.status == SetStatus::Connecting && !self.reconnecting.contains(&set.name)
    }

    pub(super) fn listed(&self) -> &Arc<ListedTools> {
        self.listed.get_or_init(|| Arc::new(ListedTools::new(&self.sets, self.name_index())))
    }

    pub(super) fn find_named_set(&self, name: &ToolName) -> Option<&ToolSet> {
        let prefix = set_prefix(name.as_str());
        self.sets.iter().find(|set| Some(set.name.as_str()) == prefix)
    }

    /// Returns the reason why a name is unknown. Its set may still be connecting.
    pub(super) fn explain_missing(&self, name: &ToolName) -> ToolLookup {
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
