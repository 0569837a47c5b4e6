//! A process between the engine and a command. It ends everything that the command started,
//! including processes that leave their process group with `setsid`.

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
    LaunchOrder, kernel,
    process_limit::{self, ProcessLimit},
};

const STOP_GRACE: Duration = Duration::from_secs(2);
/// The signal that makes the reaper kill the command and its descendants immediately. Only the
/// reaper gets this signal.
pub(super) const KILL_NOW: Signal = Signal::SIGHUP;
/// Interval of the checks for the engine and for the number of processes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The pause after a count, as a multiple of the count's duration, so that counting takes less than
/// a twentieth of the time, unless the number of processes grows fast.
const PAUSE_FACTOR: u32 = 20;
/// Maximum number of kill rounds. In each round, children of killed processes become children of
/// the reaper.
const MAX_KILL_ROUNDS: u32 = 100;
/// Time limit for the kill rounds. The engine waits for them.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after each round, in which killed processes can end.
const ROUND_PAUSE: Duration = Duration::from_millis(5);

pub(super) fn run_command(command: &mut Command, order: &LaunchOrder) -> io::Result<ExitCode> {
    let caller = order.caller;
    let null_device = File::options().read(true).write(true).open("/dev/null")?;
    adopt_orphans()?;
    let is_isolated = order.confinement.is_some() && is_isolated(caller);
    let process_guard = order
        .confinement
        .as_ref()
        .map(|confinement| ProcessGuard::new(confinement.processes, is_isolated));
    let process_guard = process_guard.transpose()?;
    let child =
        if order.confinement.is_some() { spawn_isolated(command) } else { command.spawn() }?;
    // Blocks the signals only after the start, because the command would inherit the blocked
    // signals.
    stop_signals().thread_block()?;
    kill_now_signal().thread_block()?;
    // Closes the reaper's own copies, because the streams must end when the command closes them.
    dup2_stdin(&null_device)?;
    dup2_stdout(&null_device)?;
    dup2_stderr(&null_device)?;
    let has_ended = Arc::new(AtomicBool::new(false));
    spawn_guards(&child, caller, &has_ended)?;
    let message_lock = process_guard
        .map(|process_guard| process_guard.spawn_enforcer(&child, &has_ended))
        .transpose()?;
    let status = reap_until_command(as_pid(child.id()));
    has_ended.store(true, Ordering::SeqCst);
    kill_remaining(is_isolated);
    if let Some(message_lock) = message_lock {
        // Waits until the message about the limit of processes is written.
        drop(message_lock.lock().unwrap_or_else(PoisonError::into_inner));
    }
    if !is_caller_alive(caller) {
        // Kills the group, because without adoption the remaining processes are in it.
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    Ok(status.map_or(ExitCode::FAILURE, exit_with_status))
}

/// Starts the command in a thread that is restricted so that the command cannot signal the reaper.
fn spawn_isolated(command: &mut Command) -> io::Result<Child> {
    let spawn = || {
        kernel::block_outside_signals()?;
        command.spawn()
    };
    let spawned = thread::scope(|scope| scope.spawn(spawn).join());
    spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it ended early")))
}

/// The signals that stop a command. The reaper handles them and continues to run.
fn stop_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM].into_iter().collect()
}

fn kill_now_signal() -> SigSet {
    [KILL_NOW].into_iter().collect()
}

#[cfg(target_os = "linux")]
fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Kills the command if it ignores a request to stop, at [`KILL_NOW`], and if the engine ends.
fn spawn_guards(child: &Child, caller: u32, has_ended: &Arc<AtomicBool>) -> io::Result<()> {
    let kill_after = |should_kill: fn(u32) -> bool| {
        let (has_ended, child) = (Arc::clone(has_ended), as_pid(child.id()));
        let spawned = thread::Builder::new().spawn(move || {
            if should_kill(caller) && !has_ended.load(Ordering::SeqCst) {
                let _ = kill(child, Signal::SIGKILL);
            }
        });
        spawned.map(drop)
    };
    kill_after(|_| {
        let is_requested = stop_signals().wait().is_ok();
        thread::sleep(STOP_GRACE);
        is_requested
    })?;
    kill_after(|_| kill_now_signal().wait().is_ok())?;
    kill_after(|caller| {
        while is_caller_alive(caller) {
            thread::sleep(POLL_INTERVAL);
        }
        true
    })
}

struct ProcessGuard {
    limit: ProcessLimit,
    is_isolated: bool,
    stderr: File,
}

impl ProcessGuard {
    fn new(max_processes: u64, is_isolated: bool) -> io::Result<Self> {
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        Ok(Self { limit: ProcessLimit::new(max_processes), is_isolated, stderr: stderr.into() })
    }

    /// Ends the command when it exceeds the limit, and writes a message. The returned mutex is
    /// locked while the command is killed and the message is written.
    fn spawn_enforcer(
        mut self,
        child: &Child,
        has_ended: &Arc<AtomicBool>,
    ) -> io::Result<Arc<Mutex<()>>> {
        let (child, has_ended) = (as_pid(child.id()), Arc::clone(has_ended));
        let lock = Arc::new(Mutex::new(()));
        let message_lock = Arc::clone(&lock);
        thread::Builder::new().spawn(move || {
            while !has_ended.load(Ordering::SeqCst) {
                let started_at = Instant::now();
                if self.is_exceeded() {
                    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
                    return self.kill_command(child, &has_ended);
                }
                let pause_end = Instant::now() + started_at.elapsed() * PAUSE_FACTOR;
                loop {
                    thread::sleep(POLL_INTERVAL);
                    let is_urgent =
                        has_ended.load(Ordering::SeqCst) || self.limit.may_be_exceeded();
                    if is_urgent || Instant::now() > pause_end {
                        break;
                    }
                }
            }
        })?;
        Ok(message_lock)
    }

    fn is_exceeded(&mut self) -> bool {
        if !self.limit.may_be_exceeded() {
            return self.limit.is_exceeded();
        }
        signal_all(self.is_isolated, Signal::SIGSTOP);
        let is_over = self.limit.is_certainly_exceeded();
        if !is_over {
            signal_all(self.is_isolated, Signal::SIGCONT);
        }
        is_over
    }

    fn kill_command(mut self, child: Pid, has_ended: &AtomicBool) {
        if has_ended.load(Ordering::SeqCst) {
            return;
        }
        signal_all(self.is_isolated, Signal::SIGKILL);
        let _ = kill(child, Signal::SIGKILL);
        // Ignores the error, because standard error may be closed.
        let _ = writeln!(
            self.stderr,
            "the command had more than {} processes and threads, so all of them were ended: raise \
             `processes` of its confinement to allow more",
            self.limit.max_processes
        );
    }
}

/// Returns whether this process can signal only its descendants. The kernel must support this
/// restriction, and the engine, which has the same user, must be out of reach.
fn is_isolated(caller: u32) -> bool {
    kernel::kernel_support().signals && kill(as_pid(caller), None) == Err(Errno::EPERM)
}

/// Signals all descendants in one step, so no fork escapes. Does nothing if the signal could reach
/// other processes.
fn signal_all(is_isolated: bool, signal: Signal) {
    if is_isolated {
        let _ = kill(Pid::from_raw(-1), signal);
    }
}

fn is_caller_alive(caller: u32) -> bool {
    getppid() == as_pid(caller)
}

fn as_pid(id: u32) -> Pid {
    // Every process id fits into an `i32`. The fallback `i32::MAX` matches no process.
    Pid::from_raw(i32::try_from(id).unwrap_or(i32::MAX))
}

fn reap_until_command(command: Pid) -> Option<WaitStatus> {
    loop {
        match waitpid(None, None) {
            Ok(status) if status.pid() == Some(command) => return Some(status),
            Ok(_) | Err(Errno::EINTR) => (),
            Err(_) => return None,
        }
    }
}

fn kill_remaining(is_isolated: bool) {
    let until = Instant::now() + KILL_TIMEOUT;
    for _ in 0..MAX_KILL_ROUNDS {
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
        signal_all(is_isolated, Signal::SIGKILL);
        for child in process_limit::list_children() {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
        thread::sleep(ROUND_PAUSE);
    }
}

/// Exits with the status of the command. If a signal ended the command, this process ends by the
/// same signal.
fn exit_with_status(status: WaitStatus) -> ExitCode {
    match status {
        WaitStatus::Exited(_, code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        WaitStatus::Signaled(_, signal, _) => {
            let _ = SigSet::from(signal).thread_unblock();
            // Sends the signal again, because some handlers only remove themselves at the first
            // signal.
            for _ in 0..2 {
                let _ = raise(signal);
            }
            ExitCode::from(128_u8.wrapping_add(u8::try_from(signal as i32).unwrap_or(0)))
        }
        _ => ExitCode::FAILURE,
    }
}
