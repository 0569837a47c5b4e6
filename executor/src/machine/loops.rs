//! Loops: a step with `forEach` finishes when its last item has finished.

use shared::{
    event::Event,
    execution::{Items, Phase, StepState},
    id::{Attempt, StepNumber, Task},
    plan::OnError,
    tool::ToolError,
};

use super::{Decision, deadline_error};

impl Decision<'_> {
    pub(super) fn finish_loops(&mut self) {
        while let Some(number) = self.execution.agenda().items_finished().first().copied() {
            self.finish_loop(number);
        }
    }

    fn finish_loop(&mut self, number: StepNumber) {
        let task = Task::from(number);
        let (step, part, attempt) = (self.step_id(task), task.part, Attempt::FIRST);
        let Some(items) = self.execution.step(number).items.as_deref() else {
            unreachable!("only steps with items wait for items");
        };
        let on_error = self.execution.plan().step(number).policy.on_error;
        let is_cut_short = items
            .as_slice()
            .iter()
            .any(|item| matches!(item.state, StepState::Skipped(_) | StepState::Cancelled));
        let must_succeed = matches!(on_error, OnError::Fail | OnError::Wait);
        let failure = first_failure(items).filter(|_| must_succeed);
        let event = match (self.execution.phase(), failure) {
            (_, Some(error)) => Event::StepFailed { step, part, attempt, error, command: None },
            (_, None) if !is_cut_short => Event::StepSucceeded {
                step,
                part,
                attempt,
                output: None,
                cached: false,
                stderr: None,
            },
            (Phase::Expired, None) => {
                Event::StepFailed { step, part, attempt, error: deadline_error(), command: None }
            }
            // The loop does not succeed, because the execution stopped before every item had run.
            (_, None) => Event::StepCancelled { step, part },
        };
        self.record_event(event);
    }
}

fn first_failure(items: &Items) -> Option<ToolError> {
    let index = items.first_failed()?;
    match &items.get(index)?.state {
        StepState::Failed(error) => {
            let message = format!("item {index}: {}", error.message);
            Some(ToolError { message: message.as_str().into(), ..error.clone() })
        }
        _ => None,
    }
}
