//! Large binaries beside the logs: what a tool returned refers to them, so that no log, no page and
//! no subscription grows by them.
//!
//! A blob is a record that says what it is, and its content in other records. It belongs to the
//! execution whose tool returned it and goes with it; one of a call outside plans goes by its age.
//! The record that says what it is comes first and goes last: whatever else there is of a blob can
//! be found by it.

use std::{fmt, str::FromStr, sync::Arc};

use serde_json::{Value, json};

use crate::{
    clock::Timestamp,
    id::ExecutionId,
    store::{Record, RecordKind, RecordPage, Store, StoreError, WriteCondition},
};

/// The field by which a value is a reference.
pub const FIELD: &str = "$blob";
/// What stands for the execution where there is none.
const OUTSIDE: &str = "call";
/// Digits of a SHA-256.
const DIGITS: usize = 64;
/// Bytes of content in one record, far below what a document can hold.
const PART: usize = 4 << 20;
/// Blobs that are looked at together.
const PAGE: usize = 256;

/// What a blob is called: the execution whose tool returned it, if one did, and the SHA-256 of
/// what is in it, in lower-case digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobId {
    owner: Option<ExecutionId>,
    sha256: String,
}

/// What is known of a blob without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// What it is called.
    pub id: BlobId,
    /// What kind of thing it is, as whoever made it says.
    pub mime_type: String,
    /// How many bytes it has.
    pub bytes: usize,
    /// When it was kept.
    pub at: Timestamp,
}

/// A text is not the name of a blob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a blob is called `exec_…/SHA-256` or `{OUTSIDE}/SHA-256`")]
pub struct NoBlobId;

impl BlobId {
    /// Makes the name of a blob of an execution, or of a call outside plans. Nothing if `sha256` is
    /// none.
    pub fn new(owner: Option<ExecutionId>, sha256: &str) -> Option<Self> {
        let is_digit = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
        let is_hash = sha256.len() == DIGITS && sha256.bytes().all(is_digit);
        is_hash.then(|| Self { owner, sha256: sha256.to_owned() })
    }

    /// Returns the SHA-256 of what is in it.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the blob that a value refers to, if it does.
    pub fn referred(value: &Value) -> Option<Self> {
        value.get(FIELD)?.as_str()?.parse().ok()
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{owner}/{}", self.sha256),
            None => write!(f, "{OUTSIDE}/{}", self.sha256),
        }
    }
}

impl FromStr for BlobId {
    type Err = NoBlobId;

    fn from_str(text: &str) -> Result<Self, NoBlobId> {
        let (owner, sha256) = text.split_once('/').ok_or(NoBlobId)?;
        let owner = match owner {
            OUTSIDE => None,
            owner => Some(owner.parse().map_err(|_| NoBlobId)?),
        };
        Self::new(owner, sha256).ok_or(NoBlobId)
    }
}

impl Blob {
    /// Returns what stands in an output for what is in it.
    pub fn reference(&self) -> Value {
        json!({ FIELD: self.id.to_string(), "mimeType": self.mime_type, "bytes": self.bytes })
    }

    fn entry(&self, parts: usize) -> Record {
        let value = json!({ "mimeType": self.mime_type, "bytes": self.bytes, "parts": parts });
        record(RecordKind::Blob, self.id.to_string(), value, self.at)
    }
}

fn record(kind: RecordKind, name: String, value: Value, at: Timestamp) -> Record {
    Record { kind, name, value: Arc::new(value), at }
}

fn part_name(id: &BlobId, part: usize) -> String {
    format!("{id}/{part:04}")
}

/// Keeps a blob whose content is `base64`. One that is there already is written again.
pub async fn put(store: &dyn Store, blob: &Blob, base64: &str) -> Result<(), StoreError> {
    let parts: Vec<_> = base64.as_bytes().chunks(PART).collect();
    store.put_record(&blob.entry(parts.len()), WriteCondition::Never).await?;
    for (n, part) in parts.into_iter().enumerate() {
        let text = String::from_utf8_lossy(part);
        let part = record(RecordKind::BlobPart, part_name(&blob.id, n), json!(text), blob.at);
        store.put_record(&part, WriteCondition::Never).await?;
    }
    Ok(())
}

/// Returns what is known of a blob, if it is there, and in how many parts its content is.
async fn entry(store: &dyn Store, id: &BlobId) -> Result<Option<(Blob, usize)>, StoreError> {
    let name = id.to_string();
    let Some(record) = store.find_record(RecordKind::Blob, &name).await? else { return Ok(None) };
    let number = |field: &str| {
        let number = record.value.get(field).and_then(Value::as_u64);
        let number = number.and_then(|it| usize::try_from(it).ok());
        number.ok_or_else(|| StoreError::corrupt(&name, format!("it has no `{field}`")))
    };
    let mime_type = record.value.get("mimeType").and_then(Value::as_str).unwrap_or_default();
    let blob = Blob {
        id: id.clone(),
        mime_type: mime_type.to_owned(),
        bytes: number("bytes")?,
        at: record.at,
    };
    Ok(Some((blob, number("parts")?)))
}

/// Returns what is known of a blob, if it is there.
pub async fn about(store: &dyn Store, id: &BlobId) -> Result<Option<Blob>, StoreError> {
    Ok(entry(store, id).await?.map(|(blob, _)| blob))
}

/// Returns a blob with its content in base 64. Nothing if it is gone, or going.
pub async fn get(store: &dyn Store, id: &BlobId) -> Result<Option<(Blob, String)>, StoreError> {
    let Some((blob, parts)) = entry(store, id).await? else { return Ok(None) };
    let mut base64 = String::new();
    for n in 0..parts {
        let name = part_name(id, n);
        let Some(part) = store.find_record(RecordKind::BlobPart, &name).await? else {
            return Ok(None);
        };
        base64.push_str(part.value.as_str().unwrap_or_default());
    }
    Ok(Some((blob, base64)))
}

/// Removes blobs that are older than `before` and whose executions are gone; returns how many.
pub async fn forget(store: &dyn Store, before: Timestamp) -> Result<usize, StoreError> {
    let (mut removed, mut after) = (0, None);
    loop {
        let page = RecordPage { after, ..RecordPage::first_records(PAGE) };
        let records = store.list_records(RecordKind::Blob, page).await?;
        let is_last = records.len() < PAGE;
        after = records.last().map(|it| it.name.clone());
        for record in records.into_iter().filter(|it| it.at < before) {
            let Ok(id) = record.name.parse::<BlobId>() else { continue };
            let is_owned = match id.owner {
                Some(owner) => store.head(owner).await?.is_some(),
                None => false,
            };
            if !is_owned {
                remove(store, &id).await?;
                removed += 1;
            }
        }
        if is_last {
            return Ok(removed);
        }
    }
}

async fn remove(store: &dyn Store, id: &BlobId) -> Result<(), StoreError> {
    let under = format!("{id}/");
    let parts = store.count_records(RecordKind::BlobPart, &under, usize::MAX >> 1);
    // The last first: what a crash leaves is counted again.
    for n in (0..parts.await?).rev() {
        store.remove_record(RecordKind::BlobPart, &part_name(id, n)).await?;
    }
    store.remove_record(RecordKind::Blob, &id.to_string()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let hash = "0123456789abcdef".repeat(4);
        for name in [format!("exec_1763712000_abc123def/{hash}"), format!("call/{hash}")] {
            let id: BlobId = name.parse().unwrap();
            assert_eq!((id.to_string(), id.sha256()), (name.clone(), hash.as_str()));
            let (mime_type, at) = ("image/png".to_owned(), Timestamp::UNIX_EPOCH);
            let blob = Blob { id, mime_type, bytes: 7, at };
            let reference = blob.reference();
            assert_eq!(reference, json!({ "$blob": name, "mimeType": "image/png", "bytes": 7 }));
            assert_eq!(BlobId::referred(&reference), Some(blob.id));
        }
        for wrong in [
            "",
            "call",
            "call/",
            &format!("call/{}", &hash[1..]),
            &format!("call/{}G", &hash[1..]),
            &format!("exec_1/{hash}"),
            &format!("call/{hash}/0"),
            &format!("{}/{hash}", "x/../"),
        ] {
            assert_eq!(wrong.parse::<BlobId>(), Err(NoBlobId), "{wrong}");
        }
        for value in [json!(null), json!("$blob"), json!({ "$blob": 1 }), json!({ "$blob": "x" })] {
            assert_eq!(BlobId::referred(&value), None);
        }
    }
}
