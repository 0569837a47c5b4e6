//! Tests of the promises that every store must keep. Each promise is one function.
//! A [`StorePair`] has two views of one store. For a store that only one process uses, both views
//! are the same object. For a shared store, each view has its own connections, and a write through
//! one view must be visible through the other view.
//! If the store breaks a promise, the function of this promise panics.
#![expect(clippy::unwrap_used, reason = "a failing store breaks the promise")]

mod audit;
mod backward_pages;
mod blobs;
mod counts;
mod documents;
mod lists;
mod log;
mod permits;
mod records;
mod retention;
mod vectors;
mod work;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    event::{Event, RecordedEvent},
    execution::ExecutionState,
    id::{CommandId, Epoch, ExecutionId, PlanId, RequestId, Seq, WorkerId},
    labels::Labels,
    plan::Plan,
    request::Request,
    store::{
        Append, Command, ExecutionFilter, ExecutionHead, Page, SentCommand, Store, StoreError,
    },
};

pub use self::{
    audit::*, backward_pages::*, blobs::*, counts::*, documents::*, lists::*, log::*, permits::*,
    records::*, retention::*, vectors::*, work::*,
};

/// Two views of one store that no other test uses.
#[derive(Clone, Debug)]
pub struct StorePair {
    /// The view through which most promises write.
    pub one: Arc<dyn Store>,
    /// The view through which most promises read.
    pub other: Arc<dyn Store>,
    _guard: Arc<dyn std::any::Any + Send + Sync>,
}

impl StorePair {
    pub fn new(store: Arc<dyn Store>, guard: impl std::any::Any + Send + Sync) -> Self {
        Self::shared(Arc::clone(&store), store, guard)
    }

    /// Creates a pair with two views. `guard` is dropped together with the pair, for example the
    /// folder of the store.
    pub fn shared(
        one: Arc<dyn Store>,
        other: Arc<dyn Store>,
        guard: impl std::any::Any + Send + Sync,
    ) -> Self {
        Self { one, other, _guard: Arc::new(guard) }
    }

    /// Returns `true` if the store encrypts values. An encrypted store cannot search the texts of
    /// errors, and its largest event is smaller.
    async fn is_encrypted(&self) -> bool {
        let error_text = Some("x".to_owned());
        let filter = ExecutionFilter { error_text, ..ExecutionFilter::default() };
        matches!(self.one.count_heads(&filter).await, Err(StoreError::NotSearchable { .. }))
    }

    async fn append(&self, id: ExecutionId, after: u64, events: usize) {
        self.one.append(some_events(id, after, events)).await.unwrap();
    }

    async fn put_head(&self, head: ExecutionHead) {
        let events = usize::try_from(head.seq.0).unwrap();
        // Fails if the log already exists. Then only the head is new.
        let _ = self.one.append(some_events(head.execution, 0, events)).await;
        self.one.put_head(head).await.unwrap();
    }

    async fn log(&self, id: ExecutionId, after: u64) -> Vec<RecordedEvent> {
        let mut events: Vec<RecordedEvent> = Vec::new();
        loop {
            let end = events.last().map_or(Seq(after), |event| event.seq);
            let mut more = self.other.read(id, end).await.unwrap();
            if more.is_empty() {
                return events;
            }
            assert!(
                more.iter().zip(1..).all(|(event, n)| event.seq == end.advance_by(n)),
                "out of order"
            );
            events.append(&mut more);
        }
    }
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_timestamp(1_704_123_456 + seconds, 0).unwrap()
}

pub fn execution(n: usize) -> ExecutionId {
    format!("exec_1704123456_{n:09}").parse().unwrap()
}

pub fn request_id(n: usize) -> RequestId {
    format!("req_1704123456_{n:09}").parse().unwrap()
}

pub fn plan_id(n: usize) -> PlanId {
    format!("plan_1704123456_{n:09}").parse().unwrap()
}

pub fn worker(n: usize) -> WorkerId {
    format!("work_1704123456_{n:09}").parse().unwrap()
}

pub fn command_id(n: usize) -> CommandId {
    format!("cmd_1704123456_{n:09}").parse().unwrap()
}

pub fn signal(seq: u64, payload: Value) -> RecordedEvent {
    let event = Event::SignalReceived {
        name: format!("signal {seq}"),
        payload: Arc::new(payload),
        command: command_id(7),
    };
    RecordedEvent { seq: Seq(seq), at: at(seq.cast_signed()), by: None, event }
}

pub fn some_events(id: ExecutionId, after: u64, events: usize) -> Append {
    let event = Event::Paused { command: command_id(1) };
    let pause = |n| RecordedEvent {
        seq: Seq(after).advance_by(n),
        at: at(0),
        by: None,
        event: event.clone(),
    };
    let events: Vec<RecordedEvent> = (1..=events).map(pause).collect();
    Append::new(id, Seq(after), &events)
}

/// Returns the head of an execution without owner and due time.
pub fn head(n: usize, seq: u64) -> ExecutionHead {
    ExecutionHead {
        execution: execution(n),
        request: request_id(n),
        plan: plan_id(n),
        state: ExecutionState::Pending,
        created_at: at(0),
        seq: Seq(seq),
        epoch: Epoch(0),
        owner: None,
        due: None,
        priority: 0,
        finished_at: None,
        parent: None,
        needs_person: false,
        started_at: None,
        query: "".into(),
        steps_done: 0,
        steps_total: 0,
        error: None,
        labels: Labels::new(),
        is_dry_run: false,
        stored_bytes: 0,
    }
}

pub fn request(n: usize, query: &str, seconds: i64) -> Request {
    Request::new(request_id(n), query.to_owned(), at(seconds))
}

pub fn plan(n: usize, of: usize, version: u32, tools: &[&str]) -> Plan {
    plan_with(n, of, version, tools, &json!({}))
}

fn plan_with(n: usize, of: usize, version: u32, tools: &[&str], parameters: &Value) -> Plan {
    let step = |(index, tool): (usize, &&str)| json!({ "id": format!("s{index}"), "tool": tool, "parameters": parameters, "policy": {} });
    let plan = json!({
        "about": {
            "id": plan_id(n), "request": request_id(of), "version": version,
            "query": format!("Plan number {n}"), "planner": "explicit",
            "created_at": at(i64::try_from(n).unwrap() / 2).timestamp_micros(),
        },
        "steps": tools.iter().enumerate().map(step).collect::<Vec<_>>(),
    });
    Plan::from_json(&plan.to_string()).unwrap()
}

pub fn inbox_command(n: usize, of: usize, command: Command) -> SentCommand {
    SentCommand { id: command_id(n), execution: execution(of), at: at(0), by: None, command }
}

fn all() -> Page {
    Page::first_items(1_000)
}

fn take_all<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}
