//! Order, slots and time: what starts when.

use expect_test::expect;

use super::*;

fn width(max_parallel: u32) -> ExecutionOptions {
    ExecutionOptions { max_parallel: Some(max_parallel), ..ExecutionOptions::default() }
}

#[test]
fn sequential_runs_one_step_at_a_time_in_plan_order() {
    let steps = vec![call("a", &[]), call("b", &[]), call("c", &["a"]), call("d", &[])];
    let mut story = Story::with(steps, sequential());
    story.ok("a").ok("b").ok("c").ok("d").check(expect![[r#"
        0 claimed
        0 step_started a#1
        0 step_succeeded a#1 {"by":"a"}
        0 step_started b#1
        0 step_succeeded b#1 {"by":"b"}
        0 step_started c#1
        0 step_succeeded c#1 {"by":"c"}
        0 step_started d#1
        0 step_succeeded d#1 {"by":"d"}
        0 finished Completed
    "#]]);
    story.is_over(ExecutionState::Completed);
}

/// A condition was decided, and failed everything, before the steps in front of it had begun.
#[test]
fn one_after_another_a_condition_is_decided_in_its_turn() {
    let steps = vec![
        call("a", &[]),
        when("input.x == 1", call("b", &[])),
        when("false", call("c", &[])),
        call("d", &[]),
    ];
    let input = Arc::new(json!({ "x": 1 }));
    let mut story = Story::with(steps.clone(), ExecutionOptions { input, ..sequential() });
    story.ok("a").ok("b").ok("d").check(expect![[r#"
        0 claimed
        0 step_started a#1
        0 step_succeeded a#1 {"by":"a"}
        0 step_started b#1
        0 step_succeeded b#1 {"by":"b"}
        0 step_skipped c Condition
        0 step_started d#1
        0 step_succeeded d#1 {"by":"d"}
        0 finished Completed
    "#]]);
    let mut story = Story::with(steps, sequential());
    story.ok("a").check(expect![[r#"
        0 claimed
        0 step_started a#1
        0 step_succeeded a#1 {"by":"a"}
        0 step_failed b#1 template.unresolved
        0 step_skipped c ExecutionFailed
        0 step_skipped d ExecutionFailed
        0 finished Failed
    "#]]);
    story.is_over(ExecutionState::Failed);
}

/// Later steps ran while one waited for its next try, and were done when that failed for good.
#[test]
fn one_after_another_nothing_begins_during_the_delay_of_a_retry() {
    let mut story = Story::with(vec![tries(2, call("a", &[])), call("b", &[])], sequential());
    story.end("a", Err(failed()));
    assert_eq!((story.state(), story.wakes_at()), (ExecutionState::Waiting, Some(100)));
    story.wake(100).end("a", Err(failed())).check(expect![[r"
        0 claimed
        0 step_started a#1
        0 step_retry_scheduled a#1 tool.failed until 100
        100 step_started a#2
        100 step_failed a#2 tool.failed
        100 step_skipped b ExecutionFailed
        100 finished Failed
    "]]);
    story.is_over(ExecutionState::Failed);
}

/// A wait for a signal was over before its turn, and people were asked before theirs.
#[test]
fn one_after_another_nobody_is_asked_for_what_is_not_next() {
    let mut until = wait("w", "go", &[]);
    until.policy.timeout_ms = 200;
    let steps = vec![
        sleep("s", 400, &[]),
        until,
        approved(call("p", &[])),
        on_error(OnError::Wait, call("d", &[])),
        call("z", &[]),
    ];
    let mut story = Story::with(steps, sequential());
    story.wake(300).wake(400);
    assert_eq!((story.state(), story.wakes_at()), (ExecutionState::Waiting, Some(600)));
    story.wake(500).signal("go", json!(1)).claim();
    assert_eq!((story.state(), story.wakes_at()), (ExecutionState::Waiting, None));
    story.approve("z", true).approve("p", true).ok("p").end("d", Err(failed()));
    assert_eq!(story.state(), ExecutionState::Waiting);
    story.approve("d", true).ok("d").ok("z").check(expect![[r#"
        0 claimed
        0 step_started s#1 until 400
        400 step_succeeded s#1 null
        400 step_waiting w signal go
        500 signal_received
        500 step_succeeded w#1 1
        500 step_waiting p approval
        500 claimed
        500 command_ignored
        500 step_approved p
        500 step_started p#1
        500 step_succeeded p#1 {"by":"p"}
        500 step_started d#1
        500 step_waiting d decision tool.failed
        500 step_approved d
        500 step_started d#2
        500 step_succeeded d#2 {"by":"d"}
        500 step_started z#1
        500 step_succeeded z#1 {"by":"z"}
        500 finished Completed
    "#]]);
    story.is_over(ExecutionState::Completed);
}

/// What earlier steps were taken over from another execution are over: the first that is not has
/// its turn, also where one behind it is.
#[test]
fn one_after_another_what_is_taken_over_is_passed_over() {
    let plan = plan(vec![call("a", &[]), call("b", &[]), call("c", &["a"]), call("d", &["b"])]);
    let mut created = Created::new(plan.id(), plan.info().request, sequential());
    created.reused = ["a", "c"].map(|it| (it.parse().unwrap(), Arc::new(json!(it)))).into();
    let mut story = Story::created(&plan, created);
    story.claim().ok("b").ok("d").check(expect![[r#"
        0 claimed
        0 step_started b#1
        0 step_succeeded b#1 {"by":"b"}
        0 step_started d#1
        0 step_succeeded d#1 {"by":"d"}
        0 finished Completed
    "#]]);
    story.is_over(ExecutionState::Completed);
}

#[test]
fn parallel_runs_what_is_ready_up_to_its_limit() {
    let steps = vec![call("a", &[]), call("b", &[]), call("c", &[]), call("d", &["b"])];
    let mut story = Story::with(steps, width(2));
    story.ok("b").ok("c").check(expect![[r#"
        0 claimed
        0 step_started a#1
        0 step_started b#1
        0 step_succeeded b#1 {"by":"b"}
        0 step_started c#1
        0 step_succeeded c#1 {"by":"c"}
        0 step_started d#1
    "#]]);
}

#[test]
fn sleeps_hold_a_slot_and_survive_a_claim() {
    let mut story = Story::with(vec![sleep("s", 1_000, &[]), call("a", &[])], width(1));
    story.wake(500).claim().check(expect![[r"
        0 claimed
        0 step_started s#1 until 1000
        500 claimed
    "]]);
    assert_eq!((story.state(), story.wakes_at()), (ExecutionState::InProgress, Some(1_000)));
    story.wake(1_000).ok("a").check(expect![[r#"
        1000 step_succeeded s#1 null
        1000 step_started a#1
        1000 step_succeeded a#1 {"by":"a"}
        1000 finished Completed
    "#]]);
    story.is_over(ExecutionState::Completed);
}

#[test]
fn waits_approvals_and_retry_delays_hold_no_slot() {
    let steps = vec![
        wait("w", "go", &[]),
        approved(call("p", &[])),
        tries(2, call("r", &[])),
        call("a", &[]),
    ];
    let mut story = Story::with(steps, width(1));
    story.end("r", Err(failed())).check(expect![[r"
        0 claimed
        0 step_waiting w signal go
        0 step_waiting p approval
        0 step_started r#1
        0 step_retry_scheduled r#1 tool.failed until 100
        0 step_started a#1
    "]]);
    assert_eq!(story.wakes_at(), None, "the retry waits for the slot");
    story.wake(200).ok("a").check(expect![[r#"
        200 step_succeeded a#1 {"by":"a"}
        200 step_started r#2
    "#]]);
}

#[test]
fn a_sleep_of_nothing_is_over_at_once_and_a_long_one_ends_with_its_timeout() {
    let mut story = Story::new(vec![sleep("s", 0, &[])]);
    story.check(expect![[r"
        0 claimed
        0 step_started s#1 until 0
        0 step_succeeded s#1 null
        0 finished Completed
    "]]);
    let mut long = sleep("s", 5_000, &[]);
    long.policy.timeout_ms = 1_000;
    let mut story = Story::new(vec![long]);
    story.wake(1_000).check(expect![[r"
        0 claimed
        0 step_started s#1 until 1000
        1000 step_failed s#1 tool.timeout
        1000 finished Failed
    "]]);
    let bad = with(json!({ "ms": -1 }), step("s", "flow.sleep", &[]));
    Story::new(vec![bad]).check(expect![[r"
        0 claimed
        0 step_started s#1
        0 step_failed s#1 tool.invalid_parameters
        0 finished Failed
    "]]);
}

#[test]
fn a_sleep_of_an_hour_needs_no_timeout_of_its_own() {
    let mut story = Story::new(vec![sleep("s", 3_600_000, &[])]);
    assert_eq!(story.wakes_at(), Some(3_600_000));
    story.wake(3_600_000).check(expect![[r"
        0 claimed
        0 step_started s#1 until 3600000
        3600000 step_succeeded s#1 null
        3600000 finished Completed
    "]]);
}

#[test]
fn nothing_starts_before_its_time() {
    let options = ExecutionOptions { start_at: Some(at(5_000)), ..ExecutionOptions::default() };
    let mut story = Story::with(vec![call("a", &[])], options);
    story.wake(4_999).check(expect![[r"
        0 claimed
    "]]);
    assert_eq!((story.state(), story.wakes_at()), (ExecutionState::Pending, Some(5_000)));
    story.now = at(5_000);
    story.claim().check(expect![[r"
        5000 claimed
        5000 step_started a#1
    "]]);
    assert_eq!(story.state(), ExecutionState::InProgress);
}

#[test]
fn a_worker_that_is_about_to_end_begins_nothing() {
    let mut story =
        Story::new(vec![call("a", &[]), call("b", &["a"]), approved(call("c", &["a"]))]);
    let (task, result) = (story.task("a"), Ok(json!(1).into()));
    let ended = Input::Ended { task, attempt: Attempt::FIRST, result };
    let moment = Moment { now: at(1), may_start: false };
    let events = decide(&mut story.execution, ended, moment);
    story.log.extend(events);
    story.check(expect![[r"
        0 claimed
        0 step_started a#1
        1 step_succeeded a#1 1
    "]]);
    story.claim().check(expect![[r"
        0 claimed
        0 step_waiting c approval
        0 step_started b#1
    "]]);
}

#[test]
fn output_mappings_fill_variables_and_the_last_in_plan_order_wins() {
    let mapped = |id: &str| {
        let mut step = call(id, &[]);
        step.output_mapping = vec![("by".to_owned(), "who".to_owned())];
        step
    };
    let steps = vec![
        mapped("a"),
        mapped("b"),
        with(json!({ "x": "{{vars.who}}" }), call("c", &["a", "b"])),
    ];
    let mut story = Story::new(steps);
    story.ok("b").ok("a");
    let c = story.execution.step(story.number("c"));
    assert_eq!(c.parameters.as_deref(), Some(&json!({ "x": "b" })));
}
