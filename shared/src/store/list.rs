//! Filters and pages of lists.

use std::fmt;

use crate::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{PlanId, RequestId, ToolName},
};

/// Selects requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Words of the query. Case is ignored.
    pub search: Option<String>,
    /// Created at or after this time.
    pub from: Option<Timestamp>,
    /// Created before this time.
    pub to: Option<Timestamp>,
    /// Has an execution in this state. A request whose planning failed counts as failed, too.
    pub state: Option<ExecutionState>,
}

/// Selects plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFilter {
    /// Belongs to this request.
    pub request: Option<RequestId>,
    /// Words of the query. Case is ignored.
    pub search: Option<String>,
}

/// Selects executions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    /// Is in one of these states. Empty means any state.
    pub states: Vec<ExecutionState>,
    /// Belongs to this request.
    pub request: Option<RequestId>,
    /// Runs this plan.
    pub plan: Option<PlanId>,
    /// Has no parent.
    pub is_root: bool,
    /// Its plan uses this tool (`set.name`, or the plain name).
    pub tool: Option<ToolName>,
    /// Created at or after this time.
    pub from: Option<Timestamp>,
    /// Created before this time.
    pub to: Option<Timestamp>,
}

/// Selects a part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The maximum number of items.
    pub first: usize,
    /// Starts after this position.
    pub after: Option<Cursor>,
}

/// A position in a list that is ordered by time, then by id, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The item's time of creation.
    pub at: Timestamp,
    /// The item's id.
    pub id: String,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// The items with their positions.
    pub items: Vec<(Cursor, T)>,
    /// Set if more items follow.
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
