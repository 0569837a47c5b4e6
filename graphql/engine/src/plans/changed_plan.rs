//! Versions of a plan that differ from it only in the parameters of steps.

use std::{collections::BTreeMap, sync::Arc};

use planner::{
    EXPLICIT_PLANNER,
    compile::{Compiled, compile_all},
    draft::Draft,
    sub_plans::SubPlans,
};
use serde_json::Value;
use shared::{
    id::StepId,
    plan::{Plan, PlanInfo},
};

use super::{Plans, transcript::Transcript};
use crate::error::EngineError;

/// A version of a plan that is not stored yet.
pub(crate) struct ChangedPlan {
    draft: Draft,
    compiled: Compiled,
}

impl ChangedPlan {
    pub(crate) fn plan(&self) -> &Plan {
        &self.compiled.plan
    }
}

impl Plans {
    /// Compiles a plan with other parameters of some steps. All steps of `parameters` must be steps
    /// of the plan. The steps keep their tools, the plans that they execute, and everything else.
    pub(crate) async fn change_parameters(
        &self,
        plan: &Plan,
        parameters: &BTreeMap<StepId, Value>,
    ) -> Result<ChangedPlan, EngineError> {
        let mut draft = Draft::from_plan(plan);
        for (written, step) in draft.tools.iter_mut().zip(plan.steps()) {
            if let Some(changed) = parameters.get(&step.id) {
                written.parameters = Some(changed.clone());
            }
        }
        let mut steps: Vec<_> = std::mem::take(&mut draft.tools).into_iter().map(Some).collect();
        let as_written = plan.draft_order().iter();
        draft.tools = as_written.filter_map(|number| steps[number.get()].take()).collect();
        let names: Vec<_> = plan.called_tools().cloned().collect();
        self.tools.inventory.wait_for_tools(&names).await;
        let catalog = self.tools.catalog_without_waiting();
        let PlanInfo { request, query, .. } = plan.info().clone();
        let info = self.new_info(request, query, EXPLICIT_PLANNER);
        let mut no_inner_plan = |_: &Draft| self.new_info(request, String::new(), EXPLICIT_PLANNER);
        let sub_plans = SubPlans::of_plan(plan);
        let compiled = compile_all(&draft, info, &catalog, &sub_plans, &mut no_inner_plan);
        let compiled = compiled
            .map_err(|diagnostics| EngineError::InvalidPlan { diagnostics, request: None })?;
        self.check_compiled(&compiled).await?;
        Ok(ChangedPlan { draft, compiled })
    }

    /// Stores a changed plan as the next version of its request.
    pub(crate) async fn store_changed(
        &self,
        ChangedPlan { draft, compiled }: ChangedPlan,
    ) -> Result<Arc<Plan>, EngineError> {
        let version = self.library.next_version(compiled.plan.info().request).await?;
        let info = PlanInfo { version, ..compiled.plan.info().clone() };
        let plan = compiled.plan.with_info(info);
        let mut transcript = Transcript::new(&self.clock);
        transcript.add("draft", serde_json::to_value(&draft).unwrap_or_default());
        self.store_compiled(Compiled { plan, ..compiled }, transcript).await
    }
}
