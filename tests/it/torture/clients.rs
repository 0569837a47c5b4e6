//! Clients that come and go: each starts executions, follows them, acts as the people that they
//! wait for, hangs up, asks again, and goes on whatever happens to the servers.

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
    people::{Act, Person},
    plans::{self, Draft},
    scene::Scene,
    wire::{Events, Trouble, ask, ask_and_hang_up},
};

/// How long a subscription may be silent before a client looks elsewhere.
const SILENCE: Duration = Duration::from_millis(2_500);
/// How long a second subscriber may need to come to the end that the first one saw.
const LAG: Duration = Duration::from_mins(2);

const PLAN: &str = "mutation ($input: PlanInput!) { createPlan(input: $input) {
    plan { planId requestId } diagnostics { code path message } } }";
const EXECUTE: &str = "mutation ($id: ID!, $options: ExecutionOptions) {
    executePlan(planId: $id, options: $options) { executionId } }";
const EVENTS: &str = "subscription ($id: ID!, $after: Int) {
    executionEvents(executionId: $id, afterSeq: $after) { seq at type stepId attempt data } }";
const RETRY: &str = "mutation ($id: ID!, $from: String) {
    retryExecution(executionId: $id, fromStep: $from) { executionId } }";
const LOG: &str = "query ($id: ID!, $after: Int) { execution(executionId: $id) { state outputs
    events(afterSeq: $after) { seq at type stepId attempt data } } }";

/// What a client knows of an execution.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) draft: Draft,
    pub(super) plan: String,
    /// How it was asked for; nothing for one that follows from another.
    pub(super) options: Value,
    pub(super) execution: String,
    /// What it was told.
    pub(super) told: Vec<Value>,
    /// What somebody else was told, who came later or went earlier.
    pub(super) other: Vec<Value>,
    /// What it did to the execution.
    pub(super) acts: Vec<Act>,
}

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With the last event.
    Over,
    /// The connection has gone, or was silent.
    CutOff,
    /// Nobody will ever go on with it.
    Left,
}

/// Lets clients come.
pub(super) fn crowd(scene: &Arc<Scene>, clients: u64, seed: u64) -> JoinSet<Vec<Story>> {
    (0..clients).map(|number| client(Arc::clone(scene), seed * 1_000 + number)).collect()
}

async fn client(scene: Arc<Scene>, seed: u64) -> Vec<Story> {
    let dice = Dice::new(seed);
    let mut stories = Vec::new();
    while !scene.is_closing() {
        let key = format!("{seed}-{}", stories.len());
        let Some(mut story) = begin(&scene, &dice, &key).await else { break };
        scene.opened(&story.execution, format!("{} of {seed}", stories.len()));
        let end = live(&scene, &dice, &mut story).await;
        scene.closed(&story.execution);
        let is_done_again = end == End::Over && !scene.is_closing();
        let again = if is_done_again { do_again(&scene, &dice, &story).await } else { None };
        stories.push(story);
        if let Some(mut story) = again {
            scene.opened(&story.execution, format!("{} of {seed}, again", stories.len()));
            live(&scene, &dice, &mut story).await;
            scene.closed(&story.execution);
            stories.push(story);
        }
    }
    stories
}

/// Perhaps does an execution again, all of it or from some step on.
async fn do_again(scene: &Scene, dice: &Dice, story: &Story) -> Option<Story> {
    if !dice.happens(120) {
        return None;
    }
    let names: Vec<&String> = story.draft.steps.keys().collect();
    let from = dice.happens(600).then(|| names[dice.index(names.len())]);
    scene.count("retry");
    // Without a key nobody may ask twice: who gets no answer does not know.
    let variables = json!({ "id": story.execution, "from": from });
    let begun = ask(&scene.server().await, RETRY, &variables).await.ok()?;
    let execution = begun["executionId"].as_str().unwrap().to_owned();
    Some(Story::following(&story.draft, execution))
}

impl Story {
    /// The story of an execution that follows from another.
    pub(super) fn following(draft: &Draft, execution: String) -> Self {
        let (told, other, acts) = (Vec::new(), Vec::new(), Vec::new());
        let (draft, plan, options) = (draft.clone(), String::new(), Value::Null);
        Self { draft, plan, options, execution, told, other, acts }
    }
}

/// Starts an execution, and insists until it is acknowledged.
async fn begin(scene: &Scene, dice: &Dice, key: &str) -> Option<Story> {
    let draft = plans::draw(dice, |ms| {
        let at = WallClock.now() + TimeDelta::milliseconds(i64::try_from(ms).unwrap());
        at.to_rfc3339()
    });
    let made = scene.insist(PLAN, &json!({ "input": { "tools": draft.tools } })).await;
    let made = expected(scene, "a plan", made)?;
    let Some(plan) = made["plan"]["planId"].as_str().map(str::to_owned) else {
        scene.wrong(format!("no plan comes of {:?}: {made:#}", draft.tools));
        return None;
    };
    let mut options = draft.options.clone();
    options["idempotencyKey"] = json!(key);
    let order = json!({ "id": plan, "options": options });
    if dice.happens(150) {
        scene.count("hung up");
        ask_and_hang_up(&scene.server().await, EXECUTE, &order).await;
    }
    let execution = execute(scene, &order).await?;
    if dice.happens(100) {
        scene.count("asked twice");
        let again = execute(scene, &order).await?;
        if again != execution {
            scene.wrong(format!("`{key}` is {execution}, and then {again}"));
        }
    }
    let (told, other, acts) = (Vec::new(), Vec::new(), Vec::new());
    Some(Story { draft, plan, options, execution, told, other, acts })
}

async fn execute(scene: &Scene, order: &Value) -> Option<String> {
    let begun = scene.insist(EXECUTE, order).await;
    let begun = expected(scene, "an execution", begun)?;
    Some(begun["executionId"].as_str().unwrap().to_owned())
}

fn expected(scene: &Scene, what: &str, answer: Result<Value, Trouble>) -> Option<Value> {
    answer.map_err(|err| scene.wrong(format!("{what} is refused: {err:?}"))).ok()
}

/// Follows an execution, alone or with another, and acts for the people that it waits for.
async fn live(scene: &Arc<Scene>, dice: &Dice, story: &mut Story) -> End {
    let mut others = JoinSet::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    if dice.happens(350) {
        let (scene, heard, id) = (Arc::clone(scene), Arc::clone(&heard), story.execution.clone());
        others.spawn(async move { listen_along(&scene, &id, &heard).await });
    }
    let mut person = Person::new(dice.clone(), &story.draft);
    for act in person.hurry() {
        story.acts.push(act.carry_out(scene, &story.execution).await);
    }
    let end = follow(scene, dice, story, &mut person).await;
    if end == End::Over && !others.is_empty() && timeout(LAG, others.join_next()).await.is_err() {
        scene.wrong(format!("{}: the other subscriber is never told the end", story.execution));
    }
    others.shutdown().await;
    story.other.clone_from(&heard.lock().unwrap());
    end
}

/// Follows an execution; whenever it is cut off, it goes on where it was.
async fn follow(scene: &Scene, dice: &Dice, story: &mut Story, person: &mut Person) -> End {
    loop {
        let subscribed = subscribe(scene, &story.execution, &story.told).await;
        let Some(mut events) = subscribed else { continue };
        let end = attend(scene, dice, story, person, &mut events).await;
        if end != End::CutOff {
            return end;
        }
    }
}

/// Follows one subscription.
async fn attend(
    scene: &Scene,
    dice: &Dice,
    story: &mut Story,
    person: &mut Person,
    events: &mut Events,
) -> End {
    loop {
        match next(scene, &story.execution, &mut story.told, events).await {
            Ok(Some(())) => (),
            Ok(None) => return End::Over,
            Err(true) if person.has_left() => return End::Left,
            Err(_) => return End::CutOff,
        }
        let event = story.told.last().expect("one was just added").clone();
        for act in person.hears(&event) {
            story.acts.push(act.carry_out(scene, &story.execution).await);
        }
        if dice.happens(20) {
            scene.count("subscriptions dropped");
            return End::CutOff;
        }
    }
}

/// Follows an execution to its end and does nothing else.
async fn listen_along(scene: &Scene, id: &str, heard: &Mutex<Vec<Value>>) {
    let mut told = Vec::new();
    loop {
        let Some(mut events) = subscribe(scene, id, &told).await else { continue };
        loop {
            match next(scene, id, &mut told, &mut events).await {
                Ok(Some(())) => heard.lock().unwrap().clone_from(&told),
                Ok(None) => return,
                Err(_) => break,
            }
        }
    }
}

async fn subscribe(scene: &Scene, id: &str, told: &[Value]) -> Option<Events> {
    let after = told.last().map_or(0, |event| event["seq"].as_u64().unwrap());
    let variables = json!({ "id": id, "after": after });
    scene.count("subscriptions");
    Events::of(&scene.server().await, EVENTS, &variables).await.ok()
}

/// Adds the next event to what was told. Returns nothing at the end, and as an error whether
/// there was only silence.
async fn next(
    scene: &Scene,
    id: &str,
    told: &mut Vec<Value>,
    events: &mut Events,
) -> Result<Option<()>, bool> {
    let last = told.last().map_or(0, |event| event["seq"].as_u64().unwrap());
    match timeout(SILENCE, events.next()).await {
        Err(_) => Err(true),
        Ok(Ok(Some(event))) => {
            if event["seq"].as_u64() != Some(last + 1) {
                scene.wrong(format!("{id}: after {last} a subscriber is told {event}"));
            }
            told.push(event);
            Ok(Some(()))
        }
        Ok(Ok(None)) => {
            let is_over = told.last().is_some_and(|event| event["type"] == "finished");
            if is_over {
                return Ok(None);
            }
            // After a refusal the stream is complete, too.
            Err(false)
        }
        Ok(Err(trouble)) => {
            scene.count(&format!("subscription {}", trouble.code()));
            let is_known = matches!(trouble.code(), "GONE" | "STORE_UNAVAILABLE" | "NOT_FOUND");
            if !is_known {
                scene.wrong(format!("{id}: a subscription is refused: {trouble:?}"));
            }
            Err(false)
        }
    }
}

/// What there is to know of an execution in the end, by the API.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) state: String,
    pub(super) outputs: Value,
    pub(super) log: Vec<Value>,
}

/// Asks again for what was acknowledged, by its key where it has one.
pub(super) async fn ask_again(scene: &Scene, story: &Story) {
    if story.options.is_null() {
        return;
    }
    let order = json!({ "id": story.plan, "options": story.options });
    let Some(again) = execute(scene, &order).await else { return };
    if again != story.execution {
        let id = &story.execution;
        scene.wrong(format!("{id} was acknowledged, and then {again} under the same key"));
    }
}

/// Asks for everything that is kept of an execution.
pub(super) async fn ask_for(scene: &Scene, execution: &str) -> Option<Known> {
    let mut log: Vec<Value> = Vec::new();
    loop {
        let after = log.last().map_or(json!(0), |event| event["seq"].clone());
        let variables = json!({ "id": execution, "after": after });
        let answer = scene.insist(LOG, &variables).await;
        let answer = expected(scene, "a log", answer)?;
        let Some(events) = answer["events"].as_array() else {
            scene.wrong(format!("{execution} is not known any more"));
            return None;
        };
        log.extend(events.iter().cloned());
        if events.len() < 1_000 {
            let state = answer["state"].as_str().unwrap().to_owned();
            return Some(Known { state, outputs: answer["outputs"].clone(), log });
        }
    }
}
