use serde_json::{Value, json};
use tests::toolset::PATIENCE;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    super::{begun::Begun, home::SEED},
    *,
};

const VIEWER: &str = "viewer-token-0123456789";
const OPERATOR: &str = "operator-token-0123456789";
/// An operator who may only echo.
const NARROW: &str = "narrow-token-0123456789";

const CONFIG: &str = "
access:
  tokens:
    - { name: eyes, token_env: T_VIEWER, role: viewer }
    - { name: hands, token_env: T_OPERATOR, role: operator }
    - { name: narrow, token_env: T_NARROW, role: operator, tools: [flow.echo] }
";

/// A server, and where its page is.
pub(super) struct Server {
    pub(super) home: Home,
    _process: Begun,
    pub(super) address: String,
    pub(super) url: String,
}

impl Server {
    pub(super) async fn new(config: Option<&str>) -> Self {
        let home = Home::new();
        if let Some(config) = config {
            home.file("faber.yaml", config);
        }
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.env("T_VIEWER", VIEWER).env("T_OPERATOR", OPERATOR).env("T_NARROW", NARROW);
        let mut process = Begun::new(command.spawn().unwrap());
        let line = process.line("listening on http://").await;
        let address = line.rsplit('/').next().unwrap().to_owned();
        let url = format!("http://{address}/mcp");
        Self { home, _process: process, address, url }
    }

    async fn client(&self, token: Option<&str>) -> Client {
        Client::to(&json!({ "url": self.url, "token": token })).await
    }

    /// Sends one message without any client. Returns the whole answer.
    async fn post(&self, headers: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(&self.address).await.unwrap();
        let length = body.len();
        let usual = "Accept: application/json, text/event-stream\r\n";
        let accept = if headers.contains("Accept:") { "" } else { usual };
        let ask = format!(
            "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n\
             {accept}Content-Length: {length}\r\n{headers}\r\n{body}"
        );
        connection.write_all(ask.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = connection.read_to_string(&mut answer);
        timeout(PATIENCE, read).await.expect("an answer in time").unwrap();
        answer
    }
}

#[tokio::test]
async fn a_client_plans_and_executes_over_http() {
    let server = Server::new(None).await;
    let mut client = server.client(None).await;
    assert_eq!(client.greeting["server"]["name"], "faber", "{}", client.greeting);
    let answer = client.call("run", json!({ "query": SEED })).await;
    let done = &answer["result"]["structuredContent"];
    assert_eq!((&done["state"], &done["successful"]), (&json!("COMPLETED"), &json!(2)));
    assert!(!check_reports(&answer).is_empty(), "{answer:#}");
    let (status, _) = client.done("status", json!({ "id": done["requestId"] })).await;
    assert_eq!(status["executionId"], done["executionId"]);

    // One client leaves; another one goes on where it was.
    let plan = client.plan(WAITS).await;
    let leaves =
        json!({ "do": "call", "name": "execute", "arguments": { "id": plan }, "leave": true });
    client.ask(&leaves).await;
    let mut other = server.client(None).await;
    let (status, _) = other.done("status", json!({ "id": plan })).await;
    let id = status["executionId"].clone();
    other.done("signal", json!({ "id": id, "name": "go" })).await;
    let (done, _) = other.done("status", json!({ "id": id, "wait": true })).await;
    assert_eq!(done["state"], "COMPLETED");

    // The same over stdio, by way of the server.
    let mut third =
        Client::of(&server.home, &["--server", &format!("http://{}", server.address)]).await;
    let (debug, _) = third.done("debug", json!({ "id": id })).await;
    assert_eq!(debug["executions"][0]["executionId"], id);
    let (begun, _) = third.done("execute", json!({ "id": plan, "wait": false })).await;
    let (done, _) = third.done("cancel", json!({ "id": begun["executionId"] })).await;
    assert_eq!(done["state"], "CANCELLED");
}

#[tokio::test]
async fn tokens_roles_and_tools_hold() {
    let server = Server::new(Some(CONFIG)).await;
    for token in [None, Some("nobody's-token-0123456789")] {
        let client = server.client(token).await;
        let why = client.greeting["refused"]["message"].as_str().unwrap().to_owned();
        assert!(why.contains("access token"), "{why}");
    }
    let host = format!("Host: {}\r\n", server.address);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let answer = server.post(&host, ping).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
    let answer = server.post(&format!("{host}Authorization: Bearer {VIEWER}\r\n"), ping).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let mut eyes = server.client(Some(VIEWER)).await;
    let (error, told) = eyes.refused("run", json!({ "query": SEED })).await;
    assert_eq!(error["code"], "FORBIDDEN");
    assert!(told.contains("operator"), "{told}");
    eyes.done("list_tools", json!({})).await;

    let mut hands = server.client(Some(OPERATOR)).await;
    let echo = hands.plan(r#"{"tools":[{"name":"flow.echo"}]}"#).await;
    let noop = hands.plan(r#"{"tools":[{"name":"flow.noop"}]}"#).await;
    let mut narrow = server.client(Some(NARROW)).await;
    let (done, _) = narrow.done("execute", json!({ "id": echo })).await;
    assert_eq!(done["state"], "COMPLETED");
    let (error, _) = narrow.refused("execute", json!({ "id": noop })).await;
    assert_eq!(error["code"], "FORBIDDEN");
    let (listed, _) = narrow.done("list_tools", json!({})).await;
    let names = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
    assert_eq!(names.collect::<Vec<Value>>(), ["flow.echo"]);
}

#[tokio::test]
async fn pages_of_strangers_are_refused() {
    let server = Server::new(None).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let own = format!("Host: {}\r\n", server.address);
    for (headers, status) in [
        (own.clone(), 200),
        (format!("{own}Origin: http://localhost:6274\r\n"), 200),
        ("Host: evil.example\r\n".to_owned(), 403),
        (format!("{own}Origin: http://evil.example\r\n"), 403),
        (format!("{own}Origin: null\r\n"), 403),
    ] {
        let answer = server.post(&headers, ping).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
    }
}

#[tokio::test]
async fn what_is_no_message_is_told_so_and_who_takes_anything_is_served() {
    let server = Server::new(None).await;
    let own = format!("Host: {}\r\n", server.address);
    let deep = format!(r#"{{"jsonrpc":"2.0","id":7,"x":{}{}}}"#, "[".repeat(300), "]".repeat(300));
    for (body, expected) in [
        ("{", r#"{"jsonrpc":"2.0","error":{"code":-32700"#),
        ("[]", r#"{"jsonrpc":"2.0","error":{"code":-32600"#),
        (&deep, r#""id":7,"error":{"code":-32600"#),
    ] {
        let answer = server.post(&own, body).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(expected), "{answer}");
    }
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (accept, status) in [("*/*", 200), ("application/json", 406)] {
        let answer = server.post(&format!("{own}Accept: {accept}\r\n"), ping).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{accept}: {answer}");
    }
}

#[tokio::test]
async fn the_newest_protocol_is_spoken() {
    let server = Server::new(None).await;
    let own = json!({
        "command": faber(), "args": ["mcp", "--store", "memory:"], "cwd": server.home.path("."),
        "env": { "HOME": server.home.path(".") }, "newest": true,
    });
    for place in [json!({ "url": server.url, "newest": true }), own] {
        let mut client = Client::to(&place).await;
        assert_eq!(client.greeting["protocol"], "2026-07-28", "{}", client.greeting);
        let plan =
            client.plan(r#"{"tools":[{"id":"e","name":"flow.echo","parameters":{"n":1}}]}"#).await;
        let answer = client.call("execute", json!({ "id": plan })).await;
        let done = &answer["result"]["structuredContent"];
        assert_eq!((&done["state"], &done["outputs"]["e"]["n"]), (&json!("COMPLETED"), &json!(1)));
        assert!(!check_reports(&answer).is_empty(), "{answer:#}");
        let (error, _) = client.refused("debug", json!({ "id": "req_1_aaaaaaaaa" })).await;
        assert_eq!(error["code"], "NOT_FOUND");
        assert_eq!(client.call("nobody", json!({})).await["refused"]["code"], -32602);
    }
}
