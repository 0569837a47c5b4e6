//! A process between the engine and a command, which ends all that the command has started.
//!
//! A process group does not hold what leaves it (`setsid`), and a signal to a parent's children
//! tells no grandchildren. The warden adopts what loses its parent (Linux), and when the command
//! is over, or has been told to stop and does not, or the engine is gone, kills what is left. The
//! engine's signals reach the command themselves: it is in the warden's process group.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::AsFd as _,
    process::{Child, Command, ExitCode},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal, kill, killpg, raise},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, getpgrp, getppid},
};

use super::{
    Order, kernel,
    process_limit::{self, ProcessLimit},
};

/// Time limit for a command's end. Shorter than the engine's wait for the reaper.
const GRACE: Duration = Duration::from_secs(2);
/// What tells the warden to kill the command at once, and then what that has started. Only the
/// warden is sent it.
pub(super) const NOW: Signal = Signal::SIGHUP;
/// How often the warden looks whether the engine is there, and whether the command has become too
/// many.
const LOOK: Duration = Duration::from_millis(100);
/// Such a part of the time counting may take.
const REST: u32 = 20;
/// How often what is left is killed, each time with what its children have become, before it is
/// given up: what forks faster than that is beyond this where not all can be killed at once.
const ROUNDS: u32 = 100;
/// Time limit for the kill rounds. The engine waits for them.
const SWEEP: Duration = Duration::from_secs(2);
/// Time limit for the death of killed processes.
const ROUND: Duration = Duration::from_millis(5);

/// Runs a command to its end, and ends as it does.
pub(super) fn watch(command: &mut Command, order: &Order) -> io::Result<ExitCode> {
    let caller = order.caller;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    adopt()?;
    let is_apart = order.confinement.is_some() && is_apart(caller);
    let bound = order.confinement.as_ref().map(|it| Bound::new(it.processes, is_apart));
    let bound = bound.transpose()?;
    let child = if order.confinement.is_some() { spawn_apart(command) } else { command.spawn() }?;
    // Not before: the command would inherit it, and could not be told to stop.
    stop_signals().thread_block()?;
    now_signal().thread_block()?;
    // The command's own streams must end when it closes them.
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    let over = Arc::new(AtomicBool::new(false));
    guard(&child, caller, &over)?;
    let said = bound.map(|it| it.hold(&child, &over)).transpose()?;
    let status = bury(pid_of(child.id()));
    over.store(true, Ordering::SeqCst);
    sweep(is_apart);
    if let Some(said) = said {
        // Why it ended is told first, where it was ended for that.
        drop(said.lock().unwrap_or_else(PoisonError::into_inner));
    }
    if !is_there(caller) {
        // Where nothing is adopted, what is left is in the group.
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    Ok(status.map_or(ExitCode::FAILURE, end_as))
}

/// Starts the command where it cannot signal the warden, which would end what ends it. A thread is
/// confined for itself, so it takes one of its own.
fn spawn_apart(command: &mut Command) -> io::Result<Child> {
    let spawn = || {
        kernel::keep_apart()?;
        command.spawn()
    };
    let spawned = thread::scope(|it| it.spawn(spawn).join());
    spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it broke off")))
}

/// The signals that stop a command. The reaper handles them and lives on.
fn stop_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM].into_iter().collect()
}

fn now_signal() -> SigSet {
    [NOW].into_iter().collect()
}

#[cfg(target_os = "linux")]
fn adopt() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
fn adopt() -> io::Result<()> {
    Ok(())
}

/// Kills the command when it was told to stop and does not, and when the engine is gone.
fn guard(child: &Child, caller: u32, over: &Arc<AtomicBool>) -> io::Result<()> {
    let kill_unless = |over: Arc<AtomicBool>, child: Pid| {
        move || {
            if !over.load(Ordering::SeqCst) {
                let _ = kill(child, Signal::SIGKILL);
            }
        }
    };
    let end = kill_unless(Arc::clone(over), pid_of(child.id()));
    thread::Builder::new().spawn(move || {
        if stop_signals().wait().is_ok() {
            thread::sleep(GRACE);
            end();
        }
    })?;
    let end = kill_unless(Arc::clone(over), pid_of(child.id()));
    thread::Builder::new().spawn(move || {
        if now_signal().wait().is_ok() {
            end();
        }
    })?;
    let end = kill_unless(Arc::clone(over), pid_of(child.id()));
    thread::Builder::new().spawn(move || {
        while is_there(caller) {
            thread::sleep(LOOK);
        }
        end();
    })?;
    Ok(())
}

/// Sees to it that a command does not become too many.
struct Bound {
    limit: ProcessLimit,
    is_apart: bool,
    /// The standard error of the command.
    stderr: File,
}

impl Bound {
    fn new(most: u64, is_apart: bool) -> io::Result<Self> {
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        Ok(Self { limit: ProcessLimit::new(most), is_apart, stderr: stderr.into() })
    }

    /// Ends the command when it has become too many, and says so. What is returned is locked
    /// meanwhile.
    fn hold(mut self, child: &Child, over: &Arc<AtomicBool>) -> io::Result<Arc<Mutex<()>>> {
        let (child, over) = (pid_of(child.id()), Arc::clone(over));
        let saying = Arc::new(Mutex::new(()));
        let said = Arc::clone(&saying);
        thread::Builder::new().spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let begun = Instant::now();
                if self.is_over() {
                    let _held = saying.lock().unwrap_or_else(PoisonError::into_inner);
                    return self.end(child, &over);
                }
                let rest = Instant::now() + begun.elapsed() * REST;
                loop {
                    thread::sleep(LOOK);
                    let is_urgent = over.load(Ordering::SeqCst) || self.limit.has_come();
                    if is_urgent || Instant::now() > rest {
                        break;
                    }
                }
            }
        })?;
        Ok(said)
    }

    /// Where very many have come, the command stands still while it is counted: it would be faster.
    fn is_over(&mut self) -> bool {
        if !self.limit.has_come() {
            return self.limit.is_over();
        }
        signal_all(self.is_apart, Signal::SIGSTOP);
        let is_over = self.limit.is_over_for_certain();
        if !is_over {
            signal_all(self.is_apart, Signal::SIGCONT);
        }
        is_over
    }

    fn end(mut self, child: Pid, over: &AtomicBool) {
        if over.load(Ordering::SeqCst) {
            return;
        }
        signal_all(self.is_apart, Signal::SIGKILL);
        let _ = kill(child, Signal::SIGKILL);
        // Nobody reads it where nobody listens.
        let _ = writeln!(
            self.stderr,
            "the command had more than {} processes and threads, and all of them were ended: \
             `processes` of its confinement says how many there may be",
            self.limit.most()
        );
    }
}

/// Returns whether this process can signal nobody but what it has started: the kernel says that it
/// can hold it to that, and the engine, which is the same user's, is out of reach.
fn is_apart(caller: u32) -> bool {
    kernel::support().signals && kill(pid_of(caller), None) == Err(Errno::EPERM)
}

/// Signals all that this process may signal, in one step that nothing can fork away from. Where that
/// would be others, too, nothing is done.
fn signal_all(is_apart: bool, signal: Signal) {
    if is_apart {
        let _ = kill(Pid::from_raw(-1), signal);
    }
}

fn is_there(caller: u32) -> bool {
    getppid() == pid_of(caller)
}

fn pid_of(id: u32) -> Pid {
    // A process has a positive number that fits; no other is ever signalled.
    Pid::from_raw(i32::try_from(id).unwrap_or(i32::MAX))
}

/// Buries what dies until it is the command.
fn bury(command: Pid) -> Option<WaitStatus> {
    loop {
        match waitpid(None, None) {
            Ok(status) if status.pid() == Some(command) => return Some(status),
            Ok(_) | Err(Errno::EINTR) => (),
            Err(_) => return None,
        }
    }
}

/// Kills what is left of the command's family, as far as it is the warden's.
fn sweep(is_apart: bool) {
    let until = Instant::now() + SWEEP;
    for _ in 0..ROUNDS {
        if Instant::now() > until {
            return;
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) | Err(Errno::EINTR) => (),
                Err(_) => return,
            }
        }
        signal_all(is_apart, Signal::SIGKILL);
        for child in process_limit::children() {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
        thread::sleep(ROUND);
    }
}

/// Ends as the command did: with its status, or by its signal.
fn end_as(status: WaitStatus) -> ExitCode {
    match status {
        WaitStatus::Exited(_, code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        WaitStatus::Signaled(_, signal, _) => {
            let _ = SigSet::from(signal).thread_unblock();
            // Some have a handler that only takes itself away the first time.
            for _ in 0..2 {
                let _ = raise(signal);
            }
            ExitCode::from(128_u8.wrapping_add(u8::try_from(signal as i32).unwrap_or(0)))
        }
        _ => ExitCode::FAILURE,
    }
}
