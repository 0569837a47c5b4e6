//! Small documents by kind and name: what was registered and switched while Faber ran, what tools
//! remember, what was called outside plans.

use std::{ops::Bound, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;

use super::{StoreError, Usage};
use crate::{
    clock::{self, Timestamp},
    json, limits,
};

/// Characters of a name that a message shows.
const SHOWN: usize = 64;

/// A small document.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it is about.
    pub kind: RecordKind,
    /// What it is called: one to [`limits::NAME_BYTES`] bytes without control characters.
    pub name: String,
    /// What it says: at most [`limits::DOCUMENT_BYTES`] of JSON.
    pub value: Arc<Value>,
    /// When it was written, by the clock of who wrote it.
    pub at: Timestamp,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RecordKind {
    /// A toolset that was added while Faber ran.
    ToolSet,
    /// A tool that was registered while Faber ran.
    Tool,
    /// Whether a toolset or a tool is active, where somebody said so.
    Switch,
    /// Data on which toolsets depend.
    Context,
    /// What the memory tools keep.
    Memory,
    /// What was changed in the toolkit graph.
    Toolkit,
    /// What executions that succeeded taught about which tool follows which.
    Learned,
    /// A call outside plans; names order by time. Only the newest [`limits::CALL_HISTORY`] are
    /// kept, for as long as executions are.
    Call,
    /// What a [blob](crate::blob) is.
    Blob,
    /// What is in a blob, or a part of that.
    BlobPart,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
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
    ];

    /// Returns the word that stores write.
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
        }
    }

    /// Returns whether all nodes must agree on it: its changes count as
    /// [revisions](Records::records_revision).
    pub fn is_agreed(self) -> bool {
        match self {
            Self::ToolSet | Self::Tool | Self::Switch | Self::Context | Self::Toolkit => true,
            Self::Memory | Self::Learned | Self::Call | Self::Blob | Self::BlobPart => false,
        }
    }
}

/// What keeps a record from being written.
#[derive(Clone, Debug, PartialEq)]
pub enum Unless {
    /// Nothing: the last write wins.
    Never,
    /// That there is one of the same name.
    Exists,
    /// That the one of the same name is not there, or was not written at this time.
    ///
    /// Who reads a record, changes it, and writes it with a later time undoes nothing that another
    /// wrote in between.
    ChangedSince(Timestamp),
}

impl Unless {
    /// Returns what who read `before` writes under, now, so that he undoes nothing that another wrote
    /// in between, and at which time: it says which record it is, so it only grows, whatever the
    /// clocks say.
    pub fn since(before: Option<&Record>, now: Timestamp) -> (Self, Timestamp) {
        match before {
            None => (Self::Exists, now),
            Some(it) => (Self::ChangedSince(it.at), now.max(clock::after(it.at))),
        }
    }
}

/// Which records of a kind, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    /// Only those whose names begin so.
    pub prefix: Option<String>,
    /// Only those behind this name, in the order that is asked for.
    pub after: Option<String>,
    /// At most so many; fewer only at the end.
    pub first: usize,
    /// By name, descending: the newest first, where names order by time.
    pub newest: bool,
}

impl RecordPage {
    /// Asks for the first few of all, ascending.
    pub fn first(first: usize) -> Self {
        Self { prefix: None, after: None, first, newest: false }
    }

    /// Asks only for those whose names begin so.
    #[must_use]
    pub fn under(self, prefix: impl Into<String>) -> Self {
        Self { prefix: Some(prefix.into()), ..self }
    }

    /// Returns the range that the names are in, from the least to the greatest, unless that is
    /// empty for certain.
    pub fn span(&self) -> Option<Span> {
        let prefix = self.prefix.as_deref().filter(|it| !it.is_empty());
        let mut from = prefix.map_or(Bound::Unbounded, |it| Bound::Included(it.to_owned()));
        let mut to = prefix.and_then(successor).map_or(Bound::Unbounded, Bound::Excluded);
        if let Some(after) = &self.after {
            let (bound, is_tighter) = if self.newest {
                let is_tighter = text(&to).is_none_or(|it| after.as_str() < it);
                (&mut to, is_tighter)
            } else {
                let is_tighter = text(&from).is_none_or(|it| after.as_str() >= it);
                (&mut from, is_tighter)
            };
            if is_tighter {
                *bound = Bound::Excluded(after.clone());
            }
        }
        match (text(&from), text(&to)) {
            (Some(from), Some(to)) if from >= to => None,
            _ if self.first == 0 => None,
            _ => Some((from, to)),
        }
    }
}

/// A range of names.
pub type Span = (Bound<String>, Bound<String>);

fn text(bound: &Bound<String>) -> Option<&str> {
    match bound {
        Bound::Included(it) | Bound::Excluded(it) => Some(it),
        Bound::Unbounded => None,
    }
}

/// Returns the least text that is greater than all that begin with `prefix`, if there is one.
fn successor(prefix: &str) -> Option<String> {
    let mut next = prefix.to_owned();
    while let Some(last) = next.pop() {
        // Between the two halves of the characters there is a gap.
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
    /// Returns the value as text, or says why no store can keep the record.
    pub fn encode(&self) -> Result<String, StoreError> {
        let unfit = |why: &str| {
            let shown: String = self.name.chars().take(SHOWN).collect();
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

    /// Reads what a store kept.
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

/// Keeps small documents by kind and name.
#[async_trait]
pub trait Records: std::fmt::Debug + Send + Sync {
    /// Writes a record, and says whether it did: not where one is there that it must not replace.
    ///
    /// What no store can keep is refused as [too large](StoreError::TooLarge) or
    /// [unfit](StoreError::Unfit).
    async fn put_record(&self, record: &Record, unless: Unless) -> Result<bool, StoreError>;

    /// Returns the record of a name.
    async fn record(&self, kind: RecordKind, name: &str) -> Result<Option<Record>, StoreError>;

    /// Returns records of a kind in the order of their names, byte by byte. What is damaged is left
    /// out.
    async fn records(&self, kind: RecordKind, page: RecordPage) -> Result<Vec<Record>, StoreError>;

    /// Returns the names of such records, without reading what they say.
    async fn record_names(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<String>, StoreError>;

    /// Counts the records whose names begin so, up to `most`, without reading them.
    async fn count_records(
        &self,
        kind: RecordKind,
        prefix: &str,
        most: usize,
    ) -> Result<usize, StoreError>;

    /// Removes a record, and says whether there was one.
    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError>;

    /// Returns a number that has grown when a record was written or removed of a kind on which
    /// [all nodes must agree](RecordKind::is_agreed), and never otherwise.
    ///
    /// Whoever reads the number first and the records then misses nothing.
    async fn records_revision(&self) -> Result<u64, StoreError>;

    /// Adds calls of tools to those that are counted.
    async fn add_usage(&self, usage: Vec<Usage>) -> Result<(), StoreError>;

    /// Returns how often each tool was called, by the names of the tools.
    async fn usage(&self) -> Result<Vec<Usage>, StoreError>;
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
    fn what_no_store_can_keep_is_refused() {
        let deep = (0..=limits::RECORD_DEPTH).fold(json!(1), |it, _| json!([it]));
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
    fn kinds_have_words_of_their_own() {
        let words: std::collections::BTreeSet<_> =
            RecordKind::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(words.len(), RecordKind::ALL.len());
    }

    fn name() -> impl Strategy<Value = String> {
        let letters =
            prop::sample::select(vec!['a', 'b', '/', 'ö', '\u{d7ff}', '\u{e000}', '\u{10ffff}']);
        prop::collection::vec(letters, 0..4).prop_map(|it| it.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_span_has_what_is_asked_for(
            names in prop::collection::btree_set(name(), 0..40),
            prefix in prop::option::of(name()),
            after in prop::option::of(name()),
            newest in any::<bool>(),
            first in 0..3_usize,
        ) {
            let page = RecordPage { prefix, after, first, newest };
            let is_asked_for = |it: &&String| {
                let begins = page.prefix.as_ref().is_none_or(|prefix| it.starts_with(prefix));
                let is_behind = |after: &String| if newest { *it < after } else { *it > after };
                begins && page.after.as_ref().is_none_or(is_behind)
            };
            let expected: Vec<_> = names.iter().filter(is_asked_for).collect();
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
