//! A few threads for checks that take longer than a moment.
//!
//! A check cannot wait, so it would hold up everything else on the thread of an async runtime.
//! These threads have deep stacks, and there are at most [`MOST`] of them at a time.

use std::{
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Checks at the same time: the rest of the machine is for everything else.
const MOST: usize = 2;
/// Checks that may wait for a thread. The memory that they hold is bounded, and so is the wait.
pub(super) const WAITING: usize = 64;
/// Bytes of a thread's stack: it is only used where a value and its schema nest deeply.
const STACK: usize = 64 << 20;
/// Bytes of the stack that a check may use.
pub(super) const USABLE_STACK: usize = STACK - (1 << 20);

/// The checks that are under way.
#[derive(Debug)]
struct Crowd {
    running: usize,
    waiting: usize,
}

static CROWD: Mutex<Crowd> = Mutex::new(Crowd { running: 0, waiting: 0 });
static FREED: Condvar = Condvar::new();

/// A place among the checks that run; dropping it lets the next one run.
struct Place;

impl Place {
    /// Waits for a place; returns none where so many wait already.
    fn take(most_waiting: usize) -> Option<Self> {
        let mut crowd = lock();
        if crowd.waiting >= most_waiting {
            return None;
        }
        crowd.waiting += 1;
        while crowd.running >= MOST {
            crowd = FREED.wait(crowd).unwrap_or_else(PoisonError::into_inner);
        }
        crowd.waiting -= 1;
        crowd.running += 1;
        Some(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock().running -= 1;
        FREED.notify_one();
    }
}

fn lock() -> MutexGuard<'static, Crowd> {
    CROWD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job on a thread of its own. On a thread of an async runtime, other tasks go on meanwhile.
///
/// # Errors
///
/// If `most_waiting` jobs wait already, or no thread can be started.
pub(super) fn run_apart<T: Send>(
    most_waiting: usize,
    job: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let run = || {
        let busy = || io::Error::other("too many checks are under way: try again later");
        let _place = Place::take(most_waiting).ok_or_else(busy)?;
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
