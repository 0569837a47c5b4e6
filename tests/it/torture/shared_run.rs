use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, interval, sleep, timeout_at};

use crate::harness::api_client::{RequestFailure, ask};

/// Time after which a client gives up. Every fault is shorter.
const MAX_ASKING_TIME: Duration = Duration::from_mins(4);
/// Time for which a server may answer a request for an existing id with `NOT_FOUND` or `INTERNAL`,
/// because a new primary can lag behind.
const MAX_UNKNOWN_TIME: Duration = Duration::from_secs(20);
/// Delay before a client asks the next server.
const RETRY_DELAY: Duration = Duration::from_millis(30);

#[derive(Debug, Default)]
pub(super) struct SharedRun {
    /// Addresses of serving nodes, by the number of the node.
    addresses: Mutex<BTreeMap<usize, String>>,
    next_server: AtomicU64,
    is_stopping: AtomicBool,
    counts: Mutex<BTreeMap<String, u64>>,
    violations: Mutex<Vec<String>>,
    /// Acknowledged executions that clients still follow, with a description.
    open_executions: Mutex<BTreeMap<String, String>>,
}

impl SharedRun {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the address of a node. `None` while it does not serve.
    pub(super) fn set_address(&self, node: usize, address: Option<String>) {
        let mut addresses = self.addresses.lock().unwrap();
        match address {
            Some(address) => drop(addresses.insert(node, address)),
            None => drop(addresses.remove(&node)),
        }
    }

    pub(super) fn stop_starting(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, counter_name: &str) {
        *self.counts.lock().unwrap().entry(counter_name.to_owned()).or_default() += 1;
    }

    pub(super) fn list_counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap().clone()
    }

    pub(super) fn add_violation(&self, violation: String) {
        self.violations.lock().unwrap().push(violation);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    pub(super) fn mark_open(&self, execution: &str, description: String) {
        self.open_executions.lock().unwrap().insert(execution.to_owned(), description);
    }

    pub(super) fn mark_closed(&self, execution: &str) {
        self.open_executions.lock().unwrap().remove(execution);
    }

    pub(super) fn list_open_executions(&self) -> BTreeMap<String, String> {
        self.open_executions.lock().unwrap().clone()
    }

    pub(super) async fn next_address(&self) -> String {
        let mut look = interval(RETRY_DELAY);
        loop {
            look.tick().await;
            let addresses = self.addresses.lock().unwrap();
            let count = addresses.len() as u64;
            if count > 0 {
                let turn = self.next_server.fetch_add(1, Ordering::Relaxed) % count;
                let nth = addresses.values().nth(usize::try_from(turn).unwrap());
                return nth.expect("the index is below the count").clone();
            }
        }
    }

    /// Asks one server after another until the answer is not a temporary error.
    pub(super) async fn ask_until_answered(
        &self,
        query: &str,
        variables: &Value,
    ) -> Result<Value, RequestFailure> {
        self.ask_counting_tries(query, variables, &mut 0).await
    }

    /// Like [`ask_until_answered`](Self::ask_until_answered). Counts the sent requests in `tries`,
    /// because a server can receive a request even if its answer is lost.
    pub(super) async fn ask_counting_tries(
        &self,
        query: &str,
        variables: &Value,
        tries: &mut u64,
    ) -> Result<Value, RequestFailure> {
        let end = Instant::now() + MAX_ASKING_TIME;
        let mut unknown_since = None;
        let asking = async {
            loop {
                *tries += 1;
                let answer = ask(&self.next_address().await, query, variables).await;
                let Err(trouble) = answer else { return answer };
                self.count(&format!("answer {}", trouble.code()));
                let is_temporary = match trouble.code() {
                    "GONE" | "STORE_UNAVAILABLE" => true,
                    "NOT_FOUND" | "INTERNAL" => {
                        let since = *unknown_since.get_or_insert_with(Instant::now);
                        since.elapsed() < MAX_UNKNOWN_TIME
                    }
                    _ => false,
                };
                if !is_temporary {
                    return Err(trouble);
                }
                sleep(RETRY_DELAY).await;
            }
        };
        timeout_at(end, asking).await.unwrap_or_else(|_| {
            self.add_violation(format!("no server answers {variables} within {MAX_ASKING_TIME:?}"));
            Err(RequestFailure::ServerGone)
        })
    }
}
