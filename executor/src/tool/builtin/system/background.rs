//! `bash_background`: a command line that goes on.

use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};
use tokio::{process::Child, time::timeout};

use super::{System, ToolContext, logs, not_started};
use crate::{confine::Life, tool::process::describe};

pub(super) const DESCRIPTION: &str = "Execute a command in the background (non-blocking). \
    What it prints goes to a log file that `read_logs` reads.";

/// Background commands that may run at once: each is a family of processes.
const MOST: usize = 64;
/// How long a command that cannot even start takes to say so.
const BEGINNING: Duration = Duration::from_millis(200);
/// The folder of the logs.
const FOLDER: &str = "background";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BashBackground {
    /// Shell command to execute.
    command: String,
    /// Working directory, below the project root (default: the project root).
    #[serde(default)]
    cwd: Option<String>,
    /// What this command does, for people.
    #[serde(default)]
    description: Option<String>,
}

/// What this process has started in the background. Only here, not in a file: a command could
/// write any number into a file, and have it killed.
#[derive(Debug, Default)]
pub(super) struct Background(Mutex<Vec<Child>>);

impl Background {
    /// Returns the numbers of those that are there. The number of one that has ended is not free
    /// before it is forgotten here.
    pub(super) fn ids(&self) -> Vec<u32> {
        let mut children = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|it| matches!(it.try_wait(), Ok(None)));
        children.iter().filter_map(Child::id).collect()
    }

    fn keep(&self, child: Child) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }
}

pub(super) async fn start(
    system: Arc<System>,
    args: BashBackground,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let running = system.background.ids().len();
    if running >= MOST {
        let message = format!(
            "{running} background commands are running already: end some with `process_kill`"
        );
        return Err(ToolError::new(ErrorCode::UNAVAILABLE, message));
    }
    let cwd = system.place.folder(args.cwd.as_deref())?;
    let mut command = system.shell(&args.command, Life::Background, &cwd)?;
    let no_log = |err: io::Error| ToolError::failed(format!("no log file can be made: {err}"));
    let (log, path) = system.place.own_file(FOLDER, running + 1).map_err(no_log)?;
    let errors = log.try_clone().map_err(no_log)?;
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let mut child = command.spawn().map_err(|err| not_started(&err))?;
    let id = child.id().unwrap_or_default();
    tracing::info!(id, description = args.description, "a background command has started");
    let ended = timeout(BEGINNING, child.wait()).await;
    if let Ok(status) = ended {
        return over_already(&system, id, status, &path.display().to_string());
    }
    system.background.keep(child);
    Ok(format!("Started background process (PID: {id})\nLog file: {}", path.display()))
}

fn over_already(
    system: &System,
    id: u32,
    status: io::Result<ExitStatus>,
    log: &str,
) -> Result<String, ToolError> {
    let status = status.map_err(|err| {
        ToolError::failed(format!("nobody knows how process {id} ended: {err}")).indefinite()
    })?;
    let text = format!(
        "Started background process (PID: {id}), which has ended: it {}\nLog file: {log}",
        describe(status)
    );
    if status.success() {
        return Ok(text);
    }
    let said = system.place.open(log).and_then(|mut it| logs::tail(&mut it, log, 20));
    Err(ToolError::failed(format!("{text}\n\n{}", said.unwrap_or_default().text)))
}
