//! Loads objects for lists. One operation loads each object once.

use std::{
    collections::BTreeMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_graphql::dataloader::{DataLoader, Loader};
use engine::{Engine, EngineError};
use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use shared::{
    execution::Execution,
    id::{ExecutionId, PlanId, RequestId, ToolName, WorkerId},
    limits,
    plan::Plan,
    request::Request,
    sealed::inherit_locked_view,
    store::{StoreError, Usage},
};
use tokio::{sync::OnceCell, task::JoinSet};

use super::error::{ApiError, ApiResult, limit_exceeded};

const MAX_PARALLEL_LOADS: usize = 16;

#[expect(clippy::disallowed_types, reason = "the loader's trait returns a `HashMap`")]
type LoadedById<K, V> = std::collections::HashMap<K, V>;

/// Loaders of one operation. They load each object once, even if several fields need it.
pub(super) struct Loaders {
    source: DataLoader<LoaderSource>,
    engine: Engine,
    usage: OnceCell<BTreeMap<ToolName, Usage>>,
    workers: OnceCell<Arc<[WorkerId]>>,
}

struct LoaderSource(Engine);

impl Loaders {
    pub(super) fn new(engine: Engine) -> Self {
        // The loader owns its tasks, so they end with the operation.
        let tasks = Mutex::new(JoinSet::new());
        let spawn = move |task: BoxFuture<'static, ()>| {
            let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(inherit_locked_view(task));
        };
        let source = DataLoader::new(LoaderSource(engine.clone()), spawn).delay(Duration::ZERO);
        Self { source, engine, usage: OnceCell::new(), workers: OnceCell::new() }
    }

    /// Returns the usage of a tool. The first call reads the usage of all tools.
    pub(super) async fn usage(&self, tool: &ToolName) -> ApiResult<Option<Usage>> {
        let read = async {
            let usage = self.engine.tools.load_usage().await?;
            Ok::<_, ApiError>(usage.into_iter().map(|usage| (usage.tool.clone(), usage)).collect())
        };
        Ok(self.usage.get_or_try_init(|| read).await?.get(tool).cloned())
    }

    pub(super) async fn workers(&self) -> ApiResult<Arc<[WorkerId]>> {
        let read = async { Ok::<_, ApiError>(self.engine.executions.live_workers().await?.into()) };
        Ok(Arc::clone(self.workers.get_or_try_init(|| read).await?))
    }

    pub(super) async fn plan(&self, id: PlanId) -> ApiResult<Option<Arc<Plan>>> {
        self.source.load_one(id).await
    }

    pub(super) async fn request(&self, id: RequestId) -> ApiResult<Option<Request>> {
        self.source.load_one(id).await
    }

    pub(super) async fn execution(&self, id: ExecutionId) -> ApiResult<Option<Arc<Execution>>> {
        self.source.load_one(id).await?.transpose()
    }

    /// Returns plans in the order of `ids`. Leaves out plans that were removed.
    pub(super) async fn plans(&self, ids: &[PlanId]) -> ApiResult<Vec<Arc<Plan>>> {
        let found = self.source.load_many(ids.iter().copied()).await?;
        Ok(ids.iter().filter_map(|id| found.get(id).cloned()).collect())
    }

    /// Returns executions in the order of `ids` until the answer reaches its size limit, and the
    /// number of processed ids. Leaves out damaged executions, so that the other executions can be
    /// listed.
    pub(super) async fn first_executions(
        &self,
        ids: &[ExecutionId],
    ) -> ApiResult<(Vec<Arc<Execution>>, usize)> {
        let (mut executions, mut looked, mut bytes) = (Vec::new(), 0, 0);
        for some in ids.chunks(MAX_PARALLEL_LOADS) {
            let mut found = self.source.load_many(some.iter().copied()).await?;
            for id in some {
                if bytes >= limits::ANSWER_BYTES {
                    return Ok((executions, looked));
                }
                looked += 1;
                if let Some(Ok(execution)) = found.remove(id) {
                    bytes += execution.estimated_size();
                    executions.push(execution);
                }
            }
        }
        Ok((executions, looked))
    }

    /// Returns executions like [`Self::first_executions`], but fails if they do not all fit into an
    /// answer.
    pub(super) async fn executions(&self, ids: &[ExecutionId]) -> ApiResult<Vec<Arc<Execution>>> {
        let (executions, looked) = self.first_executions(ids).await?;
        if looked < ids.len() {
            let (all, maximum) = (ids.len(), limits::ANSWER_BYTES);
            let reason = format!(
                "together, these {all} executions have more than {maximum} bytes: request fewer \
                 with `last`, or use pages of `executions`"
            );
            return Err(limit_exceeded(reason));
        }
        Ok(executions)
    }
}

#[async_trait::async_trait]
impl Loader<PlanId> for LoaderSource {
    type Value = Arc<Plan>;
    type Error = ApiError;

    async fn load(&self, ids: &[PlanId]) -> ApiResult<LoadedById<PlanId, Arc<Plan>>> {
        load_each(ids, |id| async move { Ok(self.0.plans.library.load(id).await?) }).await
    }
}

#[async_trait::async_trait]
impl Loader<RequestId> for LoaderSource {
    type Value = Request;
    type Error = ApiError;

    async fn load(&self, ids: &[RequestId]) -> ApiResult<LoadedById<RequestId, Request>> {
        load_each(ids, |id| async move { Ok(self.0.store().request(id).await?) }).await
    }
}

#[async_trait::async_trait]
impl Loader<ExecutionId> for LoaderSource {
    /// The execution, or the error if its log is damaged. The error is a value, so that the other
    /// executions of a list can still be loaded.
    type Value = ApiResult<Arc<Execution>>;
    type Error = ApiError;

    async fn load(&self, ids: &[ExecutionId]) -> ApiResult<LoadedById<ExecutionId, Self::Value>> {
        load_each(ids, |id| async move {
            match self.0.executions.reader.load(id).await {
                Ok(found) => Ok(found.map(|execution| Ok(Arc::new(execution)))),
                Err(err @ EngineError::Store(StoreError::Corrupt { .. })) => {
                    tracing::error!(execution = %id, %err, "an execution cannot be read");
                    Ok(Some(Err(err.into())))
                }
                Err(err) => Err(err.into()),
            }
        })
        .await
    }
}

/// Loads several objects at the same time, at most [`MAX_PARALLEL_LOADS`].
async fn load_each<K, V, F>(ids: &[K], load: impl Fn(K) -> F) -> ApiResult<LoadedById<K, V>>
where
    K: Copy + Eq + Hash,
    F: Future<Output = ApiResult<Option<V>>>,
{
    let loads = ids.iter().map(|id| {
        let loading = load(*id);
        let id = *id;
        async move { loading.await.map(|found| found.map(|value| (id, value))) }
    });
    let loads: Vec<_> = loads.collect();
    let found: Vec<Option<(K, V)>> =
        stream::iter(loads).buffer_unordered(MAX_PARALLEL_LOADS).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}
