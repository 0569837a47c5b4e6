//! `process_list`: shows running processes.

use std::{fmt::Write as _, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};

use super::{
    System, ToolContext, blocking, clipped,
    processes::{Processes, called},
};

pub(super) const DESCRIPTION: &str = "List running processes, optionally filtered by name.";

const MOST: usize = 200;
const LINE: usize = 160;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessList {
    /// Only processes whose command line contains this, whatever the case.
    #[serde(default)]
    filter_pattern: Option<String>,
}

pub(super) async fn list(
    system: Arc<System>,
    args: ProcessList,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    blocking(move || {
        let processes = Processes::look(&system, true).ok_or_else(unknown)?;
        Ok(shown(&processes, args.filter_pattern.as_deref()))
    })
    .await
}

/// The error for machines that cannot list processes.
pub(super) fn unknown() -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, "this machine does not tell what runs on it")
}

fn shown(processes: &Processes, filter: Option<&str>) -> String {
    let wanted = filter.unwrap_or_default().to_lowercase();
    let all = processes.all();
    let found: Vec<_> =
        all.into_iter().filter(|it| called(it).to_lowercase().contains(&wanted)).collect();
    if found.is_empty() {
        return format!("No processes found matching: {}", filter.unwrap_or_default());
    }
    let mut text = format!("{:>8}  {:>6}  {:>9}  COMMAND", "PID", "CPU %", "MEMORY MB");
    for process in found.iter().take(MOST) {
        let mark = if processes.is_started(process) { "*" } else { " " };
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "\n{mark}{:>7}  {:>6.1}  {:>9}  {}",
            process.pid().as_u32(),
            process.cpu_usage(),
            process.memory() >> 20,
            clipped(&called(process), LINE)
        );
    }
    if found.len() > MOST {
        let _ = write!(text, "\n… and {} more: say `filter_pattern`", found.len() - MOST);
    }
    if found.iter().any(|it| processes.is_started(it)) {
        text.push_str("\n(* started by bash_background)");
    }
    text
}
