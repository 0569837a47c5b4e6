//! Access tokens: the real binary over HTTP and WebSockets, with and without tokens.

use std::net::UdpSocket;

use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{running_command::RunningCommand, workspace::Workspace};

pub(super) const VIEWER: &str = "viewer-token-0123456789";
pub(super) const OPERATOR: &str = "operator-token-0123456789";
pub(super) const ADMIN: &str = "admin-token-0123456789";
/// The token of an operator with one tool and a low limit on calls.
const ONE_TOOL_OPERATOR: &str = "narrow-token-0123456789";

const CONFIG: &str = r#"
toolsets:
  - name: local
    source:
      tools:
        - { name: hello, description: Says hello., effect: read, parameters: { type: object }, run: { command: [echo, hello] } }
        - { name: secret, description: Says more., effect: read, parameters: { type: object }, run: { command: [echo, more] } }
access:
  tokens:
    - { name: eyes, token_env: T_VIEWER, role: viewer }
    - { name: hands, token_env: T_OPERATOR, role: operator }
    - { name: owner, token_env: T_ADMIN, role: admin }
    - { name: narrow, token_env: T_NARROW, role: operator, tools: ["local.h*"], limits: { per_tool: 3/h } }
"#;

pub(super) struct Server {
    workspace: Workspace,
    process: RunningCommand,
    address: String,
}

impl Server {
    pub(super) async fn new() -> Self {
        Self::with_config(CONFIG).await
    }

    pub(super) async fn with_config(config: &str) -> Self {
        let workspace = Workspace::new();
        workspace.file("faber.yaml", config);
        std::fs::create_dir_all(workspace.path("work")).unwrap();
        let mut command = workspace.command(&["serve", "--listen", "127.0.0.1:0"]);
        for (name, token) in [
            ("T_VIEWER", VIEWER),
            ("T_OPERATOR", OPERATOR),
            ("T_ADMIN", ADMIN),
            ("T_NARROW", ONE_TOOL_OPERATOR),
        ] {
            command.env(name, token);
        }
        command.env("FABER_LOG", "debug");
        let mut process = RunningCommand::new(command.spawn().unwrap());
        let line = process.wait_for_line("listening on http://").await;
        let address = line.rsplit('/').next().unwrap().to_owned();
        Self { workspace, process, address }
    }

    pub(super) async fn graphql(&self, token: &str, query: &str, variables: Value) -> (u16, Value) {
        let body = json!({ "query": query, "variables": variables }).to_string();
        let answer = self.post(&format!("Authorization: Bearer {token}\r\n"), &body).await;
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    }

    async fn post(&self, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let head = format!(
            "POST /graphql HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n{headers}\r\n{body}",
            self.address
        );
        send_request(&self.address, &head).await
    }

    pub(super) async fn get(&self, path: &str, headers: &str) -> Answer {
        let head = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n{headers}\r\n", self.address);
        send_request(&self.address, &head).await
    }

    /// Runs an operation that must be refused. Returns the code and the message of the error.
    pub(super) async fn expect_refusal(&self, token: &str, query: &str) -> (String, String) {
        let (_, answer) = self.graphql(token, query, json!({})).await;
        let error = &answer["errors"][0];
        let code = error["extensions"]["code"].as_str();
        let code = code.unwrap_or_else(|| panic!("{query}: {answer}"));
        (code.to_owned(), error["message"].as_str().unwrap().to_owned())
    }

    pub(super) async fn expect_data(&self, token: &str, query: &str, variables: Value) -> Value {
        let (status, mut answer) = self.graphql(token, query, variables).await;
        assert!(status == 200 && answer.get("errors").is_none(), "{query}: {answer}");
        answer["data"].take()
    }

    pub(super) async fn run(&self, token: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let url = format!("http://{}", self.address);
        let mut command = self.workspace.command(&[arguments, &["--server", &url]].concat());
        let output = command.env("FABER_TOKEN", token).output().await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(super) async fn wait_for_exit(self) -> String {
        self.process.signal("-TERM");
        self.process.wait_for_exit().await.err
    }
}

pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    body: String,
}

async fn send_request(address: &str, request: &str) -> Answer {
    let talk = async {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = timeout(MAX_WAIT, talk).await.expect("the server answers");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// A configuration whose token pattern `file_tools.*` leaves out the name `files` of the toolset.
const FILES_CONFIG: &str = r#"
toolsets:
  - { name: files, source: { builtin: file_tools, root: ./work } }
access:
  tokens:
    - { name: ci, token_env: T_OPERATOR, role: operator, tools: ["file_tools.*", "nope.*"] }
"#;

#[tokio::test]
async fn token_patterns_match_built_in_tools_by_the_names_that_callers_use() {
    let mut server = Server::with_config(FILES_CONFIG).await;
    let line = server.process.wait_for_line("no tool matches").await;
    assert!(line.contains("`nope.*` of the token `ci`") && !line.contains("file_tools"), "{line}");
    let tools = server.expect_data(OPERATOR, "{ tools { name } }", json!({})).await;
    assert_eq!(tools["tools"].as_array().map(Vec::len), Some(5), "{tools}");
    for name in ["file_tools.glob", "files.file_tools.glob", "glob"] {
        let call = "mutation($n: String!) { callTool(name: $n, parameters: { pattern: \"*\" }) { status } }";
        let called = server.expect_data(OPERATOR, call, json!({ "n": name })).await;
        assert_eq!(called["callTool"]["status"], "success", "{called}");
    }
    let other = r#"mutation { callTool(name: "flow.echo", parameters: {}) { status } }"#;
    assert_eq!(server.expect_refusal(OPERATOR, other).await.0, "FORBIDDEN");
    let doctor =
        server.workspace.command(&["doctor"]).env("T_OPERATOR", OPERATOR).output().await.unwrap();
    let output = String::from_utf8(doctor.stdout).unwrap();
    assert!(output.contains("no tool matches `nope.*` of the token `ci`"), "{output}");
    server.wait_for_exit().await;
}

#[tokio::test]
async fn requests_without_a_valid_token_are_unauthenticated() {
    let server = Server::new().await;
    let query = r#"{"query":"{ tools { name } }"}"#;
    for headers in
        ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic dTpw\r\n", "X-Token: x\r\n"]
    {
        let accept = format!("{headers}Accept: application/graphql-response+json\r\n");
        let answer = server.post(&accept, query).await;
        assert_eq!(answer.status, 401, "{headers}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        assert!(answer.head.contains("application/graphql-response+json"), "{}", answer.head);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["errors"][0]["extensions"]["code"], "UNAUTHENTICATED");
        assert!(body.get("data").is_none(), "{body}");
    }
    let stream = server.post("Accept: text/event-stream\r\n", query).await;
    assert_eq!(stream.status, 401);
    let path = "/graphql?query=%7B__typename%7D";
    assert_eq!(server.get(path, "").await.status, 401);
    let header = format!("Authorization: Bearer {VIEWER}\r\n");
    let answer = server.get(path, &header).await;
    assert!(answer.status == 200 && answer.body.contains("Query"), "{}", answer.body);
    let stream = server.post(&format!("{header}Accept: text/event-stream\r\n"), query).await;
    assert!(stream.status == 200 && stream.body.contains("event: complete"), "{}", stream.body);
    for page in ["/health/live", "/health/ready"] {
        assert_eq!(server.get(page, "").await.status, 200, "{page}");
    }
    assert_eq!(server.get("/metrics", "").await.status, 401);
    for _ in 0..6 {
        server.post("Authorization: Bearer guessed-by-somebody\r\n", query).await;
    }
    let figures = server.get("/metrics", &header).await.body;
    assert!(!figures.contains("faber_alerts_total{kind=\"bad_tokens\"} 0"), "{figures}");
    let log = server.wait_for_exit().await;
    assert!(log.contains("one peer sends unknown access tokens"), "{log}");
    for token in [VIEWER, OPERATOR, ADMIN, "guessed-by-somebody"] {
        assert!(!log.contains(token), "{log}");
    }
}

#[tokio::test]
async fn an_operation_beyond_the_role_of_a_token_is_forbidden() {
    let server = Server::new().await;
    let plan = r#"mutation { createPlan(input: { tools: [{ name: "hello", parameters: {} }] }) { plan { planId } } }"#;
    let context = r#"mutation { setContext(name: "c", data: { n: 1 }) }"#;
    let reply = r#"{ parseToolCalls(text: "hello()") { tool } }"#;
    for (token, query, needed) in [
        (VIEWER, plan, "operator"),
        (VIEWER, reply, "operator"),
        (VIEWER, r#"mutation { x: callTool(name: "hello") { status } }"#, "operator"),
        (VIEWER, context, "admin"),
        (OPERATOR, context, "admin"),
        (OPERATOR, r#"mutation { removeTool(name: "hello") }"#, "admin"),
        (OPERATOR, r#"mutation { deactivateToolSets(names: ["local"]) { changed } }"#, "admin"),
        (OPERATOR, r"mutation { bulkControl(filter: {}, action: CANCEL) }", "admin"),
    ] {
        let (code, message) = server.expect_refusal(token, query).await;
        assert_eq!(code, "FORBIDDEN", "{query}: {message}");
        assert!(message.contains(&format!("needs the role `{needed}`")), "{message}");
    }
    let tools =
        server.expect_data(VIEWER, "{ tools(toolSet: \"local\") { name } }", json!({})).await;
    assert_eq!(tools["tools"].as_array().unwrap().len(), 2);
    for token in [OPERATOR, ADMIN] {
        server.expect_data(token, plan, json!({})).await;
        server.expect_data(token, reply, json!({})).await;
    }
    server.expect_data(ADMIN, context, json!({})).await;
    // The tool `ToolSet.activate_toolset` must need the same role as the mutation, because it has
    // the same effect.
    let switch = r#"mutation { callTool(name: "ToolSet.activate_toolset", parameters: { name: "file_tools" }) { status } }"#;
    assert_eq!(server.expect_refusal(OPERATOR, switch).await.0, "FORBIDDEN");
    server.wait_for_exit().await;
}

#[tokio::test]
async fn a_token_sees_and_calls_only_its_tools_within_its_limits() {
    let server = Server::new().await;
    let names = server
        .expect_data(ONE_TOOL_OPERATOR, "{ tools { qualifiedName } toolSets { name } }", json!({}))
        .await;
    assert_eq!(names["tools"], json!([{ "qualifiedName": "local.hello" }]));
    let hidden = server
        .expect_data(ONE_TOOL_OPERATOR, "{ tool(name: \"secret\") { name } }", json!({}))
        .await;
    assert_eq!(hidden["tool"], Value::Null);
    let schemas = server.expect_data(ONE_TOOL_OPERATOR, "{ toolSchemas }", json!({})).await;
    assert!(!schemas.to_string().contains("Says more"), "{schemas}");

    let create = "mutation($tools: [ToolExecutionInput!]!) { createPlan(input: { tools: $tools }) { \
                  plan { planId } diagnostics { code } } }";
    let plan = async |tools: Value| {
        let made = server.expect_data(ADMIN, create, json!({ "tools": tools })).await;
        made["createPlan"]["plan"]["planId"].as_str().unwrap().to_owned()
    };
    let outside = plan(json!([{ "name": "secret", "parameters": {} }])).await;
    let around = plan(json!([{ "plan": outside }])).await;
    let undoing = plan(json!([{ "name": "hello", "parameters": {},
        "compensate": { "name": "secret", "parameters": {} } }]))
    .await;
    for query in [
        r#"mutation { callTool(name: "secret") { status } }"#.to_owned(),
        r#"mutation { createPlan(input: { tools: [{ name: "local.secret", parameters: {} }] }) { plan { planId } } }"#.to_owned(),
        r#"{ validatePlan(input: { tools: [{ name: "secret", parameters: {} }] }) { plan { planId } } }"#.to_owned(),
        format!(r#"mutation {{ executePlan(planId: "{outside}") {{ state }} }}"#),
        format!(r#"mutation {{ executePlan(planId: "{around}") {{ state }} }}"#),
        format!(r#"mutation {{ executePlan(planId: "{undoing}") {{ state }} }}"#),
        format!(r#"mutation {{ createPlan(input: {{ tools: [{{ plan: "{outside}" }}] }}) {{ plan {{ planId }} }} }}"#),
    ] {
        let (code, message) = server.expect_refusal(ONE_TOOL_OPERATOR, &query).await;
        assert_eq!(code, "FORBIDDEN", "{query}: {message}");
        assert!(message.contains("`local.secret`"), "{query}: {message}");
    }
    let call = r#"mutation { callTool(name: "hello") { status } }"#;
    server
        .expect_data(ADMIN, r#"mutation { callTool(name: "secret") { status } }"#, json!({}))
        .await;
    for _ in 0..2 {
        let called = server.expect_data(ONE_TOOL_OPERATOR, call, json!({})).await;
        assert_eq!(called["callTool"]["status"], "success");
    }
    let history =
        server.expect_data(ONE_TOOL_OPERATOR, "{ toolHistory { tool } }", json!({})).await;
    assert_eq!(history["toolHistory"].as_array().unwrap().len(), 2, "{history}");
    let own = plan(json!([{ "name": "hello", "parameters": {} }])).await;
    let execute = format!(r#"mutation {{ executePlan(planId: "{own}") {{ executionId }} }}"#);
    server.expect_data(ONE_TOOL_OPERATOR, &execute, json!({})).await;
    for query in [call, &execute] {
        let (code, message) = server.expect_refusal(ONE_TOOL_OPERATOR, query).await;
        assert_eq!(code, "LIMIT_EXCEEDED");
        assert!(message.contains("`per_tool` of `local.hello`"), "{message}");
    }
    server.expect_data(OPERATOR, call, json!({})).await;
    let figures = server.get("/metrics", &format!("Authorization: Bearer {ADMIN}\r\n")).await.body;
    for figure in ["{kind=\"forbidden_tool\"} 7", "{kind=\"limit\"} 2"] {
        assert!(figures.contains(&format!("faber_alerts_total{figure}")), "{figure}: {figures}");
    }
    server.wait_for_exit().await;
}

pub(super) struct Socket(TcpStream);

impl Socket {
    /// Opens a WebSocket. The error is the HTTP status.
    pub(super) async fn open(address: &str, protocol: &str, headers: &str) -> Result<Self, u16> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET /graphql HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: {protocol}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        match answer.split(' ').nth(1).unwrap().parse().unwrap() {
            101 => Ok(Self(stream)),
            status => Err(status),
        }
    }

    pub(super) async fn send(&mut self, message: &Value) {
        let text = message.to_string();
        // Builds a masked text frame whose length field has 16 bits. The mask is zero, so the text
        // does not change.
        let mut frame = vec![0x81, 0x80 | 0x7e];
        frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.write_all(&frame).await.unwrap();
    }

    /// Returns the next message. The error is the close code of the server.
    pub(super) async fn receive(&mut self) -> Result<Value, u16> {
        let reading = async {
            let (kind, length) =
                (self.0.read_u8().await.unwrap() & 0xf, self.0.read_u8().await.unwrap());
            let length = match length {
                126 => usize::from(self.0.read_u16().await.unwrap()),
                length => usize::from(length),
            };
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).await.unwrap();
            match kind {
                1 => Ok(serde_json::from_slice(&payload).unwrap()),
                8 => Err(u16::from_be_bytes([payload[0], payload[1]])),
                kind => panic!("a frame of kind {kind}"),
            }
        };
        timeout(MAX_WAIT, reading).await.expect("the server sends a message")
    }
}

#[tokio::test]
async fn a_websocket_needs_a_token_in_its_first_message_or_header() {
    const CURRENT_PROTOCOL: &str = "graphql-transport-ws";
    let server = Server::new().await;
    let address = server.address.as_str();
    let init = |payload: Value| json!({ "type": "connection_init", "payload": payload });
    let bearer = format!("Bearer {VIEWER}");
    for payload in [
        json!({ "Authorization": bearer }),
        json!({ "authorization": bearer }),
        json!({ "token": VIEWER }),
    ] {
        let mut socket = Socket::open(address, CURRENT_PROTOCOL, "").await.unwrap();
        socket.send(&init(payload)).await;
        assert_eq!(socket.receive().await.unwrap()["type"], "connection_ack");
        let query = "mutation { setContext(name: \"c\", data: {}) }";
        socket
            .send(&json!({ "type": "subscribe", "id": "1", "payload": { "query": query } }))
            .await;
        let answer = socket.receive().await.unwrap();
        assert!(answer.to_string().contains("FORBIDDEN"), "{answer}");
    }
    let header = format!("Authorization: {bearer}\r\n");
    let mut socket = Socket::open(address, CURRENT_PROTOCOL, &header).await.unwrap();
    socket.send(&json!({ "type": "connection_init" })).await;
    assert_eq!(socket.receive().await.unwrap()["type"], "connection_ack");
    assert_eq!(
        Socket::open(address, CURRENT_PROTOCOL, "Authorization: Bearer no\r\n").await.err(),
        Some(401)
    );
    for payload in [json!({}), json!({ "token": "no" }), json!({ "token": 7 })] {
        let mut socket = Socket::open(address, CURRENT_PROTOCOL, "").await.unwrap();
        socket.send(&init(payload)).await;
        assert_eq!(socket.receive().await, Err(4403));
    }
    let mut socket = Socket::open(address, CURRENT_PROTOCOL, "").await.unwrap();
    socket
        .send(&json!({ "type": "subscribe", "id": "1", "payload": { "query": "{ __typename }" } }))
        .await;
    assert_eq!(socket.receive().await, Err(4401));
    let mut old = Socket::open(address, "graphql-ws", "").await.unwrap();
    old.send(&init(json!({}))).await;
    assert_eq!(old.receive().await.unwrap()["type"], "connection_error");
    assert_eq!(old.receive().await, Err(4403));
    server.wait_for_exit().await;
}

#[tokio::test]
async fn commands_send_the_token_of_their_environment() {
    let server = Server::new().await;
    let url = format!("http://{}", server.address);
    let run = async |token: Option<&str>, arguments: &[&str]| {
        let arguments = [arguments, &["--json", "--server", &url]].concat();
        let mut command = server.workspace.command(&arguments);
        token.map(|token| command.env("FABER_TOKEN", token));
        let output = timeout(MAX_WAIT, command.output()).await.expect("the command ends").unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), serde_json::from_str::<Value>(&out).unwrap())
    };
    let (status, answer) = run(None, &["list", "executions"]).await;
    assert_eq!((status, &answer["error"]["code"]), (Some(2), &json!("UNAUTHENTICATED")));
    assert!(answer.to_string().contains("FABER_TOKEN"), "{answer}");
    assert_eq!(run(Some(VIEWER), &["list", "executions"]).await.0, Some(0));
    let plan = r#"{"tools":[{"name":"hello","parameters":{}}]}"#;
    let plan = server.workspace.file("plan.json", plan);
    let (status, answer) = run(Some(VIEWER), &["run", "--plan", &plan]).await;
    assert_eq!((status, &answer["error"]["code"]), (Some(2), &json!("FORBIDDEN")));
    // `run` also subscribes to events, and the server accepts the same token for the subscription.
    let (status, answer) = run(Some(OPERATOR), &["run", "--plan", &plan]).await;
    assert_eq!((status, &answer["state"]), (Some(0), &json!("COMPLETED")));
    // Without `--server`, a command opens the store itself, so it needs no token.
    assert_eq!(server.workspace.run(&["list", "executions"]).await.status, 0);
    server.wait_for_exit().await;
}

#[tokio::test]
async fn an_unset_token_variable_is_an_error_and_config_hides_tokens() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", CONFIG);
    let refused = workspace.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("set `T_VIEWER` in Faber's environment"), "{refused:?}");
    let mut command = workspace.command(&["config", "--json"]);
    command.env("T_VIEWER", VIEWER).env("FABER_TOKEN", ADMIN);
    let text = String::from_utf8(command.output().await.unwrap().stdout).unwrap();
    assert!(!text.contains(VIEWER) && !text.contains(ADMIN), "{text}");
    let text: Value = serde_json::from_str(&text).unwrap();
    let narrow = &text["access"]["value"][3];
    assert_eq!((&narrow["role"], &narrow["tools"]), (&json!("operator"), &json!(["local.h*"])));
}

fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
        .filter(|address| !address.is_loopback() && !address.is_unspecified())
}

#[tokio::test]
async fn a_server_without_tokens_refuses_other_machines() {
    let workspace = Workspace::new();
    let mut server = workspace.spawn(&["serve", "--listen", "0.0.0.0:0", "--store", "memory:"]);
    let line = server.wait_for_line("listening on http://").await;
    let port = line.rsplit(':').next().unwrap();
    let get = async |address: &str, path: &str| {
        send_request(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")).await
    };
    let near = format!("127.0.0.1:{port}");
    let query = "/graphql?query=%7B__typename%7D";
    assert_eq!(get(&near, query).await.status, 200);
    // A machine without a network has only the loopback address.
    if let Some(far) = own_address() {
        let far = format!("{far}:{port}");
        for path in [query, "/graphiql", "/metrics", "/"] {
            let answer = get(&far, path).await;
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.body.contains("access.tokens"), "{}", answer.body);
        }
        assert_eq!(get(&far, "/health/live").await.status, 200);
    }
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
}
