//! A node: a process of the real binary that tests query, drain and kill.

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

use super::workspace::{DRAIN, MARGIN, read};
use crate::torture::api_client::{Trouble, ask};

/// Limit for steps that are not measured.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(3);
/// Poll interval.
pub(super) const POLL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    pub(super) fn new(child: Child, output: PathBuf) -> Self {
        Self { child, output }
    }

    /// Waits until the process prints a line with `part`, and returns the line.
    async fn wait_for_line(&mut self, part: &str) -> String {
        let mut look = interval(POLL);
        let found = async {
            loop {
                look.tick().await;
                let ended = self.child.try_wait().unwrap();
                let output = read(&self.output);
                if let Some(line) = output.lines().find(|line| line.contains(part)) {
                    return line.to_owned();
                }
                assert!(ended.is_none(), "the process ended before it printed `{part}`: {output}");
            }
        };
        timeout(MAX_WAIT, found)
            .await
            .unwrap_or_else(|_| panic!("the process does not print `{part}`"))
    }

    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until the process ends by itself.
    pub(super) async fn wait_for_exit(mut self) -> ExitStatus {
        let ended = timeout(MAX_WAIT, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("the process does not end: {}", read(&self.output)))
            .unwrap()
    }

    /// Sends SIGTERM and waits for the end. It must exit with 0 within the limit. Returns how long
    /// it took.
    async fn drain(mut self) -> Duration {
        let begun = Instant::now();
        let id = self.child.id().expect("the process was not awaited").to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        // The server drains first, then the worker.
        let bound = 2 * DRAIN + MARGIN;
        let ended = timeout(bound, self.child.wait()).await;
        let status =
            ended.unwrap_or_else(|_| panic!("the process did not drain within {bound:?}")).unwrap();
        assert!(status.success(), "{status}: {}", read(&self.output));
        begun.elapsed()
    }
}

#[derive(Debug)]
pub(super) struct Node {
    process: Process,
    /// Address of the API. Empty for a worker.
    pub(super) address: String,
}

impl Node {
    pub(super) async fn serving(mut process: Process) -> Self {
        let line = process.wait_for_line("listening on http://").await;
        let address = line.rsplit('/').next().unwrap().to_owned();
        Self { process, address }
    }

    pub(super) async fn working(mut process: Process) -> Self {
        process.wait_for_line("working on ").await;
        Self { process, address: String::new() }
    }

    pub(super) fn serves(&self) -> bool {
        !self.address.is_empty()
    }

    pub(super) async fn kill(self) {
        self.process.kill().await;
    }

    pub(super) async fn drain(self) -> Duration {
        self.process.drain().await
    }

    /// Runs an operation that the server has no reason to refuse.
    pub(super) async fn ask(&self, query: &str, variables: &Value) -> Value {
        ask_until_answered(&self.address, query, variables).await
    }

    /// Creates a plan and returns its id.
    pub(super) async fn create_plan(&self, tools: &Value) -> String {
        let query = "mutation ($input: PlanInput!) { createPlan(input: $input) {
            plan { planId } diagnostics { code path message } } }";
        let made = self.ask(query, &json!({ "input": { "tools": tools } })).await;
        made["plan"]["planId"].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned()
    }

    /// Starts an execution. A key makes sure that repeated requests start only one.
    pub(super) async fn execute(&self, plan: &str, options: &Value) -> String {
        let query = "mutation ($id: ID!, $options: ExecutionOptions) {
            executePlan(planId: $id, options: $options) { executionId } }";
        let mut options = options.clone();
        options["idempotencyKey"] = json!(fresh_key());
        let begun = self.ask(query, &json!({ "id": plan, "options": options })).await;
        begun["executionId"].as_str().unwrap().to_owned()
    }

    /// Creates a plan and starts an execution of it.
    pub(super) async fn start(&self, tools: &Value) -> String {
        self.execute(&self.create_plan(tools).await, &json!({})).await
    }

    /// Runs a mutation such as `cancelExecution` on an execution. `more` may add arguments.
    pub(super) async fn run_mutation(&self, what: &str, id: &str, more: &str) {
        let query =
            format!("mutation ($id: ID!) {{ {what}(executionId: $id{more}) {{ executionId }} }}");
        self.ask(&query, &json!({ "id": id })).await;
    }
}

/// Returns a new idempotency key.
pub(super) fn fresh_key() -> String {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    format!("key-{}", KEYS.fetch_add(1, Ordering::Relaxed))
}

/// Runs an operation and repeats it while a busy server does not answer.
pub(super) async fn ask_until_answered(address: &str, query: &str, variables: &Value) -> Value {
    let asking = async {
        loop {
            match ask(address, query, variables).await {
                Ok(answer) => return answer,
                Err(Trouble::Gone) => sleep(POLL).await,
                // A busy database may be slow, too.
                Err(refusal) if refusal.code() == "STORE_UNAVAILABLE" => sleep(POLL).await,
                Err(Trouble::Refused { code, message }) => {
                    panic!("{variables} is refused: {code} {message}")
                }
            }
        }
    };
    timeout(MAX_WAIT, asking).await.unwrap_or_else(|_| panic!("no answer to {variables}"))
}
