//! The rules that limit calls of tools.
//!
//! Each node has the rules in its configuration, and the store counts the calls of all nodes. Nodes
//! that share a store should have the same rules.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use serde_json::Value;
use shared::{
    id::{ToolName, ToolSetName, fnv1a},
    store::{CallLimit, Rate},
    template::Path,
};

/// Maximum bytes of a grouping value in a key. A longer value is cut and gets the hash of the whole
/// value.
const MAX_VALUE_BYTES: usize = 64;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallLimits {
    rules: Vec<LimitRule>,
    names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LimitRule {
    pub calls: LimitedCalls,
    /// The path of a grouping value in the parameters. Calls with the same value count together.
    pub key: Option<Path>,
    pub concurrency: Option<u32>,
    pub rate: Option<Rate>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LimitedCalls {
    Tool(ToolName),
    Set(ToolSetName),
}

/// The rules that apply now. Clones share them, so that a process can replace its rules while it
/// runs.
#[derive(Clone, Debug, Default)]
pub struct CurrentCallLimits(Arc<RwLock<Arc<CallLimits>>>);

impl CurrentCallLimits {
    pub fn get(&self) -> Arc<CallLimits> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the rules. A call that waits for a permit keeps its rules.
    pub fn replace(&self, limits: Arc<CallLimits>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }
}

impl From<Arc<CallLimits>> for CurrentCallLimits {
    fn from(limits: Arc<CallLimits>) -> Self {
        Self(Arc::new(RwLock::new(limits)))
    }
}

impl CallLimits {
    pub fn new(rules: Vec<LimitRule>) -> Self {
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        let names = rules.iter().map(|rule| {
            let name = rule.limit_name();
            let n = uses.entry(name.clone()).or_default();
            *n += 1;
            // Numbers the rules with the same name, such as a rate for a second and a rate for a
            // day.
            if *n > 1 { format!("{name}#{n}") } else { name }
        });
        let names = names.collect();
        Self { rules, names }
    }

    pub fn rules(&self) -> &[LimitRule] {
        &self.rules
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn has_limit(&self, tool: &ToolName) -> bool {
        self.rules.iter().any(|rule| rule.calls.includes_tool(tool))
    }

    pub fn limited_tools<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolName>,
    ) -> impl Iterator<Item = &'a ToolName> {
        tools.into_iter().filter(|tool| self.has_limit(tool))
    }

    pub fn limits_of_call(&self, tool: &ToolName, parameters: &Value) -> Vec<CallLimit> {
        let holding =
            self.rules.iter().zip(&self.names).filter(|(rule, _)| rule.calls.includes_tool(tool));
        let limits = holding.map(|(rule, name)| CallLimit {
            key: match &rule.key {
                Some(path) => format!("{name}={}", grouping_text(path.find(parameters))),
                None => name.clone(),
            },
            concurrency: rule.concurrency,
            rate: rule.rate,
        });
        limits.collect()
    }
}

impl LimitedCalls {
    fn includes_tool(&self, tool: &ToolName) -> bool {
        match self {
            Self::Tool(name) => name == tool,
            Self::Set(set) => {
                tool.as_str().split_once('.').is_some_and(|(prefix, _)| prefix == set.as_str())
            }
        }
    }
}

impl LimitRule {
    fn limit_name(&self) -> String {
        let calls = match &self.calls {
            LimitedCalls::Tool(name) => format!("tool:{name}"),
            LimitedCalls::Set(set) => format!("set:{set}"),
        };
        match &self.key {
            Some(path) => format!("{calls}/{}", path.to_string().trim_start_matches('.')),
            None => calls,
        }
    }
}

fn grouping_text(found: Option<&Value>) -> String {
    let text = match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    if text.len() <= MAX_VALUE_BYTES {
        return text;
    }
    let head = &text[..text.floor_char_boundary(MAX_VALUE_BYTES / 2)];
    format!("{head}…{:016x}", fnv1a(text.bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(calls: LimitedCalls, key: Option<&str>) -> LimitRule {
        let key = key.map(|path| path.parse().unwrap());
        LimitRule { calls, key, concurrency: Some(1), rate: None }
    }

    fn tool(name: &str) -> LimitedCalls {
        LimitedCalls::Tool(name.parse().unwrap())
    }

    fn keys(limits: &CallLimits, tool: &str, parameters: &Value) -> Vec<String> {
        let limits = limits.limits_of_call(&tool.parse().unwrap(), parameters);
        limits.into_iter().map(|limit| limit.key).collect()
    }

    #[test]
    fn a_call_gets_the_keys_of_all_matching_rules() {
        let limits = CallLimits::new(vec![
            rule(tool("shop.charge"), None),
            rule(LimitedCalls::Set("shop".parse().unwrap()), None),
            rule(tool("shop.charge"), Some("customer.id")),
            rule(tool("shop.charge"), None),
            rule(tool("shop.refund"), None),
        ]);
        let parameters = json!({ "customer": { "id": 42 } });
        assert_eq!(
            keys(&limits, "shop.charge", &parameters),
            [
                "tool:shop.charge",
                "set:shop",
                "tool:shop.charge/customer.id=42",
                "tool:shop.charge#2"
            ]
        );
        assert_eq!(keys(&limits, "shop.look", &parameters), ["set:shop"]);
        assert!(keys(&limits, "shopping.look", &parameters).is_empty());
        let names: Vec<ToolName> =
            ["shop.look", "shopping.look"].map(|name| name.parse().unwrap()).into();
        let limited: Vec<_> = limits.limited_tools(&names).map(ToolName::as_str).collect();
        assert_eq!(limited, ["shop.look"]);
    }

    #[test]
    fn limit_keys_are_short_and_distinct() {
        let limits = CallLimits::new(vec![rule(tool("a.b"), Some("k"))]);
        let key = |value: Value| keys(&limits, "a.b", &json!({ "k": value })).remove(0);
        let long = "ä".repeat(100_000);
        let (one, other) = (key(json!(format!("{long}1"))), key(json!(format!("{long}2"))));
        assert!(one.len() < 128 && one != other, "{one} {other}");
        assert_eq!(key(json!({ "x": [1] })), "tool:a.b/k={\"x\":[1]}");
        assert_eq!(keys(&limits, "a.b", &json!({})), ["tool:a.b/k="]);
        assert_eq!(keys(&limits, "a.b", &json!("text")), ["tool:a.b/k="]);
    }
}
