//! Where clients and servers meet, and what everybody has seen there.

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

use super::wire::{Trouble, ask};

/// How long a client asks for something before it gives up; no fault lasts that long.
const INSISTENCE: Duration = Duration::from_mins(4);
/// How long something may seem unknown that is known: a new primary may be behind for a moment.
const FORGETFULNESS: Duration = Duration::from_secs(20);
/// The wait before somebody else is asked.
const AGAIN: Duration = Duration::from_millis(30);

/// Where clients and servers meet.
#[derive(Debug, Default)]
pub(super) struct Scene {
    /// Where servers listen, by the number of their node.
    addresses: Mutex<BTreeMap<usize, String>>,
    next: AtomicU64,
    is_closing: AtomicBool,
    counts: Mutex<BTreeMap<String, u64>>,
    wrongs: Mutex<Vec<String>>,
    /// The executions that were acknowledged and have not ended as far as clients know.
    open: Mutex<BTreeMap<String, String>>,
}

impl Scene {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Says where a node listens from now on, if it does.
    pub(super) fn moved(&self, node: usize, address: Option<String>) {
        let mut addresses = self.addresses.lock().unwrap();
        match address {
            Some(address) => drop(addresses.insert(node, address)),
            None => drop(addresses.remove(&node)),
        }
    }

    /// Begins nothing new from now on.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Counts something worth knowing.
    pub(super) fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap().clone()
    }

    /// Notes what must not be.
    pub(super) fn wrong(&self, what: String) {
        self.wrongs.lock().unwrap().push(what);
    }

    pub(super) fn wrongs(&self) -> Vec<String> {
        self.wrongs.lock().unwrap().clone()
    }

    /// Notes that somebody is about something.
    pub(super) fn opened(&self, execution: &str, about: String) {
        self.open.lock().unwrap().insert(execution.to_owned(), about);
    }

    /// Notes that nobody is about it any more.
    pub(super) fn closed(&self, execution: &str) {
        self.open.lock().unwrap().remove(execution);
    }

    /// Returns what clients still wait for.
    pub(super) fn open(&self) -> BTreeMap<String, String> {
        self.open.lock().unwrap().clone()
    }

    /// Returns where a server listens, another one each time.
    pub(super) async fn server(&self) -> String {
        let mut look = interval(AGAIN);
        loop {
            look.tick().await;
            let addresses = self.addresses.lock().unwrap();
            let count = addresses.len() as u64;
            if count > 0 {
                let turn = self.next.fetch_add(1, Ordering::Relaxed) % count;
                let nth = addresses.values().nth(usize::try_from(turn).unwrap());
                return nth.expect("it is below the count").clone();
            }
        }
    }

    /// Asks until there is an answer that is no matter of the moment, of whichever server.
    pub(super) async fn insist(&self, query: &str, variables: &Value) -> Result<Value, Trouble> {
        self.insist_counting(query, variables, &mut 0).await
    }

    /// The same, and counts how often that may have been heard.
    pub(super) async fn insist_counting(
        &self,
        query: &str,
        variables: &Value,
        tries: &mut u64,
    ) -> Result<Value, Trouble> {
        let end = Instant::now() + INSISTENCE;
        let mut unknown_since = None;
        let asking = async {
            loop {
                *tries += 1;
                let answer = ask(&self.server().await, query, variables).await;
                let Err(trouble) = answer else { return answer };
                self.count(&format!("answer {}", trouble.code()));
                let is_of_the_moment = match trouble.code() {
                    "GONE" | "STORE_UNAVAILABLE" => true,
                    "NOT_FOUND" | "INTERNAL" => {
                        let since = *unknown_since.get_or_insert_with(Instant::now);
                        since.elapsed() < FORGETFULNESS
                    }
                    _ => false,
                };
                if !is_of_the_moment {
                    return Err(trouble);
                }
                sleep(AGAIN).await;
            }
        };
        timeout_at(end, asking).await.unwrap_or_else(|_| {
            self.wrong(format!("nobody answers {variables} within {INSISTENCE:?}"));
            Err(Trouble::Gone)
        })
    }
}
