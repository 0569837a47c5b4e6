//! The toolsets and tools of this process, the same for every caller.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use planner::catalog::{Catalog, CatalogTool, FailedSet};
use shared::{
    id::{NodeName, ToolName, ToolSetName},
    limits,
    tool::{ToolDefinition, set_prefix},
};
use toolbox::{SetStatus, ToolLookup, ToolSet, Toolbox};
use toolsets::registry::{Registry, SwitchResult};

use crate::error::EngineError;

#[derive(Debug)]
pub struct Inventory {
    registry: Registry,
    connect_timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingTool {
    pub tool: ToolName,
    pub failure: Option<String>,
}

impl Inventory {
    pub(super) fn new(registry: Registry, connect_timeout: Duration) -> Self {
        Self { registry, connect_timeout }
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn toolbox(&self) -> &Toolbox {
        self.registry.toolbox()
    }

    pub async fn read_changes(&self) {
        if let Err(err) = self.registry.sync().await {
            tracing::warn!(%err, "cannot see whether toolsets have changed");
        }
    }

    /// Waits until no toolset is connecting for the first time, or until the timeout. Reads the
    /// changes of other nodes first. Failed toolsets connect again in the background.
    pub async fn wait_until_connected(&self) {
        self.read_changes().await;
        self.toolbox().reconnect_all();
        self.toolbox().wait_for_sets(self.connect_timeout).await;
    }

    /// Like [`wait_until_connected`](Self::wait_until_connected), but does not start idle toolsets
    /// that the caller cannot plan with. An empty `names` stands for all toolsets.
    pub async fn wait_for_plannable(&self, names: &[ToolSetName]) {
        self.read_changes().await;
        self.toolbox().reconnect_all();
        let is_needed =
            |set: &ToolSet| set.is_active && (names.is_empty() || names.contains(&set.name));
        self.toolbox().wait_for_started_sets(self.connect_timeout, is_needed).await;
    }

    /// Waits until the toolsets that could have tools with these names are connected, or until the
    /// timeout. Those of them that failed connect again.
    pub async fn wait_for_tools(&self, names: &[ToolName]) {
        self.read_changes().await;
        for name in names {
            let ToolLookup::Failed { set, .. } = self.toolbox().find(name) else { continue };
            if set_prefix(name.as_str()) == Some(set.as_str()) {
                self.toolbox().reconnect_set(&set);
            } else {
                self.toolbox().reconnect_all();
            }
        }
        self.toolbox().wait_for_names(names, self.connect_timeout).await;
    }

    /// Returns the given tools that this process lacks, after their toolsets have connected or the
    /// timeout has passed. A tool of a deactivated toolset is not missing.
    pub async fn missing_tools(&self, tools: BTreeSet<ToolName>) -> Vec<MissingTool> {
        let names: Vec<ToolName> = tools.into_iter().collect();
        self.wait_for_tools(&names).await;
        let missing = names.into_iter().filter(|name| !self.toolbox().has_all([name]));
        missing
            .map(|tool| match self.toolbox().find(&tool) {
                ToolLookup::Failed { set, error } => MissingTool {
                    tool,
                    failure: Some(format!("the toolset `{set}` failed: {error}")),
                },
                _ => MissingTool { tool, failure: None },
            })
            .collect()
    }

    pub(crate) fn build_catalog(&self, sets: &[ToolSet]) -> Catalog {
        let tools = sets.iter().flat_map(|set| {
            set.tools.iter().map(|tool| CatalogTool {
                definition: Arc::clone(tool.definition()),
                is_active: set.is_active,
            })
        });
        let failed = sets.iter().filter_map(|set| match &set.status {
            SetStatus::Failed { error } => {
                Some(FailedSet { name: set.name.clone(), error: error.clone() })
            }
            _ => None,
        });
        // The catalog also gets the names of toolsets that are not connected or that are hidden
        // from the caller.
        Catalog::of(tools, self.toolbox().set_names()).with_failed_sets(failed.collect())
    }

    pub async fn switch(
        &self,
        names: &[String],
        is_active: bool,
    ) -> Result<SwitchResult, EngineError> {
        if names.len() > limits::TOOL_SETS {
            let reason =
                format!("`names` has {} names; the limit is {}", names.len(), limits::TOOL_SETS);
            return Err(EngineError::LimitExceeded(reason));
        }
        Ok(self.registry.switch(names, is_active).await?)
    }

    pub(crate) fn inactive_machine_sets(&self, except: &[ToolSetName]) -> Vec<ToolSetName> {
        let is_off = |set: &ToolSet| {
            set.acts_on_this_machine && !set.is_active && !except.contains(&set.name)
        };
        self.toolbox().sets().into_iter().filter(is_off).map(|set| set.name).collect()
    }

    pub fn find_tool(&self, name: &NodeName) -> Option<Arc<ToolDefinition>> {
        match self.toolbox().find(&to_tool_name(name)) {
            ToolLookup::Tool(tool) | ToolLookup::Inactive(tool) => {
                Some(Arc::clone(tool.definition()))
            }
            ToolLookup::Connecting | ToolLookup::Failed { .. } | ToolLookup::Unknown => None,
        }
    }

    pub fn qualify_name(&self, name: &NodeName) -> ToolName {
        self.find_tool(name).map_or_else(|| to_tool_name(name), |tool| tool.qualified_name())
    }
}

/// Converts the name of a tool or an action. Every name in the toolkit is a valid tool name.
pub(crate) fn to_tool_name(name: &NodeName) -> ToolName {
    name.as_str().parse().expect("both kinds of names have the same rule")
}
