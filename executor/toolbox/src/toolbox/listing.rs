//! A list of all tools.

use std::sync::Arc;

use shared::tool::{ToolDefinition, ToolNames};

use super::{ToolSet, Toolbox};

/// All tools at one point in time, in the order of the sets. Until a set changes, all listings
/// share one list of definitions, so callers detect changes by comparing pointers.
#[derive(Clone, Debug)]
pub struct Listing(Arc<ListedTools>);

#[derive(Debug)]
pub(super) struct ListedTools {
    definitions: Arc<[Arc<ToolDefinition>]>,
    sets: Vec<ToolSet>,
    /// The set of each tool, and `true` if the tool's own name identifies it.
    tool_places: Vec<(usize, bool)>,
}

impl Toolbox {
    /// Returns all tools.
    pub fn listing(&self) -> Listing {
        Listing(Arc::clone(self.lock_inventory().listed()))
    }
}

impl Listing {
    /// Returns the definitions of the tools.
    pub fn definitions(&self) -> &Arc<[Arc<ToolDefinition>]> {
        &self.0.definitions
    }

    /// Returns the set of the tool at a position, without its tools.
    pub fn set(&self, index: usize) -> &ToolSet {
        &self.0.sets[self.0.tool_places[index].0]
    }

    /// Returns the shortest name that means the tool at a position: its own name, unless an earlier
    /// set has a tool of that name.
    pub fn name(&self, index: usize) -> String {
        let tool = &self.0.definitions[index];
        if self.0.tool_places[index].1 {
            tool.name.to_string()
        } else {
            tool.qualified_name().to_string()
        }
    }
}

impl ListedTools {
    pub(super) fn new(sets: &[ToolSet], names: &ToolNames<(usize, usize)>) -> Self {
        let mut definitions = Vec::new();
        let mut tool_places = Vec::new();
        for (set, members) in sets.iter().enumerate() {
            for (index, tool) in members.tools.iter().enumerate() {
                let definition = Arc::clone(tool.definition());
                let is_plain = names.get(definition.name.as_str()) == Some((set, index));
                definitions.push(definition);
                tool_places.push((set, is_plain));
            }
        }
        let sets = sets.iter().map(ToolSet::without_tools).collect();
        Self { definitions: definitions.into(), sets, tool_places }
    }
}
