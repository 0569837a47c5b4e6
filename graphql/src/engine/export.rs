//! Plans written down again, to be read elsewhere.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use planner::draft::{Draft, SubDraft};
use serde_json::Value;
use shared::{
    id::PlanId,
    limits,
    plan::{Plan, StepKind},
    schema::fill_defaults,
};

use super::{Engine, EngineError};

/// The most steps of a plan and of all that are written inside it. A plan that two steps execute is
/// written twice.
const STEPS: usize = 100_000;

impl Engine {
    /// Returns a plan as `createPlan` and `faber run --plan` read it, with the plans that it
    /// executes written inside: it needs nothing of this store.
    pub async fn export(&self, id: PlanId) -> Result<Option<Draft>, EngineError> {
        let Some(plan) = self.plan(id).await? else { return Ok(None) };
        let mut room = STEPS.max(plan.steps().len());
        self.written(plan, 0, &mut room).await.map(Some)
    }

    fn written<'a>(
        &'a self,
        plan: Arc<Plan>,
        level: u32,
        room: &'a mut usize,
    ) -> BoxFuture<'a, Result<Draft, EngineError>> {
        async move {
            *room = room.checked_sub(plan.steps().len()).ok_or_else(too_large)?;
            let mut draft = Draft::exported(&plan);
            for (written, step) in draft.tools.iter_mut().zip(plan.steps()) {
                let StepKind::Plan(id) = step.kind else { continue };
                if level >= limits::DEPTH {
                    return Err(too_large());
                }
                let inner = self.plan(id).await?;
                let inner = inner.ok_or_else(|| EngineError::not_found("plan", id))?;
                let inner = self.written(inner, level + 1, room).await?;
                // What the inputs of a saved plan look like is not of the plan.
                if let (Some(inputs), Some(given)) = (&step.inputs, &mut written.parameters) {
                    fill_defaults(inputs.schema(), given);
                }
                written.plan = Some(SubDraft::Inline(Box::new(inner)));
            }
            let mut steps: Vec<_> = draft.tools.into_iter().map(Some).collect();
            let as_written = plan.draft_order().iter().filter_map(|it| steps[it.get()].take());
            Ok(Draft { tools: as_written.collect(), ..draft })
        }
        .boxed()
    }
}

/// Names what is in a draft as the API does: there, a plan inside a plan is called otherwise than a
/// reference to one. Everything else is the same.
pub fn as_input(draft: &mut Value) {
    let Some(fields) = draft.as_object_mut() else { return };
    fields.retain(|_, it| !it.is_null());
    rename(draft, "plan", "inlinePlan", as_input);
}

/// Names what is in a draft as files and models do.
pub fn as_file(draft: &mut Value) {
    rename(draft, "inlinePlan", "plan", as_file);
}

fn rename(draft: &mut Value, from: &str, to: &str, inside: fn(&mut Value)) {
    for step in draft["tools"].as_array_mut().into_iter().flatten() {
        let Some(step) = step.as_object_mut() else { continue };
        if step.get(from).is_some_and(Value::is_object) {
            let mut plan = step.shift_remove(from).unwrap_or_default();
            inside(&mut plan);
            step.insert(to.to_owned(), plan);
        }
    }
}

fn too_large() -> EngineError {
    EngineError::LimitExceeded(format!(
        "the plan and those that it executes have more than {STEPS} steps together: export those \
         that it executes by themselves"
    ))
}
