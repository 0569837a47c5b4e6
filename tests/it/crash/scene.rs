//! Clients that go on whatever happens to the server: each starts an execution, follows it to its
//! end, and starts the next.

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

use super::{
    http::{Events, ask},
    plans,
};

/// How long a client may take to come to its end once the last crash is over.
const LAST: Duration = Duration::from_mins(3);
/// The wait before the same server is asked again.
const AGAIN: Duration = Duration::from_millis(200);

const PLAN: &str = "mutation ($input: PlanInput!) { createPlan(input: $input) {
    plan { planId } diagnostics { code path message } } }";
const EXECUTE: &str = "mutation ($id: ID!, $options: ExecutionOptions) {
    executePlan(planId: $id, options: $options) { executionId } }";
const EVENTS: &str = "subscription ($id: ID!, $after: Int) {
    executionEvents(executionId: $id, afterSeq: $after) { seq at type stepId attempt data } }";

/// Where everybody meets.
#[derive(Debug)]
pub(super) struct Scene {
    /// Where the server listens now.
    address: watch::Sender<String>,
    /// How much clients have been told so far.
    told: watch::Sender<u64>,
    is_closing: AtomicBool,
    open: Mutex<BTreeSet<String>>,
}

/// What a client was told of an execution.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) execution: String,
    pub(super) plan: String,
    pub(super) options: Value,
    pub(super) events: Vec<Value>,
}

impl Scene {
    pub(super) fn new(address: String) -> Arc<Self> {
        Arc::new(Self {
            address: watch::Sender::new(address),
            told: watch::Sender::new(0),
            is_closing: AtomicBool::new(false),
            open: Mutex::default(),
        })
    }

    /// Says where the server listens from now on.
    pub(super) fn moved(&self, address: String) {
        self.address.send_replace(address);
    }

    /// Lets clients come.
    pub(super) fn crowd(self: &Arc<Self>, clients: u64, seed: u64) -> JoinSet<Vec<Story>> {
        (0..clients).map(|number| Arc::clone(self).client(seed * 1_000 + number)).collect()
    }

    /// Waits until clients have been told `more` things, or for `longest`.
    pub(super) async fn proceed(&self, more: u64, longest: Duration) {
        let mut told = self.told.subscribe();
        let target = *told.borrow() + more;
        // Either is a moment as good as the other.
        let _ = timeout(longest, told.wait_for(|count| *count >= target)).await;
    }

    /// Returns the executions that were acknowledged, and have not ended as far as clients know.
    pub(super) fn open(&self) -> Vec<String> {
        self.open.lock().unwrap().iter().cloned().collect()
    }

    /// Starts nothing new, and waits for the end of everything.
    /// Returns what does not end if it has to wait for too long.
    pub(super) async fn close(
        &self,
        mut crowd: JoinSet<Vec<Story>>,
    ) -> Result<Vec<Story>, Vec<String>> {
        self.is_closing.store(true, Ordering::Relaxed);
        let mut stories = Vec::new();
        let all = async {
            while let Some(client) = crowd.join_next().await {
                stories.extend(client.unwrap());
            }
        };
        let ended = timeout(LAST, all).await;
        ended.map(|()| stories).map_err(|_| self.open())
    }

    async fn client(self: Arc<Self>, seed: u64) -> Vec<Story> {
        let dice = Dice::new(seed);
        let mut stories = Vec::new();
        while !self.is_closing.load(Ordering::Relaxed) {
            let key = format!("{seed}-{}", stories.len());
            let mut story = self.begin(&dice, &key).await;
            self.follow(&mut story).await;
            stories.push(story);
        }
        stories
    }

    /// Starts an execution, and insists until it is acknowledged.
    async fn begin(&self, dice: &Dice, key: &str) -> Story {
        let input = json!({ "input": { "tools": plans::draw(dice) } });
        let made = self.insist(PLAN, input).await;
        let plan = made["plan"]["planId"].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned();
        let order = if dice.happens(300) { "SEQUENTIAL" } else { "PARALLEL" };
        let options = json!({ "mode": order, "idempotencyKey": key });
        let begun = self.insist(EXECUTE, json!({ "id": plan, "options": options })).await;
        let execution = begun["executionId"].as_str().unwrap().to_owned();
        self.open.lock().unwrap().insert(execution.clone());
        self.told.send_modify(|count| *count += 1);
        Story { execution, plan, options, events: Vec::new() }
    }

    /// Follows an execution to its end; whenever it is cut off, it goes on where it was.
    async fn follow(&self, story: &mut Story) {
        let mut address = self.address.subscribe();
        loop {
            let at = address.borrow_and_update().clone();
            if self.listen(&at, story).await {
                break;
            }
            moved(&mut address).await;
        }
        self.open.lock().unwrap().remove(&story.execution);
    }

    /// Follows an execution for as long as the server lives. Returns whether it was to the end.
    async fn listen(&self, address: &str, story: &mut Story) -> bool {
        let after = story.events.last().map_or(0, |event| event["seq"].as_u64().unwrap());
        let variables = json!({ "id": story.execution, "after": after });
        let Ok(mut events) = Events::of(address, EVENTS, variables).await else { return false };
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    story.events.push(event);
                    self.told.send_modify(|count| *count += 1);
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Asks until there is an answer, of whichever server.
    pub(super) async fn insist(&self, query: &str, variables: Value) -> Value {
        let mut address = self.address.subscribe();
        let asking = async {
            loop {
                let at = address.borrow_and_update().clone();
                if let Ok(answer) = ask(&at, query, variables.clone()).await {
                    return answer;
                }
                moved(&mut address).await;
            }
        };
        let answer = timeout(LAST, asking).await;
        answer.unwrap_or_else(|_| panic!("nobody answers {variables} within {LAST:?}"))
    }

    /// Asks again for what was acknowledged, and for everything that its log has.
    pub(super) async fn ask_again(&self, story: &Story) -> (String, Vec<Value>) {
        let again = json!({ "id": story.plan, "options": story.options });
        let again = self.insist(EXECUTE, again).await;
        let query = "query ($id: ID!) { execution(executionId: $id) {
            events { seq at type stepId attempt data } } }";
        let kept = self.insist(query, json!({ "id": story.execution })).await;
        let events = kept["events"].as_array().cloned().unwrap_or_default();
        (again["executionId"].as_str().unwrap().to_owned(), events)
    }
}

/// Waits for another server, or a little where the one at hand may get over it.
async fn moved(address: &mut watch::Receiver<String>) {
    if let Ok(moved) = timeout(AGAIN, address.changed()).await {
        moved.expect("the scene is there");
    }
}
