use std::collections::{BTreeMap, BTreeSet};

use shared::{id::ToolName, tool::ToolDefinition};
use toolbox::{ToolLookup, Toolbox};

use super::Check;

const MAX_NAMES: usize = 10;

/// Lists names that several tools share. This is not a problem, because such a name identifies the
/// tool of the earliest toolset.
pub(crate) fn check_shared_names(toolbox: &Toolbox) -> Check {
    let clashes = find_clashes(toolbox);
    let mut descriptions: Vec<String> =
        clashes.iter().take(MAX_NAMES).map(Clash::describe).collect();
    let result = match clashes.len() {
        0 => "every name identifies one tool".to_owned(),
        n => {
            if n > MAX_NAMES {
                descriptions.push(format!("and {} more", n - MAX_NAMES));
            }
            format!(
                "a shared name identifies the tool of the earliest set, and `set.name` always \
                 works: {}",
                descriptions.join("; ")
            )
        }
    };
    Check::new("names of tools", Ok(result), "")
}

struct Clash {
    name: ToolName,
    meant_tool: String,
    is_inactive: bool,
    other_tools: Vec<String>,
}

impl Clash {
    fn describe(&self) -> String {
        let other_tools: Vec<_> = self.other_tools.iter().map(|name| format!("`{name}`")).collect();
        let off = if self.is_inactive { ", which is inactive" } else { "" };
        format!("`{}` is `{}`{off}, not {}", self.name, self.meant_tool, other_tools.join(" or "))
    }
}

fn find_clashes(toolbox: &Toolbox) -> Vec<Clash> {
    let sets = toolbox.sets();
    let mut tools: BTreeMap<ToolName, Vec<&ToolDefinition>> = BTreeMap::new();
    for tool in sets.iter().flat_map(|set| set.tools.iter().map(|tool| &**tool.definition())) {
        for name in possible_names(tool) {
            tools.entry(name).or_default().push(tool);
        }
    }
    let several = tools.into_iter().filter(|(_, tools)| tools.len() > 1);
    let clash = |(name, tools): (ToolName, Vec<&ToolDefinition>)| {
        let result = toolbox.find(&name);
        let is_inactive = matches!(result, ToolLookup::Inactive(_));
        let (ToolLookup::Tool(tool) | ToolLookup::Inactive(tool)) = result else { return None };
        let meant_tool = tool.definition().qualified_name().to_string();
        let other_tools = tools.iter().map(|tool| tool.qualified_name().to_string());
        let other_tools: Vec<String> = other_tools.filter(|name| *name != meant_tool).collect();
        if other_tools.is_empty() {
            return None;
        }
        Some(Clash { name, meant_tool, is_inactive, other_tools })
    };
    several.filter_map(clash).collect()
}

fn possible_names(tool: &ToolDefinition) -> BTreeSet<ToolName> {
    let short = tool.name.as_str().split_once('.').and_then(|(_, name)| name.parse().ok());
    [Some(tool.qualified_name()), Some(tool.name.clone()), short].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::{Value, json};
    use toolsets::sources::Sources;

    use super::*;

    fn describe_shared_names(sets: &Value) -> String {
        let toolbox = Toolbox::default();
        let sources = Sources::new(&toolbox, usize::MAX);
        for (name, tools) in sets.as_object().unwrap() {
            let tools = tools.as_array().unwrap().iter();
            let tools: Vec<Value> = tools.map(|name| json!({ "name": name })).collect();
            let active = !name.starts_with("off");
            let set = json!({ "name": name, "active": active, "source": { "tools": tools } });
            sources.put(serde_json::from_value(set).unwrap());
        }
        check_shared_names(&toolbox).result.unwrap()
    }

    #[test]
    fn the_report_names_the_tool_that_a_shared_name_means() {
        expect!["every name identifies one tool"]
            .assert_eq(&describe_shared_names(&json!({ "a": ["x"], "b": ["y"] })));
        expect![
            "a shared name identifies the tool of the earliest set, and `set.name` always works: \
             `b.find` is `b.find`, not `a.b.find`; `find` is `b.find`, not `a.b.find`; `get` is \
             `off.get`, which is inactive, not `a.get` or `b.get`"
        ]
        .assert_eq(&describe_shared_names(
            &json!({ "off": ["x", "get"], "a": ["y", "get", "b.find"], "b": ["get", "find"] }),
        ));
        let many: Vec<String> = (0..12).map(|name| format!("t{name:02}")).collect();
        let text = describe_shared_names(&json!({ "a": many, "b": many }));
        assert!(text.ends_with("; `t09` is `a.t09`, not `b.t09`; and 2 more"), "{text}");
    }
}
