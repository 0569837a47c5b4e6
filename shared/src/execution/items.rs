//! The items of a list, each of which a step is done for.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::step::{Step, StepState};
use crate::plan::OnError;

/// The items of a list, each of which a step is done for.
///
/// They get their turns in order, so many at a time as the step says; one that waits for somebody
/// lets the next one begin, and has its turn again before those that never had one.
#[derive(Clone, Debug)]
pub struct Items {
    pub(super) tasks: Vec<Step>,
    /// The first that never had its turn.
    next: u32,
    /// Those that had their turn, waited for somebody and go on.
    returned: BTreeSet<u32>,
    /// How many have their turn.
    held: u32,
    /// How many are not over.
    open: u32,
    /// How many wait for somebody.
    waiting: u32,
    /// The first that failed.
    pub(super) failed: Option<u32>,
}

impl Items {
    pub(super) fn new(n: u32) -> Self {
        let tasks = (0..n).map(|_| Step::new(0)).collect();
        Self {
            tasks,
            next: 0,
            returned: BTreeSet::new(),
            held: 0,
            open: n,
            waiting: 0,
            failed: None,
        }
    }

    /// Returns the items, in order.
    pub fn all(&self) -> &[Step] {
        &self.tasks
    }

    /// Returns the item at a place.
    pub fn get(&self, index: u32) -> Option<&Step> {
        self.tasks.get(index as usize)
    }

    /// Returns the first that failed, by time.
    pub fn first_failed(&self) -> Option<u32> {
        self.failed
    }

    /// Returns how many are over.
    pub fn n_over(&self) -> usize {
        self.tasks.len() - self.open as usize
    }

    /// Returns whether all are over.
    pub fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Returns whether what is left of them only waits for somebody.
    pub fn only_waits(&self) -> bool {
        !self.is_over() && self.waiting == self.open
    }

    /// Counts an item that goes from one state to another.
    pub(super) fn count(&mut self, before: &StepState, after: &StepState) {
        self.waiting += u32::from(matches!(after, StepState::Waiting(_)));
        self.waiting -= u32::from(matches!(before, StepState::Waiting(_)));
    }

    /// Returns the list that the items have returned, once all are over.
    pub(super) fn gathered(&self, on_error: OnError) -> Option<Arc<Value>> {
        let returned = self.tasks.iter().filter_map(|item| match &item.state {
            StepState::Succeeded(output) => Some((**output).clone()),
            StepState::Failed(_) if on_error == OnError::Ignore => Some(Value::Null),
            _ => None,
        });
        self.is_over().then(|| Arc::new(returned.collect()))
    }

    pub(super) fn close(&mut self) {
        self.open -= 1;
    }

    /// Ends the turn of an item.
    pub(super) fn let_go(&mut self) {
        self.held -= 1;
    }

    /// Keeps an item for another turn.
    pub(super) fn give_back(&mut self, index: u32) {
        self.returned.insert(index);
    }

    /// Gives the next item its turn, if there is one and fewer than `width` have theirs.
    pub(super) fn release(&mut self, width: u32) -> Option<u32> {
        if self.held >= width {
            return None;
        }
        let next = self.first_returned().or_else(|| self.first_pending())?;
        self.held += 1;
        Some(next)
    }

    /// One that came back may have been stopped before it had its turn again.
    fn first_returned(&mut self) -> Option<u32> {
        while let Some(index) = self.returned.pop_first() {
            if self.get(index).is_some_and(|it| it.state == StepState::Pending) {
                return Some(index);
            }
        }
        None
    }

    fn first_pending(&mut self) -> Option<u32> {
        while let Some(task) = self.tasks.get(self.next as usize) {
            self.next += 1;
            if task.state == StepState::Pending {
                return Some(self.next - 1);
            }
        }
        None
    }
}
