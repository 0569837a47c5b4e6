//! A world for the simulator: its time, its network, and each inhabitant's view of the store.
//!
//! Every worker, client and subscriber sees the store through a [`View`] of its own, as separate
//! processes do: hints reach it or are lost, writes may land long after they were given up, and a
//! frozen inhabitant stands still while the others go on. The world writes down everything that
//! must never happen.

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
use crate::faulty::{Dice, Faulty, Malice};

/// When every world begins.
const BEGINNING: i64 = 1_700_000_000;
/// How often in a thousand a hint does not arrive.
const LOST_HINTS: u32 = 200;
/// How often in a thousand an append is reported to have failed and is written later.
const LATE_APPENDS: u32 = 15;
/// How late such an append may be.
const LATE_MS: u64 = 4_000;

/// In how many worlds of a thousand clocks are wrong.
const SKEWED: u32 = 250;
/// By how much they are, at most, either way.
const SKEW_MS: u64 = 30_000;

/// A clock that follows tokio's paused time.
#[derive(Clone, Copy, Debug)]
pub struct SimClock(Instant);

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let beginning = Timestamp::from_timestamp(BEGINNING, 0).expect("a moment of our time");
        let now = beginning + self.0.elapsed();
        now.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(now)
    }
}

/// A clock that is as wrong as it was set.
#[derive(Clone, Copy, Debug)]
pub struct SkewedClock {
    clock: SimClock,
    by: TimeDelta,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        self.clock.now() + self.by
    }
}

/// Everything that the inhabitants share.
#[derive(Debug)]
pub struct World {
    /// The time.
    pub clock: SimClock,
    /// Chance.
    pub dice: Dice,
    /// What is really stored.
    pub truth: Arc<Memory>,
    faulty: Arc<Faulty>,
    is_calm: AtomicBool,
    /// Whether the clocks of the inhabitants are wrong.
    is_skewed: bool,
    hints: Mutex<Vec<Arc<Hints>>>,
    late: Mutex<JoinSet<()>>,
    acknowledged: Mutex<Vec<(ExecutionId, EventDocument)>>,
    wrongs: Mutex<Vec<String>>,
}

impl World {
    /// Makes a world whose store has some malice. Needs a runtime whose time is paused.
    pub fn new(seed: u64, malice: Malice) -> Arc<Self> {
        let dice = Dice::new(seed);
        let is_skewed = dice.happens(SKEWED);
        let truth = Arc::new(Memory::new());
        let store: Arc<dyn Store> = Arc::<Memory>::clone(&truth);
        Arc::new(Self {
            clock: SimClock(Instant::now()),
            faulty: Arc::new(Faulty::new(store, dice.clone(), malice)),
            dice,
            truth,
            is_calm: AtomicBool::new(false),
            is_skewed,
            hints: Mutex::default(),
            late: Mutex::default(),
            acknowledged: Mutex::default(),
            wrongs: Mutex::default(),
        })
    }

    /// Lets a new inhabitant in.
    pub fn view(self: &Arc<Self>) -> Arc<View> {
        let hints = Arc::new(Hints::default());
        lock(&self.hints).push(Arc::clone(&hints));
        Arc::new(View::new(Arc::clone(self), hints))
    }

    /// Returns whether the clocks of the inhabitants are wrong.
    pub fn is_skewed(&self) -> bool {
        self.is_skewed
    }

    /// Returns the clock of a new inhabitant.
    pub fn draw_clock(&self) -> SkewedClock {
        let most = if self.is_skewed { SKEW_MS } else { 0 };
        let ms = i64::try_from(self.dice.below(2 * most + 1)).unwrap_or_default();
        let by = TimeDelta::milliseconds(ms - i64::try_from(most).unwrap_or_default());
        SkewedClock { clock: self.clock, by }
    }

    /// Stops all malice, so that one can see that everything comes right.
    pub fn calm_down(&self) {
        self.faulty.set_calm(true);
        self.is_calm.store(true, Ordering::Relaxed);
    }

    /// Returns whether the malice has stopped.
    pub fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Waits a few milliseconds, as messages do.
    async fn travel(&self) {
        let ms = if self.is_calm() { 1 } else { self.dice.below(6) };
        time::sleep(Duration::from_millis(ms)).await;
    }

    /// Draws whether an append is late.
    fn is_late(&self) -> bool {
        !self.is_calm() && self.dice.happens(LATE_APPENDS)
    }

    /// Writes an append some time later, if the log then still ends where it begins.
    fn append_later(self: &Arc<Self>, append: Append) {
        let (world, wait) = (Arc::clone(self), self.dice.below(LATE_MS));
        lock(&self.late).spawn(async move {
            use shared::store::Log as _;
            time::sleep(Duration::from_millis(wait)).await;
            // Whether it fits is what the fence is for.
            if world.truth.append(append).await.is_ok() {
                world.poke();
            }
        });
    }

    /// Says that something was written, to whomever the message reaches.
    fn poke(&self) {
        for hints in &*lock(&self.hints) {
            if self.is_calm() || !self.dice.happens(LOST_HINTS) {
                hints.wake_all();
            }
        }
    }

    fn acknowledge(&self, id: ExecutionId, documents: Vec<EventDocument>) {
        lock(&self.acknowledged).extend(documents.into_iter().map(|document| (id, document)));
    }

    /// Writes down what must never happen.
    pub fn wrong(&self, what: String) {
        lock(&self.wrongs).push(what);
    }

    /// Returns what happened that must never happen; `logs` is how everything ended.
    pub fn wrongs(&self, logs: &BTreeMap<ExecutionId, Vec<event::RecordedEvent>>) -> Vec<String> {
        let mut wrongs = lock(&self.wrongs).clone();
        for (id, document) in &*lock(&self.acknowledged) {
            let EventDocument { first, len, .. } = document;
            let from = usize::try_from(first.0).expect("logs fit into memory") - 1;
            let kept = logs.get(id).and_then(|log| log.get(from..from + len));
            let events = document.decode(*id).unwrap_or_default();
            if kept != Some(&events) {
                wrongs.push(format!("the events from {first} on were acknowledged and are lost"));
            }
        }
        wrongs
    }

    /// Returns the log as it really is.
    pub async fn log(&self, id: ExecutionId) -> Vec<event::RecordedEvent> {
        use shared::store::Log as _;
        let mut log = Vec::new();
        loop {
            let after = Seq(log.len() as u64);
            let more = self.truth.read(id, after).await.unwrap_or_default();
            if more.is_empty() {
                return log;
            }
            log.extend(more);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that panicked has failed anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
