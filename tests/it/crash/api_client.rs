//! An API client over HTTP/1.0, where the end of the connection ends the answer. A crash cannot
//! make half an answer look whole, because half an answer is not valid JSON.

use std::io;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The server went away, or cannot reach its store at the moment.
#[derive(Debug)]
pub(super) struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Runs an operation and returns its only field.
///
/// # Panics
///
/// If the server returns another error, because these tests send only valid requests.
pub(super) async fn ask(address: &str, query: &str, variables: Value) -> Result<Value, Gone> {
    let mut answer = post(address, query, variables, "application/json").await?;
    let mut text = String::new();
    answer.read_to_string(&mut text).await?;
    only_field(&text).ok_or(Gone)
}

#[derive(Debug)]
pub(super) struct Events {
    answer: BufReader<TcpStream>,
}

impl Events {
    pub(super) async fn of(address: &str, query: &str, variables: Value) -> Result<Self, Gone> {
        let answer = post(address, query, variables, "text/event-stream").await?;
        Ok(Self { answer })
    }

    /// Returns the next event, or `None` after the server completed the stream.
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
                return only_field(data).map(Some).ok_or(Gone);
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

fn only_field(text: &str) -> Option<Value> {
    let answer: Value = serde_json::from_str(text).ok()?;
    if answer["errors"][0]["extensions"]["code"] == "STORE_UNAVAILABLE" {
        return None;
    }
    assert!(answer.get("errors").is_none(), "{answer:#}");
    let fields = answer["data"].as_object().expect("data");
    fields.values().next().cloned()
}
