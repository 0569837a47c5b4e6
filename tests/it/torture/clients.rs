//! Clients that start executions, follow them, and act for the people for whom executions wait.
//! They disconnect at random, ask again, and continue after every failure of a server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::clock::{Clock, WallClock};
use tests::faulty::Dice;
use tokio::{task::JoinSet, time::timeout};

use super::{
    people::{Action, Person},
    plans::{self, Draft},
    shared_run::SharedRun,
};
use crate::harness::api_client::{EventSubscription, RequestFailure, ask, ask_and_hang_up};

/// Time without an event of a subscription after which a client changes to another server.
const MAX_SILENCE: Duration = Duration::from_millis(2_500);
/// Time for a second subscriber to reach the last event that the first subscriber saw.
const MAX_LAG: Duration = Duration::from_mins(2);

const PLAN_MUTATION: &str = "mutation ($input: PlanInput!) { createPlan(input: $input) {
    plan { planId requestId } diagnostics { code path message } } }";
const EXECUTE_MUTATION: &str = "mutation ($id: ID!, $options: ExecutionOptions) {
    executePlan(planId: $id, options: $options) { executionId } }";
const EVENTS_SUBSCRIPTION: &str = "subscription ($id: ID!, $after: Int) {
    executionEvents(executionId: $id, afterSeq: $after) { seq at type stepId attempt data } }";
const RETRY_MUTATION: &str = "mutation ($id: ID!, $from: String) {
    retryExecution(executionId: $id, fromStep: $from) { executionId } }";
const LOG_QUERY: &str =
    "query ($id: ID!, $after: Int) { execution(executionId: $id) { state outputs
    events(afterSeq: $after) { seq at type stepId attempt data } } }";

#[derive(Clone, Debug)]
pub(super) struct ClientRecord {
    pub(super) draft: Draft,
    pub(super) plan: String,
    pub(super) options: Value,
    pub(super) execution: String,
    pub(super) received: Vec<Value>,
    /// Events that a second subscriber received. It connected and disconnected at other times.
    pub(super) received_by_other: Vec<Value>,
    pub(super) actions: Vec<Action>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowEnd {
    Finished,
    Disconnected,
    /// The execution waits for an answer that no person gives, or for a time after the end of the
    /// test.
    Abandoned,
}

pub(super) fn spawn_clients(
    run: &Arc<SharedRun>,
    clients: u64,
    seed: u64,
) -> JoinSet<Vec<ClientRecord>> {
    (0..clients).map(|number| run_client(Arc::clone(run), seed * 1_000 + number)).collect()
}

async fn run_client(run: Arc<SharedRun>, seed: u64) -> Vec<ClientRecord> {
    let dice = Dice::new(seed);
    let mut records = Vec::new();
    while !run.is_stopping() {
        let key = format!("{seed}-{}", records.len());
        let Some(mut record) = start_execution(&run, &dice, &key).await else { break };
        run.mark_open(&record.execution, format!("{} of {seed}", records.len()));
        let end = follow_and_act(&run, &dice, &mut record).await;
        run.mark_closed(&record.execution);
        let may_retry = end == FollowEnd::Finished && !run.is_stopping();
        let again = if may_retry { retry_sometimes(&run, &dice, &record).await } else { None };
        records.push(record);
        if let Some(mut record) = again {
            run.mark_open(&record.execution, format!("{} of {seed}, again", records.len()));
            follow_and_act(&run, &dice, &mut record).await;
            run.mark_closed(&record.execution);
            records.push(record);
        }
    }
    records
}

/// Sometimes retries an execution, either completely or from a random step.
async fn retry_sometimes(
    run: &SharedRun,
    dice: &Dice,
    record: &ClientRecord,
) -> Option<ClientRecord> {
    if !dice.happens(120) {
        return None;
    }
    let names: Vec<&String> = record.draft.steps.keys().collect();
    let from = dice.happens(600).then(|| names[dice.draw_index(names.len())]);
    run.count("retry");
    // The client must not repeat this request, because it has no key. If the answer is lost, the
    // client does not know the new execution.
    let variables = json!({ "id": record.execution, "from": from });
    let started = ask(&run.next_address().await, RETRY_MUTATION, &variables).await.ok()?;
    let execution = started["executionId"].as_str().unwrap().to_owned();
    Some(ClientRecord::for_child_or_retry(&record.draft, execution))
}

impl ClientRecord {
    /// Returns the record of a child or a retry. Faber takes its plan and options from the parent or
    /// from the retried execution.
    pub(super) fn for_child_or_retry(draft: &Draft, execution: String) -> Self {
        let (received, received_by_other, actions) = (Vec::new(), Vec::new(), Vec::new());
        let (draft, plan, options) = (draft.clone(), String::new(), Value::Null);
        Self { draft, plan, options, execution, received, received_by_other, actions }
    }
}

async fn start_execution(run: &SharedRun, dice: &Dice, key: &str) -> Option<ClientRecord> {
    let draft = plans::draw_plan(dice, |ms| {
        let at = WallClock.now() + TimeDelta::milliseconds(i64::try_from(ms).unwrap());
        at.to_rfc3339()
    });
    let made =
        run.ask_until_answered(PLAN_MUTATION, &json!({ "input": { "tools": draft.tools } })).await;
    let made = value_or_report(run, "a plan", made)?;
    let Some(plan) = made["plan"]["planId"].as_str().map(str::to_owned) else {
        run.add_violation(format!("no plan was made of {:?}: {made:#}", draft.tools));
        return None;
    };
    let mut options = draft.options.clone();
    options["idempotencyKey"] = json!(key);
    let order = json!({ "id": plan, "options": options });
    if dice.happens(150) {
        run.count("hung up");
        ask_and_hang_up(&run.next_address().await, EXECUTE_MUTATION, &order).await;
    }
    let execution = request_start(run, &order).await?;
    if dice.happens(100) {
        run.count("asked twice");
        let again = request_start(run, &order).await?;
        if again != execution {
            run.add_violation(format!("`{key}` started {execution}, then {again}"));
        }
    }
    let (received, received_by_other, actions) = (Vec::new(), Vec::new(), Vec::new());
    Some(ClientRecord { draft, plan, options, execution, received, received_by_other, actions })
}

async fn request_start(run: &SharedRun, order: &Value) -> Option<String> {
    let started = run.ask_until_answered(EXECUTE_MUTATION, order).await;
    let started = value_or_report(run, "an execution", started)?;
    Some(started["executionId"].as_str().unwrap().to_owned())
}

fn value_or_report(
    run: &SharedRun,
    description: &str,
    answer: Result<Value, RequestFailure>,
) -> Option<Value> {
    answer.map_err(|err| run.add_violation(format!("{description} is refused: {err:?}"))).ok()
}

async fn follow_and_act(run: &Arc<SharedRun>, dice: &Dice, record: &mut ClientRecord) -> FollowEnd {
    let mut others = JoinSet::new();
    let received_by_other = Arc::new(Mutex::new(Vec::new()));
    if dice.happens(350) {
        let (run, received_by_other, id) =
            (Arc::clone(run), Arc::clone(&received_by_other), record.execution.clone());
        others.spawn(async move { follow_silently(&run, &id, &received_by_other).await });
    }
    let mut person = Person::new(dice.clone(), &record.draft);
    for action in person.act_early() {
        record.actions.push(action.send_until_answered(run, &record.execution).await);
    }
    let end = follow_with_reconnects(run, dice, record, &mut person).await;
    if end == FollowEnd::Finished
        && !others.is_empty()
        && timeout(MAX_LAG, others.join_next()).await.is_err()
    {
        run.add_violation(format!(
            "{}: the other subscriber never receives the end",
            record.execution
        ));
    }
    others.shutdown().await;
    record.received_by_other.clone_from(&received_by_other.lock().unwrap());
    end
}

async fn follow_with_reconnects(
    run: &SharedRun,
    dice: &Dice,
    record: &mut ClientRecord,
    person: &mut Person,
) -> FollowEnd {
    loop {
        let subscribed = subscribe(run, &record.execution, &record.received).await;
        let Some(mut events) = subscribed else { continue };
        let end = follow_subscription(run, dice, record, person, &mut events).await;
        if end != FollowEnd::Disconnected {
            return end;
        }
    }
}

async fn follow_subscription(
    run: &SharedRun,
    dice: &Dice,
    record: &mut ClientRecord,
    person: &mut Person,
    events: &mut EventSubscription,
) -> FollowEnd {
    loop {
        match receive_event(run, &record.execution, &mut record.received, events).await {
            Ok(Some(())) => (),
            Ok(None) => return FollowEnd::Finished,
            Err(true) if person.has_abandoned() => return FollowEnd::Abandoned,
            Err(_) => return FollowEnd::Disconnected,
        }
        let event = record.received.last().expect("an event was just added").clone();
        for action in person.react_to(&event) {
            record.actions.push(action.send_until_answered(run, &record.execution).await);
        }
        if dice.happens(20) {
            run.count("subscriptions dropped");
            return FollowEnd::Disconnected;
        }
    }
}

async fn follow_silently(run: &SharedRun, id: &str, received_by_other: &Mutex<Vec<Value>>) {
    let mut received = Vec::new();
    loop {
        let Some(mut events) = subscribe(run, id, &received).await else { continue };
        loop {
            match receive_event(run, id, &mut received, &mut events).await {
                Ok(Some(())) => received_by_other.lock().unwrap().clone_from(&received),
                Ok(None) => return,
                Err(_) => break,
            }
        }
    }
}

async fn subscribe(run: &SharedRun, id: &str, received: &[Value]) -> Option<EventSubscription> {
    let after = received.last().map_or(0, |event| event["seq"].as_u64().unwrap());
    let variables = json!({ "id": id, "after": after });
    run.count("subscriptions");
    EventSubscription::subscribe(&run.next_address().await, EVENTS_SUBSCRIPTION, &variables)
        .await
        .ok()
}

/// Adds the next event to the received events. Returns `None` at the end. The error is `true` if
/// the subscription was silent.
async fn receive_event(
    run: &SharedRun,
    id: &str,
    received: &mut Vec<Value>,
    events: &mut EventSubscription,
) -> Result<Option<()>, bool> {
    let last = received.last().map_or(0, |event| event["seq"].as_u64().unwrap());
    match timeout(MAX_SILENCE, events.next()).await {
        Err(_) => Err(true),
        Ok(Ok(Some(event))) => {
            if event["seq"].as_u64() != Some(last + 1) {
                run.add_violation(format!("{id}: after {last} a subscriber receives {event}"));
            }
            received.push(event);
            Ok(Some(()))
        }
        Ok(Ok(None)) => {
            let is_over = received.last().is_some_and(|event| event["type"] == "finished");
            if is_over {
                return Ok(None);
            }
            // The server can also complete a stream after an error, so the end of the stream does
            // not mean that the execution has finished.
            Err(false)
        }
        Ok(Err(trouble)) => {
            run.count(&format!("subscription {}", trouble.code()));
            let is_known = matches!(trouble.code(), "GONE" | "STORE_UNAVAILABLE" | "NOT_FOUND");
            if !is_known {
                run.add_violation(format!("{id}: a subscription is refused: {trouble:?}"));
            }
            Err(false)
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ApiRecord {
    pub(super) state: String,
    pub(super) outputs: Value,
    pub(super) log: Vec<Value>,
}

/// Repeats the start with its key. The answer must name the same execution.
pub(super) async fn repeat_start(run: &SharedRun, record: &ClientRecord) {
    if record.options.is_null() {
        return;
    }
    let order = json!({ "id": record.plan, "options": record.options });
    let Some(again) = request_start(run, &order).await else { return };
    if again != record.execution {
        let id = &record.execution;
        run.add_violation(format!("{id} was acknowledged, then {again} under the same key"));
    }
}

pub(super) async fn fetch_record(run: &SharedRun, execution: &str) -> Option<ApiRecord> {
    let mut log: Vec<Value> = Vec::new();
    loop {
        let after = log.last().map_or(json!(0), |event| event["seq"].clone());
        let variables = json!({ "id": execution, "after": after });
        let answer = run.ask_until_answered(LOG_QUERY, &variables).await;
        let answer = value_or_report(run, "a log", answer)?;
        let Some(events) = answer["events"].as_array() else {
            run.add_violation(format!("{execution} is unknown"));
            return None;
        };
        log.extend(events.iter().cloned());
        if events.len() < 1_000 {
            let state = answer["state"].as_str().unwrap().to_owned();
            return Some(ApiRecord { state, outputs: answer["outputs"].clone(), log });
        }
    }
}
