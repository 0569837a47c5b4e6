//! An API client for servers with injected faults: every answer can be late, incomplete, or an
//! error.
//! It uses HTTP/1.0, so the end of the connection ends the answer. It rejects an incomplete answer,
//! because such an answer is not valid JSON.

use std::{io, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

/// Time to wait for an answer or an event before the client asks another server.
const MAX_WAIT: Duration = Duration::from_secs(8);

/// The reason why a request got no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    /// The connection broke, or the server did not answer in time.
    ServerGone,
    Refused {
        code: String,
        message: String,
    },
}

impl From<io::Error> for RequestFailure {
    fn from(_: io::Error) -> Self {
        Self::ServerGone
    }
}

impl RequestFailure {
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::ServerGone => "GONE",
            Self::Refused { code, .. } => code,
        }
    }
}

pub(crate) async fn ask(
    address: &str,
    query: &str,
    variables: &Value,
) -> Result<Value, RequestFailure> {
    let answering = async {
        let mut answer = send_operation(address, query, variables, "application/json").await?;
        let mut text = String::new();
        answer.read_to_string(&mut text).await?;
        parse_only_field(&text)
    };
    timeout(MAX_WAIT, answering).await.unwrap_or(Err(RequestFailure::ServerGone))
}

/// Sends an operation and disconnects before the answer.
pub(crate) async fn ask_and_hang_up(address: &str, query: &str, variables: &Value) {
    let sending = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&encode_request(address, query, variables, "application/json")).await
    };
    // The test continues whether or not the server has received the request.
    let _ = timeout(MAX_WAIT, sending).await;
}

#[derive(Debug)]
pub(crate) struct EventSubscription {
    answer: BufReader<TcpStream>,
}

impl EventSubscription {
    pub(crate) async fn subscribe(
        address: &str,
        query: &str,
        variables: &Value,
    ) -> Result<Self, RequestFailure> {
        let answering = send_operation(address, query, variables, "text/event-stream");
        let answer =
            timeout(MAX_WAIT, answering).await.unwrap_or(Err(RequestFailure::ServerGone))?;
        Ok(Self { answer })
    }

    /// Returns the next event, or `None` after the server completed the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, RequestFailure> {
        let (mut line, mut kind) = (String::new(), String::new());
        loop {
            line.clear();
            let is_whole = self.answer.read_line(&mut line).await? > 0 && line.ends_with('\n');
            if !is_whole {
                return Err(RequestFailure::ServerGone);
            }
            if let Some(name) = line.strip_prefix("event:") {
                name.trim().clone_into(&mut kind);
            } else if let Some(data) = line.strip_prefix("data:").filter(|_| kind == "next") {
                return parse_only_field(data).map(Some);
            }
            if kind == "complete" {
                return Ok(None);
            }
        }
    }
}

fn encode_request(address: &str, query: &str, variables: &Value, accept: &str) -> Vec<u8> {
    let body = json!({ "query": query, "variables": variables }).to_string();
    let head = format!(
        "POST /graphql HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: {accept}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

async fn send_operation(
    address: &str,
    query: &str,
    variables: &Value,
    accept: &str,
) -> Result<BufReader<TcpStream>, RequestFailure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&encode_request(address, query, variables, accept)).await?;
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line).await?;
    if line.is_empty() {
        return Err(RequestFailure::ServerGone);
    }
    if !line.contains(" 200 ") {
        let message = line.trim().to_owned();
        return Err(RequestFailure::Refused { code: "HTTP".to_owned(), message });
    }
    while !line.trim().is_empty() {
        line.clear();
        if answer.read_line(&mut line).await? == 0 {
            return Err(RequestFailure::ServerGone);
        }
    }
    Ok(answer)
}

fn parse_only_field(text: &str) -> Result<Value, RequestFailure> {
    let answer: Value = serde_json::from_str(text).map_err(|_| RequestFailure::ServerGone)?;
    if let Some(error) = answer["errors"].get(0) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let code = text(&error["extensions"]["code"]);
        return Err(RequestFailure::Refused { code, message: text(&error["message"]) });
    }
    let fields = answer["data"].as_object().expect("an answer has data or errors");
    Ok(fields.values().next().cloned().unwrap_or_default())
}
