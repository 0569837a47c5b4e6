//! Permits for calls whose tools have limits, as one worker asks for them.
//!
//! The store knows who holds what, across all nodes. Here those that wait for the same limits stand
//! in one line, and only the first asks, so that a thousand that wait cost no more than one. A
//! higher priority is a head start and nothing else: whoever waits comes to the front, so nobody
//! starves.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shared::{
    clock::{Clock, Timestamp},
    id::WorkerId,
    store::{CallLimit, Permission, Permit, PermitAsk, Store},
};
use tokio::{sync::Notify, time};
use tracing::warn;

/// The head start that one step of priority gives.
const HEAD_START_MS: i64 = 10_000;
/// The first wait after a limit was full; each further one is twice as long, up to the poll.
const BACKOFF: Duration = Duration::from_millis(2);
/// The most permits that are given back at once.
const GIVEN_BACK: usize = 1_024;

/// Permits of one worker.
#[derive(Debug)]
pub(crate) struct Permits {
    worker: WorkerId,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// How often the first of a line asks at least.
    poll: Duration,
    lines: Mutex<BTreeMap<String, Line>>,
    returned: Mutex<Vec<Permit>>,
    has_returned: Notify,
    /// Fires when a permit is free again.
    freed: Notify,
}

/// Those that wait for the same limits, by when it is their turn.
type Line = BTreeMap<Place, Arc<Notify>>;

/// A place in a line: the time of coming, less the head start, and the holder.
type Place = (i64, String);

/// A permit. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Granted {
    permits: Arc<Permits>,
    permit: Option<Permit>,
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            lock(&self.permits.returned).push(permit);
            self.permits.has_returned.notify_one();
        }
    }
}

/// A place in a line. Dropping it lets the next one come to the front.
struct Waiting<'a> {
    permits: &'a Permits,
    line: String,
    place: Place,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut lines = lock(&self.permits.lines);
        let Some(line) = lines.get_mut(&self.line) else { return };
        line.remove(&self.place);
        match line.first_key_value() {
            Some((_, next)) => next.notify_one(),
            None => drop(lines.remove(&self.line)),
        }
    }
}

impl Permits {
    pub(crate) fn new(
        worker: WorkerId,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        poll: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            worker,
            store,
            clock,
            poll,
            lines: Mutex::default(),
            returned: Mutex::default(),
            has_returned: Notify::new(),
            freed: Notify::new(),
        })
    }

    /// Waits until `holder` may make a call within all of `limits`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        holder: String,
        limits: Vec<CallLimit>,
        priority: i32,
    ) -> Granted {
        let mut granted = Granted { permits: Arc::clone(self), permit: None };
        if limits.is_empty() {
            return granted;
        }
        let keys: Vec<String> = limits.iter().map(|it| it.key.clone()).collect();
        let (waiting, turn) = self.stand_in_line(keys.join("\n"), &holder, priority);
        let permit = Permit { holder, worker: self.worker, limits: keys };
        let ask = PermitAsk { permit, limits };
        let (mut backoff, mut may_hold) = (BACKOFF, false);
        loop {
            // Somebody more urgent may have come to the front. But whoever may hold something must
            // not wait for others: they may wait for that.
            while !may_hold && !waiting.is_first() {
                turn.notified().await;
            }
            // From here on the store may have granted it, whatever becomes of this future.
            granted.permit = Some(ask.permit.clone());
            let answer = self.store.acquire(&ask, self.clock.now()).await;
            may_hold = answer.is_err();
            let wait = match answer {
                Ok(Permission::Granted) => return granted,
                Ok(Permission::Full) => backoff,
                Ok(Permission::NotBefore(at)) => self.until(at),
                Err(err) => {
                    warn!(%err, "cannot ask for a permit yet");
                    self.poll
                }
            };
            tokio::select! {
                () = self.freed.notified() => (),
                () = time::sleep(wait.min(self.poll)) => (),
            }
            backoff = (backoff * 2).min(self.poll);
        }
    }

    /// Returns how many stand in a line, those at its front included.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.lines).values().map(BTreeMap::len).sum()
    }

    fn until(&self, at: Timestamp) -> Duration {
        (at - self.clock.now()).to_std().unwrap_or_default().max(BACKOFF)
    }

    fn stand_in_line(
        &self,
        line: String,
        holder: &str,
        priority: i32,
    ) -> (Waiting<'_>, Arc<Notify>) {
        let head_start = i64::from(priority).saturating_mul(HEAD_START_MS);
        let now = self.clock.now().timestamp_millis();
        let place = (now.saturating_sub(head_start), holder.to_owned());
        let turn = Arc::new(Notify::new());
        let mut lines = lock(&self.lines);
        lines.entry(line.clone()).or_default().insert(place.clone(), Arc::clone(&turn));
        drop(lines);
        (Waiting { permits: self, line, place }, turn)
    }

    /// Gives back what is returned, for as long as the worker works.
    pub(crate) async fn give_back(&self) {
        loop {
            let some = {
                let mut returned = lock(&self.returned);
                let n = returned.len().min(GIVEN_BACK);
                returned.drain(..n).collect::<Vec<_>>()
            };
            if some.is_empty() {
                self.has_returned.notified().await;
                continue;
            }
            while let Err(err) = self.store.release(some.clone()).await {
                warn!(%err, "cannot give permits back yet");
                time::sleep(self.poll).await;
            }
            self.freed.notify_waiters();
        }
    }
}

impl Waiting<'_> {
    fn is_first(&self) -> bool {
        let lines = lock(&self.permits.lines);
        lines
            .get(&self.line)
            .and_then(|it| it.first_key_value())
            .is_some_and(|(place, _)| *place == self.place)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one insertion or one removal: nothing is ever half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
