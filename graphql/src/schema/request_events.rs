//! Follows everything that happens under a request.

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
    event::data,
    scalar::{DateTime, int},
    timeline::about_json,
};

/// Interval between two polls for planning and new executions, because no hint announces these.
/// Events of executions that are known arrive at once.
const POLL_INTERVAL: Duration = limits::POLL_INTERVAL;
/// Shortest interval between two polls for new executions after a hint. Hints are also sent for
/// work of other requests.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(25);

pub(super) struct RequestEvent {
    request: RequestId,
    at: Timestamp,
    what: EventContent,
}

enum EventContent {
    Transcript { kind: String, content: Value },
    Plan { id: PlanId, about: Value },
    Execution { id: ExecutionId, plan: PlanId, recorded: Box<RecordedEvent> },
}

/// Event under a request: an entry of the transcript, a new plan, or an event of an execution.
#[Object]
impl RequestEvent {
    /// Time of the event, by the clock of the machine that recorded it.
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
        match &self.what {
            EventContent::Transcript { .. } => None,
            EventContent::Plan { id, .. } => Some(ID(id.to_string())),
            EventContent::Execution { plan, .. } => Some(ID(plan.to_string())),
        }
    }

    /// Id of the execution, `exec_…`. Null unless the event belongs to an execution.
    async fn execution_id(&self) -> Option<ID> {
        self.of_execution().map(|(id, _)| ID(id.to_string()))
    }

    /// Type of the event: `transcript`, `plan_created`, or a type of `ExecutionEvent`.
    #[graphql(name = "type")]
    async fn kind(&self) -> &'static str {
        match &self.what {
            EventContent::Transcript { .. } => "transcript",
            EventContent::Plan { .. } => "plan_created",
            EventContent::Execution { recorded, .. } => recorded.event.kind(),
        }
    }

    /// Sequence number of the event in its execution, from 1. Null unless the event belongs to an
    /// execution.
    async fn seq(&self) -> Option<i64> {
        self.of_execution().map(|(_, event)| int(event.seq.0))
    }

    /// Id of the step. Null if the event is not about a step.
    async fn step_id(&self) -> Option<&str> {
        self.of_execution()?.1.event.step().map(shared::id::StepId::as_str)
    }

    /// Number of the attempt, from 1. Null if the event is not about an attempt.
    async fn attempt(&self) -> Option<u32> {
        self.of_execution()?.1.event.attempt().map(shared::id::Attempt::get)
    }

    /// Content of the event. Its form depends on the type.
    async fn data(&self) -> Value {
        match &self.what {
            EventContent::Transcript { kind, content } => {
                json!({ "kind": kind, "content": content })
            }
            EventContent::Plan { about, .. } => about.clone(),
            EventContent::Execution { recorded, .. } => data(&recorded.event),
        }
    }
}

impl RequestEvent {
    fn of_execution(&self) -> Option<(ExecutionId, &RecordedEvent)> {
        match &self.what {
            EventContent::Execution { id, recorded, .. } => Some((*id, recorded)),
            _ => None,
        }
    }
}

/// Follows a request from its beginning. The stream does not end.
pub(super) fn follow(
    engine: Engine,
    request: RequestId,
) -> impl Stream<Item = ApiResult<RequestEvent>> + Send + use<> {
    let work = engine.store().hints().subscribe_work();
    let follower = Follower {
        engine,
        request,
        work,
        looked_at: Instant::now(),
        look_at: Instant::now(),
        read_at: Instant::now(),
        entries: 0,
        plans: 0,
        executions: BTreeSet::new(),
        found: VecDeque::new(),
        logs: SelectAll::new(),
    };
    stream::try_unfold(follower, |mut follower| async move {
        let next = follower.next().await?;
        Ok(Some((next, follower)))
    })
}

type Log = BoxStream<'static, Result<(ExecutionId, PlanId, RecordedEvent), StoreError>>;

struct Follower {
    engine: Engine,
    request: RequestId,
    work: watch::Receiver<()>,
    looked_at: Instant,
    look_at: Instant,
    /// Time of the next poll for planning, which reads more than a poll for executions.
    read_at: Instant,
    /// Number of transcript entries that were sent.
    entries: usize,
    /// Number of plans that were sent.
    plans: usize,
    /// Executions whose logs have been followed.
    executions: BTreeSet<ExecutionId>,
    found: VecDeque<RequestEvent>,
    logs: SelectAll<Log>,
}

impl Follower {
    async fn next(&mut self) -> Result<RequestEvent, ApiError> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Ok(found);
            }
            tokio::select! {
                Some(next) = self.logs.next(), if !self.logs.is_empty() => {
                    let (id, plan, recorded) = next?;
                    let at = recorded.at;
                    let what = EventContent::Execution { id, plan, recorded: Box::new(recorded) };
                    return Ok(RequestEvent { request: self.request, at, what });
                }
                Ok(()) = self.work.changed() => {
                    self.look_at = self.look_at.min(self.looked_at + MIN_POLL_INTERVAL);
                }
                () = time::sleep_until(self.look_at) => {
                    self.look().await?;
                    self.looked_at = Instant::now();
                }
            }
        }
    }

    /// Polls for new executions, and before them for entries and plans, so that a client sees a
    /// plan before its execution.
    async fn look(&mut self) -> Result<(), ApiError> {
        let now = Instant::now();
        let heads = self.begun().await?;
        if now >= self.read_at || !heads.is_empty() {
            self.read().await?;
            self.read_at = now + POLL_INTERVAL;
        }
        self.look_at = (now + POLL_INTERVAL).min(self.read_at);
        for head in heads {
            let (id, plan) = (head.execution, head.plan);
            self.executions.insert(id);
            let log = self.engine.executions.reader.follow_log(id, Seq::START);
            self.logs.push(log.map(move |read| read.map(|event| (id, plan, event))).boxed());
        }
        Ok(())
    }

    /// Reads new transcript entries and plans, and queues them by time.
    async fn read(&mut self) -> Result<(), ApiError> {
        let store = self.engine.store();
        let entries = store.transcript_after(self.request, self.entries).await?;
        let plans = store.plan_versions(self.request).await?;
        let mut found = Vec::new();
        self.entries += entries.len();
        for entry in entries {
            let what = EventContent::Transcript { kind: entry.kind, content: entry.content };
            found.push((entry.at, what));
        }
        for id in plans.iter().skip(self.plans) {
            if let Some(plan) = self.engine.plans.library.load(*id).await? {
                let about = about_json(&plan);
                found.push((plan.info().created_at, EventContent::Plan { id: *id, about }));
            }
        }
        self.plans = plans.len();
        found.sort_by_key(|(at, _)| *at);
        let request = self.request;
        let found = found.into_iter().map(|(at, what)| RequestEvent { request, at, what });
        self.found.extend(found);
        Ok(())
    }

    async fn begun(&mut self) -> Result<Vec<ExecutionHead>, ApiError> {
        let filter = ExecutionFilter { request: Some(self.request), ..ExecutionFilter::default() };
        let known = &self.executions;
        let is_new = |head: &ExecutionHead| !known.contains(&head.execution);
        Ok(self.engine.executions.reader.newest_heads(&filter, usize::MAX, is_new).await?)
    }
}
