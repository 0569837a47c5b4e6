use std::{collections::BTreeSet, fs, path::Path};

use serde_json::json;

use crate::mongod::Mongod;

use super::{
    plain_http::{get_answer, get_text},
    workspace::{DEMO_QUERY, Workspace},
};

fn metric_value(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn a_worker_serves_its_metrics_and_health_on_request() {
    let workspace = Workspace::new();
    let mut worker = workspace.spawn(&["worker", "--metrics", "127.0.0.1:0"]);
    let line = worker.wait_for_line("metrics on http://").await;
    let address = line.rsplit('/').next().unwrap();
    worker.wait_for_line("working on sqlite:").await;
    let metrics = get_text(address, "/metrics").await;
    assert_eq!(metric_value(&metrics, "faber_executions_active"), Some(0.0), "{metrics}");
    check_format(&metrics);
    assert_eq!(get_text(address, "/health/ready").await, r#"{"status":"ready"}"#);
    for path in ["/graphql", "/", "/mcp"] {
        let (status, text) = get_answer(address, path).await;
        assert_eq!(status, 404, "{path}");
        assert!(text.contains("a worker serves `/metrics`"), "{path}: {text}");
    }
    worker.signal("-TERM");
    assert_eq!(worker.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn a_server_counts_its_executions() {
    let workspace = Workspace::new();
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let address = url.trim_start_matches("http://");
    let done = workspace.json(&["run", DEMO_QUERY, "--server", url], 0).await;
    assert_eq!(done["state"], "COMPLETED");
    // The second run fails, because the e-mail address of the author is taken now.
    assert_eq!(workspace.run(&["run", DEMO_QUERY, "--server", url]).await.status, 1);
    let plan = json!({ "tools": [
        { "name": "flow.noop", "id": "one" },
        { "name": "flow.fail", "parameters": { "message": "no", "retryable": true },
          "retry": { "maxAttempts": 3, "backoffMs": 1 } },
    ] });
    let plan = workspace.file("plan.json", &plan.to_string());
    workspace.run(&["run", "--plan", &plan, "--server", url]).await;

    let waiting = json!({ "tools": [{ "name": "flow.noop", "requiresApproval": true }] });
    let waiting = workspace.file("waiting.json", &waiting.to_string());
    assert_eq!(workspace.run(&["run", "--plan", &waiting, "--server", url]).await.status, 4);

    let metrics = get_text(address, "/metrics").await;
    let at = |series: &str| {
        metric_value(&metrics, series).unwrap_or_else(|| panic!("{series}: {metrics}"))
    };
    for (series, expected) in [
        ("faber_executions_started_total", 4.0),
        ("faber_executions_finished_total{state=\"COMPLETED\"}", 1.0),
        ("faber_executions_finished_total{state=\"FAILED\"}", 2.0),
        ("faber_executions_active", 0.0),
        ("faber_execution_duration_seconds_count{state=\"COMPLETED\"}", 1.0),
        ("faber_queue_wait_seconds_count", 4.0),
        ("faber_claims_total", 4.0),
        ("faber_takeovers_total", 0.0),
        ("faber_steps_total{tool=\"flow.noop\",outcome=\"succeeded\"}", 1.0),
        ("faber_step_duration_seconds_count{tool=\"flow.noop\"}", 1.0),
        ("faber_steps_total{tool=\"flow.fail\",outcome=\"retried\"}", 2.0),
        ("faber_steps_total{tool=\"flow.fail\",outcome=\"failed\"}", 1.0),
        ("faber_step_retries_total", 2.0),
        ("faber_steps_total{tool=\"blog.createAuthor\",outcome=\"succeeded\"}", 1.0),
        ("faber_steps_total{tool=\"blog.createAuthor\",outcome=\"failed\"}", 1.0),
        ("faber_planning_seconds_count{planner=\"offline\",outcome=\"planned\"}", 2.0),
        ("faber_inbox_depth", 0.0),
        ("faber_executions_due", 0.0),
        ("faber_executions_oldest_due_seconds", 0.0),
        ("faber_executions_needing_person{state=\"WAITING\"}", 1.0),
        ("faber_executions_needing_person{state=\"PAUSED\"}", 0.0),
        ("faber_store_append_errors_total", 0.0),
        // Earlier versions had these two metrics, too. Dashboards rely on their names.
        ("faber_calls_waiting", 0.0),
        ("faber_pruned_total{kind=\"execution\"}", 0.0),
    ] {
        assert!(
            (at(series) - expected).abs() < f64::EPSILON,
            "{series} is not {expected}: {metrics}"
        );
    }
    for series in [
        "faber_store_append_seconds_count",
        "faber_store_size_bytes",
        "faber_store_commits_total",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ] {
        assert!(at(series) > 0.0, "{series}: {metrics}");
    }
    assert!(metrics.contains("faber_build_info{version=\""), "{metrics}");
    check_format(&metrics);
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn a_worker_over_mongodb_knows_the_size_of_the_database() {
    let workspace = Workspace::new();
    let url = Mongod::shared().await.new_database_url();
    let mut worker = workspace.spawn(&["worker", "--metrics", "127.0.0.1:0", "--store", &url]);
    let line = worker.wait_for_line("metrics on http://").await;
    let address = line.rsplit('/').next().unwrap();
    worker.wait_for_line("working on mongodb:").await;
    let metrics = get_text(address, "/metrics").await;
    // The collections and their indexes exist from the start.
    let bytes = metric_value(&metrics, "faber_store_size_bytes");
    assert!(bytes.is_some_and(|bytes| bytes > 0.0), "{metrics}");
    check_format(&metrics);
    worker.signal("-TERM");
    assert_eq!(worker.wait_for_exit().await.status, 0);
}

/// Checks that each metric has one description before its first value, and that each series has one
/// value, because Prometheus rejects all metrics of an answer that breaks these rules. Also checks
/// that the reference lists each metric of Faber.
fn check_format(metrics: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/api.md");
    let page = fs::read_to_string(page).unwrap();
    let (mut described, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap();
            assert!(described.insert(name.to_owned()), "`{name}` is described twice");
            let is_documented = !name.starts_with("faber_") || page.contains(&format!("| `{name}"));
            assert!(is_documented, "`docs/reference/api.md` lacks `{name}`");
        } else if !line.starts_with('#') {
            let (series, number) = line.rsplit_once(' ').unwrap();
            assert!(seen.insert(series.to_owned()), "`{series}` is there twice");
            number.parse::<f64>().unwrap();
            let name = series.split('{').next().unwrap();
            let parts = ["_bucket", "_sum", "_count"].map(|part| name.strip_suffix(part));
            let is_known = described.contains(name)
                || parts.into_iter().flatten().any(|name| described.contains(name));
            assert!(is_known, "`{name}` has no type");
        }
    }
}
