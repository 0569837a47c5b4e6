use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use planner::{
    draft::Draft,
    reuse::{RetryScope, ReuseError, find_kept_steps},
    sub_plans::{SubPlan, SubPlans, list_sub_plan_names},
    suggest::did_you_mean,
};
use serde_json::Value;
use shared::{
    clock::Clock,
    execution::Execution,
    id::{PlanId, RequestId, ToolName},
    labels::Labels,
    limits,
    plan::{Plan, StepKind},
    store::{SavedPlan, Store, StoreError},
};

use super::{export, inputs};
use crate::error::EngineError;

const MAX_NAME_BYTES: usize = 128;
const MAX_COMPARED_NAMES: usize = 1_000;
const MAX_SUB_PLANS: usize = 1_000;
const MAX_LABELLED_REQUESTS: usize = 1_024;

pub struct PlanLibrary {
    store: Arc<dyn Store>,
    /// The whole store. A plan that the caller sees can execute plans that the caller does not see,
    /// and their tools must be checked, too.
    whole_store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Cached labels of requests whose plans were started. Entries never expire, because labels
    /// of a request never change.
    labels: Arc<Mutex<BTreeMap<RequestId, Labels>>>,
}

impl PlanLibrary {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { whole_store: Arc::clone(&store), store, clock, labels: Arc::default() }
    }

    pub(super) fn seen_through(&self, store: Arc<dyn Store>) -> Self {
        let (clock, labels) = (Arc::clone(&self.clock), Arc::clone(&self.labels));
        Self { store, whole_store: Arc::clone(&self.whole_store), clock, labels }
    }

    pub async fn load(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        self.store.plan(id).await
    }

    /// Returns a plan even if the caller does not see it, such as a plan that a step executes.
    pub(crate) async fn load_any(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        self.whole_store.plan(id).await
    }

    /// Returns the labels of a request, or none if the request is missing or damaged.
    pub(crate) async fn request_labels(&self, id: RequestId) -> Result<Labels, StoreError> {
        let known = || self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(labels) = known().get(&id) {
            return Ok(labels.clone());
        }
        let request = match self.whole_store.request(id).await {
            Err(err @ StoreError::Corrupt { .. }) => {
                tracing::warn!(%err, "cannot read the labels of a request");
                None
            }
            request => request?,
        };
        let Some(request) = request else { return Ok(Labels::new()) };
        let mut known = known();
        if known.len() >= MAX_LABELLED_REQUESTS {
            known.clear();
        }
        known.insert(id, request.labels.clone());
        Ok(request.labels)
    }

    pub(crate) async fn next_version(&self, request: RequestId) -> Result<u32, StoreError> {
        // Uses the number of the newest version and not the number of versions, because older
        // versions have perhaps been pruned.
        for id in self.whole_store.plan_versions(request).await?.into_iter().rev() {
            if let Some(newest) = self.load_any(id).await? {
                return Ok(newest.info().version.saturating_add(1));
            }
        }
        Ok(1)
    }

    /// Returns a plan in the form that `createPlan` and `faber run --plan` read. The draft contains
    /// the plans that it executes, so it does not depend on this store.
    pub async fn export(&self, id: PlanId) -> Result<Option<Draft>, EngineError> {
        let Some(plan) = self.load(id).await? else { return Ok(None) };
        let mut steps_left = export::MAX_STEPS.max(plan.steps().len());
        export::to_draft(&*self.whole_store, plan, 0, &mut steps_left).await.map(Some)
    }

    /// Returns the plans that a plan executes as the first level, the plans that these plans
    /// execute as the second level, and so on.
    pub(crate) async fn list_sub_plan_levels(
        &self,
        plan: &Arc<Plan>,
    ) -> Result<Vec<Vec<Arc<Plan>>>, StoreError> {
        let mut levels: Vec<Vec<Arc<Plan>>> = Vec::new();
        let mut level = vec![Arc::clone(plan)];
        while levels.len() <= limits::ANCESTORS as usize {
            let ids: BTreeSet<PlanId> = level.iter().flat_map(|plan| plan.sub_plans()).collect();
            let mut next = Vec::with_capacity(ids.len());
            for id in ids {
                next.extend(self.load_any(id).await?);
            }
            if next.is_empty() {
                break;
            }
            levels.push(next.clone());
            level = next;
        }
        Ok(levels)
    }

    pub(super) async fn list_with_sub_plans(
        &self,
        plan: &Arc<Plan>,
    ) -> Result<Vec<Arc<Plan>>, StoreError> {
        let below = self.list_sub_plan_levels(plan).await?;
        let mut seen: BTreeSet<PlanId> = BTreeSet::new();
        let plans = std::iter::once(plan).chain(below.iter().flatten());
        Ok(plans.filter(|plan| seen.insert(plan.id())).cloned().collect())
    }

    pub(crate) async fn has_compensation(&self, plan: &Arc<Plan>) -> Result<bool, StoreError> {
        let compensates = |plan: &Plan| plan.steps().iter().any(|step| step.compensate.is_some());
        if compensates(plan) {
            return Ok(true);
        }
        Ok(self.list_sub_plan_levels(plan).await?.iter().flatten().any(|plan| compensates(plan)))
    }

    pub async fn list_tools(&self, plan: &Arc<Plan>) -> Result<BTreeSet<ToolName>, EngineError> {
        let plans = self.list_with_sub_plans(plan).await?;
        Ok(plans.iter().flat_map(|plan| plan.called_tools()).cloned().collect())
    }

    /// Returns the tools that a retry can call: the tools of the steps that run again, of the plans
    /// that these steps execute, and, if the execution compensates, of compensations.
    pub async fn list_retry_tools(
        &self,
        finished: &Execution,
        scope: RetryScope<'_>,
    ) -> Result<BTreeSet<ToolName>, EngineError> {
        let kept = find_kept_steps(finished, scope).map_err(|err| reuse_error(finished, err))?;
        let mut tools = BTreeSet::new();
        let compensates = finished.options().compensate_on_failure;
        for (step, is_kept) in finished.plan().steps().iter().zip(kept) {
            let compensation = step.compensate.as_ref().filter(|_| compensates);
            tools.extend(compensation.map(|call| call.tool.clone()));
            if is_kept {
                continue;
            }
            tools.extend(step.called_tool().cloned());
            if let StepKind::Plan(id) = step.kind
                && let Some(plan) = self.load_any(id).await?
            {
                tools.append(&mut self.list_tools(&plan).await?);
            }
        }
        Ok(tools)
    }

    /// Finds the plans that a draft names. The compiler replaces the names by ids.
    pub(super) async fn find_sub_plans(&self, draft: &Draft) -> Result<SubPlans, EngineError> {
        let names = list_sub_plan_names(draft);
        if names.len() > MAX_SUB_PLANS {
            let (has, maximum) = (names.len(), MAX_SUB_PLANS);
            let reason = format!("the plan names {has} other plans; the limit is {maximum}");
            return Err(EngineError::LimitExceeded(reason));
        }
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            if let Some(plan) = self.find_sub_plan(name).await? {
                found.push((name.to_owned(), plan));
            }
        }
        Ok(SubPlans::new(found))
    }

    async fn find_sub_plan(&self, name: &str) -> Result<Option<SubPlan>, StoreError> {
        let (id, inputs) = match name.parse() {
            Ok(id) => (id, None),
            Err(_) => match self.saved_plan(name).await? {
                Some(saved) => (saved.plan, saved.inputs),
                None => return Ok(None),
            },
        };
        let Some(plan) = self.load(id).await? else { return Ok(None) };
        let depth = self.list_sub_plan_levels(&plan).await?.len();
        let inputs = inputs.map(Arc::new);
        Ok(Some(SubPlan { id, depth: u32::try_from(depth).unwrap_or(u32::MAX), inputs }))
    }

    /// Saves a plan under a name. If another plan has the name, the name then means the new plan.
    /// `inputs` describes the input of the plan.
    pub async fn save_plan(
        &self,
        name: &str,
        plan: PlanId,
        inputs: Option<&Value>,
    ) -> Result<SavedPlan, EngineError> {
        check_name(name)?;
        let inputs = match inputs {
            None | Some(Value::Null) => None,
            Some(written) => Some(
                inputs::to_schema(written)
                    .map_err(|error| EngineError::InvalidArgument(format!("`inputs`: {error}")))?,
            ),
        };
        if self.load(plan).await?.is_none() {
            return Err(EngineError::not_found("plan", plan));
        }
        let saved = SavedPlan { name: name.to_owned(), plan, inputs, at: self.clock.now() };
        self.store.save_plan(&saved).await?;
        Ok(saved)
    }

    pub async fn saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, StoreError> {
        self.store.list_saved_plans(after, first).await
    }

    pub async fn saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, StoreError> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Ok(None);
        }
        self.store.find_saved_plan(name).await
    }

    /// Returns the plan that is saved under a name. If there is none, the error suggests a similar
    /// name, unless no name is similar.
    pub(crate) async fn find_saved_plan_or_suggest(
        &self,
        name: &str,
    ) -> Result<SavedPlan, EngineError> {
        if let Some(saved) = self.saved_plan(name).await? {
            return Ok(saved);
        }
        let name: String = name.chars().take(MAX_NAME_BYTES).collect();
        let saved_plans = self.saved_plans(None, MAX_COMPARED_NAMES).await?;
        let help = did_you_mean(&name, saved_plans.iter().map(|saved| saved.name.as_str()));
        let help = help.map(|help| format!(": {help}")).unwrap_or_default();
        Err(EngineError::NotFound(format!("no plan was saved as `{name}`{help}")))
    }

    /// Removes a name. The plan stays. Returns whether the name existed.
    pub async fn remove_saved_plan(&self, name: &str) -> Result<bool, StoreError> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Ok(false);
        }
        self.store.remove_saved_plan(name).await
    }
}

fn check_name(name: &str) -> Result<(), EngineError> {
    let invalid = |reason: &str| Err(EngineError::InvalidArgument(format!("`name` {reason}")));
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return invalid(&format!("has {} bytes; write 1 to {MAX_NAME_BYTES}", name.len()));
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        return invalid("must not begin or end with a space, or contain control characters");
    }
    if name.parse::<PlanId>().is_ok() {
        return invalid("is the id of a plan: choose another");
    }
    Ok(())
}

/// Converts the error of a retry or a replan. For an unknown step, the message suggests a similar
/// name.
pub(crate) fn reuse_error(finished: &Execution, err: ReuseError) -> EngineError {
    match err {
        ReuseError::Open(_) => EngineError::Conflict(err.to_string()),
        ReuseError::NoStep(name) => {
            let step_names = finished.plan().steps().iter().map(|step| step.id.as_str());
            let help = did_you_mean(&name, step_names);
            let help = help.map(|help| format!(": {help}")).unwrap_or_default();
            EngineError::NotFound(format!("`{}` has no step `{name}`{help}", finished.id()))
        }
        ReuseError::TooMuch { .. }
        | ReuseError::TooMuchSucceeded
        | ReuseError::TooMuchKept
        | ReuseError::TooManyUnknown(_) => EngineError::LimitExceeded(err.to_string()),
    }
}
