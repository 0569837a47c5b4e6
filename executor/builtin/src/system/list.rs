use std::{fmt::Write as _, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};

use super::{
    System, ToolContext, clip_text,
    processes::{ProcessSnapshot, command_line},
    run_blocking,
};

pub(super) const DESCRIPTION: &str = "List running processes, optionally filtered by name.";

const MAX_SHOWN_PROCESSES: usize = 200;
const MAX_LINE_BYTES: usize = 160;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessList {
    /// Only processes whose command line contains this text, ignoring case.
    #[serde(default)]
    filter_pattern: Option<String>,
}

pub(super) async fn list_processes(
    system: Arc<System>,
    args: ProcessList,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    run_blocking(move || {
        let processes =
            ProcessSnapshot::take_snapshot(&system, true).ok_or_else(unavailable_error)?;
        Ok(format_processes(&processes, args.filter_pattern.as_deref()))
    })
    .await
}

pub(super) fn unavailable_error() -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, "the processes of this machine cannot be listed")
}

fn format_processes(processes: &ProcessSnapshot, filter: Option<&str>) -> String {
    let wanted = filter.unwrap_or_default().to_lowercase();
    let all = processes.user_processes();
    let found: Vec<_> = all
        .into_iter()
        .filter(|process| command_line(process).to_lowercase().contains(&wanted))
        .collect();
    if found.is_empty() {
        return format!("No processes found matching: {}", filter.unwrap_or_default());
    }
    let mut text = format!("{:>8}  {:>6}  {:>9}  COMMAND", "PID", "CPU %", "MEMORY MB");
    for process in found.iter().take(MAX_SHOWN_PROCESSES) {
        let mark = if processes.is_started(process) { "*" } else { " " };
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "\n{mark}{:>7}  {:>6.1}  {:>9}  {}",
            process.pid().as_u32(),
            process.cpu_usage(),
            process.memory() >> 20,
            clip_text(&command_line(process), MAX_LINE_BYTES)
        );
    }
    if found.len() > MAX_SHOWN_PROCESSES {
        let _ = write!(
            text,
            "\n… and {} more: use `filter_pattern`",
            found.len() - MAX_SHOWN_PROCESSES
        );
    }
    if found.iter().any(|process| processes.is_started(process)) {
        text.push_str("\n(* started by bash_background)");
    }
    text
}
