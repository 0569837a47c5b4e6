//! The agenda of an execution: tasks by the kind of work that they need next, so that the machine
//! does not search the plan for work after each event.

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
    to_evaluate: BTreeSet<StepNumber>,
    ready: BTreeSet<Task>,
    /// Pending tasks that first wait for an approval or a signal. Such a wait does not count as a
    /// running step.
    to_wait: BTreeSet<Task>,
    /// Tasks that are ready to start or retry, but need a permit first.
    without_permit: BTreeSet<Task>,
    /// Pending steps that will be skipped, because a dependency did not succeed.
    to_skip: BTreeSet<StepNumber>,
    running: BTreeSet<Task>,
    sleeping: BTreeSet<(Timestamp, Task)>,
    in_children: BTreeSet<Task>,
    retrying: BTreeSet<(Timestamp, Task)>,
    waiting: BTreeSet<Task>,
    /// Waiting tasks that wait for a signal, by the signal's name.
    awaiting_signal: BTreeMap<String, BTreeSet<Task>>,
    expiring: BTreeSet<(Timestamp, Task)>,
    steps_with_running_items: BTreeSet<StepNumber>,
    items_finished: BTreeSet<StepNumber>,
    /// The next compensation, if it has not started.
    undoing: Option<Task>,
    open_task_count: usize,
}

impl Agenda {
    pub(super) fn new(steps: usize) -> Self {
        Self { open_task_count: steps, ..Self::default() }
    }

    /// Removes a task from the set of its state. Returns `false` if it was in no set.
    ///
    /// An item of a long list is in no set before its turn.
    pub(super) fn remove_task(&mut self, task: Task, state: &StepState) -> bool {
        match state {
            StepState::Pending => {
                self.undoing.take_if(|next| *next == task).is_some()
                    || self.ready.remove(&task)
                    || self.to_wait.remove(&task)
                    || self.without_permit.remove(&task)
                    || (task.part.is_whole()
                        && (self.to_evaluate.remove(&task.step) || self.to_skip.remove(&task.step)))
            }
            StepState::Running { how, .. } => {
                match how {
                    AttemptKind::Calling => (),
                    AttemptKind::Sleeping { until } => drop(self.sleeping.remove(&(*until, task))),
                    AttemptKind::Executing { .. } => drop(self.in_children.remove(&task)),
                }
                self.running.remove(&task)
            }
            StepState::Gathering { .. } => {
                self.items_finished.remove(&task.step);
                self.steps_with_running_items.remove(&task.step)
            }
            StepState::Retrying { until, .. } => {
                self.retrying.remove(&(*until, task)) || self.without_permit.remove(&task)
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
                    AttemptKind::Executing { .. } => drop(self.in_children.insert(task)),
                }
                self.running.insert(task);
            }
            StepState::Gathering { .. } => drop(self.steps_with_running_items.insert(task.step)),
            StepState::Retrying { until, .. } => drop(self.retrying.insert((*until, task))),
            StepState::Waiting(reason) => {
                if let WaitReason::Signal { name, until } = reason {
                    self.awaiting_signal.entry(name.clone()).or_default().insert(task);
                    self.expiring.extend(until.map(|until| (until, task)));
                }
                self.waiting.insert(task);
            }
            _ => self.close_task(task),
        }
    }

    fn stop_awaiting(&mut self, task: Task, reason: &WaitReason) {
        let WaitReason::Signal { name, until } = reason else { return };
        if let Some(tasks) = self.awaiting_signal.get_mut(name) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.awaiting_signal.remove(name);
            }
        }
        if let Some(until) = until {
            self.expiring.remove(&(*until, task));
        }
    }

    /// Reduces the number of open tasks. A compensation is not in this number, because `undoable`
    /// lists the tasks that are still to be undone.
    fn close_task(&mut self, task: Task) {
        self.open_task_count -= usize::from(!task.part.undo);
    }

    pub(super) fn expect_items(&mut self, items: usize) {
        self.open_task_count += items;
    }

    pub(super) fn mark_items_finished(&mut self, step: StepNumber) {
        self.items_finished.insert(step);
    }

    pub(super) fn unblock_task(&mut self, task: Task, needs_wait: bool) {
        if needs_wait {
            self.to_wait.insert(task)
        } else {
            self.ready.insert(task)
        };
    }

    pub(super) fn add_condition(&mut self, step: StepNumber) {
        self.to_evaluate.insert(step);
    }

    pub(super) fn remove_condition(&mut self, step: StepNumber) -> bool {
        self.to_evaluate.remove(&step)
    }

    pub(super) fn hold_for_permit(&mut self, task: Task, state: &StepState) {
        if self.remove_task(task, state) {
            self.without_permit.insert(task);
        }
    }

    pub(super) fn set_undoing(&mut self, task: Option<Task>) {
        self.undoing = task;
    }

    pub(super) fn add_skip(&mut self, step: StepNumber) {
        self.to_skip.insert(step);
    }

    /// Returns the steps whose conditions can be evaluated, in plan order.
    pub fn to_evaluate(&self) -> &BTreeSet<StepNumber> {
        &self.to_evaluate
    }

    /// Returns the tasks that first wait for an approval or a signal, in plan order.
    pub fn to_wait(&self) -> &BTreeSet<Task> {
        &self.to_wait
    }

    /// Returns the tasks that can start now, in plan order.
    pub fn ready(&self) -> &BTreeSet<Task> {
        &self.ready
    }

    /// Returns the tasks that can start when they get a permit, in plan order.
    pub fn without_permit(&self) -> &BTreeSet<Task> {
        &self.without_permit
    }

    /// Returns the steps that will be skipped, in plan order.
    pub fn to_skip(&self) -> &BTreeSet<StepNumber> {
        &self.to_skip
    }

    /// Returns the running tasks, including tasks that sleep or wait for a child execution.
    pub fn running(&self) -> &BTreeSet<Task> {
        &self.running
    }

    /// Returns the tasks that only wait for a time, earliest first.
    pub fn sleeping(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.sleeping
    }

    /// Returns the tasks whose work is done by child executions.
    pub fn in_children(&self) -> &BTreeSet<Task> {
        &self.in_children
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
        self.awaiting_signal.get(name)?.first().copied()
    }

    /// Returns the tasks that wait for a signal for a limited time, earliest first.
    pub fn expiring(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.expiring
    }

    pub(super) fn timed_waits(&self) -> impl Iterator<Item = (Timestamp, Task)> {
        self.sleeping.iter().chain(&self.retrying).chain(&self.expiring).copied()
    }

    /// Returns the steps whose items are all finished.
    pub fn items_finished(&self) -> &BTreeSet<StepNumber> {
        &self.items_finished
    }

    /// Returns the next compensation, if it has not started and does not wait for a permit.
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
        self.open_task_count == 0
    }

    /// Returns `true` if an unfinished task neither runs nor is a step whose items run.
    pub fn has_waiting_tasks(&self) -> bool {
        self.open_task_count > self.running.len() + self.steps_with_running_items.len()
    }

    /// Returns `true` if a running task does more than wait for a time or a child execution.
    pub fn has_calls(&self) -> bool {
        self.running.len() > self.sleeping.len() + self.in_children.len()
    }

    /// Returns `true` if a task is ready for its next transition. A pause or a missing permit can
    /// still delay the task.
    pub fn has_work(&self) -> bool {
        !(self.to_evaluate.is_empty()
            && self.ready.is_empty()
            && self.to_wait.is_empty()
            && self.without_permit.is_empty()
            && self.items_finished.is_empty()
            && self.to_skip.is_empty()
            && self.undoing.is_none())
    }

    /// Returns `true` if no task runs, the machine can advance none, and at least one task waits or
    /// will be retried.
    pub fn only_waits(&self) -> bool {
        self.running.is_empty()
            && !self.has_work()
            && !(self.waiting.is_empty() && self.retrying.is_empty())
    }
}
