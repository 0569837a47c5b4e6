//! JSON-RPC messages as lines over standard input and output. rmcp's own transport ignores an
//! unreadable line, so the sender of the line would wait forever.

use std::io;

use rmcp::{
    RoleServer,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
    task::{JoinSet, coop::consume_budget},
    time::{Duration, timeout},
};

use super::invalid_message::{invalid_message_error, long_message_error};

const MAX_LINE_BYTES: usize = 16 << 20;
/// Capacity of the line buffer to which it is reduced after a longer line.
const MAX_KEPT_CAPACITY_BYTES: usize = 1 << 20;
const MAX_QUEUED_MESSAGES: usize = 64;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct LineTransport<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    is_dropping: bool,
    pending_error: Option<Vec<u8>>,
    /// `None` after the connection is closed.
    out: Option<mpsc::Sender<Vec<u8>>>,
    writer_task: JoinSet<()>,
}

enum LineRead {
    Line,
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> LineTransport<R> {
    pub(crate) fn new(reader: R, writer: impl AsyncWrite + Unpin + Send + 'static) -> Self {
        let (out, inbox) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let mut writer_task = JoinSet::new();
        writer_task.spawn(write_messages(writer, inbox));
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            line: Vec::new(),
            is_dropping: false,
            pending_error: None,
            out: Some(out),
            writer_task,
        }
    }

    /// Reads up to the end of a line. Dropping the future loses no bytes.
    async fn read_line(&mut self) -> LineRead {
        loop {
            let Ok(bytes) = self.reader.fill_buf().await else { return LineRead::End };
            if bytes.is_empty() {
                // The last line can end without a line feed. It is still a message.
                let is_complete_line = !self.is_dropping && !self.line.trim_ascii().is_empty();
                return if is_complete_line { LineRead::Line } else { LineRead::End };
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            let was_dropping = self.is_dropping;
            let is_long = !was_dropping && self.line.len() + taken > MAX_LINE_BYTES;
            if !was_dropping && !is_long {
                self.line.extend_from_slice(&bytes[..taken]);
            }
            self.reader.consume(taken);
            self.is_dropping = (was_dropping || is_long) && end.is_none();
            if is_long {
                return LineRead::TooLong;
            }
            if end.is_some() && !was_dropping {
                return LineRead::Line;
            }
        }
    }

    /// Parses the line. Stores the error to send if the line is invalid.
    fn parse_line(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let text = self.line.trim_ascii();
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let read = if text.is_empty() { Ok(None) } else { serde_json::from_slice(text).map(Some) };
        let message = read.unwrap_or_else(|err| {
            tracing::debug!(%err, "the client sent an invalid message");
            self.pending_error =
                invalid_message_error(text, &err).map(|error| error.to_string().into_bytes());
            None
        });
        self.clear_line();
        message
    }

    fn clear_line(&mut self) {
        self.line.clear();
        self.line.shrink_to(MAX_KEPT_CAPACITY_BYTES);
    }
}

impl<R: AsyncRead + Unpin + Send> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let out = self.out.clone();
        async move {
            let line = serde_json::to_vec(&message)?;
            let out = out.ok_or(io::ErrorKind::NotConnected)?;
            out.send(line).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if self.pending_error.is_some() {
                let permit = self.out.as_ref()?.reserve().await.ok()?;
                if let Some(error) = self.pending_error.take() {
                    permit.send(error);
                }
            }
            match self.read_line().await {
                LineRead::End => return None,
                LineRead::TooLong => {
                    self.pending_error = Some(
                        long_message_error(&self.line, MAX_LINE_BYTES).to_string().into_bytes(),
                    );
                    self.clear_line();
                }
                LineRead::Line => {
                    if let Some(message) = self.parse_line() {
                        return Some(message);
                    }
                }
            }
            consume_budget().await;
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        let _ = timeout(CLOSE_TIMEOUT, self.writer_task.join_next()).await;
        Ok(())
    }
}

async fn write_messages(mut writer: impl AsyncWrite + Unpin, mut inbox: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut line) = inbox.recv().await {
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{EmptyResult, JsonRpcMessage, RequestId, ServerResult};
    use serde_json::{Value, json};
    use tokio::io::{DuplexStream, duplex, split};

    use super::*;

    async fn exchange(input: &[u8]) -> (Vec<RequestId>, Vec<Value>) {
        let (client, server) = duplex(MAX_LINE_BYTES * 2);
        let (reader, writer) = split::<DuplexStream>(server);
        let mut lines = LineTransport::new(reader, writer);
        let (mut answers, mut requests) = split(client);
        requests.write_all(input).await.unwrap();
        requests.shutdown().await.unwrap();
        let mut ids = Vec::new();
        while let Some(message) = lines.receive().await {
            if let JsonRpcMessage::Request(request) = message {
                ids.push(request.id.clone());
                let done = ServerResult::EmptyResult(EmptyResult {});
                lines.send(JsonRpcMessage::response(done, request.id)).await.unwrap();
            }
        }
        lines.close().await.unwrap();
        drop(lines);
        let mut text = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut answers, &mut text).await.unwrap();
        (ids, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[tokio::test]
    async fn an_invalid_line_gets_an_error_and_later_lines_are_read() {
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        let input = format!(
            "not json\n\
             \n\
             \u{feff}{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}\r\n\
             {{\"jsonrpc\":\"2.0\",\"id\":108,\"method\":\"tools/call\",\"params\":{{\"arguments\":{{\"plan\":{deep}}}}}}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/odd\",\"params\":{deep}}}\n\
             {{\"jsonrpc\":\"2.0\",\"id\":\"two\",\"method\":\"ping\"}}\n\
             {{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}}"
        );
        let (ids, answers) = exchange(input.as_bytes()).await;
        let expected =
            [RequestId::Number(1), RequestId::String("two".into()), RequestId::Number(3)];
        assert_eq!(ids, expected, "the last line needs no end");
        let answers: Vec<_> = answers
            .iter()
            .map(|answer| (answer["id"].clone(), answer["error"]["code"].clone()))
            .collect();
        let expected = [
            (Value::Null, json!(-32700)),
            (json!(1), Value::Null),
            (json!(108), json!(-32600)),
            (json!("two"), Value::Null),
            (json!(3), Value::Null),
        ];
        assert_eq!(answers, expected);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_gets_an_error() {
        let mut input =
            br#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"id":8,"text":""#.to_vec();
        input.resize(input.len() + MAX_LINE_BYTES, b'x');
        input.extend_from_slice(b"\"}}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\n");
        let (ids, answers) = exchange(&input).await;
        assert_eq!(ids, [RequestId::Number(9)]);
        assert_eq!((&answers[0]["id"], &answers[0]["error"]["code"]), (&json!(7), &json!(-32600)));
        assert_eq!(answers[1]["id"], 9);
    }
}
