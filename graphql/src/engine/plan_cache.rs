//! Reads and writes entries of the plan cache.

use chrono::TimeDelta;
use planner::{PlanCompiler, PlanningError, Proposal, ProposedPlan, plan_cache::CachedDraft};
use shared::{id::RequestId, store::StoreError};

use super::{Engine, EngineError};

/// How long a draft is kept. A change of the tools makes it useless much sooner.
const KEPT: TimeDelta = TimeDelta::days(30);

impl Engine {
    /// Returns the plan of an entry, if its draft still compiles.
    pub(super) async fn cached_plan(
        &self,
        key: &str,
        planner: &str,
        compiler: &dyn PlanCompiler,
    ) -> Result<Option<ProposedPlan>, EngineError> {
        let entry = match self.store.find_output(key, self.clock.now()).await {
            Ok(entry) => entry,
            // A damaged entry must not keep a query from being planned.
            Err(err @ StoreError::Corrupt { .. }) => {
                tracing::warn!(%err, "a draft that was kept cannot be read");
                None
            }
            Err(err) => return Err(err.into()),
        };
        let Some(found) = entry.and_then(|entry| CachedDraft::from_value(&entry)) else {
            return Ok(None);
        };
        match found.into_proposal().compile(planner, compiler).await {
            Ok(proposed) => Ok(Some(proposed)),
            Err(PlanningError::Store { error, .. }) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Keeps the draft of a plan.
    pub(super) async fn cache_draft(&self, key: &str, request: RequestId, proposal: &Proposal) {
        let entry = CachedDraft::new(request, proposal).to_value();
        if let Err(err) = self.store.cache_output(key, &entry, self.clock.now() + KEPT).await {
            tracing::warn!(%err, "a draft is not kept for the next time");
        }
    }
}
