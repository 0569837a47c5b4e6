//! Stored documents, as a change of the encryption key reads and replaces them. A head changes
//! while its execution runs, so a store replaces only texts of a head that are still the texts that
//! were read.

use std::sync::Arc;

use super::{EventDocument, ExecutionHead, SentCommand};
use crate::{
    id::{ExecutionId, RequestId},
    plan::Plan,
    request::{Request, TranscriptEntry},
};

/// A kind of stored documents. Records are not among them, because [`KeyValue`](super::KeyValue)
/// can list and replace them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredPart {
    Requests,
    Transcripts,
    Plans,
    Events,
    Executions,
    Inbox,
}

impl StoredPart {
    pub const ALL: [Self; 6] = [
        Self::Requests,
        Self::Transcripts,
        Self::Plans,
        Self::Events,
        Self::Executions,
        Self::Inbox,
    ];

    /// Returns the name of the part, which is also the name of its collection.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Transcripts => "transcripts",
            Self::Plans => "plans",
            Self::Events => "events",
            Self::Executions => "executions",
            Self::Inbox => "inbox",
        }
    }
}

/// The place of a document in its part. Each store uses the forms that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredKey {
    Row(i64),
    Text(String),
    Position { of: String, n: i64 },
}

#[derive(Clone, Debug)]
pub struct StoredDocument {
    pub key: StoredKey,
    /// Number of further documents in which a store keeps the content, or 0 if it is not divided.
    pub parts: usize,
    pub content: StoredContent,
}

#[derive(Clone, Debug)]
pub enum StoredContent {
    Request(Request),
    Entry { request: RequestId, entry: TranscriptEntry },
    Plan(Arc<Plan>),
    Events { execution: ExecutionId, document: EventDocument },
    Head(Box<ExecutionHead>),
    Command(SentCommand),
}

#[derive(Debug, Default)]
pub struct StoredPage {
    pub documents: Vec<StoredDocument>,
    pub damaged: u64,
    /// The key after which the next page begins, or `None` at the end of the part.
    pub next: Option<StoredKey>,
}

/// A document, and its new content. The new content has the same ids, times and events.
#[derive(Debug)]
pub struct Rewrite {
    pub before: StoredDocument,
    pub after: StoredContent,
}
