use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    sync::Arc,
};

use serde_json::Value;
use shared::{id::ToolName, tool::ToolDefinition};

use crate::catalog::Catalog;

#[derive(Clone, Debug, PartialEq)]
pub struct KnownTool {
    pub name: ToolName,
    /// The parameters in the order of the schema. Empty if the schema does not list any.
    pub parameters: Vec<Parameter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    /// `true` if the value is always a string, so that an unquoted `42` means `"42"`.
    pub is_text: bool,
}

impl KnownTool {
    pub fn from_definition(definition: &ToolDefinition) -> Self {
        let properties = definition.input_schema.get("properties").and_then(Value::as_object);
        let parameters = properties.into_iter().flatten().map(|(name, schema)| Parameter {
            name: name.clone(),
            is_text: schema_types(schema).is_some_and(|types| types == ["string"]),
        });
        Self { name: definition.qualified_name(), parameters: parameters.collect() }
    }

    pub(super) fn is_text(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|known| known.is_text && known.name == parameter)
    }

    pub(super) fn has_parameter(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|known| known.name == parameter)
    }
}

pub(super) fn schema_types(schema: &Value) -> Option<Vec<&str>> {
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

/// The names of a catalog's tools. A lookup accepts other case and the underscores of providers, if
/// the name then means exactly one tool.
pub struct CatalogNames<'a> {
    catalog: &'a Catalog,
    by_lowercase_name: OnceCell<BTreeMap<String, UniqueTool>>,
    by_provider_name: OnceCell<BTreeMap<String, UniqueTool>>,
    /// Earlier lookups, because a text may contain a name a million times.
    found_tools: RefCell<BTreeMap<ToolName, Arc<KnownTool>>>,
}

/// The tool of a converted name. `None` if several tools have the name.
type UniqueTool = Option<Arc<ToolDefinition>>;

impl<'a> CatalogNames<'a> {
    pub fn new(catalog: &'a Catalog) -> Self {
        Self {
            catalog,
            by_lowercase_name: OnceCell::new(),
            by_provider_name: OnceCell::new(),
            found_tools: RefCell::default(),
        }
    }

    /// Returns the tool that `name` means. The result has the qualified name only if the text
    /// contained the qualified name.
    pub fn find(&self, name: &str) -> Option<Arc<KnownTool>> {
        if let Some(tool) = self.catalog.find(name) {
            return Some(self.find_known(&tool.definition, name));
        }
        let lower = name.to_lowercase();
        let by_lowercase_name =
            self.by_lowercase_name.get_or_init(|| fold_names(self.catalog, str::to_lowercase));
        let meant = match by_lowercase_name.get(&lower) {
            Some(meant) => meant,
            None => self
                .by_provider_name
                .get_or_init(|| fold_names(self.catalog, provider_name))
                .get(&lower)?,
        };
        meant.as_deref().map(|tool| self.find_known(tool, name))
    }

    fn find_known(&self, definition: &ToolDefinition, written: &str) -> Arc<KnownTool> {
        let qualified = definition.qualified_name();
        let is_qualified = provider_name(qualified.as_str()) == provider_name(written);
        let name = if is_qualified { qualified } else { definition.name.clone() };
        let mut found_tools = self.found_tools.borrow_mut();
        let entry = found_tools.entry(name.clone());
        let make = || Arc::new(KnownTool { name, ..KnownTool::from_definition(definition) });
        Arc::clone(entry.or_insert_with(make))
    }
}

fn provider_name(name: &str) -> String {
    let one = |character: char| {
        if character.is_alphanumeric() || matches!(character, '_' | '-') { character } else { '_' }
    };
    name.to_lowercase().chars().map(one).collect()
}

fn fold_names(catalog: &Catalog, convert: impl Fn(&str) -> String) -> BTreeMap<String, UniqueTool> {
    let mut by_lowercase_name: BTreeMap<String, UniqueTool> = BTreeMap::new();
    for tool in catalog.tools() {
        let definition = &tool.definition;
        for name in [definition.qualified_name(), definition.name.clone()] {
            let Some(meant) = catalog.find(name.as_str()) else { continue };
            let meant = &meant.definition;
            by_lowercase_name
                .entry(convert(name.as_str()))
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
    by_lowercase_name
}
