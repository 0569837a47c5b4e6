//! Permits: what keeps the calls of a tool within a limit that every node shares.
//!
//! A permit is taken before a task starts, so that what waits for one is not under way and holds
//! nothing, and given back once its attempt has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shared::{
    execution::{ExecutionMode, Phase},
    id::Task,
};

use super::{Driver, calls::Done};
use crate::{
    machine::{self, Input},
    permits::Granted,
};

/// The most permits that one execution asks for at the same time.
const ASKED: usize = 256;

/// What a driver knows of the permits of its tasks.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// Tasks whose permits are asked for.
    asked: BTreeSet<Task>,
    /// Permits of tasks that are under way.
    granted: BTreeMap<Task, Granted>,
}

impl Driver {
    /// Asks for the permits of what could begin if it had them.
    pub(super) fn ask_for_permits(&mut self) {
        if self.execution.agenda().gated().is_empty() || !self.may_begin() {
            return;
        }
        let agenda = self.execution.agenda();
        // What has no slot would have to give its permit back, only to ask again.
        let slots = self.execution.options().width().saturating_sub(agenda.running().len());
        if slots == 0 && self.execution.phase() == Phase::Open {
            return;
        }
        // One whose limit is full must not keep one with another limit from asking; but one at a
        // time, nothing overtakes.
        let is_sequential = self.execution.options().mode == ExecutionMode::Sequential;
        let most = if is_sequential { 1 } else { ASKED };
        let room = most.saturating_sub(self.gates.asked.len());
        let asked = &self.gates.asked;
        let wanted = agenda.gated().iter().filter(|it| !asked.contains(it));
        let wanted: Vec<Task> = wanted.take(room).copied().collect();
        for task in wanted {
            self.ask_for_permit(task);
        }
    }

    fn may_begin(&self) -> bool {
        let is_open = match self.execution.phase() {
            Phase::Open => !self.execution.is_paused(),
            Phase::Compensating(_) => true,
            _ => false,
        };
        is_open && !self.is_draining && !self.lacks_tools && !self.is_lease_doubtful()
    }

    fn ask_for_permit(&mut self, task: Task) {
        let plan = self.execution.plan();
        let tool = plan.step(task.step).callee(task.part).tool;
        let limits =
            self.context.options.calls.of(tool, &machine::parameters(&self.execution, task));
        let holder = machine::holder(&self.execution, task);
        let priority = self.execution.options().priority;
        let permits = Arc::clone(&self.context.permits);
        let drain = self.context.drain.clone();
        self.gates.asked.insert(task);
        self.attempts.spawn(async move {
            tokio::select! {
                biased;
                permit = permits.acquire(holder, limits, priority) => Done::Permitted(task, permit),
                // Nothing begins here any more: what waits is for others, and now.
                () = drain.cancelled() => Done::Nothing,
            }
        });
    }

    /// Begins what there is a permit for, or gives that back where it may not begin any more.
    pub(super) fn permitted(&mut self, task: Task, permit: Granted) {
        self.gates.asked.remove(&task);
        let was_gated = self.execution.agenda().gated().contains(&task);
        self.gates.granted.insert(task, permit);
        self.decide(Input::Permitted(task));
        if !was_gated || !self.execution.agenda().running().contains(&task) {
            self.release(task);
        }
    }

    /// Gives back the permit of a task, if it has one.
    pub(super) fn release(&mut self, task: Task) {
        self.gates.granted.remove(&task);
    }
}
