//! Turns encryption on, and compares the keys of a process with the keys of the store.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    sealed::SealedText,
    store::{Record, RecordKind, RecordPage, Store, StoreError, WriteCondition},
};

use crate::{
    keyring::{Keyring, Place},
    store::{EncryptedStore, RekeyProgress, RekeyReport},
};

const CHECK_FIELD: &str = "check";
const QUERIES_FIELD: &str = "encryptsQueries";
const CHECK_TEXT: &[u8] = b"faber";
/// Maximum number of keys that have been active in a store.
const MAX_KEYS: usize = 1_000;

/// Returns a store that encrypts and decrypts with these keys, and marks it as encrypted. Returns
/// `store` itself if there are no keys and it is not encrypted.
///
/// # Errors
///
/// If the store fails, or if encryption begins while workers that do not encrypt are running.
pub async fn protect(
    store: Arc<dyn Store>,
    keys: Option<Keyring>,
) -> Result<Arc<dyn Store>, StoreError> {
    let known = KnownKeys::read(&*store).await?;
    let ring = match keys {
        None if known.checks.is_empty() => return Ok(store),
        None => Keyring::default(),
        Some(ring) => ring,
    };
    Ok(Arc::new(open_encrypted(store, known, ring).await?))
}

/// Encrypts all values with the active key that are clear or have another key. Afterwards, no value
/// needs another key, unless the report names values that are left.
///
/// Other processes may use the store at the same time, if this key is active in all of them.
///
/// # Errors
///
/// If the store fails, or the active key is missing.
pub async fn rekey(
    store: Arc<dyn Store>,
    keys: Keyring,
    show: &(dyn Fn(RekeyProgress) + Sync),
) -> Result<RekeyReport, StoreError> {
    let known = KnownKeys::read(&*store).await?;
    open_encrypted(store, known, keys).await?.rekey_all(show).await
}

async fn open_encrypted(
    store: Arc<dyn Store>,
    mut known: KnownKeys,
    mut ring: Keyring,
) -> Result<EncryptedStore, StoreError> {
    if known.checks.is_empty() {
        refuse_workers(&*store).await?;
    }
    known.remove_other_keys(&mut ring);
    if let Some(active_id) = ring.active_id().map(str::to_owned) {
        known.put_active_key(&*store, &ring, &active_id).await?;
        // Reads the keys again, because another process may have added another key with this id at
        // the same time.
        known = KnownKeys::read(&*store).await?;
        known.remove_other_keys(&mut ring);
    }
    Ok(EncryptedStore::new(store, ring, known.encrypts_queries))
}

/// Returns a store from which and into which values are copied. Encrypted values are read and
/// written as they are.
///
/// # Errors
///
/// If the store fails.
pub async fn protect_copies(
    store: Arc<dyn Store>,
    keys: Option<Keyring>,
) -> Result<Arc<dyn Store>, StoreError> {
    let known = KnownKeys::read(&*store).await?;
    if keys.is_none() && known.checks.is_empty() {
        return Ok(store);
    }
    let mut ring = keys.unwrap_or_default();
    known.remove_other_keys(&mut ring);
    let store = EncryptedStore::new(store, ring, known.encrypts_queries);
    Ok(Arc::new(store.for_copies()))
}

/// The ids of the keys that have been active in a store, each with the fixed text as this key
/// encrypted it.
struct KnownKeys {
    checks: BTreeMap<String, String>,
    encrypts_queries: bool,
}

impl KnownKeys {
    async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let page = RecordPage::first_records(MAX_KEYS);
        let records = store.list_records(RecordKind::EncryptionKey, page).await?;
        let (mut checks, mut encrypts_queries) = (BTreeMap::new(), false);
        for record in records {
            let check = record.value.get(CHECK_FIELD).and_then(Value::as_str).unwrap_or_default();
            encrypts_queries |= record.value.get(QUERIES_FIELD) == Some(&Value::Bool(true));
            checks.insert(record.name.clone(), check.to_owned());
        }
        Ok(Self { checks, encrypts_queries })
    }

    fn remove_other_keys(&self, ring: &mut Keyring) {
        for (id, check) in &self.checks {
            if !ring.has_key(id) {
                continue;
            }
            let opened =
                SealedText::parse(check).map(|sealed| ring.open(place_of_check(id), sealed));
            if opened.is_none_or(|opened| opened.as_deref() != Ok(CHECK_TEXT)) {
                tracing::error!(
                    key = %id,
                    "this is not the key with which the store was encrypted: its values stay \
                     hidden, and it encrypts nothing"
                );
                ring.remove_key(id);
            }
        }
    }

    async fn put_active_key(
        &self,
        store: &dyn Store,
        ring: &Keyring,
        id: &str,
    ) -> Result<(), StoreError> {
        let is_known = self.checks.contains_key(id);
        if is_known && (self.encrypts_queries || !ring.encrypts_queries()) {
            return Ok(());
        }
        let check = ring.seal(place_of_check(id), CHECK_TEXT).ok_or(StoreError::KeyMissing)?;
        let value = json!({ CHECK_FIELD: check, QUERIES_FIELD: ring.encrypts_queries() });
        let at: Timestamp = store.shared_time().await?;
        let record = Record::new(RecordKind::EncryptionKey, id, &value, at);
        let unless = if is_known { WriteCondition::Never } else { WriteCondition::Exists };
        store.put_record(&record, unless).await.map(drop)
    }
}

fn place_of_check(id: &str) -> Place<'_> {
    Place { collection: "keys", document: id, field: CHECK_FIELD }
}

/// Fails while workers run, because a worker that does not encrypt would read encrypted values as
/// clear values.
async fn refuse_workers(store: &dyn Store) -> Result<(), StoreError> {
    let workers = store.list_workers(store.shared_time().await?).await?;
    match workers.first() {
        None => Ok(()),
        Some(worker) => Err(StoreError::Unavailable(format!(
            "encryption begins with this process, but the worker {worker} uses the store without \
             it: stop all Faber processes, and start them again with `encryption`"
        ))),
    }
}
