//! The change stream that wakes this process when another one wrote.
//!
//! It carries no data, only what to look at again, and nothing of what this process wrote itself.
//! When it breaks, everybody looks once, and it is opened again; meanwhile, and always, whoever
//! waits also looks by the clock.

use std::{sync::Arc, time::Duration};

use mongodb::{
    Database,
    bson::{Document, doc},
    change_stream::{ChangeStream, event::ChangeStreamEvent},
};
use shared::store::{Hints, StoreError};

use super::{connection::failed, records::RECORDS};

/// The wait before a broken stream is opened again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What a stream has: where something was inserted, and under which key.
pub(super) type Stream = ChangeStream<ChangeStreamEvent<Document>>;

/// Opens a stream of what others insert, and of what anybody agreed upon.
pub(super) async fn watch(database: &Database, by: &str) -> Result<Stream, StoreError> {
    let inserted = doc! {
        "operationType": "insert",
        "ns.coll": { "$in": ["events", "inbox", "executions"] },
        "fullDocument.by": { "$ne": by },
    };
    let counted = doc! { "ns.coll": "meta", "documentKey._id": RECORDS };
    let pipeline = [
        doc! { "$match": { "$or": [inserted, counted] } },
        doc! { "$project": { "operationType": 1, "ns": 1, "documentKey": 1 } },
    ];
    database.watch().pipeline(pipeline).await.map_err(|err| failed(&err))
}

/// Wakes whoever waits, until the task is ended.
pub(super) async fn follow(mut stream: Stream, database: Database, hints: Arc<Hints>, by: String) {
    loop {
        if let Err(err) = wake(&mut stream, &hints).await {
            tracing::warn!(%err, "the change stream broke");
        }
        stream = reopen(&database, &by).await;
        // What came between the two nobody was told.
        hints.wake_all();
    }
}

async fn wake(stream: &mut Stream, hints: &Hints) -> mongodb::error::Result<()> {
    use futures::TryStreamExt;
    while let Some(event) = stream.try_next().await? {
        let collection = event.ns.and_then(|it| it.coll).unwrap_or_default();
        match collection.as_str() {
            "events" => {
                let key = event.document_key.as_ref().and_then(|it| it.get_document("_id").ok());
                let log = key.and_then(|it| it.get_str("x").ok()?.parse().ok());
                if let Some(log) = log {
                    hints.wake_log(log);
                }
            }
            "inbox" => hints.wake_inbox(),
            "meta" => hints.wake_records(),
            _ => hints.wake_work(),
        }
    }
    Ok(())
}

async fn reopen(database: &Database, by: &str) -> Stream {
    let (mut wait, most) = BACKOFF;
    loop {
        tokio::time::sleep(wait).await;
        match watch(database, by).await {
            Ok(stream) => return stream,
            Err(err) => tracing::debug!(%err, "the change stream cannot be opened"),
        }
        wait = (wait * 2).min(most);
    }
}
