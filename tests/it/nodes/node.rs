//! A node, which is a process of the real binary. Tests query, drain and kill it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::workspace::{DEFAULT_MARGIN, DRAIN_LIMIT};
use crate::harness::{
    Process,
    api_client::{RequestFailure, ask},
};

/// Time limit of a wait whose duration no test measures.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(3);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Node {
    process: Process,
    pub(super) address: String,
}

impl Node {
    pub(super) async fn wait_for_server(mut process: Process) -> Self {
        match process.wait_for_address().await {
            Ok(address) => Self { process, address },
            Err(status) => panic!("the server ended with {status}: {}", process.output()),
        }
    }

    pub(super) async fn wait_for_worker(mut process: Process) -> Self {
        match process.wait_for_worker().await {
            Ok(()) => Self { process, address: String::new() },
            Err(status) => panic!("the worker ended with {status}: {}", process.output()),
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        !self.address.is_empty()
    }

    pub(super) async fn kill(mut self) {
        self.process.kill().await;
    }

    /// Sends SIGTERM and waits for the end. Returns how long it took.
    pub(super) async fn drain(mut self) -> Duration {
        // The limit counts twice, because the server drains first, and then the worker.
        let drained = self.process.drain(2 * DRAIN_LIMIT + DEFAULT_MARGIN).await;
        drained.unwrap_or_else(|error| panic!("the process {error}"))
    }

    /// Runs an operation that the server has no reason to refuse.
    pub(super) async fn ask(&self, query: &str, variables: &Value) -> Value {
        ask_until_answered(&self.address, query, variables).await
    }

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
        options["idempotencyKey"] = json!(new_key());
        let started = self.ask(query, &json!({ "id": plan, "options": options })).await;
        started["executionId"].as_str().unwrap().to_owned()
    }

    pub(super) async fn start(&self, tools: &Value) -> String {
        self.execute(&self.create_plan(tools).await, &json!({})).await
    }

    /// Runs a mutation such as `cancelExecution` on an execution. `more` is empty, or text with
    /// more arguments of the mutation.
    pub(super) async fn run_mutation(&self, mutation: &str, id: &str, more: &str) {
        let query = format!(
            "mutation ($id: ID!) {{ {mutation}(executionId: $id{more}) {{ executionId }} }}"
        );
        self.ask(&query, &json!({ "id": id })).await;
    }
}

pub(super) fn new_key() -> String {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    format!("key-{}", KEYS.fetch_add(1, Ordering::Relaxed))
}

pub(super) async fn ask_until_answered(address: &str, query: &str, variables: &Value) -> Value {
    let asking = async {
        loop {
            match ask(address, query, variables).await {
                Ok(answer) => return answer,
                Err(RequestFailure::ServerGone) => sleep(POLL_INTERVAL).await,
                // A busy database can be slow, too, so the client asks again.
                Err(refusal) if refusal.code() == "STORE_UNAVAILABLE" => sleep(POLL_INTERVAL).await,
                Err(RequestFailure::Refused { code, message }) => {
                    panic!("{variables} is refused: {code} {message}")
                }
            }
        }
    };
    timeout(MAX_WAIT, asking).await.unwrap_or_else(|_| panic!("no answer to {variables}"))
}
