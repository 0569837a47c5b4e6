//! Permits for calls whose tools have limits, as one worker requests them.
//!
//! The store counts the holders of all nodes. On each node, calls with the same limits wait in one
//! queue, and only the first sends requests. A thousand waiting calls cost no more than one. A higher
//! priority is a head start in the queue. Each call comes to the front in time, so none starves.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use shared::{
    clock::{Clock, Timestamp},
    id::WorkerId,
    store::{CallLimit, Permission, Permit, PermitAsk, Store, StoreError},
};
use tokio::{sync::Notify, time};
use tracing::warn;

/// The head start that one step of priority gives.
const HEAD_START_MS: i64 = 10_000;
/// Delay after the first refusal. Doubles with each refusal, up to the poll interval.
const BACKOFF: Duration = Duration::from_millis(2);
/// The longest wait for a rate. The clock of the store may differ from the clock of this node.
const LONGEST: Duration = Duration::from_secs(5);
/// Permits that one request to the store releases.
const GIVEN_BACK: usize = 1_024;

/// Permits of one worker.
#[derive(Debug)]
pub(crate) struct Permits {
    worker: WorkerId,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The longest delay between two requests of the first call in a queue.
    poll: Duration,
    lines: Mutex<BTreeMap<String, Line>>,
    /// The number of the next request. It makes the names of holders unique, so that the release of
    /// an earlier permit never releases a later one.
    asked: AtomicU64,
    returned: Mutex<Vec<Returned>>,
    has_returned: Notify,
    /// Notified when permits were released.
    freed: Notify,
}

/// The calls that wait for the same limits, in order of their turns.
type Line = BTreeMap<Place, Arc<Notify>>;

/// The arrival time minus the head start, and the holder.
type Place = (i64, String);

/// A permit. Released when dropped.
pub(crate) struct Granted {
    permits: Arc<Permits>,
    permit: Option<Permit>,
    asking: Option<Asking>,
}

/// A request in flight to the store.
type Asking = BoxFuture<'static, Result<Permission, StoreError>>;

/// A permit to release.
struct Returned {
    permit: Permit,
    /// Its request, if that is still in flight. A release that overtook the request would have no
    /// effect, and the permit would stay held until the worker ends.
    asking: Option<Asking>,
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Granted").field(&self.permit).finish()
    }
}

impl fmt::Debug for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Returned").field(&self.permit).finish()
    }
}

impl Granted {
    /// Sends the request. If the future is dropped, the release waits for the answer.
    async fn ask(&mut self, ask: &PermitAsk) -> Result<Permission, StoreError> {
        // From here on the store may grant the permit, even if this future is dropped.
        self.permit = Some(ask.permit.clone());
        let (store, now) = (Arc::clone(&self.permits.store), self.permits.clock.now());
        let ask = ask.clone();
        let asking = self.asking.insert(async move { store.acquire(&ask, now).await }.boxed());
        let answer = asking.await;
        self.asking = None;
        answer
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let asking = self.asking.take();
            lock(&self.permits.returned).push(Returned { permit, asking });
            self.permits.has_returned.notify_one();
        }
    }
}

/// A position in a queue. Dropping it wakes the next call.
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
            asked: AtomicU64::new(0),
            returned: Mutex::default(),
            has_returned: Notify::new(),
            freed: Notify::new(),
        })
    }

    /// Waits until `holder` has a permit for all of `limits`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        holder: String,
        limits: Vec<CallLimit>,
        priority: i32,
    ) -> Granted {
        let mut granted = Granted { permits: Arc::clone(self), permit: None, asking: None };
        if limits.is_empty() {
            return granted;
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{holder}/{}/{number}", self.worker);
        let keys: Vec<String> = limits.iter().map(|limit| limit.key.clone()).collect();
        let (waiting, turn) = self.stand_in_line(keys.join("\n"), &holder, priority);
        let permit = Permit { holder, worker: self.worker, limits: keys };
        let ask = PermitAsk { permit, limits };
        let (mut backoff, mut may_hold) = (BACKOFF, false);
        loop {
            // A call with a higher priority may be in front now. After an error this call may hold
            // a permit, and others may wait for it, so it must not wait for them.
            while !may_hold && !waiting.is_first() {
                turn.notified().await;
            }
            let answer = granted.ask(&ask).await;
            may_hold = answer.is_err();
            let wait = match answer {
                Ok(Permission::Granted) => return granted,
                Ok(Permission::Full) => backoff,
                Ok(Permission::NotBefore(at)) => self.until(at).max(backoff).min(LONGEST),
                Err(err) => {
                    warn!(%err, "cannot request a permit yet, will retry");
                    self.poll
                }
            };
            tokio::select! {
                biased;
                () = self.freed.notified() => (),
                () = time::sleep(wait) => (),
            }
            backoff = (backoff * 2).min(self.poll);
        }
    }

    /// Returns the number of waiting calls.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.lines).values().map(BTreeMap::len).sum()
    }

    fn until(&self, at: Timestamp) -> Duration {
        (at - self.clock.now()).to_std().unwrap_or_default()
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

    /// Releases dropped permits, until the worker ends.
    pub(crate) async fn give_back(&self) {
        let mut asking = FuturesUnordered::new();
        loop {
            let mut some = Vec::new();
            for Returned { permit, asking: question } in self.some_returned() {
                match question {
                    Some(question) => asking.push(question.map(|_| permit)),
                    None => some.push(permit),
                }
            }
            if some.is_empty() {
                tokio::select! {
                    biased;
                    () = self.has_returned.notified() => continue,
                    Some(permit) = asking.next(), if !asking.is_empty() => some.push(permit),
                }
            }
            while let Err(err) = self.store.release(some.clone()).await {
                warn!(%err, "cannot release permits yet, will retry");
                time::sleep(self.poll).await;
            }
            self.freed.notify_waiters();
        }
    }

    fn some_returned(&self) -> Vec<Returned> {
        let mut returned = lock(&self.returned);
        let n = returned.len().min(GIVEN_BACK);
        returned.drain(..n).collect()
    }
}

impl Waiting<'_> {
    fn is_first(&self) -> bool {
        let lines = lock(&self.permits.lines);
        lines
            .get(&self.line)
            .and_then(|queue| queue.first_key_value())
            .is_some_and(|(place, _)| *place == self.place)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one insertion or removal, so a panic leaves the value valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
