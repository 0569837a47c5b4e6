//! `faber serve`, and commands that talk to it.

use serde_json::json;
use tests::toolset::{is_running, until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::home::{Home, SEED};

/// A server over standard input and output that ends neither with its input nor when it is asked to,
/// and what it leaves to itself.
const STUBBORN: &str = "trap '' TERM HUP; echo $$ > server; \
    setsid sh -c 'echo $$ > away; exec sleep 1000' & while :; do sleep 1; done";

/// Returns the figures of a server. With HTTP/1.0 the end of the connection is that of the answer.
async fn figures(address: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let ask = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn commands_talk_to_a_server() {
    let home = Home::new();
    let mut server = home.begin(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let at = |arguments: &[&str]| -> Vec<String> {
        let all = [arguments, &["--server", url]].concat();
        all.iter().map(|argument| (*argument).to_owned()).collect()
    };
    let run = at(&["run", SEED]);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    let done = home.json(&run, 0).await;
    assert_eq!((&done["state"], &done["total"]), (&json!("COMPLETED"), &json!(2)));
    assert_eq!(home.run(&run).await.status, 1, "the e-mail address is taken");

    let listed = at(&["list", "executions", "--state", "COMPLETED"]);
    let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
    let listed = home.json(&listed, 0).await;
    assert_eq!(listed[0]["executionId"], done["executionId"]);
    let debug = at(&["debug", done["requestId"].as_str().unwrap()]);
    let debug: Vec<&str> = debug.iter().map(String::as_str).collect();
    assert_eq!(home.json(&debug, 0).await["query"], SEED);
    let missing = at(&["watch", "exec_1_aaaaaaaaa"]);
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    assert_eq!(home.json(&missing, 2).await["error"]["code"], "NOT_FOUND");

    let figures = figures(url.trim_start_matches("http://")).await;
    for figure in ["faber_pruned_total{kind=\"execution\"} 0", "faber_calls_waiting 0"] {
        assert!(figures.contains(figure), "{figure}: {figures}");
    }
    let prune = async |age: &str| {
        let prune = at(&["prune", "--older-than", age]);
        home.json(&prune.iter().map(String::as_str).collect::<Vec<_>>(), 0).await
    };
    let nothing = json!({ "executions": 0, "plans": 0, "requests": 0 });
    assert_eq!(prune("1h").await, nothing);
    assert_eq!(prune("0s").await["executions"], 2, "the server removes what is asked for");
    assert_eq!(prune("0s").await, nothing);
    server.signal("-TERM");
    let ended = server.end().await;
    assert_eq!((ended.status, ended.out.as_str()), (0, ""), "{ended:?}");
    assert_eq!(home.run(&run).await.status, 3);
}

#[tokio::test]
async fn strangers_are_warned_of() {
    let home = Home::new();
    let mut server = home.begin(&["serve", "--listen", "0.0.0.0:0", "--store", "memory:"]);
    server.line("no access tokens").await;
    server.line("listening on http://0.0.0.0:").await;
    server.signal("-INT");
    assert_eq!(server.end().await.status, 0);
}

#[tokio::test]
async fn a_worker_executes_what_others_accept() {
    let home = Home::new();
    let plan =
        home.file("plan.json", r#"{"tools":[{"name":"flow.wait","parameters":{"name":"go"}}]}"#);
    let mut run = home.begin(&["run", "--plan", &plan]);
    run.line("waits for signal go").await;
    run.signal("-INT");
    assert_eq!(run.end().await.status, 130);
    let mut worker = home.begin(&["worker"]);
    worker.line("working on sqlite:").await;
    let all = home.json(&["list", "executions"], 0).await;
    let id = all[0]["executionId"].as_str().unwrap();
    assert_eq!(home.run(&["signal", id, "go"]).await.status, 0);
    assert_eq!(home.run(&["watch", id]).await.status, 0);
    worker.signal("-TERM");
    assert_eq!(worker.end().await.status, 0);
}

/// A terminal that is closed sends SIGHUP.
#[tokio::test]
async fn whatever_stays_ends_well_when_it_is_hung_up_on() {
    let home = Home::new();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for (arguments, line) in [(&serve[..], "listening on http://"), (&["worker"], "working on")] {
        let mut begun = home.begin(arguments);
        begun.line(line).await;
        begun.signal("-HUP");
        begun.line("stopping").await;
        assert_eq!(begun.end().await.status, 0, "{arguments:?}");
    }
}

/// A tool's source that is away is said, but whoever asks whether the server works is told that it
/// does.
#[tokio::test]
async fn doctor_tells_a_server_that_works_from_one_whose_tools_do() {
    let home = Home::new();
    let source = json!({ "mcp": { "command": "false" } });
    let sets = json!([{ "name": "broken", "source": source },
        { "name": "idle", "active": false, "source": source }]);
    home.file("faber.yaml", &json!({ "toolsets": sets }).to_string());
    let mut server = home.begin(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    let line = server.line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let ready = home.json(&["doctor", "--ready", "--server", url], 0).await;
    assert_eq!(ready[0]["ok"], json!(true), "{ready}");
    let checks = home.json(&["doctor", "--server", url], 3).await;
    let of = |name: &str| {
        let mut all = checks.as_array().unwrap().iter();
        all.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{checks:#}"))["ok"]
            .clone()
    };
    let oks = ["server", "toolset flow", "toolset broken", "toolset idle"].map(of);
    assert_eq!(oks, [json!(true), json!(true), json!(false), json!(true)], "{checks:#}");
    server.signal("-TERM");
    assert_eq!(server.end().await.status, 0);
    let gone = home.json(&["doctor", "--ready", "--server", url], 3).await;
    assert_eq!(gone[0]["ok"], json!(false), "{gone}");
    assert_eq!(home.run(&["doctor", "--ready"]).await.status, 2, "which server?");
}

/// Servers lived on that overlook the end of their input.
#[tokio::test]
async fn no_mcp_server_outlives_a_faber_that_is_killed() {
    let home = Home::new();
    let mcp = json!({ "command": "sh", "args": ["-c", STUBBORN] });
    let set = json!({ "name": "s", "source": { "mcp": mcp } });
    home.file("faber.yaml", &json!({ "toolsets": [set] }).to_string());
    let mut faber = home.begin(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    faber.line("listening on http://").await;
    let pid = |name: &str| {
        let text = std::fs::read_to_string(home.path(name)).ok()?;
        text.ends_with('\n').then_some(text)
    };
    until("it runs", || pid("server").is_some() && pid("away").is_some()).await;
    let pids = ["server", "away"].map(|name| pid(name).unwrap());
    assert!(pids.iter().all(|pid| is_running(pid)));
    faber.signal("-KILL");
    for pid in pids {
        until("it ends", || !is_running(&pid)).await;
    }
}

/// The server would go on with a file that nobody else can find, and all of it would be lost.
#[tokio::test]
async fn a_server_whose_file_is_gone_refuses_to_write() {
    let home = Home::new();
    home.file("faber.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    let plan = home.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    let mut server = home.begin(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let doctor = ["doctor", "--ready", "--server", url];
    assert_eq!(home.run(&doctor).await.status, 0);
    home.json(&["run", "--plan", &plan, "--server", url], 0).await;

    std::fs::rename(home.path("faber.db"), home.path("moved.db")).unwrap();
    let error = home.json(&["run", "--plan", &plan, "--server", url], 3).await;
    assert_eq!(error["error"]["code"], "STORE_UNAVAILABLE", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("faber.db` was removed or replaced"), "{message}");
    assert!(message.contains("move the file back, or restart Faber"), "{message}");
    let ready = async |status| {
        // The answer is reused for a second.
        while home.run(&doctor).await.status != status {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(tests::toolset::PATIENCE, ready(3)).await.expect("it is not ready");

    std::fs::rename(home.path("moved.db"), home.path("faber.db")).unwrap();
    home.json(&["run", "--plan", &plan, "--server", url], 0).await;
    tokio::time::timeout(tests::toolset::PATIENCE, ready(0)).await.expect("it is ready again");
}
