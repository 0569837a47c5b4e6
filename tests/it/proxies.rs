//! The examples of `docs/how-to/proxies.md`: real proxies in front of the real binary, below a
//! path.
//!
//! The tests take the examples from the page. They change only the address of Faber and the address
//! at which the proxy listens, which is a Unix socket without TLS.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use tests::{installed::find_path, toolset::MAX_WAIT};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::{Child, Command},
    time::{interval, timeout},
};

use crate::cli::{running_command::RunningCommand, workspace::Workspace};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
const PAGE: &str = "docs/how-to/proxies.md";
const CONFIG: &str = "server:
  allowed_hosts: [faber.example]
  allowed_origins: [https://app.example]
  path_prefix: /faber
";
const OWN_PAGE: &str = "Origin: https://faber.example\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

/// A way in which a proxy passes the path to Faber.
#[derive(Clone, Copy, Debug)]
enum Prefix {
    Kept,
    Removed,
}

fn example(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let text = fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

fn replace_once(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "`{from}` in {text}");
    text.replace(from, to)
}

/// A proxy that listens on a Unix socket. It is killed when it is dropped.
struct Proxy {
    _process: Child,
    socket: PathBuf,
}

impl Proxy {
    async fn start_nginx(folder: &Path, faber: &str, prefix: Prefix) -> Self {
        let socket = folder.join("proxy.sock");
        let slash = if matches!(prefix, Prefix::Removed) { "/" } else { "" };
        let block = example("nginx");
        let block =
            replace_once(&block, "listen 443 ssl;", &format!("listen unix:{};", socket.display()));
        let block =
            replace_once(&block, "http://127.0.0.1:8080;", &format!("http://{faber}{slash};"));
        let is_tls = |line: &&str| line.trim_start().starts_with("ssl_certificate");
        let block: Vec<&str> = block.lines().filter(|line| !is_tls(line)).collect();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths =
            paths.map(|name| format!("{name}_temp_path {};\n", folder.join(name).display()));
        let config = format!(
            "daemon off;\nmaster_process off;\npid {}/pid;\nerror_log stderr;\nevents {{}}\n\
             http {{\naccess_log off;\n{}{}\n}}\n",
            folder.display(),
            paths.concat(),
            block.join("\n"),
        );
        let file = folder.join("nginx.conf");
        fs::write(&file, config).unwrap();
        let mut command = Command::new(find_path("FABER_TEST_NGINX", "nginx"));
        command.arg("-c").arg(file).arg("-p").arg(folder);
        Self::start(command, socket).await
    }

    async fn start_caddy(folder: &Path, faber: &str, prefix: Prefix) -> Self {
        let socket = folder.join("proxy.sock");
        let block = example("caddy");
        let block = replace_once(&block, "127.0.0.1:8080", faber);
        let site = format!("http://faber.example {{\n\tbind unix/{}", socket.display());
        let mut block = replace_once(&block, "faber.example {", &site);
        if matches!(prefix, Prefix::Removed) {
            block = replace_once(&block, "handle ", "handle_path ");
        }
        let file = folder.join("Caddyfile");
        fs::write(&file, format!("{{\n\tadmin off\n\tpersist_config off\n}}\n{block}")).unwrap();
        let mut command = Command::new(find_path("FABER_TEST_CADDY", "caddy/caddy"));
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
        command.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
        Self::start(command, socket).await
    }

    async fn start(mut command: Command, socket: PathBuf) -> Self {
        let log = socket.with_file_name("log");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .kill_on_drop(true);
        let process = command.spawn().unwrap();
        let mut poll = interval(POLL_INTERVAL);
        let listening = async {
            while UnixStream::connect(&socket).await.is_err() {
                poll.tick().await;
            }
        };
        let result = timeout(MAX_WAIT, listening).await;
        assert!(result.is_ok(), "the proxy does not listen: {}", fs::read_to_string(log).unwrap());
        Self { _process: process, socket }
    }

    async fn open(&self, start: &str, headers: &str, body: &str) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        let length = body.len();
        let request = format!(
            "{start} HTTP/1.1\r\nHost: faber.example\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn send(&self, start: &str, headers: &str, body: &str) -> String {
        let headers = format!("Connection: close\r\n{headers}");
        let mut stream = self.open(start, &headers, body).await;
        let mut answer = Vec::new();
        timeout(MAX_WAIT, stream.read_to_end(&mut answer)).await.expect("an answer").unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path}"), "", "").await
    }

    async fn data(&self, query: &str) -> Value {
        let body = json!({ "query": query }).to_string();
        let answer = self.send("POST /faber/graphql", &format!("{JSON}{OWN_PAGE}"), &body).await;
        assert_status(&answer, 200);
        assert_header(&answer, "access-control-allow-origin: https://faber.example");
        let (start, end) = (answer.find("{\"").unwrap(), answer.rfind('}').unwrap());
        let mut answer: Value = serde_json::from_str(&answer[start..=end]).unwrap();
        assert_eq!(answer["errors"], Value::Null, "{answer}");
        answer["data"].take()
    }
}

/// Reads from a connection until the text arrives. The connection stays open.
async fn read_until(stream: &mut UnixStream, part: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if text.contains(part) {
                return text;
            }
            let mut buffer = [0; 4_096];
            let length = stream.read(&mut buffer).await.unwrap();
            assert!(length > 0, "the connection ended before `{part}`: {text}");
            read.extend_from_slice(&buffer[..length]);
        }
    };
    timeout(MAX_WAIT, reading).await.unwrap_or_else(|_| panic!("`{part}` does not arrive"))
}

#[track_caller]
fn assert_status(answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "not {status}: {answer}");
}

#[track_caller]
fn assert_header(answer: &str, header: &str) {
    let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
    assert!(head.contains(header), "no `{header}`: {answer}");
}

async fn start_faber(workspace: &Workspace) -> (RunningCommand, String) {
    workspace.file("faber.yaml", CONFIG);
    let mut process = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    process.wait_for_line("everyone who reaches a proxy on this machine may do everything").await;
    let line = process.wait_for_line("listening on http://").await;
    let address = line.rsplit("http://").next().unwrap().strip_suffix("/faber").unwrap();
    let address = address.to_owned();
    (process, address)
}

async fn check_page(proxy: &Proxy) {
    let page = proxy.get("/faber/").await;
    assert_status(&page, 200);
    let script = page
        .split('"')
        .find(|part| part.starts_with("/faber/assets/index") && part.contains(".js"))
        .unwrap();
    assert!(script.starts_with("/faber/assets/"), "{page}");
    let answer = proxy.get(script).await;
    assert_status(&answer, 200);
    assert_header(&answer, "content-type: text/javascript");
    for path in ["/faber/favicon.svg", "/faber/tools", "/faber/requests/req_1", "/faber/graphiql"] {
        assert_status(&proxy.get(path).await, 200);
    }
    let moved = proxy.get("/faber/tools/").await;
    assert_status(&moved, 308);
    assert_header(&moved, "location: /faber/tools\r\n");
    let answer = proxy.get("/faber").await;
    assert!(answer.contains("/faber/\r\n"), "a redirect to the page: {answer}");
    assert_status(&proxy.get("/faber/health/ready").await, 200);
    assert!(proxy.get("/faber/metrics").await.contains("faber_connections_open"));
}

async fn check_api(proxy: &Proxy) {
    assert_eq!(proxy.data("{ __typename }").await, json!({ "__typename": "Query" }));
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
    } });
    let accept = format!("{JSON}Accept: application/json, text/event-stream\r\n");
    let answer = proxy.send("POST /faber/mcp", &accept, &hello.to_string()).await;
    assert_status(&answer, 200);
    assert!(answer.contains("serverInfo"), "{answer}");
}

async fn check_origins(proxy: &Proxy) {
    let asks = "Access-Control-Request-Method: POST\r\n\
                Access-Control-Request-Headers: authorization, content-type\r\n";
    for origin in ["https://app.example", "https://faber.example"] {
        let headers = format!("Origin: {origin}\r\n{asks}");
        let answer = proxy.send("OPTIONS /faber/graphql", &headers, "").await;
        assert_status(&answer, 204);
        assert_header(&answer, &format!("access-control-allow-origin: {origin}"));
        assert_header(&answer, "authorization");
    }
    for origin in ["https://evil.example", "http://app.example"] {
        let headers = format!("Origin: {origin}\r\n{asks}");
        let answer = proxy.send("OPTIONS /faber/graphql", &headers, "").await;
        assert_status(&answer, 403);
        assert!(!answer.to_lowercase().contains("access-control-allow-origin"), "{answer}");
    }
}

async fn check_websocket(proxy: &Proxy) {
    let headers = format!(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: graphql-transport-ws\r\n{OWN_PAGE}"
    );
    let mut stream = proxy.open("GET /faber/graphql", &headers, "").await;
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert_status(&answer, 101);
    // A masked text frame. The mask is zero, so the text does not change.
    let message = br#"{"type":"connection_init"}"#;
    let mut frame = vec![0x81, 0x80 | u8::try_from(message.len()).unwrap(), 0, 0, 0, 0];
    frame.extend(message);
    stream.write_all(&frame).await.unwrap();
    read_until(&mut stream, "connection_ack").await;
}

async fn check_stream(proxy: &Proxy) {
    let plan = "mutation { createPlan(input: { tools: [{ name: \"flow.wait\", parameters: { name: \"go\" } }] }) \
                { plan { planId } } }";
    let plan = proxy.data(plan).await;
    let id = plan["createPlan"]["plan"]["planId"].as_str().unwrap();
    let execute = format!("mutation {{ executePlan(planId: \"{id}\") {{ executionId }} }}");
    let started = proxy.data(&execute).await;
    let id = started["executePlan"]["executionId"].as_str().unwrap();
    let query = format!("subscription {{ executionEvents(executionId: \"{id}\") {{ type }} }}");
    let body = json!({ "query": query }).to_string();
    let accept = format!("{JSON}Accept: text/event-stream\r\n{OWN_PAGE}");
    let mut stream = proxy.open("POST /faber/graphql", &accept, &body).await;
    let answer = read_until(&mut stream, "\"created\"").await;
    assert_status(&answer, 200);
    proxy.data(&format!("mutation {{ cancelExecution(executionId: \"{id}\") {{ state }} }}")).await;
    read_until(&mut stream, "event: complete").await;
}

async fn check_proxy(proxy: &Proxy) {
    check_page(proxy).await;
    check_api(proxy).await;
    check_origins(proxy).await;
    check_websocket(proxy).await;
    check_stream(proxy).await;
}

#[tokio::test]
async fn faber_works_below_a_path_of_nginx() {
    let workspace = Workspace::new();
    let (process, address) = start_faber(&workspace).await;
    for prefix in [Prefix::Kept, Prefix::Removed] {
        let folder = tempfile::tempdir().unwrap();
        check_proxy(&Proxy::start_nginx(folder.path(), &address, prefix).await).await;
    }
    process.signal("-TERM");
    assert_eq!(process.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn faber_works_below_a_path_of_caddy() {
    let workspace = Workspace::new();
    let (process, address) = start_faber(&workspace).await;
    for prefix in [Prefix::Kept, Prefix::Removed] {
        let folder = tempfile::tempdir().unwrap();
        check_proxy(&Proxy::start_caddy(folder.path(), &address, prefix).await).await;
    }
    process.signal("-TERM");
    assert_eq!(process.wait_for_exit().await.status, 0);
}
