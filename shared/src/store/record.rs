//! Records: small documents by kind and name, such as registered tools, switches, memory and calls
//! outside plans.

use std::{fmt, ops::Bound, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::StoreError;
use crate::{
    clock::{self, Timestamp},
    json, limits,
};

/// Maximum number of characters of a name that a message shows.
const MAX_SHOWN_NAME_CHARS: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub kind: RecordKind,
    /// The name: 1 to [`limits::NAME_BYTES`] bytes without control characters, unless the kind
    /// allows any text.
    pub name: String,
    /// The content: at most [`limits::DOCUMENT_BYTES`] of JSON, unless the kind allows any name.
    pub value: Arc<Value>,
    /// The time of the write, by the writer's clock. Some kinds keep another time.
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RecordKind {
    /// A toolset that was added while Faber ran.
    ToolSet,
    /// A tool that was registered while Faber ran.
    Tool,
    /// A toolset or tool that was switched on or off.
    Switch,
    /// Data that conditions of toolsets read.
    Context,
    Memory,
    /// Changes of the toolkit graph.
    Toolkit,
    /// Learned sequences of tools from successful executions.
    Learned,
    /// A call outside plans. The order of the names is the order of the calls.
    ///
    /// Only the newest [`limits::CALL_HISTORY`] calls are kept, and only for as long as executions
    /// are kept.
    Call,
    Blob,
    BlobPart,
    /// An idempotency key. Its name can be any text.
    Key,
    /// A plan with a name. Its name can be any text.
    SavedPlan,
    /// The output of a call, or a plan, for later use. Its name can be any text, and its time is
    /// the time at which it expires.
    Output,
    /// The usage of a tool. Its name can be any text. Its time is not a real time, but the number
    /// of calls in microseconds, which grows with each change.
    Usage,
    /// The decision of a person about a call whose outcome is unknown. Retention removes it with
    /// its execution.
    Settlement,
    /// The backup that is being restored. It marks an [incomplete](super::RestoreMarker) store.
    Restore,
    /// A key that encrypts values of the store. The name is the key's id.
    EncryptionKey,
    /// Random data that health checks write, to check that the store accepts writes.
    WriteCheck,
}

impl RecordKind {
    /// The kinds whose values can be any JSON.
    pub const DOCUMENTS: [Self; 11] = [
        Self::ToolSet,
        Self::Tool,
        Self::Switch,
        Self::Context,
        Self::Memory,
        Self::Toolkit,
        Self::Learned,
        Self::Call,
        Self::Blob,
        Self::BlobPart,
        Self::Settlement,
    ];

    pub const ALL: [Self; 18] = [
        Self::ToolSet,
        Self::Tool,
        Self::Switch,
        Self::Context,
        Self::Memory,
        Self::Toolkit,
        Self::Learned,
        Self::Call,
        Self::Blob,
        Self::BlobPart,
        Self::Key,
        Self::SavedPlan,
        Self::Output,
        Self::Usage,
        Self::Settlement,
        Self::Restore,
        Self::EncryptionKey,
        Self::WriteCheck,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolSet => "toolset",
            Self::Tool => "tool",
            Self::Switch => "switch",
            Self::Context => "context",
            Self::Memory => "memory",
            Self::Toolkit => "toolkit",
            Self::Learned => "learned",
            Self::Call => "call",
            Self::Blob => "blob",
            Self::BlobPart => "blob_part",
            Self::Key => "key",
            Self::SavedPlan => "saved_plan",
            Self::Output => "output",
            Self::Usage => "usage",
            Self::Settlement => "settlement",
            Self::Restore => "restore",
            Self::EncryptionKey => "encryption_key",
            Self::WriteCheck => "write_check",
        }
    }

    /// Returns `true` if all nodes must agree on records of this kind. Their changes increase the
    /// [revision](super::KeyValue::records_revision).
    pub fn is_shared_by_nodes(self) -> bool {
        matches!(self, Self::ToolSet | Self::Tool | Self::Switch | Self::Context | Self::Toolkit)
    }

    /// Returns the maximum number of records of this kind, if it has one.
    ///
    /// A store need not count its records at each write. When it counts, it removes enough records
    /// to stay within the maximum until it counts again. Pruning removes the old records of such a
    /// kind.
    pub fn max_records(self) -> Option<usize> {
        match self {
            Self::Call => Some(limits::CALL_HISTORY),
            Self::Output => Some(limits::OUTPUT_CACHE_ENTRIES),
            _ => None,
        }
    }

    pub fn secret_parts(self) -> SecretParts {
        const fn text(name: &'static str) -> SecretField {
            SecretField { name, is_text: true }
        }
        const fn value(name: &'static str) -> SecretField {
            SecretField { name, is_text: false }
        }
        match self {
            Self::Memory | Self::BlobPart | Self::Output => SecretParts::Whole,
            Self::Learned => SecretParts::Queries,
            Self::Call => SecretParts::Fields(
                const { &[value("parameters"), value("result"), text("error")] },
            ),
            Self::Settlement => SecretParts::Fields(const { &[value("output"), text("comment")] }),
            Self::Key => SecretParts::Fields(const { &[text("fingerprint")] }),
            Self::SavedPlan => SecretParts::Fields(const { &[value("inputs")] }),
            Self::ToolSet
            | Self::Tool
            | Self::Switch
            | Self::Context
            | Self::Toolkit
            | Self::Blob
            | Self::Usage
            | Self::Restore
            | Self::EncryptionKey
            | Self::WriteCheck => SecretParts::None,
        }
    }

    fn has_free_names(self) -> bool {
        matches!(self, Self::Key | Self::SavedPlan | Self::Output | Self::Usage)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretParts {
    None,
    Whole,
    /// The whole value, if queries are encrypted.
    Queries,
    Fields(&'static [SecretField]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretField {
    pub name: &'static str,
    /// `true` if readers expect a text, and not any JSON value.
    pub is_text: bool,
}

/// The case in which a record is not written. See [`put_record`](super::KeyValue::put_record).
#[derive(Clone, Debug, PartialEq)]
pub enum WriteCondition {
    /// No condition: the last write wins.
    Never,
    Exists,
    /// Refuses the write if the record has another time than this, or does not exist.
    ///
    /// A caller passes the time that it read, and writes the record with a later time. So the
    /// caller cannot overwrite a change that was made after the read.
    ChangedSince(Timestamp),
    /// Refuses the write if the stored value is not this one, or if there is no record. A caller
    /// that keeps the time of a record compares values, because the time does not show its change.
    ValueDiffers(Arc<Value>),
}

impl WriteCondition {
    /// Returns the condition and the time for a write that must not overwrite a newer change.
    ///
    /// `before` is the record that the caller read. The time identifies a version, so it always
    /// grows, whatever the clocks show.
    pub fn unless_changed(before: Option<&Record>, now: Timestamp) -> (Self, Timestamp) {
        match before {
            None => (Self::Exists, now),
            Some(read) => (Self::ChangedSince(read.at), now.max(clock::next_moment(read.at))),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    pub prefix: Option<String>,
    /// Selects names after this name, in the requested order.
    pub after: Option<String>,
    /// The maximum number of records.
    pub first: usize,
    /// `true` returns the names in descending order. If names are ordered by time, the newest
    /// record comes first.
    pub newest: bool,
    /// `true` returns `null` instead of each value, without reading the values.
    pub names_only: bool,
}

impl RecordPage {
    pub fn first_records(first: usize) -> Self {
        Self { prefix: None, after: None, first, newest: false, names_only: false }
    }

    #[must_use]
    pub fn with_prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: Some(prefix.into()), ..self }
    }

    #[must_use]
    pub fn names_only(self) -> Self {
        Self { names_only: true, ..self }
    }

    /// Returns the range of names in ascending order, or `None` if it is certainly empty.
    pub fn span(&self) -> Option<Span> {
        let prefix = self.prefix.as_deref().filter(|prefix| !prefix.is_empty());
        let mut from = prefix.map_or(Bound::Unbounded, |prefix| Bound::Included(prefix.to_owned()));
        let mut to = prefix.and_then(prefix_end).map_or(Bound::Unbounded, Bound::Excluded);
        if let Some(after) = &self.after {
            let (bound, is_tighter) = if self.newest {
                let is_tighter = bound_text(&to).is_none_or(|end| after.as_str() < end);
                (&mut to, is_tighter)
            } else {
                let is_tighter = bound_text(&from).is_none_or(|start| after.as_str() >= start);
                (&mut from, is_tighter)
            };
            if is_tighter {
                *bound = Bound::Excluded(after.clone());
            }
        }
        match (bound_text(&from), bound_text(&to)) {
            (Some(from), Some(to)) if from >= to => None,
            _ if self.first == 0 => None,
            _ => Some((from, to)),
        }
    }
}

pub type Span = (Bound<String>, Bound<String>);

fn bound_text(bound: &Bound<String>) -> Option<&str> {
    match bound {
        Bound::Included(text) | Bound::Excluded(text) => Some(text),
        Bound::Unbounded => None,
    }
}

/// Returns the smallest text that is greater than all texts with a prefix, if there is one.
fn prefix_end(prefix: &str) -> Option<String> {
    let mut next = prefix.to_owned();
    while let Some(last) = next.pop() {
        // Skips the surrogate code points, because they are not characters.
        let above =
            if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(above) = above {
            next.push(above);
            return Some(next);
        }
    }
    None
}

impl Record {
    #[expect(clippy::missing_panics_doc, reason = "all callers give types that are JSON")]
    pub fn new(kind: RecordKind, name: &str, value: &impl Serialize, at: Timestamp) -> Self {
        let value = serde_json::to_value(value).expect("record values are JSON");
        Self { kind, name: name.to_owned(), value: Arc::new(value), at }
    }

    pub(super) fn parse_value<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        T::deserialize(&*self.value).map_err(|err| self.corrupt(err))
    }

    fn corrupt(&self, why: impl fmt::Display) -> StoreError {
        StoreError::corrupt(format_args!("{} {}", self.kind.as_str(), self.name), why)
    }

    /// Returns the value as text, or an error if no store can keep the record.
    pub fn encode(&self) -> Result<String, StoreError> {
        if self.kind.has_free_names() {
            return Ok(self.value.to_string());
        }
        let unfit = |why: &str| {
            let shown: String = self.name.chars().take(MAX_SHOWN_NAME_CHARS).collect();
            let what = format!("the {} `{}`", self.kind.as_str(), shown.escape_debug());
            Err(StoreError::Unfit { what, why: why.to_owned() })
        };
        if self.name.is_empty() || self.name.len() > limits::NAME_BYTES {
            return unfit("a name has 1 to 512 bytes");
        }
        if self.name.contains(char::is_control) {
            return unfit("a name has no control characters");
        }
        if json::is_deeper_than(&self.value, limits::RECORD_DEPTH) {
            return unfit("its value nests too deep");
        }
        let text = self.value.to_string();
        if text.len() > limits::DOCUMENT_BYTES {
            return Err(StoreError::TooLarge { bytes: text.len() });
        }
        Ok(text)
    }

    pub fn decode(
        kind: RecordKind,
        name: &str,
        at: Timestamp,
        json: &str,
    ) -> Result<Self, StoreError> {
        let value = serde_json::from_str(json);
        let value =
            value.map_err(|err| StoreError::corrupt(format!("{} {name}", kind.as_str()), err))?;
        Ok(Self { kind, name: name.to_owned(), value, at })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn record(name: &str, value: Value) -> Record {
        let (kind, at) = (RecordKind::Memory, Timestamp::UNIX_EPOCH);
        Record { kind, name: name.to_owned(), value: Arc::new(value), at }
    }

    #[test]
    fn a_record_with_an_invalid_name_or_size_is_rejected() {
        let deep = (0..=limits::RECORD_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        let long = "x".repeat(limits::NAME_BYTES + 1);
        for (record, why) in [
            (record("", json!(1)), "the memory `` cannot be kept: a name has 1 to 512 bytes"),
            (
                record("a\n\u{7f}", json!(1)),
                r"the memory `a\n\u{7f}` cannot be kept: a name has no control characters",
            ),
            (record("a", deep), "the memory `a` cannot be kept: its value nests too deep"),
        ] {
            assert_eq!(record.encode().unwrap_err().to_string(), why);
        }
        assert!(record(&long, json!(1)).encode().unwrap_err().to_string().len() < 200);
        assert!(record(&long[1..], json!(1)).encode().is_ok());
        let bytes = limits::DOCUMENT_BYTES + 1;
        let text = |bytes: usize| record("a", json!("x".repeat(bytes - 2)));
        assert_eq!(text(bytes).encode().unwrap_err(), StoreError::TooLarge { bytes });
        assert_eq!(text(bytes - 1).encode().unwrap().len(), limits::DOCUMENT_BYTES);
    }

    #[test]
    fn each_record_kind_has_a_distinct_name() {
        let words: std::collections::BTreeSet<_> =
            RecordKind::DOCUMENTS.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(words.len(), RecordKind::DOCUMENTS.len());
    }

    fn name() -> impl Strategy<Value = String> {
        let letters =
            prop::sample::select(vec!['a', 'b', '/', 'ö', '\u{d7ff}', '\u{e000}', '\u{10ffff}']);
        prop::collection::vec(letters, 0..4).prop_map(|letters| letters.into_iter().collect())
    }

    proptest! {
        #[test]
        fn the_key_range_of_a_page_contains_exactly_the_selected_names(
            names in prop::collection::btree_set(name(), 0..40),
            prefix in prop::option::of(name()),
            after in prop::option::of(name()),
            newest in any::<bool>(),
            first in 0..3_usize,
        ) {
            let page = RecordPage { prefix, after, first, newest, names_only: false };
            let is_selected = |name: &&String| {
                let begins = page.prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix));
                let is_behind = |after: &String| if newest { *name < after } else { *name > after };
                begins && page.after.as_ref().is_none_or(is_behind)
            };
            let expected: Vec<_> = names.iter().filter(is_selected).collect();
            match page.span() {
                Some(span) => {
                    let found: Vec<_> = names.range(span).collect();
                    prop_assert_eq!(found, expected);
                }
                None => prop_assert!(first == 0 || expected.is_empty()),
            }
        }
    }
}
