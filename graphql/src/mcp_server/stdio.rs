//! JSON-RPC messages as lines over standard input and output.
//!
//! rmcp's own transport ignores an unreadable line, and its sender waits for ever. This transport
//! answers with an error.

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

use super::invalid_message::{refusal, too_long};

/// The longest line.
const MOST: usize = 16 << 20;
/// Capacity that the line buffer keeps.
const KEPT: usize = 1 << 20;
/// The most messages that wait to be written.
const WAITING: usize = 64;
/// Timeout of the last writes.
const ENDING: Duration = Duration::from_secs(5);

/// The connection to a client.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// Whether the rest of a long line is being dropped.
    is_dropping: bool,
    /// An error to send before the next line is read.
    refusal: Option<Vec<u8>>,
    /// `None` after the connection is closed.
    out: Option<mpsc::Sender<Vec<u8>>>,
    writing: JoinSet<()>,
}

/// The result of reading a line.
enum Read {
    Line,
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new((reader, writer): (R, impl AsyncWrite + Unpin + Send + 'static)) -> Self {
        let (out, inbox) = mpsc::channel(WAITING);
        let mut writing = JoinSet::new();
        writing.spawn(write(writer, inbox));
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            line: Vec::new(),
            is_dropping: false,
            refusal: None,
            out: Some(out),
            writing,
        }
    }

    /// Reads up to the end of a line. Cancel safe.
    async fn read_line(&mut self) -> Read {
        loop {
            let Ok(bytes) = self.reader.fill_buf().await else { return Read::End };
            if bytes.is_empty() {
                // The last line may lack its end.
                let is_whole = !self.is_dropping && !self.line.trim_ascii().is_empty();
                return if is_whole { Read::Line } else { Read::End };
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            let was_dropping = self.is_dropping;
            let is_long = !was_dropping && self.line.len() + taken > MOST;
            if !was_dropping && !is_long {
                self.line.extend_from_slice(&bytes[..taken]);
            }
            self.reader.consume(taken);
            self.is_dropping = (was_dropping || is_long) && end.is_none();
            if is_long {
                return Read::TooLong;
            }
            if end.is_some() && !was_dropping {
                return Read::Line;
            }
        }
    }

    /// Parses the line. Stores the error to send if it is invalid.
    fn take(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let text = self.line.trim_ascii();
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let read = if text.is_empty() { Ok(None) } else { serde_json::from_slice(text).map(Some) };
        let message = read.unwrap_or_else(|err| {
            tracing::debug!(%err, "what the client says is no message");
            self.refusal = refusal(text, &err).map(|refusal| refusal.to_string().into_bytes());
            None
        });
        self.forget();
        message
    }

    fn forget(&mut self) {
        self.line.clear();
        self.line.shrink_to(KEPT);
    }
}

impl<R: AsyncRead + Unpin + Send> Transport<RoleServer> for Lines<R> {
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
            if self.refusal.is_some() {
                let place = self.out.as_ref()?.reserve().await.ok()?;
                if let Some(refusal) = self.refusal.take() {
                    place.send(refusal);
                }
            }
            match self.read_line().await {
                Read::End => return None,
                Read::TooLong => {
                    self.refusal = Some(too_long(&self.line, MOST).to_string().into_bytes());
                    self.forget();
                }
                Read::Line => {
                    if let Some(message) = self.take() {
                        return Some(message);
                    }
                }
            }
            consume_budget().await;
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out = None;
        let _ = timeout(ENDING, self.writing.join_next()).await;
        Ok(())
    }
}

/// Writes messages until the connection or the queue is closed.
async fn write(mut writer: impl AsyncWrite + Unpin, mut inbox: mpsc::Receiver<Vec<u8>>) {
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

    /// Sends `said` as a client. Returns the ids of the requests and the answers.
    async fn spoken(said: &[u8]) -> (Vec<RequestId>, Vec<Value>) {
        let (client, server) = duplex(MOST * 2);
        let mut lines = Lines::new(split::<DuplexStream>(server));
        let (mut answers, mut asks) = split(client);
        asks.write_all(said).await.unwrap();
        asks.shutdown().await.unwrap();
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
    async fn what_cannot_be_read_is_answered_and_the_rest_goes_on() {
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        let said = format!(
            "not json\n\
             \n\
             \u{feff}{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}\r\n\
             {{\"jsonrpc\":\"2.0\",\"id\":108,\"method\":\"tools/call\",\"params\":{{\"arguments\":{{\"plan\":{deep}}}}}}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/odd\",\"params\":{deep}}}\n\
             {{\"jsonrpc\":\"2.0\",\"id\":\"two\",\"method\":\"ping\"}}\n\
             {{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}}"
        );
        let (ids, told) = spoken(said.as_bytes()).await;
        let asked = [RequestId::Number(1), RequestId::String("two".into()), RequestId::Number(3)];
        assert_eq!(ids, asked, "the last line needs no end");
        let told: Vec<_> = told
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
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_told() {
        let mut said =
            br#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"id":8,"text":""#.to_vec();
        said.resize(said.len() + MOST, b'x');
        said.extend_from_slice(b"\"}}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\n");
        let (ids, told) = spoken(&said).await;
        assert_eq!(ids, [RequestId::Number(9)]);
        assert_eq!((&told[0]["id"], &told[0]["error"]["code"]), (&json!(7), &json!(-32600)));
        assert_eq!(told[1]["id"], 9);
    }
}
