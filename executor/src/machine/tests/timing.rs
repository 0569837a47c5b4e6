use expect_test::expect;

use super::*;

fn parallel_options(max_parallel: u32) -> ExecutionOptions {
    ExecutionOptions { max_parallel: Some(max_parallel), ..ExecutionOptions::default() }
}

#[test]
fn a_sequential_execution_runs_one_step_at_a_time_in_plan_order() {
    let steps = vec![call("a", &[]), call("b", &[]), call("c", &["a"]), call("d", &[])];
    let mut story = Story::with_options(steps, sequential_options());
    story.succeed("a").succeed("b").succeed("c").succeed("d").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started
        0 b#1 succeeded {"by":"b"}, c#1 started
        0 c#1 succeeded {"by":"c"}, d#1 started
        0 d#1 succeeded {"by":"d"}, finished Completed
    "#]]);
}

/// Regression: a condition was evaluated, and failed the execution, before earlier steps had
/// started.
#[test]
fn a_sequential_condition_is_evaluated_in_its_turn() {
    let steps = vec![
        call("a", &[]),
        with_condition("input.x == 1", call("b", &[])),
        with_condition("false", call("c", &[])),
        call("d", &[]),
    ];
    let input = Arc::new(json!({ "x": 1 }));
    let mut story =
        Story::with_options(steps.clone(), ExecutionOptions { input, ..sequential_options() });
    story.succeed("a").succeed("b").succeed("d").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started
        0 b#1 succeeded {"by":"b"}, c skipped Condition, d#1 started
        0 d#1 succeeded {"by":"d"}, finished Completed
    "#]]);
    let mut story = Story::with_options(steps, sequential_options());
    story.succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 failed template.unresolved, c skipped ExecutionFailed,
          d skipped ExecutionFailed, finished Failed
    "#]]);
}

/// Regression: later steps ran while an earlier step waited for its retry.
#[test]
fn a_sequential_execution_starts_no_step_during_a_retry_delay() {
    let mut story = Story::with_options(
        vec![with_attempts(2, call("a", &[])), call("b", &[])],
        sequential_options(),
    );
    story.end_step("a", Err(failed_error()));
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Waiting, Some(100)));
    story.wake_at(100).end_step("a", Err(failed_error())).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 retry_scheduled tool.failed until 100
        100 a#2 started
        100 a#2 failed tool.failed, b skipped ExecutionFailed, finished Failed
    "]]);
}

/// Regression: waits for signals and approvals started before their turn.
#[test]
fn a_sequential_execution_requests_approvals_in_turn() {
    let mut until = wait("w", "go", &[]);
    until.policy.timeout_ms = 200;
    let steps = vec![
        sleep("s", 400, &[]),
        until,
        with_approval(call("p", &[])),
        on_error(OnError::Wait, call("d", &[])),
        call("z", &[]),
    ];
    let mut story = Story::with_options(steps, sequential_options());
    story.wake_at(300).wake_at(400);
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Waiting, Some(600)));
    story.wake_at(500).signal("go", json!(1)).claim();
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Waiting, None));
    story.approve("z", true).approve("p", true).succeed("p").end_step("d", Err(failed_error()));
    assert_eq!(story.state(), ExecutionState::Waiting);
    story.approve("d", true).succeed("d").succeed("z").check(expect![[r#"
        0 claimed, s#1 started until 400
        400 s#1 succeeded null, w waiting signal go
        500 signal_received, w#1 succeeded 1, p waiting approval
        500 claimed
        500 command_ignored
        500 p approved, p#1 started
        500 p#1 succeeded {"by":"p"}, d#1 started
        500 d waiting decision tool.failed
        500 d approved, d#2 started
        500 d#2 succeeded {"by":"d"}, z#1 started
        500 z#1 succeeded {"by":"z"}, finished Completed
    "#]]);
}

/// Reused steps have finished, so the first step that is not reused starts, even if a later step is
/// reused.
#[test]
fn a_sequential_execution_passes_over_reused_steps() {
    let plan = plan(vec![call("a", &[]), call("b", &[]), call("c", &["a"]), call("d", &["b"])]);
    let mut created = Created::new(plan.id(), plan.info().request, sequential_options());
    created.reused = ["a", "c"].map(|name| (name.parse().unwrap(), Arc::new(json!(name)))).into();
    let mut story = Story::created(&plan, created);
    story.claim().succeed("b").succeed("d").check(expect![[r#"
        0 claimed, b#1 started
        0 b#1 succeeded {"by":"b"}, d#1 started
        0 d#1 succeeded {"by":"d"}, finished Completed
    "#]]);
}

#[test]
fn a_parallel_execution_runs_ready_steps_up_to_its_limit() {
    let steps = vec![call("a", &[]), call("b", &[]), call("c", &[]), call("d", &["b"])];
    let mut story = Story::with_options(steps, parallel_options(2));
    story.succeed("b").succeed("c").check(expect![[r#"
        0 claimed, a#1 started, b#1 started
        0 b#1 succeeded {"by":"b"}, c#1 started
        0 c#1 succeeded {"by":"c"}, d#1 started
    "#]]);
}

#[test]
fn sleeps_hold_a_slot_and_survive_a_claim() {
    let mut story =
        Story::with_options(vec![sleep("s", 1_000, &[]), call("a", &[])], parallel_options(1));
    story.wake_at(500).claim().check(expect![[r"
        0 claimed, s#1 started until 1000
        500 claimed
    "]]);
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::InProgress, Some(1_000)));
    story.wake_at(1_000).succeed("a").check(expect![[r#"
        1000 s#1 succeeded null, a#1 started
        1000 a#1 succeeded {"by":"a"}, finished Completed
    "#]]);
}

#[test]
fn waits_approvals_and_retry_delays_hold_no_slot() {
    let steps = vec![
        wait("w", "go", &[]),
        with_approval(call("p", &[])),
        with_attempts(2, call("r", &[])),
        call("a", &[]),
    ];
    let mut story = Story::with_options(steps, parallel_options(1));
    story.end_step("r", Err(failed_error())).check(expect![[r"
        0 claimed, w waiting signal go, p waiting approval, r#1 started
        0 r#1 retry_scheduled tool.failed until 100, a#1 started
    "]]);
    assert_eq!(story.next_wake_ms(), None, "the retry waits for the slot");
    story.wake_at(200).succeed("a").check(expect![[r#"
        200 a#1 succeeded {"by":"a"}, r#2 started
    "#]]);
}

#[test]
fn a_sleep_of_zero_ends_at_once_and_a_long_one_at_its_timeout() {
    let mut story = Story::new(vec![sleep("s", 0, &[])]);
    story.check(expect![[r"
        0 claimed, s#1 started until 0, s#1 succeeded null, finished Completed
    "]]);
    let mut long = sleep("s", 5_000, &[]);
    long.policy.timeout_ms = 1_000;
    let mut story = Story::new(vec![long]);
    story.wake_at(1_000).check(expect![[r"
        0 claimed, s#1 started until 1000
        1000 s#1 failed tool.timeout, finished Failed
    "]]);
    let bad = with_parameters(json!({ "ms": -1 }), step("s", "flow.sleep", &[]));
    Story::new(vec![bad]).check(expect![[r"
        0 claimed, s#1 started, s#1 failed tool.invalid_parameters, finished Failed
    "]]);
}

#[test]
fn a_sleep_of_an_hour_needs_no_configured_timeout() {
    let mut story = Story::new(vec![sleep("s", 3_600_000, &[])]);
    assert_eq!(story.next_wake_ms(), Some(3_600_000));
    story.wake_at(3_600_000).check(expect![[r"
        0 claimed, s#1 started until 3600000
        3600000 s#1 succeeded null, finished Completed
    "]]);
}

#[test]
fn no_step_starts_before_start_at() {
    let options =
        ExecutionOptions { start_at: Some(time_at(5_000)), ..ExecutionOptions::default() };
    let mut story = Story::with_options(vec![call("a", &[])], options);
    story.wake_at(4_999).check(expect![[r"
        0 claimed
    "]]);
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Pending, Some(5_000)));
    story.now = time_at(5_000);
    story.claim().check(expect![[r"
        5000 claimed, a#1 started
    "]]);
    assert_eq!(story.state(), ExecutionState::InProgress);
}

#[test]
fn a_draining_worker_starts_no_step() {
    let mut story =
        Story::new(vec![call("a", &[]), call("b", &["a"]), with_approval(call("c", &["a"]))]);
    let (task, result) = (story.task("a"), Ok(json!(1).into()));
    let ended = Input::Ended { task, attempt: Attempt::FIRST, result };
    let moment = DecisionContext { now: time_at(1), is_start_allowed: false, effects: None };
    let events = decide(&mut story.execution, ended, moment);
    story.log.extend(events);
    story.check(expect![[r"
        0 claimed, a#1 started
        1 a#1 succeeded 1
    "]]);
    story.claim().check(expect![[r"
        0 claimed, c waiting approval, b#1 started
    "]]);
}

#[test]
fn output_mappings_set_variables_and_the_last_step_wins() {
    let mapped = |id: &str| {
        let mut step = call(id, &[]);
        step.output_mapping = vec![("by".to_owned(), "who".to_owned())];
        step
    };
    let steps = vec![
        mapped("a"),
        mapped("b"),
        with_parameters(json!({ "x": "{{vars.who}}" }), call("c", &["a", "b"])),
    ];
    let mut story = Story::new(steps);
    story.succeed("b").succeed("a");
    let c = story.execution.step(story.step_number("c"));
    assert_eq!(c.parameters.as_deref(), Some(&json!({ "x": "b" })));
}

/// Regression: sleeps, delays and deadlines that began by a clock that was a year ahead lasted for
/// a year after the next claim.
#[test]
fn waits_that_began_by_a_fast_clock_are_corrected_at_the_next_claim() {
    const YEAR: i64 = 365 * 24 * 3_600 * 1_000;
    let mut signal = wait("w", "go", &[]);
    signal.policy.timeout_ms = 700;
    let steps = vec![sleep("s", 400, &[]), with_attempts(2, call("r", &[])), signal];
    let deadline = ExecutionOptions { deadline_ms: Some(900), ..ExecutionOptions::default() };
    let mut story = Story::new_unclaimed(steps.clone(), deadline.clone());
    story.now = time_at(YEAR);
    story.claim().end_step("r", Err(failed_error()));
    assert_eq!(story.next_wake_ms(), Some(YEAR + 100));
    story.now = time_at(1_000);
    story.claim().claim();
    assert_eq!(story.next_wake_ms(), Some(1_100));
    story.wake_at(1_100).succeed("r").wake_at(1_400).wake_at(1_700).check(expect![[r#"
        31536000000 claimed, w waiting signal go, s#1 started until 31536000400, r#1 started
        31536000000 r#1 retry_scheduled tool.failed until 31536000100
        1000 claimed, waits_shortened
        1000 claimed
        1100 r#2 started
        1100 r#2 succeeded {"by":"r"}
        1400 s#1 succeeded null
        1700 w#1 failed tool.timeout, finished Failed
    "#]]);

    let mut story = Story::new_unclaimed(vec![wait("w", "go", &[])], deadline);
    story.now = time_at(YEAR);
    story.claim();
    story.now = time_at(1_000);
    assert_eq!(story.claim().next_wake_ms(), Some(1_900));
    story.wake_at(1_900).check(expect![[r"
        31536000000 claimed, w waiting signal go
        1000 claimed, waits_shortened
        1900 deadline_passed, w#1 failed execution.deadline, finished Failed
    "]]);

    let mut near = Story::new_unclaimed(steps, ExecutionOptions::default());
    near.now = time_at(4_000);
    near.claim();
    near.now = time_at(0);
    assert_eq!(near.claim().next_wake_ms(), Some(4_400), "clocks of nodes differ a little");

    let start_at = Some(time_at(2 * YEAR));
    let wish = ExecutionOptions { start_at, ..ExecutionOptions::default() };
    let mut planned = Story::new_unclaimed(vec![call("a", &[])], wish);
    planned.now = time_at(YEAR);
    planned.claim();
    planned.now = time_at(0);
    assert_eq!(planned.claim().next_wake_ms(), Some(2 * YEAR), "a planned start is a wish");
}
