//! The tools that a name in a text can mean.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    sync::Arc,
};

use serde_json::Value;
use shared::{id::ToolName, tool::ToolDefinition};

use crate::catalog::Catalog;

/// The parts of a tool that reading a call needs.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownTool {
    /// The registered name, by which the call is reported.
    pub name: ToolName,
    /// The parameters in the order of the schema; empty if nobody knows.
    pub parameters: Vec<Parameter>,
}

/// A parameter of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Set if the value is always a string, so that an unquoted `42` means `"42"`.
    pub is_text: bool,
}

impl KnownTool {
    /// Takes from a definition what reading a call must know.
    pub fn of(definition: &ToolDefinition) -> Self {
        let properties = definition.input_schema.get("properties").and_then(Value::as_object);
        let parameters = properties.into_iter().flatten().map(|(name, schema)| Parameter {
            name: name.clone(),
            is_text: types(schema).is_some_and(|types| types == ["string"]),
        });
        Self { name: definition.qualified_name(), parameters: parameters.collect() }
    }

    /// Returns whether a word given for `parameter` is a string, whatever it looks like.
    pub(super) fn is_text(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|known| known.is_text && known.name == parameter)
    }

    /// Returns whether the tool has that parameter, as far as anybody knows.
    pub(super) fn has(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|known| known.name == parameter)
    }
}

/// Returns the types that a schema names, `null` aside, if it says anything.
pub(super) fn types(schema: &Value) -> Option<Vec<&str>> {
    let mut types = Vec::new();
    match (schema.get("type"), schema.get("anyOf").or_else(|| schema.get("oneOf"))) {
        (Some(Value::String(one)), _) => types.push(one.as_str()),
        (Some(Value::Array(several)), _) => types.extend(several.iter().filter_map(Value::as_str)),
        (_, Some(Value::Array(branches))) => {
            for branch in branches {
                types.push(branch.get("type")?.as_str()?);
            }
        }
        _ => return None,
    }
    types.retain(|kind| *kind != "null");
    types.dedup();
    Some(types)
}

/// The names of a catalog's tools: as they are written, else whatever their case, else with
/// underscores for what providers do not allow in names, if only one tool is meant.
pub struct CatalogNames<'a> {
    catalog: &'a Catalog,
    folded: OnceCell<BTreeMap<String, Folded>>,
    plain: OnceCell<BTreeMap<String, Folded>>,
    /// Earlier lookups: a text may name a tool a million times.
    found: RefCell<BTreeMap<ToolName, Arc<KnownTool>>>,
}

/// The tool with a name in lower case. None if several tools share the name.
type Folded = Option<Arc<ToolDefinition>>;

impl<'a> CatalogNames<'a> {
    /// Looks names up in `catalog`.
    pub fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, folded: OnceCell::new(), plain: OnceCell::new(), found: RefCell::default() }
    }

    /// Returns the tool that `name` means, by the name that its source gives it, or by its
    /// qualified name where that is what was written.
    pub fn find(&self, name: &str) -> Option<Arc<KnownTool>> {
        if let Some(tool) = self.catalog.find(name) {
            return Some(self.known(&tool.definition, name));
        }
        let lower = name.to_lowercase();
        let folded = self.folded.get_or_init(|| fold(self.catalog, str::to_lowercase));
        let meant = match folded.get(&lower) {
            Some(meant) => meant,
            None => self.plain.get_or_init(|| fold(self.catalog, plain)).get(&lower)?,
        };
        meant.as_deref().map(|tool| self.known(tool, name))
    }

    fn known(&self, definition: &ToolDefinition, written: &str) -> Arc<KnownTool> {
        let qualified = definition.qualified_name();
        let is_qualified = plain(qualified.as_str()) == plain(written);
        let name = if is_qualified { qualified } else { definition.name.clone() };
        let mut found = self.found.borrow_mut();
        let known = found.entry(name.clone());
        let make = || Arc::new(KnownTool { name, ..KnownTool::of(definition) });
        Arc::clone(known.or_insert_with(make))
    }
}

/// Returns a name in lower case as the interfaces of providers have it.
fn plain(name: &str) -> String {
    let one = |character: char| {
        if character.is_alphanumeric() || matches!(character, '_' | '-') { character } else { '_' }
    };
    name.to_lowercase().chars().map(one).collect()
}

fn fold(catalog: &Catalog, with: impl Fn(&str) -> String) -> BTreeMap<String, Folded> {
    let mut folded: BTreeMap<String, Folded> = BTreeMap::new();
    for tool in catalog.tools() {
        let definition = &tool.definition;
        for name in [definition.qualified_name(), definition.name.clone()] {
            let Some(meant) = catalog.find(name.as_str()) else { continue };
            let meant = &meant.definition;
            folded
                .entry(with(name.as_str()))
                .and_modify(|known| {
                    if known
                        .as_ref()
                        .is_some_and(|known| known.qualified_name() != meant.qualified_name())
                    {
                        *known = None;
                    }
                })
                .or_insert_with(|| Some(Arc::clone(meant)));
        }
    }
    folded
}
