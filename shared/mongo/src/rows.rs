use std::{collections::BTreeMap, fmt::Display, str::FromStr, sync::Arc};

use mongodb::bson::{
    Bson as Any, DateTime, Document as Bson, RawDocument, RawDocumentBuf, doc,
    raw::{CStr, cstr},
    rawdoc,
};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{Epoch, ExecutionId, Seq},
    labels::Labels,
    store::{EventDocument, ExecutionHead, HeadError, StoreError},
    tool::ErrorCode,
};

use super::json::{Times, Value, to_text};

/// The token of an execution that a worker can claim, or an empty text. Other heads lack this
/// field, so its index has only executions that a worker can claim.
pub(super) const WAKE_TOKEN: &str = "wakeToken";
pub(super) const TOKEN: &str = "labels.@token";
pub(super) const STORED_BYTES: &str = "storedBytes";

pub(super) const FINISHED_STATES: [&str; 3] = ["COMPLETED", "FAILED", "CANCELLED"];

/// Draws a random name for this process, so that its change stream can leave out its own writes.
pub(super) fn new_writer_name() -> String {
    nanoid::nanoid!(12)
}

pub(super) fn event_row(
    id: &str,
    document: &EventDocument,
    writer_name: &str,
) -> Result<RawDocumentBuf, StoreError> {
    let events = Value::from_json(&document.json, Times::Events)?;
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("_id"), rawdoc! { "x": id, "s": document.first.0.cast_signed() });
    row.append(cstr!("n"), i64::try_from(document.len).unwrap_or(i64::MAX));
    if let Some(at) = read_first_time(&document.json) {
        row.append(cstr!("at"), at);
    }
    row.append(cstr!("by"), writer_name);
    events.append_to(&mut row, cstr!("events"));
    Ok(row)
}

/// Returns a query for a part of a log. If `events` is sharded, the server finds the shard by
/// `_id.x`. The range of `_id` lets the server use the index.
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
    Some(DateTime::from_millis(micros.div_euclid(1_000)))
}

pub(super) fn read_document(
    row: &RawDocument,
    id: ExecutionId,
) -> Result<EventDocument, StoreError> {
    let damaged = |err: mongodb::bson::error::Error| StoreError::corrupt(id, err);
    let first = row.get_document("_id").and_then(|id| id.get_i64("s")).map_err(damaged)?;
    let len = row.get_i64("n").map_err(damaged)?;
    let events = row.get("events").map_err(damaged)?;
    let events = events.ok_or_else(|| StoreError::corrupt(id, "it has no field `events`"))?;
    let out_of_range = |err| StoreError::corrupt(id, err);
    Ok(EventDocument {
        first: Seq(u64::try_from(first).map_err(out_of_range)?),
        len: usize::try_from(len).map_err(out_of_range)?,
        json: to_text(events, &id.to_string())?,
    })
}

pub(super) fn to_date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.timestamp_millis())
}

/// Appends a time as a date for people, and its microseconds for the order of lists.
fn append_time(row: &mut RawDocumentBuf, date: &CStr, micros: &CStr, time: Option<Timestamp>) {
    if let Some(time) = time {
        row.append(date, to_date(time));
        row.append(micros, time.timestamp_micros());
    }
}

pub(super) fn head_row(head: &ExecutionHead, writer_name: &str) -> RawDocumentBuf {
    let mut row = rawdoc! {
        "_id": head.execution.to_string(),
        "requestId": head.request.to_string(),
        "planId": head.plan.to_string(),
        "state": head.state.as_str(),
        "query": &*head.query,
        "stepsDone": i64::from(head.steps_done),
        "stepsTotal": i64::from(head.steps_total),
        "seq": head.seq.0.cast_signed(),
        "epoch": head.epoch.0.cast_signed(),
        "priority": head.priority,
        "needsPerson": head.needs_person,
        "by": writer_name,
    };
    append_time(&mut row, cstr!("createdAt"), cstr!("createdAtMicros"), Some(head.created_at));
    append_time(&mut row, cstr!("startedAt"), cstr!("startedAtMicros"), head.started_at);
    append_time(&mut row, cstr!("dueAt"), cstr!("dueAtMicros"), head.due);
    append_time(&mut row, cstr!("finishedAt"), cstr!("finishedAtMicros"), head.finished_at);
    if let Some(owner) = head.owner {
        row.append(cstr!("owner"), owner.to_string());
    }
    if let Some(due) = head.due.filter(|_| head.is_claimable()) {
        // Claims search for this field, so only executions that a worker can claim have this field.
        row.append(cstr!("wakeMicros"), due.timestamp_micros());
        row.append(cstr!("wakeToken"), head.token().unwrap_or_default());
    }
    if let Some(parent) = head.parent {
        row.append(cstr!("parentExecutionId"), parent.to_string());
    }
    if head.token().is_some() {
        row.append(cstr!("storedBytes"), head.stored_bytes.cast_signed());
    }
    if head.is_dry_run {
        row.append(cstr!("dryRun"), true);
    }
    append_labels(&mut row, &head.labels);
    if let Some(error @ HeadError { code, tool, message }) = &head.error {
        row.append(cstr!("errorCode"), code.as_str());
        row.append(cstr!("errorMessage"), &**message);
        row.append(cstr!("errorText"), error.folded_text());
        if let Some(tool) = tool {
            row.append(cstr!("failedTool"), tool.as_str());
        }
    }
    row
}

/// Appends the labels as a document for people, and as a list of terms for the index. The terms are
/// each key, and each key with its value.
fn append_labels(row: &mut RawDocumentBuf, labels: &Labels) {
    if labels.is_empty() {
        return;
    }
    let (mut fields, mut terms) = (RawDocumentBuf::new(), mongodb::bson::RawArrayBuf::new());
    for (key, value) in labels {
        // This conversion never fails, because keys of labels have no NUL.
        if let Ok(name) = <&CStr>::try_from(key.as_str()) {
            fields.append(name, value.as_str());
            terms.push(key.as_str());
            terms.push(label_term(key, value));
        }
    }
    row.append(cstr!("labels"), fields);
    row.append(cstr!("labelTerms"), terms);
}

/// Returns the index term of a label. A key never contains `=`, so the first `=` ends the key.
pub(super) fn label_term(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

pub(super) fn read_head(row: &Bson) -> Result<ExecutionHead, StoreError> {
    let what = row.get_str("_id").unwrap_or("a head");
    let read_time_if_set =
        |field| row.contains_key(field).then(|| read_time(row, field, what)).transpose();
    let owner = row.contains_key("owner").then(|| parse_field(row, "owner", what)).transpose()?;
    let parent = row.contains_key("parentExecutionId");
    let parent = parent.then(|| parse_field(row, "parentExecutionId", what)).transpose()?;
    let read_count = |field| Ok::<_, StoreError>(read_integer(row, field, what)?.cast_unsigned());
    // Reads missing fields as zero, because a node of another layout may leave them out.
    let read_steps = |field| u32::try_from(row.get_i64(field).unwrap_or_default()).unwrap_or(0);
    Ok(ExecutionHead {
        execution: parse_field(row, "_id", what)?,
        request: parse_field(row, "requestId", what)?,
        plan: parse_field(row, "planId", what)?,
        state: parse_state(read_text(row, "state", what)?, what)?,
        created_at: read_time(row, "createdAtMicros", what)?,
        seq: Seq(read_count("seq")?),
        epoch: Epoch(read_count("epoch")?),
        owner,
        due: read_time_if_set("dueAtMicros")?,
        priority: row.get_i32("priority").map_err(|err| StoreError::corrupt(what, err))?,
        finished_at: read_time_if_set("finishedAtMicros")?,
        parent,
        needs_person: row.get_bool("needsPerson").unwrap_or_default(),
        started_at: read_time_if_set("startedAtMicros")?,
        query: row.get_str("query").unwrap_or_default().into(),
        steps_done: read_steps("stepsDone"),
        steps_total: read_steps("stepsTotal"),
        error: read_error(row, what)?,
        labels: read_labels(row, what)?,
        is_dry_run: row.get_bool("dryRun").unwrap_or_default(),
        stored_bytes: row.get_i64(STORED_BYTES).unwrap_or_default().unsigned_abs(),
    })
}

fn read_error(row: &Bson, what: &str) -> Result<Option<HeadError>, StoreError> {
    let Ok(code) = row.get_str("errorCode") else { return Ok(None) };
    let has_tool = row.contains_key("failedTool");
    let tool = has_tool.then(|| parse_field(row, "failedTool", what)).transpose()?;
    let message = Arc::from(row.get_str("errorMessage").unwrap_or_default());
    Ok(Some(HeadError { code: ErrorCode::custom(code.to_owned()), tool, message }))
}

pub(super) fn read_labels(row: &Bson, what: &str) -> Result<Labels, StoreError> {
    let Ok(labels) = row.get_document("labels") else { return Ok(BTreeMap::new()) };
    let pairs = labels.iter().map(|(key, value)| {
        let value = value.as_str().ok_or_else(|| StoreError::corrupt(what, "a label is no text"));
        Ok((key.clone(), value?.to_owned()))
    });
    pairs.collect()
}

pub(super) fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|err| StoreError::corrupt(text, err))
}

/// Parses a text field. `what` names the document in the error.
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
    to_time(read_integer(row, field, what)?, field, what)
}

pub(super) fn to_time(micros: i64, field: &str, what: &str) -> Result<Timestamp, StoreError> {
    Timestamp::from_timestamp_micros(micros)
        .ok_or_else(|| StoreError::corrupt(what, format!("`{field}`: {micros} µs is not a time")))
}

fn parse_state(word: &str, what: &str) -> Result<ExecutionState, StoreError> {
    let found = ExecutionState::ALL.into_iter().find(|state| state.as_str() == word);
    found.ok_or_else(|| StoreError::corrupt(what, format!("`{word}` is not a state")))
}
