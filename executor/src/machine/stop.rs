//! Executions stop: a step failed that must not, the time was up, or somebody asked.

use shared::{
    event::{Event, SkipReason, WaitReason},
    execution::{Phase, StepState},
    id::{Attempt, StepIx},
    tool::{ErrorCode, ToolError},
};

use super::{Turn, deadline};

impl Turn<'_> {
    /// Notes that the execution's time is up.
    pub(super) fn expire(&mut self) {
        let may_expire = matches!(self.execution.phase(), Phase::Open | Phase::Failing);
        let is_up = self.execution.deadline().is_some_and(|it| it <= self.moment.now);
        if may_expire && is_up {
            let has_failed = self.execution.phase() == Phase::Failing;
            self.push(Event::DeadlinePassed);
            if !has_failed {
                self.blame();
            }
        }
    }

    /// Ends everything that is not under way, once no further step may begin. What is under way
    /// is awaited; the driver tells it to stop.
    pub(super) fn stop(&mut self) {
        let phase = self.execution.phase();
        let stops_sleep = matches!(phase, Phase::Cancelling | Phase::Expired);
        if stops_sleep {
            let sleeping = self.execution.agenda().sleeping().iter();
            let sleeping: Vec<StepIx> = sleeping.map(|(_, number)| *number).collect();
            for number in sleeping {
                self.stop_step(number, phase);
            }
        }
        let is_stopping = matches!(phase, Phase::Failing | Phase::Expired | Phase::Cancelling);
        if !is_stopping || !self.execution.agenda().has_idle() {
            return;
        }
        for at in 0..self.execution.steps().len() {
            let number = StepIx::new(at);
            let state = &self.execution.step(number).state;
            let is_idle = !state.is_over() && !matches!(state, StepState::Running { .. });
            if is_idle {
                self.stop_step(number, phase);
            }
        }
    }

    /// Where the time is up and nothing fails of it, the first step that did not begin does: an
    /// execution that fails says why.
    fn blame(&mut self) {
        let agenda = self.execution.agenda();
        let has_culprit = !agenda.sleeping().is_empty()
            || !agenda.retrying().is_empty()
            || !agenda.waiting().is_empty();
        if has_culprit || !agenda.has_idle() {
            return;
        }
        let steps = self.execution.steps().iter();
        let mut pending = steps.enumerate().filter(|(_, it)| it.state == StepState::Pending);
        if let Some((at, step)) = pending.next() {
            let attempt = step.next_attempt();
            self.fail_unstarted(StepIx::new(at), attempt, deadline());
        }
    }

    fn stop_step(&mut self, number: StepIx, phase: Phase) {
        let state = &self.execution.step(number).state;
        let attempt = Attempt::after(self.execution.step(number).attempts.saturating_sub(1));
        let error = match (phase, state) {
            (Phase::Cancelling, _) | (_, StepState::Pending) => None,
            (Phase::Expired, _) => Some(deadline()),
            (_, StepState::Retrying { error, .. }) => {
                Some(error.clone().unwrap_or_else(interrupted))
            }
            (_, StepState::Waiting(WaitReason::Decision { error })) => Some(error.clone()),
            _ => None,
        };
        let step = self.execution.plan().step(number).id.clone();
        self.push(match (phase, error) {
            (Phase::Cancelling, _) => Event::StepCancelled { step },
            (_, Some(error)) => Event::StepFailed { step, attempt, error },
            (_, None) => Event::StepSkipped { step, reason: SkipReason::ExecutionFailed },
        });
    }
}

fn interrupted() -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, "the worker was lost, and the execution failed since")
}
