//! Requests: everything that belongs to one query.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{clock::Timestamp, id::RequestId};

/// A query, and when somebody asked it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The identifier by which everything that belongs to it is found.
    pub id: RequestId,
    /// What was asked for, in words.
    pub query: String,
    /// When.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub created_at: Timestamp,
}

/// Something that happened while a plan was made: candidates, prompts, replies, diagnostics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TranscriptEntry {
    /// When.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
    /// What kind of thing: `query`, `candidates`, `draft`, `diagnostics`, `plan`, `error`.
    pub kind: String,
    /// All of it.
    pub content: Value,
}

/// The kinds of the entries with which a planning ends that gives no plan.
pub const PLANNING_FAILURES: [&str; 2] = ["error", "diagnostics"];

impl TranscriptEntry {
    /// Returns whether a planning that gave no plan ended with this entry.
    pub fn is_failure(&self) -> bool {
        PLANNING_FAILURES.contains(&self.kind.as_str())
    }
}
