//! The API over plain HTTP/1.0, where the end of an answer is the end of the connection: an
//! answer that a crash cut off cannot be taken for a whole one.

use std::io;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The server went away, or said nothing that can be used; perhaps for a moment only.
#[derive(Debug)]
pub(super) struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Carries an operation out and returns its only field.
///
/// # Panics
///
/// If the server refuses it: nothing that the tests ask for may be refused, unless the store is away
/// for a moment.
pub(super) async fn ask(address: &str, query: &str, variables: Value) -> Result<Value, Gone> {
    let mut answer = post(address, query, variables, "application/json").await?;
    let mut text = String::new();
    answer.read_to_string(&mut text).await?;
    field(&text).ok_or(Gone)
}

/// A subscription over server-sent events.
#[derive(Debug)]
pub(super) struct Events {
    answer: BufReader<TcpStream>,
}

impl Events {
    /// Subscribes.
    pub(super) async fn of(address: &str, query: &str, variables: Value) -> Result<Self, Gone> {
        let answer = post(address, query, variables, "text/event-stream").await?;
        Ok(Self { answer })
    }

    /// Returns the next event, or nothing once the server has said that there is none.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Gone> {
        let (mut line, mut kind) = (String::new(), String::new());
        loop {
            line.clear();
            let is_whole = self.answer.read_line(&mut line).await? > 0 && line.ends_with('\n');
            if !is_whole {
                return Err(Gone);
            }
            if let Some(name) = line.strip_prefix("event:") {
                name.trim().clone_into(&mut kind);
            } else if let Some(data) = line.strip_prefix("data:").filter(|_| kind == "next") {
                return field(data).map(Some).ok_or(Gone);
            }
            if kind == "complete" {
                return Ok(None);
            }
        }
    }
}

async fn post(
    address: &str,
    query: &str,
    variables: Value,
    accept: &str,
) -> Result<BufReader<TcpStream>, Gone> {
    let body = json!({ "query": query, "variables": variables }).to_string();
    let head = format!(
        "POST /graphql HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: {accept}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all((head + &body).as_bytes()).await?;
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line).await?;
    if line.is_empty() {
        return Err(Gone);
    }
    assert!(line.contains(" 200 "), "{line}");
    while !line.trim().is_empty() {
        line.clear();
        if answer.read_line(&mut line).await? == 0 {
            return Err(Gone);
        }
    }
    Ok(answer)
}

fn field(text: &str) -> Option<Value> {
    let answer: Value = serde_json::from_str(text).ok()?;
    if answer["errors"][0]["extensions"]["code"] == "STORE_UNAVAILABLE" {
        return None;
    }
    assert!(answer.get("errors").is_none(), "{answer:#}");
    let fields = answer["data"].as_object().expect("data");
    fields.values().next().cloned()
}
