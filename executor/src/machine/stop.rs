//! Executions stop: a step failed that must not, the time was up, or somebody asked.

use shared::{
    event::{Event, SkipReason, WaitReason},
    execution::{Phase, Step, StepState},
    id::{Attempt, StepNumber, Task},
    tool::{ErrorCode, ToolError},
};

use super::{Turn, deadline};

impl Turn<'_> {
    /// Notes that the execution's time is up.
    pub(super) fn expire(&mut self) {
        let may_expire = matches!(self.execution.phase(), Phase::Open | Phase::Failing);
        let is_up = self.execution.deadline().is_some_and(|it| it <= self.moment.now);
        if may_expire && is_up {
            self.push(Event::DeadlinePassed);
        }
    }

    /// Fails the tasks that were about to begin, or the execution if there are none: what comes next
    /// cannot be written. It follows a claim, so no call is under way.
    pub(super) fn end_unwritten(&mut self, error: &ToolError) {
        let agenda = self.execution.agenda();
        let retrying = agenda.retrying().iter().map(|(_, task)| *task);
        let begun: Vec<Task> =
            agenda.ready().iter().copied().chain(retrying).chain(agenda.undoing()).collect();
        if begun.is_empty() && self.execution.phase() == Phase::Open {
            self.push(Event::ExecutionFailed { error: error.clone() });
        }
        for task in begun {
            let attempt = self.execution.task(task).map_or(Attempt::FIRST, Step::next_attempt);
            self.fail_unstarted(task, attempt, error.clone());
        }
    }

    /// Ends everything that is not under way, once no further step may begin. What is under way
    /// is awaited; where that is not to last, the driver tells it to stop. A sleep is under way
    /// nowhere else: it ends at once then.
    pub(super) fn stop(&mut self) {
        let phase = self.execution.phase();
        let is_stopping = matches!(phase, Phase::Failing | Phase::Expired | Phase::Cancelling);
        if matches!(phase, Phase::Expired | Phase::Cancelling) {
            let sleeping = self.execution.agenda().sleeping().iter();
            let sleeping: Vec<Task> = sleeping.map(|(_, task)| *task).collect();
            for task in sleeping {
                self.stop_task(task, phase);
            }
        }
        if !is_stopping || !self.execution.agenda().has_waiting_tasks() {
            return;
        }
        for at in 0..self.execution.steps().len() {
            self.stop_idle(StepNumber::new(at).into(), phase);
        }
    }

    /// Ends a step that is not under way, and of one whose items are, those that are not.
    fn stop_idle(&mut self, task: Task, phase: Phase) {
        match self.state(task) {
            Some(StepState::Gathering { .. }) => {
                let items = self.execution.step(task.step).items.as_deref();
                let items = items.map_or(0, |it| it.as_slice().len());
                for index in (0..items).filter_map(|it| u32::try_from(it).ok()) {
                    self.stop_idle(task.for_item(index), phase);
                }
            }
            Some(StepState::Running { .. }) | None => (),
            Some(state) if state.is_finished() => (),
            Some(_) => self.stop_task(task, phase),
        }
    }

    fn stop_task(&mut self, task: Task, phase: Phase) {
        let Some(Step { state, attempts, .. }) = self.execution.task(task) else { return };
        let attempt = Attempt::nth_after(attempts.saturating_sub(1));
        let error = match (phase, state) {
            (Phase::Cancelling, _) | (_, StepState::Pending) => None,
            (Phase::Expired, _) => Some(deadline()),
            (_, StepState::Retrying { error, .. }) => {
                Some(error.clone().unwrap_or_else(interrupted))
            }
            (_, StepState::Waiting(WaitReason::Decision { error })) => Some(error.clone()),
            _ => None,
        };
        let (step, part) = (self.id(task), task.part);
        let reason = SkipReason::ExecutionFailed;
        self.push(match (phase, error) {
            (Phase::Cancelling, _) => Event::StepCancelled { step, part },
            (_, Some(error)) => Event::StepFailed { step, part, attempt, error, command: None },
            (_, None) => Event::StepSkipped { step, part, reason },
        });
    }
}

fn interrupted() -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, "the worker was lost, and the execution failed since")
}
