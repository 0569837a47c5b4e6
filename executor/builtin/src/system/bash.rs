//! `bash`: runs a command and waits until it ends.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use sandbox::{Lifetime, process::ProcessGroup, refusal_reason};
use schemars::JsonSchema;
use secrets::Redaction;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};

use super::{
    System, ToolContext, cancelled_error, captured_output::CapturedOutput, confinement_error,
    start_error,
};
use crate::whole;

pub(super) const DESCRIPTION: &str = "Execute a shell command with full bash capabilities. \
    It may write only below the project root, and has no network unless the configuration \
    allows it.";

/// Longest timeout in seconds. Longer commands belong in the background.
const MAX_TIMEOUT_SECONDS: u64 = 600;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bash {
    /// Shell command to execute.
    command: String,
    /// Working directory, below the project root (default: the project root).
    #[serde(default)]
    cwd: Option<String>,
    /// Maximum execution time in seconds (default: 120, max: 600).
    #[serde(default = "default_timeout", deserialize_with = "whole::read_number")]
    timeout: u64,
    /// Purpose of the command, for people.
    #[serde(default)]
    description: Option<String>,
}

fn default_timeout() -> u64 {
    120
}

enum Completion {
    Exited(io::Result<ExitStatus>),
    TimedOut,
    Cancelled,
}

pub(super) async fn run_bash(
    system: Arc<System>,
    args: Bash,
    cx: ToolContext,
) -> Result<String, ToolError> {
    let time_limit = match args.timeout {
        0 => return Err(invalid_timeout("timeout must be at least 1 second")),
        1..=MAX_TIMEOUT_SECONDS => Duration::from_secs(args.timeout),
        _ => return Err(invalid_timeout("timeout cannot exceed 600 seconds (10 minutes)")),
    };
    let cwd = system.root.command_folder(args.cwd.as_deref())?;
    let mut command = system.shell_command(&args.command, Lifetime::Watched, &cwd)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = ProcessGroup::spawn(&mut command).map_err(|err| start_error(&err))?;
    tracing::debug!(description = args.description, "a shell command runs");
    let mut printed = CapturedOutput::default();
    let ended = tokio::select! {
        status = printed.read(&mut group) => Completion::Exited(status),
        () = tokio::time::sleep(time_limit) => Completion::TimedOut,
        () = cx.cancel.cancelled() => Completion::Cancelled,
    };
    match ended {
        Completion::Exited(status) => format_result(status, printed, &system.passed_secrets()),
        Completion::TimedOut => {
            group.stop().await;
            let text = printed.into_text(&system.passed_secrets());
            let message = format!("Command timed out after {} seconds\n\n{text}", args.timeout);
            let message = message.trim_end();
            Err(ToolError::new(ErrorCode::TIMEOUT, message).with_unknown_outcome())
        }
        Completion::Cancelled => {
            group.stop().await;
            Err(cancelled_error("`bash`").with_unknown_outcome())
        }
    }
}

fn invalid_timeout(message: &str) -> ToolError {
    ToolError::new(ErrorCode::INVALID_PARAMETERS, message)
}

/// Returns the output of a command. A non-zero status is an error.
fn format_result(
    status: io::Result<ExitStatus>,
    printed: CapturedOutput,
    redaction: &Redaction,
) -> Result<String, ToolError> {
    let status = status.map_err(|err| {
        ToolError::failed(format!("it is unknown how the command ended: {err}"))
            .with_unknown_outcome()
    })?;
    if let Some(reason) = refusal_reason(status.code(), &printed.stderr_head()) {
        return Err(confinement_error(reason));
    }
    let signal = status.signal().map(|signal| -signal);
    let code = status.code().or(signal).unwrap_or(-1);
    let text = format!("{}\n\nReturn code: {code}", printed.into_output(redaction));
    match code {
        0 => Ok(text),
        1.. => Err(ToolError::failed(text)),
        // A signal may have interrupted the command anywhere.
        _ => Err(ToolError::failed(text).with_unknown_outcome()),
    }
}
