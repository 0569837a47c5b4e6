//! Idle drivers: when tasks may start, when a driver wakes up, and when it parks its execution.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use shared::{clock::Timestamp, store::ExecutionHead};
use tokio::time;
use tracing::{debug, error, warn};

use super::{Context, Driver, Stop};
use crate::machine;

/// Delay before a parked execution requests permits again. Used if too many executions wait for
/// permits in memory.
pub(super) const CROWDED: TimeDelta = TimeDelta::minutes(1);

/// Permission of the worker to start tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// Tasks may start.
    Now,
    /// Not while the lease is in doubt, because another worker may have claimed the execution. The
    /// driver then records no start, since it could not call the tool after the append.
    Later,
    /// Not on this worker: it drains, or a tool is missing.
    Elsewhere,
}

impl Driver {
    pub(super) fn wake_in(&self) -> Option<Duration> {
        // An execution with a later start is parked, and the next claim starts it.
        self.execution.started_at()?;
        let until = |due: Timestamp| (due - self.context.clock.now()).to_std().unwrap_or_default();
        let due = machine::wake_at(&self.execution).map(until);
        let held_up = self.is_held_up().then_some(self.context.options.poll);
        let wait = due.into_iter().chain(self.lingers_for()).chain(held_up).min()?;
        // A due task that may not start must not keep the driver busy.
        let begins = self.begins() == Begins::Now;
        let least = if begins { Duration::ZERO } else { self.context.options.poll };
        Some(wait.max(least))
    }

    /// Returns whether the execution needs no driver for now.
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
        // Without other workers nobody would find a child again, so it stays until it finishes.
        if self.lingers_for().is_some() || (self.context.is_alone && self.is_part()) {
            return false;
        }
        let soon = TimeDelta::from_std(self.context.options.park_after).unwrap_or(TimeDelta::MAX);
        self.due().is_none_or(|due| due - self.context.clock.now() > soon)
    }

    /// Returns whether tasks may start here. Nothing else decides this.
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

    /// Returns whether only the lease keeps a task from starting, or did at the last decision.
    pub(super) fn is_held_up(&self) -> bool {
        // A durable start that is still held was stopped by the lease. The lease may be safe by now,
        // so its current state does not matter.
        let is_held = self.held.front().is_some_and(|start| start.0 <= self.pending.durable());
        is_held
            || self.claim.must_decide_again
            || (self.has_work() && self.begins() == Begins::Later)
    }

    /// Returns whether there is a task that could start.
    pub(super) fn has_work(&self) -> bool {
        self.execution.agenda().has_work() && machine::lets_begin(&self.execution)
    }

    /// Moves an execution that only waits for permits to a waiting slot, and back. Returns `false`
    /// if no waiting slot is free.
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
            // Without other workers nobody would find the execution again.
            Err(_) if only_waits => return *is_alone,
            // The execution has waited long enough, so it may exceed the limit.
            Err(_) => (),
        }
        true
    }

    pub(super) fn is_part(&self) -> bool {
        self.execution.parent().is_some()
    }

    /// Returns how long the parent still stays in memory, because a child may finish soon.
    pub(super) fn lingers_for(&self) -> Option<Duration> {
        let until =
            self.children.until.filter(|_| !self.execution.agenda().in_children().is_empty());
        until
            .and_then(|until| until.checked_duration_since(time::Instant::now()))
            .filter(|rest| !rest.is_zero())
    }

    /// Returns when a worker should claim the execution again if no command arrives before.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let is_for_others = self.has_work() || self.children.is_unseen();
        if self.begins() == Begins::Elsewhere && is_for_others {
            // A time in the past is due by the clocks of all other workers, too.
            return Some(self.execution.created_at());
        }
        machine::wake_at(&self.execution)
    }

    /// Releases the execution by writing a head without an owner. If the store refuses the head, the
    /// worker keeps trying without a driver.
    pub(super) async fn put_aside(&mut self, due: Option<Timestamp>) -> Stop {
        let head = ExecutionHead::from_execution(&self.execution, None, due);
        debug!(execution = %head.execution, due = ?head.due, "parked");
        let mut tries = 1;
        while let Err(err) = self.context.store.put_head(head.clone()).await {
            if err.is_permanent() || tries >= self.context.options.store_tries {
                error!(
                    execution = %head.execution, %err,
                    "cannot park an execution: this worker owns it until its head is written"
                );
                return Stop::Unwritten(Box::new(head));
            }
            warn!(execution = %head.execution, %err, "cannot park an execution yet, will retry");
            tries += 1;
            time::sleep(self.context.options.poll).await;
        }
        Stop::PutAside
    }
}
