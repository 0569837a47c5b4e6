//! The simulated world: its time, its network, and views of its store.
//! Every worker, client and subscriber has its own [`View`] of the store, like a separate process.
//! Hints can get lost. Writes can arrive long after the writer gave up. A frozen view stops while
//! other views continue. The world records every violation of a promise.

mod view;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DurationRound, TimeDelta};
use shared::{
    clock::{Clock, Timestamp},
    event,
    id::{ExecutionId, Seq},
    store::{Append, EventDocument, Hints, Store, memory::Memory},
};
use tokio::{
    task::JoinSet,
    time::{self, Instant},
};

pub use self::view::View;
use crate::faulty::{Dice, FaultRates, FaultyStore};

/// Start time of every world.
const START_SECONDS: i64 = 1_700_000_000;
const LOST_HINTS_PER_MILLE: u32 = 200;
/// Number of appends in a thousand that are reported as failed and written later.
const LATE_APPENDS_PER_MILLE: u32 = 15;
/// Longest delay of a late append, in milliseconds.
const MAX_LATENESS_MS: u64 = 4_000;

/// Number of worlds in a thousand whose clocks are wrong.
const SKEWED_WORLDS_PER_MILLE: u32 = 250;
/// Largest error of a clock, in both directions, in milliseconds.
const MAX_SKEW_MS: u64 = 30_000;

/// A clock that follows tokio's paused time.
#[derive(Clone, Copy, Debug)]
pub struct SimClock(Instant);

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let beginning = Timestamp::from_timestamp(START_SECONDS, 0).expect("a moment of our time");
        let now = beginning + self.0.elapsed();
        now.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(now)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SkewedClock {
    clock: SimClock,
    error: TimeDelta,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        self.clock.now() + self.error
    }
}

/// The state that workers, clients and subscribers of a world share.
#[derive(Debug)]
pub struct World {
    pub clock: SimClock,
    pub dice: Dice,
    /// The store without faults.
    pub memory: Arc<Memory>,
    faulty: Arc<FaultyStore>,
    has_stopped_faults: AtomicBool,
    is_skewed: bool,
    hints: Mutex<Vec<Arc<Hints>>>,
    late_appends: Mutex<JoinSet<()>>,
    acknowledged: Mutex<Vec<(ExecutionId, EventDocument)>>,
    violations: Mutex<Vec<String>>,
}

impl World {
    /// Creates a world. Needs a runtime with paused time.
    pub fn new(seed: u64, rates: FaultRates) -> Arc<Self> {
        let dice = Dice::new(seed);
        let is_skewed = dice.happens(SKEWED_WORLDS_PER_MILLE);
        let memory = Arc::new(Memory::new());
        let store: Arc<dyn Store> = Arc::<Memory>::clone(&memory);
        Arc::new(Self {
            clock: SimClock(Instant::now()),
            faulty: Arc::new(FaultyStore::new(store, dice.clone(), rates)),
            dice,
            memory,
            has_stopped_faults: AtomicBool::new(false),
            is_skewed,
            hints: Mutex::default(),
            late_appends: Mutex::default(),
            acknowledged: Mutex::default(),
            violations: Mutex::default(),
        })
    }

    pub fn view(self: &Arc<Self>) -> Arc<View> {
        let hints = Arc::new(Hints::default());
        lock(&self.hints).push(Arc::clone(&hints));
        Arc::new(View::new(Arc::clone(self), hints))
    }

    pub fn is_skewed(&self) -> bool {
        self.is_skewed
    }

    pub fn draw_clock(&self) -> SkewedClock {
        let max_skew = if self.is_skewed { MAX_SKEW_MS } else { 0 };
        let ms = i64::try_from(self.dice.draw_below(2 * max_skew + 1)).unwrap_or_default();
        let error = TimeDelta::milliseconds(ms - i64::try_from(max_skew).unwrap_or_default());
        SkewedClock { clock: self.clock, error }
    }

    /// Stops all faults, so that a test can see that everything finishes.
    pub fn stop_faults(&self) {
        self.faulty.stop_faults();
        self.has_stopped_faults.store(true, Ordering::Relaxed);
    }

    pub fn has_stopped_faults(&self) -> bool {
        self.has_stopped_faults.load(Ordering::Relaxed)
    }

    /// Waits a few milliseconds, as long as a message needs.
    async fn delay_message(&self) {
        let ms = if self.has_stopped_faults() { 1 } else { self.dice.draw_below(6) };
        time::sleep(Duration::from_millis(ms)).await;
    }

    fn is_late(&self) -> bool {
        !self.has_stopped_faults() && self.dice.happens(LATE_APPENDS_PER_MILLE)
    }

    fn append_later(self: &Arc<Self>, append: Append) {
        let (world, wait) = (Arc::clone(self), self.dice.draw_below(MAX_LATENESS_MS));
        lock(&self.late_appends).spawn(async move {
            use shared::store::Log as _;
            time::sleep(Duration::from_millis(wait)).await;
            // The store rejects the append if it no longer fits the log.
            if world.memory.append(append).await.is_ok() {
                world.send_hints();
            }
        });
    }

    fn send_hints(&self) {
        for hints in &*lock(&self.hints) {
            if self.has_stopped_faults() || !self.dice.happens(LOST_HINTS_PER_MILLE) {
                hints.wake_all();
            }
        }
    }

    fn acknowledge(&self, id: ExecutionId, documents: Vec<EventDocument>) {
        lock(&self.acknowledged).extend(documents.into_iter().map(|document| (id, document)));
    }

    pub fn add_violation(&self, violation: String) {
        lock(&self.violations).push(violation);
    }

    /// Returns the violations. `logs` are the final logs, which must have all acknowledged events.
    pub fn violations(
        &self,
        logs: &BTreeMap<ExecutionId, Vec<event::RecordedEvent>>,
    ) -> Vec<String> {
        let mut violations = lock(&self.violations).clone();
        for (id, document) in &*lock(&self.acknowledged) {
            let EventDocument { first, len, .. } = document;
            let from = usize::try_from(first.0).expect("logs fit into memory") - 1;
            let kept = logs.get(id).and_then(|log| log.get(from..from + len));
            let events = document.decode(*id).unwrap_or_default();
            if kept != Some(&events) {
                violations.push(format!("acknowledged events from {first} on are lost"));
            }
        }
        violations
    }

    pub async fn read_log(&self, id: ExecutionId) -> Vec<event::RecordedEvent> {
        use shared::store::Log as _;
        let mut log = Vec::new();
        loop {
            let after = Seq(log.len() as u64);
            let more = self.memory.read(id, after).await.unwrap_or_default();
            if more.is_empty() {
                return log;
            }
            log.extend(more);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock means that the test has failed anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
