use mongodb::bson::{Document as Row, RawDocumentBuf, doc, raw::cstr};
use shared::{
    event,
    execution::ExecutionState,
    id::{ExecutionId, PlanId, Seq},
    plan::Plan,
    request::TranscriptEntry,
    store::{ExecutionHead, StoreError, load_execution},
};

use super::super::{
    Mongo,
    connection::to_store_error,
    json::{Times, Value},
    lists::CREATED,
    plans::StoredPlan,
    records::AT_MICROS,
    rows, transcripts,
};

/// Converts the text of events, and gives their fields the names of the API.
pub(super) fn convert_events(row: &Row) -> Result<RawDocumentBuf, StoreError> {
    let damaged = |err: &dyn std::fmt::Display| StoreError::corrupt("an event", err);
    let id = row.get_document("_id").map_err(|err| damaged(&err))?;
    let execution: ExecutionId = rows::parse_field(id, "x", "an event")?;
    let first = id.get_i64("s").map_err(|err| StoreError::corrupt(execution, err))?;
    let first = Seq(u64::try_from(first).map_err(|err| StoreError::corrupt(execution, err))?);
    let text = rows::read_text(row, "events", &execution.to_string())?;
    let events = event::decode_events(first, text);
    let events = events.map_err(|err| StoreError::corrupt(execution, err))?;
    let json = event::encode_events(&events);
    let mut converted = to_raw(&without(row, &["events"]))?;
    let events = Value::from_json(&json, Times::Events)?;
    events.append_to(&mut converted, cstr!("events"));
    Ok(converted)
}

pub(super) fn convert_record(row: &Row) -> Result<RawDocumentBuf, StoreError> {
    let name = row.get_document("_id").ok().and_then(|id| id.get_str("n").ok());
    let name = name.unwrap_or("a record");
    let at = rows::read_time(row, "at", name)?;
    let json = rows::read_text(row, "json", name)?;
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(json);
    is_json.map_err(|err| StoreError::corrupt(name, err))?;
    let mut converted = without(row, &["at", "json"]);
    converted.extend(doc! { "at": rows::to_date(at), AT_MICROS: at.timestamp_micros() });
    let mut converted = to_raw(&converted)?;
    Value::from_json(json, Times::None)?.append_to(&mut converted, cstr!("value"));
    Ok(converted)
}

fn to_raw(row: &Row) -> Result<RawDocumentBuf, StoreError> {
    RawDocumentBuf::try_from(row).map_err(|err| StoreError::Unavailable(err.to_string()))
}

fn without(row: &Row, fields: &[&str]) -> Row {
    let kept = row.iter().filter(|(name, _)| !fields.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl Mongo {
    /// Converts a plan. A large plan keeps its parts, which are text in every layout.
    pub(super) async fn convert_plan(&self, row: &Row) -> Result<RawDocumentBuf, StoreError> {
        let id: PlanId = rows::parse_field(row, "_id", "a plan")?;
        let text = match row.get_i64("parts") {
            Ok(parts) => self.join_parts(&id.to_string(), parts).await?,
            Err(_) => rows::read_text(row, "json", &id.to_string())?.to_owned(),
        };
        let plan = Plan::from_json(&text).map_err(|err| StoreError::corrupt(id, err))?;
        let mut stored = StoredPlan::new(&plan)?;
        if let Ok(parts) = row.get_i64("parts") {
            // The text of the parts has the names of the earlier layout, which readers understand.
            let converted = stored.row.iter().filter_map(Result::ok);
            let converted = converted.filter(|(name, _)| {
                !["parts", "steps", "written", "diagnostics"].contains(&name.as_str())
            });
            let mut kept = RawDocumentBuf::new();
            converted.for_each(|(name, value)| kept.append(name, value));
            kept.append(cstr!("parts"), parts);
            stored.row = kept;
        }
        Ok(stored.row)
    }

    /// Converts an entry of a transcript. Only the content remains as text, as in new entries.
    pub(super) async fn convert_entry(&self, row: &Row) -> Result<RawDocumentBuf, StoreError> {
        let id = row.get_document("_id").map_err(|err| StoreError::corrupt("an entry", err))?;
        let request = rows::read_text(id, "r", "an entry")?;
        let n = rows::read_integer(id, "n", request)?;
        let text = rows::read_text(row, "json", request)?;
        let before = doc! { "_id": { "r": request, "n": n - 1 }, "more": true };
        let before = self.collection("transcripts").find_one(before).await;
        let is_first = before.map_err(|err| to_store_error(&err))?.is_none();
        let has_more = row.get_bool("more").unwrap_or_default();
        if is_first && !has_more {
            let entry = serde_json::from_str::<TranscriptEntry>(text);
            let entry = entry.map_err(|err| StoreError::corrupt(request, err))?;
            let rows = transcripts::entry_rows(request, n, &entry)?;
            return rows.into_iter().next().ok_or_else(|| StoreError::corrupt(request, "empty"));
        }
        let mut converted = doc! { "_id": id };
        let mut content = text;
        if is_first {
            let (at, kind, rest) = split_entry(text)
                .ok_or_else(|| StoreError::corrupt(request, "an entry has no time and kind"))?;
            let time = rows::to_time(at, "at", request)?;
            converted.extend(doc! { "at": rows::to_date(time), AT_MICROS: at, "kind": kind });
            content = rest;
        }
        if has_more {
            converted.insert("more", true);
        } else {
            content = content.strip_suffix('}').unwrap_or(content);
        }
        converted.insert("text", content);
        to_raw(&converted)
    }

    /// Adds to a head the fields that follow from the log. If the log cannot be read, the head has
    /// the fields of the earlier layout only.
    pub(super) async fn convert_head(&self, row: &Row) -> Result<RawDocumentBuf, StoreError> {
        let mut head = read_old_head(row)?;
        match load_execution(self, head.execution).await {
            Ok(Some(execution)) => head.add_derived(&execution),
            Ok(None) => (),
            Err(err) if err.is_permanent() => {
                tracing::warn!(execution = %head.execution, %err, "a head is incomplete");
            }
            Err(err) => return Err(err),
        }
        Ok(rows::head_row(&head, row.get_str("by").unwrap_or_default()))
    }
}

/// Splits the first part of an entry's JSON into the time, the kind, and the text of the content.
fn split_entry(text: &str) -> Option<(i64, &str, &str)> {
    let (at, rest) = text.strip_prefix(r#"{"at":"#)?.split_once(r#","kind":""#)?;
    let (kind, rest) = rest.split_once(r#"","content":"#)?;
    Some((at.parse().ok()?, kind, rest))
}

fn read_old_head(row: &Row) -> Result<ExecutionHead, StoreError> {
    let what = row.get_str("_id").unwrap_or("a head");
    let mut renamed = row.clone();
    for (from, to) in [
        ("at", CREATED),
        ("due", "dueAtMicros"),
        ("finishedAt", "finishedAtMicros"),
        ("parent", "parentExecutionId"),
    ] {
        if let Some(value) = renamed.remove(from) {
            renamed.insert(to, value);
        }
    }
    let is_paused = rows::read_text(row, "state", what)? == ExecutionState::Paused.as_str();
    if !renamed.contains_key("needsPerson") {
        renamed.insert("needsPerson", is_paused);
    }
    rows::read_head(&renamed)
}
