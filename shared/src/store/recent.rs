//! The newest events of a followed log, read once for all its followers. Otherwise every subscriber
//! would read the store after every event and at every poll.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use super::{Store, StoreError};
use crate::{
    event::RecordedEvent,
    id::{ExecutionId, Seq},
};

/// Maximum number of events in the cache. A follower that is further behind reads the store itself.
const MAX_CACHED_EVENTS: usize = 512;
/// Maximum bytes of events in the cache. The newest event always stays.
const MAX_CACHED_BYTES: usize = 1 << 20;

/// Time that followers wait while another follower reads.
///
/// A follower whose client reads nothing is not polled, so it cannot finish a read that it has
/// begun. After this time, another follower reads instead.
const MAX_TURN_TIME: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct RecentEvents {
    /// Number of reports that the log has grown.
    growth: AtomicU64,
    window: Mutex<Window>,
    /// Signalled when a read at the end of the log has finished.
    read_finished: Notify,
}

/// Consecutive events up to the end of the log at the last read.
#[derive(Debug, Default)]
struct Window {
    events: VecDeque<RecordedEvent>,
    /// The position after which the last read found no event.
    end: Option<Seq>,
    last_read: Option<LastRead>,
    /// The time at which a read at the end of the log began, if one is running.
    reading_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct LastRead {
    growth: u64,
    at: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) events: Vec<RecordedEvent>,
    /// `true` if the event at the position is the last event of the log. `None` if this event was
    /// not read.
    pub(super) is_over: Option<bool>,
}

enum Turn {
    Done(Found),
    Read(LastRead),
    Wait,
    /// Read another part of the log, for this follower only.
    ReadHistory,
}

impl RecentEvents {
    pub(super) fn expect_more(&self) {
        self.growth.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the events after a position, from the cache if another follower has just read them.
    /// An empty result is repeated for `max_age` at most, because another process gives no hint of
    /// its writes.
    pub(super) async fn read_after(
        &self,
        store: &dyn Store,
        id: ExecutionId,
        after: Seq,
        max_age: Duration,
    ) -> Result<Found, StoreError> {
        loop {
            let mut read_finished = pin!(self.read_finished.notified());
            read_finished.as_mut().enable();
            match self.next_turn(after, max_age) {
                Turn::Done(found) => return Ok(found),
                Turn::Wait => drop(timeout(MAX_TURN_TIME, read_finished).await),
                Turn::ReadHistory => return self.read_history(store, id, after).await,
                Turn::Read(read) => {
                    let found = read_end(store, id, after).await;
                    let mut window = self.lock_window();
                    if window.reading_since == Some(read.at) {
                        window.reading_since = None;
                    }
                    let found = found.map(|events| window.add_read(read, after, events));
                    drop(window);
                    self.read_finished.notify_waiters();
                    return found;
                }
            }
        }
    }

    fn next_turn(&self, after: Seq, max_age: Duration) -> Turn {
        let mut window = self.lock_window();
        if let Some(events) = window.events_after(after) {
            return Turn::Done(Found { events, is_over: None });
        }
        if window.end.is_some_and(|end| end != after) {
            return Turn::ReadHistory;
        }
        let growth = self.growth.load(Ordering::SeqCst);
        let is_current = |read: LastRead| read.growth == growth && read.at.elapsed() < max_age;
        if window.end.is_some() && window.last_read.is_some_and(is_current) {
            return Turn::Done(Found { events: Vec::new(), is_over: window.is_over_at(after) });
        }
        if window.reading_since.is_some_and(|since| since.elapsed() < MAX_TURN_TIME) {
            return Turn::Wait;
        }
        let at = Instant::now();
        window.reading_since = Some(at);
        Turn::Read(LastRead { growth, at })
    }

    async fn read_history(
        &self,
        store: &dyn Store,
        id: ExecutionId,
        after: Seq,
    ) -> Result<Found, StoreError> {
        let events = store.read(id, after).await?;
        let mut window = self.lock_window();
        let is_new = window.end.is_some_and(|end| end < after) && !events.is_empty();
        let is_wrong = window.end.is_some_and(|end| end > after) && events.is_empty();
        if is_new || is_wrong {
            // The cached events end before the reader's position, or after the end of the log. So
            // the cache starts again at this position.
            *window = Window { end: Some(after), ..Window::default() };
            window.append_events(&events);
        }
        Ok(Found { events, is_over: None })
    }

    pub(super) fn clear(&self) {
        *self.lock_window() = Window::default();
    }

    fn lock_window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the events after a position, and the event at this position.
///
/// The event at the position shows whether the log is finished, and proves that the log still
/// exists. Returns `None` if that event does not exist.
async fn read_end(
    store: &dyn Store,
    id: ExecutionId,
    after: Seq,
) -> Result<Option<Vec<RecordedEvent>>, StoreError> {
    let Some(before) = after.0.checked_sub(1) else { return store.read(id, after).await.map(Some) };
    let mut events = store.read(id, Seq(before)).await?;
    if events.first().is_none_or(|event| event.seq != after) {
        return Ok(None);
    }
    if events.len() == 1 {
        // A read is limited in size, so a large event may leave no room for the next events.
        events.extend(store.read(id, after).await?);
    }
    Ok(Some(events))
}

impl Window {
    fn events_after(&self, after: Seq) -> Option<Vec<RecordedEvent>> {
        let first = self.events.front()?.seq;
        if self.end? <= after || after.advance_by(1) < first {
            return None;
        }
        Some(self.events.iter().filter(|event| event.seq > after).cloned().collect())
    }

    /// Adds a read of the log's end to the cache. Returns the events after position `after`.
    fn add_read(
        &mut self,
        read: LastRead,
        after: Seq,
        events: Option<Vec<RecordedEvent>>,
    ) -> Found {
        let Some(mut events) = events else {
            // Clears the cache, because the log was removed, or never had an event at this
            // position.
            *self = Self::default();
            return Found::default();
        };
        let is_over = events.iter().find(|event| event.seq == after);
        let is_over = is_over.map(|event| event.event.is_last());
        if self.end.is_none_or(|end| end == after) {
            self.end = Some(after);
            let known = self.events.back().map(|event| event.seq);
            let new = events.iter().position(|event| Some(event.seq) > known);
            self.append_events(&events[new.unwrap_or(events.len())..]);
            self.last_read = Some(read);
        }
        events.retain(|event| event.seq > after);
        Found { events, is_over }
    }

    fn append_events(&mut self, events: &[RecordedEvent]) {
        self.events.extend(events.iter().cloned());
        if let Some(last) = self.events.back() {
            self.end = Some(last.seq);
        }
        let mut bytes: usize = self.events.iter().map(RecordedEvent::bytes).sum();
        while self.events.len() > MAX_CACHED_EVENTS
            || (bytes > MAX_CACHED_BYTES && self.events.len() > 1)
        {
            bytes -= self.events.pop_front().map_or(0, |event| event.bytes());
        }
    }

    fn is_over_at(&self, at: Seq) -> Option<bool> {
        let event = self.events.iter().rev().find(|event| event.seq == at)?;
        Some(event.event.is_last())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::{
        clock::Timestamp,
        event::Event,
        store::{Append, Log, memory::Memory},
    };

    const FRESH_TIME: Duration = Duration::from_millis(100);

    fn log() -> ExecutionId {
        "exec_1_aaaaaaaaa".parse().unwrap()
    }

    async fn append(store: &Memory, from: u64, to: u64) {
        let signal = |seq| RecordedEvent {
            seq: Seq(seq),
            at: Timestamp::UNIX_EPOCH,
            by: None,
            event: Event::SignalReceived {
                name: "s".to_owned(),
                payload: Arc::new(Value::Null),
                command: "cmd_1_aaaaaaaaa".parse().unwrap(),
            },
        };
        let events: Vec<_> = (from..=to).map(signal).collect();
        store.append(Append::new(log(), Seq(from - 1), &events)).await.unwrap();
    }

    async fn seqs(recent: &RecentEvents, store: &Memory, after: u64) -> Vec<u64> {
        let found = recent.read_after(store, log(), Seq(after), FRESH_TIME).await.unwrap();
        found.events.iter().map(|event| event.seq.0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_serves_every_follower() {
        let (store, empty, recent) = (Memory::new(), Memory::new(), RecentEvents::default());
        append(&store, 1, 3).await;
        assert_eq!(seqs(&recent, &store, 0).await, [1, 2, 3]);
        // The second store has no events, so an answer proves that the cache served it.
        assert_eq!(seqs(&recent, &empty, 0).await, [1, 2, 3]);
        assert_eq!(seqs(&recent, &empty, 2).await, [3]);
        assert!(seqs(&recent, &store, 3).await.is_empty());
        append(&store, 4, 4).await;
        recent.expect_more();
        assert_eq!(seqs(&recent, &store, 3).await, [4]);
        assert_eq!(seqs(&recent, &empty, 3).await, [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn events_without_a_hint_are_found_later() {
        let (store, recent) = (Memory::new(), RecentEvents::default());
        append(&store, 1, 3).await;
        assert!(seqs(&recent, &store, 3).await.is_empty());
        append(&store, 4, 4).await;
        assert!(seqs(&recent, &store, 3).await.is_empty(), "it was looked at just now");
        tokio::time::advance(FRESH_TIME).await;
        assert_eq!(seqs(&recent, &store, 3).await, [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_outside_the_window_still_gets_its_events() {
        let (store, recent) = (Memory::new(), RecentEvents::default());
        append(&store, 1, 3).await;
        assert!(seqs(&recent, &store, 1_000).await.is_empty());
        assert_eq!(seqs(&recent, &store, 1).await, [2, 3]);
        assert!(seqs(&recent, &store, 1_000).await.is_empty());
        append(&store, 4, 2_000).await;
        assert_eq!(seqs(&recent, &store, 1_990).await.len(), 10);
        assert_eq!(seqs(&recent, &Memory::new(), 1_995).await.len(), 5, "the window has moved");
        assert_eq!(seqs(&recent, &store, 0).await.len(), 2_000);
    }

    /// A follower whose client reads nothing is not polled, not even in the middle of a read of the
    /// store.
    #[tokio::test(start_paused = true)]
    async fn a_follower_that_is_not_polled_delays_no_other() {
        let (store, recent) = (Memory::new(), RecentEvents::default());
        append(&store, 1, 3).await;
        let Turn::Read(stalled) = recent.next_turn(Seq(3), FRESH_TIME) else {
            panic!("nobody reads yet")
        };
        assert!(matches!(recent.next_turn(Seq(3), FRESH_TIME), Turn::Wait));
        let began = Instant::now();
        assert!(seqs(&recent, &store, 3).await.is_empty());
        assert!(began.elapsed() <= 2 * MAX_TURN_TIME, "{:?}", began.elapsed());
        append(&store, 4, 4).await;
        recent.expect_more();
        assert_eq!(seqs(&recent, &store, 3).await, [4]);
        // Adds the result of the stalled read, which came too late and must not change the cache.
        let late = read_end(&store, log(), Seq(3)).await.unwrap();
        let found = recent.lock_window().add_read(stalled, Seq(3), late);
        assert_eq!(found.events.len(), 1);
        assert_eq!(seqs(&recent, &store, 2).await, [3, 4]);
    }
}
