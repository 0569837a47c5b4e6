//! What a driver does while nothing happens: whether anything may begin, when it wakes, and when it
//! lets go.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use shared::{clock::Timestamp, store::ExecutionHead};
use tokio::time;
use tracing::{debug, error, warn};

use super::{Context, Driver, Stop};
use crate::machine;

/// How long one that waits for permits is left alone where too many do so in memory.
pub(super) const CROWDED: TimeDelta = TimeDelta::minutes(1);

/// Whether anything may begin, as far as that is for the worker to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// It may.
    Now,
    /// Not before the lease is beyond doubt: others may think that this worker is gone. It begins
    /// nothing whose record would say that it was called, only to find that it must not call it.
    Later,
    /// Not here: the worker is about to end, or lacks a tool.
    Elsewhere,
}

impl Driver {
    pub(super) fn wake_in(&self) -> Option<Duration> {
        // Before its start an execution is only put aside; whoever claims it then begins it.
        self.execution.started_at()?;
        let until = |it: Timestamp| (it - self.context.clock.now()).to_std().unwrap_or_default();
        let due = machine::wake_at(&self.execution).map(until);
        let held_up = self.is_held_up().then_some(self.context.options.poll);
        let wait = due.into_iter().chain(self.lingers_for()).chain(held_up).min()?;
        // A step that is due and may not begin any more must not keep this awake.
        let begins = self.begins() == Begins::Now;
        let least = if begins { Duration::ZERO } else { self.context.options.poll };
        Some(wait.max(least))
    }

    /// Returns whether nothing here is under way that needs a driver.
    pub(super) fn may_put_aside(&self) -> bool {
        let is_idle = self.attempts.is_empty() && self.held.is_empty() && self.done.is_empty();
        if !is_idle || self.execution.agenda().has_calls() {
            return false;
        }
        if self.begins() == Begins::Elsewhere || self.execution.started_at().is_none() {
            return true;
        }
        if self.is_held_up() {
            return false;
        }
        // Where nobody else looks for it, one that is part of another stays until it is over.
        if self.lingers_for().is_some() || (self.context.is_alone && self.is_part()) {
            return false;
        }
        let soon = TimeDelta::from_std(self.context.options.park_after).unwrap_or(TimeDelta::MAX);
        self.due().is_none_or(|it| it - self.context.clock.now() > soon)
    }

    /// Returns whether anything may begin here. The only place that says so.
    pub(super) fn begins(&self) -> Begins {
        if self.intake.is_draining || self.tools.are_lacking() {
            Begins::Elsewhere
        } else if self.is_lease_doubtful() {
            Begins::Later
        } else {
            Begins::Now
        }
    }

    pub(super) fn is_lease_doubtful(&self) -> bool {
        self.claim.needs_safe_lease && !self.context.lease.is_safe(self.claim.term)
    }

    /// Returns whether only the lease keeps something from beginning, or did when that was asked.
    pub(super) fn is_held_up(&self) -> bool {
        // What is durable and held is so because the lease was in doubt when it was to begin: the
        // lease may be safe by now, and must not be asked twice.
        let is_held = self.held.front().is_some_and(|it| it.0 <= self.pending.durable());
        is_held
            || self.claim.must_decide_again
            || (self.has_work() && self.begins() == Begins::Later)
    }

    /// Returns whether something could begin, if it may.
    pub(super) fn has_work(&self) -> bool {
        self.execution.agenda().has_work() && machine::lets_begin(&self.execution)
    }

    /// Gives the place of an execution that only waits for permits to others, for as long as it
    /// does. Returns whether there is a place for it.
    pub(super) fn keep_place(&mut self) -> bool {
        let asks = self.gates.asks();
        let only_waits = asks > 0
            && asks == self.attempts.len()
            && self.held.is_empty()
            && self.done.is_empty()
            && !self.execution.agenda().has_calls();
        let Context { room, patience, is_alone, .. } = &*self.context;
        let is_patient = Arc::ptr_eq(self.place.semaphore(), patience);
        if only_waits == is_patient {
            return true;
        }
        let other = if only_waits { patience } else { room };
        match Arc::clone(other).try_acquire_owned() {
            Ok(place) => self.place = place,
            // Where nobody else looks for it, it stays.
            Err(_) if only_waits => return *is_alone,
            // It has waited for long: it need not wait for room too.
            Err(_) => (),
        }
        true
    }

    pub(super) fn is_part(&self) -> bool {
        self.execution.parent().is_some()
    }

    /// Returns for how long a child may yet end before it is worth being put aside.
    pub(super) fn lingers_for(&self) -> Option<Duration> {
        let until =
            self.children.until.filter(|_| !self.execution.agenda().in_children().is_empty());
        until
            .and_then(|it| it.checked_duration_since(time::Instant::now()))
            .filter(|it| !it.is_zero())
    }

    /// Returns when a worker should take the execution again, if nobody asks before.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let is_for_others = self.has_work() || self.children.is_unseen();
        if self.begins() == Begins::Elsewhere && is_for_others {
            // Due since long, so that it is due by the clock of whoever looks, too.
            return Some(self.execution.created_at());
        }
        machine::wake_at(&self.execution)
    }

    /// Lets the execution go. The head is what others find it by: where it cannot be written, that
    /// is left to the worker, which does not keep a driver for it.
    pub(super) async fn put_aside(&mut self, due: Option<Timestamp>) -> Stop {
        let head = ExecutionHead::from_execution(&self.execution, None, due);
        debug!(execution = %head.execution, due = ?head.due, "put aside");
        let mut tries = 1;
        while let Err(err) = self.context.store.put_head(head.clone()).await {
            if err.is_permanent() || tries >= self.context.options.store_tries {
                error!(
                    execution = %head.execution, %err,
                    "cannot put an execution aside: it stays this worker's until its head is written"
                );
                return Stop::Unwritten(Box::new(head));
            }
            warn!(execution = %head.execution, %err, "cannot put an execution aside yet");
            tries += 1;
            time::sleep(self.context.options.poll).await;
        }
        Stop::PutAside
    }
}
