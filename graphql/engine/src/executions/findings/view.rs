//! The inputs of findings: the folded log, and facts of this node that the log does not have.

use std::{cell::OnceCell, collections::BTreeMap, sync::Arc};

use executor::call_limits::CallLimits;
use shared::{
    clock::Timestamp,
    event::Claimed,
    execution::{Execution, Occurrence, Step, StepState},
    id::{ExecutionId, StepNumber, Task, WorkerId},
    plan::{OnError, ToolExecution},
    store::{ExecutionHead, SentCommand},
};
use toolbox::Toolbox;

use super::{finding::Finding, remedy::part_name};

/// Facts about an execution that only this node knows, beside the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts<'a> {
    /// The head, which says who owns it. `None` if it was not read.
    pub head: Option<&'a ExecutionHead>,
    pub inbox: &'a [SentCommand],
    pub workers: &'a [WorkerId],
    pub limits: &'a CallLimits,
    /// By child: why it waits, or the call with an unknown outcome because of which it failed. Only
    /// the first children are read.
    pub children: &'a BTreeMap<ExecutionId, Finding>,
    /// The tools of this process. `None` if it opened no toolsets.
    pub toolbox: Option<&'a Toolbox>,
}

pub(super) struct View<'a> {
    pub(super) execution: &'a Execution,
    pub(super) around: Option<&'a NodeFacts<'a>>,
    pub(super) now: Timestamp,
    first_failure: OnceCell<Option<(Occurrence, Task)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attendance {
    /// A live worker owns the execution, or nothing but the log is known.
    Owned,
    /// No worker owns the execution, although it is due.
    Free,
    Orphaned,
    /// The execution waits, so no worker needs to own it now.
    Parked,
}

impl<'a> View<'a> {
    pub(super) fn new(
        execution: &'a Execution,
        around: Option<&'a NodeFacts<'a>>,
        now: Timestamp,
    ) -> Self {
        Self { execution, around, now, first_failure: OnceCell::new() }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.execution.state().is_finished()
    }

    pub(super) fn planned(&self, task: Task) -> &'a ToolExecution {
        self.execution.plan().step(task.step)
    }

    pub(super) fn name(&self, task: Task) -> String {
        format!("`{}`", part_name(&self.planned(task).id, task.part.item))
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = (Task, &'a Step)> + use<'a> {
        let numbers = (0..self.execution.steps().len()).map(StepNumber::new);
        numbers.map(Task::from).zip(self.execution.steps())
    }

    /// Returns the items of a step, if it has a list.
    pub(super) fn items(&self, task: Task) -> impl Iterator<Item = (Task, &'a Step)> + use<'a> {
        let items = self.execution.step(task.step).items.as_deref();
        let items = items.map_or(&[][..], |items| items.as_slice());
        (0_u32..).map(move |index| task.for_item(index)).zip(items)
    }

    /// Returns the steps without a list, and the items of the others.
    pub(super) fn calls(&self) -> impl Iterator<Item = (Task, &'a Step)> {
        self.steps().flat_map(|(task, step)| {
            let whole = step.items.is_none().then_some((task, step));
            whole.into_iter().chain(self.items(task))
        })
    }

    pub(super) fn is_fatal(&self, task: Task) -> bool {
        matches!(self.planned(task).policy.on_error, OnError::Fail | OnError::Wait)
    }

    pub(super) fn first_failure(&self) -> Option<(Occurrence, Task)> {
        *self.first_failure.get_or_init(|| {
            let failed = self.calls().filter(|(task, step)| {
                self.is_fatal(*task) && matches!(step.state, StepState::Failed(_))
            });
            failed.filter_map(|(task, step)| Some((step.changed?, task))).min()
        })
    }

    pub(super) fn attendance(&self) -> Attendance {
        let Some(NodeFacts { head: Some(head), workers, .. }) = self.around else {
            return Attendance::Owned;
        };
        match head.owner {
            Some(owner) if workers.contains(&owner) => Attendance::Owned,
            Some(_) => Attendance::Orphaned,
            None if head.due.is_some_and(|due| due <= self.now) => Attendance::Free,
            // The execution is due later, and no live worker would claim it then.
            None if head.due.is_some() && workers.is_empty() => Attendance::Free,
            None => Attendance::Parked,
        }
    }

    pub(super) fn has_workers(&self) -> bool {
        self.around.is_some_and(|around| !around.workers.is_empty())
    }

    pub(super) fn toolbox(&self) -> Option<&'a Toolbox> {
        self.around?.toolbox
    }
}

pub(super) fn describe_worker(claim: &Claimed) -> String {
    let node: &Arc<str> = &claim.node;
    format!("`{}` on {node}", claim.worker)
}

pub(super) fn list_names(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    match names {
        [] => String::new(),
        [only] => only.clone(),
        _ if more > 0 => format!("{} and {more} more", names[..SHOWN].join(", ")),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

pub(super) fn describe_time(time: chrono::TimeDelta) -> String {
    let ms = time.num_milliseconds().max(0);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{} s", (ms + 500) / 1_000),
        60_000..7_200_000 => format!("{} min", (ms + 30_000) / 60_000),
        7_200_000..172_800_000 => format!("{} h", (ms + 1_800_000) / 3_600_000),
        _ => format!("{} days", (ms + 43_200_000) / 86_400_000),
    }
}
