//! Requests permits for calls whose tools have limits.
//!
//! Calls of a node with the same limits wait in one queue, and usually only the first call sends
//! requests. So a thousand waiting calls cost little more than one call.

mod queue;

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

use self::queue::{Queue, QueuePosition, Token};

/// A call is queued as if it had arrived this much earlier for each step of its priority.
const HEAD_START_MS: i64 = 10_000;
/// Delay after the first refusal. Doubles with each refusal, up to the poll interval.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(2);
/// The longest wait for a rate before the next request. It is limited because the clock of the
/// store may differ from the clock of this node.
const MAX_RATE_WAIT: Duration = Duration::from_secs(5);
const MAX_RELEASED_PER_REQUEST: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Permits {
    worker: WorkerId,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The longest delay between two requests of the first call in a queue, except while a rate is
    /// used up.
    poll: Duration,
    queues: Mutex<BTreeMap<String, Queue>>,
    /// The number of the next request. It makes the names of holders unique, so that the release of
    /// an earlier permit never releases a later permit.
    next_number: AtomicU64,
    released: Mutex<Vec<ReleasedPermit>>,
    permit_returned: Notify,
    permit_freed: Notify,
}

/// A permit. Released when dropped.
pub(crate) struct HeldPermit {
    permits: Arc<Permits>,
    permit: Option<Permit>,
    request: Option<PendingRequest>,
}

type PendingRequest = BoxFuture<'static, Result<Permission, StoreError>>;

struct ReleasedPermit {
    permit: Permit,
    /// The request for the permit, if it is still in flight. A release that overtook the request
    /// would have no effect, and the permit would stay held until the worker ends.
    request: Option<PendingRequest>,
}

impl fmt::Debug for HeldPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Granted").field(&self.permit).finish()
    }
}

impl fmt::Debug for ReleasedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Returned").field(&self.permit).finish()
    }
}

impl HeldPermit {
    /// Sends the request. If the future is dropped, the release waits for the answer.
    async fn send_request(&mut self, ask: &PermitAsk) -> Result<Permission, StoreError> {
        // Stores the permit first, because from here on the store can grant it even if this future
        // is dropped.
        self.permit = Some(ask.permit.clone());
        let (store, now) = (Arc::clone(&self.permits.store), self.permits.clock.now());
        let ask = ask.clone();
        let request =
            self.request.insert(async move { store.acquire_permits(&ask, now).await }.boxed());
        let answer = request.await;
        self.request = None;
        answer
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let request = self.request.take();
            lock_mutex(&self.permits.released).push(ReleasedPermit { permit, request });
            self.permits.permit_returned.notify_one();
        }
    }
}

struct QueueEntry<'a> {
    permits: &'a Permits,
    queue: String,
    token: Token,
    position: QueuePosition,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let mut queues = lock_mutex(&self.permits.queues);
        let Some(queue) = queues.get_mut(&self.queue) else { return };
        queue.remove(&self.token, &self.position);
        if queue.is_empty() {
            queues.remove(&self.queue);
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
            queues: Mutex::default(),
            next_number: AtomicU64::new(0),
            released: Mutex::default(),
            permit_returned: Notify::new(),
            permit_freed: Notify::new(),
        })
    }

    pub(crate) async fn acquire_permit(
        self: &Arc<Self>,
        holder: String,
        limits: Vec<CallLimit>,
        priority: i32,
        token: Option<Arc<str>>,
    ) -> HeldPermit {
        let mut held_permit = HeldPermit { permits: Arc::clone(self), permit: None, request: None };
        if limits.is_empty() {
            return held_permit;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{holder}/{}/{number}", self.worker);
        let keys: Vec<String> = limits.iter().map(|limit| limit.key.clone()).collect();
        let (waiting, turn) = self.enqueue(keys.join("\n"), &holder, priority, token);
        let permit = Permit { holder, worker: self.worker, limits: keys };
        let ask = PermitAsk { permit, limits };
        let (mut backoff, mut may_hold) = (MIN_RETRY_DELAY, false);
        loop {
            // Checks the position again, because a call with a higher priority may be in front now.
            // After an error the call continues, because it may hold a permit.
            while !may_hold && !waiting.is_first() {
                turn.notified().await;
            }
            let answer = held_permit.send_request(&ask).await;
            may_hold = answer.is_err();
            let wait = match answer {
                Ok(Permission::Granted) => return held_permit,
                Ok(Permission::Full) => backoff,
                Ok(Permission::NotBefore(at)) => {
                    self.delay_until(at).max(backoff).min(MAX_RATE_WAIT)
                }
                Err(err) => {
                    warn!(%err, "cannot request a permit yet, will retry");
                    self.poll
                }
            };
            tokio::select! {
                biased;
                () = self.permit_freed.notified() => (),
                () = time::sleep(wait) => (),
            }
            backoff = (backoff * 2).min(self.poll);
        }
    }

    pub(crate) fn queued_count(&self) -> usize {
        lock_mutex(&self.queues).values().map(Queue::len).sum()
    }

    fn delay_until(&self, at: Timestamp) -> Duration {
        (at - self.clock.now()).to_std().unwrap_or_default()
    }

    fn enqueue(
        &self,
        queue_name: String,
        holder: &str,
        priority: i32,
        token: Token,
    ) -> (QueueEntry<'_>, Arc<Notify>) {
        let head_start = i64::from(priority).saturating_mul(HEAD_START_MS);
        let now = self.clock.now().timestamp_millis();
        let position = (now.saturating_sub(head_start), holder.to_owned());
        let turn = Arc::new(Notify::new());
        let mut queues = lock_mutex(&self.queues);
        let queue = queues.entry(queue_name.clone()).or_default();
        queue.insert(&token, position.clone(), Arc::clone(&turn));
        drop(queues);
        (QueueEntry { permits: self, queue: queue_name, token, position }, turn)
    }

    pub(crate) async fn release_returned(&self) {
        let mut requests = FuturesUnordered::new();
        loop {
            let mut permits = Vec::new();
            for ReleasedPermit { permit, request } in self.take_released() {
                match request {
                    Some(request) => requests.push(request.map(|_| permit)),
                    None => permits.push(permit),
                }
            }
            if permits.is_empty() {
                tokio::select! {
                    biased;
                    () = self.permit_returned.notified() => continue,
                    Some(permit) = requests.next(), if !requests.is_empty() => permits.push(permit),
                }
            }
            while let Err(err) = self.store.release_permits(permits.clone()).await {
                warn!(%err, "cannot release permits yet, will retry");
                time::sleep(self.poll).await;
            }
            self.permit_freed.notify_waiters();
        }
    }

    fn take_released(&self) -> Vec<ReleasedPermit> {
        let mut released = lock_mutex(&self.released);
        let n = released.len().min(MAX_RELEASED_PER_REQUEST);
        released.drain(..n).collect()
    }
}

impl QueueEntry<'_> {
    fn is_first(&self) -> bool {
        let queues = lock_mutex(&self.permits.queues);
        queues.get(&self.queue).is_some_and(|queue| queue.is_first(&self.token, &self.position))
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Ignores a poisoned lock, because each change is one insertion or removal and leaves the value
    // valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
