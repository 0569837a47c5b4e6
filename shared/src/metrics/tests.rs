use super::*;

fn lines(metrics: &Metrics, name: &str) -> Vec<String> {
    let text = metrics.render();
    let own = text.lines().filter(|line| line.starts_with(name) && !line.contains("_bucket"));
    let mut own: Vec<String> = own.map(str::to_owned).collect();
    own.sort();
    own
}

#[test]
fn figures_are_rendered_with_their_labels() {
    let metrics = Metrics::new();
    let tool: ToolName = "blog.createAuthor".parse().unwrap();
    metrics.count_start();
    metrics.count_attempt(&tool, AttemptOutcome::Retried, Some(Duration::from_millis(250)));
    metrics.count_attempt(&tool, AttemptOutcome::Succeeded, Some(Duration::from_millis(750)));
    metrics.count_attempt(&tool, AttemptOutcome::Failed, None);
    metrics.count_end("COMPLETED", Duration::from_secs(2));
    metrics.count_claim(Some(Duration::from_millis(500)));
    metrics.count_claim(None);
    metrics.count_append(Duration::from_millis(3), false);
    let usage = ModelUsage { input_tokens: 5, output_tokens: 7, cost: Some(0.25) };
    metrics.count_model_request("openai/a", Some(usage));
    metrics.count_model_request("openai/a", None);
    metrics.count_planning("offline", true, Duration::from_millis(10));
    for (name, expected) in [
        ("faber_executions_started_total", vec!["faber_executions_started_total 1"]),
        (
            "faber_executions_finished_total",
            vec![
                "faber_executions_finished_total{state=\"CANCELLED\"} 0",
                "faber_executions_finished_total{state=\"COMPLETED\"} 1",
                "faber_executions_finished_total{state=\"FAILED\"} 0",
            ],
        ),
        ("faber_step_retries_total", vec!["faber_step_retries_total 1"]),
        (
            "faber_step_duration_seconds_sum",
            vec!["faber_step_duration_seconds_sum{tool=\"blog.createAuthor\"} 1.0"],
        ),
        (
            "faber_step_duration_seconds_count",
            vec!["faber_step_duration_seconds_count{tool=\"blog.createAuthor\"} 2"],
        ),
        ("faber_claims_total", vec!["faber_claims_total 2"]),
        ("faber_queue_wait_seconds_count", vec!["faber_queue_wait_seconds_count 1"]),
        ("faber_store_append_errors_total", vec!["faber_store_append_errors_total 1"]),
        ("faber_model_cost_total", vec!["faber_model_cost_total{model=\"openai/a\"} 0.25"]),
    ] {
        assert_eq!(lines(&metrics, name), expected, "{name}");
    }
    let text = metrics.render();
    for line in [
        "faber_steps_total{tool=\"blog.createAuthor\",outcome=\"failed\"} 1",
        "faber_model_tokens_total{model=\"openai/a\",type=\"output\"} 7",
        "faber_model_requests_total{model=\"openai/a\",outcome=\"failed\"} 1",
        "# TYPE faber_steps_total counter",
        "# TYPE faber_step_duration_seconds histogram",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn a_label_has_a_limited_number_of_values() {
    let metrics = Metrics::new();
    for number in 0..MAX_LABEL_VALUES + 50 {
        let tool: ToolName = format!("set.tool{number}").parse().unwrap();
        metrics.count_attempt(&tool, AttemptOutcome::Succeeded, None);
    }
    let found = lines(&metrics, "faber_steps_total");
    assert_eq!(found.len(), MAX_LABEL_VALUES + 1);
    let other = "faber_steps_total{tool=\"other\",outcome=\"succeeded\"} 50";
    assert!(found.iter().any(|line| line == other), "{found:?}");
    let first: ToolName = "set.tool0".parse().unwrap();
    metrics.count_attempt(&first, AttemptOutcome::Succeeded, None);
    let counted = "faber_steps_total{tool=\"set.tool0\",outcome=\"succeeded\"} 2";
    assert!(lines(&metrics, "faber_steps_total").iter().any(|line| line == counted));
}

#[test]
fn the_process_and_the_build_are_described() {
    let text = Metrics::new().render();
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("faber_build_info{{version=\"{version}\"}} 1")), "{text}");
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_threads",
        "process_start_time_seconds",
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        let value: f64 = line
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        // The CPU time of a short test is less than the unit of the system.
        assert!(value > 0.0 || name == "process_cpu_seconds_total", "{name} {value}");
    }
}
