use client::{types::Event, view::news::ExecutionView};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn format_event_time(second: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a few seconds")]
    let since = chrono::TimeDelta::milliseconds((second * 1_000.0) as i64);
    (parse_time("2026-01-01T00:00:00Z") + since).to_rfc3339()
}

fn parse_time(text: &str) -> Timestamp {
    text.parse().expect("the text is a valid time")
}

fn draw(plan: &Value, size: Size, events: &[(f64, &str, &str, Value)], second: f64) -> String {
    let plan = serde_json::from_value(plan.clone()).unwrap();
    let (mut drawing, mut board) = (Drawing::new(&plan), ExecutionView::new("exec_1_aaaaaaaaa"));
    for (second, kind, step, data) in events {
        let attempt = data["attempt"].as_u64().unwrap_or(1);
        let event = json!({ "at": format_event_time(*second), "type": kind, "stepId": step, "attempt": attempt,
            "data": data });
        let event: Event = serde_json::from_value(event).unwrap();
        if let Some(news) = board.apply(&event) {
            drawing.show_news(&news, board.finished_step_count);
        }
    }
    drawing.draw_live(parse_time(&format_event_time(second)), size, Paint::new(false)).join("\n")
}

const WINDOW: Size = Size { lines: 24, columns: 80 };

fn plan() -> Value {
    let step = |id: &str, limit: u64| json!({ "stepId": id, "retry": { "maxAttempts": limit } });
    json!({ "layers": [["read", "flaky"], ["each", "pay", "sub"], ["end"]],
        "tools": [step("read", 1), step("flaky", 4), step("each", 1), step("pay", 1), step("sub", 1),
            step("end", 1)] })
}

fn events() -> Vec<(f64, &'static str, &'static str, Value)> {
    let error =
        json!({ "code": "tool.failed", "message": "upstream said 503\nand \u{1b}[2J more" });
    vec![
        (0.0, "step_started", "read", json!({})),
        (0.0, "step_started", "flaky", json!({})),
        (
            0.25,
            "step_retry_scheduled",
            "flaky",
            json!({ "error": error, "until": format_event_time(3.0) }),
        ),
        (0.5, "step_succeeded", "read", json!({})),
        (0.5, "step_started", "each", json!({ "items": 300 })),
        (1.0, "step_succeeded", "each", json!({ "index": 0 })),
        (1.0, "step_failed", "each", json!({ "index": 7, "error": error })),
        (1.0, "step_waiting", "pay", json!({ "for": "approval" })),
        (1.0, "step_started", "sub", json!({ "childExecutionId": "exec_1_bbbbbbbbb" })),
    ]
}

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn check(drawn: String, expected: Expect) {
    // Removes the common indentation, because `expect!` removes it from the expected text.
    let indentation =
        drawn.lines().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let lines: Vec<&str> = drawn.lines().map(|line| &line[indentation..]).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn every_step_of_a_short_plan_has_a_line() {
    check(
        draw(&plan(), WINDOW, &[], 0.0),
        expect![[r"
          1 · read
            · flaky
          2 · each
            · pay
            · sub
          3 · end"]],
    );
    check(
        draw(&plan(), WINDOW, &events(), 1.5),
        expect![[r"
          1 ✓ read   500 ms
            ↻ flaky  attempt 2 of 4 in 1.5 s  tool.failed: upstream said 503⏎and ␛[2J …
          2 ⠇ each   1.0 s  ░░░░░░░░░░░░░░░░ 1/300
              ✗ each[7]  tool.failed
            ? pay    waits for approval  faber approve exec_1_aaaaaaaaa pay
            ⠇ sub    500 ms
          3 · end
        ████░░░░░░░░░░░░░░░░░░░░ 1/6 steps  1.5 s"]],
    );
    let mut more = events();
    more.extend([
        (3.0, "step_started", "flaky", json!({ "attempt": 2 })),
        (3.5, "step_succeeded", "flaky", json!({ "attempt": 2 })),
        (
            4.0,
            "step_failed",
            "each",
            json!({ "error": { "code": "tool.failed", "message": "no" } }),
        ),
        (4.0, "step_cancelled", "sub", json!({})),
        (4.0, "step_skipped", "end", json!({ "reason": "execution_failed" })),
        (
            4.0,
            "step_failed",
            "pay",
            json!({ "error": { "code": "step.rejected", "message": "no" } }),
        ),
    ]);
    check(
        draw(&plan(), WINDOW, &more, 4.0),
        expect![[r"
          1 ✓ read   500 ms
            ✓ flaky  500 ms
          2 ✗ each   3.5 s  tool.failed
              ✗ each[7]  tool.failed
            ✗ pay    step.rejected
            ○ sub    3.0 s  cancelled
          3 ○ end    skipped
        ████████████████████████ 6/6 steps  4.0 s"]],
    );
}

#[test]
fn a_small_window_shows_the_most_important_lines() {
    check(
        draw(&plan(), Size { lines: 7, columns: 60 }, &events(), 1.5),
        expect![[r"
            ↻ flaky  attempt 2 of 4 in 1.5 s  tool.failed: upstrea…
          2 ⠇ each   1.0 s  ░░░░░░░░░░░░░░░░ 1/300
              ✗ each[7]  tool.failed
            ? pay    waits for approval  faber approve exec_1_aaaa…
            … and 3 more
        ████░░░░░░░░░░░░░░░░░░░░ 1/6 steps  1.5 s"]],
    );
}

/// Regression: one long name pushed the time and the code out of every line.
#[test]
fn long_names_are_cut_before_times_and_codes() {
    let long = format!("three-{}", "with-".repeat(16));
    let plan = json!({ "layers": [["one"], [&long], ["later"]], "tools": [] });
    let error = json!({ "code": "tool.failed", "message": "upstream said 503" });
    let events = [
        (0.0, "step_started", "one", json!({})),
        (0.5, "step_succeeded", "one", json!({})),
        (0.5, "step_started", &long, json!({})),
        (2.0, "step_failed", &long, json!({ "error": error })),
    ];
    let drawn = |columns| draw(&plan, Size { lines: 24, columns }, &events, 2.0);
    check(
        drawn(80),
        expect![[r"
          1 ✓ one                                       500 ms
          2 ✗ three-with-with-with-with-with-with-with-with-with-w…  1.5 s  tool.failed
          3 · later
        ████████████████░░░░░░░░ 2/3 steps  2.0 s"]],
    );
    check(
        drawn(45),
        expect![[r"
          1 ✓ one               500 ms
          2 ✗ three-with-with-w…  1.5 s  tool.failed
          3 · later
        ████████████████░░░░░░░░ 2/3 steps  2.0 s"]],
    );
    check(
        drawn(20),
        expect![[r"
          1 ✓ one   500 ms
          2 ✗ thr…  1.5 s …
          3 · later
        ████████████████░░…"]],
    );
    for columns in [1, 5, 11, 15, 30] {
        let drawn = drawn(columns);
        assert!(
            drawn.lines().all(|line| paint::text_width(line) < columns.max(11)),
            "{columns}: {drawn}"
        );
    }
}

#[test]
fn layers_of_a_long_plan_are_folded() {
    let name = |layer: usize, step: usize| format!("l{layer}s{step}");
    let layers: Vec<Vec<String>> =
        (0..100).map(|layer| (0..20).map(|step| name(layer, step)).collect()).collect();
    let plan = json!({ "layers": layers, "tools": [] });
    let mut log = Vec::new();
    let names: Vec<String> = layers[..3].iter().flatten().cloned().collect();
    for (n, step) in names.iter().enumerate() {
        log.push((0.0, "step_started", step.as_str(), json!({})));
        if n < 45 {
            log.push((1.0, "step_succeeded", step.as_str(), json!({})));
        }
    }
    let error = json!({ "error": { "code": "tool.failed", "message": "no" } });
    log.push((1.5, "step_failed", names[45].as_str(), error));
    check(
        draw(&plan, WINDOW, &log, 2.0),
        expect![[r"
          1–2 ✓ 40 steps  l0s0, l0s1, l0s2, …
            3 ▸ 6/20 steps, 1 failed  l2s0, l2s1, l2s2, …
              ✗ l2s5    1.5 s  tool.failed
              ⠴ l2s6    2.0 s
              ⠴ l2s7    2.0 s
              ⠴ l2s8    2.0 s
              ⠴ l2s9    2.0 s
              ⠴ l2s10   2.0 s
              ⠴ l2s11   2.0 s
              ⠴ l2s12   2.0 s
              ⠴ l2s13   2.0 s
              ⠴ l2s14   2.0 s
              ⠴ l2s15   2.0 s
              ⠴ l2s16   2.0 s
              ⠴ l2s17   2.0 s
              ⠴ l2s18   2.0 s
              ⠴ l2s19   2.0 s
        4–100 · 1940 steps  l3s0, l3s1, l3s2, …
        ░░░░░░░░░░░░░░░░░░░░░░░░ 46/2000 steps  2.0 s"]],
    );
    // A failed step must stay visible even in a window with five lines.
    let drawn = draw(&plan, Size { lines: 5, columns: 60 }, &log, 2.0);
    assert!(drawn.contains("✗ l2s5"), "{drawn}");
    for lines in [1, 2, 5, 10] {
        let drawn = draw(&plan, Size { lines, columns: 40 }, &log, 2.0);
        assert!(drawn.lines().count() <= lines.max(2), "{lines}: {drawn}");
        assert!(drawn.lines().all(|line| paint::text_width(line) < 40), "{drawn}");
    }
}

#[test]
fn a_skipped_layer_differs_from_a_succeeded_one() {
    let layers: Vec<Vec<String>> =
        (0..3).map(|layer| (0..10).map(|step| format!("l{layer}s{step}")).collect()).collect();
    let plan = json!({ "layers": layers, "tools": [] });
    let mut log = vec![(0.0, "step_started", "l0s0", json!({}))];
    for (n, step) in layers.iter().flatten().enumerate() {
        let skip = json!({ "reason": "execution_failed" });
        let error = json!({ "error": { "code": "tool.failed", "message": "no" } });
        match n {
            13 => log.push((1.0, "step_failed", step.as_str(), error)),
            0..24 => log.push((1.0, "step_succeeded", step.as_str(), json!({}))),
            _ => log.push((1.0, "step_skipped", step.as_str(), skip)),
        }
    }
    check(
        draw(&plan, WINDOW, &log, 1.0),
        expect![[r"
            1 ✓ 10 steps  l0s0, l0s1, l0s2, …
            2 ✗ 10 steps, 1 failed  l1s0, l1s1, l1s2, …
              ✗ l1s3  tool.failed
            3 ○ 10 steps, 6 skipped  l2s0, l2s1, l2s2, …
        ████████████████████████ 30/30 steps  1.0 s"]],
    );
}

#[test]
fn the_progress_bar_template_is_valid() {
    progress_style();
}
