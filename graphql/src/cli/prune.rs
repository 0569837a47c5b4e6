//! What is over and old is removed: by a command, and by whoever stays, as configured.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use shared::{
    blob,
    clock::{Clock, Timestamp},
    store::{Pruned, Store, StoreError},
};
use tokio::time;

use super::{
    Ending, Session,
    failure::Failure,
    house::{Local, Need},
    serve::refuse_server,
};
use crate::{config::age, engine::forget_queries};

/// How much is removed at once: little enough that nobody waits for it.
const BATCH: usize = 100;
/// Younger than this, a plan may be one that is about to be executed.
const HURRY: Duration = Duration::from_mins(1);
/// How long others have their turn between two parts, in a process that does other things too.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a process that stays looks for what is old.
const LOOK: Duration = Duration::from_mins(10);

/// Removes what is over and older than a time.
pub(super) async fn prune(session: &Session, older_than: &str) -> Result<Ending, Failure> {
    refuse_server(session, "prune")?;
    let age = age::parse(older_than).map_err(Failure::usage)?;
    let local = Local::open(session, Need::Store).await?;
    let (store, clock) = (&**local.engine.store(), &**local.engine.clock());
    let removed = match refuse_hurry(store, clock, age).await {
        Ok(()) => remove(store, before(clock, age)).await.map_err(Failure::from),
        Err(refused) => Err(refused),
    };
    local.close().await;
    let Pruned { executions, plans, requests, .. } = removed?;
    let screen = &session.screen;
    if screen.json {
        let document = json!({ "executions": executions, "plans": plans, "requests": requests });
        screen.print_json(&document)?;
    } else {
        let shown = format!("removed {executions} executions, {plans} plans, {requests} requests");
        screen.print(&shown)?;
    }
    Ok(Ending::Done)
}

/// Refuses to remove what is nearly new while others work in the store: between making a plan and
/// executing it, nothing refers to it.
async fn refuse_hurry(store: &dyn Store, clock: &dyn Clock, age: Duration) -> Result<(), Failure> {
    if age >= HURRY || store.workers(clock.now()).await?.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(
        "other processes work in this store, and could lose plans that they have just made: write \
         `--older-than 60s` or more, or end them first",
    ))
}

/// Removes everything that is over and older than a moment.
async fn remove(store: &dyn Store, before: Timestamp) -> Result<Pruned, StoreError> {
    let mut all = Pruned::default();
    loop {
        let some = step(store, before).await?;
        all.executions += some.executions;
        all.plans += some.plans;
        all.requests += some.requests;
        if !some.more {
            return Ok(all);
        }
    }
}

/// Removes a part of what is over and old; with the last, the blobs whose executions are gone and
/// what was learned about queries that nobody asks any more.
async fn step(store: &dyn Store, before: Timestamp) -> Result<Pruned, StoreError> {
    let some = store.prune(before, BATCH).await?;
    if !some.more {
        blob::forget(store, before).await?;
        forget_queries(store, before).await?;
    }
    Ok(some)
}

fn before(clock: &dyn Clock, age: Duration) -> Timestamp {
    let age = chrono::TimeDelta::from_std(age).unwrap_or(chrono::TimeDelta::MAX);
    clock.now().checked_sub_signed(age).unwrap_or(Timestamp::MIN_UTC)
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
            let pause = match step(&*store, before(&*clock, age)).await {
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
        clock::WallClock,
        id::{RequestId, WorkerId},
        request::Request,
        store::{self, Lease, Record, RecordKind, Unless},
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
        let store = store::open("memory:").await.unwrap();
        let created_at = WallClock.now();
        let id = RequestId::draw(created_at);
        store.put_request(&Request { id, query: "q".to_owned(), created_at }).await.unwrap();
        (store, id)
    }

    #[tokio::test]
    async fn what_is_old_goes_and_what_is_not_stays() {
        let (store, id) = with_a_request().await;
        let hour = Duration::from_hours(1);
        let removed = remove(&*store, before(&WallClock, hour)).await.unwrap();
        assert_eq!(removed, Pruned::default());
        assert!(store.request(id).await.unwrap().is_some());
        let removed = remove(&*store, before(&Later, hour)).await.unwrap();
        assert_eq!(removed, Pruned { requests: 1, ..Pruned::default() });
        assert!(store.request(id).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn queries_that_were_learned_from_go_with_requests() {
        let (store, _) = with_a_request().await;
        let tools = json!({ "s.t": { "well": 1.0, "failed": 0.0 } });
        let kind = |query: &str, at: Timestamp| json!({ "query": query, "at": at, "tools": tools });
        let kinds = [kind("old", WallClock.now()), kind("new", Later.now())];
        let learned = json!({
            "until": null, "learned": planner::toolkit::learned::Learned::default(),
            "outcomes": { "since": WallClock.now(), "kinds": kinds },
        });
        let (kind, name) = (RecordKind::Learned, "transitions".to_owned());
        let record = Record { kind, name, value: Arc::new(learned), at: WallClock.now() };
        store.put_record(&record, Unless::Exists).await.unwrap();
        let queries = async || {
            let record = store.record(kind, &record.name).await.unwrap().unwrap();
            let kinds = record.value["outcomes"]["kinds"].as_array().unwrap().clone();
            kinds.iter().map(|it| it["query"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let hour = Duration::from_hours(1);
        remove(&*store, before(&WallClock, hour)).await.unwrap();
        assert_eq!(queries().await, ["old", "new"]);
        remove(&*store, before(&Later, hour)).await.unwrap();
        assert_eq!(queries().await, ["new"]);
    }

    #[tokio::test]
    async fn what_is_nearly_new_stays_while_others_work() {
        let (store, _) = with_a_request().await;
        let refused = async |seconds: u64| {
            refuse_hurry(&*store, &WallClock, Duration::from_secs(seconds)).await.is_err()
        };
        assert!(!refused(0).await, "nobody else is there");
        let worker = WorkerId::draw(WallClock.now());
        let until = WallClock.now() + chrono::TimeDelta::minutes(1);
        store.heartbeat(Lease { worker, node: "n".to_owned(), until }).await.unwrap();
        assert!(refused(0).await && refused(59).await && !refused(60).await);
        store.retire(worker).await.unwrap();
        assert!(!refused(0).await);
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
