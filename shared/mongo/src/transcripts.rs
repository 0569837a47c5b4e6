use mongodb::bson::{RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use shared::{id::RequestId, request::TranscriptEntry, store::StoreError};

use super::{
    json::{Times, Value, to_text},
    rows,
    text_parts::{MAX_PART_BYTES, split_evenly},
};

/// The field with the exact time of an entry.
const AT_MICROS: &str = "atMicros";

/// Returns the documents of an entry, the first with the number `n`. A large entry has several
/// documents with parts of its text.
pub(super) fn entry_rows(
    request: &str,
    n: i64,
    entry: &TranscriptEntry,
) -> Result<Vec<RawDocumentBuf>, StoreError> {
    let bytes = shared::json::json_size(&entry.content);
    divide_entry(request, n, entry, bytes.div_ceil(MAX_PART_BYTES).max(1))
}

/// Returns the documents of an entry, as [`entry_rows`] does, but as many as the caller asks for,
/// because the next numbers belong to other entries.
pub(super) fn divide_entry(
    request: &str,
    n: i64,
    entry: &TranscriptEntry,
    count: usize,
) -> Result<Vec<RawDocumentBuf>, StoreError> {
    let mut first = rawdoc! {
        "_id": { "r": request, "n": n },
        "at": rows::to_date(entry.at),
        "atMicros": entry.at.timestamp_micros(),
        "kind": entry.kind.as_str(),
    };
    let content = entry.content.to_string();
    if count == 1 {
        Value::from_json(&content, Times::None)?.append_to(&mut first, cstr!("content"));
        return Ok(vec![first]);
    }
    let mut rows = Vec::new();
    let parts = split_evenly(&content, count);
    for (part, at) in parts.iter().zip(0_i64..) {
        let next = || rawdoc! { "_id": { "r": request, "n": n + at } };
        let mut row = if at == 0 { first.clone() } else { next() };
        row.append(cstr!("text"), *part);
        if rows.len() + 1 < parts.len() {
            row.append(cstr!("more"), true);
        }
        rows.push(row);
    }
    Ok(rows)
}

pub(super) struct EntryReader {
    request: RequestId,
    entries: Vec<TranscriptEntry>,
    /// The beginning of an entry, and the text that was read from its documents so far.
    open: Option<(TranscriptEntry, String)>,
}

impl EntryReader {
    pub(super) fn new(request: RequestId) -> Self {
        Self { request, entries: Vec::new(), open: None }
    }

    pub(super) fn push(&mut self, row: &RawDocument) -> Result<(), StoreError> {
        let what = self.request.to_string();
        let damaged = |err: &dyn std::fmt::Display| StoreError::corrupt(&what, err);
        let (mut entry, mut text) = if let Some(open) = self.open.take() {
            open
        } else {
            let micros = row.get_i64(AT_MICROS).map_err(|err| damaged(&err))?;
            let kind = row.get_str("kind").map_err(|err| damaged(&err))?.to_owned();
            let at = rows::to_time(micros, AT_MICROS, &what)?;
            (TranscriptEntry { at, kind, content: serde_json::Value::Null }, String::new())
        };
        match row.get("content").map_err(|err| damaged(&err))? {
            Some(content) => text = to_text(content, &what)?,
            None => text.push_str(row.get_str("text").map_err(|err| damaged(&err))?),
        }
        if row.get_bool("more").unwrap_or_default() {
            self.open = Some((entry, text));
            return Ok(());
        }
        entry.content = serde_json::from_str(&text).map_err(|err| damaged(&err))?;
        self.entries.push(entry);
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<TranscriptEntry> {
        self.entries
    }
}
