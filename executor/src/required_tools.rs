//! The tools that an execution still needs, if some tools of its plan are missing.

use std::collections::BTreeSet;

use shared::{
    clock::Timestamp,
    execution::{Execution, Phase},
    id::{Seq, ToolName},
    store::{self, ExecutionHead, Store, StoreError},
};
use toolbox::Toolbox;

#[derive(Clone, Debug)]
pub(crate) struct RequiredTools {
    seq: Seq,
    tools: BTreeSet<ToolName>,
    deadline: Option<Timestamp>,
}

impl RequiredTools {
    /// Reads the required tools of an execution. Returns `None` if its log was removed.
    pub(crate) async fn read(
        store: &dyn Store,
        head: &ExecutionHead,
    ) -> Result<Option<Self>, StoreError> {
        let execution = store::load_execution(store, head.execution).await?;
        Ok(execution.map(|execution| Self::new(&execution, head.seq)))
    }

    fn new(execution: &Execution, seq: Seq) -> Self {
        let can_expire = matches!(execution.phase(), Phase::Open | Phase::Failing);
        Self {
            seq,
            tools: execution.required_tools().cloned().collect(),
            deadline: execution.deadline().filter(|_| can_expire),
        }
    }

    pub(crate) fn is_current(&self, head: &ExecutionHead) -> bool {
        self.seq == head.seq
    }

    pub(crate) fn is_met(&self, toolbox: &Toolbox, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now) || toolbox.has_all(&self.tools)
    }
}

/// Returns whether a due execution can continue with the tools of a toolbox. A worker that claimed
/// any other execution would release it immediately.
pub async fn can_continue(
    store: &dyn Store,
    toolbox: &Toolbox,
    head: &ExecutionHead,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let plan = store.plan(head.plan).await?;
    if plan.is_none_or(|plan| toolbox.has_all(plan.called_tools())) {
        return Ok(true);
    }
    let required = RequiredTools::read(store, head).await?;
    Ok(required.is_some_and(|required| required.is_met(toolbox, now)))
}
