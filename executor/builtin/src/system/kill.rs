//! `process_kill`: ends processes. By default only those that Faber started.

use std::sync::Arc;

use nix::{
    errno::Errno,
    sys::signal::{self, Signal, killpg},
    unistd::Pid,
};
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;
use sysinfo::{Process, ProcessStatus};

use super::{System, ToolContext, blocking, list::unknown, processes::Processes};

pub(super) const DESCRIPTION: &str = "Kill a process by PID or name. Only what bash_background \
    has started, unless more is allowed.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessKill {
    /// Process ID (number) or process name.
    pid_or_name: String,
    /// Use SIGKILL instead of SIGTERM (force kill).
    #[serde(default)]
    force: bool,
}

pub(super) async fn kill(
    system: Arc<System>,
    args: ProcessKill,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let signal = if args.force { Signal::SIGKILL } else { Signal::SIGTERM };
    blocking(move || {
        let wanted = args.pid_or_name.trim();
        match wanted.parse::<i64>() {
            Ok(id @ ..=1) => Err(refused(&format!("process {id} is the system's"))),
            Ok(id) => kill_one(&system, id, signal),
            Err(_) => kill_named(&system, wanted, signal),
        }
    })
    .await
}

fn kill_one(system: &System, id: i64, signal: Signal) -> Result<String, ToolError> {
    let processes = Processes::look(system, false).ok_or_else(unknown)?;
    let all = processes.all();
    let process = all.iter().find(|it| i64::from(it.pid().as_u32()) == id && is_there(it));
    let Some(process) = process else { return kill_left(&processes, id, signal) };
    if let Some(reason) = objection(system, &processes, process) {
        return Err(refused(&reason));
    }
    send(&processes, process, signal)
}

/// Signals the remaining processes of a background command that has ended.
fn kill_left(processes: &Processes, id: i64, signal: Signal) -> Result<String, ToolError> {
    let left = processes.left_by(id);
    let may = |it: &&&Process| !processes.is_above(it);
    let sent: Vec<_> =
        left.iter().filter(may).filter_map(|it| send(processes, it, signal).ok()).collect();
    if sent.is_empty() {
        return Err(ToolError::failed(format!("Process not found: {id}")));
    }
    Ok(sent.join("\n"))
}

fn kill_named(system: &System, name: &str, signal: Signal) -> Result<String, ToolError> {
    let processes = Processes::look(system, false).ok_or_else(unknown)?;
    let all = processes.all();
    let found: Vec<_> = all.into_iter().filter(|it| is_there(it) && is_called(it, name)).collect();
    if name.is_empty() || found.is_empty() {
        return Err(ToolError::failed(format!("No processes found matching: {name}")));
    }
    let may = |it: &&&Process| objection(system, &processes, it).is_none();
    let sent: Vec<_> =
        found.iter().filter(may).filter_map(|it| send(&processes, it, signal).ok()).collect();
    if sent.is_empty() {
        let reasons = found.iter().filter_map(|it| objection(system, &processes, it));
        return Err(refused(&reasons.take(3).collect::<Vec<_>>().join("; ")));
    }
    Ok(sent.join("\n"))
}

/// A zombie process no longer shows who started it.
fn is_there(process: &Process) -> bool {
    !matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead)
}

/// A process has the name of its program or of the script that the program runs.
fn is_called(process: &Process, name: &str) -> bool {
    let words = process.cmd().iter().take(2).filter_map(|it| std::path::Path::new(it).file_name());
    process.name() == name || words.into_iter().any(|it| it == name)
}

/// Returns the reason why a process must not be killed, if any.
fn objection(system: &System, processes: &Processes, process: &Process) -> Option<String> {
    let id = process.pid();
    if processes.is_above(process) {
        return Some(format!("process {id} is Faber, or what Faber runs in"));
    }
    if !system.kill_any && !processes.is_started(process) {
        return Some(format!(
            "process {id} was not started by `bash_background`: allow it with `kill_any: true` in \
             the configuration of `{}`",
            super::SET
        ));
    }
    None
}

/// Signals a process. A background command is signalled with its process group.
fn send(processes: &Processes, process: &Process, signal: Signal) -> Result<String, ToolError> {
    let id = process.pid();
    let pid = i32::try_from(id.as_u32()).map(Pid::from_raw).map_err(|_| not_found(id))?;
    let sent =
        if processes.leads(process) { killpg(pid, signal) } else { signal::kill(pid, signal) };
    match sent {
        Ok(()) => Ok(format!("Killed process {id} ({signal})")),
        Err(Errno::ESRCH) => Err(not_found(id)),
        Err(Errno::EPERM) => {
            Err(ToolError::failed(format!("Permission denied: Cannot kill process {id}")))
        }
        Err(err) => Err(ToolError::failed(format!("process {id} cannot be signalled: {err}"))),
    }
}

fn not_found(id: sysinfo::Pid) -> ToolError {
    ToolError::failed(format!("Process not found: {id}"))
}

fn refused(reason: &str) -> ToolError {
    ToolError::failed(format!("Refused: {reason}")).without_retry()
}
