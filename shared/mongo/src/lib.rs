//! The store for more than one machine: a MongoDB replica set.
//!
//! Events are only inserted and never changed. The `_id` of a document is the log and the first
//! position, so two workers that append at the same position get a duplicate-key error, and that
//! error is the conflict.
//!
//! The driver of MongoDB does not retry writes. The caller reads the log again and decides again,
//! because a write that failed may have been stored.

mod audit;
mod change_stream;
mod commands;
mod connection;
mod counts;
mod documents;
mod due;
mod indexes;
mod journal;
mod json;
mod known_ends;
mod lists;
mod log;
mod log_reader;
mod migration;
mod needs_person;
mod permits;
mod plans;
mod records;
mod removal;
mod rewrite;
mod rows;
mod text_parts;
mod transcripts;
mod vectors;

use std::sync::{Arc, atomic::AtomicU64};

use mongodb::{
    Collection, Database,
    bson::{Document, RawDocumentBuf},
};
use shared::store::{
    Hints, StoreError,
    backend::{LAYOUT, PlanCache},
};
use tokio::task::JoinSet;

use self::{journal::Journal, known_ends::KnownEnds};

/// A store in a MongoDB replica set. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Mongo {
    /// Reads with read concern `majority`.
    database: Database,
    heads: Collection<Document>,
    outputs: Collection<Document>,
    journal: Journal,
    known_ends: Arc<KnownEnds>,
    plans: PlanCache,
    cleanup_counters: CleanupCounters,
    hints: Arc<Hints>,
    /// Version of the store layout that this node writes.
    layout: u32,
    _tasks: JoinSet<()>,
}

/// Counters of frequent operations. The store removes old data each time after a fixed number of
/// operations.
#[derive(Debug, Default)]
struct CleanupCounters {
    heartbeats: AtomicU64,
    outputs: AtomicU64,
    calls: AtomicU64,
}

impl Mongo {
    /// Connects to the store, creates missing collections and indexes, and converts a store of an
    /// earlier layout.
    ///
    /// # Errors
    ///
    /// If no primary answers within 5 seconds, or within the time that the URL names, if the server
    /// is not in a replica set, if only a newer version of Faber can use the store, or if a worker
    /// of an earlier version uses it.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_as(url, LAYOUT).await
    }

    /// Opens the store as a node that uses the store layout `layout` does, for tests. Such a node
    /// does not write what a later layout added.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub async fn open_as(url: &str, layout: u32) -> Result<Self, StoreError> {
        let database = connection::connect(url).await?;
        let must_migrate = migration::prepare_database(&database, layout).await?;
        let (hints, known_ends) = (Arc::new(Hints::default()), Arc::new(KnownEnds::default()));
        let mut tasks = JoinSet::new();
        let writer = rows::new_writer_name();
        let journal = Journal::start(&mut tasks, database.clone(), Arc::clone(&hints), &writer);
        let stream = change_stream::open_stream(&database, &writer).await?;
        tasks.spawn(change_stream::follow_stream(
            stream,
            database.clone(),
            Arc::clone(&hints),
            writer,
        ));
        let store = Self {
            heads: connection::local_collection(&database, "executions"),
            outputs: connection::unconfirmed_collection(&database, "outputs"),
            database,
            journal,
            known_ends,
            plans: PlanCache::default(),
            cleanup_counters: CleanupCounters::default(),
            hints,
            layout,
            _tasks: tasks,
        };
        if must_migrate {
            store.migrate().await?;
        }
        indexes::create_indexes(&store.database).await?;
        Ok(store)
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    fn raw_collection(&self, name: &str) -> Collection<RawDocumentBuf> {
        self.database.collection(name)
    }
}
