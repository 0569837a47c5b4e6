use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use async_graphql::{ID, Object};
use engine::Engine;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{ExecutionId, PlanId, RequestId, Seq},
    limits,
    store::{ExecutionFilter, ExecutionHead, StoreError},
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use super::{
    error::{ApiError, ApiResult},
    event::event_data,
    scalar::{DateTime, to_int},
    text_enums::EventType,
    timeline::plan_summary,
};

/// Interval between two polls for transcript entries, plans and new executions, because a store
/// does not always send a hint about them.
const POLL_INTERVAL: Duration = limits::POLL_INTERVAL;
/// Shortest interval between two polls for new executions after a hint, because hints are also sent
/// for work of other requests.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(25);

pub(super) struct RequestEvent {
    request: RequestId,
    at: Timestamp,
    content: EventContent,
}

enum EventContent {
    Transcript { kind: String, content: Value },
    Plan { id: PlanId, summary: Value },
    Execution { id: ExecutionId, plan: PlanId, recorded: Box<RecordedEvent> },
}

/// Event under a request: an entry of the transcript, a new plan, or an event of an execution.
#[Object]
impl RequestEvent {
    /// Time of the event, by the clock of the process that recorded it. This clock follows the
    /// store's clock.
    async fn at(&self) -> DateTime {
        self.at.into()
    }

    /// Id of the request, `req_…`.
    async fn request_id(&self) -> ID {
        ID(self.request.to_string())
    }

    /// Id of the new plan, or of the plan that the execution runs, `plan_…`. Null for entries of
    /// the transcript.
    async fn plan_id(&self) -> Option<ID> {
        match &self.content {
            EventContent::Transcript { .. } => None,
            EventContent::Plan { id, .. } => Some(ID(id.to_string())),
            EventContent::Execution { plan, .. } => Some(ID(plan.to_string())),
        }
    }

    /// Id of the execution, `exec_…`. Null unless the event belongs to an execution.
    async fn execution_id(&self) -> Option<ID> {
        self.execution_event().map(|(id, _)| ID(id.to_string()))
    }

    /// Type of the event: `transcript`, `plan_created`, or a type of `ExecutionEvent`.
    #[graphql(name = "type")]
    async fn kind(&self) -> &'static str {
        match &self.content {
            EventContent::Transcript { .. } => "transcript",
            EventContent::Plan { .. } => "plan_created",
            EventContent::Execution { recorded, .. } => recorded.event.kind(),
        }
    }

    /// `type` as an enum.
    async fn type_enum(&self) -> EventType {
        match &self.content {
            EventContent::Transcript { .. } => EventType::Transcript,
            EventContent::Plan { .. } => EventType::PlanCreated,
            EventContent::Execution { recorded, .. } => EventType::of(&recorded.event),
        }
    }

    /// Sequence number of the event in its execution, from 1. Null unless the event belongs to an
    /// execution.
    async fn seq(&self) -> Option<i64> {
        self.execution_event().map(|(_, event)| to_int(event.seq.0))
    }

    /// Id of the step. Null if the event is not about a step.
    async fn step_id(&self) -> Option<&str> {
        self.execution_event()?.1.event.step().map(shared::id::StepId::as_str)
    }

    /// Number of the attempt, from 1. Null if the event is not about an attempt.
    async fn attempt(&self) -> Option<u32> {
        self.execution_event()?.1.event.attempt().map(shared::id::Attempt::get)
    }

    /// Content of the event. Its form depends on the type.
    async fn data(&self) -> Value {
        match &self.content {
            EventContent::Transcript { kind, content } => {
                json!({ "kind": kind, "content": content })
            }
            EventContent::Plan { summary, .. } => summary.clone(),
            EventContent::Execution { recorded, .. } => event_data(&recorded.event),
        }
    }
}

impl RequestEvent {
    fn execution_event(&self) -> Option<(ExecutionId, &RecordedEvent)> {
        match &self.content {
            EventContent::Execution { id, recorded, .. } => Some((*id, recorded)),
            _ => None,
        }
    }
}

/// Follows a request from its beginning. The stream does not end.
pub(super) fn follow_request(
    engine: Engine,
    request: RequestId,
) -> impl Stream<Item = ApiResult<RequestEvent>> + Send + use<> {
    let work_hints = engine.store().hints().subscribe_work();
    let follower = RequestFollower {
        engine,
        request,
        work_hints,
        last_poll_at: Instant::now(),
        next_poll_at: Instant::now(),
        next_read_at: Instant::now(),
        sent_entry_count: 0,
        sent_plan_count: 0,
        followed_executions: BTreeSet::new(),
        pending_events: VecDeque::new(),
        logs: SelectAll::new(),
    };
    stream::try_unfold(follower, |mut follower| async move {
        let next = follower.next().await?;
        Ok(Some((next, follower)))
    })
}

type EventLog = BoxStream<'static, Result<(ExecutionId, PlanId, RecordedEvent), StoreError>>;

struct RequestFollower {
    engine: Engine,
    request: RequestId,
    work_hints: watch::Receiver<()>,
    last_poll_at: Instant,
    next_poll_at: Instant,
    /// Time of the next poll for transcript entries and plans. It is less frequent than the poll
    /// for executions, because it reads more.
    next_read_at: Instant,
    sent_entry_count: usize,
    sent_plan_count: usize,
    /// Executions whose logs are followed, so that no log is followed twice.
    followed_executions: BTreeSet<ExecutionId>,
    pending_events: VecDeque<RequestEvent>,
    logs: SelectAll<EventLog>,
}

impl RequestFollower {
    async fn next(&mut self) -> Result<RequestEvent, ApiError> {
        loop {
            if let Some(event) = self.pending_events.pop_front() {
                return Ok(event);
            }
            tokio::select! {
                Some(next) = self.logs.next(), if !self.logs.is_empty() => {
                    let (id, plan, recorded) = next?;
                    let at = recorded.at;
                    let content = EventContent::Execution { id, plan, recorded: Box::new(recorded) };
                    return Ok(RequestEvent { request: self.request, at, content });
                }
                Ok(()) = self.work_hints.changed() => {
                    self.next_poll_at = self.next_poll_at.min(self.last_poll_at + MIN_POLL_INTERVAL);
                }
                () = time::sleep_until(self.next_poll_at) => {
                    self.poll().await?;
                    self.last_poll_at = Instant::now();
                }
            }
        }
    }

    /// Polls for new executions. Reads entries and plans before it follows the executions, so that
    /// a client sees a plan before its execution.
    async fn poll(&mut self) -> Result<(), ApiError> {
        let now = Instant::now();
        let heads = self.find_new_heads().await?;
        if now >= self.next_read_at || !heads.is_empty() {
            self.read_entries_and_plans().await?;
            self.next_read_at = now + POLL_INTERVAL;
        }
        self.next_poll_at = (now + POLL_INTERVAL).min(self.next_read_at);
        for head in heads {
            let (id, plan) = (head.execution, head.plan);
            self.followed_executions.insert(id);
            let log = self.engine.executions.reader.follow_log(id, Seq::START);
            self.logs.push(log.map(move |read| read.map(|event| (id, plan, event))).boxed());
        }
        Ok(())
    }

    async fn read_entries_and_plans(&mut self) -> Result<(), ApiError> {
        let store = self.engine.store();
        let new_entries = store.transcript_after(self.request, self.sent_entry_count).await?;
        let plans = store.plan_versions(self.request).await?;
        let mut pending_events = Vec::new();
        self.sent_entry_count += new_entries.len();
        for entry in new_entries {
            let content = EventContent::Transcript { kind: entry.kind, content: entry.content };
            pending_events.push((entry.at, content));
        }
        for id in plans.iter().skip(self.sent_plan_count) {
            if let Some(plan) = self.engine.plans.library.load(*id).await? {
                let summary = plan_summary(&plan);
                pending_events
                    .push((plan.info().created_at, EventContent::Plan { id: *id, summary }));
            }
        }
        self.sent_plan_count = plans.len();
        pending_events.sort_by_key(|(at, _)| *at);
        let request = self.request;
        let pending_events =
            pending_events.into_iter().map(|(at, content)| RequestEvent { request, at, content });
        self.pending_events.extend(pending_events);
        Ok(())
    }

    async fn find_new_heads(&mut self) -> Result<Vec<ExecutionHead>, ApiError> {
        let filter = ExecutionFilter { request: Some(self.request), ..ExecutionFilter::default() };
        let known_executions = &self.followed_executions;
        let is_new = |head: &ExecutionHead| !known_executions.contains(&head.execution);
        Ok(self.engine.executions.reader.newest_heads(&filter, usize::MAX, is_new).await?)
    }
}
