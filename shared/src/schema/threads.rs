//! Threads for checks that take longer than a moment.
//!
//! A check cannot wait, so it would block the other tasks on the thread of an async runtime. These
//! threads have deep stacks, and at most [`MAX_RUNNING`] of them run at a time.

use std::{
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Checks that run at the same time. The rest of the machine stays free for other work.
const MAX_RUNNING: usize = 2;
/// Checks that may wait for a slot. Limits their memory and their waiting time.
pub(super) const MAX_WAITING: usize = 64;
/// Stack size of a thread. It is only used if a value and its schema nest deeply.
const STACK: usize = 64 << 20;
/// Bytes of the stack that a check may use.
pub(super) const USABLE_STACK: usize = STACK - (1 << 20);

/// The numbers of running and waiting checks.
#[derive(Debug)]
struct Slots {
    running: usize,
    waiting: usize,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots { running: 0, waiting: 0 });
static FREED: Condvar = Condvar::new();

/// The right to run a check. Dropping it frees the slot for the next check.
struct Slot;

impl Slot {
    /// Waits for a free slot. Returns `None` if `most_waiting` checks wait already.
    fn acquire(most_waiting: usize) -> Option<Self> {
        let mut slots = lock_slots();
        if slots.waiting >= most_waiting {
            return None;
        }
        slots.waiting += 1;
        while slots.running >= MAX_RUNNING {
            slots = FREED.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
        slots.waiting -= 1;
        slots.running += 1;
        Some(Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock_slots().running -= 1;
        FREED.notify_one();
    }
}

fn lock_slots() -> MutexGuard<'static, Slots> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job on its own thread. On a multi-threaded runtime, other tasks continue meanwhile.
///
/// # Errors
///
/// If `most_waiting` jobs wait already, or if no thread can be started.
pub(super) fn run_apart<T: Send>(
    most_waiting: usize,
    job: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let run = || {
        let busy = || io::Error::other("too many checks are under way: try again later");
        let _slot = Slot::acquire(most_waiting).ok_or_else(busy)?;
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("schema check".to_owned()).stack_size(STACK);
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
