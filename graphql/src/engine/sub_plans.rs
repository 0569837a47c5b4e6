//! The plans that drafts name: looked up before compiling, so that a name means one plan for good.

use std::{collections::BTreeSet, sync::Arc};

use planner::{
    catalog::Catalog,
    compile::{Compiled, compile_all},
    draft::Draft,
    sub_plans::{SubPlan, SubPlans, names},
};
use serde_json::Value;
use shared::{
    id::{PlanId, RequestId},
    limits,
    plan::{Plan, PlanInfo},
    request::Request,
};

use super::{Engine, EngineError, planning::query_of};

/// The most plans that one draft may name.
const NAMES: usize = 1_000;

impl Engine {
    /// Compiles a draft with the plans that it names.
    pub(super) async fn compile(
        &self,
        draft: &Draft,
        about: PlanInfo,
        catalog: &Catalog,
    ) -> Result<Compiled, EngineError> {
        let plans = self.sub_plans(draft).await?;
        let planner = about.planner.clone();
        let mut inner = |draft: &Draft| {
            let now = self.clock.now();
            let request = RequestId::draw(now);
            self.about(request, 1, query_of(draft), &planner)
        };
        compile_all(draft, about, catalog, &plans, &mut inner)
            .map_err(|diagnostics| EngineError::InvalidPlan { diagnostics, request: None })
    }

    /// Keeps the plans of drafts inside another one, each under a request of its own.
    pub(super) async fn keep_inner(&self, plans: Vec<Plan>) -> Result<(), EngineError> {
        for plan in plans {
            let PlanInfo { request: id, query, created_at, .. } = plan.info().clone();
            self.store.put_request(&Request { id, query, created_at }).await?;
            self.store.put_plan(&plan).await?;
        }
        Ok(())
    }

    async fn sub_plans(&self, draft: &Draft) -> Result<SubPlans, EngineError> {
        let names = names(draft);
        if names.len() > NAMES {
            let why = format!("the plan names {} other plans; the most is {NAMES}", names.len());
            return Err(EngineError::LimitExceeded(why));
        }
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            if let Some(plan) = self.sub_plan(name).await? {
                found.push((name.to_owned(), plan));
            }
        }
        Ok(SubPlans::new(found))
    }

    async fn sub_plan(&self, name: &str) -> Result<Option<SubPlan>, EngineError> {
        let Some((id, inputs)) = self.named(name).await? else { return Ok(None) };
        let Some(plan) = self.plan(id).await? else { return Ok(None) };
        let depth = self.below(&plan).await?.len();
        let inputs = inputs.map(Arc::new);
        Ok(Some(SubPlan { id, depth: u32::try_from(depth).unwrap_or(u32::MAX), inputs }))
    }

    /// Returns the plan that a name means, and what it is given, where that is known.
    pub(super) async fn named(
        &self,
        name: &str,
    ) -> Result<Option<(PlanId, Option<Value>)>, EngineError> {
        if let Ok(id) = name.parse() {
            return Ok(Some((id, None)));
        }
        if name.is_empty() || name.len() > super::saved::NAME {
            return Ok(None);
        }
        Ok(self.store.saved_plan(name).await?.map(|it| (it.plan, it.inputs)))
    }

    /// Returns the plans that a plan executes, then those that they do, and so on.
    pub(super) async fn below(&self, plan: &Arc<Plan>) -> Result<Vec<Vec<Arc<Plan>>>, EngineError> {
        let mut levels: Vec<Vec<Arc<Plan>>> = Vec::new();
        let mut level = vec![Arc::clone(plan)];
        while levels.len() <= limits::DEPTH as usize {
            let ids: BTreeSet<PlanId> = level.iter().flat_map(|it| it.sub_plans()).collect();
            let mut next = Vec::with_capacity(ids.len());
            for id in ids {
                next.extend(self.plan(id).await?);
            }
            if next.is_empty() {
                break;
            }
            levels.push(next.clone());
            level = next;
        }
        Ok(levels)
    }
}
