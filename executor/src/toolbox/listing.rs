//! Every tool as of one moment, in one list.

use std::sync::Arc;

use shared::tool::ToolDefinition;

use super::{Inventory, ToolSet, Toolbox};

/// Every tool as of one moment, in the order of the sets. Until a set changes, the list of
/// definitions is the very same one, so that whoever keeps it sees at once that nothing did.
#[derive(Clone, Debug)]
pub struct Listing {
    inventory: Arc<Inventory>,
}

/// The tools of an inventory, and which set each belongs to.
#[derive(Debug)]
pub(super) struct Listed {
    definitions: Arc<[Arc<ToolDefinition>]>,
    sets: Vec<usize>,
}

impl Toolbox {
    /// Returns every tool as of now.
    pub fn listing(&self) -> Listing {
        Listing { inventory: self.inventory() }
    }
}

impl Listing {
    /// Returns the definitions of the tools.
    pub fn definitions(&self) -> &Arc<[Arc<ToolDefinition>]> {
        &self.inventory.listed().definitions
    }

    /// Returns the set of a tool, by its place.
    pub fn set(&self, at: usize) -> &ToolSet {
        &self.inventory.sets[self.inventory.listed().sets[at]]
    }

    /// Returns the shortest name that means the tool at a place: its own, unless an earlier set
    /// has a tool of that name.
    pub fn name(&self, at: usize) -> String {
        let tool = &self.definitions()[at];
        let known = self.inventory.names().get(&tool.name);
        let meant = known.map(|(set, at)| self.inventory.sets[*set].tools[*at].definition());
        if meant.is_some_and(|it| Arc::ptr_eq(it, tool)) {
            tool.name.to_string()
        } else {
            tool.qualified().to_string()
        }
    }
}

impl Listed {
    pub(super) fn new(sets: &[ToolSet]) -> Self {
        let tools = sets.iter().enumerate().flat_map(|(set, it)| {
            it.tools.iter().map(move |tool| (Arc::clone(tool.definition()), set))
        });
        let (definitions, sets): (Vec<_>, _) = tools.unzip();
        Self { definitions: definitions.into(), sets }
    }
}
