//! What anybody may watch.

use async_graphql::{Context, ID, Result, Subscription as GraphqlSubscription};
use futures::{Stream, StreamExt};
use shared::id::ExecutionId;

use super::{
    error::{ApiError, ApiResult, not_found},
    event::ExecutionEvent,
    execution::{Execution, position},
    request_events::{self, RequestEvent},
};
use crate::engine::Engine;

/// What anybody may watch.
#[derive(Clone, Copy, Debug)]
pub struct Subscription;

/// What anybody may watch. It does not matter which process executes.
#[GraphqlSubscription]
impl Subscription {
    /// Every event of an execution: first the past, then the live ones, without gap or repeat.
    /// Ends after `finished`.
    async fn execution_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
        #[graphql(
            desc = "Only events behind this one: whoever comes back misses nothing.",
            default_with = "Some(0)"
        )]
        after_seq: Option<i64>,
    ) -> Result<impl Stream<Item = Result<ExecutionEvent>> + use<>> {
        let engine = ctx.data::<Engine>()?;
        let after = position(after_seq.unwrap_or(0))?;
        let id = known(engine, &execution_id).await?;
        let events = engine.executions.reader.tail(id, after);
        Ok(events.map(move |event| {
            let recorded = event.map_err(ApiError::from)?;
            Ok(ExecutionEvent::new(id, recorded))
        }))
    }

    /// An execution as it now stands: at once, and again at every change of its state or that of a
    /// step, none left out. Ends with the execution.
    async fn execution_status(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
    ) -> Result<impl Stream<Item = Result<Execution>> + use<>> {
        let engine = ctx.data::<Engine>()?;
        let missing = || not_found("execution", &execution_id);
        let id: ExecutionId = execution_id.parse().map_err(|_| missing())?;
        let execution = engine.executions.reader.load(id).await.map_err(ApiError::from)?;
        let states = engine.executions.reader.watch(execution.ok_or_else(missing)?);
        Ok(states.map(|state| Ok(Execution(state.map_err(ApiError::from)?))))
    }

    /// Everything that happens under a request: how its plans come to be, then each execution's
    /// events, those of later executions included. It goes on until the client leaves.
    async fn request_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`req_…`")] request_id: ID,
    ) -> Result<impl Stream<Item = Result<RequestEvent>> + use<>> {
        let engine = ctx.data::<Engine>()?;
        let missing = || not_found("request", &request_id);
        let id = request_id.parse().map_err(|_| missing())?;
        let request = engine.store().request(id).await.map_err(ApiError::from)?;
        let request = request.ok_or_else(missing)?;
        Ok(request_events::follow(engine.clone(), request.id).map(|event| Ok(event?)))
    }
}

async fn known(engine: &Engine, id: &ID) -> ApiResult<ExecutionId> {
    let missing = || not_found("execution", id);
    let parsed: ExecutionId = id.parse().map_err(|_| missing())?;
    let head = engine.store().head(parsed).await?;
    head.map(|head| head.execution).ok_or_else(missing)
}
