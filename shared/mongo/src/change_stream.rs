//! Wakes tasks of this process when another process writes, by a change stream. Waiting tasks also
//! poll, so a broken stream delays them but never stops them.

use std::{sync::Arc, time::Duration};

use mongodb::{
    Database,
    bson::{Document, doc},
    change_stream::{ChangeStream, event::ChangeStreamEvent},
};
use shared::store::{Hints, StoreError};

use super::{connection::to_store_error, records::RECORDS};

/// Delay before a broken stream is opened again. Doubles with each attempt, up to
/// [`MAX_REOPEN_DELAY`].
const REOPEN_DELAY: Duration = Duration::from_millis(100);
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(5);

pub(super) type Stream = ChangeStream<ChangeStreamEvent<Document>>;

/// Opens a stream of new events, heads and commands, except events and heads of this process, and
/// of changes of the records' revision. `writer_name` is this process's name from
/// [`new_writer_name`](super::rows::new_writer_name).
pub(super) async fn open_stream(
    database: &Database,
    writer_name: &str,
) -> Result<Stream, StoreError> {
    let inserted = doc! {
        "operationType": "insert",
        "ns.coll": { "$in": ["events", "inbox", "executions"] },
        "fullDocument.by": { "$ne": writer_name },
    };
    let revision = doc! { "ns.coll": "meta", "documentKey._id": RECORDS };
    let pipeline = [
        doc! { "$match": { "$or": [inserted, revision] } },
        doc! { "$project": { "operationType": 1, "ns": 1, "documentKey": 1 } },
    ];
    database.watch().pipeline(pipeline).await.map_err(|err| to_store_error(&err))
}

/// Turns events into hints until the task is aborted.
pub(super) async fn follow_stream(
    mut stream: Stream,
    database: Database,
    hints: Arc<Hints>,
    writer_name: String,
) {
    loop {
        if let Err(err) = send_hints(&mut stream, &hints).await {
            tracing::warn!(%err, "the change stream failed");
        }
        stream = reopen_stream(&database, &writer_name).await;
        // Wakes all tasks, because the new stream does not report writes that happened before it
        // was open.
        hints.wake_all();
    }
}

async fn send_hints(stream: &mut Stream, hints: &Hints) -> mongodb::error::Result<()> {
    use futures::TryStreamExt;
    while let Some(event) = stream.try_next().await? {
        let collection = event.ns.and_then(|namespace| namespace.coll).unwrap_or_default();
        match collection.as_str() {
            "events" => {
                let key = event.document_key.as_ref().and_then(|key| key.get_document("_id").ok());
                let log = key.and_then(|id| id.get_str("x").ok()?.parse().ok());
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

async fn reopen_stream(database: &Database, writer_name: &str) -> Stream {
    let mut delay = REOPEN_DELAY;
    loop {
        tokio::time::sleep(delay).await;
        match open_stream(database, writer_name).await {
            Ok(stream) => return stream,
            Err(err) => tracing::debug!(%err, "the change stream cannot be opened"),
        }
        delay = (delay * 2).min(MAX_REOPEN_DELAY);
    }
}
