//! What must not be would be noticed: a true log, forged in every way that counts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    check::check,
    clients::{Known, Story},
    home::Line,
    plans::{Draft, Kind, Step},
};

fn step(kind: Kind, after: &[&str], n: u64) -> Step {
    let after = after.iter().map(|name| (*name).to_owned()).collect();
    let (on_error, fate, items, when, child) = ("fail", "ok", None, None, None);
    Step { kind, after, on_error, n, fate, asks: false, items, when, child, is_undone: false }
}

/// Two steps that do something once, one after the other.
fn truth() -> (Story, Known, Vec<Line>) {
    let steps = [("a", step(Kind::Once, &[], 1)), ("b", step(Kind::Once, &["a"], 2))];
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
    number(&mut log);
    let mut story = Story::following(&draft, "exec_1".to_owned());
    story.told.clone_from(&log);
    let line = |step: &str| Line {
        tool: "once".to_owned(),
        execution: "exec_1".to_owned(),
        step: step.to_owned(),
        attempt: 1,
        key: format!("exec_1/{step}"),
    };
    let known = Known { state: "COMPLETED".to_owned(), outputs: json!({}), log };
    (story, known, vec![line("a"), line("b")])
}

fn number(log: &mut [Value]) {
    for (seq, event) in (1..).zip(log) {
        event["seq"] = json!(seq);
    }
}

fn notices(what: &str, forge: impl FnOnce(&mut Story, &mut Known, &mut Vec<Line>)) {
    let (mut story, mut known, mut lines) = truth();
    forge(&mut story, &mut known, &mut lines);
    let (_, wrongs) = check(&story, &known, &lines.iter().collect::<Vec<_>>());
    assert!(
        wrongs.iter().any(|wrong| wrong.contains(what)),
        "nobody notices: {what}; but {wrongs:?}"
    );
}

#[test]
fn the_truth_is_accepted() {
    let (story, known, lines) = truth();
    let (outcome, wrongs) = check(&story, &known, &lines.iter().collect::<Vec<_>>());
    assert_eq!(wrongs, Vec::<String>::new());
    assert_eq!((outcome.steps, outcome.claims), (2, 1));
}

#[test]
fn a_retry_calls_under_the_key_of_the_unknown_call() {
    let retried = |carried: &str, called: &str| {
        let (mut story, mut known, mut lines) = truth();
        let keys = json!([{ "stepId": "a", "key": carried }]);
        known.log[0]["data"] = json!({ "retryOf": "exec_0", "callKeys": keys });
        story.told.clone_from(&known.log);
        called.clone_into(&mut lines[0].key);
        check(&story, &known, &lines.iter().collect::<Vec<_>>()).1
    };
    let notices = |wrongs: Vec<String>, what: &str| wrongs.iter().any(|wrong| wrong.contains(what));
    let told = retried("exec_0/a", "exec_0/a");
    assert_eq!(told, Vec::<String>::new());
    assert!(notices(retried("exec_0/a", "exec_1/a"), "under a key that nothing of it has"));
    assert!(notices(retried("exec_0/b", "exec_0/b"), "a key of no earlier call"));
}

#[test]
fn what_must_not_be_is_noticed() {
    notices("one attempt, two calls", |_, _, lines| lines.push(lines[0].clone()));
    notices("called twice", |_, _, lines| {
        lines.insert(0, Line { attempt: 0, ..lines[0].clone() });
    });
    notices("under a key that nothing of it has", |_, _, lines| {
        "other".clone_into(&mut lines[0].key);
    });
    notices("succeeded without a call", |_, _, lines| drop(lines.pop()));
    notices("called before the log said so", |_, _, lines| lines[0].attempt = 2);
    notices("told what the log does not have", |story, _, _| {
        story.told[3]["data"]["output"] = json!(7);
    });
    notices("the log has a gap", |_, known, _| drop(known.log.remove(3)));
    notices("stands behind the end", |_, known, _| known.log.push(known.log[1].clone()));
    notices("let it", |_, known, _| {
        known.log.swap(3, 4);
        number(&mut known.log);
    });
    notices("another output than the tool's", |_, known, _| {
        known.log[3]["data"]["output"] = json!({ "n": 5 });
    });
    notices("ended otherwise than its steps", |_, known, _| {
        known.log[6]["data"]["state"] = json!("FAILED");
        "FAILED".clone_into(&mut known.state);
    });
    notices("not everything is over", |_, known, _| drop(known.log.drain(4..6)));
    notices("something happens to what is over", |_, known, _| {
        known.log.insert(4, known.log[2].clone());
        number(&mut known.log);
    });
    notices("nobody can know how it ended", |_, known, _| {
        known.log.insert(3, json!({ "type": "claimed", "data": { "epoch": 2 } }));
        number(&mut known.log);
    });
    notices("renews what another has", |_, known, _| {
        let data = json!({ "epoch": 2, "worker": "other", "renewed": true });
        known.log.insert(3, json!({ "type": "claimed", "data": data }));
        number(&mut known.log);
    });
}

#[test]
fn only_what_reads_may_be_called_ahead_of_its_record() {
    let called_for_an_item = |kind: Kind, item: u64| {
        let (mut story, known, mut lines) = truth();
        // A list that was never recorded as begun: its execution ended before it could be.
        let list = Step { items: Some(vec![1, 2]), ..step(kind, &["b"], 0) };
        story.draft.steps.insert("list".to_owned(), list);
        let key = format!("exec_1/list[{item}]");
        lines.push(Line { step: "list".to_owned(), key, ..lines[0].clone() });
        let (_, wrongs) = check(&story, &known, &lines.iter().collect::<Vec<_>>());
        wrongs.iter().any(|wrong| wrong.contains("under a key that nothing of it has"))
    };
    assert!(!called_for_an_item(Kind::Read, 1));
    assert!(called_for_an_item(Kind::Read, 2), "the list has two items");
    assert!(called_for_an_item(Kind::Once, 1));
    assert!(called_for_an_item(Kind::Idempotent, 1));
}
