//! A store that forgets everything when the process ends: for tests, for the simulator, for
//! trying something out.
//!
//! It keeps the same JSON documents as the others and decodes what it reads (plans once, as they
//! do), so that what does not survive a disk does not survive here either. Nothing happens in the background and
//! nothing waits: the same calls in the same order give the same answers.

mod documents;
mod log;
mod permits;
mod prune;
mod records;
mod vectors;
mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

use self::{
    documents::Kept, log::Logs, permits::Permits, records::KeptRecords, vectors::KeptVectors,
    work::Work,
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
    kept: Kept,
    permits: Permits,
    records: KeptRecords,
    vectors: KeptVectors,
}

impl Memory {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No change can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns one page of things, the newest first.
fn list<T>(items: impl Iterator<Item = (Cursor, T)>, page: &Page) -> Listing<T> {
    let is_behind = |it: &Cursor| {
        page.after.as_ref().is_none_or(|after| (it.at, &it.id) < (after.at, &after.id))
    };
    let mut items: Vec<_> = items.filter(|(it, _)| is_behind(it)).collect();
    items.sort_by(|(one, _), (other, _)| (other.at, &other.id).cmp(&(one.at, &one.id)));
    let has_more = items.len() > page.first;
    items.truncate(page.first);
    Listing { items, has_more }
}
