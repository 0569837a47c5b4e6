//! The names of tools as providers allow them: letters, digits, `_` and `-`, at most 64.

use std::collections::{BTreeMap, BTreeSet};

use super::OfferedTool;

const MAX_LENGTH: usize = 64;

#[derive(Debug, Default)]
pub(super) struct WireNames {
    wire_names: BTreeMap<String, String>,
    tool_names: BTreeMap<String, String>,
}

impl WireNames {
    /// Names each tool: its own name with `_` for each forbidden character. Equal names get a
    /// number.
    pub(super) fn for_tools(tools: &[OfferedTool]) -> Self {
        let mut names = Self::default();
        let valid_names: BTreeSet<&str> =
            tools.iter().map(|tool| tool.name.as_str()).filter(|name| is_allowed(name)).collect();
        for tool in tools {
            let name = tool.name.as_str();
            if names.wire_names.contains_key(name) {
                continue;
            }
            let plain = make_allowed_name(name);
            let mut wire = plain.clone();
            for n in 2.. {
                let is_taken = names.tool_names.contains_key(&wire)
                    || (wire != name && valid_names.contains(&*wire));
                if !is_taken {
                    break;
                }
                let suffix = format!("_{n}");
                let room = plain.len().min(MAX_LENGTH - suffix.len());
                wire = format!("{}{suffix}", &plain[..room]);
            }
            names.wire_names.insert(name.to_owned(), wire.clone());
            names.tool_names.insert(wire, name.to_owned());
        }
        names
    }

    /// Returns the provider's name of a tool. A tool that is no longer offered also gets a name
    /// that the provider allows.
    pub(super) fn wire_name(&self, tool: &str) -> String {
        self.wire_names.get(tool).cloned().unwrap_or_else(|| make_allowed_name(tool))
    }

    /// Returns the tool that has this name at the provider. Returns an unknown name unchanged.
    pub(super) fn tool_name(&self, wire: &str) -> String {
        self.tool_names.get(wire).cloned().unwrap_or_else(|| wire.to_owned())
    }
}

fn is_allowed(name: &str) -> bool {
    !name.is_empty() && make_allowed_name(name) == name
}

fn make_allowed_name(name: &str) -> String {
    let one = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.chars().take(MAX_LENGTH).map(one).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(tools: &[&str]) -> Vec<String> {
        let offered = |name: &&str| OfferedTool {
            name: name.parse().unwrap(),
            description: String::new(),
            schema: json!({}),
        };
        let offered: Vec<_> = tools.iter().map(offered).collect();
        let names = WireNames::for_tools(&offered);
        for tool in tools {
            assert_eq!(names.tool_name(&names.wire_name(tool)), *tool);
        }
        tools.iter().map(|tool| names.wire_name(tool)).collect()
    }

    #[test]
    fn each_tool_gets_a_distinct_valid_provider_name() {
        assert_eq!(names(&["blog.createAuthor", "x-y"]), ["blog_createAuthor", "x-y"]);
        assert_eq!(names(&["a.b", "a_b", "a:b"]), ["a_b_2", "a_b", "a_b_3"]);
        let long = "l".repeat(100);
        let wire = names(&[&format!("{long}1"), &format!("{long}2")]);
        assert_eq!(wire[0], "l".repeat(64));
        assert_eq!(wire[1], format!("{}_2", "l".repeat(62)));
    }

    #[test]
    fn an_invented_tool_name_is_returned_unchanged() {
        let names = WireNames::default();
        assert_eq!(names.tool_name("nothing"), "nothing");
        assert_eq!(names.wire_name("was.there"), "was_there");
    }
}
