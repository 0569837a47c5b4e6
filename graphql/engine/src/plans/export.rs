use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use planner::draft::{Draft, SubDraft};
use serde_json::Value;
use shared::{
    limits,
    plan::{Plan, StepKind},
    schema::fill_defaults,
    store::Store,
};

use crate::error::EngineError;

/// Maximum number of steps of an exported plan with its sub-plans. A sub-plan that two steps
/// execute counts twice.
pub(super) const MAX_STEPS: usize = 100_000;

/// Returns the draft of a plan. The plans that its steps execute are embedded in the draft.
/// `steps_left` is the number of steps that still fit into the draft.
pub(super) fn to_draft<'a>(
    store: &'a dyn Store,
    plan: Arc<Plan>,
    level: u32,
    steps_left: &'a mut usize,
) -> BoxFuture<'a, Result<Draft, EngineError>> {
    async move {
        *steps_left = steps_left.checked_sub(plan.steps().len()).ok_or_else(too_large_error)?;
        let mut draft = Draft::for_export(&plan);
        for (written, step) in draft.tools.iter_mut().zip(plan.steps()) {
            let StepKind::Plan(id) = step.kind else { continue };
            if level >= limits::ANCESTORS {
                return Err(too_large_error());
            }
            let inner = store.plan(id).await?;
            let inner = inner.ok_or_else(|| EngineError::not_found("plan", id))?;
            let inner = to_draft(store, inner, level + 1, steps_left).await?;
            // Writes the defaults of a saved plan's input into the step, because an inline plan has
            // no schema of its input.
            if let (Some(inputs), Some(parameters)) = (&step.inputs, &mut written.parameters) {
                fill_defaults(inputs.schema(), parameters);
            }
            written.plan = Some(SubDraft::Inline(Box::new(inner)));
        }
        let mut steps: Vec<_> = draft.tools.into_iter().map(Some).collect();
        let as_written = plan.draft_order().iter().filter_map(|number| steps[number.get()].take());
        Ok(Draft { tools: as_written.collect(), ..draft })
    }
    .boxed()
}

/// Converts a draft to the API's form, in which a plan inside a plan is `inlinePlan`.
pub fn to_api_form(draft: &mut Value) {
    let Some(fields) = draft.as_object_mut() else { return };
    fields.retain(|_, value| !value.is_null());
    rename_sub_plans(draft, "plan", "inlinePlan", to_api_form);
}

/// Converts a draft to the form of files and models, in which a plan inside a plan is `plan`.
pub fn to_file_form(draft: &mut Value) {
    rename_sub_plans(draft, "inlinePlan", "plan", to_file_form);
}

fn rename_sub_plans(draft: &mut Value, from: &str, to: &str, convert: fn(&mut Value)) {
    for step in draft["tools"].as_array_mut().into_iter().flatten() {
        let Some(step) = step.as_object_mut() else { continue };
        if step.get(from).is_some_and(Value::is_object) {
            let mut plan = step.shift_remove(from).unwrap_or_default();
            convert(&mut plan);
            step.insert(to.to_owned(), plan);
        }
    }
}

fn too_large_error() -> EngineError {
    EngineError::LimitExceeded(format!(
        "the plan and its sub-plans have more than {MAX_STEPS} steps together: export the \
         sub-plans one by one"
    ))
}
