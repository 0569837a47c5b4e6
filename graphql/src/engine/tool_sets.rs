//! Toolsets: what other nodes changed, the catalog for plans, and changes by callers.

use std::sync::{Arc, PoisonError};

use planner::catalog::{Catalog, CatalogTool};
use serde_json::Value;
use shared::{
    id::{ToolName, ToolSetName},
    limits,
    tool::set_prefix,
};
use toolbox::{Found, ToolSet};
use toolsets::registry::{Registry, RegistryError, Switched};

use super::{Engine, EngineError};

impl Engine {
    /// Returns the registry of toolsets.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Reads the changes of toolsets that other nodes made.
    pub async fn catch_up(&self) {
        if let Err(err) = self.registry.sync().await {
            tracing::warn!(%err, "cannot see whether toolsets have changed");
        }
    }

    /// Waits until no toolset connects for the first time, or until the timeout. Changes of other
    /// nodes are known then. Failed sets connect again in the background.
    pub async fn settled(&self) {
        self.catch_up().await;
        self.toolbox.wake_all();
        self.toolbox.settled(self.options.connect).await;
    }

    /// Waits until the sets that may have tools of these names are known, or until the timeout.
    /// Failed sets among these connect again.
    pub async fn certain(&self, names: &[ToolName]) {
        self.catch_up().await;
        for name in names {
            let Found::Failed { set, .. } = self.toolbox.find(name) else { continue };
            if set_prefix(name.as_str()) == Some(set.as_str()) {
                self.toolbox.wake(&set);
            } else {
                self.toolbox.wake_all();
            }
        }
        self.toolbox.certain(names, self.options.connect).await;
    }

    /// Returns the tools that the caller's plans may use, once no set connects for the first time.
    pub async fn catalog(&self) -> Catalog {
        self.settled().await;
        self.catalog_now()
    }

    /// Returns the tools that the caller's plans may use, as they are known now.
    pub(super) fn catalog_now(&self) -> Catalog {
        if !self.grant.allows_every_tool() {
            return self.catalog_of(&self.sets());
        }
        // Read before the sets. A catalog newer than its revision is only built again.
        let revision = self.toolbox.revision();
        if let Some((at, catalog)) = &*self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
            && *at == revision
        {
            return catalog.clone();
        }
        let catalog = self.catalog_of(&self.sets());
        let kept = (revision, catalog.clone());
        *self.catalog.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        catalog
    }

    pub(super) fn catalog_of(&self, sets: &[ToolSet]) -> Catalog {
        let tools = sets.iter().flat_map(|set| {
            set.tools.iter().map(|tool| CatalogTool {
                definition: Arc::clone(tool.definition()),
                is_active: set.is_active,
            })
        });
        // Names of sets count even if the sets are not connected, or hidden from the caller.
        Catalog::of(tools, self.toolbox.set_names())
    }

    /// Adds a toolset.
    pub async fn add_tool_set(&self, written: Value) -> Result<ToolSet, EngineError> {
        for tool in written["source"]["tools"].as_array().into_iter().flatten() {
            self.check_no_action(tool["name"].as_str()).await?;
        }
        Ok(self.registry.add_set(written).await?)
    }

    /// Removes an added toolset. Returns whether it existed.
    pub async fn remove_tool_set(&self, name: &str) -> Result<bool, EngineError> {
        let Ok(name) = name.parse::<ToolSetName>() else { return Ok(false) };
        Ok(self.registry.remove_set(&name).await?)
    }

    /// Registers a tool. Returns its qualified name.
    pub async fn register_tool(
        &self,
        set: Option<&str>,
        written: Value,
    ) -> Result<ToolName, EngineError> {
        if set.is_none() {
            // A connecting set may have the name.
            self.settled().await;
        }
        self.check_no_action(written["name"].as_str()).await?;
        Ok(self.registry.register(set, written).await?)
    }

    /// Removes a registered tool. Returns whether it existed.
    pub async fn remove_tool(&self, name: &str) -> Result<bool, EngineError> {
        let Ok(name) = name.parse() else { return Ok(false) };
        Ok(self.registry.unregister(&name).await?)
    }

    /// Switches toolsets on or off.
    pub async fn switch(&self, names: &[String], on: bool) -> Result<Switched, EngineError> {
        if names.len() > limits::TOOL_SETS {
            let why = format!("{} names at once; the most is {}", names.len(), limits::TOOL_SETS);
            return Err(EngineError::LimitExceeded(why));
        }
        Ok(self.registry.switch(names, on).await?)
    }

    /// Changes the data of a context.
    pub async fn set_context(&self, name: &str, data: &Value) -> Result<(), EngineError> {
        Ok(self.registry.set_context(name, data).await?)
    }
}

impl From<RegistryError> for EngineError {
    fn from(err: RegistryError) -> Self {
        let message = err.to_string();
        match err {
            RegistryError::Exists { .. }
            | RegistryError::Elsewhere { .. }
            | RegistryError::Hidden(_)
            | RegistryError::Busy(_) => Self::Conflict(message),
            RegistryError::Invalid(why) => Self::InvalidArgument(why),
            RegistryError::Secret(_) => Self::Forbidden(message),
            RegistryError::Full { .. } => Self::LimitExceeded(message),
            RegistryError::Store(err) => Self::Store(err),
        }
    }
}
