//! A process between the engine and a command, which ends all that the command has started.
//!
//! A process group does not hold what leaves it (`setsid`), and a signal to a parent's children
//! tells no grandchildren. The warden adopts what loses its parent (Linux), and when the command
//! is over, or has been told to stop and does not, or the engine is gone, kills what is left. The
//! engine's signals reach the command themselves: it is in the warden's process group.

use std::{
    fs::{self, File},
    io,
    process::{Child, Command, ExitCode},
    sync::{
        Arc,
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
    unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, getpgrp, getpid, getppid},
};

use super::{Order, kernel};

/// How long a command may take to end once told to: less than the engine waits for the warden.
const GRACE: Duration = Duration::from_secs(2);
/// What tells the warden to kill the command at once, and then what that has started. Only the
/// warden is sent it.
pub(crate) const NOW: Signal = Signal::SIGHUP;
/// How often the warden looks whether the engine is there.
const LOOK: Duration = Duration::from_millis(100);
/// How often what is left is killed, each time with what its children have become, before it is
/// given up: what forks faster than that is beyond this.
const ROUNDS: u32 = 100;
/// How long that may take, where there are very many processes: the engine waits for it.
const SWEEP: Duration = Duration::from_secs(2);
/// How long the killed may take to die.
const ROUND: Duration = Duration::from_millis(5);

/// Runs a command to its end, and ends as it does.
pub(super) fn watch(command: &mut Command, order: &Order) -> io::Result<ExitCode> {
    let caller = order.caller;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    adopt()?;
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
    let status = bury(pid_of(child.id()));
    over.store(true, Ordering::SeqCst);
    sweep();
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

/// What tells a command to stop. The warden hears it and lives on.
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
fn sweep() {
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
        for child in children() {
            let _ = kill(child, Signal::SIGKILL);
        }
        thread::sleep(ROUND);
    }
}

/// Returns the warden's children; none where there is no `/proc`.
fn children() -> Vec<Pid> {
    let own = getpid().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.filter(|id: &i32| parent_of(*id).is_some_and(|it| it == own)).map(Pid::from_raw).collect()
}

fn parent_of(id: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it is in brackets and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1).map(str::to_owned)
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
