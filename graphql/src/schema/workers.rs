use async_graphql::{Context, ID, Object, Result, SimpleObject};
use engine::Engine;
use shared::store::HeadQuery;

use super::{
    error::ApiError,
    scalar::{DateTime, to_int},
};

/// Maximum number of executions that are counted for a worker.
const MAX_EXECUTIONS: usize = 1_000;

/// Worker: the part of a process that drives executions. `faber serve`, `faber worker` and commands
/// such as `faber run` have one.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Worker {
    /// Id of the worker, `work_…`. Each start of a process has another id.
    #[graphql(name = "workerId")]
    id: ID,
    /// Name of the node on which the worker runs.
    node: String,
    /// Time at which the lease ends if the worker does not renew it. Other workers then take over
    /// the executions.
    lease_until: DateTime,
    /// Number of executions that the worker owns and the caller may see, at most 1000.
    executions: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerQuery;

#[Object]
impl WorkerQuery {
    /// Workers whose lease has not expired, by id. A worker that was lost is missing as soon as its
    /// lease ends.
    async fn workers(&self, ctx: &Context<'_>) -> Result<Vec<Worker>> {
        let engine = ctx.data::<Engine>()?;
        let store = engine.store();
        let leases = store.list_leases(engine.clock().now()).await.map_err(ApiError::from)?;
        let mut workers = Vec::with_capacity(leases.len());
        for lease in leases {
            let owned = HeadQuery::OwnedBy(lease.worker);
            let heads = store.find_heads(owned, MAX_EXECUTIONS).await.map_err(ApiError::from)?;
            workers.push(Worker {
                id: ID(lease.worker.to_string()),
                node: lease.node,
                lease_until: lease.until.into(),
                executions: to_int(heads.len()),
            });
        }
        Ok(workers)
    }
}
