//! What an execution that nobody drives needs to go on, where not every tool of its plan is at hand.

use std::collections::BTreeSet;

use shared::{
    clock::Timestamp,
    execution::{Execution, ExecutionState, Phase},
    id::{Seq, ToolName},
    store::{self, Head, Store, StoreError},
};
use toolbox::Toolbox;

/// What an execution that has begun needs, as of some position in its log.
#[derive(Clone, Debug)]
pub(crate) struct Needs {
    seq: Seq,
    /// The tools that it may yet call.
    tools: BTreeSet<ToolName>,
    /// When it ends, whether they are there or not.
    deadline: Option<Timestamp>,
}

impl Needs {
    /// Reads what an execution needs; nothing of one that has not begun, which needs all tools of its
    /// plan.
    pub(crate) async fn read(store: &dyn Store, head: &Head) -> Result<Option<Self>, StoreError> {
        if head.state == ExecutionState::Pending {
            return Ok(None);
        }
        let execution = store::load(store, head.execution).await?;
        Ok(execution.map(|it| Self::of(&it, head.seq)))
    }

    fn of(execution: &Execution, seq: Seq) -> Self {
        let can_expire = matches!(execution.phase(), Phase::Open | Phase::Failing);
        Self {
            seq,
            tools: execution.needs().cloned().collect(),
            deadline: execution.deadline().filter(|_| can_expire),
        }
    }

    /// Returns whether they are those of an execution as its head says it is.
    pub(crate) fn are_of(&self, head: &Head) -> bool {
        self.seq == head.seq
    }

    /// Returns whether it can go on where these tools are.
    pub(crate) fn are_met(&self, toolbox: &Toolbox, now: Timestamp) -> bool {
        self.deadline.is_some_and(|it| it <= now) || toolbox.has_all(&self.tools)
    }
}

/// Returns whether an execution that is due can go on where these tools are. Otherwise it would be
/// claimed only to be put aside, again and again.
pub async fn can_go_on(
    store: &dyn Store,
    toolbox: &Toolbox,
    head: &Head,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let plan = store.plan(head.plan).await?;
    if plan.is_none_or(|it| toolbox.has_all(it.tools())) {
        return Ok(true);
    }
    Ok(Needs::read(store, head).await?.is_some_and(|it| it.are_met(toolbox, now)))
}
