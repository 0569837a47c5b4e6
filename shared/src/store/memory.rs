//! A store in memory, for tests, simulation and trials. It keeps its data as JSON, so that tests
//! notice data that JSON cannot keep.

mod audit;
mod documents;
mod log;
mod permits;
mod prune;
mod records;
mod work;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use self::{
    audit::StoredAudit, documents::StoredDocuments, log::Logs, permits::StoredPermits,
    records::StoredRecords, work::ExecutionIndex,
};
use super::{
    Cursor, Hints, Listing, Page, Pruned, Removable, Store, StoreError, TextHash, Vectors,
    backend::{check_vectors, decode_vector, encode_vector},
    plan_cache::PlanCache,
};
use crate::clock::{Clock as _, Timestamp, WallClock};

#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
    plans: PlanCache,
    hints: Hints,
}

#[derive(Debug, Default)]
struct State {
    logs: Logs,
    work: ExecutionIndex,
    documents: StoredDocuments,
    permits: StoredPermits,
    records: StoredRecords,
    vectors: BTreeMap<String, BTreeMap<TextHash, Vec<u8>>>,
    audit: StoredAudit,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // Ignores a panic of another thread that had the lock, because no change of the state can
        // panic before it is complete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn list_page<T>(items: impl Iterator<Item = (Cursor, T)>, page: &Page) -> Listing<T> {
    let mut items: Vec<_> = items.filter(|(cursor, _)| page.contains(cursor)).collect();
    items.sort_by(|(one, _), (other, _)| (other.at, &other.id).cmp(&(one.at, &one.id)));
    let has_more = items.len() > page.first;
    if page.from_end {
        items.drain(..items.len().saturating_sub(page.first));
    } else {
        items.truncate(page.first);
    }
    Listing { items, has_more }
}

#[async_trait]
impl Store for Memory {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        Ok(self.lock_state().prune(before, most))
    }

    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError> {
        Ok(self.lock_state().remove_unused(objects))
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        Ok(WallClock.now())
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }
}

#[async_trait]
impl Vectors for Memory {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        let state = self.lock_state();
        let stored = state.vectors.get(model);
        let find = |text: &TextHash| {
            let bytes = stored.and_then(|stored| stored.get(text));
            bytes.map(|bytes| decode_vector(text, bytes)).transpose()
        };
        texts.iter().map(find).collect()
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        check_vectors(model, vectors)?;
        let mut state = self.lock_state();
        let stored = state.vectors.entry(model.to_owned()).or_default();
        for (text, numbers) in vectors {
            stored.entry(*text).or_insert_with(|| encode_vector(numbers));
        }
        Ok(())
    }
}
