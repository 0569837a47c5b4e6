//! Every tool as of one moment, in one list.

use std::sync::Arc;

use shared::tool::{ToolDefinition, ToolNames};

use super::{ToolSet, Toolbox};

/// Every tool as of one moment, in the order of the sets. Until a set changes, the list of
/// definitions is the very same one, so that whoever keeps it sees at once that nothing did.
#[derive(Clone, Debug)]
pub struct Listing(Arc<Listed>);

/// The tools of an inventory, and which set each belongs to.
#[derive(Debug)]
pub(super) struct Listed {
    definitions: Arc<[Arc<ToolDefinition>]>,
    /// The sets, without their tools.
    sets: Vec<ToolSet>,
    /// The set of each tool, and whether its own name means it.
    places: Vec<(usize, bool)>,
}

impl Toolbox {
    /// Returns every tool as of now.
    pub fn listing(&self) -> Listing {
        Listing(Arc::clone(self.inventory().listed()))
    }
}

impl Listing {
    /// Returns the definitions of the tools.
    pub fn definitions(&self) -> &Arc<[Arc<ToolDefinition>]> {
        &self.0.definitions
    }

    /// Returns the set of a tool, by the tool's place, without its tools.
    pub fn set(&self, at: usize) -> &ToolSet {
        &self.0.sets[self.0.places[at].0]
    }

    /// Returns the shortest name that means the tool at a place: its own, unless an earlier set
    /// has a tool of that name.
    pub fn name(&self, at: usize) -> String {
        let tool = &self.0.definitions[at];
        if self.0.places[at].1 { tool.name.to_string() } else { tool.qualified_name().to_string() }
    }
}

impl Listed {
    pub(super) fn new(sets: &[ToolSet], names: &ToolNames<(usize, usize)>) -> Self {
        let mut definitions = Vec::new();
        let mut places = Vec::new();
        for (set, it) in sets.iter().enumerate() {
            for (at, tool) in it.tools.iter().enumerate() {
                let definition = Arc::clone(tool.definition());
                let is_plain = names.get(definition.name.as_str()) == Some((set, at));
                definitions.push(definition);
                places.push((set, is_plain));
            }
        }
        let sets = sets.iter().map(ToolSet::bare).collect();
        Self { definitions: definitions.into(), sets, places }
    }
}
