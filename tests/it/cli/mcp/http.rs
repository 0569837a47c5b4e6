use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    super::{running_command::RunningCommand, workspace::DEMO_QUERY},
    *,
};

const VIEWER: &str = "viewer-token-0123456789";
const OPERATOR: &str = "operator-token-0123456789";
/// The token of an operator that may call only `flow.echo`.
const ONE_TOOL_OPERATOR: &str = "narrow-token-0123456789";

/// The token of an operator that sees only its own executions.
const OWN_OPERATOR: &str = "shop-token-0123456789";

const CONFIG: &str = "
access:
  tokens:
    - { name: eyes, token_env: T_VIEWER, role: viewer }
    - { name: hands, token_env: T_OPERATOR, role: operator }
    - { name: narrow, token_env: T_NARROW, role: operator, tools: [flow.echo] }
    - { name: shop, token_env: T_SHOP, role: operator, see: own }
";

pub(super) struct Server {
    pub(super) workspace: Workspace,
    _process: RunningCommand,
    pub(super) address: String,
    pub(super) url: String,
}

impl Server {
    pub(super) async fn new(config: Option<&str>) -> Self {
        let workspace = Workspace::new();
        if let Some(config) = config {
            workspace.file("faber.yaml", config);
        }
        let mut command = workspace.command(&["serve", "--listen", "127.0.0.1:0"]);
        command
            .env("T_VIEWER", VIEWER)
            .env("T_OPERATOR", OPERATOR)
            .env("T_NARROW", ONE_TOOL_OPERATOR)
            .env("T_SHOP", OWN_OPERATOR);
        let mut process = RunningCommand::new(command.spawn().unwrap());
        let line = process.wait_for_line("listening on http://").await;
        let address = line.rsplit('/').next().unwrap().to_owned();
        let url = format!("http://{address}/mcp");
        Self { workspace, _process: process, address, url }
    }

    async fn client(&self, token: Option<&str>) -> Client {
        Client::connect(&json!({ "url": self.url, "token": token })).await
    }

    /// Sends one message without an MCP client. Returns the whole answer.
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
        timeout(MAX_WAIT, read).await.expect("an answer in time").unwrap();
        answer
    }
}

#[tokio::test]
async fn an_mcp_client_plans_and_executes_over_http() {
    let server = Server::new(None).await;
    let mut client = server.client(None).await;
    assert_eq!(client.server_info["server"]["name"], "faber", "{}", client.server_info);
    let answer = client.call("run", json!({ "query": DEMO_QUERY })).await;
    let done = &answer["result"]["structuredContent"];
    assert_eq!((&done["state"], &done["successful"]), (&json!("COMPLETED"), &json!(2)));
    assert!(!progress_values(&answer).is_empty(), "{answer:#}");
    let (status, _) = client.call_ok("status", json!({ "id": done["requestId"] })).await;
    assert_eq!(status["executionId"], done["executionId"]);

    // One client disconnects during a call, and another client continues the execution.
    let plan = client.create_plan(WAITING_PLAN).await;
    let leaves =
        json!({ "do": "call", "name": "execute", "arguments": { "id": plan }, "leave": true });
    client.ask(&leaves).await;
    let mut other = server.client(None).await;
    let (status, _) = other.call_ok("status", json!({ "id": plan })).await;
    let id = status["executionId"].clone();
    other.call_ok("signal", json!({ "id": id, "name": "go" })).await;
    let (done, _) = other.call_ok("status", json!({ "id": id, "wait": true })).await;
    assert_eq!(done["state"], "COMPLETED");

    // A client over stdio executes the same plan. Its `faber mcp` sends all requests to the server.
    let mut third =
        Client::start_in(&server.workspace, &["--server", &format!("http://{}", server.address)])
            .await;
    let (debug, _) = third.call_ok("debug", json!({ "id": id })).await;
    assert_eq!(debug["executions"][0]["executionId"], id);
    let (started, _) = third.call_ok("execute", json!({ "id": plan, "wait": false })).await;
    let (done, _) = third.call_ok("cancel", json!({ "id": started["executionId"] })).await;
    assert_eq!(done["state"], "CANCELLED");
}

#[tokio::test]
async fn mcp_over_http_enforces_tokens_roles_and_tool_patterns() {
    let server = Server::new(Some(CONFIG)).await;
    for token in [None, Some("nobody's-token-0123456789")] {
        let client = server.client(token).await;
        let reason = client.server_info["refused"]["message"].as_str().unwrap().to_owned();
        assert!(reason.contains("access token"), "{reason}");
    }
    let host = format!("Host: {}\r\n", server.address);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let answer = server.post(&host, ping).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
    let answer = server.post(&format!("{host}Authorization: Bearer {VIEWER}\r\n"), ping).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let mut eyes = server.client(Some(VIEWER)).await;
    let (error, text) = eyes.call_refused("run", json!({ "query": DEMO_QUERY })).await;
    assert_eq!(error["code"], "FORBIDDEN");
    assert!(text.contains("operator"), "{text}");
    eyes.call_ok("list_tools", json!({})).await;

    let mut hands = server.client(Some(OPERATOR)).await;
    let echo = hands.create_plan(r#"{"tools":[{"name":"flow.echo"}]}"#).await;
    let noop = hands.create_plan(r#"{"tools":[{"name":"flow.noop"}]}"#).await;
    let mut narrow = server.client(Some(ONE_TOOL_OPERATOR)).await;
    let (done, _) = narrow.call_ok("execute", json!({ "id": echo })).await;
    assert_eq!(done["state"], "COMPLETED");
    let (error, _) = narrow.call_refused("execute", json!({ "id": noop })).await;
    assert_eq!(error["code"], "FORBIDDEN");
    let (listed, _) = narrow.call_ok("list_tools", json!({})).await;
    let names = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
    assert_eq!(names.collect::<Vec<Value>>(), ["flow.echo"]);
}

#[tokio::test]
async fn mcp_tools_answer_an_id_of_another_token_as_an_unknown_one() {
    let server = Server::new(Some(CONFIG)).await;
    let mut hands = server.client(Some(OPERATOR)).await;
    let plan = r#"{"tools":[{"id":"e","name":"flow.echo","parameters":{"n":1}}]}"#;
    let foreign_plan = hands.create_plan(plan).await;
    let (foreign, _) = hands.call_ok("execute", json!({ "id": foreign_plan })).await;
    let mut shop = server.client(Some(OWN_OPERATOR)).await;
    for (kind, id) in [
        ("exec", foreign["executionId"].as_str().unwrap()),
        ("req", foreign["requestId"].as_str().unwrap()),
        ("plan", &*foreign_plan),
    ] {
        let unknown = format!("{kind}_1704123456_zzzzzzzzz");
        for (tool, rest) in [
            ("execute", json!({})),
            ("status", json!({})),
            ("debug", json!({})),
            ("cancel", json!({})),
            ("approve", json!({ "stepId": "e" })),
            ("settle", json!({ "stepId": "e", "outcome": "FAILED" })),
            ("signal", json!({ "name": "go" })),
        ] {
            let mut answers = Vec::new();
            for id in [id, &*unknown] {
                let mut arguments = rest.clone();
                arguments["id"] = json!(id);
                let (error, text) = shop.call_refused(tool, arguments).await;
                assert_eq!(error["code"], "NOT_FOUND", "{tool} {id}: {text}");
                answers.push(format!("{error} {text}").replace(id, "ID"));
            }
            assert_eq!(answers[0], answers[1], "{tool} {id}");
        }
    }
    let own_plan = shop.create_plan(plan).await;
    let (own, _) = shop.call_ok("execute", json!({ "id": own_plan })).await;
    for client in [&mut shop, &mut hands] {
        let (debug, _) = client.call_ok("debug", json!({ "id": own["executionId"] })).await;
        assert_eq!(debug["executions"][0]["executionId"], own["executionId"]);
    }
}

#[tokio::test]
async fn requests_with_a_foreign_host_or_origin_are_refused() {
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
async fn invalid_messages_get_an_error_and_any_fitting_accept_header_is_served() {
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
async fn the_newest_protocol_version_works_over_http_and_stdio() {
    let server = Server::new(None).await;
    let own = json!({
        "command": faber(), "args": ["mcp", "--store", "memory:"], "cwd": server.workspace.path("."),
        "env": { "HOME": server.workspace.path(".") }, "newest": true,
    });
    for place in [json!({ "url": server.url, "newest": true }), own] {
        let mut client = Client::connect(&place).await;
        assert_eq!(client.server_info["protocol"], "2026-07-28", "{}", client.server_info);
        let plan = client
            .create_plan(r#"{"tools":[{"id":"e","name":"flow.echo","parameters":{"n":1}}]}"#)
            .await;
        let answer = client.call("execute", json!({ "id": plan })).await;
        let done = &answer["result"]["structuredContent"];
        assert_eq!((&done["state"], &done["outputs"]["e"]["n"]), (&json!("COMPLETED"), &json!(1)));
        assert!(!progress_values(&answer).is_empty(), "{answer:#}");
        let (error, _) = client.call_refused("debug", json!({ "id": "req_1_aaaaaaaaa" })).await;
        assert_eq!(error["code"], "NOT_FOUND");
        assert_eq!(client.call("nobody", json!({})).await["refused"]["code"], -32602);
    }
}
