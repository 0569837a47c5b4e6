//! What is to be done next: the tasks by what they wait for.
//!
//! Kept up to date event by event, so that nobody ever searches a plan for work.

use std::collections::{BTreeMap, BTreeSet};

use super::step::{How, StepState};
use crate::{
    clock::Timestamp,
    event::WaitReason,
    id::{StepIx, Task},
};

/// The tasks that are not over, by what they wait for.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    /// Pending, and all that it depends on is over, but whether its condition holds is not known.
    judging: BTreeSet<StepIx>,
    /// Pending, and all that it depends on lets it go on: to be called, which takes a slot.
    ready: BTreeSet<Task>,
    /// The same, but first somebody must agree or send a signal, which takes no slot.
    asking: BTreeSet<Task>,
    /// The same as ready, or due for another try, but its tool has a limit that others share.
    gated: BTreeSet<Task>,
    /// Pending, and something that it depends on ended so that it will not run.
    doomed: BTreeSet<StepIx>,
    /// Under way.
    running: BTreeSet<Task>,
    /// Under way, and only a time ends it.
    sleeping: BTreeSet<(Timestamp, Task)>,
    /// Under way, in an execution of its own.
    delegated: BTreeSet<Task>,
    /// To be tried again, from a time on.
    retrying: BTreeSet<(Timestamp, Task)>,
    /// Waiting for somebody.
    waiting: BTreeSet<Task>,
    /// Those of them that wait for a signal, by its name.
    awaiting: BTreeMap<String, BTreeSet<Task>>,
    /// Those of them that do so only until a time.
    expiring: BTreeSet<(Timestamp, Task)>,
    /// Steps whose items are under way.
    gathering: BTreeSet<StepIx>,
    /// Those of them whose items are all over.
    gathered: BTreeSet<StepIx>,
    /// What is undone next, where that has not begun.
    undoing: Option<Task>,
    /// How many are not over.
    open: usize,
}

impl Agenda {
    pub(super) fn new(steps: usize) -> Self {
        Self { open: steps, ..Self::default() }
    }

    /// Takes a task from where its state puts it. Returns whether it was there: an item of a long
    /// list is nowhere before its turn.
    pub(super) fn leave(&mut self, task: Task, state: &StepState) -> bool {
        match state {
            StepState::Pending => {
                self.undoing.take_if(|it| *it == task).is_some()
                    || self.ready.remove(&task)
                    || self.asking.remove(&task)
                    || self.gated.remove(&task)
                    || (task.part.is_whole()
                        && (self.judging.remove(&task.step) || self.doomed.remove(&task.step)))
            }
            StepState::Running { how, .. } => {
                match how {
                    How::Calling => (),
                    How::Sleeping { until } => drop(self.sleeping.remove(&(*until, task))),
                    How::Executing { .. } => drop(self.delegated.remove(&task)),
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
                self.forget(task, reason);
                self.waiting.remove(&task)
            }
            _ => false,
        }
    }

    /// Puts a task where its state belongs. One that is pending is [unblocked](Self::unblock).
    pub(super) fn enter(&mut self, task: Task, state: &StepState) {
        match state {
            StepState::Pending => (),
            StepState::Running { how, .. } => {
                match how {
                    How::Calling => (),
                    How::Sleeping { until } => drop(self.sleeping.insert((*until, task))),
                    How::Executing { .. } => drop(self.delegated.insert(task)),
                }
                self.running.insert(task);
            }
            StepState::Gathering { .. } => drop(self.gathering.insert(task.step)),
            StepState::Retrying { until, .. } => drop(self.retrying.insert((*until, task))),
            StepState::Waiting(reason) => {
                if let WaitReason::Signal { name, until } = reason {
                    self.awaiting.entry(name.clone()).or_default().insert(task);
                    self.expiring.extend(until.map(|it| (it, task)));
                }
                self.waiting.insert(task);
            }
            _ => self.close(task),
        }
    }

    /// Says that a task does not wait for a signal any more.
    fn forget(&mut self, task: Task, reason: &WaitReason) {
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

    /// What undoes a task is counted by what there is to undo.
    fn close(&mut self, task: Task) {
        self.open -= usize::from(!task.part.undo);
    }

    /// Counts the items of a list.
    pub(super) fn expect(&mut self, items: usize) {
        self.open += items;
    }

    /// Says that every item of a step is over.
    pub(super) fn gather(&mut self, step: StepIx) {
        self.gathered.insert(step);
    }

    /// Says that everything a pending task depends on lets it go on.
    pub(super) fn unblock(&mut self, task: Task, asks_first: bool) {
        if asks_first {
            self.asking.insert(task)
        } else {
            self.ready.insert(task)
        };
    }

    /// Says that everything a pending step with a condition depends on is over.
    pub(super) fn judge(&mut self, step: StepIx) {
        self.judging.insert(step);
    }

    /// Says that the condition of a step holds. Returns whether it was asked for.
    pub(super) fn admit(&mut self, step: StepIx) -> bool {
        self.judging.remove(&step)
    }

    /// Says that a task needs a permit before it begins.
    pub(super) fn gate(&mut self, task: Task, state: &StepState) {
        if self.leave(task, state) {
            self.gated.insert(task);
        }
    }

    /// Says what is undone next.
    pub(super) fn undo(&mut self, task: Option<Task>) {
        self.undoing = task;
    }

    /// Says that a pending step will not run.
    pub(super) fn doom(&mut self, step: StepIx) {
        self.doomed.insert(step);
    }

    /// Returns the steps whose conditions can be judged, in plan order.
    pub fn judging(&self) -> &BTreeSet<StepIx> {
        &self.judging
    }

    /// Returns the tasks that may begin once somebody was asked, in plan order.
    pub fn asking(&self) -> &BTreeSet<Task> {
        &self.asking
    }

    /// Returns the tasks that may begin now, in plan order.
    pub fn ready(&self) -> &BTreeSet<Task> {
        &self.ready
    }

    /// Returns the tasks that may begin once there is a permit, in plan order.
    pub fn gated(&self) -> &BTreeSet<Task> {
        &self.gated
    }

    /// Returns the steps that will not run because of another's end, in plan order.
    pub fn doomed(&self) -> &BTreeSet<StepIx> {
        &self.doomed
    }

    /// Returns the tasks that are under way, sleeping ones included.
    pub fn running(&self) -> &BTreeSet<Task> {
        &self.running
    }

    /// Returns the tasks that only a time ends, the next first.
    pub fn sleeping(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.sleeping
    }

    /// Returns the tasks that are under way in executions of their own.
    pub fn delegated(&self) -> &BTreeSet<Task> {
        &self.delegated
    }

    /// Returns the tasks to be tried again, the next first.
    pub fn retrying(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.retrying
    }

    /// Returns the tasks that wait for somebody.
    pub fn waiting(&self) -> &BTreeSet<Task> {
        &self.waiting
    }

    /// Returns the first task in plan order that waits for a signal of this name.
    pub fn first_awaiting(&self, name: &str) -> Option<Task> {
        self.awaiting.get(name)?.first().copied()
    }

    /// Returns the tasks that wait for a signal only until a time, the next first.
    pub fn expiring(&self) -> &BTreeSet<(Timestamp, Task)> {
        &self.expiring
    }

    /// Returns the steps whose items are all over.
    pub fn gathered(&self) -> &BTreeSet<StepIx> {
        &self.gathered
    }

    /// Returns what is undone next, where that has not begun and waits for no permit.
    pub fn undoing(&self) -> Option<Task> {
        self.undoing
    }

    /// Returns the first task that is ready, whole steps before items: a long list must not keep
    /// the steps beside it from beginning.
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

    /// Returns whether every step is over.
    pub fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Returns whether tasks are open that are neither under way nor made of tasks.
    pub fn has_idle(&self) -> bool {
        self.open > self.running.len() + self.gathering.len()
    }

    /// Returns whether tasks run that do more than wait for a time or for another execution.
    pub fn has_calls(&self) -> bool {
        self.running.len() > self.sleeping.len() + self.delegated.len()
    }

    /// Returns whether something may begin, now or once somebody was asked.
    pub fn has_work(&self) -> bool {
        !(self.judging.is_empty()
            && self.ready.is_empty()
            && self.asking.is_empty()
            && self.gated.is_empty()
            && self.gathered.is_empty()
            && self.doomed.is_empty()
            && self.undoing.is_none())
    }

    /// Returns whether nothing runs and nothing is about to.
    pub fn only_waits(&self) -> bool {
        self.running.is_empty()
            && !self.has_work()
            && !(self.waiting.is_empty() && self.retrying.is_empty())
    }
}
