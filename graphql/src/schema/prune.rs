use async_graphql::{Context, Object, Result, SimpleObject};
use engine::{Engine, age, prune};
use serde_json::json;
use shared::store::{self, AuditAction, AuditTarget};

use super::error::{ApiError, invalid_argument};

/// Numbers of the objects that `prune` removed, by kind.
#[derive(Clone, Copy, Debug, SimpleObject)]
pub(super) struct Pruned {
    /// Number of executions.
    executions: u64,
    /// Number of plans.
    plans: u64,
    /// Number of requests.
    requests: u64,
    /// True if there is more to remove. Call `prune` again.
    more: bool,
}

impl From<store::Pruned> for Pruned {
    fn from(pruned: store::Pruned) -> Self {
        let store::Pruned { executions, plans, requests, more } = pruned;
        let [executions, plans, requests] = [executions, plans, requests].map(|count| count as u64);
        Self { executions, plans, requests, more }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PruneMutation;

#[Object]
impl PruneMutation {
    /// Permanently removes executions that finished long ago, and old plans and requests that
    /// nothing refers to. One call removes about 1000 executions at most.
    async fn prune(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Minimum age, such as `30d`, `12h`, `90m` or `3600s`.")]
        older_than: String,
    ) -> Result<Pruned> {
        let age = age::parse(&older_than).map_err(invalid_argument)?;
        let engine = ctx.data::<Engine>()?;
        let pruned = prune(&**engine.store(), &**engine.clock(), age).await;
        let pruned = pruned.map_err(ApiError::from)?;
        let detail = json!({
            "olderThan": older_than, "executions": pruned.executions, "plans": pruned.plans,
            "requests": pruned.requests,
        });
        let target = AuditTarget::default();
        engine.executions.record_action(AuditAction::PRUNE, target, detail).await;
        Ok(pruned.into())
    }
}
