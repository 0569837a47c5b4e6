//! What is over and old is removed: by a command, and by whoever stays, as configured.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use shared::{
    clock::Clock,
    store::{Pruned, Store},
};
use tokio::time;

use super::{
    Ending, Session,
    client::Client,
    failure::Failure,
    house::{House, Need},
    plain,
};
use crate::{
    config::age,
    engine::{before, prune_some},
};

/// How long others have their turn between two parts, in a process that does other things too.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a process that stays looks for what is old.
const LOOK: Duration = Duration::from_mins(10);

/// Removes what is over and older than a time.
pub(super) async fn prune(session: &Session, older_than: &str) -> Result<Ending, Failure> {
    age::parse(older_than).map_err(Failure::usage)?;
    let house = House::open_existing(session, Need::Store).await?;
    let removed = remove(house.client(), older_than).await;
    house.close().await;
    let [executions, plans, requests] = removed?;
    let screen = &session.screen;
    if screen.json {
        let document = json!({ "executions": executions, "plans": plans, "requests": requests });
        screen.print_json(&document)?;
    } else {
        let [executions, plans, requests] =
            [(executions, "execution"), (plans, "plan"), (requests, "request")]
                .map(|(n, one)| plain::count(n, one));
        screen.print(&format!("removed {executions}, {plans}, {requests}"))?;
    }
    Ok(Ending::Done)
}

/// Removes everything that is over and older than a time, and counts it.
async fn remove(client: &Client, older_than: &str) -> Result<[u64; 3], Failure> {
    let some = "mutation($age: String!) \
                { prune(olderThan: $age) { executions plans requests more } }";
    let mut all = [0_u64; 3];
    loop {
        let removed: Value = client.field(some, json!({ "age": older_than })).await?;
        for (sum, kind) in all.iter_mut().zip(["executions", "plans", "requests"]) {
            *sum += removed[kind].as_u64().unwrap_or_default();
        }
        if removed["more"] != true {
            return Ok(all);
        }
    }
}

/// Removes what is over and old for as long as a process stays.
#[derive(Debug, Default)]
pub(super) struct Retention {
    executions: AtomicU64,
    plans: AtomicU64,
    requests: AtomicU64,
}

impl Retention {
    /// Removes what is over and older than `age`, at once and again and again. It never ends.
    pub(super) async fn keep(&self, store: Arc<dyn Store>, clock: Arc<dyn Clock>, age: Duration) {
        loop {
            let pause = match prune_some(&*store, before(&*clock, age)).await {
                Ok(some) => {
                    self.count(some);
                    if some.more { PAUSE } else { LOOK }
                }
                Err(err) => {
                    tracing::warn!(%err, "what is old cannot be removed now");
                    LOOK
                }
            };
            time::sleep(pause).await;
        }
    }

    fn count(&self, some: Pruned) {
        for (total, n) in [
            (&self.executions, some.executions),
            (&self.plans, some.plans),
            (&self.requests, some.requests),
        ] {
            total.fetch_add(n as u64, Ordering::Relaxed);
        }
    }

    /// Writes what was removed in the text format of `/metrics`.
    pub(super) fn figures(&self) -> String {
        let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
        format!(
            "# HELP faber_pruned_total What this process removed because it was old.\n\
             # TYPE faber_pruned_total counter\n\
             faber_pruned_total{{kind=\"execution\"}} {}\n\
             faber_pruned_total{{kind=\"plan\"}} {}\n\
             faber_pruned_total{{kind=\"request\"}} {}\n",
            read(&self.executions),
            read(&self.plans),
            read(&self.requests)
        )
    }
}

#[cfg(test)]
mod tests {
    use shared::{
        clock::{Timestamp, WallClock},
        id::RequestId,
        request::Request,
        store::memory::Memory,
    };

    use super::*;

    /// A clock of a later day.
    #[derive(Debug)]
    struct Later;

    impl Clock for Later {
        fn now(&self) -> Timestamp {
            WallClock.now() + chrono::TimeDelta::days(1)
        }
    }

    async fn with_a_request() -> (Arc<dyn Store>, RequestId) {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let created_at = WallClock.now();
        let id = RequestId::draw(created_at);
        store.put_request(&Request { id, query: "q".to_owned(), created_at }).await.unwrap();
        (store, id)
    }

    #[tokio::test]
    async fn a_process_that_stays_removes_what_is_old() {
        let (store, id) = with_a_request().await;
        let retention = Retention::default();
        let gone = async {
            while store.request(id).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        };
        let hour = Duration::from_hours(1);
        tokio::select! {
            () = retention.keep(Arc::clone(&store), Arc::new(Later), hour) => (),
            () = gone => (),
        }
        let figures = retention.figures();
        assert!(figures.contains("faber_pruned_total{kind=\"request\"} 1"), "{figures}");
    }
}
