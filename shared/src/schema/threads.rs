//! Threads for checks that take too long for the caller's thread. A check never yields, so it would
//! block the other tasks on a thread of the async runtime.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Maximum number of checks that run at the same time. There is a limit, so that the other
/// processors of the machine stay free for other work.
const MAX_RUNNING_CHECKS: usize = 2;
/// Maximum number of checks that wait for a slot. The limit bounds the memory and the waiting time
/// of these checks.
pub(super) const MAX_WAITING_CHECKS: usize = 64;
/// Stack size of a thread in bytes. Memory is used only if a value and its schema nest deeply.
const STACK_BYTES: usize = 64 << 20;
pub(super) const USABLE_STACK: usize = STACK_BYTES - (1 << 20);

pub(super) const STOPPED_MESSAGE: &str =
    "the check was cancelled because the server is stopping: try again later";

tokio::task_local! {
    static STOP: CheckStop;
}

/// Ends the long checks of some tasks early, because a check blocks its task, which then cannot be
/// aborted. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct CheckStop(Arc<AtomicBool>);

impl CheckStop {
    /// Runs a task whose long checks end when [`Self::stop_checks`] is called.
    pub fn watch<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        STOP.scope(self.clone(), task)
    }

    /// Ends the running checks of these tasks, and refuses waiting and later checks. The values of
    /// all these checks count as invalid.
    pub fn stop_checks(&self) {
        self.0.store(true, Ordering::Relaxed);
        // Locks the slots before the notification. Otherwise a check that has just read the state,
        // but does not wait yet, would miss the notification.
        drop(lock_slots());
        SLOT_FREED.notify_all();
    }

    pub(super) fn current() -> Option<Self> {
        STOP.try_with(Self::clone).ok()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Slots {
    running_count: usize,
    waiting_count: usize,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { running_count: 0, waiting_count: 0 });
static SLOT_FREED: Condvar = Condvar::new();

/// Permission to run a check. Its drop lets the next check run.
struct Slot;

impl Slot {
    /// Waits for a free slot. Fails if `max_waiting` checks wait already, or if `stop` ends the
    /// wait.
    fn acquire(max_waiting: usize, stop: Option<&CheckStop>) -> Result<Self, &'static str> {
        let is_stopped = || stop.is_some_and(CheckStop::is_stopped);
        let mut slots = lock_slots();
        if slots.waiting_count >= max_waiting {
            return Err("too many checks are running: try again later");
        }
        slots.waiting_count += 1;
        while slots.running_count >= MAX_RUNNING_CHECKS && !is_stopped() {
            slots = SLOT_FREED.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
        slots.waiting_count -= 1;
        if is_stopped() {
            // Notifies another check, because a notification wakes only one check, and this check
            // does not use the free slot.
            SLOT_FREED.notify_one();
            return Err(STOPPED_MESSAGE);
        }
        slots.running_count += 1;
        Ok(Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock_slots().running_count -= 1;
        SLOT_FREED.notify_one();
    }
}

fn lock_slots() -> MutexGuard<'static, Slots> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) fn is_check_running() -> bool {
    lock_slots().running_count > 0
}

/// Runs a job on a separate thread. On a multi-threaded runtime, other tasks continue meanwhile.
///
/// # Errors
///
/// If `max_waiting` jobs wait already, if `stop` ends the wait, or if no thread can be started.
pub(super) fn run_on_own_thread<T: Send>(
    max_waiting: usize,
    stop: Option<&CheckStop>,
    job: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let run = || {
        let _slot = Slot::acquire(max_waiting, stop).map_err(io::Error::other)?;
        thread::scope(|scope| {
            let thread =
                thread::Builder::new().name("schema check".to_owned()).stack_size(STACK_BYTES);
            let ended = thread.spawn_scoped(scope, job)?.join();
            Ok(ended.unwrap_or_else(|reason| std::panic::resume_unwind(reason)))
        })
    };
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if matches!(flavor, Ok(RuntimeFlavor::MultiThread)) {
        tokio::task::block_in_place(run)
    } else {
        run()
    }
}
