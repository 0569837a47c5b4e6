//! Traces of the real binary. A collector decodes them with the official definitions of OTLP.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Stdio,
};

use serde_json::{Value, json};
use tests::{
    installed::{find_path, find_program},
    toolset::MAX_WAIT,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::{Duration, interval, timeout},
};

use super::{access::Socket, running_command::RunningCommand, workspace::Workspace};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER_SPAN_ID: &str = "00f067aa0ba902b7";

fn traceparent() -> String {
    format!("00-{TRACE_ID}-{CALLER_SPAN_ID}-01")
}

/// A collector that writes spans to a file. Its process is killed when this value is dropped.
struct Collector {
    _process: Child,
    endpoint: String,
    file: PathBuf,
}

impl Collector {
    async fn start(workspace: &Workspace) -> Self {
        let file = workspace.path("spans.jsonl");
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("otlp/receiver.py");
        let mut command = Command::new(find_program("python3"));
        command.arg(script).arg(&file).env("PYTHONPATH", find_path("FABER_TEST_OTLP", "otlp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = timeout(MAX_WAIT, lines.next_line()).await.expect("the collector starts");
        let port = port.unwrap().expect("the collector prints its port");
        Self { _process: process, endpoint: format!("http://127.0.0.1:{port}"), file }
    }

    /// Returns the received spans by id. Fails if a span was received twice with different content.
    fn spans(&self) -> BTreeMap<String, Value> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let mut spans: BTreeMap<String, Value> = BTreeMap::new();
        for line in text.lines() {
            let span: Value = serde_json::from_str(line).unwrap();
            let id = text_of(&span, "span").to_owned();
            if let Some(before) = spans.get(&id) {
                for key in ["trace", "parent", "name", "start", "end", "status"] {
                    assert_eq!(before[key], span[key], "{key} of {before} and {span}");
                }
            }
            spans.insert(id, span);
        }
        spans
    }

    async fn wait_for_span(&self, name: &str) {
        let mut poll = interval(Duration::from_millis(50));
        let waiting = async {
            while !self.spans().values().any(|span| text_of(span, "name") == name) {
                poll.tick().await;
            }
        };
        timeout(MAX_WAIT, waiting).await.unwrap_or_else(|_| panic!("no span `{name}` arrives"));
    }

    fn spawn(&self, workspace: &Workspace, arguments: &[&str]) -> RunningCommand {
        let mut command = workspace.command(arguments);
        command
            .env("PATH", "/usr/bin:/bin")
            .env("FABER_LOG", "faber::execution=info")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.endpoint)
            .env("OTEL_BSP_SCHEDULE_DELAY", "50");
        RunningCommand::new(command.spawn().unwrap())
    }
}

fn text_of<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {span}"))
}

fn check_one_trace(spans: &BTreeMap<String, Value>) {
    for span in spans.values() {
        assert_eq!(text_of(span, "trace"), TRACE_ID, "{span}");
        let parent = text_of(span, "parent");
        assert!(parent == CALLER_SPAN_ID || spans.contains_key(parent), "an orphan: {span}");
        assert!(span["start"].as_u64() <= span["end"].as_u64(), "{span}");
        assert_eq!(span["resource"]["service.name"], "faber");
    }
}

fn list_outcomes<'a>(spans: &'a BTreeMap<String, Value>, tool: &str) -> Vec<(i64, &'a str)> {
    let name = format!("execute_tool {tool}");
    let own = spans.values().filter(|span| text_of(span, "name") == name);
    let attempts = own.map(|span| {
        let attempt = text_of(&span["attributes"], "faber.step.attempt").parse().unwrap();
        (attempt, text_of(&span["attributes"], "faber.step.outcome"))
    });
    let mut attempts: Vec<_> = attempts.collect();
    attempts.sort_unstable();
    attempts
}

fn write_tools(workspace: &Workspace) {
    let slow = "test -e go || exec sleep 600; echo $TRACEPARENT";
    let tools = json!([
        { "name": "quick", "effect": "read", "run": { "command": ["sh", "-c", "echo $TRACEPARENT"] } },
        { "name": "slow", "effect": "read", "run": { "command": ["sh", "-c", slow] } },
    ]);
    let sets = json!([{ "name": "local", "active": true, "source": { "tools": tools } }]);
    workspace
        .file("faber.yaml", &json!({ "store": "sqlite:./faber.db", "toolsets": sets }).to_string());
    let plan = json!({ "tools": [
        { "id": "first", "name": "local.quick" },
        { "id": "list", "name": "flow.echo", "parameters": { "items": [1, 2] } },
        { "id": "each", "name": "flow.noop", "dependsOn": ["first"], "forEach": "{{list.items}}" },
        { "id": "wait", "name": "local.slow", "dependsOn": ["each"] },
        { "id": "last", "name": "local.quick", "dependsOn": ["wait"] },
    ] });
    workspace.file("plan.json", &plan.to_string());
}

/// Returns the spans that `faber trace export` prints: id, parent, name, start and end of each
/// span.
fn exported_spans(document: &Value) -> BTreeSet<String> {
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let describe = |span: &Value| {
        ["spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano"]
            .map(|key| text_of(span, key).to_owned())
            .join(" ")
    };
    spans.iter().map(describe).collect()
}

fn received_log_spans(spans: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let is_of_log = |span: &&Value| {
        let name = text_of(span, "name");
        name.starts_with("invoke_workflow ") || name.starts_with("execute_tool ")
    };
    let describe = |span: &Value| {
        let [id, parent, name] = ["span", "parent", "name"].map(|key| text_of(span, key));
        format!("{id} {parent} {name} {} {}", span["start"], span["end"])
    };
    spans.values().filter(is_of_log).map(describe).collect()
}

#[tokio::test]
async fn a_trace_stays_whole_when_its_worker_is_killed() {
    let workspace = Workspace::new();
    write_tools(&workspace);
    let collector = Collector::start(&workspace).await;
    let mut server = collector.spawn(&workspace, &["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap().to_owned();
    let mut command = workspace.command(&["run", "--plan", "plan.json", "--server", &url]);
    command.env("TRACEPARENT", traceparent());
    let mut run = RunningCommand::new(command.spawn().unwrap());
    server.wait_for_line("execution started").await;
    run.wait_for_line("each").await;
    collector.wait_for_span("execute_tool flow.noop").await;
    server.signal("-KILL");
    run.signal("-KILL");
    // Removes the spans that the lost worker sent, because a worker can be killed before it sends
    // any.
    fs::remove_file(&collector.file).unwrap();
    fs::write(workspace.path("go"), "").unwrap();

    let mut worker = collector.spawn(&workspace, &["worker"]);
    let ended = worker.wait_for_line("execution ended").await;
    assert!(ended.contains("COMPLETED") && ended.contains(TRACE_ID), "{ended}");
    worker.signal("-TERM");
    assert_eq!(worker.wait_for_exit().await.status, 0);

    let spans = collector.spans();
    check_one_trace(&spans);
    let roots: Vec<&Value> = spans
        .values()
        .filter(|span| text_of(span, "name").starts_with("invoke_workflow "))
        .collect();
    let [root] = roots[..] else { panic!("{roots:?}") };
    assert_eq!(text_of(root, "parent"), CALLER_SPAN_ID);
    assert_eq!(root["attributes"]["faber.execution.state"], "COMPLETED");
    assert_eq!(root["events"][0]["name"], "taken_over");
    assert_eq!(list_outcomes(&spans, "local.slow"), [(1, "interrupted"), (2, "succeeded")]);
    assert_eq!(list_outcomes(&spans, "local.quick"), [(1, "succeeded"), (1, "succeeded")]);
    // The loop has a span, and each of its two items has one.
    assert_eq!(list_outcomes(&spans, "flow.noop").len(), 3);

    let id = text_of(&root["attributes"], "faber.execution.id");
    let document = workspace.json(&["trace", "export", id], 0).await;
    assert_eq!(exported_spans(&document), received_log_spans(&spans));
    // Each command got the trace context of its own attempt.
    let execution = workspace.json(&["watch", id], 0).await;
    for step in ["first", "wait", "last"] {
        let output = execution["outputs"][step].as_str().unwrap_or_else(|| panic!("{execution}"));
        let [_, trace, span, flags] = output.split('-').collect::<Vec<_>>()[..] else {
            panic!("`{output}` is no traceparent")
        };
        assert_eq!((trace, flags), (TRACE_ID, "01"));
        assert_eq!(spans[span]["attributes"]["faber.step.id"], step);
    }
}

/// An MCP server that writes the `_meta` of each call to a file.
const MCP_SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "meta", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"},
                             "annotations": {"readOnlyHint": True}}]}
    elif method == "tools/call":
        with open("meta.json", "w") as file:
            json.dump(params.get("_meta", {}), file)
        result = {"content": [{"type": "text", "text": "seen"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

async fn read_answer(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    loop {
        let line = lines.next_line().await.unwrap().expect("the server answers");
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == 2 {
            return message;
        }
    }
}

#[tokio::test]
async fn the_context_of_an_mcp_call_reaches_http_tools_and_mcp_servers() {
    let workspace = Workspace::new();
    let collector = Collector::start(&workspace).await;
    workspace.file("server.py", MCP_SERVER);
    // The collector answers a GET with 501, and the tool fails. The test needs only the request of
    // the tool.
    let http =
        json!({ "http": { "method": "GET", "url": format!("{}/item", collector.endpoint) } });
    let sets = json!([
        { "name": "web", "active": true,
          "source": { "tools": [{ "name": "fetch", "parameters": { "type": "object" }, "run": http }] } },
        { "name": "peer", "active": true,
          "source": { "mcp": { "command": "python3", "args": ["server.py"] } } },
    ]);
    workspace
        .file("faber.yaml", &json!({ "store": "sqlite:./faber.db", "toolsets": sets }).to_string());
    let plan = json!({ "tools": [
        { "id": "ask", "name": "peer.look" },
        { "id": "get", "name": "web.fetch", "dependsOn": ["ask"], "onError": "ignore" },
    ] });
    let plan = workspace.file("plan.json", &plan.to_string());
    let mut save = workspace.command(&["save", "traced", "--plan", &plan]);
    let saved = save.env("PATH", "/usr/bin:/bin").output().await.unwrap();
    assert!(saved.status.success(), "{saved:?}");

    let mut command = workspace.command(&["mcp"]);
    command
        .env("PATH", "/usr/bin:/bin")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .stdin(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    let call = json!({ "name": "execute", "arguments": { "id": "traced" },
        "_meta": { "traceparent": traceparent(), "tracestate": "vendor=1" } });
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ] {
        input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    let answer = timeout(MAX_WAIT, read_answer(&mut lines)).await.expect("the call ends");
    assert_eq!(answer["result"]["structuredContent"]["state"], "COMPLETED", "{answer}");
    drop(input);
    timeout(MAX_WAIT, server.wait()).await.expect("the server ends").unwrap();

    let spans = collector.spans();
    check_one_trace(&spans);
    let find = |name: &str| {
        let found = spans.values().find(|span| text_of(span, "name") == name);
        found.unwrap_or_else(|| panic!("`{name}` is missing: {spans:#?}"))
    };
    let call_span = find("tools/call execute");
    assert_eq!(
        (text_of(call_span, "parent"), call_span["kind"].as_u64()),
        (CALLER_SPAN_ID, Some(2))
    );
    let look = find("execute_tool peer.look");
    assert_eq!(look["attributes"]["mcp.method.name"], "tools/call");
    assert_eq!(look["attributes"]["network.transport"], "pipe");
    let meta: Value =
        serde_json::from_str(&fs::read_to_string(workspace.path("meta.json")).unwrap()).unwrap();
    assert_eq!(meta["traceparent"], format!("00-{TRACE_ID}-{}-01", text_of(look, "span")));
    assert_eq!(meta["tracestate"], "vendor=1");
    let request = find("GET");
    assert_eq!(text_of(request, "parent"), text_of(find("execute_tool web.fetch"), "span"));
    assert_eq!(request["attributes"]["http.response.status_code"], "501");
    assert_eq!(request["kind"].as_u64(), Some(3));
}

/// Runs one operation over a WebSocket until it is complete. Returns its last answer.
async fn run_over_websocket(socket: &mut Socket, id: &str, payload: Value) -> Value {
    socket.send(&json!({ "type": "subscribe", "id": id, "payload": payload })).await;
    let mut last = Value::Null;
    loop {
        let message = socket.receive().await.unwrap();
        match message["type"].as_str() {
            Some("next") => last = message["payload"]["data"].clone(),
            Some("complete") => return last,
            _ => panic!("{message}"),
        }
    }
}

#[tokio::test]
async fn each_operation_of_a_websocket_is_a_span_of_its_caller() {
    let workspace = Workspace::new();
    let collector = Collector::start(&workspace).await;
    let mut server = collector.spawn(&workspace, &["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let address = line.rsplit('/').next().unwrap().to_owned();
    let headers = format!("traceparent: {}\r\n", traceparent());
    let mut socket = Socket::open(&address, "graphql-transport-ws", &headers).await.unwrap();
    socket.send(&json!({ "type": "connection_init" })).await;
    assert_eq!(socket.receive().await.unwrap()["type"], "connection_ack");
    let create = "mutation { createPlan(input: { tools: [{ id: \"a\", name: \"flow.noop\" }] }) { \
                  plan { planId } } }";
    let planned = run_over_websocket(&mut socket, "1", json!({ "query": create })).await;
    let execute = "mutation($id: ID!) { executePlan(planId: $id) { executionId } }";
    let variables = json!({ "id": planned["createPlan"]["plan"]["planId"] });
    // This operation names another span of the same trace as its caller.
    let other = format!("00-{TRACE_ID}-00f067aa0ba902b8-01");
    let payload = json!({ "query": execute, "variables": variables,
        "extensions": { "traceparent": other } });
    let started = run_over_websocket(&mut socket, "2", payload).await;
    let follow = "subscription($id: ID!) { executionEvents(executionId: $id) { type } }";
    let variables = json!({ "id": started["executePlan"]["executionId"] });
    let payload = json!({ "query": follow, "variables": variables });
    let last = run_over_websocket(&mut socket, "3", payload).await;
    assert_eq!(last["executionEvents"]["type"], "finished");
    drop(socket);
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);

    let spans = collector.spans();
    let describe = |span: &&Value| {
        let name = text_of(span, "name").split(' ').next().unwrap();
        (name.to_owned(), text_of(span, "parent").to_owned())
    };
    let in_trace = spans.values().filter(|span| text_of(span, "trace") == TRACE_ID);
    let is_root = |span: &&Value| !spans.contains_key(text_of(span, "parent"));
    let mut roots: Vec<_> = in_trace.filter(is_root).map(|span| describe(&span)).collect();
    roots.sort();
    let root = |name: &str, parent: &str| (name.to_owned(), parent.to_owned());
    let expected = [
        root("invoke_workflow", "00f067aa0ba902b8"),
        root("mutation", CALLER_SPAN_ID),
        root("mutation", "00f067aa0ba902b8"),
        root("subscription", CALLER_SPAN_ID),
    ];
    assert_eq!(roots, expected, "{spans:#?}");
}

#[tokio::test]
async fn nothing_is_exported_without_a_variable() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop","id":"one"}]}"#);
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    let id = done["executionId"].as_str().unwrap();
    let document = workspace.json(&["trace", "export", id], 0).await;
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let names: Vec<&str> = spans.iter().map(|span| text_of(span, "name")).collect();
    let root = format!("invoke_workflow {}", done["planId"].as_str().unwrap());
    assert_eq!(names, [root.as_str(), "execute_tool flow.noop"]);
    assert_eq!(spans[0]["parentSpanId"], "");
    assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
    let mut command = workspace.command(&["run", "--plan", &plan]);
    command.env("OTEL_TRACES_EXPORTER", "zipkin");
    let warned = String::from_utf8(command.output().await.unwrap().stderr).unwrap();
    assert!(
        warned.contains("spans are not exported: `OTEL_TRACES_EXPORTER` is `zipkin`"),
        "{warned}"
    );
}
