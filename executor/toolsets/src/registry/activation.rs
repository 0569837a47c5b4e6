//! Activation of toolsets, and the set `ToolSet`, whose tools let a model activate toolsets.

use std::sync::{Arc, Weak};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::{
    store::{RecordKind, WriteCondition},
    tool::{Effect, ErrorCode, ToolError},
};
use toolbox::{
    Tool, ToolContext, ToolSet, function,
    tool_names::{ACTIVATE, TOOL_SET},
};

use super::{Registry, RegistryError, RegistryState};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchResult {
    pub changed: Vec<String>,
    pub not_found: Vec<String>,
    /// Names of the sets that are always active, because other sets are activated with them.
    pub refused: Vec<String>,
}

impl Registry {
    /// Activates or deactivates sets. The result also lists unknown names, and sets that are always
    /// active.
    pub async fn switch(
        &self,
        names: &[String],
        activates: bool,
    ) -> Result<SwitchResult, RegistryError> {
        self.sync().await?;
        let sets = self.0.parts.toolbox.sets();
        let mut switched = SwitchResult::default();
        for name in names {
            let Some(set) = sets.iter().find(|set| set.name.as_str() == name) else {
                push_new(&mut switched.not_found, name);
                continue;
            };
            if Self::is_fixed(&set.name) {
                if !activates {
                    push_new(&mut switched.refused, name);
                }
                continue;
            }
            if set.is_active != activates && !switched.changed.contains(name) {
                self.put_record(
                    RecordKind::Switch,
                    name,
                    Value::Bool(activates),
                    WriteCondition::Never,
                )
                .await?;
                switched.changed.push(name.clone());
            }
        }
        self.sync().await?;
        Ok(switched)
    }
}

fn push_new(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

/// The parameters of `list_toolset`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

/// The parameters of `activate_toolset` and `deactivate_toolset`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SetNames {
    /// Names of the toolsets, as `list_toolset` shows them.
    tool_set_names: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedSets {
    tool_sets: Vec<DescribedSet>,
    success: bool,
}

#[derive(Serialize)]
struct DescribedSet {
    name: String,
    description: String,
    active: bool,
    source: String,
    tools: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SwitchOutcome {
    /// `true` if all names are known and no set was refused.
    success: bool,
    changed: Vec<String>,
    not_found: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<String>,
}

pub(super) fn tool_set(registry: Weak<RegistryState>) -> ToolSet {
    let name = TOOL_SET.parse().expect("the name of the set is a literal");
    let tools = [
        list_tool(registry.clone()),
        switch_tool(
            registry.clone(),
            ACTIVATE,
            "Activates toolsets, so that their tools can be called.",
            true,
        ),
        switch_tool(
            registry,
            "deactivate_toolset",
            "Deactivates toolsets, so that plans cannot use their tools.",
            false,
        ),
    ];
    ToolSet::ready(name, "builtin", "Lists, activates and deactivates toolsets.", tools)
}

fn list_tool(registry: Weak<RegistryState>) -> Arc<dyn Tool> {
    let description = "Lists all toolsets with their descriptions and tools, and which are active.";
    let run = move |NoParameters {}, _: ToolContext| {
        let registry = upgrade_registry(&registry);
        async move {
            let registry = registry?;
            registry.sync().await.map_err(|err| to_tool_error(err.into()))?;
            let sets = registry.toolbox().sets();
            let tool_sets = sets.iter().map(describe_set).collect();
            Ok::<_, ToolError>(ListedSets { tool_sets, success: true })
        }
    };
    function(TOOL_SET, "list_toolset", description, Effect::Read, run)
}

fn describe_set(set: &ToolSet) -> DescribedSet {
    DescribedSet {
        name: set.name.to_string(),
        description: set.description.clone(),
        active: set.is_active,
        source: set.source.clone(),
        tools: set.tools.iter().map(|tool| tool.definition().name.to_string()).collect(),
    }
}

fn switch_tool(
    registry: Weak<RegistryState>,
    name: &'static str,
    description: &'static str,
    activates: bool,
) -> Arc<dyn Tool> {
    let run = move |SetNames { tool_set_names }, _: ToolContext| {
        let registry = upgrade_registry(&registry);
        async move {
            let switched =
                registry?.switch(&tool_set_names, activates).await.map_err(to_tool_error)?;
            let SwitchResult { changed, not_found, refused } = switched;
            let success = not_found.is_empty() && refused.is_empty();
            Ok::<_, ToolError>(SwitchOutcome { success, changed, not_found, refused })
        }
    };
    function(TOOL_SET, name, description, Effect::Idempotent, run)
}

fn upgrade_registry(registry: &Weak<RegistryState>) -> Result<Registry, ToolError> {
    let registry = registry.upgrade().map(Registry);
    registry.ok_or_else(|| ToolError::new(ErrorCode::UNAVAILABLE, "the process is about to end"))
}

fn to_tool_error(err: RegistryError) -> ToolError {
    match err {
        RegistryError::Store(err) => ToolError::new(ErrorCode::UNAVAILABLE, err.to_string()),
        other => ToolError::failed(other.to_string()),
    }
}
