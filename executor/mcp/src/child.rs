//! The process of an MCP server over stdio.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sandbox::{
    Launcher,
    process::{ProcessGroup, Program, STOP_GRACE, Tail, describe_status},
};
use secrets::{Redaction, variables};
use shared::id::ToolSetName;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::ChildStderr,
    task::JoinSet,
    time::timeout,
};

use super::{McpCommand, secrets::Secrets, session::SessionState, wire::StdioTransport};

/// Bytes of one line on standard error that go into the log.
const LOG_LINE: u64 = 4 << 10;
/// Time limit for a server's exit after it closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// A server that this process has started.
pub(super) struct Child {
    set: ToolSetName,
    command: String,
    group: ProcessGroup,
    stderr: Arc<Mutex<Tail>>,
    seen: Arc<Redaction>,
    _log: JoinSet<()>,
}

impl Child {
    /// Starts a server. It does not answer yet. `launcher` ends it with this process.
    pub(super) fn spawn(
        set: &ToolSetName,
        launcher: &Launcher,
        spec: &McpCommand,
        most: usize,
        ends: &mut SessionState,
    ) -> Result<(Self, StdioTransport), String> {
        let mut seen = Redaction::default();
        let env = variables(&spec.env, &mut seen).map_err(|err| err.to_string())?;
        launcher.note_passed_secrets(&spec.pass, &mut seen);
        let (name, cwd) = (spec.command.as_str(), spec.cwd.as_deref());
        let program = Program { name, cwd, reads: None, pass: &spec.pass, env: &env };
        let unfit = |err: std::io::Error| program.start_error(&err);
        let mut command = program.watched_command(launcher).map_err(unfit)?;
        command.args(&spec.args);
        let mut group =
            ProcessGroup::spawn(&mut command).map_err(|err| program.start_error(&err))?;
        let child = group.child();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(format!("the streams of `{}` are not piped", spec.command));
        };
        // A server that has closed its output cannot be called.
        ends.closing = ends.closed.clone();
        ends.seen = Arc::new(Secrets::new(seen));
        let tokens = Arc::clone(&ends.tokens);
        let wire = StdioTransport::new(stdout, stdin, most, ends.closed.clone(), tokens);
        let tail = Arc::new(Mutex::new(Tail::default()));
        let mut log = JoinSet::new();
        log.spawn(forward_stderr(set.clone(), stderr, Arc::clone(&tail), ends.seen.redaction()));
        let command = spec.command.clone();
        let seen = ends.seen.redaction();
        Ok((Self { set: set.clone(), command, group, stderr: tail, seen, _log: log }, wire))
    }

    /// Returns the command, for messages.
    pub(super) fn name(&self) -> &str {
        &self.command
    }

    /// Describes the failure with the server's last lines on standard error.
    pub(super) async fn describe_failure(&mut self, what: &str) -> String {
        let command = &self.command;
        let ended = timeout(EXIT_TIMEOUT, self.group.wait()).await;
        let how = match ended {
            Ok(Ok(status)) => format!("`{command}` {}", describe_status(status)),
            Ok(Err(_)) | Err(_) => format!("`{command}` does not serve MCP: {what}"),
        };
        self.with_stderr_tail(how)
    }

    /// Adds the tail of standard error.
    pub(super) fn with_stderr_tail(&self, how: String) -> String {
        match self.stderr.lock().unwrap_or_else(PoisonError::into_inner).redacted_text(&self.seen) {
            text if text.is_empty() => how,
            text => format!("{how}: {text}"),
        }
    }

    /// Waits for the server, whose input is closed, then terminates and kills it.
    pub(super) async fn stop(mut self) {
        if timeout(STOP_GRACE, self.group.wait()).await.is_err() {
            tracing::debug!(set = %self.set, "the MCP server does not end by itself");
            self.group.stop().await;
        }
    }
}

/// Forwards the server's standard error to the log, and keeps its tail.
async fn forward_stderr(
    set: ToolSetName,
    stderr: ChildStderr,
    tail: Arc<Mutex<Tail>>,
    seen: Arc<Redaction>,
) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut is_rest = false;
    loop {
        line.clear();
        let read = (&mut stderr).take(LOG_LINE).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&line);
        let is_whole = line.ends_with(b"\n");
        // Only the first part of a long line is logged. The cut may split a secret, so the end of
        // that part is dropped.
        if !std::mem::replace(&mut is_rest, !is_whole) {
            let text = seen.clean(String::from_utf8_lossy(&line).into_owned());
            let end = text.len() - if is_whole { 0 } else { seen.longest().min(text.len()) };
            tracing::debug!(%set, "{}", text[..text.floor_char_boundary(end)].trim_end());
        }
    }
}
