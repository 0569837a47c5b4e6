use serde_json::{Value, json};

use super::*;

fn event(seq: u64, kind: &str, step: Option<&str>, data: &Value) -> Event {
    let at = format!("2026-01-01T00:00:00.{seq:06}Z");
    read(json!({ "seq": seq, "type": kind, "at": at, "stepId": step, "attempt": 1, "data": data }))
}

fn read(event: Value) -> Event {
    serde_json::from_value(event).unwrap()
}

fn step(news: Option<News>) -> (String, StepView) {
    let Some(News::Step { name, view }) = news else { panic!("{news:?}") };
    (name, view)
}

#[test]
fn durations_come_from_the_event_times() {
    let mut board = ExecutionView::default();
    board.apply(&event(1000, "step_started", Some("a"), &json!({})));
    let news = board.apply(&event(3500, "step_succeeded", Some("a"), &json!({})));
    let (_, view) = step(news);
    assert_eq!((view.state, view.duration_ms), (ShownState::Succeeded, Some(2.5)));
    assert_eq!((board.finished_step_count, board.seq), (1, 3500));
}

#[test]
fn durations_can_be_long_and_are_never_negative() {
    let event_at = |kind: &str, event_at: &str| {
        read(json!({ "seq": 1, "type": kind, "at": event_at, "stepId": "a", "data": {} }))
    };
    for (until, expected) in [("2026-01-02T00:00:00Z", 86_400_000.0), ("2025-12-31T23:59:59Z", 0.0)]
    {
        let mut board = ExecutionView::default();
        board.apply(&event_at("step_started", "2026-01-01T00:00:00Z"));
        let news = board.apply(&event_at("step_succeeded", until));
        assert_eq!(step(news).1.duration_ms, Some(expected), "{until}");
    }
}

#[test]
fn an_execution_asks_a_person_only_if_nothing_else_can_run() {
    let mut board = ExecutionView::default();
    board.apply(&event(1, "step_started", Some("a"), &json!({})));
    board.apply(&event(2, "step_waiting", Some("b"), &json!({ "for": "approval" })));
    assert!(!board.waits_for_person(|_| false));
    board.apply(&event(3, "step_succeeded", Some("a"), &json!({})));
    assert!(board.waits_for_person(|_| false));
    board.apply(&event(4, "step_approved", Some("b"), &json!({})));
    assert!(!board.waits_for_person(|_| false));
}

#[test]
fn a_child_that_waits_for_a_person_is_shown_as_its_step() {
    let mut board = ExecutionView::default();
    let started = json!({ "parameters": {}, "childExecutionId": "exec_1_aaaaaaaaa" });
    board.apply(&event(1, "step_started", Some("a"), &started));
    assert!(!board.waits_for_person(|_| false));
    assert!(board.waits_for_person(|child| child == "exec_1_aaaaaaaaa"));
    board.apply(&event(2, "step_started", Some("b"), &json!({})));
    assert!(!board.waits_for_person(|_| true));
}

#[test]
fn items_are_counted_and_only_a_few_are_named() {
    let mut board = ExecutionView::default();
    board.apply(&event(1, "step_started", Some("l"), &json!({ "items": 10 })));
    let mut reported = 0;
    for index in 0..10 {
        let data = json!({ "index": index });
        assert_eq!(board.apply(&event(2, "step_started", Some("l"), &data)), None);
        let failed = json!({ "index": index, "error": { "message": "m" } });
        match board.apply(&event(3, "step_failed", Some("l"), &failed)) {
            Some(News::Step { name, .. }) => {
                assert_eq!(name, format!("l[{index}]"));
                reported += 1;
            }
            Some(News::Progress { progress, .. }) => {
                assert_eq!((progress.done, progress.total), (f64::from(index + 1), Some(10.0)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((reported, board.finished_step_count), (MAX_ITEM_NEWS, 0));
    let news = board.apply(&event(4, "step_succeeded", Some("l"), &json!({})));
    assert_eq!(step(news).1.detail.as_deref(), Some("10 items, 10 of them failed"));
    assert_eq!(board.finished_step_count, 1);
}

#[test]
fn compensations_do_not_count_as_steps() {
    let mut board = ExecutionView::default();
    let note = board.apply(&event(1, "compensation_started", None, &json!({})));
    assert_eq!(note, Some(News::Note("compensating".to_owned())));
    board.apply(&event(2, "step_compensation_started", Some("a"), &json!({})));
    let news = board.apply(&event(3, "step_compensated", Some("a"), &json!({})));
    let (name, view) = step(news);
    assert_eq!((name.as_str(), view.state), ("a (undo)", ShownState::Compensated));
    assert_eq!(board.finished_step_count, 0);
}

#[test]
fn a_wait_for_a_signal_asks_no_person() {
    let mut board = ExecutionView::new("exec_1");
    let data = json!({ "for": "signal", "name": "go" });
    let news = board.apply(&event(1, "step_waiting", Some("a"), &data));
    let StepView { detail, next, .. } = step(news).1;
    assert_eq!(detail.as_deref(), Some("waits for signal go"));
    assert_eq!(next, Some(NextAction::Command("faber signal exec_1 go".to_owned())));
    assert!(!board.waits_for_person(|_| false));
}

/// The first worker was lost after its last event, 1 ms after the start. The second worker claimed
/// the execution 4 ms after this event.
#[test]
fn time_without_a_worker_is_not_part_of_a_duration() {
    let claim = |seq, worker: &str| {
        event(seq, "claimed", None, &json!({ "worker": worker, "node": "vm", "epoch": 1 }))
    };
    let started = |seq, step: &str, data: Value| event(seq, "step_started", Some(step), &data);
    let ended = |seq, kind: &str, step: &str, data: Value| event(seq, kind, Some(step), &data);
    let mut board = ExecutionView::default();
    board.apply(&claim(1, "one"));
    board.apply(&started(1000, "reported", json!({})));
    board.apply(&started(1000, "nap", json!({ "until": "2026-01-02T00:00:00Z" })));
    board.apply(&started(2000, "pay", json!({})));
    board.apply(&started(2000, "loop", json!({ "items": 2 })));
    board.apply(&claim(6000, "two"));
    let mut end = |kind, step, data| self::step(board.apply(&ended(7000, kind, step, data))).1;
    let interrupted = end("step_interrupted", "reported", json!({}));
    assert_eq!((interrupted.duration_ms, interrupted.detail), (Some(2.0), None));
    let unknown = json!({ "error": { "code": "tool.outcome_unknown", "message": "lost" } });
    let failed = end("step_failed", "pay", unknown);
    assert_eq!((failed.duration_ms, &*failed.detail.unwrap()), (None, "tool.outcome_unknown"));
    assert_eq!(end("step_succeeded", "loop", json!({})).duration_ms, Some(1.0));
    assert_eq!(end("step_cancelled", "nap", json!({})).duration_ms, Some(6.0));
}

#[test]
fn news_gives_no_reason_of_its_own() {
    let mut board = ExecutionView::default();
    for reason in ["dependency", "condition", "execution_failed", "later"] {
        let news = board.apply(&event(1, "step_skipped", Some("a"), &json!({ "reason": reason })));
        assert_eq!(step(news).1.detail, None, "{reason}");
    }
    let error = json!({ "code": "tool.failed", "message": "no" });
    let waiting = json!({ "for": "decision", "error": error });
    let news = board.apply(&event(2, "step_waiting", Some("a"), &waiting));
    assert_eq!(step(news).1.detail.as_deref(), Some("waits for a decision: tool.failed"));
    let news = board.apply(&event(3, "execution_failed", None, &json!({ "error": error })));
    assert_eq!(news, Some(News::Note("it cannot continue".to_owned())));
}
