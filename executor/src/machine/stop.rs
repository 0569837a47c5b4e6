//! Stops an execution after a failed step, at its deadline, or after a cancel command. Then undoes
//! its succeeded steps that have a compensation, the latest first, if the execution compensates.

use shared::{
    event::{Event, SkipReason, WaitReason},
    execution::{Phase, Step, StepState},
    id::{Attempt, StepNumber, Task},
    tool::{ErrorCode, ToolError},
};

use super::{Decision, deadline_error};

impl Decision<'_> {
    pub(super) fn check_deadline(&mut self) {
        let may_expire = matches!(self.execution.phase(), Phase::Open | Phase::Failing);
        let is_up = self.execution.deadline().is_some_and(|deadline| deadline <= self.context.now);
        if may_expire && is_up {
            self.record_event(Event::DeadlinePassed);
        }
    }

    /// Fails the tasks that would start or be undone next, because the events of a start are too
    /// large for the store. The caller has just claimed the execution, so no call is running.
    pub(super) fn fail_unwritable(&mut self, error: &ToolError) {
        let agenda = self.execution.agenda();
        let retrying = agenda.retrying().iter().map(|(_, task)| *task);
        let started_tasks: Vec<Task> =
            agenda.ready().iter().copied().chain(retrying).chain(agenda.undoing()).collect();
        if started_tasks.is_empty() && self.execution.phase() == Phase::Open {
            self.record_event(Event::ExecutionFailed { error: error.clone() });
        }
        for task in started_tasks {
            let attempt = self.execution.task(task).map_or(Attempt::FIRST, Step::next_attempt);
            self.fail_unstarted(task, attempt, error.clone());
        }
    }

    /// Ends the tasks that are not running, once the execution stops.
    ///
    /// After a cancel command or at the deadline, sleeps end here, too, because they have no call
    /// that the driver can cancel.
    pub(super) fn stop_idle_tasks(&mut self) {
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
        for index in 0..self.execution.steps().len() {
            self.stop_if_idle(StepNumber::new(index).into(), phase);
        }
    }

    fn stop_if_idle(&mut self, task: Task, phase: Phase) {
        match self.task_state(task) {
            Some(StepState::Gathering { .. }) => {
                let items = self.execution.step(task.step).items.as_deref();
                let items = items.map_or(0, |items| items.as_slice().len());
                for index in (0..items).filter_map(|index| u32::try_from(index).ok()) {
                    self.stop_if_idle(task.for_item(index), phase);
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
            (Phase::Cancelling, StepState::Waiting(WaitReason::Decision { error }))
                if error.code == ErrorCode::OUTCOME_UNKNOWN =>
            {
                Some(error.clone())
            }
            (Phase::Expired, StepState::Waiting(WaitReason::Decision { error }))
                if error.code == ErrorCode::OUTCOME_UNKNOWN =>
            {
                let reason = format!("{}; {}", deadline_error().message, error.message);
                Some(ToolError::outcome_unknown(&reason))
            }
            (Phase::Cancelling, _) | (_, StepState::Pending) => None,
            (Phase::Expired, _) => Some(deadline_error()),
            (_, StepState::Retrying { error, .. }) => {
                Some(error.clone().unwrap_or_else(interrupted_error))
            }
            (_, StepState::Waiting(WaitReason::Decision { error })) => Some(error.clone()),
            _ => None,
        };
        let (step, part) = (self.step_id(task), task.part);
        let reason = SkipReason::ExecutionFailed;
        self.record_event(match (phase, error) {
            (_, Some(error)) => Event::StepFailed { step, part, attempt, error, command: None },
            (Phase::Cancelling, None) => Event::StepCancelled { step, part },
            (_, None) => Event::StepSkipped { step, part, reason },
        });
    }

    pub(super) fn compensate_next(&mut self) {
        let is_due = match self.execution.phase() {
            Phase::Failing => !self.commands_follow,
            Phase::Expired | Phase::Cancelling => true,
            Phase::Open | Phase::Compensating(_) | Phase::Finished(_) => false,
        };
        let has_done = !self.execution.undoable().is_empty();
        if is_due && has_done && self.execution.agenda().is_finished() && !self.has_completed() {
            self.record_event(Event::CompensationStarted);
        }
        if let Phase::Compensating(_) = self.execution.phase()
            && self.context.is_start_allowed
            && let Some(task) = self.next_compensation()
        {
            if self.execution.is_limited(task) {
                self.execution.set_task_aside(task);
            } else {
                self.start_task(task);
            }
        }
    }

    /// Returns whether the execution ran to its end after its deadline. In this case no step is
    /// undone.
    fn has_completed(&self) -> bool {
        self.execution.phase() == Phase::Expired && self.has_run_to_end()
    }

    fn next_compensation(&self) -> Option<Task> {
        let agenda = self.execution.agenda();
        let due = agenda.retrying().first().filter(|(until, _)| *until <= self.context.now);
        agenda.undoing().or(due.map(|(_, task)| *task))
    }
}

fn interrupted_error() -> ToolError {
    ToolError::new(
        ErrorCode::UNAVAILABLE,
        "the worker was lost, and the execution failed before the step could run again",
    )
}
