//! The items of a list that a step repeats for.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::step::{Step, StepState};
use crate::plan::OnError;

/// The items of a list that a step repeats for. The step limits how many items have a turn at the
/// same time, and an item that waits for a person or a signal gives up its turn.
#[derive(Clone, Debug)]
pub struct Items {
    pub(super) tasks: Vec<Step>,
    /// Index of the first item that never had a turn.
    next_index: u32,
    /// Items that waited for a person or a signal and can continue.
    returned: BTreeSet<u32>,
    held_turn_count: u32,
    open_count: u32,
    waiting_count: u32,
    sleeping_count: u32,
    pub(super) first_failed_index: Option<u32>,
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Items {
    pub(super) fn new(n: u32) -> Self {
        let tasks = (0..n).map(|_| Step::new(0)).collect();
        Self {
            tasks,
            next_index: 0,
            returned: BTreeSet::new(),
            held_turn_count: 0,
            open_count: n,
            waiting_count: 0,
            sleeping_count: 0,
            first_failed_index: None,
        }
    }

    pub fn as_slice(&self) -> &[Step] {
        &self.tasks
    }

    pub fn get(&self, index: u32) -> Option<&Step> {
        self.tasks.get(index as usize)
    }

    /// Returns the index of the item that failed first.
    pub fn first_failed(&self) -> Option<u32> {
        self.first_failed_index
    }

    pub fn finished_count(&self) -> usize {
        self.tasks.len() - self.open_count as usize
    }

    pub fn is_finished(&self) -> bool {
        self.open_count == 0
    }

    /// Returns `true` if unfinished items are left and all of them wait for a person or a signal.
    pub fn only_waits(&self) -> bool {
        !self.is_finished() && self.waiting_count == self.open_count
    }

    /// Returns `true` if unfinished items are left and all of them wait or sleep.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_finished() && self.waiting_count + self.sleeping_count == self.open_count
    }

    pub(super) fn count_waiting(&mut self, before: &StepState, after: &StepState) {
        self.waiting_count += u32::from(matches!(after, StepState::Waiting(_)));
        self.waiting_count -= u32::from(matches!(before, StepState::Waiting(_)));
        self.sleeping_count += u32::from(after.is_sleeping());
        self.sleeping_count -= u32::from(before.is_sleeping());
    }

    pub(super) fn collect_outputs(&self, on_error: OnError) -> Option<Arc<Value>> {
        let returned = self.tasks.iter().filter_map(|item| match &item.state {
            StepState::Succeeded(output) => Some((**output).clone()),
            StepState::Failed(_) if on_error == OnError::Ignore => Some(Value::Null),
            _ => None,
        });
        self.is_finished().then(|| Arc::new(returned.collect()))
    }

    pub(super) fn count_finished(&mut self) {
        self.open_count -= 1;
    }

    pub(super) fn end_turn(&mut self) {
        self.held_turn_count -= 1;
    }

    pub(super) fn requeue_item(&mut self, index: u32) {
        self.returned.insert(index);
    }

    /// Gives the next item a turn and returns its index, if fewer than `width` items have a turn.
    pub(super) fn start_turn(&mut self, width: u32) -> Option<u32> {
        if self.held_turn_count >= width {
            return None;
        }
        let next = self.next_returned().or_else(|| self.next_pending())?;
        self.held_turn_count += 1;
        Some(next)
    }

    fn next_returned(&mut self) -> Option<u32> {
        while let Some(index) = self.returned.pop_first() {
            if self.get(index).is_some_and(|item| item.state == StepState::Pending) {
                return Some(index);
            }
        }
        None
    }

    fn next_pending(&mut self) -> Option<u32> {
        while let Some(task) = self.tasks.get(self.next_index as usize) {
            self.next_index += 1;
            if task.state == StepState::Pending {
                return Some(self.next_index - 1);
            }
        }
        None
    }
}
