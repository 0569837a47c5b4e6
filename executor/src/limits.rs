//! Limits on the calls of tools: which calls count together, and how many there may be.
//!
//! The rules are this machine's configuration; the counting is the store's, for all machines
//! together. Machines that share a store should have the same rules.

use std::collections::BTreeMap;

use serde_json::Value;
use shared::{
    id::{ToolName, ToolSetName, fnv1a},
    store::{CallLimit, Rate},
    template::Path,
};

/// The most bytes of a value that tells calls apart which are kept as they are.
const VALUE: usize = 64;

/// Limits on the calls of tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallLimits {
    rules: Vec<Rule>,
    /// How the limits of each rule are called, but for the value that tells calls apart.
    names: Vec<String>,
}

/// A limit on some calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Which calls.
    pub of: Limited,
    /// Where in the parameters the value is that tells them apart: those with the same value are
    /// counted together.
    pub key: Option<Path>,
    /// So many at once.
    pub concurrency: Option<u32>,
    /// So many a time.
    pub rate: Option<Rate>,
}

/// Which calls a limit is on.
#[derive(Clone, Debug, PartialEq)]
pub enum Limited {
    /// Those of a tool, as `set.name`.
    Tool(ToolName),
    /// Those of every tool of a set, counted together.
    Set(ToolSetName),
}

impl CallLimits {
    /// Makes limits of rules. All that fit a call hold for it.
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        let names = rules.iter().map(|rule| {
            let name = rule.name();
            let n = uses.entry(name.clone()).or_default();
            *n += 1;
            // Two rules of the same calls, such as so many a second and so many a day.
            if *n > 1 { format!("{name}#{n}") } else { name }
        });
        let names = names.collect();
        Self { rules, names }
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns whether calls of a tool (`set.name`) have a limit.
    pub fn limits(&self, tool: &ToolName) -> bool {
        self.rules.iter().any(|it| it.of.is_of(tool))
    }

    /// Returns those of the tools (`set.name`) whose calls have a limit.
    pub fn among<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolName>,
    ) -> impl Iterator<Item = &'a ToolName> {
        tools.into_iter().filter(|it| self.limits(it))
    }

    /// Returns the limits that hold for a call of a tool (`set.name`) with these parameters.
    pub fn of(&self, tool: &ToolName, parameters: &Value) -> Vec<CallLimit> {
        let holding = self.rules.iter().zip(&self.names).filter(|(it, _)| it.of.is_of(tool));
        let limits = holding.map(|(rule, name)| CallLimit {
            key: match &rule.key {
                Some(path) => format!("{name}={}", value(path.find(parameters))),
                None => name.clone(),
            },
            concurrency: rule.concurrency,
            rate: rule.rate,
        });
        limits.collect()
    }
}

impl Limited {
    fn is_of(&self, tool: &ToolName) -> bool {
        match self {
            Self::Tool(name) => name == tool,
            Self::Set(set) => {
                tool.as_str().split_once('.').is_some_and(|(it, _)| it == set.as_str())
            }
        }
    }
}

impl Rule {
    fn name(&self) -> String {
        let of = match &self.of {
            Limited::Tool(name) => format!("tool:{name}"),
            Limited::Set(set) => format!("set:{set}"),
        };
        match &self.key {
            Some(path) => format!("{of}/{}", path.to_string().trim_start_matches('.')),
            None => of,
        }
    }
}

/// Writes a value so that the same gives the same; a long one by its beginning and a hash.
fn value(found: Option<&Value>) -> String {
    let text = match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    if text.len() <= VALUE {
        return text;
    }
    let head = &text[..text.floor_char_boundary(VALUE / 2)];
    format!("{head}…{:016x}", fnv1a(text.bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(of: Limited, key: Option<&str>) -> Rule {
        let key = key.map(|it| it.parse().unwrap());
        Rule { of, key, concurrency: Some(1), rate: None }
    }

    fn tool(name: &str) -> Limited {
        Limited::Tool(name.parse().unwrap())
    }

    fn keys(limits: &CallLimits, tool: &str, parameters: &Value) -> Vec<String> {
        let limits = limits.of(&tool.parse().unwrap(), parameters);
        limits.into_iter().map(|it| it.key).collect()
    }

    #[test]
    fn every_rule_that_fits_a_call_holds() {
        let limits = CallLimits::new(vec![
            rule(tool("shop.charge"), None),
            rule(Limited::Set("shop".parse().unwrap()), None),
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
            ["shop.look", "shopping.look"].map(|it| it.parse().unwrap()).into();
        let limited: Vec<_> = limits.among(&names).map(ToolName::as_str).collect();
        assert_eq!(limited, ["shop.look"]);
    }

    #[test]
    fn keys_have_a_length_and_tell_values_apart() {
        let limits = CallLimits::new(vec![rule(tool("a.b"), Some("k"))]);
        let key = |it: Value| keys(&limits, "a.b", &json!({ "k": it })).remove(0);
        let long = "ä".repeat(100_000);
        let (one, other) = (key(json!(format!("{long}1"))), key(json!(format!("{long}2"))));
        assert!(one.len() < 128 && one != other, "{one} {other}");
        assert_eq!(key(json!({ "x": [1] })), "tool:a.b/k={\"x\":[1]}");
        assert_eq!(keys(&limits, "a.b", &json!({})), ["tool:a.b/k="]);
        assert_eq!(keys(&limits, "a.b", &json!("text")), ["tool:a.b/k="]);
    }
}
