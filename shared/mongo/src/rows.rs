//! Documents and what they mean. Payloads are JSON text: BSON knows neither large unsigned
//! integers nor every nesting, and a name with a NUL in it not at all.

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

/// Draws the name of a process, so that change streams can leave out its own writes.
pub(super) fn writer() -> String {
    nanoid::nanoid!(12)
}

/// Returns the document of an append.
pub(super) fn event(id: &str, document: &EventDocument, by: &str) -> RawDocumentBuf {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("_id"), rawdoc! { "x": id, "s": document.first.0.cast_signed() });
    row.append(cstr!("n"), i64::try_from(document.len).unwrap_or(i64::MAX));
    if let Some(at) = recorded_at(&document.json) {
        row.append(cstr!("at"), at);
    }
    row.append(cstr!("by"), by);
    row.append(cstr!("events"), document.json.as_str());
    row
}

/// Returns the query for a part of a log. Where `events` is sharded the execution says on which
/// shard; the range says where in the index.
pub(super) fn log_range(id: impl Display, from: impl Into<Any>, to: impl Into<Any>) -> Bson {
    let id = id.to_string();
    doc! {
        "_id": { "$gte": { "x": &id, "s": from.into() }, "$lt": { "x": &id, "s": to.into() } },
        "_id.x": &id,
    }
}

/// Returns when the first event was recorded, for people: from the text, which begins with it.
fn recorded_at(json: &str) -> Option<DateTime> {
    let digits = json.strip_prefix(r#"[{"at":"#)?;
    let micros: i64 = digits.split_once(',')?.0.parse().ok()?;
    Some(DateTime::from_millis(micros / 1_000))
}

/// Reads the document of an append.
pub(super) fn document(row: &RawDocument, id: ExecutionId) -> Result<EventDocument, StoreError> {
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

/// Returns the document of a head.
pub(super) fn put_head(head: &ExecutionHead, by: &str) -> RawDocumentBuf {
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
        // What claims ask for, and only what is free.
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

/// Reads a head.
pub(super) fn head(row: &Bson) -> Result<ExecutionHead, StoreError> {
    let what = row.get_str("_id").unwrap_or("a head");
    let time_of = |field| row.contains_key(field).then(|| time(row, field, what)).transpose();
    let owner = row.contains_key("owner").then(|| parse(row, "owner", what)).transpose()?;
    let parent = row.contains_key("parent").then(|| parse(row, "parent", what)).transpose()?;
    let count = |field| Ok::<_, StoreError>(integer(row, field, what)?.cast_unsigned());
    let state = state(text(row, "state", what)?, what)?;
    // A node of an older version writes heads without the field.
    let is_paused = state == ExecutionState::Paused;
    Ok(ExecutionHead {
        execution: parse(row, "_id", what)?,
        request: parse(row, "requestId", what)?,
        plan: parse(row, "planId", what)?,
        state,
        created_at: time(row, "at", what)?,
        seq: Seq(count("seq")?),
        epoch: Epoch(count("epoch")?),
        owner,
        due: time_of("due")?,
        priority: row.get_i32("priority").map_err(|err| StoreError::corrupt(what, err))?,
        finished_at: time_of("finishedAt")?,
        parent,
        needs_person: row.get_bool("needsPerson").unwrap_or(is_paused),
    })
}

/// Reads an identifier.
pub(super) fn parse<T: FromStr<Err: Display>>(
    row: &Bson,
    field: &str,
    what: &str,
) -> Result<T, StoreError> {
    text(row, field, what)?.parse().map_err(|err| StoreError::corrupt(what, err))
}

/// Reads a text.
pub(super) fn text<'a>(row: &'a Bson, field: &str, what: &str) -> Result<&'a str, StoreError> {
    row.get_str(field).map_err(|err| StoreError::corrupt(what, format!("`{field}`: {err}")))
}

/// Reads a number.
pub(super) fn integer(row: &Bson, field: &str, what: &str) -> Result<i64, StoreError> {
    row.get_i64(field).map_err(|err| StoreError::corrupt(what, format!("`{field}`: {err}")))
}

/// Reads a time.
pub(super) fn time(row: &Bson, field: &str, what: &str) -> Result<Timestamp, StoreError> {
    let micros = integer(row, field, what)?;
    Timestamp::from_timestamp_micros(micros)
        .ok_or_else(|| StoreError::corrupt(what, format!("`{field}`: {micros} µs is no time")))
}

fn state(word: &str, what: &str) -> Result<ExecutionState, StoreError> {
    let found = ExecutionState::ALL.into_iter().find(|it| it.as_str() == word);
    found.ok_or_else(|| StoreError::corrupt(what, format!("`{word}` is no state")))
}
