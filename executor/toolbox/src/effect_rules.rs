//! Effects that the configuration of a toolset sets, because a source knows too little about its
//! tools.

use serde::Deserialize;
use serde_json::{Map, Value};
use shared::{
    glob::ToolPattern,
    id::{ToolName, ToolSetName},
    tool::{Effect, ToolDefinition, set_prefix},
};

use super::{
    ToolSet, flow,
    tool_names::{BUILTIN_SETS, TOOL_SET},
};

/// Patterns of tool names with effects, in the order of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct EffectRules(Vec<EffectRule>);

#[derive(Clone, Debug, PartialEq)]
struct EffectRule {
    pattern: ToolPattern,
    effect: Effect,
}

impl TryFrom<Map<String, Value>> for EffectRules {
    type Error = String;

    fn try_from(settings: Map<String, Value>) -> Result<Self, String> {
        let rules = settings.iter().map(|(pattern, effect)| EffectRule::read(pattern, effect));
        rules.collect::<Result<_, _>>().map(Self)
    }
}

impl EffectRule {
    fn read(pattern: &str, effect: &Value) -> Result<Self, String> {
        let is_fixed =
            |set: &&str| [flow::SET, TOOL_SET].contains(set) || BUILTIN_SETS.contains(set);
        if let Some(set) = set_prefix(pattern).filter(is_fixed) {
            return Err(format!(
                "`effects.{pattern}`: the effects of `flow.*` and of built-in sets such as `{set}` \
                 cannot be set"
            ));
        }
        let parsed = ToolPattern::for_short_names(pattern).map_err(|_| {
            format!(
                "`effects.{pattern}`: write the name of a tool, with `*` for any text and `?` for \
                 one character"
            )
        })?;
        let effect = Effect::deserialize(effect).map_err(|_| {
            format!("`effects.{pattern}` is {effect}: write `read`, `idempotent` or `once`")
        })?;
        Ok(Self { pattern: parsed, effect })
    }

    fn matches_tool(&self, set: &ToolSetName, tool: &ToolName) -> bool {
        self.pattern.matches(tool.as_str())
            || self.pattern.matches(shared::tool::qualified_name(set, tool).as_str())
    }
}

impl EffectRules {
    /// Returns the effect from the first rule that matches a tool. `None` means that the effect
    /// from the source applies.
    pub fn find_effect(&self, set: &ToolSetName, tool: &ToolName) -> Option<Effect> {
        self.0.iter().find(|rule| rule.matches_tool(set, tool)).map(|rule| rule.effect)
    }

    /// Replaces the effect of a new definition. Make the tool from the returned definition, because
    /// the errors of the tool also depend on the effect.
    #[must_use]
    pub fn apply(&self, definition: ToolDefinition) -> ToolDefinition {
        let effect = self.find_effect(&definition.set, &definition.name);
        ToolDefinition { effect: effect.unwrap_or(definition.effect), ..definition }
    }

    /// Adds rules that apply if no earlier rule matches.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the patterns that match no tool of a set.
    pub fn unmatched_patterns(&self, set: &ToolSet) -> Vec<String> {
        let is_unmatched = |rule: &&EffectRule| {
            !set.tools.iter().any(|tool| rule.matches_tool(&set.name, &tool.definition().name))
        };
        self.0.iter().filter(is_unmatched).map(|rule| rule.pattern.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(settings: &Value) -> Result<EffectRules, String> {
        EffectRules::deserialize(settings).map_err(|err| err.to_string())
    }

    #[test]
    fn the_first_matching_effect_rule_wins() {
        let settings = json!({ "find_*": "read", "mail.find_?": "once", "mail.*": "idempotent" });
        let rules = rules(&settings).unwrap();
        for (set, tool, expected) in [
            ("mail", "find_customer", Some(Effect::Read)),
            ("mail", "find_x", Some(Effect::Read)),
            ("mail", "mail.find_x", Some(Effect::Once)),
            ("mail", "send", Some(Effect::Idempotent)),
            ("post", "send", None),
            ("post", "Find_x", None),
        ] {
            let effect = rules.find_effect(&set.parse().unwrap(), &tool.parse().unwrap());
            assert_eq!(effect, expected, "{set}.{tool}");
        }
    }

    #[test]
    fn a_name_without_wildcards_matches_only_itself() {
        let rules = rules(&json!({ "pay": "idempotent" })).unwrap();
        let effect = |tool: &str| rules.find_effect(&"s".parse().unwrap(), &tool.parse().unwrap());
        assert_eq!((effect("pay"), effect("payback")), (Some(Effect::Idempotent), None));
    }

    #[test]
    fn wrong_effect_rules_are_rejected() {
        for (settings, expected) in [
            (json!({ "flow.*": "once" }), "the effects of `flow.*` and of built-in sets"),
            (json!({ "file_tools.glob": "once" }), "sets such as `file_tools` cannot be set"),
            (json!({ "a b": "read" }), "`effects.a b`: write the name of a tool"),
            (json!({ "": "read" }), "write the name of a tool"),
            (
                json!({ "a": "write" }),
                "`effects.a` is \"write\": write `read`, `idempotent` or `once`",
            ),
            (json!({ "a": true }), "`effects.a` is true: write `read`"),
        ] {
            let error = rules(&settings).unwrap_err();
            assert!(error.contains(expected), "{settings}: {error}");
        }
    }
}
