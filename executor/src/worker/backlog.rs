//! Executions that a worker knows and does not drive.

use std::{collections::BTreeMap, time::Duration};

use shared::{
    id::{Epoch, ExecutionId},
    store::QueuePosition,
};
use tokio::time::Instant;

use super::pending_heads::PendingHeads;
use crate::required_tools::RequiredTools;

/// Maximum number of damaged executions, and of locked executions, that a worker postpones in
/// memory.
const MAX_POSTPONED: usize = 4_096;
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(super) struct Backlog {
    /// Executions that drivers gave up, with the newest known claim. The worker claims them again
    /// unless another worker has claimed them.
    pub(super) given_up: BTreeMap<ExecutionId, Epoch>,
    /// Number of due executions at the last scan that this worker already drives or cannot drive.
    pub(super) unclaimable_count: usize,
    /// The tools that executions still need, for executions whose plan has a tool that this node
    /// lacks.
    pub(super) required_tools: BTreeMap<ExecutionId, RequiredTools>,
    /// Position at which the next scan continues, if many due executions lack their tools.
    pub(super) cursor: Option<QueuePosition>,
    /// Grows with each scan that finds due executions, so that the tokens take turns.
    pub(super) turn: u32,
    /// Orphans that another worker should claim, each with the time at which this worker found it.
    pub(super) orphans: BTreeMap<ExecutionId, Instant>,
    /// Executions whose log or plan cannot be read, or whose next events cannot be written.
    pub(super) damaged: Postponed,
    /// Executions with values whose key this process lacks.
    pub(super) locked: Postponed,
    pub(super) pending_heads: PendingHeads,
    /// Time at which the worker last looked for executions that it owns and does not drive.
    pub(super) undriven_checked_at: Instant,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Self {
            given_up: BTreeMap::new(),
            unclaimable_count: 0,
            required_tools: BTreeMap::new(),
            cursor: None,
            turn: 0,
            orphans: BTreeMap::new(),
            damaged: Postponed::default(),
            locked: Postponed::default(),
            pending_heads: PendingHeads::default(),
            undriven_checked_at: Instant::now(),
        }
    }

    pub(super) fn owned_count(&self) -> usize {
        self.given_up.len() + self.pending_heads.len()
    }

    pub(super) fn owns(&self, id: ExecutionId) -> bool {
        self.given_up.contains_key(&id) || self.pending_heads.contains(id)
    }

    pub(super) fn give_up(&mut self, id: ExecutionId) {
        self.given_up.entry(id).or_default();
    }

    pub(super) fn is_unreadable(&self, id: ExecutionId) -> bool {
        self.damaged.contains(id) || self.locked.contains(id)
    }
}

/// Executions that this worker cannot drive now, with the time of the next attempt. The first pause
/// is short, because the reason can be temporary.
#[derive(Debug, Default)]
pub(super) struct Postponed(BTreeMap<ExecutionId, Pause>);

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Postponed {
    pub(super) fn insert(&mut self, id: ExecutionId) {
        let now = Instant::now();
        // Keeps a pause that ended recently, because the length of the next pause depends on it.
        self.0.retain(|_, pause| pause.until + pause.length > now);
        let length = self.next_pause(id);
        if self.0.len() < MAX_POSTPONED {
            self.0.insert(id, Pause { until: now + length, length });
        }
    }

    /// Returns how long [`insert`](Self::insert) would postpone the execution now.
    pub(super) fn next_pause(&self, id: ExecutionId) -> Duration {
        self.0.get(&id).map_or(MIN_PAUSE, |pause| (pause.length * 2).min(MAX_PAUSE))
    }

    pub(super) fn contains(&self, id: ExecutionId) -> bool {
        self.0.get(&id).is_some_and(|pause| pause.until > Instant::now())
    }
}
