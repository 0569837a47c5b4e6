use std::fmt;

use super::{ExecutionHead, HeadError, search::search_words};
use crate::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{ExecutionId, PlanId, RequestId, ToolName, WorkerId},
    labels::{self, Labels},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Selects requests whose query contains these words. Case is ignored.
    pub search: Option<String>,
    /// Selects requests created at or after this time.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Selects requests with an execution in this state. A request whose planning failed counts as
    /// failed, too.
    pub state: Option<ExecutionState>,
    /// Selects requests that have an execution that needs a person. Child executions count, too.
    /// `Some(false)` selects all other requests.
    pub needs_person: Option<bool>,
    pub token: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFilter {
    pub request: Option<RequestId>,
    pub search: Option<String>,
    /// Selects plans whose request belongs to the [token](labels::TOKEN) with this name.
    pub token: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    /// Selects executions in one of these states. Empty means any state.
    pub states: Vec<ExecutionState>,
    pub request: Option<RequestId>,
    pub plan: Option<PlanId>,
    pub is_root: bool,
    /// Selects executions whose plan uses this tool (`set.name`, or the name without its set).
    pub tool: Option<ToolName>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Selects executions that need a person, or with `Some(false)` all other executions. If
    /// children are left out ([`is_root`](Self::is_root)), an execution needs a person if one of
    /// its descendants needs one.
    pub needs_person: Option<bool>,
    pub labels: Vec<LabelFilter>,
    pub error_code: Option<String>,
    /// Selects executions whose first error is the error of a step with this tool (`set.name`).
    pub failed_tool: Option<ToolName>,
    /// Selects executions whose first error contains these words in its code or message, as [its
    /// head](ExecutionHead) has them. Case is ignored.
    pub error_text: Option<String>,
    /// Selects executions with one of these ids. `Some` of an empty list selects no execution.
    pub ids: Option<Vec<ExecutionId>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFilter {
    pub key: String,
    /// `None` means any value.
    pub value: Option<String>,
}

impl LabelFilter {
    /// Selects the executions that belong to the [token](labels::TOKEN) with this name.
    pub fn of_token(token: &str) -> Self {
        Self { key: labels::TOKEN.to_owned(), value: Some(token.to_owned()) }
    }

    /// Selects the [forks](labels::FORKED_FROM) of an execution.
    pub fn of_forks(origin: ExecutionId) -> Self {
        Self { key: labels::FORKED_FROM.to_owned(), value: Some(origin.to_string()) }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        let found = labels.get(&self.key);
        found.is_some_and(|found| self.value.as_ref().is_none_or(|value| value == found))
    }
}

impl ExecutionFilter {
    /// Returns `true` if a head has the labels, the error and an id of the filter. The other fields
    /// are not compared.
    pub fn matches_details(&self, head: &ExecutionHead) -> bool {
        let error = head.error.as_ref();
        let has_code = |code: &String| error.is_some_and(|error| error.code.as_str() == code);
        let has_tool = |tool| error.is_some_and(|error| error.tool.as_ref() == Some(tool));
        let words = search_words(self.error_text.as_deref());
        let has_words = || {
            let text = error.map(HeadError::folded_text);
            text.is_some_and(|text| words.iter().all(|word| text.contains(word.as_str())))
        };
        self.labels.iter().all(|label| label.matches(&head.labels))
            && self.error_code.as_ref().is_none_or(has_code)
            && self.failed_tool.as_ref().is_none_or(has_tool)
            && (words.is_empty() || has_words())
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&head.execution))
    }
}

/// Selects heads that a worker must check, and says how they are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadQuery {
    /// Unfinished executions without an owner that are due.
    ///
    /// If executions of several tokens are due, the tokens take turns, and `turn` says which token
    /// is first. A token with few due executions leaves its places to the other tokens. Only the
    /// first [`limits::DUE_TOKENS`](crate::limits::DUE_TOKENS) tokens take turns.
    ///
    /// Among the executions of a token, a higher priority comes first, and within a priority the
    /// execution that has been due the longest. An eighth of the list is reserved for the
    /// executions of any priority that have been due the longest, so that no execution waits for
    /// ever. A list of two or more has at least one such execution, and so has a list of one in
    /// every eighth turn. These executions come last.
    ///
    /// Only the highest [`limits::PRIORITIES`](crate::limits::PRIORITIES) priorities of waiting
    /// executions are distinguished. Executions of all other priorities are ordered by due time.
    Due {
        now: Timestamp,
        turn: u32,
    },
    /// Due executions, sorted by due time only.
    ///
    /// A worker that cannot run the first executions uses this query to see later executions.
    DueAfter {
        now: Timestamp,
        after: Option<QueuePosition>,
    },
    /// Executions whose worker is gone, including finished executions.
    ///
    /// A finished execution may still have work to do, such as a message to its parent. A worker is
    /// gone if its lease expired or if the store knows that its process ended.
    Orphans {
        now: Timestamp,
    },
    /// Executions that a worker owns, according to their heads.
    OwnedBy(WorkerId),
    Finished {
        after: Timestamp,
        until: Timestamp,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    pub due: Timestamp,
    pub execution: ExecutionId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanVersion {
    pub id: PlanId,
    pub version: u32,
}

/// A part of a list. Lists are sorted by time, the newest item first, and a page keeps this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The maximum number of items.
    pub first: usize,
    /// Selects items after this item, which are older.
    pub after: Option<Cursor>,
    /// Selects items before this item, which are newer.
    pub before: Option<Cursor>,
    /// `true` takes items from the end of the selected range, so that a client can page backwards.
    pub from_end: bool,
}

impl Page {
    pub fn first_items(first: usize) -> Self {
        Self { first, after: None, before: None, from_end: false }
    }

    pub fn last_items(last: usize) -> Self {
        Self { from_end: true, ..Self::first_items(last) }
    }

    pub fn contains(&self, cursor: &Cursor) -> bool {
        let position = (cursor.at, &cursor.id);
        self.after.as_ref().is_none_or(|after| position < (after.at, &after.id))
            && self.before.as_ref().is_none_or(|before| position > (before.at, &before.id))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub at: Timestamp,
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    pub items: Vec<(Cursor, T)>,
    /// `true` if the range of the page has more items: after this page, or before it if the page was
    /// taken from the end.
    pub has_more: bool,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.timestamp_micros(), self.id)
    }
}

impl std::str::FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, id) = text.split_once('.').ok_or(())?;
        let at = at.parse().ok().and_then(Timestamp::from_timestamp_micros).ok_or(())?;
        Ok(Self { at, id: id.to_owned() })
    }
}
