//! The stdio transport, and the process of its server.
//!
//! rmcp's own transport drops lines that are too long or invalid, so the calls that these lines
//! answer would wait forever. This transport turns such a line into the error of its call.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use rmcp::{
    service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use sandbox::{
    Launcher,
    process::{ProcessGroup, Program, STOP_GRACE, Tail, describe_status},
};
use secrets::{Redaction, resolve_variables};
use shared::id::ToolSetName;
use tokio::{
    io::{self, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{ChildStderr, ChildStdin, ChildStdout},
    sync::Mutex,
    task::{JoinSet, coop::consume_budget},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    McpCommand,
    message::{
        KEPT_END_BYTES, MESSAGE_OVERHEAD, ProgressTokens, parse_message, restore_progress_token,
        take_progress, too_long_error,
    },
    redaction::Secrets,
    session::SessionState,
};

/// Maximum bytes of the line buffer that stay allocated between lines.
const KEPT_BUFFER_BYTES: usize = 1 << 20;
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct StdioTransport {
    reader: BufReader<ChildStdout>,
    line: LineBuffer,
    // A writer holds the pipe until its line is written, because lines must not mix.
    // `WRITE_TIMEOUT` limits that time.
    writer: Arc<Mutex<Option<ChildStdin>>>,
    closed: CancellationToken,
    tokens: Arc<ProgressTokens>,
}

impl StdioTransport {
    /// Creates a transport. It cancels `closed` once the pipes are unusable, and delivers progress
    /// reports to `tokens`.
    pub(super) fn new(
        stdout: ChildStdout,
        stdin: ChildStdin,
        max_bytes: usize,
        closed: CancellationToken,
        tokens: Arc<ProgressTokens>,
    ) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, stdout),
            line: LineBuffer::new(max_bytes.saturating_mul(MESSAGE_OVERHEAD)),
            writer: Arc::new(Mutex::new(Some(stdin))),
            closed,
            tokens,
        }
    }

    /// Reads to the end of a line. Cancel safe: the bytes stay in the buffer.
    async fn read_line(&mut self) -> Option<()> {
        loop {
            let bytes = self.reader.fill_buf().await.ok().filter(|bytes| !bytes.is_empty())?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            self.line.push(&bytes[..taken]);
            self.reader.consume(taken);
            if end.is_some() {
                return Some(());
            }
        }
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        restore_progress_token(&mut message);
        let (writer, closed) = (Arc::clone(&self.writer), self.closed.clone());
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let write = async {
                let mut writer = writer.lock().await;
                let pipe = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                pipe.write_all(&line).await
            };
            let written = timeout(WRITE_TIMEOUT, write).await;
            let written = written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            // Closes the pipe, because half of the line may be written and no other line can
            // follow.
            written.inspect_err(|_| closed.cancel())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let closed = self.closed.clone();
        loop {
            let read = tokio::select! {
                read = self.read_line() => read,
                () = closed.cancelled() => None,
            };
            if read.is_none() {
                closed.cancel();
                return None;
            }
            match self.line.take_message() {
                Some(message) => match take_progress(message, &self.tokens) {
                    Some(message) => return Some(message),
                    None => consume_budget().await,
                },
                None => consume_budget().await,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.closed.cancel();
        // Closes the pipe if no writer holds it. A blocked writer gives up after its timeout, and
        // drops its pipe.
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
        Ok(())
    }
}

struct LineBuffer {
    max_bytes: usize,
    bytes: Vec<u8>,
    /// `true` if the middle of the line was dropped.
    is_cut: bool,
}

impl LineBuffer {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes: max_bytes.max(2 * KEPT_END_BYTES), bytes: Vec::new(), is_cut: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > self.max_bytes {
            self.is_cut = true;
            self.bytes.drain(KEPT_END_BYTES..self.bytes.len() - KEPT_END_BYTES);
        }
    }

    /// Takes the line, and returns its message. If the line was too long, the message is the error
    /// of the call that the line answers.
    fn take_message(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let is_cut = std::mem::take(&mut self.is_cut);
        let message = if is_cut { too_long_error(&self.bytes) } else { parse_message(&self.bytes) };
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BUFFER_BYTES);
        message
    }
}

/// Maximum bytes of one line on standard error that go into the log.
const LOG_LINE_BYTES: u64 = 4 << 10;
/// Time limit for a server's exit after it closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct Child {
    set: ToolSetName,
    command: String,
    group: ProcessGroup,
    stderr: Arc<std::sync::Mutex<Tail>>,
    redaction: Arc<Redaction>,
    _log: JoinSet<()>,
}

impl Child {
    /// Starts a server, which does not answer yet. `launcher` ends it with this process.
    pub(super) fn spawn(
        set: &ToolSetName,
        launcher: &Launcher,
        spec: &McpCommand,
        max_bytes: usize,
        state: &mut SessionState,
    ) -> Result<(Self, StdioTransport), String> {
        let mut redaction = Redaction::default();
        let env = resolve_variables(&spec.env, &mut redaction).map_err(|err| err.to_string())?;
        launcher.add_passed_secrets(&spec.pass, &mut redaction);
        let (name, cwd) = (spec.command.as_str(), spec.cwd.as_deref());
        let program = Program { name, cwd, readable_folder: None, pass: &spec.pass, env: &env };
        let to_start_error = |err: std::io::Error| program.start_error(&err);
        let mut command = program.watched_command(launcher).map_err(to_start_error)?;
        command.args(&spec.args);
        let mut group =
            ProcessGroup::spawn(&mut command).map_err(|err| program.start_error(&err))?;
        let child = group.child();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(format!("the streams of `{}` are not piped", spec.command));
        };
        // A server that has closed its output cannot answer, so its session ends.
        state.closing = state.closed.clone();
        state.secrets = Arc::new(Secrets::new(redaction));
        let tokens = Arc::clone(&state.tokens);
        let transport = StdioTransport::new(stdout, stdin, max_bytes, state.closed.clone(), tokens);
        let tail = Arc::new(std::sync::Mutex::new(Tail::default()));
        let mut log = JoinSet::new();
        log.spawn(forward_stderr(
            set.clone(),
            stderr,
            Arc::clone(&tail),
            state.secrets.redaction(),
        ));
        let command = spec.command.clone();
        let redaction = state.secrets.redaction();
        Ok((
            Self { set: set.clone(), command, group, stderr: tail, redaction, _log: log },
            transport,
        ))
    }

    pub(super) fn name(&self) -> &str {
        &self.command
    }

    pub(super) async fn describe_failure(&mut self, problem: &str) -> String {
        let command = &self.command;
        let ended = timeout(EXIT_TIMEOUT, self.group.wait()).await;
        let message = match ended {
            Ok(Ok(status)) => format!("`{command}` {}", describe_status(status)),
            Ok(Err(_)) | Err(_) => format!("`{command}` does not serve MCP: {problem}"),
        };
        self.with_stderr_tail(message)
    }

    pub(super) fn with_stderr_tail(&self, message: String) -> String {
        match self
            .stderr
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .redacted_text(&self.redaction)
        {
            text if text.is_empty() => message,
            text => format!("{message}: {text}"),
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
    tail: Arc<std::sync::Mutex<Tail>>,
    redaction: Arc<Redaction>,
) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut is_rest = false;
    loop {
        line.clear();
        let read = (&mut stderr).take(LOG_LINE_BYTES).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&line);
        let is_whole = line.ends_with(b"\n");
        // Logs only the first part of a long line. The cut may split a secret, so the end of that
        // part is dropped.
        if !std::mem::replace(&mut is_rest, !is_whole) {
            let text = redaction.redact(String::from_utf8_lossy(&line).into_owned());
            let end = text.len()
                - if is_whole { 0 } else { redaction.max_secret_bytes().min(text.len()) };
            tracing::debug!(%set, "{}", text[..text.floor_char_boundary(end)].trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonRpcMessage, RequestId};

    use super::*;

    const MAX_BYTES: usize = 4 << 10;

    fn answer(line: &str) -> Option<(String, i64)> {
        let mut buffer = LineBuffer::new(MAX_BYTES);
        for chunk in line.as_bytes().chunks(1_000) {
            buffer.push(chunk);
        }
        match buffer.take_message()? {
            JsonRpcMessage::Error(error) => {
                let RequestId::Number(id) = error.id? else { panic!("ids are numbers") };
                Some((error.error.message.into_owned(), id))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_that_is_too_long_fails_its_call() {
        let text = "x".repeat(MAX_BYTES + 1);
        let tail =
            format!(r#"{{"result":{{"content":[{{"id":3}},"{text}"]}},"jsonrpc":"2.0","id":7}}"#);
        assert_eq!(answer(&tail).unwrap().1, 7);
        let head = format!(r#"{{"jsonrpc":"2.0", "id": 8,"result":{{"id":3,"text":"{text}"}}}}"#);
        assert_eq!(answer(&head).unwrap().1, 8);
        let none = format!(r#"{{"jsonrpc":"2.0","method":"x","params":"{text}"}}"#);
        assert_eq!(answer(&none), None);
    }

    #[test]
    fn a_malformed_answer_fails_its_call() {
        let (message, id) = answer(r#"{"jsonrpc":"1.0","id":7,"result":{}}"#).unwrap();
        assert!(message.contains("not a valid MCP message"), "{message}");
        assert_eq!(id, 7);
        // The id is found even in a line that is not valid JSON or not an answer.
        let deep = "[".repeat(500);
        for line in [
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"ty"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"structuredContent":{"n":NaN}}}"#,
            r#"{"result":{"structuredContent":{"n":1e999}},"jsonrpc":"2.0","id":7}"#,
            &format!(r#"{{"jsonrpc":"2.0","id":7,"result":{deep}"#),
            r#"[{"jsonrpc":"2.0","id":7,"error":"boom"}]"#,
        ] {
            assert_eq!(answer(line).unwrap().1, 7, "{line}");
        }
    }

    #[test]
    fn a_request_of_the_server_is_not_taken_for_an_answer() {
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"a":NaN}}"#,
            r#"{"level":"info","id":7,"text":NaN}"#,
            r#"[{"jsonrpc":"2.0","id":7,"error":"a"},{"jsonrpc":"2.0","id":8,"error":"b"}]"#,
        ] {
            assert_eq!(answer(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_that_is_cut_inside_a_character_is_read() {
        for text in [&br"cut \ud83d"[..], b"cut \xe9"] {
            let mut line = LineBuffer::new(MAX_BYTES);
            line.push(br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":""#);
            line.push(text);
            line.push(br#""}]}}"#);
            let Some(JsonRpcMessage::Response(answer)) = line.take_message() else {
                panic!("no answer")
            };
            let answer = serde_json::to_value(answer).unwrap();
            assert_eq!(answer["result"]["content"][0]["text"], "cut \u{fffd}");
        }
    }

    #[test]
    fn lines_that_are_no_answer_are_skipped() {
        for garbage in ["", "  \r\n", "Listening…", "{", "[1]", "7", r#"{"id":7}"#] {
            assert_eq!(answer(garbage), None, "{garbage}");
        }
    }
}
