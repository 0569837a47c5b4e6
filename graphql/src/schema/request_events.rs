//! Follows everything that happens under a request.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use async_graphql::{ID, Object};
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
use crate::engine::{Engine, LastPoll, RequestPolls};

/// How often a request is looked at for what is new of its planning, and for executions. Nobody is
/// told of them; an execution's events do not wait for this.
const LOOK: Duration = limits::POLL;
/// How soon executions are looked for when there may be work: work for others is a hint, too.
const SOON: Duration = Duration::from_millis(25);

/// Something that happened under a request.
pub(super) struct RequestEvent {
    request: RequestId,
    at: Timestamp,
    what: What,
}

enum What {
    Transcript { kind: String, content: Value },
    Plan { id: PlanId, about: Value },
    Execution { id: ExecutionId, plan: PlanId, recorded: Box<RecordedEvent> },
}

/// Something that happened under a request.
#[Object]
impl RequestEvent {
    /// When, by the clock of the machine that recorded it.
    async fn at(&self) -> DateTime {
        self.at.into()
    }

    /// The request.
    async fn request_id(&self) -> ID {
        ID(self.request.to_string())
    }

    /// The plan that was made, or that the execution runs.
    async fn plan_id(&self) -> Option<ID> {
        match &self.what {
            What::Transcript { .. } => None,
            What::Plan { id, .. } => Some(ID(id.to_string())),
            What::Execution { plan, .. } => Some(ID(plan.to_string())),
        }
    }

    /// The execution that it happened to.
    async fn execution_id(&self) -> Option<ID> {
        self.of_execution().map(|(id, _)| ID(id.to_string()))
    }

    /// What kind of thing: `transcript`, `plan_created`, or the type of an execution's event.
    #[graphql(name = "type")]
    async fn kind(&self) -> &'static str {
        match &self.what {
            What::Transcript { .. } => "transcript",
            What::Plan { .. } => "plan_created",
            What::Execution { recorded, .. } => recorded.event.kind(),
        }
    }

    /// The event's place in its execution.
    async fn seq(&self) -> Option<i64> {
        self.of_execution().map(|(_, event)| int(event.seq.0))
    }

    /// The step that it is about.
    async fn step_id(&self) -> Option<&str> {
        self.of_execution()?.1.event.step().map(shared::id::StepId::as_str)
    }

    /// The attempt that it is about.
    async fn attempt(&self) -> Option<u32> {
        self.of_execution()?.1.event.attempt().map(shared::id::Attempt::get)
    }

    /// What is recorded of it.
    async fn data(&self) -> Value {
        match &self.what {
            What::Transcript { kind, content } => json!({ "kind": kind, "content": content }),
            What::Plan { about, .. } => about.clone(),
            What::Execution { recorded, .. } => data(&recorded.event),
        }
    }
}

impl RequestEvent {
    fn of_execution(&self) -> Option<(ExecutionId, &RecordedEvent)> {
        match &self.what {
            What::Execution { id, recorded, .. } => Some((*id, recorded)),
            _ => None,
        }
    }
}

/// Follows a request, from its beginning until nobody listens any more.
pub(super) fn follow(
    engine: Engine,
    request: RequestId,
) -> impl Stream<Item = ApiResult<RequestEvent>> + Send + use<> {
    let work = engine.store().hints().subscribe_work();
    let others = engine.executions.reader.polls_of(request);
    let follower = Follower {
        engine,
        others,
        changed_at: None,
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
    /// What others found who follow the same request.
    others: Arc<RequestPolls>,
    /// When there was a hint of work since the last look.
    changed_at: Option<Instant>,
    request: RequestId,
    work: watch::Receiver<()>,
    looked_at: Instant,
    look_at: Instant,
    /// When to read what is new of its planning, which may be much.
    read_at: Instant,
    /// How many transcript entries were told.
    entries: usize,
    /// How many plans were told.
    plans: usize,
    /// The executions whose logs are followed, or were.
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
                    let what = What::Execution { id, plan, recorded: Box::new(recorded) };
                    return Ok(RequestEvent { request: self.request, at, what });
                }
                Ok(()) = self.work.changed() => {
                    self.changed_at = Some(Instant::now());
                    self.look_at = self.look_at.min(self.looked_at + SOON);
                }
                () = time::sleep_until(self.look_at) => {
                    self.look().await?;
                    self.looked_at = Instant::now();
                }
            }
        }
    }

    /// Finds what is new: executions, and before them what came of the planning.
    async fn look(&mut self) -> Result<(), ApiError> {
        let now = Instant::now();
        let (executions, planning) = (self.executions.len(), [self.entries, self.plans]);
        let Some(mut last) = self.others.begin(SOON, executions, planning) else {
            // Another follower looks: what it finds is known soon.
            self.look_at = now + SOON;
            return Ok(());
        };
        let recently = now.checked_sub(LOOK / 2).unwrap_or(now);
        let since = self.changed_at.take().unwrap_or(recently);
        let is_enough = last.executions.is_some_and(|look| look.is_enough(&executions, since));
        let heads = if is_enough { Vec::new() } else { self.begun().await? };
        if !is_enough {
            last.executions = Some(LastPoll { found: executions + heads.len(), at: now });
        }
        if now >= self.read_at || !heads.is_empty() {
            let is_enough = last.planning.is_some_and(|look| look.is_enough(&planning, recently));
            if !is_enough || !heads.is_empty() {
                self.read().await?;
                last.planning = Some(LastPoll { found: [self.entries, self.plans], at: now });
            }
            self.read_at = now + LOOK;
        }
        self.others.end(last);
        self.look_at = (now + LOOK).min(self.read_at);
        for head in heads {
            let (id, plan) = (head.execution, head.plan);
            self.executions.insert(id);
            let log = self.engine.executions.reader.tail(id, Seq::START);
            self.logs.push(log.map(move |read| read.map(|event| (id, plan, event))).boxed());
        }
        Ok(())
    }

    /// Reads what is new of the planning: transcript entries and plans in order of time.
    async fn read(&mut self) -> Result<(), ApiError> {
        let store = self.engine.store();
        let entries = store.transcript_after(self.request, self.entries).await?;
        let plans = store.plan_versions(self.request).await?;
        let mut found = Vec::new();
        self.entries += entries.len();
        for entry in entries {
            let what = What::Transcript { kind: entry.kind, content: entry.content };
            found.push((entry.at, what));
        }
        for id in plans.iter().skip(self.plans) {
            if let Some(plan) = self.engine.plans.library.load(*id).await? {
                let about = about_json(&plan);
                found.push((plan.info().created_at, What::Plan { id: *id, about }));
            }
        }
        self.plans = plans.len();
        found.sort_by_key(|(at, _)| *at);
        let request = self.request;
        let found = found.into_iter().map(|(at, what)| RequestEvent { request, at, what });
        self.found.extend(found);
        Ok(())
    }

    /// Returns the executions that are new.
    async fn begun(&mut self) -> Result<Vec<ExecutionHead>, ApiError> {
        let filter = ExecutionFilter { request: Some(self.request), ..ExecutionFilter::default() };
        let known = &self.executions;
        let is_new = |head: &ExecutionHead| !known.contains(&head.execution);
        Ok(self.engine.executions.reader.newest(&filter, usize::MAX, is_new).await?)
    }
}
