//! A store in memory, for tests, simulation and trials.
//!
//! It keeps the same JSON documents as the other stores and decodes them on reads. So data that
//! would not survive a disk does not survive here either. It has no background work and never
//! waits: the same calls in the same order give the same results.

mod documents;
mod log;
mod permits;
mod prune;
mod records;
mod vectors;
mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

use self::{
    documents::StoredDocuments, log::Logs, permits::Permits, records::StoredRecords,
    vectors::StoredVectors, work::Work,
};
use super::{Cursor, Hints, Listing, Page, plan_cache::PlanCache};

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
    plans: PlanCache,
    hints: Hints,
}

#[derive(Debug, Default)]
struct State {
    logs: Logs,
    work: Work,
    documents: StoredDocuments,
    permits: Permits,
    records: StoredRecords,
    vectors: StoredVectors,
}

impl Memory {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is harmless: no change can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns one page of items, newest first.
fn list_page<T>(items: impl Iterator<Item = (Cursor, T)>, page: &Page) -> Listing<T> {
    let is_after_cursor = |cursor: &Cursor| {
        page.after.as_ref().is_none_or(|after| (cursor.at, &cursor.id) < (after.at, &after.id))
    };
    let mut items: Vec<_> = items.filter(|(cursor, _)| is_after_cursor(cursor)).collect();
    items.sort_by(|(one, _), (other, _)| (other.at, &other.id).cmp(&(one.at, &one.id)));
    let has_more = items.len() > page.first;
    items.truncate(page.first);
    Listing { items, has_more }
}
