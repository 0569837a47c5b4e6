//! The dashboard and the alert rules in `deploy/`, against a real Prometheus that scrapes a real
//! server.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};
use tests::{installed::find_path, toolset::MAX_WAIT};
use tokio::{
    process::{Child, Command},
    time::{Duration, interval, timeout},
};

use crate::cli::{
    plain_http::get_text,
    workspace::{DEMO_QUERY, Workspace},
};

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Metrics that have no series until a model answers.
const MODEL_METRICS: &str = "faber_model_";

fn deploy_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn program_path(name: &str) -> PathBuf {
    let prometheus = find_path("FABER_TEST_PROMETHEUS", "prometheus");
    prometheus.parent().unwrap().join(name)
}

/// A Prometheus in a folder of its own. Its process is killed when this value is dropped.
struct Prometheus {
    _process: Child,
    address: String,
}

impl Prometheus {
    async fn start(folder: &Path, target: &str) -> Self {
        let scrape = json!({ "job_name": "faber", "static_configs": [{ "targets": [target] }] });
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [deploy_file("prometheus/alerts.yml")],
            "scrape_configs": [scrape],
        });
        let file = folder.join("prometheus.yml");
        fs::write(&file, config.to_string()).unwrap();
        let log = folder.join("log");
        let mut command = Command::new(program_path("prometheus"));
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .kill_on_drop(true);
        let process = command.spawn().unwrap();
        let mut poll = interval(POLL_INTERVAL);
        let listening = async {
            loop {
                poll.tick().await;
                let lines = fs::read_to_string(&log).unwrap();
                if let Some(address) = lines.lines().find_map(find_address) {
                    return address;
                }
            }
        };
        let address = timeout(MAX_WAIT, listening).await.expect("Prometheus listens");
        Self { _process: process, address }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = get_text(&self.address, &format!("/api/v1/{path}")).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    async fn query(&self, expression: &str) -> Vec<Value> {
        let answer = self.get(&format!("query?query={}", percent_encode(expression))).await;
        answer["result"].as_array().unwrap().clone()
    }

    async fn wait_for(&self, expression: &str) {
        let mut poll = interval(POLL_INTERVAL);
        let waiting = async {
            loop {
                poll.tick().await;
                if !self.query(expression).await.is_empty() {
                    return;
                }
            }
        };
        timeout(MAX_WAIT, waiting).await.unwrap_or_else(|_| panic!("`{expression}` has no series"));
    }
}

fn percent_encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn find_address(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("msg=\"Listening on\" address=")?;
    Some(rest.trim().to_owned())
}

fn dashboard_expressions() -> Vec<String> {
    let text = fs::read_to_string(deploy_file("grafana/faber.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let fill_in = |text: &str| text.replace("$__rate_interval", "1m").replace("$instance", ".*");
    targets.map(|target| fill_in(target["expr"].as_str().unwrap())).collect()
}

fn metric_names(expression: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_part(letter));
    let is_own = |word: &&str| word.starts_with("faber_") || word.starts_with("process_");
    words.filter(is_own).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_work_with_a_real_prometheus() {
    let workspace = Workspace::new();
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(folder.path(), url.trim_start_matches("http://")).await;
    prometheus.wait_for("up{job=\"faber\"} == 1").await;
    // A rate needs two values: one before the executions and one after them.
    assert_eq!(
        workspace.json(&["run", DEMO_QUERY, "--server", url], 0).await["state"],
        "COMPLETED"
    );
    assert_eq!(workspace.run(&["run", DEMO_QUERY, "--server", url]).await.status, 1);
    prometheus.wait_for("rate(faber_executions_finished_total{state=\"FAILED\"}[1m])").await;

    for expression in dashboard_expressions() {
        let reads_model =
            metric_names(&expression).iter().any(|name| name.starts_with(MODEL_METRICS));
        if reads_model {
            prometheus.query(&expression).await;
        } else {
            // A rate needs two values of a series, and some series begin with the first execution.
            prometheus.wait_for(&expression).await;
        }
    }

    let rules = prometheus.get("rules").await;
    let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() >= 10, "{rules:?}");
    let known = prometheus.get("label/__name__/values").await;
    let known: BTreeSet<&str> =
        known.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for rule in &rules {
        assert!(["ok", "unknown"].contains(&rule["health"].as_str().unwrap()), "{rule}");
        let expression = rule["query"].as_str().unwrap();
        prometheus.query(expression).await;
        for name in metric_names(expression) {
            let is_known = known.contains(&*name) || name.starts_with(MODEL_METRICS);
            assert!(is_known, "the alert `{}` reads `{name}`, which does not exist", rule["name"]);
        }
    }
    let fires = |name: &'static str| format!("ALERTS{{alertname=\"{name}\"}}");
    assert!(prometheus.query(&fires("FaberDown")).await.is_empty());
    prometheus.wait_for(&fires("FaberExecutionsFail")).await;
    server.signal("-KILL");
    prometheus.wait_for(&fires("FaberDown")).await;
    let address = url.trim_start_matches("http://");
    let mut next_server = workspace.spawn(&["serve", "--listen", address]);
    next_server.wait_for_line("listening on http://").await;
    prometheus.wait_for(&fires("FaberRestarted")).await;
}

#[tokio::test]
async fn the_alert_rules_and_the_example_configuration_are_valid() {
    for arguments in [["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"]] {
        let mut command = Command::new(program_path("promtool"));
        command.args(arguments).current_dir(deploy_file("prometheus"));
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}
