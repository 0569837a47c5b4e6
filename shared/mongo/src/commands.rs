//! Builds and runs raw write commands, because the driver's `insert_many` would encode every
//! document twice.

use mongodb::{
    Database,
    bson::{Document, RawArrayBuf, RawDocumentBuf, doc, raw::cstr, rawdoc},
};
use shared::{limits, store::StoreError};

use super::connection::{DUPLICATE_KEY_CODE, MAJORITY_TIMEOUT, TOO_LARGE_CODE, to_store_error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Safety {
    /// The write is on the disks of a majority before the command returns.
    Durable,
    /// The write is in the primary's memory. Use it for data that can be computed again.
    Cached,
}

pub(super) struct Replacement {
    pub(super) query: RawDocumentBuf,
    pub(super) document: RawDocumentBuf,
}

/// Divides replacements among commands of at most `max_bytes`, unless a single replacement is
/// larger.
pub(super) fn split_replacements(
    replacements: impl IntoIterator<Item = Replacement>,
    max_bytes: usize,
) -> Vec<Vec<Replacement>> {
    let (mut parts, mut bytes): (Vec<Vec<Replacement>>, usize) = (Vec::new(), 0);
    for replacement in replacements {
        let len = replacement.query.as_bytes().len() + replacement.document.as_bytes().len();
        if let Some(part) = parts.last_mut().filter(|_| bytes + len <= max_bytes) {
            part.push(replacement);
        } else {
            parts.push(vec![replacement]);
            bytes = 0;
        }
        bytes += len;
    }
    parts
}

/// Builds an insert of several documents. A document whose key exists does not stop the other
/// inserts.
pub(super) fn insert_command(collection: &str, documents: RawArrayBuf) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("insert"), collection);
    finish_command(command, Safety::Durable, |command| {
        command.append(cstr!("documents"), documents);
    })
}

/// Builds a command of replacements. A replacement inserts its document if its query finds no
/// document.
pub(super) fn upsert_command(
    collection: &str,
    replacements: impl IntoIterator<Item = Replacement>,
    safety: Safety,
) -> RawDocumentBuf {
    let update = |Replacement { query, document }| {
        rawdoc! { "q": query, "u": document, "upsert": true }
    };
    raw_update_command(collection, replacements.into_iter().map(update), safety)
}

/// Builds a command of replacements. A replacement does nothing if its query finds no document.
pub(super) fn replace_command(
    collection: &str,
    replacements: impl IntoIterator<Item = Replacement>,
    safety: Safety,
) -> RawDocumentBuf {
    let update = |Replacement { query, document }| rawdoc! { "q": query, "u": document };
    raw_update_command(collection, replacements.into_iter().map(update), safety)
}

fn raw_update_command(
    collection: &str,
    updates: impl Iterator<Item = RawDocumentBuf>,
    safety: Safety,
) -> RawDocumentBuf {
    let mut list = RawArrayBuf::new();
    updates.for_each(|update| list.push(update));
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("update"), collection);
    finish_command(command, safety, |command| command.append(cstr!("updates"), list))
}

/// Builds an update from documents `{ q, u }`, which can also have `upsert` and `multi`.
pub(super) fn update_command(
    collection: &str,
    updates: &[Document],
    safety: Safety,
) -> Result<RawDocumentBuf, StoreError> {
    list_command("update", collection, "updates", updates, safety)
}

pub(super) fn remove_where_command(
    collection: &str,
    queries: impl IntoIterator<Item = Document>,
) -> Result<RawDocumentBuf, StoreError> {
    let deletes = queries.into_iter().map(|query| doc! { "q": query, "limit": 0 });
    let deletes: Vec<Document> = deletes.collect();
    list_command("delete", collection, "deletes", &deletes, Safety::Durable)
}

fn list_command(
    name: &str,
    collection: &str,
    field: &str,
    rows: &[Document],
    safety: Safety,
) -> Result<RawDocumentBuf, StoreError> {
    let command = doc! { name: collection, field: rows, "ordered": false };
    let command = RawDocumentBuf::try_from(&command);
    let mut command = command.map_err(|err| StoreError::Unavailable(err.to_string()))?;
    command.append(cstr!("writeConcern"), write_concern(safety));
    Ok(command)
}

pub(super) fn remove_command(
    collection: &str,
    ids: impl IntoIterator<Item = String>,
) -> RawDocumentBuf {
    let mut list = RawArrayBuf::new();
    ids.into_iter().for_each(|id| list.push(id));
    let mut deletes = RawArrayBuf::new();
    deletes.push(rawdoc! { "q": { "_id": { "$in": list } }, "limit": 0 });
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("delete"), collection);
    finish_command(command, Safety::Durable, |command| command.append(cstr!("deletes"), deletes))
}

fn finish_command(
    mut command: RawDocumentBuf,
    safety: Safety,
    append_payload: impl FnOnce(&mut RawDocumentBuf),
) -> RawDocumentBuf {
    append_payload(&mut command);
    command.append(cstr!("ordered"), false);
    command.append(cstr!("writeConcern"), write_concern(safety));
    command
}

fn write_concern(safety: Safety) -> RawDocumentBuf {
    match safety {
        Safety::Durable => {
            let timeout = i32::try_from(MAJORITY_TIMEOUT.as_millis()).unwrap_or(i32::MAX);
            rawdoc! { "w": "majority", "j": true, "wtimeout": timeout }
        }
        Safety::Cached => rawdoc! { "w": 1 },
    }
}

/// Runs a write command. Returns the indexes of documents that were not written because their key
/// exists.
pub(super) async fn run_write(
    database: &Database,
    command: RawDocumentBuf,
) -> Result<Vec<usize>, StoreError> {
    let reply = database.run_raw_command(command).await.map_err(|err| to_store_error(&err))?;
    read_duplicates(&reply)
}

/// Runs a write command. Returns the number of documents that its queries found.
pub(super) async fn run_counted_write(
    database: &Database,
    command: RawDocumentBuf,
) -> Result<i32, StoreError> {
    let reply = database.run_raw_command(command).await.map_err(|err| to_store_error(&err))?;
    read_duplicates(&reply)?;
    let invalid =
        |err| StoreError::Unavailable(format!("the reply of MongoDB has no count: {err}"));
    reply.get_i32("n").map_err(invalid)
}

fn read_duplicates(reply: &Document) -> Result<Vec<usize>, StoreError> {
    let unavailable = |why: &str| StoreError::Unavailable(format!("MongoDB did not write: {why}"));
    if let Ok(concern) = reply.get_document("writeConcernError") {
        let why = concern.get_str("errmsg").unwrap_or("the write is not confirmed");
        return Err(unavailable(why));
    }
    let Ok(errors) = reply.get_array("writeErrors") else { return Ok(Vec::new()) };
    let mut duplicates = Vec::with_capacity(errors.len());
    for error in errors.iter().filter_map(|error| error.as_document()) {
        let index = error.get_i32("index").ok().and_then(|index| usize::try_from(index).ok());
        match (error.get_i32("code"), index) {
            (Ok(DUPLICATE_KEY_CODE), Some(index)) => duplicates.push(index),
            (Ok(TOO_LARGE_CODE), _) => {
                return Err(StoreError::TooLarge { bytes: limits::DOCUMENT_BYTES });
            }
            _ => return Err(unavailable(error.get_str("errmsg").unwrap_or("it gives no reason"))),
        }
    }
    Ok(duplicates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_are_divided_among_commands_by_their_size() {
        let replacement = |bytes: usize| Replacement {
            query: rawdoc! {},
            document: rawdoc! { "text": "x".repeat(bytes) },
        };
        let split = |sizes: &[usize]| {
            let parts = split_replacements(sizes.iter().map(|bytes| replacement(*bytes)), 1_000);
            parts.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(split(&[]), [0_usize; 0]);
        assert_eq!(split(&[300, 300, 300, 300]), [3, 1]);
        assert_eq!(split(&[10, 5_000, 10, 10]), [1, 1, 2]);
    }
}
