//! `bash_background`: starts a command and leaves it running.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sandbox::{Lifetime, is_confining, process::describe_status, refusal_reason};
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};
use tokio::{
    process::Child,
    time::{sleep, timeout},
};

use super::{System, ToolContext, confinement_error, logs, start_error};

pub(super) const DESCRIPTION: &str = "Execute a command in the background (non-blocking). \
    Its output goes to a log file that `read_logs` reads.";

const MAX_SESSIONS: usize = 64;
/// A command that ends within this time after its start is reported as ended.
const EARLY_EXIT_WAIT: Duration = Duration::from_millis(200);
/// Time limit for the sandbox process to become the command, even on a busy machine.
const CONFINING_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const LOG_FOLDER: &str = "background";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BashBackground {
    /// Shell command to execute.
    command: String,
    /// Working directory, below the project root (default: the project root).
    #[serde(default)]
    cwd: Option<String>,
    /// Purpose of the command, for people.
    #[serde(default)]
    description: Option<String>,
}

/// The variable that marks background processes for later runs of Faber. Its value is the root.
///
/// A file with process ids would be less safe: a command could write any id into it and have that
/// process killed.
const MARKER: &str = "FABER_BACKGROUND";

#[derive(Debug, Default)]
pub(super) struct Background(Mutex<Sessions>);

#[derive(Debug, Default)]
struct Sessions {
    starting_count: usize,
    running: Vec<Session>,
}

/// A session, whose id is the id of its first process. The system reuses this id only after every
/// process of the session is gone.
#[derive(Debug)]
struct Session {
    id: u32,
    child: Child,
}

struct ReservedSlot<'a> {
    background: &'a Background,
    session: Option<Session>,
}

impl Background {
    /// Returns the ids of the sessions that still have processes. Removes all other sessions.
    pub(super) fn session_ids(&self) -> Vec<u32> {
        let mut sessions = self.lock_sessions();
        sessions.remove_ended();
        sessions.running.iter().map(|session| session.id).collect()
    }

    /// Reserves a slot and returns it with the number of sessions. Fails with that number if no
    /// slot is free.
    fn reserve_slot(&self) -> Result<(ReservedSlot<'_>, usize), usize> {
        let mut sessions = self.lock_sessions();
        sessions.remove_ended();
        let count = sessions.running.len() + sessions.starting_count;
        if count >= MAX_SESSIONS {
            return Err(count);
        }
        sessions.starting_count += 1;
        Ok((ReservedSlot { background: self, session: None }, count))
    }

    fn lock_sessions(&self) -> MutexGuard<'_, Sessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    fn remove_ended(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let live_ids = live_sessions();
        self.running.retain_mut(|session| match &live_ids {
            Some(live_ids) => live_ids.contains(&session.id),
            None => matches!(session.child.try_wait(), Ok(None)),
        });
    }
}

impl Drop for ReservedSlot<'_> {
    /// Puts the session into the list, even if the call was cancelled.
    fn drop(&mut self) {
        let mut sessions = self.background.lock_sessions();
        sessions.starting_count -= 1;
        sessions.running.extend(self.session.take());
    }
}

pub(super) fn marker_variable(root: &Path) -> OsString {
    let mut mark = OsString::from(MARKER);
    mark.push("=");
    mark.push(root);
    mark
}

/// Returns the ids of all sessions and process groups with a live process. Returns `None` without
/// `/proc`.
fn live_sessions() -> Option<BTreeSet<u32>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let ids = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
    let session = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The process name is in parentheses and may contain any character, so the last `)` ends
        // the name.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X");
        let (group, session) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (!is_dead).then_some([group, session])
    };
    let found: BTreeSet<u32> = ids.filter_map(session).flatten().collect();
    (!found.is_empty()).then_some(found)
}

pub(super) async fn start(
    system: Arc<System>,
    args: BashBackground,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let (mut slot, running) = system.background.reserve_slot().map_err(|running| {
        let message = format!(
            "{running} background commands are already running: end some with `process_kill`"
        );
        ToolError::new(ErrorCode::UNAVAILABLE, message)
    })?;
    let cwd = system.root.command_folder(args.cwd.as_deref())?;
    let mut command = system.shell_command(&args.command, Lifetime::Background, &cwd)?;
    let no_log = |err: io::Error| ToolError::failed(format!("no log file can be made: {err}"));
    let (log, path) = system.root.create_log_file(LOG_FOLDER, running + 1).map_err(no_log)?;
    let errors = log.try_clone().map_err(no_log)?;
    command.env(MARKER, system.root.root_path());
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let child = command.spawn().map_err(|err| start_error(&err))?;
    let id = child.id().unwrap_or_default();
    tracing::info!(id, description = args.description, "a background command has started");
    let session = slot.session.insert(Session { id, child });
    let ended = wait_for_early_exit(session).await;
    let path = path.display().to_string();
    let Some(status) = ended else {
        return Ok(format!("Started background process (PID: {id})\nLog file: {path}"));
    };
    let has_processes = live_sessions().is_some_and(|live| live.contains(&id));
    if !has_processes {
        slot.session = None;
    }
    describe_early_exit(&system, id, has_processes, status, &path)
}

/// Returns the status of a command that ends right after its start. Returns `None` if it still
/// runs.
async fn wait_for_early_exit(session: &mut Session) -> Option<io::Result<ExitStatus>> {
    let Session { id, child } = session;
    // Waits until the sandbox has started the command, because the sandbox may refuse it, and the
    // command cannot fail before it runs.
    let confining = async {
        while is_confining(*id) {
            sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        status = child.wait() => return Some(status),
        _ = timeout(CONFINING_TIMEOUT, confining) => (),
    }
    timeout(EARLY_EXIT_WAIT, child.wait()).await.ok()
}

fn describe_early_exit(
    system: &System,
    id: u32,
    has_processes: bool,
    status: io::Result<ExitStatus>,
    log: &str,
) -> Result<String, ToolError> {
    let status = status.map_err(|err| {
        ToolError::failed(format!("it is unknown how process {id} ended: {err}"))
            .with_unknown_outcome()
    })?;
    let rest = if has_processes {
        "\nProcesses that it started still run: end them with `process_kill` and this PID"
    } else {
        ""
    };
    let text = format!(
        "Started background process (PID: {id}), which has ended: it {}\nLog file: {log}{rest}",
        describe_status(status)
    );
    if status.success() {
        return Ok(text);
    }
    let redaction = system.passed_secrets();
    let tail =
        system.root.open(log).and_then(|mut file| logs::read_tail(&mut file, log, 20, &redaction));
    let output = tail.unwrap_or_default().text;
    if let Some(reason) = refusal_reason(status.code(), &output) {
        return Err(confinement_error(reason));
    }
    Err(ToolError::failed(format!("{text}\n\n{output}")))
}
