//! `process_kill`: ends processes. By default it ends only processes that Faber started.

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

use super::{
    System, ToolContext, list::unavailable_error, processes::ProcessSnapshot, run_blocking,
};

pub(super) const DESCRIPTION: &str = "Kill a process by PID or name. Only processes that \
    `bash_background` started, unless the configuration allows others.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessKill {
    /// Process ID (number) or process name.
    pid_or_name: String,
    /// Use SIGKILL instead of SIGTERM (force kill).
    #[serde(default)]
    force: bool,
}

pub(super) async fn kill_processes(
    system: Arc<System>,
    args: ProcessKill,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let signal = if args.force { Signal::SIGKILL } else { Signal::SIGTERM };
    run_blocking(move || {
        let wanted = args.pid_or_name.trim();
        match wanted.parse::<i64>() {
            Ok(id @ ..=1) => Err(refused_error(&format!("process {id} belongs to the system"))),
            Ok(id) => kill_one(&system, id, signal),
            Err(_) => kill_named(&system, wanted, signal),
        }
    })
    .await
}

fn kill_one(system: &System, id: i64, signal: Signal) -> Result<String, ToolError> {
    let processes = ProcessSnapshot::take_snapshot(system, false).ok_or_else(unavailable_error)?;
    let all = processes.user_processes();
    let process =
        all.iter().find(|process| i64::from(process.pid().as_u32()) == id && is_alive(process));
    let Some(process) = process else { return kill_remaining(&processes, id, signal) };
    if let Some(reason) = find_objection(system, &processes, process) {
        return Err(refused_error(&reason));
    }
    send_signal(&processes, process, signal)
}

fn kill_remaining(
    processes: &ProcessSnapshot,
    id: i64,
    signal: Signal,
) -> Result<String, ToolError> {
    let left = processes.remaining_processes(id);
    let is_allowed = |process: &&&Process| !processes.is_ancestor(process);
    let sent: Vec<_> = left
        .iter()
        .filter(is_allowed)
        .filter_map(|process| send_signal(processes, process, signal).ok())
        .collect();
    if sent.is_empty() {
        return Err(ToolError::failed(format!("Process not found: {id}")));
    }
    Ok(sent.join("\n"))
}

fn kill_named(system: &System, name: &str, signal: Signal) -> Result<String, ToolError> {
    let processes = ProcessSnapshot::take_snapshot(system, false).ok_or_else(unavailable_error)?;
    let all = processes.user_processes();
    let found: Vec<_> =
        all.into_iter().filter(|process| is_alive(process) && has_name(process, name)).collect();
    if name.is_empty() || found.is_empty() {
        return Err(ToolError::failed(format!("No processes found matching: {name}")));
    }
    let is_allowed = |process: &&&Process| find_objection(system, &processes, process).is_none();
    let sent: Vec<_> = found
        .iter()
        .filter(is_allowed)
        .filter_map(|process| send_signal(&processes, process, signal).ok())
        .collect();
    if sent.is_empty() {
        let reasons =
            found.iter().filter_map(|process| find_objection(system, &processes, process));
        return Err(refused_error(&reasons.take(3).collect::<Vec<_>>().join("; ")));
    }
    Ok(sent.join("\n"))
}

/// A zombie does not count as alive, because it no longer shows who started it.
fn is_alive(process: &Process) -> bool {
    !matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead)
}

/// A process has the name of its program or of the script that the program runs.
fn has_name(process: &Process, name: &str) -> bool {
    let program_and_script =
        process.cmd().iter().take(2).filter_map(|word| std::path::Path::new(word).file_name());
    process.name() == name || program_and_script.into_iter().any(|word| word == name)
}

fn find_objection(
    system: &System,
    processes: &ProcessSnapshot,
    process: &Process,
) -> Option<String> {
    let id = process.pid();
    if processes.is_ancestor(process) {
        return Some(format!("process {id} is Faber or one of its parent processes"));
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
fn send_signal(
    processes: &ProcessSnapshot,
    process: &Process,
    signal: Signal,
) -> Result<String, ToolError> {
    let id = process.pid();
    let pid = i32::try_from(id.as_u32()).map(Pid::from_raw).map_err(|_| not_found_error(id))?;
    let sent = if processes.is_group_leader(process) {
        killpg(pid, signal)
    } else {
        signal::kill(pid, signal)
    };
    match sent {
        Ok(()) => Ok(format!("Killed process {id} ({signal})")),
        Err(Errno::ESRCH) => Err(not_found_error(id)),
        Err(Errno::EPERM) => {
            Err(ToolError::failed(format!("Permission denied: Cannot kill process {id}")))
        }
        Err(err) => Err(ToolError::failed(format!("process {id} cannot be signalled: {err}"))),
    }
}

fn not_found_error(id: sysinfo::Pid) -> ToolError {
    ToolError::failed(format!("Process not found: {id}"))
}

fn refused_error(reason: &str) -> ToolError {
    ToolError::failed(format!("Refused: {reason}")).without_retry()
}
