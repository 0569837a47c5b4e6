use expect_test::expect;

use super::*;

/// Returns the steps `a`, then `b` and `c`, then `x`. All but `x` have a compensation.
fn steps() -> Vec<UncheckedStep> {
    vec![
        with_compensation(call("a", &[])),
        with_compensation(call("b", &["a"])),
        with_compensation(call("c", &["a"])),
        call("x", &["b", "c"]),
    ]
}

fn story_before_last_step() -> Story {
    let mut story = Story::with_options(steps(), compensating_options());
    story.succeed("a").succeed("c").succeed("b");
    story
}

fn compensated_steps(story: &Story) -> Vec<String> {
    let undone = story
        .log
        .iter()
        .map(|recorded| &recorded.event)
        .filter(|event| event.kind() == "step_compensated");
    undone.map(|event| event.step().unwrap().to_string()).collect()
}

#[test]
fn succeeded_steps_are_compensated_in_reverse_order() {
    let mut story = story_before_last_step();
    story.end_step("x", Err(failed_error()));
    assert_eq!(story.state(), ExecutionState::Compensating);
    assert_eq!(story.called_with("b/undo"), json!({ "of": { "by": "b" } }));
    story.succeed("b/undo").succeed("c/undo").succeed("a/undo").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started, c#1 started
        0 c#1 succeeded {"by":"c"}
        0 b#1 succeeded {"by":"b"}, x#1 started
        0 x#1 failed tool.failed, compensation_started, b#1 compensation_started
        0 b#1 compensated {"by":"b/undo"}, c#1 compensation_started
        0 c#1 compensated {"by":"c/undo"}, a#1 compensation_started
        0 a#1 compensated {"by":"a/undo"}, finished Failed
    "#]]);
    let b = story.execution.step(story.step_number("b"));
    assert!(b.is_compensated() && b.output().is_some());
    story.assert_survives_every_cut();
    let tally = story.assert_finished(ExecutionState::Failed);
    assert_eq!((tally.successful, tally.failed), (3, 1));
}

#[test]
fn steps_that_run_at_the_failure_are_awaited_and_compensated() {
    let mut story = Story::with_options(steps(), compensating_options());
    story.succeed("a").end_step("b", Err(failed_error()));
    assert_eq!(story.state(), ExecutionState::InProgress);
    story.succeed("c").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started, c#1 started
        0 b#1 failed tool.failed, x skipped ExecutionFailed
        0 c#1 succeeded {"by":"c"}, compensation_started, c#1 compensation_started
    "#]]);
    story.succeed("c/undo").succeed("a/undo");
    assert_eq!(compensated_steps(&story), ["c", "a"]);
    story.assert_finished(ExecutionState::Failed);
}

#[test]
fn no_step_is_compensated_without_the_option() {
    let mut story = Story::new(steps());
    story.succeed("a").succeed("c").end_step("b", Err(failed_error()));
    assert_eq!(compensated_steps(&story), Vec::<String>::new());
    story.assert_finished(ExecutionState::Failed);
}

#[test]
fn a_completed_execution_is_not_compensated() {
    let mut story = story_before_last_step();
    story.succeed("x");
    assert_eq!(compensated_steps(&story), Vec::<String>::new());
    story.assert_finished(ExecutionState::Completed);
    let steps =
        vec![with_compensation(call("a", &[])), on_error(OnError::Continue, call("b", &[]))];
    let mut survived = Story::with_options(steps, compensating_options());
    survived.succeed("a").end_step("b", Err(failed_error()));
    assert_eq!(compensated_steps(&survived), Vec::<String>::new());
    survived.assert_finished(ExecutionState::Completed);
}

#[test]
fn a_failure_before_any_success_compensates_nothing() {
    let mut story = Story::with_options(steps(), compensating_options());
    story.end_step("a", Err(failed_error())).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 failed tool.failed, b skipped ExecutionFailed, c skipped ExecutionFailed,
          x skipped ExecutionFailed, finished Failed
    "]]);
}

#[test]
fn a_cancelled_execution_is_compensated_after_all_steps_stopped() {
    let mut story = Story::with_options(steps(), compensating_options());
    story.succeed("a").cancel().succeed("c");
    assert_eq!(story.state(), ExecutionState::InProgress, "`b` was asked to stop and still runs");
    story.end_step("b", Err(cancelled_error()));
    assert_eq!(story.state(), ExecutionState::Compensating);
    story.cancel().succeed("c/undo").succeed("a/undo").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started, c#1 started
        0 cancel_requested, x cancelled
        0 c#1 succeeded {"by":"c"}
        0 b cancelled, compensation_started, c#1 compensation_started
        0 c#1 compensated {"by":"c/undo"}, a#1 compensation_started
        0 a#1 compensated {"by":"a/undo"}, finished Cancelled
    "#]]);
}

#[test]
fn an_execution_past_its_deadline_is_compensated_without_a_deadline() {
    let options = ExecutionOptions { deadline_ms: Some(50), ..compensating_options() };
    let mut story = Story::with_options(steps(), options);
    story.succeed("a").succeed("b").wake_at(50).end_step("c", Err(cancelled_error()));
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Compensating, None));
    story.wake_at(5_000).succeed("b/undo").succeed("a/undo").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started, c#1 started
        0 b#1 succeeded {"by":"b"}
        50 deadline_passed, x skipped ExecutionFailed
        50 c#1 failed execution.deadline, compensation_started, b#1 compensation_started
        5000 b#1 compensated {"by":"b/undo"}, a#1 compensation_started
        5000 a#1 compensated {"by":"a/undo"}, finished Failed
    "#]]);
}

#[test]
fn items_are_compensated_one_by_one_with_their_own_outputs() {
    let each =
        with_parameters(json!({ "it": "{{item}}" }), with_compensation(call("each", &["a"])));
    let mut each = for_each("{{a}}", each);
    each.compensate.as_mut().unwrap().parameters =
        Arc::new(json!({ "of": "{{each}}", "it": "{{item}}", "at": "{{index}}", "all": "{{a}}" }));
    let steps = vec![call("a", &[]), each];
    let mut story = Story::with_options(steps, compensating_options());
    story.end_step("a", Ok(json!(["x", "y", "z"])));
    story.end_step("each[2]", Ok(json!("Z"))).end_step("each[0]", Ok(json!("X")));
    story.end_step("each[1]", Err(failed_error()));
    let expected = json!({ "of": "X", "it": "x", "at": 0, "all": ["x", "y", "z"] });
    assert_eq!(story.called_with("each[0]/undo"), expected);
    story.succeed("each[0]/undo").succeed("each[2]/undo").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded ["x","y","z"], each#1 started of 3, each[0]#1 started,
          each[1]#1 started, each[2]#1 started
        0 each[2]#1 succeeded "Z"
        0 each[0]#1 succeeded "X"
        0 each[1]#1 failed tool.failed, each#1 failed tool.failed, compensation_started,
          each[0]#1 compensation_started
        0 each[0]#1 compensated {"by":"each[0]/undo"}, each[2]#1 compensation_started
        0 each[2]#1 compensated {"by":"each[2]/undo"}, finished Failed
    "#]]);
    assert!(story.execution.step(story.step_number("each")).is_compensated());
}

#[test]
fn a_compensation_is_retried_by_its_own_policy() {
    let mut a = with_compensation(call("a", &[]));
    let policy = &mut a.compensate.as_mut().unwrap().policy;
    (policy.retry.max_attempts, policy.retry.jitter) = (2, false);
    let mut story = Story::with_options(vec![a, call("x", &["a"])], compensating_options());
    story.succeed("a").end_step("x", Err(failed_error())).end_step("a/undo", Err(failed_error()));
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Compensating, Some(100)));
    story.claim().wake_at(100).succeed("a/undo").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, x#1 started
        0 x#1 failed tool.failed, compensation_started, a#1 compensation_started
        0 a#1 compensation_retry_scheduled tool.failed until 100
        0 claimed
        100 a#2 compensation_started
        100 a#2 compensated {"by":"a/undo"}, finished Failed
    "#]]);
    story.assert_survives_every_cut();
}

/// Other engines handle a failed compensation badly: a Steno saga is stuck if an undo action fails,
/// and Conductor starts two failure workflows.
#[test]
fn a_failed_compensation_does_not_stop_the_others() {
    let mut story = story_before_last_step();
    story
        .end_step("x", Err(failed_error()))
        .succeed("b/undo")
        .end_step("c/undo", Err(failed_error()))
        .succeed("a/undo");
    story.check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started, c#1 started
        0 c#1 succeeded {"by":"c"}
        0 b#1 succeeded {"by":"b"}, x#1 started
        0 x#1 failed tool.failed, compensation_started, b#1 compensation_started
        0 b#1 compensated {"by":"b/undo"}, c#1 compensation_started
        0 c#1 compensation_failed tool.failed, a#1 compensation_started
        0 a#1 compensated {"by":"a/undo"}, finished Failed
    "#]]);
    assert_eq!(compensated_steps(&story), ["b", "a"]);
    let c = story.execution.step(story.step_number("c"));
    assert!(!c.is_compensated());
    assert!(matches!(c.undo.as_ref().unwrap().state, StepState::Failed(_)));
    assert_eq!(c.output(), Some(&json!({ "by": "c" })), "its output is kept");
    let started =
        story.log.iter().filter(|recorded| recorded.event == Event::CompensationStarted).count();
    assert_eq!(started, 1);
}

#[test]
fn an_interrupted_compensation_with_an_effect_is_not_repeated() {
    let mut once = with_compensation(call("b", &["a"]));
    once.compensate.as_mut().unwrap().policy.effect = Effect::Once;
    let steps = vec![with_compensation(call("a", &[])), once, call("x", &["b"])];
    let mut story = Story::with_options(steps, compensating_options());
    story.succeed("a").succeed("b").end_step("x", Err(failed_error())).claim().check(expect![[
        r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started
        0 b#1 succeeded {"by":"b"}, x#1 started
        0 x#1 failed tool.failed, compensation_started, b#1 compensation_started
        0 claimed, b#1 compensation_failed tool.outcome_unknown, a#1 compensation_started
    "#
    ]]);
    story.claim().succeed("a/undo").check(expect![[r#"
        0 claimed, a#1 compensation_interrupted, a#2 compensation_started
        0 a#2 compensated {"by":"a/undo"}, finished Failed
    "#]]);
}

#[test]
fn a_compensation_with_unresolved_parameters_fails_alone() {
    let mut b = with_compensation(call("b", &["a"]));
    b.compensate.as_mut().unwrap().parameters = Arc::new(json!({ "of": "{{b.missing}}" }));
    let steps = vec![with_compensation(call("a", &[])), b, call("x", &["b"])];
    let options = ExecutionOptions { strict_templates: Some(true), ..compensating_options() };
    let mut story = Story::with_options(steps, options);
    story.succeed("a").succeed("b").end_step("x", Err(failed_error())).succeed("a/undo").check(
        expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started
        0 b#1 succeeded {"by":"b"}, x#1 started
        0 x#1 failed tool.failed, compensation_started,
          b#1 compensation_failed template.unresolved, a#1 compensation_started
        0 a#1 compensated {"by":"a/undo"}, finished Failed
    "#]],
    );
}

#[test]
fn a_compensation_may_sleep_and_may_not_wait_for_a_signal() {
    let mut a = with_compensation(call("a", &[]));
    let undo = a.compensate.as_mut().unwrap();
    (undo.tool, undo.parameters) = ("flow.sleep".parse().unwrap(), Arc::new(json!({ "ms": 70 })));
    let mut b = with_compensation(call("b", &["a"]));
    let undo = b.compensate.as_mut().unwrap();
    (undo.tool, undo.parameters) =
        ("flow.wait".parse().unwrap(), Arc::new(json!({ "name": "go" })));
    let mut story = Story::with_options(vec![a, b, call("x", &["b"])], compensating_options());
    story.succeed("a").succeed("b").end_step("x", Err(failed_error())).claim().wake_at(70).check(
        expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started
        0 b#1 succeeded {"by":"b"}, x#1 started
        0 x#1 failed tool.failed, compensation_started,
          b#1 compensation_failed tool.invalid_parameters, a#1 compensation_started until 70
        0 claimed
        70 a#1 compensated null, finished Failed
    "#]],
    );
}

#[test]
fn a_pause_does_not_delay_compensations() {
    let mut story = Story::with_options(steps(), compensating_options());
    story.succeed("a").send_command(Command::Pause).succeed("b").end_step("c", Err(failed_error()));
    assert_eq!(story.state(), ExecutionState::Compensating);
    assert!(!story.execution.is_paused());
    story.succeed("b/undo").succeed("a/undo").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started, c#1 started
        0 paused
        0 b#1 succeeded {"by":"b"}
        0 c#1 failed tool.failed, x skipped ExecutionFailed, compensation_started,
          b#1 compensation_started
        0 b#1 compensated {"by":"b/undo"}, a#1 compensation_started
        0 a#1 compensated {"by":"a/undo"}, finished Failed
    "#]]);
}

/// An open compensation counts as work. Otherwise no other worker would find an execution that a
/// draining worker leaves.
#[test]
fn an_open_compensation_counts_as_work() {
    let mut story = story_before_last_step();
    let (task, result) = (story.task("x"), Err(failed_error()));
    let ended = Input::Ended { task, attempt: Attempt::FIRST, result };
    let moment = DecisionContext { now: time_at(0), is_start_allowed: false, effects: None };
    let events = decide(&mut story.execution, ended, moment);
    story.log.extend(events);
    assert_eq!(story.state(), ExecutionState::Compensating);
    assert!(story.execution.agenda().has_work());
    story.assert_replays();
    story.claim().succeed("b/undo").succeed("c/undo").succeed("a/undo");
    story.assert_finished(ExecutionState::Failed);
}

#[test]
fn a_succeeded_sub_plan_is_compensated_by_a_call() {
    let steps = vec![with_compensation(sub_plan("p", &[])), call("x", &["p"])];
    let mut story = Story::with_options(steps, compensating_options());
    story.end_step("p", Ok(json!({ "out": 1 }))).end_step("x", Err(failed_error()));
    assert!(story.execution.agenda().has_calls(), "a call undoes the step");
    assert_eq!(story.called_with("p/undo"), json!({ "of": { "out": 1 } }));
    story.succeed("p/undo");
    story.assert_finished(ExecutionState::Failed);
}

#[test]
fn ten_thousand_items_are_compensated_with_two_events_each() {
    const ITEMS: usize = 10_000;
    let list = Value::Array((0..ITEMS).map(Value::from).collect());
    let each = for_each("{{a}}", with_compensation(call("each", &["a"])));
    let mut story = Story::with_options(
        vec![call("a", &[]), each, call("x", &["each"])],
        compensating_options(),
    );
    story.end_step("a", Ok(list)).run(|task| match task.step.get() {
        2 => Err(failed_error()),
        _ => Ok(json!(task.part.item)),
    });
    let undone = story.log.iter().filter(|recorded| recorded.event.part().undo).count();
    assert_eq!(undone, 2 * ITEMS);
    story.assert_finished(ExecutionState::Failed);
}
