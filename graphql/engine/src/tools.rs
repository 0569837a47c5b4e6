pub(super) mod calls;
pub(super) mod history;
pub(super) mod inventory;
pub(super) mod toolkit_store;

use std::sync::{Arc, Mutex, PoisonError};

use executor::{options::Options, worker::WorkerHandle};
use planner::{
    calls::{CatalogNames, ToolCall, parse_tool_calls, schemas::schemas_for},
    catalog::Catalog,
    suggest::{did_you_mean, explain_unknown_field},
    toolkit::{NodeKind, Toolkit, ToolkitError},
};
use serde_json::{Map, Value};
use shared::{
    clock::Clock,
    id::{NodeName, ToolName, ToolSetName},
    limits,
    store::Store,
    tool::ToolDefinition,
};
use toolbox::{ToolLookup, ToolSet, Toolbox};
use toolsets::registry::{Registry, RegistryError};

use self::{inventory::Inventory, toolkit_store::ToolkitStore};
use super::error::EngineError;
use crate::access::Grant;

const LIST_TOOLSETS_TOOL: &str = "ToolSet.list_toolset";

#[derive(Clone)]
pub struct Tools {
    pub inventory: Arc<Inventory>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: Arc<Options>,
    pub(super) toolkit: Arc<ToolkitStore>,
    pub(super) grant: Grant,
    worker: Option<WorkerHandle>,
    cached_catalog: Arc<Mutex<Option<(u64, Catalog)>>>,
}

impl Tools {
    pub(super) fn new(
        registry: Registry,
        worker: Option<WorkerHandle>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Self {
        let toolkit = ToolkitStore::new(Arc::clone(&store), Arc::clone(&clock), Toolkit::default());
        Self {
            inventory: Arc::new(Inventory::new(registry, options.connect)),
            toolkit: Arc::new(toolkit),
            store,
            clock,
            options: Arc::new(options),
            grant: Grant::default(),
            worker,
            cached_catalog: Arc::default(),
        }
    }

    pub(super) fn with_toolkit(self, configured: Toolkit) -> Self {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let toolkit = Arc::new(ToolkitStore::new(store, clock, configured));
        Self { toolkit, ..self }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    fn toolbox(&self) -> &Toolbox {
        self.inventory.toolbox()
    }

    /// Returns every toolset with the tools that the caller is allowed to use. Leaves out a toolset
    /// if the caller is allowed to use none of its tools. A toolset without tools is returned.
    pub fn sets(&self) -> Vec<ToolSet> {
        let mut sets = self.toolbox().sets();
        if !self.grant.allows_every_tool() {
            sets.retain_mut(|set| {
                let had_none = set.tools.is_empty();
                set.tools.retain(|tool| self.grant.allows(&tool.definition().qualified_name()));
                had_none || !set.tools.is_empty()
            });
        }
        sets
    }

    fn hide_forbidden_sets(&self, tool: &str, mut result: Value) -> Value {
        if self.grant.allows_every_tool() || tool != LIST_TOOLSETS_TOOL {
            return result;
        }
        let Some(listed) = result.get_mut("toolSets").and_then(Value::as_array_mut) else {
            return result;
        };
        let sets = self.sets();
        listed.retain_mut(|entry| {
            let Some(set) = sets.iter().find(|set| entry["name"] == set.name.as_str()) else {
                return false;
            };
            let names = set.tools.iter().map(|tool| Value::from(tool.definition().name.as_str()));
            entry["tools"] = names.collect();
            true
        });
        result
    }

    /// Returns the tools that the caller's plans are allowed to use, after every toolset has
    /// connected for the first time or the timeout has passed.
    pub async fn catalog(&self) -> Catalog {
        self.inventory.wait_until_connected().await;
        self.catalog_without_waiting()
    }

    /// Returns the tools that the caller's plans are allowed to use. Does not wait for toolsets
    /// that are still connecting.
    pub(super) fn catalog_without_waiting(&self) -> Catalog {
        if !self.grant.allows_every_tool() {
            return self.inventory.build_catalog(&self.sets());
        }
        // The revision is read before the toolsets. If a toolset changes in between, the revision
        // is already out of date, and the next call builds the catalog again.
        let revision = self.toolbox().revision();
        if let Some((at, catalog)) =
            &*self.cached_catalog.lock().unwrap_or_else(PoisonError::into_inner)
            && *at == revision
        {
            return catalog.clone();
        }
        let catalog = self.inventory.build_catalog(&self.sets());
        let cached = (revision, catalog.clone());
        *self.cached_catalog.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached);
        catalog
    }

    /// Returns the toolsets with these names. Reads the changes of other nodes first. Fails if a
    /// name is unknown.
    pub(super) async fn check_sets(
        &self,
        names: &[String],
    ) -> Result<Vec<ToolSetName>, EngineError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.inventory.read_changes().await;
        let sets = self.sets();
        let set_names = || sets.iter().map(|set| set.name.as_str());
        let missing = |name: &String| {
            let help = did_you_mean(name, set_names())
                .unwrap_or_else(|| "`faber toolsets list` lists all toolsets".to_owned());
            let name: String = name.chars().take(limits::NAME_BYTES).collect();
            EngineError::InvalidArgument(format!("there is no toolset `{name}`: {help}"))
        };
        let found = |name: &String| {
            let name: ToolSetName = name.parse().ok()?;
            set_names().any(|other| other == name.as_str()).then_some(name)
        };
        names.iter().map(|name| found(name).ok_or_else(|| missing(name))).collect()
    }

    /// Returns the tool that the name of `tool` without its toolset means, if that is another tool
    /// and the caller is allowed to use it.
    pub fn find_shadowing(&self, tool: &ToolDefinition) -> Option<ToolName> {
        let (ToolLookup::Tool(found) | ToolLookup::Inactive(found)) =
            self.toolbox().find(&tool.name)
        else {
            return None;
        };
        let meant = found.definition().qualified_name();
        (meant != tool.qualified_name() && self.grant.allows(&meant)).then_some(meant)
    }

    pub async fn add_tool_set(&self, written: Value) -> Result<ToolSet, EngineError> {
        for tool in written["source"]["tools"].as_array().into_iter().flatten() {
            self.check_is_no_action(tool["name"].as_str()).await?;
        }
        Ok(self.inventory.registry().add_set(written).await?)
    }

    /// Registers a tool. Returns its qualified name.
    pub async fn register_tool(
        &self,
        set: Option<&str>,
        written: Value,
    ) -> Result<ToolName, EngineError> {
        if set.is_none() {
            // Without `set`, the name must be unused. Waits for toolsets that are still connecting,
            // because one of them could have a tool with this name.
            self.inventory.wait_until_connected().await;
        }
        self.check_is_no_action(written["name"].as_str()).await?;
        Ok(self.inventory.registry().register_tool(set, written).await?)
    }

    async fn check_is_no_action(&self, tool: Option<&str>) -> Result<(), EngineError> {
        let Some(name) = tool else { return Ok(()) };
        if self.toolkit.load().await?.action(name).is_none() {
            return Ok(());
        }
        let name = name.parse::<NodeName>();
        let name = name.map_err(|err| EngineError::InvalidArgument(err.to_string()))?;
        Err(ToolkitError::Clash { name, is: NodeKind::Action }.into())
    }

    pub async fn parse_tool_calls(&self, text: &str) -> Result<Vec<ToolCall>, EngineError> {
        let catalog = self.catalog().await;
        let names = CatalogNames::new(&catalog);
        parse_tool_calls(text, &|name| names.find(name))
            .map_err(|err| EngineError::LimitExceeded(err.to_string()))
    }

    /// Returns the schemas of the tools with these capabilities, in the form for models. Without
    /// capabilities, returns the schemas of all tools.
    pub async fn tool_schemas(&self, capabilities: &[&str]) -> Map<String, Value> {
        let catalog = self.catalog().await;
        let tools: Vec<_> = catalog.tools().iter().map(|tool| &*tool.definition).collect();
        schemas_for(capabilities, tools, |tool| catalog.shown(tool))
    }
}

impl From<RegistryError> for EngineError {
    fn from(err: RegistryError) -> Self {
        let message = err.to_string();
        match err {
            RegistryError::Exists { .. }
            | RegistryError::NotAdded { .. }
            | RegistryError::Hidden(_)
            | RegistryError::Busy(_) => Self::Conflict(message),
            RegistryError::Invalid(reason) => Self::InvalidArgument(explain_unknown_field(&reason)),
            RegistryError::Secret(_) => Self::Forbidden(message),
            RegistryError::Full { .. } => Self::LimitExceeded(message),
            RegistryError::Store(err) => Self::Store(err),
        }
    }
}
