//! Idle drivers: when tasks can start, when a driver wakes up, and when it parks its execution.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use shared::{clock::Timestamp, store::ExecutionHead};
use tokio::time;
use tracing::{debug, error, warn};

use super::{Driver, DriverStop, WorkerContext};
use crate::machine;

/// Delay before a parked execution requests permits again. Used if too many executions wait for
/// permits in memory.
pub(super) const CROWDED_DELAY: TimeDelta = TimeDelta::minutes(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartPermission {
    Now,
    /// No task is started until the lease is safe, because another worker may have claimed the
    /// execution.
    Later,
    /// No task is started on this worker, because the worker drains or lacks a tool.
    Elsewhere,
}

impl Driver {
    pub(super) fn wake_delay(&self) -> Option<Duration> {
        // Needs no timer for a planned start, because such an execution is parked and the next
        // claim starts it.
        self.execution.started_at()?;
        let until = |due: Timestamp| (due - self.context.clock.now()).to_std().unwrap_or_default();
        let due = machine::wake_at(&self.execution).map(until);
        let held_up = self.is_delayed_by_lease().then_some(self.context.options.poll);
        let wait = due.into_iter().chain(self.linger_time()).chain(held_up).min()?;
        // If no task may start now, waits for at least a poll interval, because a due task must not
        // keep the driver busy.
        let begins = self.start_permission() == StartPermission::Now;
        let minimum = if begins { Duration::ZERO } else { self.context.options.poll };
        Some(wait.max(minimum))
    }

    pub(super) fn can_park(&self) -> bool {
        let is_idle =
            self.jobs.is_empty() && self.held_starts.is_empty() && self.results.is_empty();
        if !is_idle || self.execution.agenda().has_calls() {
            return false;
        }
        if self.start_permission() == StartPermission::Elsewhere
            || self.execution.started_at().is_none()
        {
            return true;
        }
        if self.is_delayed_by_lease() {
            return false;
        }
        // Keeps a parent in memory while a child may finish soon. Keeps a child of a worker that is
        // alone, because no other worker would find the child again.
        if self.linger_time().is_some() || (self.context.is_alone && self.is_child()) {
            return false;
        }
        let soon = TimeDelta::from_std(self.context.options.park_after).unwrap_or(TimeDelta::MAX);
        self.next_due_at().is_none_or(|due| due - self.context.clock.now() > soon)
    }

    pub(super) fn start_permission(&self) -> StartPermission {
        if self.inputs.is_draining || self.tool_presence.has_missing_tools() {
            StartPermission::Elsewhere
        } else if self.is_lease_doubtful() {
            StartPermission::Later
        } else {
            StartPermission::Now
        }
    }

    pub(super) fn is_lease_doubtful(&self) -> bool {
        self.claim.needs_safe_lease && !self.context.lease.is_safe(self.claim.term)
    }

    /// Returns whether the lease delays a start, so that the driver must check the lease again
    /// soon.
    pub(super) fn is_delayed_by_lease(&self) -> bool {
        // If a start is durable and its call has not begun, the lease has stopped the call. The
        // lease may be safe by now, so its current state does not matter.
        let is_held =
            self.held_starts.front().is_some_and(|start| start.0 <= self.pending.durable_seq());
        is_held
            || self.claim.needs_decision
            || (self.has_work() && self.start_permission() == StartPermission::Later)
    }

    pub(super) fn has_work(&self) -> bool {
        self.execution.agenda().has_work() && machine::can_start_tasks(&self.execution)
    }

    /// Moves an execution that only waits for permits to a waiting slot, and back when it has other
    /// work. Returns `false` if no waiting slot is free and another worker can claim the execution
    /// later.
    pub(super) fn switch_slot(&mut self) -> bool {
        let asks = self.permit_requests.open_requests();
        let only_waits = asks > 0
            && asks == self.jobs.len()
            && self.held_starts.is_empty()
            && self.results.is_empty()
            && !self.execution.agenda().has_calls();
        let WorkerContext { slots, waiting_slots, is_alone, .. } = &*self.context;
        let is_in_waiting_slot = Arc::ptr_eq(self.slot.semaphore(), waiting_slots);
        if only_waits == is_in_waiting_slot {
            return true;
        }
        let other = if only_waits { waiting_slots } else { slots };
        match Arc::clone(other).try_acquire_owned() {
            Ok(place) => self.slot = place,
            // Keeps the execution in memory if this worker is alone, because then no other worker
            // would find it again.
            Err(_) if only_waits => return *is_alone,
            // Continues in the waiting slot, beyond the limit, because the execution has waited
            // long enough.
            Err(_) => (),
        }
        true
    }

    pub(super) fn is_child(&self) -> bool {
        self.execution.parent().is_some()
    }

    /// Returns how long the parent still stays in memory, because a child may finish soon.
    pub(super) fn linger_time(&self) -> Option<Duration> {
        let until = self
            .children
            .linger_until
            .filter(|_| !self.execution.agenda().in_children().is_empty());
        until
            .and_then(|until| until.checked_duration_since(time::Instant::now()))
            .filter(|rest| !rest.is_zero())
    }

    /// Returns when a worker should claim the execution again if no command arrives before that
    /// time.
    pub(super) fn next_due_at(&self) -> Option<Timestamp> {
        let is_for_others = self.has_work() || self.children.has_unknown_status();
        if self.start_permission() == StartPermission::Elsewhere && is_for_others {
            // Uses the creation time, so that the execution is due immediately for other workers.
            return Some(self.execution.created_at());
        }
        machine::wake_at(&self.execution)
    }

    /// Releases the execution by writing a head without an owner. If the store refuses the head,
    /// the worker offers the head again later, without a driver.
    pub(super) async fn park(&mut self, due: Option<Timestamp>) -> DriverStop {
        let head = ExecutionHead::from_execution(&self.execution, None, due);
        debug!(execution = %head.execution, due = ?head.due, "parked");
        let mut tries = 1;
        while let Err(err) = self.context.store.put_head(head.clone()).await {
            if err.is_permanent() || tries >= self.context.options.store_tries {
                error!(
                    execution = %head.execution, %err,
                    "cannot park an execution: this worker owns it until its head is written"
                );
                return DriverStop::HeadUnwritten(Box::new(head));
            }
            warn!(execution = %head.execution, %err, "cannot park an execution yet, will retry");
            tries += 1;
            time::sleep(self.context.options.poll).await;
        }
        DriverStop::Parked
    }
}
