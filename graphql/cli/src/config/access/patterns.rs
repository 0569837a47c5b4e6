use engine::access::ToolPattern;
use toolbox::{SetStatus, ToolSet};
use toolsets::sources::{self, SetConfig};

use super::{AccessConfig, TokenConfig};

impl AccessConfig {
    /// Returns the patterns that match no tool, with their tokens. Omits patterns that could match
    /// a tool of a toolset whose tools are unknown.
    pub fn find_unmatched(&self, sets: &[SetConfig], toolsets: &[ToolSet]) -> Vec<String> {
        let is_idle = |pattern: &ToolPattern| {
            let mut meant = with_equivalents(pattern, sets);
            !meant.any(|pattern| {
                has_tool(&pattern, toolsets) || can_match_unknown_tool(&pattern, sets, toolsets)
            })
        };
        let describe_idle = |token: &TokenConfig| {
            let idle = token.tools.iter().flatten().filter(|pattern| is_idle(pattern));
            idle.map(|pattern| format!("`{pattern}` of the token `{}`", token.name))
                .collect::<Vec<_>>()
        };
        self.tokens.iter().flat_map(describe_idle).collect()
    }
}

/// Returns a pattern and its equivalents. Tools of a renamed built-in toolset keep their names, so
/// `file_tools.*` also means the tools in a toolset `files`.
pub(in crate::config) fn with_equivalents(
    pattern: &ToolPattern,
    sets: &[SetConfig],
) -> impl Iterator<Item = ToolPattern> {
    let renamed = sources::find_renamed_sets(sets).into_iter();
    let meant = renamed.filter(|(_, own_name)| pattern.can_match_prefix(&format!("{own_name}.")));
    let within: Vec<_> =
        meant.filter_map(|(set, _)| pattern.with_set_prefix(set.as_str())).collect();
    std::iter::once(pattern.clone()).chain(within)
}

fn has_tool(pattern: &ToolPattern, toolsets: &[ToolSet]) -> bool {
    let mut tools = toolsets.iter().flat_map(|set| &set.tools);
    tools.any(|tool| pattern.matches(tool.definition().qualified_name().as_str()))
}

fn can_match_unknown_tool(pattern: &ToolPattern, sets: &[SetConfig], toolsets: &[ToolSet]) -> bool {
    let is_known_tool = |name: &str| {
        let found = toolsets.iter().find(|set| set.name.as_str() == name);
        found.is_some_and(|set| set.status == SetStatus::Ready)
    };
    let all = sets.iter().map(|set| &set.name).chain(toolsets.iter().map(|set| &set.name));
    all.map(ToString::to_string)
        .any(|name| !is_known_tool(&name) && pattern.can_match_prefix(&format!("{name}.")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use toolbox::Toolbox;
    use toolsets::sources::Sources;

    use super::*;

    fn files_toolset() -> Value {
        json!({ "name": "files", "source": { "builtin": "file_tools" } })
    }

    fn parse_sets(written: Value) -> Vec<SetConfig> {
        serde_json::from_value(written).unwrap()
    }

    fn access_with_tools(tools: &Value) -> AccessConfig {
        let token = json!({ "name": "ci", "token_env": "CI", "role": "operator", "tools": tools });
        AccessConfig::read(json!({ "tokens": [token] })).unwrap()
    }

    #[test]
    fn a_pattern_matches_built_in_tools_by_their_own_names() {
        let may = |tools: Value, sets: &[SetConfig], tool: &str| {
            let opened =
                access_with_tools(&tools).open(sets, |_| Some("a-long-enough-token".to_owned()));
            let peer = std::net::IpAddr::from([10, 0, 0, 1]);
            let grant = opened.unwrap().authenticate(Some("a-long-enough-token"), peer).unwrap();
            grant.allows(&tool.parse().unwrap())
        };
        let files = parse_sets(json!([files_toolset()]));
        let blog =
            json!({ "name": "blog", "source": { "tools": [{ "name": "file_tools.glob" }] } });
        let with_blog = parse_sets(json!([blog.clone(), self::files_toolset()]));
        for (tools, tool, expected) in [
            (json!(["file_tools.*"]), "files.file_tools.glob", true),
            (json!(["file_tools.glob"]), "files.file_tools.glob", true),
            (json!(["file_tools.glob"]), "files.file_tools.grep", false),
            (json!(["f*_tools.g?ob"]), "files.file_tools.glob", true),
            (json!(["files.*"]), "files.file_tools.glob", true),
            (json!(["web_tools.*"]), "files.file_tools.glob", false),
            // The toolset `blog` is not built in, so its tool `file_tools.glob` is another tool.
            (json!(["file_tools.*"]), "blog.file_tools.glob", false),
        ] {
            for sets in [&files, &with_blog] {
                assert_eq!(may(tools.clone(), sets, tool), expected, "{tools} {tool}");
            }
        }
        // If a toolset is called `file_tools`, the pattern means this toolset only.
        let other = json!({ "name": "file_tools", "source": { "tools": [{ "name": "x" }] } });
        let named = parse_sets(json!([self::files_toolset(), other]));
        assert!(!may(json!(["file_tools.*"]), &named, "files.file_tools.glob"));
        assert!(may(json!(["file_tools.*"]), &named, "file_tools.x"));
    }

    #[tokio::test]
    async fn a_pattern_without_a_matching_tool_is_reported() {
        let hidden = json!({
            "name": "later", "source": { "tools": [{ "name": "x" }] },
            "context": "c", "condition": "on",
        });
        let lost = json!({
            "name": "lost", "source": { "builtin": "code_tools", "root": "/there/is/none" },
        });
        let shop =
            json!({ "name": "shop", "active": false, "source": { "tools": [{ "name": "buy" }] } });
        let configured = parse_sets(json!([files_toolset(), hidden, lost, shop]));
        let toolbox = Toolbox::default();
        let sources = Sources::new(&toolbox, usize::MAX);
        for set in configured.iter().filter(|set| set.condition.is_none()) {
            sources.put(set.clone());
        }
        let idle =
            |tools: &Value| access_with_tools(tools).find_unmatched(&configured, &toolbox.sets());
        let good = [
            "file_tools.*",
            "files.*",
            "*",
            "*.glob",
            "shop.buy",
            "later.*",
            "lost.code_tools.*",
            "code_tools.read_file",
        ];
        assert_eq!(idle(&json!(good)), [""; 0]);
        let idle_patterns = idle(&json!(["nope.*", "shop.sell", "file_tools.globs", "shop.*"]));
        let expected = ["nope.*", "shop.sell", "file_tools.globs"];
        assert_eq!(idle_patterns, expected.map(|pattern| format!("`{pattern}` of the token `ci`")));
    }
}
