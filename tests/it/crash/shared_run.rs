//! Clients that start an execution, follow it until it finishes, and start the next one. If the
//! server is killed, they continue with the next server.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tests::faulty::Dice;
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::plans;
use crate::harness::api_client::{EventSubscription, RequestFailure, ask};

/// Time for clients to finish after the last crash.
const MAX_FINISH_TIME: Duration = Duration::from_mins(3);
/// Delay before a client asks the same server again.
const RETRY_DELAY: Duration = Duration::from_millis(200);

const PLAN_MUTATION: &str = "mutation ($input: PlanInput!) { createPlan(input: $input) {
    plan { planId } diagnostics { code path message } } }";
const EXECUTE_MUTATION: &str = "mutation ($id: ID!, $options: ExecutionOptions) {
    executePlan(planId: $id, options: $options) { executionId } }";
const EVENTS_SUBSCRIPTION: &str = "subscription ($id: ID!, $after: Int) {
    executionEvents(executionId: $id, afterSeq: $after) { seq at type stepId attempt data } }";

/// State that all clients share with the test.
#[derive(Debug)]
pub(super) struct SharedRun {
    address: watch::Sender<String>,
    /// Number of acknowledged starts and of events that clients received.
    received_count: watch::Sender<u64>,
    is_closing: AtomicBool,
    open_executions: Mutex<BTreeSet<String>>,
}

#[derive(Clone, Debug)]
pub(super) struct ClientRecord {
    pub(super) execution: String,
    pub(super) plan: String,
    pub(super) options: Value,
    pub(super) events: Vec<Value>,
}

impl SharedRun {
    pub(super) fn new(address: String) -> Arc<Self> {
        Arc::new(Self {
            address: watch::Sender::new(address),
            received_count: watch::Sender::new(0),
            is_closing: AtomicBool::new(false),
            open_executions: Mutex::default(),
        })
    }

    pub(super) fn set_address(&self, address: String) {
        self.address.send_replace(address);
    }

    pub(super) fn spawn_clients(
        self: &Arc<Self>,
        clients: u64,
        seed: u64,
    ) -> JoinSet<Vec<ClientRecord>> {
        (0..clients).map(|number| Arc::clone(self).run_client(seed * 1_000 + number)).collect()
    }

    /// Waits until clients received `more` events and acknowledgements, or for `longest`.
    pub(super) async fn wait_for_events(&self, more: u64, longest: Duration) {
        let mut received = self.received_count.subscribe();
        let target = *received.borrow() + more;
        // A timeout is fine, because a crash is allowed to happen before the events.
        let _ = timeout(longest, received.wait_for(|count| *count >= target)).await;
    }

    /// Returns acknowledged executions that clients still follow.
    pub(super) fn list_open_executions(&self) -> Vec<String> {
        self.open_executions.lock().unwrap().iter().cloned().collect()
    }

    /// Tells clients to start nothing new and waits for them. Fails with the unfinished executions
    /// if the clients do not end within `MAX_FINISH_TIME`.
    pub(super) async fn stop_and_wait(
        &self,
        mut clients: JoinSet<Vec<ClientRecord>>,
    ) -> Result<Vec<ClientRecord>, Vec<String>> {
        self.is_closing.store(true, Ordering::Relaxed);
        let mut records = Vec::new();
        let all = async {
            while let Some(client) = clients.join_next().await {
                records.extend(client.unwrap());
            }
        };
        let ended = timeout(MAX_FINISH_TIME, all).await;
        ended.map(|()| records).map_err(|_| self.list_open_executions())
    }

    async fn run_client(self: Arc<Self>, seed: u64) -> Vec<ClientRecord> {
        let dice = Dice::new(seed);
        let mut records = Vec::new();
        while !self.is_closing.load(Ordering::Relaxed) {
            let key = format!("{seed}-{}", records.len());
            let mut record = self.start_execution(&dice, &key).await;
            self.follow_to_end(&mut record).await;
            records.push(record);
        }
        records
    }

    /// Starts an execution and repeats the request until it is acknowledged.
    async fn start_execution(&self, dice: &Dice, key: &str) -> ClientRecord {
        let input = json!({ "input": { "tools": plans::draw_plan(dice) } });
        let made = self.ask_until_answered(PLAN_MUTATION, input).await;
        let plan = made["plan"]["planId"].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned();
        let order = if dice.happens(300) { "SEQUENTIAL" } else { "PARALLEL" };
        let options = json!({ "mode": order, "idempotencyKey": key });
        let started = self
            .ask_until_answered(EXECUTE_MUTATION, json!({ "id": plan, "options": options }))
            .await;
        let execution = started["executionId"].as_str().unwrap().to_owned();
        self.open_executions.lock().unwrap().insert(execution.clone());
        self.received_count.send_modify(|count| *count += 1);
        ClientRecord { execution, plan, options, events: Vec::new() }
    }

    /// Follows an execution until it finishes. After a disconnect it continues after the last
    /// event.
    async fn follow_to_end(&self, record: &mut ClientRecord) {
        let mut address = self.address.subscribe();
        loop {
            let current = address.borrow_and_update().clone();
            if self.follow_while_connected(&current, record).await {
                break;
            }
            wait_for_server(&mut address).await;
        }
        self.open_executions.lock().unwrap().remove(&record.execution);
    }

    async fn follow_while_connected(&self, address: &str, record: &mut ClientRecord) -> bool {
        let after = record.events.last().map_or(0, |event| event["seq"].as_u64().unwrap());
        let variables = json!({ "id": record.execution, "after": after });
        let Some(mut events) = usable_answer(
            EventSubscription::subscribe(address, EVENTS_SUBSCRIPTION, &variables).await,
        ) else {
            return false;
        };
        loop {
            match usable_answer(events.next().await) {
                Some(Some(event)) => {
                    record.events.push(event);
                    self.received_count.send_modify(|count| *count += 1);
                }
                Some(None) => return true,
                None => return false,
            }
        }
    }

    pub(super) async fn ask_until_answered(&self, query: &str, variables: Value) -> Value {
        let mut address = self.address.subscribe();
        let asking = async {
            loop {
                let current = address.borrow_and_update().clone();
                if let Some(answer) = usable_answer(ask(&current, query, &variables).await) {
                    return answer;
                }
                wait_for_server(&mut address).await;
            }
        };
        let answer = timeout(MAX_FINISH_TIME, asking).await;
        answer
            .unwrap_or_else(|_| panic!("no server answers {variables} within {MAX_FINISH_TIME:?}"))
    }

    /// Repeats the start with its key and fetches the whole log. Returns the execution's id and its
    /// events.
    pub(super) async fn repeat_start(&self, record: &ClientRecord) -> (String, Vec<Value>) {
        let again = json!({ "id": record.plan, "options": record.options });
        let again = self.ask_until_answered(EXECUTE_MUTATION, again).await;
        let query = "query ($id: ID!) { execution(executionId: $id) {
            events { seq at type stepId attempt data } } }";
        let kept = self.ask_until_answered(query, json!({ "id": record.execution })).await;
        let events = kept["events"].as_array().cloned().unwrap_or_default();
        (again["executionId"].as_str().unwrap().to_owned(), events)
    }
}

/// Waits for a new address, or for `RETRY_DELAY`, because the same server may recover.
async fn wait_for_server(address: &mut watch::Receiver<String>) {
    if let Ok(moved) = timeout(RETRY_DELAY, address.changed()).await {
        moved.expect("the run is not over");
    }
}

/// Returns `None` if the client must ask again, because the server went away or cannot reach its
/// store.
///
/// # Panics
///
/// If the server refused the request, because these tests send only valid ones.
fn usable_answer<T>(answer: Result<T, RequestFailure>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(trouble) if matches!(trouble.code(), "GONE" | "STORE_UNAVAILABLE") => None,
        Err(trouble) => panic!("{trouble:?}"),
    }
}
