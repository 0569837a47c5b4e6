//! Checks the input of an execution before its first step runs.

use std::sync::Arc;

use serde_json::Value;
use shared::{
    event::Event,
    execution::{ExecutionOptions, Phase, StepState},
    id::{Attempt, StepNumber, Task},
    plan::ToolExecution,
    template::{LookUpValues, Reference, Target},
    tool::{ErrorCode, ToolError},
};

use super::Decision;

impl Decision<'_> {
    /// Fails the execution if a pending step with strict templates refers to a missing part of the
    /// input.
    pub(super) fn check_input(&mut self) {
        if self.execution.phase() != Phase::Open {
            return;
        }
        let plan = Arc::clone(self.execution.plan());
        let mut errors = Vec::new();
        for (index, step) in plan.steps().iter().enumerate() {
            let number = StepNumber::new(index);
            let missing = missing_input(step, self.execution.options());
            if !missing.is_empty() && self.execution.step(number).state == StepState::Pending {
                errors.push((number, unresolved_error(&missing, "in the input")));
            }
        }
        let Some((_, first)) = errors.first() else { return };
        // Fails the execution, because the caller made the mistake and `onError` of the step does
        // not apply.
        self.record_event(Event::ExecutionFailed { error: first.clone() });
        for (number, error) in errors {
            self.fail_unstarted(Task::from(number), Attempt::FIRST, error);
        }
    }
}

/// Returns the strict templates of a step that refer to a missing part of the input. A step needs
/// no input if the input alone makes its condition false.
pub fn missing_input(step: &ToolExecution, options: &ExecutionOptions) -> Vec<Arc<str>> {
    let mut missing = Vec::new();
    let mut note = |reference: &Reference| {
        if reference.target == Target::Input && reference.path.find(&options.input).is_none() {
            missing.push(Arc::clone(&reference.text));
        }
    };
    if options.is_strict(&step.policy, step.policy.effect) {
        step.template.visit_references(&mut note);
        if let Some(list) = &step.for_each {
            note(&list.list);
        }
    }
    if let Some(undo) = &step.compensate
        && options.compensate_on_failure
        && options.is_strict(&step.policy, undo.policy.effect)
    {
        undo.template.visit_references(&mut note);
    }
    if !missing.is_empty() && is_false_by_input(step, &options.input) {
        missing.clear();
    }
    missing
}

fn is_false_by_input(step: &ToolExecution, input: &Value) -> bool {
    let condition = step.when.as_ref().filter(|condition| condition.source().contains("input"));
    condition.is_some_and(|condition| condition.evaluate(&NoOutputs, input) == Ok(false))
}

struct NoOutputs;

impl LookUpValues for NoOutputs {
    fn find_value(&self, _: &Target) -> Option<&Value> {
        None
    }
}

pub fn unresolved_error(texts: &[Arc<str>], location: &str) -> ToolError {
    let texts: Vec<String> = texts.iter().map(|text| format!("`{text}`")).collect();
    let reason = format!("{} has no value {location}", texts.join(", "));
    ToolError::new(ErrorCode::UNRESOLVED, reason)
}
