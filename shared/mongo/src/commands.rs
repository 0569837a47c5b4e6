//! Write commands as the server understands them.
//!
//! The driver's own `insert_many` encodes every document twice and keeps every `_id`; the journal
//! writes thousands of documents a second and needs neither.

use mongodb::{
    Database,
    bson::{Document, RawArrayBuf, RawDocumentBuf, doc, raw::cstr, rawdoc},
};
use shared::{limits, store::StoreError};

use super::connection::{CONFIRMATION, DUPLICATE_KEY, TOO_LARGE, failed};

/// How safe a write is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Safety {
    /// On the disks of a majority.
    Durable,
    /// In the primary's memory: for what can be rebuilt.
    Cached,
}

/// Makes a command that inserts documents, each for itself.
pub(super) fn insert(collection: &str, documents: RawArrayBuf) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("insert"), collection);
    finish(command, Safety::Durable, |it| it.append(cstr!("documents"), documents))
}

/// Makes a command that replaces documents, or inserts them: `(query, replacement)` each.
pub(super) fn replace(
    collection: &str,
    documents: impl IntoIterator<Item = (RawDocumentBuf, RawDocumentBuf)>,
    safety: Safety,
) -> RawDocumentBuf {
    let update = |(query, with)| rawdoc! { "q": query, "u": with, "upsert": true };
    updates(collection, documents.into_iter().map(update), safety)
}

/// Makes a command that replaces documents that are there: `(query, replacement)` each.
pub(super) fn overwrite(
    collection: &str,
    documents: impl IntoIterator<Item = (RawDocumentBuf, RawDocumentBuf)>,
    safety: Safety,
) -> RawDocumentBuf {
    let update = |(query, with)| rawdoc! { "q": query, "u": with };
    updates(collection, documents.into_iter().map(update), safety)
}

fn updates(
    collection: &str,
    updates: impl Iterator<Item = RawDocumentBuf>,
    safety: Safety,
) -> RawDocumentBuf {
    let mut list = RawArrayBuf::new();
    updates.for_each(|it| list.push(it));
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("update"), collection);
    finish(command, safety, |it| it.append(cstr!("updates"), list))
}

/// Makes a command that changes documents: `{ q, u }` each, with what else it needs.
pub(super) fn update(
    collection: &str,
    updates: &[Document],
    safety: Safety,
) -> Result<RawDocumentBuf, StoreError> {
    many("update", collection, "updates", updates, safety)
}

/// Makes a command that removes whatever queries find.
pub(super) fn remove_where(
    collection: &str,
    queries: impl IntoIterator<Item = Document>,
) -> Result<RawDocumentBuf, StoreError> {
    let deletes = queries.into_iter().map(|it| doc! { "q": it, "limit": 0 });
    let deletes: Vec<Document> = deletes.collect();
    many("delete", collection, "deletes", &deletes, Safety::Durable)
}

fn many(
    name: &str,
    collection: &str,
    field: &str,
    rows: &[Document],
    safety: Safety,
) -> Result<RawDocumentBuf, StoreError> {
    let command = doc! { name: collection, field: rows, "ordered": false };
    let command = RawDocumentBuf::try_from(&command);
    let mut command = command.map_err(|err| StoreError::Unavailable(err.to_string()))?;
    command.append(cstr!("writeConcern"), concern(safety));
    Ok(command)
}

/// Makes a command that removes documents by their `_id`.
pub(super) fn remove(collection: &str, ids: impl IntoIterator<Item = String>) -> RawDocumentBuf {
    let mut list = RawArrayBuf::new();
    ids.into_iter().for_each(|it| list.push(it));
    let mut deletes = RawArrayBuf::new();
    deletes.push(rawdoc! { "q": { "_id": { "$in": list } }, "limit": 0 });
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("delete"), collection);
    finish(command, Safety::Durable, |it| it.append(cstr!("deletes"), deletes))
}

fn finish(
    mut command: RawDocumentBuf,
    safety: Safety,
    payload: impl FnOnce(&mut RawDocumentBuf),
) -> RawDocumentBuf {
    payload(&mut command);
    command.append(cstr!("ordered"), false);
    command.append(cstr!("writeConcern"), concern(safety));
    command
}

fn concern(safety: Safety) -> RawDocumentBuf {
    match safety {
        Safety::Durable => {
            let wait = i32::try_from(CONFIRMATION.as_millis()).unwrap_or(i32::MAX);
            rawdoc! { "w": "majority", "j": true, "wtimeout": wait }
        }
        Safety::Cached => rawdoc! { "w": 1 },
    }
}

/// Runs a write command and returns the places of the documents whose keys were there.
pub(super) async fn run(
    database: &Database,
    command: RawDocumentBuf,
) -> Result<Vec<usize>, StoreError> {
    let reply = database.run_raw_command(command).await.map_err(|err| failed(&err))?;
    duplicates(&reply)
}

/// Runs a write command and returns how many documents it found.
pub(super) async fn run_counting(
    database: &Database,
    command: RawDocumentBuf,
) -> Result<i32, StoreError> {
    let reply = database.run_raw_command(command).await.map_err(|err| failed(&err))?;
    duplicates(&reply)?;
    let unclear = |err| StoreError::Unavailable(format!("MongoDB does not say what it did: {err}"));
    reply.get_i32("n").map_err(unclear)
}

fn duplicates(reply: &Document) -> Result<Vec<usize>, StoreError> {
    let unavailable = |why: &str| StoreError::Unavailable(format!("MongoDB did not write: {why}"));
    if let Ok(concern) = reply.get_document("writeConcernError") {
        let why = concern.get_str("errmsg").unwrap_or("the write is not confirmed");
        return Err(unavailable(why));
    }
    let Ok(errors) = reply.get_array("writeErrors") else { return Ok(Vec::new()) };
    let mut duplicates = Vec::with_capacity(errors.len());
    for error in errors.iter().filter_map(|it| it.as_document()) {
        let index = error.get_i32("index").ok().and_then(|it| usize::try_from(it).ok());
        match (error.get_i32("code"), index) {
            (Ok(DUPLICATE_KEY), Some(index)) => duplicates.push(index),
            (Ok(TOO_LARGE), _) => {
                return Err(StoreError::TooLarge { bytes: limits::DOCUMENT_BYTES });
            }
            _ => return Err(unavailable(error.get_str("errmsg").unwrap_or("it does not say why"))),
        }
    }
    Ok(duplicates)
}
