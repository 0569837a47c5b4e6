//! Calls whose outcome is unknown: a person settles them, and a retry takes over their idempotency
//! keys.

use expect_test::expect;
use shared::event::{CallKey, CallPlace, Settled, SettledCall, Settlement, hash_parameters};

use super::*;

fn once_call(id: &str, after: &[&str]) -> UncheckedStep {
    effect(Effect::Once, call(id, after))
}

fn decision(outcome: Settled, output: Option<Value>) -> Settlement {
    Settlement { outcome, output: output.map(Arc::new), comment: Some("seen".to_owned()) }
}

impl Story {
    fn settle(&mut self, id: &str, decision: Settlement) -> &mut Self {
        let task = self.task(id);
        let step = self.execution.plan().step(task.step).id.clone();
        self.send_command(Command::Settle { step, item: task.part.item, decision })
    }
}

/// Returns an execution whose step `a` waits, because its call timed out.
fn story_with_unknown_outcome() -> Story {
    let steps =
        vec![on_error(OnError::Wait, with_compensation(once_call("a", &[]))), call("b", &["a"])];
    let mut story = Story::with_options(steps, compensating_options());
    story.end_step("a", Err(timeout_error())).check(expect![[r"
        0 claimed, a#1 started
        0 a waiting decision tool.outcome_unknown
    "]]);
    story
}

#[test]
fn a_settled_step_continues_with_the_output_of_the_person() {
    let mut story = story_with_unknown_outcome();
    story.settle("a", decision(Settled::Succeeded, Some(json!({ "id": 7 }))));
    story.end_step("b", Err(failed_error())).succeed("a/undo").check(expect![[r#"
        0 a#1 settled Succeeded {"id":7}, b#1 started
        0 b#1 failed tool.failed, compensation_started, a#1 compensation_started
        0 a#1 compensated {"by":"a/undo"}, finished Failed
    "#]]);
    assert_eq!(story.called_with("a/undo"), json!({ "of": { "id": 7 } }));
    assert_eq!(story.execution.step(story.step_number("a")).settled(), Some(Settled::Succeeded));
}

#[test]
fn a_step_settled_as_without_effect_fails() {
    let mut story = story_with_unknown_outcome();
    story.settle("a", decision(Settled::Failed, None)).check(expect![[r"
        0 a#1 settled Failed, b skipped ExecutionFailed, finished Failed
    "]]);
    let StepState::Failed(error) = &story.execution.step(story.step_number("a")).state else {
        panic!()
    };
    assert!(!error.is_outcome_unknown() && error.message.ends_with("; seen"), "{error}");
    assert!(story.execution.open_call_keys().is_empty());
}

#[test]
fn only_a_step_with_an_unknown_outcome_can_be_settled() {
    let mut story = Story::new(vec![
        on_error(OnError::Wait, once_call("a", &[])),
        with_approval(call("b", &[])),
        call("c", &[]),
    ]);
    story.end_step("a", Err(failed_error().without_retry()));
    story.checked_events = story.log.len();
    for step in ["a", "b", "c"] {
        story.settle(step, decision(Settled::Failed, None));
    }
    story.check(expect![[r"
        0 command_ignored
        0 command_ignored
        0 command_ignored
    "]]);
}

/// Without the error `tool.outcome_unknown`, a retry would repeat the call without asking a person.
#[test]
fn a_waiting_step_keeps_its_unknown_outcome_when_the_execution_stops() {
    let mut story = story_with_unknown_outcome();
    story.cancel().check(expect![[r"
        0 cancel_requested, a#1 failed tool.outcome_unknown, b cancelled, finished Cancelled
    "]]);
    let options = ExecutionOptions { deadline_ms: Some(500), ..ExecutionOptions::default() };
    let mut late = Story::with_options(vec![on_error(OnError::Wait, once_call("a", &[]))], options);
    late.end_step("a", Err(timeout_error())).wake_at(500).check(expect![[r"
        0 claimed, a#1 started
        0 a waiting decision tool.outcome_unknown
        500 deadline_passed, a#1 failed tool.outcome_unknown, finished Failed
    "]]);
    assert_eq!(story.execution.open_call_keys().len(), 1);
}

#[test]
fn items_of_a_loop_are_settled_one_by_one() {
    let each =
        for_each("{{input}}", with_compensation(on_error(OnError::Wait, once_call("each", &[]))));
    let options = ExecutionOptions { input: Arc::new(json!([1, 2])), ..compensating_options() };
    let mut story = Story::with_options(vec![each], options);
    story.end_step("each[0]", Err(timeout_error())).end_step("each[1]", Err(timeout_error()));
    story.settle("each[1]", decision(Settled::Succeeded, Some(json!(2))));
    story.settle("each", decision(Settled::Failed, None));
    story.settle("each[0]", decision(Settled::Failed, None)).succeed("each[1]/undo");
    story.check(expect![[r#"
        0 claimed, each#1 started of 2, each[0]#1 started, each[1]#1 started
        0 each[0] waiting decision tool.outcome_unknown
        0 each[1] waiting decision tool.outcome_unknown
        0 each[1]#1 settled Succeeded 2
        0 command_ignored
        0 each[0]#1 settled Failed, each#1 failed tool.failed, compensation_started,
          each[1]#1 compensation_started
        0 each[1]#1 compensated {"by":"each[1]/undo"}, finished Failed
    "#]]);
}

fn place(step: &str, item: Option<u32>) -> CallPlace {
    CallPlace { step: step.parse().unwrap(), item, child: None }
}

fn key(step: &str, item: Option<u32>, key: &str, parameters: &Value) -> CallKey {
    let parameters = hash_parameters(parameters);
    CallKey { place: place(step, item), key: key.into(), parameters }
}

fn retry_story(steps: Vec<UncheckedStep>, input: Value, change: impl Fn(&mut Created)) -> Story {
    let plan = plan(steps);
    let options = ExecutionOptions { input: Arc::new(input), ..compensating_options() };
    let mut created = Created::new(plan.id(), plan.info().request, options);
    created.retry_of = Some("exec_9_aaaaaaaaa".parse().unwrap());
    change(&mut created);
    let mut story = Story::created(&plan, created);
    story.claim();
    story
}

fn sent_keys(story: &Story) -> Vec<(String, bool)> {
    let started = story.log.iter().filter_map(|recorded| match &recorded.event {
        Event::StepStarted(started) if started.items.is_none() => Some(started),
        _ => None,
    });
    let own = || "own".to_owned();
    started
        .map(|started| {
            (
                started.key.as_deref().map_or_else(own, ToOwned::to_owned),
                !started.warnings.is_empty(),
            )
        })
        .collect()
}

#[test]
fn a_retry_sends_the_key_of_the_unknown_call_if_the_parameters_are_the_same() {
    let pay = || {
        with_parameters(json!({ "sum": "{{input.sum}}" }), with_attempts(2, once_call("pay", &[])))
    };
    for (sum, expected) in [(7, ("exec_9_aaaaaaaaa/pay", false)), (8, ("own", true))] {
        let mut story = retry_story(vec![pay()], json!({ "sum": sum }), |created| {
            created.call_keys =
                vec![key("pay", None, "exec_9_aaaaaaaaa/pay", &json!({ "sum": 7 }))];
        });
        story.end_step("pay", Err(failed_error())).wake_at(1_000).succeed("pay");
        let expected = (expected.0.to_owned(), expected.1);
        assert_eq!(sent_keys(&story), [expected.clone(), expected], "{sum}");
    }
}

#[test]
fn a_retry_sends_the_key_of_an_item_to_the_same_item() {
    let each =
        with_parameters(json!({ "n": "{{item}}" }), for_each("{{input}}", once_call("each", &[])));
    let mut story = retry_story(vec![each], json!([5, 6, 7]), |created| {
        created.call_keys = vec![
            key("each", Some(0), "k0", &json!({ "n": 5 })),
            key("each", Some(2), "k2", &json!({ "n": 9 })),
        ];
    });
    let own = || "own".to_owned();
    assert_eq!(sent_keys(&story), [("k0".to_owned(), false), (own(), false), (own(), true)]);
    story.succeed("each[0]").succeed("each[1]").end_step("each[2]", Err(timeout_error()));
    // The earlier call of item 2 was a different call, so its outcome is also still unknown.
    let open = story.execution.open_call_keys();
    let open: Vec<&str> = open.iter().map(|key| &*key.key).collect();
    assert_eq!(open, ["k2", "exec_1_aaaaaaaaa/each[2]"]);
}

/// A retry that never made the call, or whose call certainly had no effect, says nothing about the
/// outcome of the first call.
#[test]
fn a_key_stays_open_until_its_call_succeeds_or_is_settled() {
    let steps = || vec![call("a", &[]), once_call("pay", &["a"])];
    let change = |created: &mut Created| {
        created.call_keys = vec![key("pay", None, "k", &json!({}))];
    };
    let open = |story: &Story| -> Vec<String> {
        let open = story.execution.open_call_keys();
        open.iter().map(|key| key.key.to_string()).collect()
    };
    let mut never = retry_story(steps(), json!(null), change);
    never.end_step("a", Err(failed_error()));
    assert_eq!(open(&never), ["k"]);
    let mut refused = retry_story(steps(), json!(null), change);
    refused.succeed("a").end_step("pay", Err(failed_error()));
    assert_eq!(open(&refused), ["k"]);
    let mut unknown = retry_story(steps(), json!(null), change);
    unknown.succeed("a").end_step("pay", Err(timeout_error()));
    assert_eq!(open(&unknown), ["k"], "both attempts are the same call");
    let mut done = retry_story(steps(), json!(null), change);
    done.succeed("a").succeed("pay");
    assert!(open(&done).is_empty());
}

#[test]
fn a_reused_settled_step_is_compensated() {
    let steps = vec![
        with_compensation(once_call("pay", &[])),
        with_compensation(call("a", &["pay"])),
        call("x", &["a"]),
    ];
    let mut story = retry_story(steps, json!(null), |created| {
        created.reused = vec![("pay".parse().unwrap(), Arc::new(json!({ "id": 7 })))];
        created.settled = vec![SettledCall {
            place: place("pay", None),
            output: None,
            parameters: String::new(),
            comment: None,
        }];
    });
    assert_eq!(story.execution.step(story.step_number("pay")).settled(), Some(Settled::Succeeded));
    assert_eq!(story.execution.settled_calls().len(), 1);
    story
        .succeed("a")
        .end_step("x", Err(failed_error()))
        .succeed("a/undo")
        .succeed("pay/undo")
        .check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, x#1 started
        0 x#1 failed tool.failed, compensation_started, a#1 compensation_started
        0 a#1 compensated {"by":"a/undo"}, pay#1 compensation_started
        0 pay#1 compensated {"by":"pay/undo"}, finished Failed
    "#]]);
    assert_eq!(story.called_with("pay/undo"), json!({ "of": { "id": 7 } }));
    assert!(story.execution.settled_calls().is_empty(), "the call was undone");
}

#[test]
fn a_settled_item_is_reused_if_it_is_the_same_item() {
    let each = with_compensation(with_parameters(
        json!({ "n": "{{item}}" }),
        for_each("{{input}}", once_call("each", &[])),
    ));
    let settled = |item, n: i64| SettledCall {
        place: place("each", Some(item)),
        output: Some(Arc::new(json!("paid"))),
        parameters: hash_parameters(&json!({ "n": n })),
        comment: None,
    };
    let mut story = retry_story(vec![each, call("x", &["each"])], json!([5, 6]), |created| {
        created.settled = vec![settled(0, 5), settled(1, 9)];
    });
    story
        .succeed("each[1]")
        .end_step("x", Err(failed_error()))
        .succeed("each[1]/undo")
        .succeed("each[0]/undo");
    story.check(expect![[r#"
        0 claimed, each#1 started of 2, each[0]#1 settled Succeeded "paid", each[1]#1 started
        0 each[1]#1 succeeded {"by":"each[1]"}, each#1 succeeded, x#1 started
        0 x#1 failed tool.failed, compensation_started, each[1]#1 compensation_started
        0 each[1]#1 compensated {"by":"each[1]/undo"}, each[0]#1 compensation_started
        0 each[0]#1 compensated {"by":"each[0]/undo"}, finished Failed
    "#]]);
}
