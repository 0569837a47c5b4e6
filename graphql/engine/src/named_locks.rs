use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, Weak},
};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// If the map has this number of names, the names whose lock no task uses are removed.
const MAX_UNUSED_NAMES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct NamedLocks(std::sync::Mutex<BTreeMap<String, Weak<Mutex<()>>>>);

impl NamedLocks {
    pub(super) async fn lock(&self, name: String) -> OwnedMutexGuard<()> {
        self.find_or_create(name).lock_owned().await
    }

    fn find_or_create(&self, name: String) -> Arc<Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&name).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len() >= MAX_UNUSED_NAMES {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(name, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_name_is_locked_by_one_task_at_a_time() {
        let locks = NamedLocks::default();
        let lock = |name: &str| locks.lock(name.to_owned()).now_or_never();
        let first = lock("a");
        assert!(first.is_some() && lock("a").is_none() && lock("b").is_some());
        drop(first);
        assert!(lock("a").is_some());
    }

    #[test]
    fn unused_names_are_removed() {
        let locks = NamedLocks::default();
        let kept = locks.lock("kept".to_owned()).now_or_never().unwrap();
        for n in 0..MAX_UNUSED_NAMES * 4 {
            drop(locks.lock(n.to_string()).now_or_never().unwrap());
        }
        assert!(locks.0.lock().unwrap().len() <= MAX_UNUSED_NAMES);
        assert!(locks.lock("kept".to_owned()).now_or_never().is_none());
        drop(kept);
    }
}
