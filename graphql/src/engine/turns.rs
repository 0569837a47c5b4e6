//! What this process does one at a time for each of many names.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, Weak},
};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// From how many names on those that nobody waits for are forgotten.
const MANY: usize = 256;

/// Who is at work for which name.
#[derive(Debug, Default)]
pub(super) struct Turns(std::sync::Mutex<BTreeMap<String, Weak<Mutex<()>>>>);

impl Turns {
    /// Waits until nobody else is at work for a name, and keeps others from it until what is
    /// returned is dropped.
    pub(super) async fn wait(&self, name: String) -> OwnedMutexGuard<()> {
        self.of(name).lock_owned().await
    }

    fn of(&self, name: String) -> Arc<Mutex<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = all.get(&name).and_then(Weak::upgrade) {
            return turn;
        }
        if all.len() >= MANY {
            all.retain(|_, it| it.strong_count() > 0);
        }
        let turn = Arc::default();
        all.insert(name, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn one_at_a_time_is_at_work_for_a_name() {
        let turns = Turns::default();
        let wait = |name: &str| turns.wait(name.to_owned()).now_or_never();
        let first = wait("a");
        assert!(first.is_some() && wait("a").is_none() && wait("b").is_some());
        drop(first);
        assert!(wait("a").is_some());
    }

    #[test]
    fn names_are_forgotten_for_which_nobody_is_at_work() {
        let turns = Turns::default();
        let kept = turns.wait("kept".to_owned()).now_or_never().unwrap();
        for n in 0..MANY * 4 {
            drop(turns.wait(n.to_string()).now_or_never().unwrap());
        }
        assert!(turns.0.lock().unwrap().len() <= MANY);
        assert!(turns.wait("kept".to_owned()).now_or_never().is_none());
        drop(kept);
    }
}
