//! Large binaries that tools returned. They are stored beside the event logs, and outputs refer to
//! them by `$blob`, so that logs, pages of lists and subscriptions stay small.
//!
//! The entry of a blob is written first and removed last, so that after a crash every part still
//! has its entry.

use std::{fmt, str::FromStr, sync::Arc};

use serde_json::{Value, json};

use crate::{
    clock::Timestamp,
    id::ExecutionId,
    store::{Record, RecordKind, RecordPage, Store, StoreError, WriteCondition},
};

/// A JSON object with this field refers to a blob.
pub const REFERENCE_FIELD: &str = "$blob";
/// First part of a blob's id if a call outside plans returned the blob. Otherwise this part is the
/// id of an execution.
const NO_EXECUTION: &str = "call";
/// The field of an entry with the names of the tokens whose calls outside plans returned the blob.
const TOKENS_FIELD: &str = "tokens";
const SHA256_DIGITS: usize = 64;
/// Maximum bytes of content in one record. It is far below 16 MiB, the limit of a MongoDB document.
const MAX_PART_BYTES: usize = 4 << 20;
const ENTRIES_PER_PAGE: usize = 256;

/// The id of a blob: `exec_…/SHA-256`, or `call/SHA-256` if a call outside plans returned the blob.
/// The SHA-256 of the content has lower-case digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobId {
    owner: Option<ExecutionId>,
    sha256: String,
}

/// The entry of a blob, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Names the blob in the store. A blob with the same content in another execution has another
    /// id, because it is removed at another time.
    pub id: BlobId,
    /// The type that the tool declared. Faber does not check it against the content.
    pub mime_type: String,
    /// Size of the decoded content.
    pub bytes: usize,
    /// When the blob was stored.
    pub at: Timestamp,
}

/// A text that is not the id of a blob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a blob is `exec_…/SHA-256` or `{NO_EXECUTION}/SHA-256`")]
pub struct InvalidBlobId;

impl BlobId {
    /// Returns `None` if `sha256` is not 64 lower-case hexadecimal digits. A call outside plans has
    /// no `owner`.
    pub fn new(owner: Option<ExecutionId>, sha256: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_hash = sha256.len() == SHA256_DIGITS && sha256.bytes().all(is_digit);
        is_hash.then(|| Self { owner, sha256: sha256.to_owned() })
    }

    /// Returns the execution whose tool returned the blob. `None` for a call outside plans.
    pub fn execution(&self) -> Option<ExecutionId> {
        self.owner
    }

    /// Returns the hash of the content in lower-case digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Reads the id from a value that [`Blob::to_reference`] made. Returns `None` if the field
    /// `$blob` contains no valid id.
    pub fn from_reference(value: &Value) -> Option<Self> {
        value.get(REFERENCE_FIELD)?.as_str()?.parse().ok()
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{owner}/{}", self.sha256),
            None => write!(f, "{NO_EXECUTION}/{}", self.sha256),
        }
    }
}

impl FromStr for BlobId {
    type Err = InvalidBlobId;

    fn from_str(text: &str) -> Result<Self, InvalidBlobId> {
        let (owner, sha256) = text.split_once('/').ok_or(InvalidBlobId)?;
        let owner = match owner {
            NO_EXECUTION => None,
            owner => Some(owner.parse().map_err(|_| InvalidBlobId)?),
        };
        Self::new(owner, sha256).ok_or(InvalidBlobId)
    }
}

impl Blob {
    /// Returns the value that replaces the content in an output, such as
    /// `{"$blob": "call/9f86…", "mimeType": "image/png", "bytes": 7}`.
    pub fn to_reference(&self) -> Value {
        json!({
            REFERENCE_FIELD: self.id.to_string(),
            "mimeType": self.mime_type,
            "bytes": self.bytes,
        })
    }

    fn to_entry(&self, parts: usize, tokens: &[String]) -> Record {
        let mut value = json!({ "mimeType": self.mime_type, "bytes": self.bytes, "parts": parts });
        if !tokens.is_empty() {
            value[TOKENS_FIELD] = json!(tokens);
        }
        new_record(RecordKind::Blob, self.id.to_string(), value, self.at)
    }
}

fn new_record(kind: RecordKind, name: String, value: Value, at: Timestamp) -> Record {
    Record { kind, name, value: Arc::new(value), at }
}

fn part_name(id: &BlobId, part: usize) -> String {
    format!("{id}/{part:04}")
}

/// Stores a blob whose content is `base64`. If the blob already exists, writes it again, because a
/// crash may have left only some of its parts.
pub async fn save_blob(store: &dyn Store, blob: &Blob, base64: &str) -> Result<(), StoreError> {
    save_blob_of(store, blob, base64, None).await
}

/// Stores a blob as [`save_blob`] does. If a call outside plans returned it, `token` is the name of
/// the token that made the call. Equal blobs of several tokens are one blob.
pub async fn save_blob_of(
    store: &dyn Store,
    blob: &Blob,
    base64: &str,
    token: Option<&str>,
) -> Result<(), StoreError> {
    let parts: Vec<_> = base64.as_bytes().chunks(MAX_PART_BYTES).collect();
    put_entry(store, blob, parts.len(), token).await?;
    for (n, part) in parts.into_iter().enumerate() {
        let text = String::from_utf8_lossy(part);
        let part = new_record(RecordKind::BlobPart, part_name(&blob.id, n), json!(text), blob.at);
        store.put_record(&part, WriteCondition::Never).await?;
    }
    Ok(())
}

/// Writes the entry of a blob. If another call has changed the entry of a call's blob in the
/// meantime, reads it again, so that the entry keeps the tokens of all calls.
async fn put_entry(
    store: &dyn Store,
    blob: &Blob,
    parts: usize,
    token: Option<&str>,
) -> Result<(), StoreError> {
    if blob.id.owner.is_some() {
        let entry = blob.to_entry(parts, &[]);
        return store.put_record(&entry, WriteCondition::Never).await.map(drop);
    }
    loop {
        let before = store.find_record(RecordKind::Blob, &blob.id.to_string()).await?;
        let mut tokens = before.as_ref().map(read_tokens).unwrap_or_default();
        if let Some(token) = token.filter(|token| tokens.iter().all(|known| known != token)) {
            tokens.push(token.to_owned());
        }
        let entry = blob.to_entry(parts, &tokens);
        if before.as_ref().is_some_and(|read| read.value == entry.value && read.at >= entry.at) {
            return Ok(());
        }
        let (unless, at) = WriteCondition::unless_changed(before.as_ref(), blob.at);
        if store.put_record(&Record { at, ..entry }, unless).await? {
            return Ok(());
        }
    }
}

fn read_tokens(entry: &Record) -> Vec<String> {
    serde_json::from_value(entry.value[TOKENS_FIELD].clone()).unwrap_or_default()
}

async fn find_tokens(store: &dyn Store, id: &BlobId) -> Result<Vec<String>, StoreError> {
    let found = store.find_record(RecordKind::Blob, &id.to_string()).await?;
    Ok(found.as_ref().map(read_tokens).unwrap_or_default())
}

/// Returns `true` if a call outside plans of this token returned the blob.
///
/// # Errors
///
/// If the store fails.
pub async fn is_call_blob_of(
    store: &dyn Store,
    id: &BlobId,
    token: &str,
) -> Result<bool, StoreError> {
    Ok(find_tokens(store, id).await?.iter().any(|known| known == token))
}

async fn find_entry(store: &dyn Store, id: &BlobId) -> Result<Option<(Blob, usize)>, StoreError> {
    let name = id.to_string();
    let Some(record) = store.find_record(RecordKind::Blob, &name).await? else { return Ok(None) };
    let number = |field: &str| {
        let number = record.value.get(field).and_then(Value::as_u64);
        let number = number.and_then(|number| usize::try_from(number).ok());
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

/// Returns a blob with its content in base64. Returns `None` if any of its records was removed.
pub async fn load_blob(
    store: &dyn Store,
    id: &BlobId,
) -> Result<Option<(Blob, String)>, StoreError> {
    let Some((blob, parts)) = find_entry(store, id).await? else { return Ok(None) };
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

/// Removes blobs that are older than `before`, unless they belong to an execution that still
/// exists. Call it after executions were pruned. Returns the number of removed blobs.
pub async fn remove_old_blobs(store: &dyn Store, before: Timestamp) -> Result<usize, StoreError> {
    let (mut removed, mut after) = (0, None);
    loop {
        let page = RecordPage { after, ..RecordPage::first_records(ENTRIES_PER_PAGE) };
        let records = store.list_records(RecordKind::Blob, page).await?;
        let is_last = records.len() < ENTRIES_PER_PAGE;
        after = records.last().map(|record| record.name.clone());
        for record in records.into_iter().filter(|record| record.at < before) {
            let Ok(id) = record.name.parse::<BlobId>() else { continue };
            let is_owned = match id.owner {
                Some(owner) => store.head(owner).await?.is_some(),
                None => false,
            };
            if !is_owned {
                remove_blob(store, &id).await?;
                removed += 1;
            }
        }
        if is_last {
            return Ok(removed);
        }
    }
}

async fn remove_blob(store: &dyn Store, id: &BlobId) -> Result<(), StoreError> {
    let prefix = format!("{id}/");
    let parts = store.count_records(RecordKind::BlobPart, &prefix, usize::MAX >> 1);
    // Removes the last part first. If a crash leaves some parts, they are then still numbered from
    // zero, and the next removal finds them by their count.
    for n in (0..parts.await?).rev() {
        store.remove_record(RecordKind::BlobPart, &part_name(id, n)).await?;
    }
    store.remove_record(RecordKind::Blob, &id.to_string()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_references_can_be_parsed_again() {
        let hash = "0123456789abcdef".repeat(4);
        for name in [format!("exec_1763712000_abc123def/{hash}"), format!("call/{hash}")] {
            let id: BlobId = name.parse().unwrap();
            assert_eq!((id.to_string(), id.sha256()), (name.clone(), hash.as_str()));
            let (mime_type, at) = ("image/png".to_owned(), Timestamp::UNIX_EPOCH);
            let blob = Blob { id, mime_type, bytes: 7, at };
            let reference = blob.to_reference();
            assert_eq!(reference, json!({ "$blob": name, "mimeType": "image/png", "bytes": 7 }));
            assert_eq!(BlobId::from_reference(&reference), Some(blob.id));
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
            assert_eq!(wrong.parse::<BlobId>(), Err(InvalidBlobId), "{wrong}");
        }
        for value in [json!(null), json!("$blob"), json!({ "$blob": 1 }), json!({ "$blob": "x" })] {
            assert_eq!(BlobId::from_reference(&value), None);
        }
    }
}
