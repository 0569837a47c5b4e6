use std::sync::Arc;

use serde_json::Value;
use shared::{
    event::RecordedEvent,
    id::{ExecutionId, PlanId, Seq},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        Append, AppendError, AuditEntry, ExecutionHead, Page, PlanFilter, Record, RecordKind,
        SentCommand, Store, StoreError, WriteCondition,
    },
};

use super::Mode;
use crate::error::BackupError;

const PAGE_LEN: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The store did not have the object, or had only its beginning.
    New,
    Same,
    Different(String),
    /// The object belongs to another object that does not exist.
    Useless,
}

impl Found {
    fn combine(self, other: Self) -> Self {
        match (self, other) {
            (Self::Different(why), _) | (_, Self::Different(why)) => Self::Different(why),
            (Self::New, _) | (_, Self::New) => Self::New,
            _ => Self::Same,
        }
    }
}

pub(super) struct Transcript {
    pub(super) request: Request,
    pub(super) known: usize,
    pub(super) entries: Vec<TranscriptEntry>,
}

impl Transcript {
    /// Compares the transcript with the store, and writes what is missing unless `mode` is
    /// `Compare`.
    pub(super) async fn put(self, store: &dyn Store, mode: Mode) -> Result<Found, BackupError> {
        let id = self.request.id;
        let different = |what: &str| Ok(Found::Different(format!("`{id}` ({what})")));
        let is_new = match store.request(id).await? {
            Some(stored) if stored != self.request => {
                return different("its query, its time or its labels");
            }
            Some(_) => false,
            // Counts the part as new. Its request may be in the file, but a comparison does not
            // write the request into the store.
            None if mode == Mode::Compare => return Ok(Found::New),
            None => match store.put_request(&self.request).await {
                Ok(()) => true,
                Err(StoreError::Taken) => return different("another process created it"),
                Err(err) => return Err(err.into()),
            },
        };
        let stored = match store.transcript_after(id, self.known).await {
            Ok(stored) => stored,
            Err(StoreError::Corrupt { .. }) => return different("its transcript is damaged"),
            Err(err) => return Err(err.into()),
        };
        let common = stored.len().min(self.entries.len());
        if stored[..common] != self.entries[..common] {
            return different("its transcript");
        }
        let missing = &self.entries[common..];
        if !missing.is_empty() && mode != Mode::Compare {
            store.add_transcript(id, missing).await?;
        }
        Ok(if is_new || !missing.is_empty() { Found::New } else { Found::Same })
    }
}

/// Compares the plan with the store, and writes it if it is missing, unless `mode` is `Compare`.
pub(super) async fn put_plan(
    store: &dyn Store,
    mode: Mode,
    plan: &Arc<Plan>,
) -> Result<Found, BackupError> {
    let id = plan.id();
    if let Some(stored) = store.plan(id).await? {
        let is_same = stored.to_unchecked() == plan.to_unchecked();
        return Ok(if is_same { Found::Same } else { Found::Different(format!("`{id}`")) });
    }
    let info = plan.info();
    let taken = |by: PlanId| {
        Found::Different(format!("`{id}` (version {} of its request is `{by}`)", info.version))
    };
    if mode != Mode::Compare {
        match store.put_plan(plan).await {
            Ok(()) => return Ok(Found::New),
            Err(StoreError::Taken) => (),
            Err(err) => return Err(err.into()),
        }
    }
    let filter = PlanFilter { request: Some(info.request), ..PlanFilter::default() };
    let mut after = None;
    loop {
        let listing =
            store.list_plans(&filter, &Page { after, ..Page::first_items(PAGE_LEN) }).await?;
        after = listing.items.last().map(|(cursor, _)| cursor.clone());
        let mut versions = listing.items.iter().map(|(_, listed)| listed);
        if let Some(other) = versions.find(|listed| listed.version == info.version) {
            return Ok(if other.id == id { Found::Same } else { taken(other.id) });
        }
        if !listing.has_more || after.is_none() {
            return Ok(Found::New);
        }
    }
}

pub(super) struct Log {
    pub(super) head: ExecutionHead,
    pub(super) events: Vec<RecordedEvent>,
    pub(super) commands: Vec<SentCommand>,
    /// The result of the earlier parts, if there are any.
    pub(super) earlier_result: Option<Found>,
    pub(super) is_complete: bool,
}

impl Log {
    /// Compares the log with the store, and writes what is missing unless `mode` is `Compare`. A
    /// restore also writes the head and the commands of a log that the store has already.
    pub(super) async fn put(self, store: &dyn Store, mode: Mode) -> Result<Found, BackupError> {
        if let Some(Found::Different(why)) = &self.earlier_result {
            return Ok(Found::Different(why.clone()));
        }
        let id = self.head.execution;
        let found = if self.events.is_empty() {
            Found::Same
        } else if mode == Mode::Compare {
            compare_events(store, id, &self.events).await?
        } else {
            self.append(store).await?
        };
        let found = match &self.earlier_result {
            Some(before) => before.clone().combine(found),
            None => found,
        };
        if mode == Mode::Compare || !self.is_complete || matches!(found, Found::Different(_)) {
            return Ok(found);
        }
        // `true` if no append wrote the head. Otherwise the append of the last part wrote it.
        let is_head_old = self.events.is_empty() || found == Found::Same;
        match (mode, &found) {
            (Mode::Restore, _) | (_, Found::New) if is_head_old => {
                store.put_head(self.head).await?;
            }
            (Mode::Restore, _) | (_, Found::New) => (),
            _ => return Ok(found),
        }
        for command in self.commands {
            store.send_command(command).await?;
        }
        Ok(found)
    }

    async fn append(&self, store: &dyn Store) -> Result<Found, BackupError> {
        let id = self.head.execution;
        let Some(first) = self.events.first() else { return Ok(Found::Same) };
        let mut after = Seq(first.seq.0 - 1);
        let mut events = self.events.as_slice();
        loop {
            let head = Some(self.head.clone());
            // The file has the entry about the start, unless retention has removed it.
            let append = Append { head, audit: None, ..Append::new(id, after, events) };
            match store.append(append).await {
                Ok(()) => return Ok(Found::New),
                Err(AppendError::Conflict) => (),
                Err(AppendError::Store(err)) => return Err(err.into()),
            }
            match compare_events(store, id, events).await? {
                Found::New => {
                    let end = find_end_within(store, id, events).await?;
                    if end <= after {
                        // The stored log does not continue, and yet the append was a conflict, so
                        // another process writes the log.
                        let why = format!("`{id}` (another process writes it)");
                        return Ok(Found::Different(why));
                    }
                    events = &events[events.partition_point(|event| event.seq <= end)..];
                    after = end;
                }
                found => return Ok(found),
            }
        }
    }
}

/// Compares events with the stored log. Returns [`Found::New`] if the log ends before the last of
/// these events.
async fn compare_events(
    store: &dyn Store,
    id: ExecutionId,
    events: &[RecordedEvent],
) -> Result<Found, StoreError> {
    let mut rest = events;
    while let Some(first) = rest.first() {
        let stored = store.read(id, Seq(first.seq.0 - 1)).await?;
        if stored.is_empty() {
            return Ok(Found::New);
        }
        let common = stored.len().min(rest.len());
        if let Some((other, _)) =
            rest.iter().zip(&stored).find(|(expected, found)| expected != found)
        {
            return Ok(Found::Different(format!("`{id}` (event {})", other.seq)));
        }
        rest = &rest[common..];
    }
    Ok(Found::Same)
}

/// Returns the position of the last stored event, but not beyond the last of `events`.
async fn find_end_within(
    store: &dyn Store,
    id: ExecutionId,
    events: &[RecordedEvent],
) -> Result<Seq, StoreError> {
    let Some((first, last)) = events.first().zip(events.last()) else { return Ok(Seq::START) };
    let mut end = Seq(first.seq.0 - 1);
    while end < last.seq {
        match store.read(id, end).await?.last() {
            Some(stored) => end = stored.seq,
            None => break,
        }
    }
    Ok(end.min(last.seq))
}

/// Compares the record with the store, and writes it if it is missing, unless `mode` is `Compare`.
pub(super) async fn put_record(
    store: &dyn Store,
    mode: Mode,
    record: Record,
) -> Result<Found, BackupError> {
    if mode != Mode::Compare
        && record.kind == RecordKind::Settlement
        && let Some(execution) = find_owner(&record.name)
        && store.head(execution).await?.is_none()
    {
        // Skips a decision without an execution, because retention would never remove it.
        return Ok(Found::Useless);
    }
    let stored =
        if mode == Mode::Compare || !store.put_record(&record, WriteCondition::Exists).await? {
            store.find_record(record.kind, &record.name).await?
        } else {
            return Ok(Found::New);
        };
    Ok(match stored {
        None => Found::New,
        Some(stored) if is_same_record(&stored, &record) => Found::Same,
        Some(_) => {
            let name: String = record.name.chars().take(64).collect();
            Found::Different(format!("the {} `{}`", record.kind.as_str(), name.escape_debug()))
        }
    })
}

/// Writes the entry if it is missing, unless `mode` is `Compare`. Does not compare the contents,
/// because entries never change: an entry with the same id is the same entry.
pub(super) async fn put_audit_entry(
    store: &dyn Store,
    mode: Mode,
    entry: AuditEntry,
) -> Result<Found, BackupError> {
    if mode == Mode::Compare {
        return Ok(Found::New);
    }
    let new = store.put_audit_entries(&[entry]).await?;
    // A restore counts an entry that the store already has as new, because a restored command of
    // the inbox has written its entry.
    Ok(if new > 0 || mode == Mode::Restore { Found::New } else { Found::Same })
}

fn find_owner(name: &str) -> Option<ExecutionId> {
    name.split_once('/')?.0.parse().ok()
}

/// Compares two records. Stores do not keep the time of a key, and some keep missing fields of a
/// saved plan as null.
fn is_same_record(one: &Record, other: &Record) -> bool {
    let is_at_same_time = one.kind == RecordKind::Key || one.at == other.at;
    is_at_same_time
        && match (&*one.value, &*other.value) {
            (Value::Object(one_fields), Value::Object(other_fields))
                if one.kind == RecordKind::SavedPlan =>
            {
                let names = one_fields.keys().chain(other_fields.keys());
                names.into_iter().all(|name| one.value[name] == other.value[name])
            }
            (one, other) => one == other,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::clock::Timestamp;

    use super::*;

    fn record(kind: RecordKind, value: Value, seconds: i64) -> Record {
        let at = Timestamp::from_timestamp(seconds, 0).unwrap();
        Record { kind, name: "n".to_owned(), value: Arc::new(value), at }
    }

    #[test]
    fn records_are_compared_as_stores_keep_them() {
        use RecordKind::{Key, Memory, SavedPlan};

        let saved = json!({ "plan": "p", "inputs": null });
        for (kind, one, other, seconds, expected) in [
            (Memory, json!({ "a": 1, "b": 2 }), json!({ "b": 2, "a": 1 }), 0, true),
            (Memory, json!({ "a": 1 }), json!({ "a": 1, "b": null }), 0, false),
            (Memory, json!(1), json!(1), 1, false),
            (Key, json!(1), json!(1), 1, true),
            (SavedPlan, saved.clone(), json!({ "plan": "p" }), 0, true),
            (SavedPlan, json!({ "plan": "p" }), saved, 0, true),
            (SavedPlan, json!({ "plan": "p" }), json!({ "plan": "q" }), 0, false),
        ] {
            let is_same =
                is_same_record(&record(kind, one.clone(), 0), &record(kind, other, seconds));
            assert_eq!(is_same, expected, "{one}");
        }
    }
}
