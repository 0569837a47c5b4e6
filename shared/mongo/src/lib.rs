//! The store for more than one machine: a MongoDB replica set.
//!
//! *Fence.* One document for each append, with the log and the first position as its `_id`. Events
//! are only ever inserted, so the duplicate-key error *is* the conflict. An append is tried only
//! behind a position at which a document is known to end; documents never change, so what was
//! known once stays true, and most appends need no question.
//!
//! *Durability.* Whatever counts is written with `{ w: "majority", j: true }` and read from the
//! primary with read concern majority, whatever the URL says. Heads are caches: those that only
//! say that an execution is over may be lost.
//!
//! *Honesty.* Writes are not retried: who asked reads again and decides again.
//!
//! *Throughput.* A [`journal`] gathers what waits while others are on their way.

mod commands;
mod connection;
mod documents;
mod ends;
mod indexes;
mod journal;
mod lists;
mod log;
mod needs_person;
mod permits;
mod reading;
mod records;
mod removal;
mod rows;
mod streams;
mod texts;
mod vectors;

use std::sync::{Arc, atomic::AtomicU64};

use mongodb::{
    Collection, Database,
    bson::{Document, RawDocumentBuf},
};
use shared::store::{Hints, StoreError, backend::PlanCache};
use tokio::task::JoinSet;

use self::{ends::Ends, journal::Journal};

/// A store in a MongoDB replica set. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Mongo {
    /// Reads with read concern majority.
    database: Database,
    /// Reads what the primary has: for caches, so that one sees one's own writes.
    caches: Collection<Document>,
    /// Cached outputs.
    outputs: Collection<Document>,
    journal: Journal,
    ends: Arc<Ends>,
    plans: PlanCache,
    rounds: Rounds,
    hints: Arc<Hints>,
    _tasks: JoinSet<()>,
}

/// What is done once in a while, counted by what is done often.
#[derive(Debug, Default)]
struct Rounds {
    heartbeats: AtomicU64,
    outputs: AtomicU64,
    calls: AtomicU64,
}

impl Mongo {
    /// Connects to the store and makes what it lacks.
    ///
    /// # Errors
    ///
    /// If no primary answers within seconds, if it is a standalone server, or if a newer version
    /// wrote the store.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let database = connection::connect(url).await?;
        let must_fill = indexes::prepare(&database).await?;
        let (hints, ends) = (Arc::new(Hints::default()), Arc::new(Ends::default()));
        let mut tasks = JoinSet::new();
        let writer = rows::writer();
        let journal = Journal::start(&mut tasks, database.clone(), Arc::clone(&hints), &writer);
        let streams = streams::watch(&database, &writer).await?;
        tasks.spawn(streams::follow(streams, database.clone(), Arc::clone(&hints), writer));
        let store = Self {
            caches: connection::caches(&database, "executions"),
            outputs: connection::unconfirmed(&database, "outputs"),
            database,
            journal,
            ends,
            plans: PlanCache::default(),
            rounds: Rounds::default(),
            hints,
            _tasks: tasks,
        };
        if must_fill {
            store.fill_after_upgrade().await?;
        }
        Ok(store)
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    fn raw(&self, name: &str) -> Collection<RawDocumentBuf> {
        self.database.collection(name)
    }
}
