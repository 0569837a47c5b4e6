//! Executions that a worker knows and does not drive.

use std::{collections::BTreeMap, time::Duration};

use shared::{
    id::{Epoch, ExecutionId},
    store::QueuePosition,
};
use tokio::time::Instant;

use super::pending_heads::PendingHeads;
use crate::required_tools::RequiredTools;

/// Maximum number of damaged executions that a worker remembers. It tries all other damaged
/// executions again at each scan.
const MAX_DAMAGED: usize = 4_096;

#[derive(Debug)]
pub(super) struct Backlog {
    /// Executions that drivers gave up, with the newest known claim. The worker claims them again
    /// unless another worker has claimed them.
    pub(super) given_up: BTreeMap<ExecutionId, Epoch>,
    /// Number of due executions at the last scan that need a tool which this node lacks.
    pub(super) missing_tool_count: usize,
    /// For each due execution of the last scan that has started, the tools that it still needs.
    pub(super) required_tools: BTreeMap<ExecutionId, RequiredTools>,
    /// Position at which the next scan continues, if many due executions lack their tools.
    pub(super) cursor: Option<QueuePosition>,
    /// Orphans that another worker should claim, and the time at which this worker found each.
    pub(super) orphans: BTreeMap<ExecutionId, Instant>,
    /// Executions that cannot be driven, and the time of the next attempt.
    pub(super) damaged: BTreeMap<ExecutionId, Instant>,
    pub(super) pending_heads: PendingHeads,
    /// Time at which the worker last looked for executions that it owns and does not drive.
    pub(super) swept_at: Instant,
}

impl Backlog {
    pub(super) fn new() -> Self {
        Self {
            given_up: BTreeMap::new(),
            missing_tool_count: 0,
            required_tools: BTreeMap::new(),
            cursor: None,
            orphans: BTreeMap::new(),
            damaged: BTreeMap::new(),
            pending_heads: PendingHeads::default(),
            swept_at: Instant::now(),
        }
    }

    pub(super) fn owned(&self) -> usize {
        self.given_up.len() + self.pending_heads.len()
    }

    pub(super) fn owns(&self, id: ExecutionId) -> bool {
        self.given_up.contains_key(&id) || self.pending_heads.contains(id)
    }

    /// Keeps an execution that a driver gave up, to be claimed again.
    pub(super) fn give_up(&mut self, id: ExecutionId) {
        self.given_up.entry(id).or_default();
    }

    pub(super) fn note_damage(&mut self, id: ExecutionId, pause: Duration) {
        let now = Instant::now();
        self.damaged.retain(|_, until| *until > now);
        if self.damaged.len() < MAX_DAMAGED {
            self.damaged.insert(id, now + pause);
        }
    }

    pub(super) fn is_damaged(&self, id: ExecutionId) -> bool {
        self.damaged.get(&id).is_some_and(|until| *until > Instant::now())
    }
}
