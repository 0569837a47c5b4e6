//! `bash`: runs a command and waits for its end.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use sandbox::{Life, process::Group, refusal};
use schemars::JsonSchema;
use secrets::Redaction;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};

use super::{System, ToolContext, cancelled, not_confined, not_started, printed::Printed};
use crate::whole;

pub(super) const DESCRIPTION: &str = "Execute a shell command with full bash capabilities. \
    It may write below the project root only, and has no network unless that is allowed.";

/// Longest timeout in seconds. Longer commands belong in the background.
const LONGEST: u64 = 600;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bash {
    /// Shell command to execute.
    command: String,
    /// Working directory, below the project root (default: the project root).
    #[serde(default)]
    cwd: Option<String>,
    /// Maximum execution time in seconds (default: 120, max: 600).
    #[serde(default = "usual_timeout", deserialize_with = "whole::number")]
    timeout: u64,
    /// What this command does, for people.
    #[serde(default)]
    description: Option<String>,
}

fn usual_timeout() -> u64 {
    120
}

/// The reason why a command ended.
enum Ended {
    Itself(io::Result<ExitStatus>),
    TimedOut,
    Cancelled,
}

pub(super) async fn bash(
    system: Arc<System>,
    args: Bash,
    cx: ToolContext,
) -> Result<String, ToolError> {
    let most = match args.timeout {
        0 => return Err(invalid("timeout must be at least 1 second")),
        1..=LONGEST => Duration::from_secs(args.timeout),
        _ => return Err(invalid("timeout cannot exceed 600 seconds (10 minutes)")),
    };
    let cwd = system.place.folder(args.cwd.as_deref())?;
    let mut command = system.shell(&args.command, Life::Watched, &cwd)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::spawn(&mut command).map_err(|err| not_started(&err))?;
    tracing::debug!(description = args.description, "a shell command runs");
    let mut printed = Printed::default();
    let ended = tokio::select! {
        status = printed.read(&mut group) => Ended::Itself(status),
        () = tokio::time::sleep(most) => Ended::TimedOut,
        () = cx.cancel.cancelled() => Ended::Cancelled,
    };
    match ended {
        Ended::Itself(status) => answer(status, printed, &system.passed()),
        Ended::TimedOut => {
            group.stop().await;
            let text = printed.text(&system.passed());
            let message = format!("Command timed out after {} seconds\n\n{text}", args.timeout);
            let message = message.trim_end();
            Err(ToolError::new(ErrorCode::TIMEOUT, message).with_unknown_outcome())
        }
        Ended::Cancelled => {
            group.stop().await;
            Err(cancelled("`bash`").with_unknown_outcome())
        }
    }
}

fn invalid(message: &str) -> ToolError {
    ToolError::new(ErrorCode::INVALID_PARAMETERS, message)
}

/// Returns the output of a command. A non-zero status is an error.
fn answer(
    status: io::Result<ExitStatus>,
    printed: Printed,
    seen: &Redaction,
) -> Result<String, ToolError> {
    let status = status.map_err(|err| {
        ToolError::failed(format!("nobody knows how the command ended: {err}"))
            .with_unknown_outcome()
    })?;
    if let Some(why) = refusal(status.code(), &printed.errors()) {
        return Err(not_confined(why));
    }
    let signal = status.signal().map(|it| -it);
    let code = status.code().or(signal).unwrap_or(-1);
    let text = format!("{}\n\nReturn code: {code}", printed.whole(seen));
    match code {
        0 => Ok(text),
        1.. => Err(ToolError::failed(text)),
        // A signal may have interrupted the command anywhere.
        _ => Err(ToolError::failed(text).with_unknown_outcome()),
    }
}
