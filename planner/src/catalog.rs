//! The catalog: the tools that the compiler of plans knows. Some of them are inactive or cannot be
//! called.

use std::{collections::BTreeSet, sync::Arc};

use shared::{
    id::{ToolName, ToolSetName},
    tool::{ToolDefinition, ToolNames, set_prefix},
};

/// The tools that the compiler knows. Clones share one list.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<CatalogEntries>);

impl Default for Catalog {
    fn default() -> Self {
        Self::new([])
    }
}

#[derive(Debug)]
struct CatalogEntries {
    tools: Vec<CatalogTool>,
    names: ToolNames<usize>,
    failed: Vec<FailedSet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedSet {
    pub name: ToolSetName,
    pub error: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CatalogTool {
    pub definition: Arc<ToolDefinition>,
    pub is_active: bool,
}

impl Catalog {
    pub fn new(tools: impl IntoIterator<Item = CatalogTool>) -> Self {
        Self::of(tools, [])
    }

    /// Collects tools, and the names of sets that may have no tools. If a name begins with such a
    /// set, it never means a tool of another set.
    pub fn of(
        tools: impl IntoIterator<Item = CatalogTool>,
        sets: impl IntoIterator<Item = ToolSetName>,
    ) -> Self {
        let tools: Vec<CatalogTool> = tools.into_iter().collect();
        let set_names = tools.iter().map(|tool| tool.definition.set.clone());
        let set_names: BTreeSet<ToolSetName> = set_names.chain(sets).collect();
        let mut names = ToolNames::for_sets(set_names);
        for (index, tool) in tools.iter().enumerate() {
            names.add_tool(&tool.definition, index);
        }
        Self(Arc::new(CatalogEntries { tools, names, failed: Vec::new() }))
    }

    /// Adds the failed toolsets, because an unknown tool may belong to one of them.
    #[must_use]
    pub fn with_failed_sets(&self, failed: Vec<FailedSet>) -> Self {
        if failed.is_empty() {
            return self.clone();
        }
        let (tools, names) = (self.0.tools.clone(), self.0.names.clone());
        Self(Arc::new(CatalogEntries { tools, names, failed }))
    }

    /// Returns the failed toolsets that may have a tool of this name. If the name begins with a
    /// set, only that set may have it.
    pub fn find_failed_sets(&self, name: &str) -> Vec<&FailedSet> {
        let prefix = set_prefix(name).filter(|prefix| self.has_set(prefix));
        let may_have = |set: &&FailedSet| prefix.is_none_or(|prefix| set.name.as_str() == prefix);
        self.0.failed.iter().filter(may_have).collect()
    }

    fn has_set(&self, name: &str) -> bool {
        self.0.names.sets().iter().any(|set| set.as_str() == name)
    }

    /// Finds a tool by `set.name`, or by the name without its set in the earliest set that has the
    /// name.
    pub fn find(&self, name: &str) -> Option<&CatalogTool> {
        self.0.names.get(name).map(|index| &self.0.tools[index])
    }

    /// Returns the display name, which people and models see. See [`ToolNames::display_name`].
    pub fn shown(&self, tool: &ToolDefinition) -> ToolName {
        self.0.names.display_name(tool)
    }

    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn tools(&self) -> &[CatalogTool] {
        &self.0.tools
    }

    pub fn list_plannable(&self) -> impl Iterator<Item = &Arc<ToolDefinition>> {
        self.tools()
            .iter()
            .filter(|tool| tool.is_active && tool.definition.is_callable)
            .map(|tool| &tool.definition)
    }

    #[must_use]
    pub fn only_tools(&self, tools: &BTreeSet<ToolName>) -> Self {
        let is_there = |tool: &&CatalogTool| tools.contains(&tool.definition.qualified_name());
        self.filter_tools(is_there)
    }

    /// Returns the catalog of these sets. Without sets, returns the whole catalog.
    #[must_use]
    pub fn only_sets(&self, sets: &[ToolSetName]) -> Self {
        if sets.is_empty() {
            return self.clone();
        }
        self.filter_tools(|tool| sets.contains(&tool.definition.set))
    }

    /// Returns the catalog for stored plans, which use qualified names only.
    #[must_use]
    pub fn for_stored_plans(&self) -> Self {
        let mut names = ToolNames::for_sets(self.0.names.sets().iter().cloned());
        for (index, tool) in self.tools().iter().enumerate() {
            names.add_qualified(&tool.definition, index);
        }
        let tools = self.0.tools.clone();
        Self(Arc::new(CatalogEntries { tools, names, failed: self.0.failed.clone() }))
    }

    #[must_use]
    pub fn filter_tools(&self, should_keep: impl Fn(&&CatalogTool) -> bool) -> Self {
        let tools = self.tools().iter().filter(should_keep).cloned();
        Self::of(tools, self.0.names.sets().iter().cloned()).with_failed_sets(self.0.failed.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use shared::tool::Effect;

    use super::*;

    fn tool(set: &str, name: &str) -> CatalogTool {
        let definition = ToolDefinition {
            name: name.parse().unwrap(),
            set: set.parse().unwrap(),
            description: String::new(),
            input_schema: Value::Null,
            output_schema: None,
            effect: Effect::Read,
            examples: Vec::new(),
            is_callable: true,
        };
        CatalogTool { definition: Arc::new(definition), is_active: true }
    }

    fn find_qualified_name(catalog: &Catalog, name: &str) -> Option<String> {
        catalog.find(name).map(|tool| tool.definition.qualified_name().to_string())
    }

    #[test]
    fn the_name_of_a_set_without_tools_matches_no_other_tool() {
        let tools = [tool("m2", "m.b"), tool("m2", "c")];
        let alone = Catalog::new(tools.clone());
        assert_eq!(find_qualified_name(&alone, "m.b").as_deref(), Some("m2.m.b"));
        let beside = Catalog::of(tools, ["m".parse().unwrap()]);
        assert_eq!(find_qualified_name(&beside, "m.b"), None);
        let only = beside.only_sets(&["m2".parse().unwrap()]);
        assert_eq!(
            find_qualified_name(&only, "m.b"),
            None,
            "names mean the same in a part of the catalog"
        );
        assert_eq!(find_qualified_name(&only, "c").as_deref(), Some("m2.c"));
    }

    #[test]
    fn a_catalog_for_stored_plans_finds_qualified_names_only() {
        let catalog = Catalog::new([tool("m2", "m.b"), tool("m2", "c")]).for_stored_plans();
        let found = ["m.b", "c", "m2.c", "m2.m.b"].map(|name| find_qualified_name(&catalog, name));
        assert_eq!(found, [None, None, Some("m2.c".to_owned()), Some("m2.m.b".to_owned())]);
    }
}
