//! The agenda of an execution: tasks by the kind of work that they need next.
//!
//! Each event updates it, so no code searches a plan for work.

use std::collections::{BTreeMap, BTreeSet};

use super::step::{AttemptKind, StepState};
use crate::{
    clock::Timestamp,
    event::WaitReason,
    id::{StepNumber, Task},
};

/// The tasks that are not finished, by the kind of work that they need next.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    /// Pending steps with a condition whose dependencies are finished.
    judging: BTreeSet<StepNumber>,
    ready: BTreeSet<Task>,
    /// Pending tasks that first wait for an approval or a signal, which takes no slot.
    asking: BTreeSet<Task>,
    /// Tasks that may start or retry, but need a permit first.
    gated: BTreeSet<Task>,
    /// Pending steps that will be skipped, because a dependency did not succeed.
    doomed: BTreeSet<StepNumber>,
    running: BTreeSet<Task>,
    sleeping: BTreeSet<(Timestamp, Task)>,
    delegated: BTreeSet<Task>,
    retrying: BTreeSet<(Timestamp, Task)>,
    waiting: BTreeSet<Task>,
    /// Waiting tasks that wait for a signal, by the signal's name.
    awaiting: BTreeMap<String, BTreeSet<Task>>,
    expiring: BTreeSet<(Timestamp, Task)>,
    /// Steps whose items are running.
    gathering: BTreeSet<StepNumber>,
    gathered: BTreeSet<StepNumber>,
    /// The next task to undo, if it has not started.
    undoing: Option<Task>,
    open: usize,
}

impl Agenda {
    pub(super) fn new(steps: usize) -> Self {
        Self { open: steps, ..Self::default() }
    }

    /// Removes a task from the set of its state. Returns `false` if it was in none.
    ///
    /// An item of a long list is in no set before its turn.
    pub(super) fn remove_task(&mut self, task: Task, state: &StepState) -> bool {
        match state {
            StepState::Pending => {
                self.undoing.take_if(|next| *next == task).is_some()
                    || self.ready.remove(&task)
                    || self.asking.remove(&task)
                    || self.gated.remove(&task)
                    || (task.part.is_whole()
                        && (self.judging.remove(&task.step) || self.doomed.remove(&task.step)))
            }
            StepState::Running { how, .. } => {
                match how {
                    AttemptKind::Calling => (),
                    AttemptKind::Sleeping { until } => drop(self.sleeping.remove(&(*until, task))),
                    AttemptKind::Executing { .. } => drop(self.delegated.remove(&task)),
                }
                self.running.remove(&task)
            }
            StepState::Gathering { .. } => {
                self.gathered.remove(&task.step);
                self.gathering.remove(&task.step)
            }
            StepState::Retrying { until, .. } => {
                self.retrying.remove(&(*until, task)) || self.gated.remove(&task)
            }
            StepState::Waiting(reason) => {
                self.stop_awaiting(task, reason);
                self.waiting.remove(&task)
            }
            _ => false,
        }
    }

    /// Adds a task to the set of its state. A pending task is added by
    /// [`unblock_task`](Self::unblock_task).
    pub(super) fn insert_task(&mut self, task: Task, state: &StepState) {
        match state {
            StepState::Pending => (),
            StepState::Running { how, .. } => {
                match how {
                    AttemptKind::Calling => (),
                    AttemptKind::Sleeping { until } => drop(self.sleeping.insert((*until, task))),
                    AttemptKind::Executing { .. } => drop(self.delegated.insert(task)),
                }
                self.running.insert(task);
            }
            StepState::Gathering { .. } => drop(self.gathering.insert(task.step)),
            StepState::Retrying { until, .. } => drop(self.retrying.insert((*until, task))),
            StepState::Waiting(reason) => {
                if let WaitReason::Signal { name, until } = reason {
                    self.awaiting.entry(name.clone()).or_default().insert(task);
                    self.expiring.extend(until.map(|until| (until, task)));
                }
                self.waiting.insert(task);
            }
            _ => self.close_task(task),
        }
    }

    fn stop_awaiting(&mut self, task: Task, reason: &WaitReason) {
        let WaitReason::Signal { name, until } = reason else { return };
        if let Some(tasks) = self.awaiting.get_mut(name) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.awaiting.remove(name);
            }
        }
        if let Some(until) = until {
            self.expiring.remove(&(*until, task));
        }
    }

    /// Counts a finished task. Compensations are not counted here, because `undoable` holds them.
    fn close_task(&mut self, task: Task) {
        self.open -= usize::from(!task.part.undo);
    }

    pub(super) fn expect_items(&mut self, items: usize) {
        self.open += items;
    }

    pub(super) fn mark_gathered(&mut self, step: StepNumber) {
        self.gathered.insert(step);
    }

    pub(super) fn unblock_task(&mut self, task: Task, asks_first: bool) {
        if asks_first {
            self.asking.insert(task)
        } else {
            self.ready.insert(task)
        };
    }

    pub(super) fn add_judging(&mut self, step: StepNumber) {
        self.judging.insert(step);
    }

    /// Removes a step from those whose condition must be evaluated. Returns `false` if it was not
    /// there.
    pub(super) fn remove_judging(&mut self, step: StepNumber) -> bool {
        self.judging.remove(&step)
    }

    pub(super) fn gate_task(&mut self, task: Task, state: &StepState) {
        if self.remove_task(task, state) {
            self.gated.insert(task);
        }
    }

    pub(super) fn set_undoing(&mut self, task: Option<Task>) {
        self.undoing = task;
    }

    pub(super) fn doom_step(&mut self, step: StepNumber) {
        self.doomed.insert(step);
    }

    /// Returns the steps whose conditions can be evaluated, in plan order.
    pub fn conditional(&self) -> &BTreeSet<StepNumber> {
        &self.judging
    }

    /// Returns the tasks that first wait for an approval or a signal, in plan order.
    pub fn needs_approval(&self) -> &BTreeSet<Task> {
        &self.asking
    }

    /// Returns the tasks that may start now, in plan order.
    pub fn ready(&self) -> &BTreeSet<Task> {
        &self.ready
    }

    /// Returns the tasks that may start when they get a permit, in plan order.
    pub fn waiting_for_permit(&self) -> &BTreeSet<Task> {
        &self.gated
    }

    /// Returns the steps that will be skipped, in plan order.
    pub fn to_skip(&self) -> &BTreeSet<StepNumber> {
        &self.doomed
    }

    /// Returns the running tasks, sleeping ones included.
    pub fn running(&self) -> &BTreeSet<Task> {
        &self.running
    }

    /// Returns the tasks that only wait for a time, earliest first.
    pub fn sleeping(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.sleeping
    }

    /// Returns the tasks whose work is done by child executions.
    pub fn in_children(&self) -> &BTreeSet<Task> {
        &self.delegated
    }

    /// Returns the tasks to retry, earliest first.
    pub fn retrying(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.retrying
    }

    /// Returns the tasks that wait for a person or a signal.
    pub fn waiting(&self) -> &BTreeSet<Task> {
        &self.waiting
    }

    /// Returns the first task in plan order that waits for the signal `name`.
    pub fn first_awaiting(&self, name: &str) -> Option<Task> {
        self.awaiting.get(name)?.first().copied()
    }

    /// Returns the tasks that wait for a signal for a limited time, earliest first.
    pub fn expiring(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.expiring
    }

    /// Returns the tasks that wait for a time, and the ends of their waits.
    pub(super) fn timed_waits(&self) -> impl Iterator<Item = (Timestamp, Task)> {
        self.sleeping.iter().chain(&self.retrying).chain(&self.expiring).copied()
    }

    /// Returns the steps whose items are all finished.
    pub fn items_finished(&self) -> &BTreeSet<StepNumber> {
        &self.gathered
    }

    /// Returns the next task to undo, if it has not started and does not wait for a permit.
    pub fn undoing(&self) -> Option<Task> {
        self.undoing
    }

    /// Returns the first ready task. Whole steps come before items, so that a long list does not
    /// delay other steps.
    pub fn first_ready(&self) -> Option<Task> {
        let first = self.ready.first().copied();
        let mut next = first;
        while let Some(task) = next {
            if task.part.item.is_none() {
                return next;
            }
            next = self.ready.range(Task::from(task.step.next())..).next().copied();
        }
        first
    }

    /// Returns `true` if every step is finished.
    pub fn is_finished(&self) -> bool {
        self.open == 0
    }

    /// Returns `true` if a task is open that does not run and is not a list.
    pub fn has_waiting_tasks(&self) -> bool {
        self.open > self.running.len() + self.gathering.len()
    }

    /// Returns `true` if a running task does more than wait for a time or a child execution.
    pub fn has_calls(&self) -> bool {
        self.running.len() > self.sleeping.len() + self.delegated.len()
    }

    /// Returns `true` if there is work that can begin.
    pub fn has_work(&self) -> bool {
        !(self.judging.is_empty()
            && self.ready.is_empty()
            && self.asking.is_empty()
            && self.gated.is_empty()
            && self.gathered.is_empty()
            && self.doomed.is_empty()
            && self.undoing.is_none())
    }

    /// Returns `true` if nothing runs and nothing can begin.
    pub fn only_waits(&self) -> bool {
        self.running.is_empty()
            && !self.has_work()
            && !(self.waiting.is_empty() && self.retrying.is_empty())
    }
}
