//! The set `ToolSet`: by its tools a model switches sets, and its next turn sees them.

use std::sync::{Arc, Weak};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shared::tool::{Effect, ErrorCode, ToolError};
use toolbox::{
    Tool, ToolContext, ToolSet, function,
    tool_names::{ACTIVATE, TOOL_SET},
};

use super::{Inner, Registry, RegistryError};

/// What `list_toolset` takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// What the other two take.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Names {
    /// The names of the toolsets, as `list_toolset` has them.
    tool_set_names: Vec<String>,
}

/// What `list_toolset` returns.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    tool_sets: Vec<Described>,
    success: bool,
}

#[derive(Serialize)]
struct Described {
    name: String,
    description: String,
    active: bool,
    source: String,
    tools: Vec<String>,
}

/// What the other two return.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    /// Whether every name was one that can be switched.
    success: bool,
    changed: Vec<String>,
    not_found: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<String>,
}

/// Makes the set.
pub(super) fn tool_set(registry: Weak<Inner>) -> ToolSet {
    let name = TOOL_SET.parse().expect("the name of the set is a literal");
    let tools = [
        list(registry.clone()),
        switch(
            registry.clone(),
            ACTIVATE,
            "Switches toolsets on, so that their tools can be called.",
            true,
        ),
        switch(
            registry,
            "deactivate_toolset",
            "Switches toolsets off, so that their tools are out of the way.",
            false,
        ),
    ];
    ToolSet::ready(name, "builtin", "Lists toolsets and switches them on and off.", tools)
}

fn list(registry: Weak<Inner>) -> Arc<dyn Tool> {
    let description =
        "Lists every toolset: what it is for, its tools, and whether it is switched on.";
    let run = move |Nothing {}, _: ToolContext| {
        let registry = open(&registry);
        async move {
            let registry = registry?;
            registry.sync().await.map_err(|err| failed(err.into()))?;
            let sets = registry.toolbox().sets();
            let tool_sets = sets.iter().map(described).collect();
            Ok::<_, ToolError>(Listed { tool_sets, success: true })
        }
    };
    function(TOOL_SET, "list_toolset", description, Effect::Read, run)
}

fn described(set: &ToolSet) -> Described {
    Described {
        name: set.name.to_string(),
        description: set.description.clone(),
        active: set.is_active,
        source: set.source.clone(),
        tools: set.tools.iter().map(|it| it.definition().name.to_string()).collect(),
    }
}

fn switch(
    registry: Weak<Inner>,
    name: &'static str,
    description: &'static str,
    on: bool,
) -> Arc<dyn Tool> {
    let run = move |Names { tool_set_names }, _: ToolContext| {
        let registry = open(&registry);
        async move {
            let switched = registry?.switch(&tool_set_names, on).await.map_err(failed)?;
            let success = switched.not_found.is_empty() && switched.refused.is_empty();
            let super::Switched { changed, not_found, refused } = switched;
            Ok::<_, ToolError>(Outcome { success, changed, not_found, refused })
        }
    };
    function(TOOL_SET, name, description, Effect::Idempotent, run)
}

fn open(registry: &Weak<Inner>) -> Result<Registry, ToolError> {
    let registry = registry.upgrade().map(Registry);
    registry.ok_or_else(|| ToolError::new(ErrorCode::UNAVAILABLE, "the process is about to end"))
}

fn failed(err: RegistryError) -> ToolError {
    match err {
        RegistryError::Store(err) => ToolError::new(ErrorCode::UNAVAILABLE, err.to_string()),
        other => ToolError::failed(other.to_string()),
    }
}
