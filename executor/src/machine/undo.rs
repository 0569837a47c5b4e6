//! Compensation: where an execution does not end well, what it did is undone, the latest first.

use shared::{event::Event, execution::Phase, id::Task};

use super::Turn;

impl Turn<'_> {
    /// Undoes what was done, one thing after another.
    pub(super) fn undo(&mut self) {
        let is_due = match self.execution.phase() {
            Phase::Failing | Phase::Expired | Phase::Cancelling => true,
            Phase::Open | Phase::Compensating(_) | Phase::Finished(_) => false,
        };
        let has_done = !self.execution.undoable().is_empty();
        if is_due && has_done && self.execution.agenda().is_finished() && !self.has_done_all() {
            self.push(Event::CompensationStarted);
        }
        if let Phase::Compensating(_) = self.execution.phase()
            && self.moment.may_start
            && let Some(task) = self.next_to_undo()
        {
            if self.execution.is_limited(task) {
                self.execution.set_task_aside(task);
            } else {
                self.start_task(task);
            }
        }
    }

    /// The time was up, but everything that was asked for is done.
    fn has_done_all(&self) -> bool {
        self.execution.phase() == Phase::Expired && self.came_to_its_end()
    }

    /// Returns what is undone next, if nothing is being undone and its time has come.
    fn next_to_undo(&self) -> Option<Task> {
        let agenda = self.execution.agenda();
        let due = agenda.retrying().first().filter(|(until, _)| *until <= self.moment.now);
        agenda.undoing().or(due.map(|(_, task)| *task))
    }
}
