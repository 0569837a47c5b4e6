//! The binary as a node that is killed, told to end, and asked for things.

use std::{
    path::PathBuf,
    process::{Command, ExitStatus},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    process::Child,
    time::{Instant, interval, sleep, timeout},
};

use super::home::{DRAIN, MARGIN, read};
use crate::torture::wire::{Trouble, ask};

/// How long anything may take that is not measured.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);
/// How often is looked whether something has happened.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A process of the binary.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    said: PathBuf,
}

impl Process {
    pub(super) fn new(child: Child, said: PathBuf) -> Self {
        Self { child, said }
    }

    /// Waits until it has said something, and returns that line.
    async fn line(&mut self, part: &str) -> String {
        let mut look = interval(LOOK);
        let found = async {
            loop {
                look.tick().await;
                let ended = self.child.try_wait().unwrap();
                let said = read(&self.said);
                if let Some(line) = said.lines().find(|line| line.contains(part)) {
                    return line.to_owned();
                }
                assert!(ended.is_none(), "it ended before it said `{part}`: {said}");
            }
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("it does not say `{part}`"))
    }

    /// Kills it, and waits until it is dead.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until it has ended by itself.
    pub(super) async fn end(mut self) -> ExitStatus {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end: {}", read(&self.said))).unwrap()
    }

    /// Tells it to end and waits until it has. It must say that all is well, and take no longer
    /// than it may.
    async fn drain(mut self) -> Duration {
        let begun = Instant::now();
        let id = self.child.id().expect("nobody has waited for it").to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        // The server and the worker drain one after the other.
        let bound = 2 * DRAIN + MARGIN;
        let ended = timeout(bound, self.child.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("it has not ended within {bound:?}")).unwrap();
        assert!(status.success(), "{status}: {}", read(&self.said));
        begun.elapsed()
    }
}

/// A process that works for everybody.
#[derive(Debug)]
pub(super) struct Node {
    process: Process,
    /// Where it listens, if it serves.
    pub(super) address: String,
}

impl Node {
    pub(super) async fn serving(mut process: Process) -> Self {
        let line = process.line("listening on http://").await;
        let address = line.rsplit('/').next().unwrap().to_owned();
        Self { process, address }
    }

    pub(super) async fn working(mut process: Process) -> Self {
        process.line("working on ").await;
        Self { process, address: String::new() }
    }

    /// Returns whether somebody can ask it.
    pub(super) fn serves(&self) -> bool {
        !self.address.is_empty()
    }

    /// Kills it, and waits until it is dead.
    pub(super) async fn kill(self) {
        self.process.kill().await;
    }

    /// Tells it to end, and returns how long that took.
    pub(super) async fn drain(self) -> Duration {
        self.process.drain().await
    }

    /// Asks for something that nobody has a reason to refuse.
    pub(super) async fn ask(&self, query: &str, variables: &Value) -> Value {
        ask_at(&self.address, query, variables).await
    }

    /// Makes a plan.
    pub(super) async fn plan(&self, tools: &Value) -> String {
        let query = "mutation ($input: PlanInput!) { createPlan(input: $input) {
            plan { planId } diagnostics { code path message } } }";
        let made = self.ask(query, &json!({ "input": { "tools": tools } })).await;
        made["plan"]["planId"].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned()
    }

    /// Starts an execution of a plan, and only one also where it has to ask again.
    pub(super) async fn execute(&self, plan: &str, options: &Value) -> String {
        let query = "mutation ($id: ID!, $options: ExecutionOptions) {
            executePlan(planId: $id, options: $options) { executionId } }";
        let mut options = options.clone();
        options["idempotencyKey"] = json!(fresh_key());
        let begun = self.ask(query, &json!({ "id": plan, "options": options })).await;
        begun["executionId"].as_str().unwrap().to_owned()
    }

    /// Makes a plan, and starts an execution of it.
    pub(super) async fn start(&self, tools: &Value) -> String {
        self.execute(&self.plan(tools).await, &json!({})).await
    }

    /// Does something to an execution, such as `cancelExecution`, with more arguments or none.
    pub(super) async fn control(&self, what: &str, id: &str, more: &str) {
        let query =
            format!("mutation ($id: ID!) {{ {what}(executionId: $id{more}) {{ executionId }} }}");
        self.ask(&query, &json!({ "id": id })).await;
    }
}

/// Returns a key under which nothing was started yet.
pub(super) fn fresh_key() -> String {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    format!("key-{}", KEYS.fetch_add(1, Ordering::Relaxed))
}

/// Asks a server for something that nobody has a reason to refuse; on a machine that does other
/// things at the same time it may be late.
pub(super) async fn ask_at(address: &str, query: &str, variables: &Value) -> Value {
    let asking = async {
        loop {
            match ask(address, query, variables).await {
                Ok(answer) => return answer,
                Err(Trouble::Gone) => sleep(LOOK).await,
                // The database has other things to do, too.
                Err(refusal) if refusal.code() == "STORE_UNAVAILABLE" => sleep(LOOK).await,
                Err(Trouble::Refused { code, message }) => {
                    panic!("{variables} is refused: {code} {message}")
                }
            }
        }
    };
    timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("no answer to {variables}"))
}
