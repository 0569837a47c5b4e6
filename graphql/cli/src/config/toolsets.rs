//! The setting `toolsets`, and the demo that replaces it.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};
use shared::id::ToolSetName;
use toolbox::{dispatch, flow, tool_names::TOOL_SET};
use toolsets::sources::SetConfig;

use super::{Origin, Setting};

/// Returns the demo toolset: this program as an MCP server.
pub(super) fn demo_toolset() -> (Setting<Vec<SetConfig>>, Value) {
    let written = json!([{
        "name": "blog",
        "description": "A small blog: authors, blogs, comments and pictures. The demo.",
        "active": true,
        "source": {
            "mcp": {
                "command": "faber",
                "args": ["blog-mcp"],
                "pass": ["FABER_BLOG_FILE", "FABER_LOG"],
            },
        },
    }]);
    let sets = serde_json::from_value(written.clone()).expect("the demo is a valid toolset");
    (Setting { value: sets, origin: Origin::Default }, written)
}

pub(super) fn read(value: &Value, base: &Path) -> Result<Vec<SetConfig>, String> {
    let Value::Array(items) = value else {
        return Err("`toolsets` must be a list, each with a `name` and a `source`".to_owned());
    };
    let builtin_sets = [flow::SET, TOOL_SET, dispatch::SET];
    let mut names: BTreeSet<ToolSetName> = builtin_sets
        .iter()
        .map(|name| name.parse().expect("the names of our own sets are literals"))
        .collect();
    let mut sets = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let placed = |reason: String| {
            let inner = reason.strip_prefix('`').filter(|place| {
                ["tools[", "effects.", "effects`"].iter().any(|start| place.starts_with(start))
            });
            match inner {
                Some(inner) => format!("`toolsets[{index}].source.{inner}"),
                None => format!("`toolsets[{index}]`: {reason}"),
            }
        };
        let set: SetConfig =
            serde_json::from_value(item.clone()).map_err(|err| placed(err.to_string()))?;
        if !names.insert(set.name.clone()) {
            let reason =
                format!("a toolset called `{}` exists already: use another name", set.name);
            return Err(placed(reason));
        }
        sets.push(set.rooted(base));
    }
    Ok(sets)
}
