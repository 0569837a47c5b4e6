//! Dry runs: each step is checked, and no tool is called.

use std::sync::Arc;

use serde_json::Value;
use shared::{
    clock::Timestamp,
    event::{Created, Event, Outcome, RecordedEvent, SkipReason},
    execution::{Execution, ReplayError, StepState},
    id::{Attempt, ExecutionId, Part},
    plan::Plan,
    tool::ToolError,
};

use super::create_execution_from;

#[derive(Clone, Debug, PartialEq)]
pub struct CheckedStep {
    pub parameters: Arc<Value>,
    pub warnings: Vec<String>,
    pub error: Option<ToolError>,
}

/// Returns a dry run and its complete log. `verdicts` has one entry for each step, in plan order.
pub fn dry_run_events(
    id: ExecutionId,
    plan: &Arc<Plan>,
    created: Created,
    now: Timestamp,
    verdicts: Vec<CheckedStep>,
) -> Result<(Execution, Vec<RecordedEvent>), ReplayError> {
    let (mut execution, created) = create_execution_from(id, plan, created, None, now)?;
    let mut events = vec![created];
    let mut push = |execution: &mut Execution, event| {
        let recorded = RecordedEvent { seq: execution.seq().next(), at: now, by: None, event };
        execution.apply(&recorded)?;
        events.push(recorded);
        Ok::<_, ReplayError>(())
    };
    for (step, CheckedStep { parameters, warnings, error }) in plan.steps().iter().zip(verdicts) {
        let (step, part, attempt) = (step.id.clone(), Part::WHOLE, Attempt::FIRST);
        let checked = Event::StepChecked { step: step.clone(), parameters, warnings };
        push(&mut execution, checked)?;
        let reason = SkipReason::DryRun;
        let final_event = match error {
            Some(error) => Event::StepFailed { step, part, attempt, error, command: None },
            None => Event::StepSkipped { step, part, reason },
        };
        push(&mut execution, final_event)?;
    }
    let is_failed = |step: &shared::execution::Step| matches!(step.state, StepState::Failed(_));
    let outcome =
        if execution.steps().iter().any(is_failed) { Outcome::Failed } else { Outcome::Completed };
    push(&mut execution, Event::Finished { outcome })?;
    Ok((execution, events))
}
