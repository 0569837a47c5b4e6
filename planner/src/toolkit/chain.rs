//! Typed backward chaining: a chain of tools that read leads from known values to a wanted value.
//!
//! Items of lists are never part of a [`Route`], because a list does not show which of its items is
//! meant.

mod field;
mod naming;
mod search;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use shared::tool::{Effect, ToolDefinition};

use self::field::{Key, Owner, has_caution, inputs_of, outputs_of};
pub use self::{
    field::{Field, Fit, Shape},
    naming::{NamedType, Place, Vocabulary},
    search::{Goal, Input, Route, RouteStep, Source, value_of},
};

/// Maximum number of tools of a graph. Later tools, in the order of names, are in no chain.
const MAX_TOOLS: usize = 4_000;

#[derive(Clone, Debug)]
pub struct ChainTool {
    pub name: String,
    pub inputs: Vec<Field>,
    pub outputs: Vec<Field>,
    /// `true` if the tool only reads and has required parameters, all of them texts or numbers.
    /// Only such tools are in chains.
    pub can_link: bool,
    /// `true` if the description warns against the tool, so other tools are better.
    has_caution: bool,
}

#[derive(Clone, Debug)]
pub struct Given {
    pub value: Value,
    keys: Vec<Key>,
    form: String,
    shape: Shape,
    cost: u32,
}

impl Given {
    pub fn new(value: Value, field: &Field) -> Self {
        let (keys, form) = (field.keys.clone(), field.form.clone());
        Self { value, keys, form, shape: field.shape, cost: 0 }
    }

    pub fn has_type_of(&self, field: &Field) -> bool {
        self.keys.iter().any(|key| key.fit != Fit::Near && field.keys.contains(key))
    }

    #[must_use]
    pub fn with_cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }
}

#[derive(Clone, Debug, Default)]
pub struct ChainGraph {
    tools: Vec<ChainTool>,
    producers: BTreeMap<Key, Vec<(usize, usize)>>,
    consumers: BTreeMap<Key, Vec<(usize, usize)>>,
}

impl ChainGraph {
    pub fn new(tools: impl IntoIterator<Item = (String, Arc<ToolDefinition>)>) -> Self {
        let mut tools: Vec<(String, Arc<ToolDefinition>)> = tools.into_iter().collect();
        tools.sort_by(|a, b| a.0.cmp(&b.0));
        tools.truncate(MAX_TOOLS);
        let owners: Vec<Owner> =
            tools.iter().map(|(_, tool)| Owner::of_tool(tool.name.as_str())).collect();
        let subjects: BTreeSet<String> =
            owners.iter().filter_map(|owner| owner.subject().map(str::to_owned)).collect();
        let mut read: Vec<ChainTool> = tools
            .into_iter()
            .zip(&owners)
            .map(|((name, tool), owner)| ChainTool::read(name, &tool, owner, &subjects))
            .collect();
        drop_ambiguous_descriptions(&mut read);
        let (mut producers, mut consumers) = (BTreeMap::new(), BTreeMap::new());
        for (index, tool) in read.iter().enumerate().filter(|(_, tool)| tool.can_link) {
            index_fields(&mut producers, index, &tool.outputs, |_| true);
            index_fields(&mut consumers, index, &tool.inputs, |field| field.is_required);
        }
        Self { tools: read, producers, consumers }
    }

    pub fn tools(&self) -> &[ChainTool] {
        &self.tools
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.tools.binary_search_by(|tool| tool.name.as_str().cmp(name)).ok()
    }
}

impl ChainTool {
    fn read(
        name: String,
        tool: &ToolDefinition,
        owner: &Owner,
        subjects: &BTreeSet<String>,
    ) -> Self {
        let (inputs, has_all) = inputs_of(&tool.input_schema, owner, subjects);
        let output = tool.output_schema.as_ref();
        let outputs = output.map(|schema| outputs_of(schema, owner, subjects)).unwrap_or_default();
        // A tool without required parameters cannot link, because it shows nothing about the values
        // in the query.
        let needs_value = inputs.iter().any(|input| input.is_required);
        let can_link = tool.effect == Effect::Read && has_all && needs_value;
        let has_caution = has_caution(&tool.description);
        Self { name, inputs, outputs, can_link, has_caution }
    }

    pub fn input(&self, parameter: &str) -> Option<&Field> {
        self.inputs.iter().find(|input| input.path == parameter)
    }

    /// Returns whether an output only repeats a parameter, which means that it is not another
    /// source of a value.
    fn repeats_input(&self, output: usize) -> bool {
        let output = &self.outputs[output];
        self.inputs.iter().any(|input| input.is_required && input.is_same_type(output))
    }

    pub fn output(&self, path: &str) -> Option<&Field> {
        self.outputs.iter().find(|output| output.path == path)
    }
}

fn index_fields(
    index: &mut BTreeMap<Key, Vec<(usize, usize)>>,
    tool: usize,
    fields: &[Field],
    counts: impl Fn(&Field) -> bool,
) {
    for (position, field) in fields.iter().enumerate().filter(|(_, field)| counts(field)) {
        for key in &field.keys {
            index.entry(key.clone()).or_default().push((tool, position));
        }
    }
}

/// Drops descriptions that two parameters or two outputs of one tool share, because such a
/// description cannot distinguish them.
fn drop_ambiguous_descriptions(tools: &mut [ChainTool]) {
    let mut ambiguous: BTreeSet<Key> = BTreeSet::new();
    for fields in tools.iter().flat_map(|tool| [&tool.inputs, &tool.outputs]) {
        let mut seen: BTreeSet<&Key> = BTreeSet::new();
        for key in fields.iter().flat_map(|field| &field.keys) {
            if key.fit == Fit::Described && !seen.insert(key) {
                ambiguous.insert(key.clone());
            }
        }
    }
    for tool in tools {
        for field in tool.inputs.iter_mut().chain(&mut tool.outputs) {
            field.keys.retain(|key| !ambiguous.contains(key));
        }
    }
}
