//! Which part of what is kept a list shows.

use std::fmt;

use crate::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{PlanId, RequestId, ToolName},
};

/// Which requests to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Words of the query; case does not matter.
    pub search: Option<String>,
    /// Not before.
    pub from: Option<Timestamp>,
    /// Before.
    pub to: Option<Timestamp>,
    /// Has an execution in this state. A request of which no plan came counts as failed, too.
    pub state: Option<ExecutionState>,
}

/// Which plans to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFilter {
    /// Of this request.
    pub request: Option<RequestId>,
    /// Words of the query; case does not matter.
    pub search: Option<String>,
}

/// Which executions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    /// In one of these states; empty means any.
    pub states: Vec<ExecutionState>,
    /// Of this request.
    pub request: Option<RequestId>,
    /// Of this plan.
    pub plan: Option<PlanId>,
    /// Only those that no step of another one began.
    pub is_root: bool,
    /// Whose plan uses this tool (`set.name`, or the plain name).
    pub tool: Option<ToolName>,
    /// Created not before.
    pub from: Option<Timestamp>,
    /// Created before.
    pub to: Option<Timestamp>,
}

/// Which part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most so many.
    pub first: usize,
    /// Behind this place in the order.
    pub after: Option<Cursor>,
}

/// A place in a list that is ordered by time, then by identifier, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When the thing was created.
    pub at: Timestamp,
    /// Its identifier.
    pub id: String,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// The things, each with its place.
    pub items: Vec<(Cursor, T)>,
    /// Whether there are more behind them.
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
