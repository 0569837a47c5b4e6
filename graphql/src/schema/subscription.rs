use async_graphql::{Context, ID, Result, Subscription as GraphqlSubscription};
use engine::Engine;
use futures::{Stream, StreamExt};
use shared::id::ExecutionId;

use super::{
    error::{ApiError, ApiResult, not_found},
    event::ExecutionEvent,
    execution::{ApiExecution, parse_position},
    request_events::{self, RequestEvent},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription;

/// Live updates. They cover executions in any process that shares the store.
#[GraphqlSubscription]
impl Subscription {
    /// Every event of an execution: past events first, then new events, without gaps or
    /// repetitions. Ends after the event `finished`.
    async fn execution_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Id of the execution, `exec_…`. Fails with `NOT_FOUND` if the id is unknown."
        )]
        execution_id: ID,
        #[graphql(
            desc = "Returns events after this `seq`. To reconnect, pass the last `seq` that you saw.",
            default_with = "Some(0)"
        )]
        after_seq: Option<i64>,
    ) -> Result<impl Stream<Item = Result<ExecutionEvent>> + use<>> {
        let engine = ctx.data::<Engine>()?;
        let after = parse_position(after_seq.unwrap_or(0))?;
        let id = find_execution_id(engine, &execution_id).await?;
        let events = engine.executions.reader.follow_log(id, after);
        Ok(events.map(move |event| {
            let recorded = event.map_err(ApiError::from)?;
            Ok(ExecutionEvent::new(id, recorded))
        }))
    }

    /// State of an execution: once at the start, and again after each change of its state, of a
    /// step's state, or of a step's progress. Ends when the execution finishes.
    async fn execution_status(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Id of the execution, `exec_…`. Fails with `NOT_FOUND` if the id is unknown."
        )]
        execution_id: ID,
    ) -> Result<impl Stream<Item = Result<ApiExecution>> + use<>> {
        let engine = ctx.data::<Engine>()?;
        let missing = || not_found("execution", &execution_id);
        let id: ExecutionId = execution_id.parse().map_err(|_| missing())?;
        let execution = engine.executions.reader.load(id).await.map_err(ApiError::from)?;
        let states = engine.executions.reader.watch(execution.ok_or_else(missing)?);
        Ok(states.map(|state| Ok(ApiExecution(state.map_err(ApiError::from)?))))
    }

    /// Everything that happens under a request: planning, then the events of all its executions,
    /// including later ones. Does not end until the client unsubscribes.
    async fn request_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the request, `req_…`. Fails with `NOT_FOUND` if no request has \
            this id.")]
        request_id: ID,
    ) -> Result<impl Stream<Item = Result<RequestEvent>> + use<>> {
        let engine = ctx.data::<Engine>()?;
        let missing = || not_found("request", &request_id);
        let id = request_id.parse().map_err(|_| missing())?;
        let request = engine.store().request(id).await.map_err(ApiError::from)?;
        let request = request.ok_or_else(missing)?;
        Ok(request_events::follow_request(engine.clone(), request.id).map(|event| Ok(event?)))
    }
}

async fn find_execution_id(engine: &Engine, id: &ID) -> ApiResult<ExecutionId> {
    let missing = || not_found("execution", id);
    let parsed: ExecutionId = id.parse().map_err(|_| missing())?;
    let head = engine.store().head(parsed).await?;
    head.map(|head| head.execution).ok_or_else(missing)
}
