//! Requests. A request groups all that belongs to one query.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{clock::Timestamp, id::RequestId, labels::Labels};

/// A query, its time and its labels. It never changes.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The id that plans, executions and transcripts refer to.
    #[serde(rename = "requestId", alias = "id")]
    pub id: RequestId,
    pub query: String,
    #[serde(rename = "createdAt", alias = "created_at", with = "chrono::serde::ts_microseconds")]
    pub created_at: Timestamp,
    /// Executions of the request's plans inherit them.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl Request {
    /// Returns a request without labels.
    pub fn new(id: RequestId, query: String, created_at: Timestamp) -> Self {
        Self { id, query, created_at, labels: Labels::new() }
    }
}

/// A record of planning, such as a selection of tools, a prompt or a reply.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TranscriptEntry {
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
    /// The kind, such as `selection`, `prompt`, `reply`, `draft`, `plan` or `error`.
    pub kind: String,
    pub content: Value,
}

/// If planning failed, the last entry of the transcript has one of these kinds.
pub const PLANNING_FAILURES: [&str; 2] = ["error", "diagnostics"];

impl TranscriptEntry {
    /// Returns `true` if planning failed with this entry.
    pub fn is_failure(&self) -> bool {
        PLANNING_FAILURES.contains(&self.kind.as_str())
    }
}
