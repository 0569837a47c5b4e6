//! Housekeeping.

use async_graphql::{Context, Object, Result, SimpleObject};
use shared::store;

use super::error::{ApiError, invalid};
use crate::{
    config::age,
    engine::{Engine, prune},
};

/// What was removed.
#[derive(Clone, Copy, Debug, SimpleObject)]
pub(super) struct Pruned {
    /// So many executions.
    executions: u64,
    /// So many plans.
    plans: u64,
    /// So many requests.
    requests: u64,
    /// Whether there is more to remove: ask again.
    more: bool,
}

impl From<store::Pruned> for Pruned {
    fn from(pruned: store::Pruned) -> Self {
        let store::Pruned { executions, plans, requests, more } = pruned;
        let [executions, plans, requests] = [executions, plans, requests].map(|count| count as u64);
        Self { executions, plans, requests, more }
    }
}

/// Housekeeping.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HouseMutation;

/// Housekeeping.
#[Object]
impl HouseMutation {
    /// Removes what is over and older than a time, for good: executions, then plans and requests
    /// that nothing refers to. A part of it each time.
    async fn prune(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "How long ago it ended: `30d`, `12h`, `90m`, `3600s`.")]
        older_than: String,
    ) -> Result<Pruned> {
        let age = age::parse(&older_than).map_err(invalid)?;
        let engine = ctx.data::<Engine>()?;
        let pruned = prune(&**engine.store(), &**engine.clock(), age).await;
        Ok(pruned.map_err(ApiError::from)?.into())
    }
}
