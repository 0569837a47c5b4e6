//! The inputs of findings: the folded log, and facts that only this node knows.

use std::{cell::OnceCell, collections::BTreeMap, sync::Arc};

use executor::call_limits::CallLimits;
use shared::{
    actor::Actor,
    clock::Timestamp,
    event::Claimed,
    execution::{Execution, Occurrence, Step, StepState},
    id::{ExecutionId, StepNumber, Task, WorkerId},
    plan::{OnError, ToolExecution},
    store::{ExecutionHead, SentCommand},
};
use toolbox::Toolbox;

use super::{finding::Finding, remedy::format_part_name};

/// Facts about an execution that are not in its log. They differ between nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts<'a> {
    /// The head, which names the owner. `None` if it was not read.
    pub head: Option<&'a ExecutionHead>,
    pub inbox: &'a [SentCommand],
    pub workers: &'a [WorkerId],
    pub limits: &'a CallLimits,
    /// For each child that was read, the finding about why it waits, or about the call with an
    /// unknown outcome that made it fail. Only the first children are read.
    pub children: &'a BTreeMap<ExecutionId, Finding>,
    /// The tools of this process. `None` if this process opened no toolsets.
    pub toolbox: Option<&'a Toolbox>,
}

pub(super) struct View<'a> {
    pub(super) execution: &'a Execution,
    pub(super) node_facts: Option<&'a NodeFacts<'a>>,
    pub(super) now: Timestamp,
    first_failure: OnceCell<Option<(Occurrence, Task)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// A live worker owns the execution, or the owner was not read.
    Owned,
    /// No worker owns the execution, although it is due, or it is due later and no worker lives.
    Free,
    Orphaned,
    /// The execution waits, so no worker needs to own it now.
    Parked,
}

impl<'a> View<'a> {
    pub(super) fn new(
        execution: &'a Execution,
        node_facts: Option<&'a NodeFacts<'a>>,
        now: Timestamp,
    ) -> Self {
        Self { execution, node_facts, now, first_failure: OnceCell::new() }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.execution.state().is_finished()
    }

    pub(super) fn planned_step(&self, task: Task) -> &'a ToolExecution {
        self.execution.plan().step(task.step)
    }

    pub(super) fn step_name(&self, task: Task) -> String {
        format!("`{}`", format_part_name(&self.planned_step(task).id, task.part.item))
    }

    pub(super) fn list_steps(&self) -> impl Iterator<Item = (Task, &'a Step)> + use<'a> {
        let numbers = (0..self.execution.steps().len()).map(StepNumber::new);
        numbers.map(Task::from).zip(self.execution.steps())
    }

    pub(super) fn list_items(
        &self,
        task: Task,
    ) -> impl Iterator<Item = (Task, &'a Step)> + use<'a> {
        let items = self.execution.step(task.step).items.as_deref();
        let items = items.map_or(&[][..], |items| items.as_slice());
        (0_u32..).map(move |index| task.for_item(index)).zip(items)
    }

    /// Returns all parts that make calls: the steps without a list, and the items of the steps with
    /// a list.
    pub(super) fn list_calls(&self) -> impl Iterator<Item = (Task, &'a Step)> {
        self.list_steps().flat_map(|(task, step)| {
            let whole = step.items.is_none().then_some((task, step));
            whole.into_iter().chain(self.list_items(task))
        })
    }

    pub(super) fn is_fatal(&self, task: Task) -> bool {
        matches!(self.planned_step(task).policy.on_error, OnError::Fail | OnError::Wait)
    }

    pub(super) fn find_first_failure(&self) -> Option<(Occurrence, Task)> {
        *self.first_failure.get_or_init(|| {
            let failed = self.list_calls().filter(|(task, step)| {
                self.is_fatal(*task) && matches!(step.state, StepState::Failed(_))
            });
            failed.filter_map(|(task, step)| Some((step.changed?, task))).min()
        })
    }

    pub(super) fn ownership(&self) -> Ownership {
        let Some(NodeFacts { head: Some(head), workers, .. }) = self.node_facts else {
            return Ownership::Owned;
        };
        match head.owner {
            Some(owner) if workers.contains(&owner) => Ownership::Owned,
            Some(_) => Ownership::Orphaned,
            None if head.due.is_some_and(|due| due <= self.now) => Ownership::Free,
            // The execution is due later, but no live worker exists that could claim it then.
            None if head.due.is_some() && workers.is_empty() => Ownership::Free,
            None => Ownership::Parked,
        }
    }

    pub(super) fn has_workers(&self) -> bool {
        self.node_facts.is_some_and(|node_facts| !node_facts.workers.is_empty())
    }

    pub(super) fn toolbox(&self) -> Option<&'a Toolbox> {
        self.node_facts?.toolbox
    }
}

pub(super) fn describe_worker(claim: &Claimed) -> String {
    let node: &Arc<str> = &claim.node;
    format!("`{}` on {node}", claim.worker)
}

/// Names the actor of a command and its time. Empty if the event has no actor.
pub(super) fn describe_actor(actor: Option<&Actor>, occurrence: Occurrence) -> String {
    let Some(actor) = actor else { return String::new() };
    format!(" by {actor} at {} UTC", occurrence.at.format("%Y-%m-%d %H:%M:%S"))
}

pub(super) fn list_names(names: &[String]) -> String {
    const MAX_NAMES: usize = 6;
    let more = names.len().saturating_sub(MAX_NAMES);
    match names {
        [] => String::new(),
        [only] => only.clone(),
        _ if more > 0 => format!("{} and {more} more", names[..MAX_NAMES].join(", ")),
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
