//! Limits on calls: how many of a tool, of a toolset, or for one key among their parameters may be
//! under way at once, and how many may begin in a time. They hold across all nodes of a store.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;
use sha2::{Digest, Sha256};
use shared::{
    execution::Execution,
    id::{ToolName, ToolSetName},
    store::{CallLimit, Rate},
    template::Path,
};

/// The longest key that is kept as it is; longer ones are kept as a digest.
const KEY_LEN: usize = 128;

/// Every limit on calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallLimits {
    /// The limits, each for itself: a call must be within all that are about it.
    pub rules: Vec<Rule>,
}

/// A limit on calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The calls that it is about.
    pub subject: Subject,
    /// The place in their parameters whose values are counted apart.
    pub key: Option<Path>,
    /// How many may be under way at once.
    pub concurrency: Option<u32>,
    /// How many may begin in a time.
    pub rate: Option<Rate>,
}

/// The calls that a limit is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Those of one tool, as `set.name`.
    Tool(ToolName),
    /// Those of all tools of a set.
    Set(ToolSetName),
}

impl Subject {
    fn has(&self, tool: &ToolName) -> bool {
        match self {
            Self::Tool(name) => name == tool,
            Self::Set(set) => {
                let rest = tool.as_str().strip_prefix(set.as_str());
                rest.is_some_and(|it| it.starts_with('.'))
            }
        }
    }
}

impl CallLimits {
    /// Returns the tools of an execution's plan whose calls have a limit.
    pub fn limited(&self, execution: &Execution) -> Arc<BTreeSet<ToolName>> {
        if self.rules.is_empty() {
            return Arc::default();
        }
        let has_limit = |it: &&ToolName| self.rules.iter().any(|rule| rule.subject.has(it));
        Arc::new(execution.plan().tools().filter(has_limit).cloned().collect())
    }

    /// Returns the limits of one call. One with a key that the parameters lack is about others.
    pub fn of(&self, tool: &ToolName, parameters: &Value) -> Vec<CallLimit> {
        let about = self.rules.iter().filter(|it| it.subject.has(tool));
        let limits = about.filter_map(|it| {
            let subject = match &it.subject {
                Subject::Tool(name) => format!("tool:{name}"),
                Subject::Set(set) => format!("set:{set}"),
            };
            let key = match &it.key {
                None => subject,
                Some(path) => format!("{subject}/{path}={}", short(path.find(parameters)?)),
            };
            Some(CallLimit { key, concurrency: it.concurrency, rate: it.rate })
        });
        limits.collect()
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= KEY_LEN {
        return text;
    }
    Sha256::digest(text).iter().map(|it| format!("{it:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_within_every_limit_that_is_about_it() {
        let rule = |subject, key: Option<&str>| Rule {
            subject,
            key: key.map(|it| it.parse().unwrap()),
            concurrency: Some(1),
            rate: None,
        };
        let charge: ToolName = "shop.charge".parse().unwrap();
        let limits = CallLimits {
            rules: vec![
                rule(Subject::Tool(charge.clone()), None),
                rule(Subject::Set("shop".parse().unwrap()), None),
                rule(Subject::Set("sho".parse().unwrap()), None),
                rule(Subject::Tool(charge.clone()), Some("customer.id")),
                rule(Subject::Tool(charge.clone()), Some("absent")),
            ],
        };
        let keys = |parameters| -> Vec<String> {
            limits.of(&charge, &parameters).into_iter().map(|it| it.key).collect()
        };
        assert_eq!(
            keys(json!({ "customer": { "id": "42" } })),
            ["tool:shop.charge", "set:shop", "tool:shop.charge/.customer.id=\"42\""]
        );
        let long = keys(json!({ "customer": { "id": "x".repeat(1_000) } }));
        assert!(long[2].len() < 200, "{long:?}");
        assert_eq!(limits.of(&"other.tool".parse().unwrap(), &json!({})), []);
    }
}
