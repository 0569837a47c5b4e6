//! Converts events and heads to documents, and back.
//!
//! Payloads are stored as JSON text, because BSON has no large unsigned integers, limits nesting,
//! and allows no field name with a NUL character.

use std::{fmt::Display, str::FromStr};

use mongodb::bson::{
    Bson as Any, DateTime, Document as Bson, RawDocument, RawDocumentBuf, doc, raw::cstr, rawdoc,
};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{Epoch, ExecutionId, Seq},
    store::{EventDocument, ExecutionHead, StoreError},
};

/// Draws a random name for this process, so that its change stream can leave out its own writes.
pub(super) fn new_writer_name() -> String {
    nanoid::nanoid!(12)
}

pub(super) fn event_row(id: &str, document: &EventDocument, by: &str) -> RawDocumentBuf {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("_id"), rawdoc! { "x": id, "s": document.first.0.cast_signed() });
    row.append(cstr!("n"), i64::try_from(document.len).unwrap_or(i64::MAX));
    if let Some(at) = read_first_time(&document.json) {
        row.append(cstr!("at"), at);
    }
    row.append(cstr!("by"), by);
    row.append(cstr!("events"), document.json.as_str());
    row
}

/// Returns a query for a part of a log. If `events` is sharded, the server finds the shard by
/// `_id.x`. The range of `_id` uses the index.
pub(super) fn log_range(id: impl Display, from: impl Into<Any>, to: impl Into<Any>) -> Bson {
    let id = id.to_string();
    doc! {
        "_id": { "$gte": { "x": &id, "s": from.into() }, "$lt": { "x": &id, "s": to.into() } },
        "_id.x": &id,
    }
}

/// Returns the time of the first event, which people see when they look into the collection. Reads
/// it from the beginning of the text, because parsing the whole text would be slow.
fn read_first_time(json: &str) -> Option<DateTime> {
    let digits = json.strip_prefix(r#"[{"at":"#)?;
    let micros: i64 = digits.split_once(',')?.0.parse().ok()?;
    Some(DateTime::from_millis(micros / 1_000))
}

pub(super) fn read_document(
    row: &RawDocument,
    id: ExecutionId,
) -> Result<EventDocument, StoreError> {
    let read = || {
        let first = row.get_document("_id")?.get_i64("s")?;
        let (len, json) = (row.get_i64("n")?, row.get_str("events")?.to_owned());
        Ok((first, len, json))
    };
    let damaged = |err: mongodb::bson::error::Error| StoreError::corrupt(id, err);
    let (first, len, json) = read().map_err(damaged)?;
    let out_of_range = |err| StoreError::corrupt(id, err);
    Ok(EventDocument {
        first: Seq(u64::try_from(first).map_err(out_of_range)?),
        len: usize::try_from(len).map_err(out_of_range)?,
        json,
    })
}

pub(super) fn head_row(head: &ExecutionHead, by: &str) -> RawDocumentBuf {
    let mut row = rawdoc! {
        "_id": head.execution.to_string(),
        "requestId": head.request.to_string(),
        "planId": head.plan.to_string(),
        "state": head.state.as_str(),
        "createdAt": DateTime::from_millis(head.created_at.timestamp_millis()),
        "at": head.created_at.timestamp_micros(),
        "seq": head.seq.0.cast_signed(),
        "epoch": head.epoch.0.cast_signed(),
        "priority": head.priority,
        "needsPerson": head.needs_person,
        "by": by,
    };
    if let Some(owner) = head.owner {
        row.append(cstr!("owner"), owner.to_string());
    }
    if let Some(due) = head.due {
        row.append(cstr!("due"), due.timestamp_micros());
        // Claims search for `wake`, so only executions that a worker may claim have it.
        if head.is_claimable() {
            row.append(cstr!("wake"), due.timestamp_micros());
        }
    }
    if let Some(at) = head.finished_at {
        row.append(cstr!("finishedAt"), at.timestamp_micros());
    }
    if let Some(parent) = head.parent {
        row.append(cstr!("parent"), parent.to_string());
    }
    row
}

pub(super) fn read_head(row: &Bson) -> Result<ExecutionHead, StoreError> {
    let what = row.get_str("_id").unwrap_or("a head");
    let read_time_if_set =
        |field| row.contains_key(field).then(|| read_time(row, field, what)).transpose();
    let owner = row.contains_key("owner").then(|| parse_field(row, "owner", what)).transpose()?;
    let parent =
        row.contains_key("parent").then(|| parse_field(row, "parent", what)).transpose()?;
    let read_count = |field| Ok::<_, StoreError>(read_integer(row, field, what)?.cast_unsigned());
    let state = parse_state(read_text(row, "state", what)?, what)?;
    // A node of an older version writes heads without `needsPerson`.
    let is_paused = state == ExecutionState::Paused;
    Ok(ExecutionHead {
        execution: parse_field(row, "_id", what)?,
        request: parse_field(row, "requestId", what)?,
        plan: parse_field(row, "planId", what)?,
        state,
        created_at: read_time(row, "at", what)?,
        seq: Seq(read_count("seq")?),
        epoch: Epoch(read_count("epoch")?),
        owner,
        due: read_time_if_set("due")?,
        priority: row.get_i32("priority").map_err(|err| StoreError::corrupt(what, err))?,
        finished_at: read_time_if_set("finishedAt")?,
        parent,
        needs_person: row.get_bool("needsPerson").unwrap_or(is_paused),
    })
}

/// Parses a text field. `what` names the document in the error, as in the other readers.
pub(super) fn parse_field<T: FromStr<Err: Display>>(
    row: &Bson,
    field: &str,
    what: &str,
) -> Result<T, StoreError> {
    read_text(row, field, what)?.parse().map_err(|err| StoreError::corrupt(what, err))
}

pub(super) fn read_text<'a>(row: &'a Bson, field: &str, what: &str) -> Result<&'a str, StoreError> {
    row.get_str(field).map_err(|err| StoreError::corrupt(what, format!("`{field}`: {err}")))
}

pub(super) fn read_integer(row: &Bson, field: &str, what: &str) -> Result<i64, StoreError> {
    row.get_i64(field).map_err(|err| StoreError::corrupt(what, format!("`{field}`: {err}")))
}

pub(super) fn read_time(row: &Bson, field: &str, what: &str) -> Result<Timestamp, StoreError> {
    let micros = read_integer(row, field, what)?;
    Timestamp::from_timestamp_micros(micros)
        .ok_or_else(|| StoreError::corrupt(what, format!("`{field}`: {micros} µs is not a time")))
}

fn parse_state(word: &str, what: &str) -> Result<ExecutionState, StoreError> {
    let found = ExecutionState::ALL.into_iter().find(|state| state.as_str() == word);
    found.ok_or_else(|| StoreError::corrupt(what, format!("`{word}` is not a state")))
}
