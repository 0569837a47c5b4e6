mod audit;
mod documents;
mod log;
mod records;
mod rekey;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use shared::{
    clock::Timestamp,
    sealed::shows_locked_values,
    store::{
        ExecutionFilter, Hints, Permission, Permit, PermitAsk, Permits, Pruned, Removable, Store,
        StoreError, TextHash, Vectors, backend::PlanCache, search_words,
    },
};

use crate::{
    edit::{Edit, Task},
    keyring::Keyring,
};

pub use self::rekey::{LeftValues, RekeyProgress, RekeyReport};

/// A store that encrypts values before it passes them on, and decrypts them on reads. Reads of
/// values whose key is missing fail, except in operations that [only show
/// values](shared::sealed::show_locked_values).
pub struct EncryptedStore {
    inner: Arc<dyn Store>,
    ring: Keyring,
    /// `true` if lists cannot search queries, because at least one process encrypts them.
    has_secret_queries: bool,
    /// `true` if values are copied between stores. Encrypted values are then neither encrypted
    /// again nor decrypted.
    is_copy: bool,
    /// Plans after their decryption, because the cache of the inner store has encrypted plans.
    plans: PlanCache,
}

impl fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, ring, .. } = self;
        f.debug_struct("EncryptedStore").field("inner", inner).field("ring", ring).finish()
    }
}

impl EncryptedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, ring: Keyring, has_secret_queries: bool) -> Self {
        let has_secret_queries = has_secret_queries || ring.encrypts_queries();
        Self { inner, ring, has_secret_queries, is_copy: false, plans: PlanCache::default() }
    }

    /// Makes the store read and write encrypted values as they are. The store still encrypts clear
    /// values.
    pub(crate) fn for_copies(self) -> Self {
        Self { is_copy: true, ..self }
    }

    fn read_task(&self) -> Task {
        match (self.is_copy, shows_locked_values()) {
            (true, _) => Task::Keep,
            (false, true) => Task::Show,
            (false, false) => Task::Open,
        }
    }

    fn write_task(&self) -> Task {
        if self.is_copy { Task::SealClear } else { Task::Seal }
    }

    fn edit<'a>(
        &'a self,
        task: Task,
        collection: &'static str,
        document: &'a dyn fmt::Display,
    ) -> Edit<'a> {
        Edit::new(&self.ring, task, collection, document)
    }

    /// Returns `true` if new values can be encrypted or are copied. Otherwise a worker could not
    /// write the results of its work.
    fn can_work(&self) -> bool {
        self.is_copy || self.ring.active_id().is_some()
    }

    /// Fails if new values cannot be encrypted. Call it for each new document, even for a document
    /// without secret values.
    fn check_writable(&self) -> Result<(), StoreError> {
        if self.can_work() { Ok(()) } else { Err(StoreError::KeyMissing) }
    }

    fn check_search(&self, query: Option<&str>) -> Result<(), StoreError> {
        if self.has_secret_queries && !search_words(query).is_empty() {
            return Err(StoreError::NotSearchable { what: "the text of queries" });
        }
        Ok(())
    }

    fn check_filter(filter: &ExecutionFilter) -> Result<(), StoreError> {
        if search_words(filter.error_text.as_deref()).is_empty() {
            return Ok(());
        }
        Err(StoreError::NotSearchable { what: "the text of errors" })
    }
}

#[async_trait]
impl Store for EncryptedStore {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.inner.prune(before, most).await
    }

    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError> {
        self.inner.remove_unused(objects).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        self.inner.shared_time().await
    }

    async fn stored_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.inner.stored_bytes().await
    }

    fn hints(&self) -> &Hints {
        self.inner.hints()
    }
}

#[async_trait]
impl Permits for EncryptedStore {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        self.inner.acquire_permits(ask, now).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.inner.release_permits(permits).await
    }
}

#[async_trait]
impl Vectors for EncryptedStore {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        self.inner.find_vectors(model, texts).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        self.inner.put_vectors(model, vectors).await
    }
}
