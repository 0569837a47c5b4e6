//! Calls of an execution whose outcome is unknown, and how a retry of the execution continues them.
//!
//! A retry that makes the same call sends its idempotency key again, so that a service that
//! remembers keys does not act twice. The first event of the retry contains the keys, because the
//! earlier execution can be removed before the retry ends.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::deserialize_nullable;
use crate::{
    hex::to_hex,
    id::{ExecutionId, Part, StepId},
};

/// The answer of a person about a call whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// The call took effect.
    Succeeded,
    /// The call had no effect.
    Failed,
}

impl Settled {
    /// Returns the name that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }
}

/// The decision of a person about a call whose outcome is unknown.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settlement {
    pub outcome: Settled,
    /// The output of the call. Absent if the call had no effect.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "deserialize_nullable"
    )]
    pub output: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl Settlement {
    /// Returns `true` if both decisions are equal apart from their comments.
    pub fn is_same_answer(&self, other: &Self) -> bool {
        (self.outcome, &self.output) == (other.outcome, &other.output)
    }
}

/// The place of a call in an execution, or in a child execution.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPlace {
    #[serde(rename = "stepId", alias = "step")]
    pub step: StepId,
    /// The index of the item, if the step repeats for a list.
    #[serde(default, rename = "index", alias = "item", skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The place in the child execution, if the step executes a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<Self>>,
}

impl CallPlace {
    /// Returns this place as seen from the parent execution, whose step `step` started the child.
    #[must_use]
    pub fn under(self, step: StepId, item: Option<u32>) -> Self {
        Self { step, item, child: Some(Box::new(self)) }
    }
}

/// The idempotency key of a call whose outcome is unknown.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallKey {
    #[serde(flatten)]
    pub place: CallPlace,
    pub key: Arc<str>,
    /// A hash of the rendered parameters. A call with other parameters is another call, so it does
    /// not send this key.
    pub parameters: String,
}

/// A call with an unknown outcome that a person settled as succeeded.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettledCall {
    #[serde(flatten)]
    pub place: CallPlace,
    /// The output that the person gave. Absent if it is among the reused outputs.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "deserialize_nullable"
    )]
    pub output: Option<Arc<Value>>,
    /// A hash of the rendered parameters. Empty for a step whose output is reused in any case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub parameters: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Returns the idempotency key of a task. Every attempt of the task has the same key.
pub fn idempotency_key(execution: ExecutionId, step: &StepId, part: Part) -> String {
    let item = part.item.map(|item| format!("[{item}]")).unwrap_or_default();
    let undo = if part.undo { "/undo" } else { "" };
    format!("{execution}/{step}{item}{undo}")
}

/// Returns a hash of rendered parameters. The order of fields does not matter.
pub fn hash_parameters(parameters: &Value) -> String {
    let mut sorted = parameters.clone();
    sorted.sort_all_objects();
    to_hex(Sha256::digest(sorted.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_hash_ignores_only_the_order_of_fields() {
        let hash = |value: Value| hash_parameters(&value);
        let one = hash(json!({ "a": 1, "b": { "x": 1, "y": [1, 2] } }));
        assert_eq!(one, hash(json!({ "b": { "y": [1, 2], "x": 1 }, "a": 1 })));
        assert_ne!(one, hash(json!({ "a": 1, "b": { "x": 1, "y": [2, 1] } })));
        assert_ne!(hash(json!({ "a": 1 })), hash(json!({ "a": "1" })));
        assert_eq!(one.len(), 64);
    }

    #[test]
    fn a_settled_null_output_survives_storage() {
        let settlement =
            Settlement { outcome: Settled::Succeeded, output: Some(Arc::default()), comment: None };
        let text = serde_json::to_string(&settlement).unwrap();
        assert_eq!(text, r#"{"outcome":"succeeded","output":null}"#);
        assert_eq!(serde_json::from_str::<Settlement>(&text).unwrap(), settlement);
        let place = CallPlace { step: "pay".parse().unwrap(), item: Some(2), child: None };
        let key = CallKey {
            place: place.under("sub".parse().unwrap(), None),
            key: "exec_1_aaaaaaaaa/pay[2]".into(),
            parameters: "0".to_owned(),
        };
        let text = serde_json::to_string(&key).unwrap();
        let expected = r#"{"stepId":"sub","child":{"stepId":"pay","index":2},"key":"exec_1_aaaaaaaaa/pay[2]","parameters":"0"}"#;
        assert_eq!(text, expected);
        let of_layout_5 = r#"{"step":"sub","child":{"step":"pay","item":2},"key":"exec_1_aaaaaaaaa/pay[2]","parameters":"0"}"#;
        for text in [expected, of_layout_5] {
            assert_eq!(serde_json::from_str::<CallKey>(text).unwrap(), key);
        }
    }
}
