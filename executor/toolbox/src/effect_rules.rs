//! Effects that the configuration of a toolset sets.
//!
//! A source knows too little about its tools: most MCP servers say nothing about a second call, so
//! their tools are `once`. The owner of the configuration knows more and can say so. A rule that
//! calls a tool `read` or `idempotent` makes Faber repeat its calls after a crash or a timeout.

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

    fn try_from(written: Map<String, Value>) -> Result<Self, String> {
        let rules = written.iter().map(|(pattern, effect)| EffectRule::read(pattern, effect));
        rules.collect::<Result<_, _>>().map(Self)
    }
}

impl EffectRule {
    fn read(pattern: &str, effect: &Value) -> Result<Self, String> {
        let fixed = |set: &&str| [flow::SET, TOOL_SET].contains(set) || BUILTIN_SETS.contains(set);
        if let Some(set) = set_prefix(pattern).filter(fixed) {
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

    fn fits(&self, set: &ToolSetName, tool: &ToolName) -> bool {
        self.pattern.matches(tool.as_str())
            || self.pattern.matches(shared::tool::qualified_name(set, tool).as_str())
    }
}

impl EffectRules {
    /// Returns the effect that the first fitting rule gives a tool, or `None` if the effect that
    /// the source says holds.
    pub fn effect_of(&self, set: &ToolSetName, tool: &ToolName) -> Option<Effect> {
        self.0.iter().find(|rule| rule.fits(set, tool)).map(|rule| rule.effect)
    }

    /// Replaces the effect of a new definition. The tool must be made of the result, because its
    /// errors depend on the effect, too.
    #[must_use]
    pub fn apply(&self, definition: ToolDefinition) -> ToolDefinition {
        let effect = self.effect_of(&definition.set, &definition.name);
        ToolDefinition { effect: effect.unwrap_or(definition.effect), ..definition }
    }

    /// Adds rules behind the present ones.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the patterns that fit no tool of a set.
    pub fn unmatched_patterns(&self, set: &ToolSet) -> Vec<String> {
        let is_idle = |rule: &&EffectRule| {
            !set.tools.iter().any(|tool| rule.fits(&set.name, &tool.definition().name))
        };
        self.0.iter().filter(is_idle).map(|rule| rule.pattern.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(written: &Value) -> Result<EffectRules, String> {
        EffectRules::deserialize(written).map_err(|err| err.to_string())
    }

    #[test]
    fn the_first_matching_effect_rule_wins() {
        let written = json!({ "find_*": "read", "mail.find_?": "once", "mail.*": "idempotent" });
        let rules = rules(&written).unwrap();
        for (set, tool, expected) in [
            ("mail", "find_customer", Some(Effect::Read)),
            ("mail", "find_x", Some(Effect::Read)),
            ("mail", "mail.find_x", Some(Effect::Once)),
            ("mail", "send", Some(Effect::Idempotent)),
            ("post", "send", None),
            ("post", "Find_x", None),
        ] {
            let effect = rules.effect_of(&set.parse().unwrap(), &tool.parse().unwrap());
            assert_eq!(effect, expected, "{set}.{tool}");
        }
    }

    #[test]
    fn a_plain_name_matches_as_a_pattern() {
        let rules = rules(&json!({ "pay": "idempotent" })).unwrap();
        let effect = |tool: &str| rules.effect_of(&"s".parse().unwrap(), &tool.parse().unwrap());
        assert_eq!((effect("pay"), effect("payback")), (Some(Effect::Idempotent), None));
    }

    #[test]
    fn wrong_effect_rules_are_rejected() {
        for (written, expected) in [
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
            let why = rules(&written).unwrap_err();
            assert!(why.contains(expected), "{written}: {why}");
        }
    }
}
