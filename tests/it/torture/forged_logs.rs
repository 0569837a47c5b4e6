//! Tests of the log checker: it accepts a correct log and finds every kind of forgery.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    clients::{ApiRecord, ClientRecord},
    log_checker::check_log,
    plans::{Draft, Step, StepKind},
    workspace::LedgerEntry,
};

fn make_step(kind: StepKind, after: &[&str], n: u64) -> Step {
    let after = after.iter().map(|name| (*name).to_owned()).collect();
    let (on_error, behaviour, items, when, child) = ("fail", "ok", None, None, None);
    Step {
        kind,
        after,
        on_error,
        n,
        behaviour,
        needs_approval: false,
        items,
        when,
        child,
        is_compensated: false,
    }
}

fn correct_log() -> (ClientRecord, ApiRecord, Vec<LedgerEntry>) {
    let steps =
        [("a", make_step(StepKind::Once, &[], 1)), ("b", make_step(StepKind::Once, &["a"], 2))];
    let steps: BTreeMap<String, Step> =
        steps.into_iter().map(|(name, step)| (name.to_owned(), step)).collect();
    let draft = Draft { steps, ..Draft::default() };
    let mut log = vec![
        json!({ "type": "created", "data": {} }),
        json!({ "type": "claimed", "data": { "epoch": 1 } }),
    ];
    for (name, n) in [("a", 1), ("b", 2)] {
        let about = |kind: &str, data: Value| json!({ "type": kind, "stepId": name, "attempt": 1, "data": data });
        log.push(about("step_started", json!({ "parameters": {} })));
        log.push(about("step_succeeded", json!({ "output": { "n": n } })));
    }
    log.push(json!({ "type": "finished", "data": { "state": "COMPLETED" } }));
    renumber(&mut log);
    let mut record = ClientRecord::for_child_or_retry(&draft, "exec_1".to_owned());
    record.received.clone_from(&log);
    let line = |step: &str| LedgerEntry {
        tool: "once".to_owned(),
        execution: "exec_1".to_owned(),
        step: step.to_owned(),
        attempt: 1,
        key: format!("exec_1/{step}"),
    };
    let api_record = ApiRecord { state: "COMPLETED".to_owned(), outputs: json!({}), log };
    (record, api_record, vec![line("a"), line("b")])
}

fn renumber(log: &mut [Value]) {
    for (seq, event) in (1..).zip(log) {
        event["seq"] = json!(seq);
    }
}

fn expect_violation(
    description: &str,
    forge: impl FnOnce(&mut ClientRecord, &mut ApiRecord, &mut Vec<LedgerEntry>),
) {
    let (mut record, mut api_record, mut lines) = correct_log();
    forge(&mut record, &mut api_record, &mut lines);
    let (_, violations) = check_log(&record, &api_record, &lines.iter().collect::<Vec<_>>());
    assert!(
        violations.iter().any(|violation| violation.contains(description)),
        "the checker does not find `{description}`, but {violations:?}"
    );
}

#[test]
fn the_log_checker_accepts_a_correct_log() {
    let (record, api_record, lines) = correct_log();
    let (outcome, violations) = check_log(&record, &api_record, &lines.iter().collect::<Vec<_>>());
    assert_eq!(violations, Vec::<String>::new());
    assert_eq!((outcome.steps, outcome.claims), (2, 1));
}

#[test]
fn the_log_checker_expects_a_retry_to_send_the_key_of_the_unknown_call() {
    let started = |origin: Value, carried: Value, called: &str| {
        let (mut record, mut api_record, mut lines) = correct_log();
        api_record.log[0]["data"] = origin;
        api_record.log[0]["data"]["callKeys"] = json!([carried]);
        record.received.clone_from(&api_record.log);
        called.clone_into(&mut lines[0].key);
        check_log(&record, &api_record, &lines.iter().collect::<Vec<_>>()).1
    };
    let retried = |carried: &str, called: &str| {
        let key = json!({ "stepId": "a", "key": carried });
        started(json!({ "retryOf": "exec_0" }), key, called)
    };
    let has_violation = |violations: Vec<String>, description: &str| {
        violations.iter().any(|violation| violation.contains(description))
    };
    let received = retried("exec_0/a", "exec_0/a");
    assert_eq!(received, Vec::<String>::new());
    let of_child = json!({ "stepId": "a", "child": { "stepId": "c" }, "key": "exec_0/c" });
    let received = started(json!({ "retryOf": "exec_0" }), of_child, "exec_1/a");
    assert_eq!(received, Vec::<String>::new());
    let key = json!({ "stepId": "a", "key": "exec_0/a" });
    let of_parent = json!({ "parent": { "executionId": "exec_2" } });
    assert_eq!(started(of_parent, key.clone(), "exec_0/a"), Vec::<String>::new());
    assert!(has_violation(started(json!({}), key, "exec_0/a"), "a key that no earlier call had"));
    assert!(has_violation(retried("exec_0/a", "exec_1/a"), "with a key that no task has"));
    assert!(has_violation(retried("exec_0/b", "exec_0/b"), "a key that no earlier call had"));
}

#[test]
fn the_log_checker_finds_every_forgery() {
    expect_violation("one attempt made two calls", |_, _, lines| lines.push(lines[0].clone()));
    expect_violation("called twice", |_, _, lines| {
        lines.insert(0, LedgerEntry { attempt: 0, ..lines[0].clone() });
    });
    expect_violation("with a key that no task has", |_, _, lines| {
        "other".clone_into(&mut lines[0].key);
    });
    expect_violation("succeeded without a call", |_, _, lines| drop(lines.pop()));
    expect_violation("called before the start was logged", |_, _, lines| lines[0].attempt = 2);
    expect_violation("received an event that the log does not have", |record, _, _| {
        record.received[3]["data"]["output"] = json!(7);
    });
    expect_violation("the log has a gap", |_, api_record, _| drop(api_record.log.remove(3)));
    expect_violation("follows the end", |_, api_record, _| {
        api_record.log.push(api_record.log[1].clone());
    });
    expect_violation("allowed it", |_, api_record, _| {
        api_record.log.swap(3, 4);
        renumber(&mut api_record.log);
    });
    expect_violation("another output than the tool's", |_, api_record, _| {
        api_record.log[3]["data"]["output"] = json!({ "n": 5 });
    });
    expect_violation("the outcome does not follow from the steps", |_, api_record, _| {
        api_record.log[6]["data"]["state"] = json!("FAILED");
        "FAILED".clone_into(&mut api_record.state);
    });
    expect_violation("finished with unfinished tasks", |_, api_record, _| {
        drop(api_record.log.drain(4..6));
    });
    expect_violation("an event follows the end of its task", |_, api_record, _| {
        api_record.log.insert(4, api_record.log[2].clone());
        renumber(&mut api_record.log);
    });
    expect_violation("ended after its worker was lost", |_, api_record, _| {
        api_record.log.insert(3, json!({ "type": "claimed", "data": { "epoch": 2 } }));
        renumber(&mut api_record.log);
    });
    expect_violation("renews the claim of another worker", |_, api_record, _| {
        let data = json!({ "epoch": 2, "worker": "other", "renewed": true });
        api_record.log.insert(3, json!({ "type": "claimed", "data": data }));
        renumber(&mut api_record.log);
    });
}

#[test]
fn the_log_checker_accepts_unlogged_calls_of_reads_only() {
    let called_for_an_item = |kind: StepKind, item: u64| {
        let (mut record, api_record, mut lines) = correct_log();
        // The log never recorded the start of this loop, because the execution ended first.
        let list = Step { items: Some(vec![1, 2]), ..make_step(kind, &["b"], 0) };
        record.draft.steps.insert("list".to_owned(), list);
        let key = format!("exec_1/list[{item}]");
        lines.push(LedgerEntry { step: "list".to_owned(), key, ..lines[0].clone() });
        let (_, violations) = check_log(&record, &api_record, &lines.iter().collect::<Vec<_>>());
        violations.iter().any(|violation| violation.contains("with a key that no task has"))
    };
    assert!(!called_for_an_item(StepKind::Read, 1));
    assert!(called_for_an_item(StepKind::Read, 2), "the list has two items");
    assert!(called_for_an_item(StepKind::Once, 1));
    assert!(called_for_an_item(StepKind::Idempotent, 1));
}
