//! Filters and pages of lists.

use std::fmt;

use crate::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{ExecutionId, PlanId, RequestId, ToolName, WorkerId},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Words of the query. Case is ignored.
    pub search: Option<String>,
    /// Created at or after this time.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Has an execution in this state. A request whose planning failed counts as failed, too.
    pub state: Option<ExecutionState>,
    /// Has an execution, or a child of one, that needs a person. `Some(false)`: has none.
    pub needs_person: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFilter {
    pub request: Option<RequestId>,
    pub search: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    /// Is in one of these states. Empty means any state.
    pub states: Vec<ExecutionState>,
    pub request: Option<RequestId>,
    pub plan: Option<PlanId>,
    pub is_root: bool,
    /// Its plan uses this tool (`set.name`, or the plain name).
    pub tool: Option<ToolName>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Needs a person, or does not.
    ///
    /// If children are left out ([`is_root`](Self::is_root)), an execution needs a person if one of
    /// its descendants does. Otherwise the descendant is in the list itself, and stands alone for
    /// its need.
    pub needs_person: Option<bool>,
}

/// Selects the heads that a worker has to look at, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadQuery {
    /// Unfinished executions without an owner that are due.
    ///
    /// Higher priorities come first, and in a priority the longest due. So that none waits for
    /// ever, an eighth of the places (at least one of two) is reserved for the longest due of any
    /// priority. These come last.
    ///
    /// Only the highest [`limits::PRIORITIES`](crate::limits::PRIORITIES) priorities of waiting
    /// executions are distinguished. All others are ordered by due time.
    Due {
        now: Timestamp,
    },
    /// Due executions by due time only.
    ///
    /// A worker that cannot run the first executions uses it to see the others.
    DueAfter {
        now: Timestamp,
        after: Option<QueuePosition>,
    },
    /// Executions whose worker is gone, finished ones included.
    ///
    /// A finished one may still have work to do, such as a message to its parent. A worker is gone
    /// if its lease expired or if the store knows that its process ended.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub first: usize,
    pub after: Option<Cursor>,
}

/// A position in a list that is ordered by time, then by id, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub at: Timestamp,
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    pub items: Vec<(Cursor, T)>,
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
