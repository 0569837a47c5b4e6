//! The setting `toolsets`, and the demo that replaces a missing setting.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};
use shared::{
    id::ToolSetName,
    placed_error::{PlacedError, read_placed},
};
use toolbox::{dispatch, flow, tool_names::TOOL_SET};
use toolsets::sources::SetConfig;

use super::{Origin, Setting};

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
    if !value.is_array() {
        return Err("`toolsets` must be a list, each with a `name` and a `source`".to_owned());
    }
    let (sets, mistakes) = read_each(value, base);
    mistakes.into_iter().next().map_or(Ok(sets), Err)
}

/// Reads every toolset of a list. Returns the valid toolsets, and the mistakes of the others.
pub(super) fn read_each(value: &Value, base: &Path) -> (Vec<SetConfig>, Vec<String>) {
    let builtin_sets = [flow::SET, TOOL_SET, dispatch::SET];
    let mut names: BTreeSet<ToolSetName> = builtin_sets
        .iter()
        .map(|name| name.parse().expect("the names of our own sets are literals"))
        .collect();
    let (mut sets, mut mistakes) = (Vec::new(), Vec::new());
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        match read_set(item, index) {
            Ok(set) if names.insert(set.name.clone()) => {
                sets.push(set.rooted(base).with_secret_files(base));
            }
            Ok(SetConfig { name, .. }) => mistakes.push(format!(
                "`toolsets[{index}].name`: a toolset called `{name}` exists already: use another \
                 name"
            )),
            Err(error) => mistakes.push(error),
        }
    }
    (sets, mistakes)
}

fn read_set(item: &Value, index: usize) -> Result<SetConfig, String> {
    read_placed(item.clone()).map_err(|err: PlacedError| {
        let PlacedError { path, reason } = err.inside(&format!("toolsets[{index}]"));
        // A message about effects or a tool names its own path in `source`.
        let is_path = |rest: &&str| ["effects", "tools["].iter().any(|key| rest.starts_with(key));
        match reason.strip_prefix('`').filter(is_path) {
            Some(rest) => format!("`{path}.{rest}"),
            None => format!("`{path}`: {reason}"),
        }
    })
}
