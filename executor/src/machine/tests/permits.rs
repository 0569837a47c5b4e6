//! Permits: a task that waits for a permit is not running.

use expect_test::expect;

use super::*;

fn limited_step(id: &str, after: &[&str]) -> UncheckedStep {
    step(id, "set.limited", after)
}

fn start_limited(steps: Vec<UncheckedStep>, options: ExecutionOptions) -> Story {
    let mut story = Story::new_unclaimed(steps, options);
    story.limit_calls(&["set.limited"]).claim();
    story
}

#[test]
fn a_step_without_a_permit_is_pending_and_holds_no_slot() {
    let steps = vec![limited_step("a", &[]), call("b", &[]), call("c", &[])];
    let options = ExecutionOptions { max_parallel: Some(1), ..Default::default() };
    let mut parallel =
        start_limited(steps.clone(), ExecutionOptions { max_parallel: Some(2), ..options });
    parallel.succeed("b").check(expect![[r#"
        0 claimed, b#1 started, c#1 started
        0 b#1 succeeded {"by":"b"}
    "#]]);
    assert_eq!(parallel.execution.step(parallel.step_number("a")).state, StepState::Pending);
    assert_eq!(parallel.next_wake_ms(), None, "only the permit wakes the execution");
    parallel.grant_permit("a").succeed("c").succeed("a").check(expect![[r#"
        0 a#1 started
        0 c#1 succeeded {"by":"c"}
        0 a#1 succeeded {"by":"a"}, finished Completed
    "#]]);
}

#[test]
fn a_sequential_step_that_waits_for_a_permit_is_not_overtaken() {
    let steps = vec![call("a", &[]), limited_step("b", &[]), call("c", &[])];
    let mut story = start_limited(steps, sequential_options());
    story.succeed("a").claim().grant_permit("b").succeed("b").succeed("c").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}
        0 claimed
        0 b#1 started
        0 b#1 succeeded {"by":"b"}, c#1 started
        0 c#1 succeeded {"by":"c"}, finished Completed
    "#]]);
}

/// Regression: a retry that could not start woke the driver again and again.
#[test]
fn a_retry_behind_a_step_that_waits_for_a_permit_sets_no_wake_up() {
    let steps =
        vec![call("a", &[]), for_each("{{a}}", with_attempts(2, limited_step("b", &["a"])))];
    let mut story = start_limited(steps, sequential_options());
    story
        .end_step("a", Ok(json!([0, 1])))
        .grant_permit("b[0]")
        .end_step("b[0]", Err(failed_error()));
    story.grant_permit("b[1]").end_step("b[1]", Err(failed_error()));
    assert_eq!(story.next_wake_ms(), Some(100));
    story.wake_at(100);
    assert_eq!(story.next_wake_ms(), None);
    story.grant_permit("b[0]").succeed("b[0]").grant_permit("b[1]").succeed("b[1]").check(expect![
        [r#"
        0 claimed, a#1 started
        0 a#1 succeeded [0,1], b#1 started of 2
        0 b[0]#1 started
        0 b[0]#1 retry_scheduled tool.failed until 100
        0 b[1]#1 started
        0 b[1]#1 retry_scheduled tool.failed until 100
        100 b[0]#2 started
        100 b[0]#2 succeeded {"by":"b[0]"}
        100 b[1]#2 started
        100 b[1]#2 succeeded {"by":"b[1]"}, b#1 succeeded, finished Completed
    "#]
    ]);
}

#[test]
fn a_permit_counts_once_and_only_for_a_waiting_task() {
    let mut story =
        start_limited(vec![limited_step("a", &[]), call("b", &[])], ExecutionOptions::default());
    let events = story.log.len();
    story.grant_permit("b");
    assert_eq!(story.log.len(), events);
    story.grant_permit("a").grant_permit("a").succeed("a").grant_permit("a").succeed("b").check(
        expect![[r#"
        0 claimed, b#1 started
        0 a#1 started
        0 a#1 succeeded {"by":"a"}
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]],
    );
}

#[test]
fn a_permit_without_a_slot_or_during_a_pause_starts_no_step() {
    let steps = vec![limited_step("a", &[]), call("b", &[])];
    let options = ExecutionOptions { max_parallel: Some(1), ..Default::default() };
    let mut story =
        start_limited(steps.clone(), ExecutionOptions { max_parallel: Some(2), ..options });
    story.send_command(Command::Pause);
    let events = story.log.len();
    story.grant_permit("a");
    assert_eq!(story.log.len(), events);
    story.send_command(Command::Resume).grant_permit("a").succeed("a").succeed("b").check(expect![
        [r#"
        0 claimed, b#1 started
        0 paused
        0 resumed
        0 a#1 started
        0 a#1 succeeded {"by":"a"}
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]
    ]);
}

#[test]
fn a_retry_needs_another_permit() {
    let mut story =
        start_limited(vec![with_attempts(2, limited_step("a", &[]))], ExecutionOptions::default());
    story.grant_permit("a").end_step("a", Err(failed_error()));
    assert_eq!(story.next_wake_ms(), Some(100));
    story.wake_at(100);
    assert_eq!(story.next_wake_ms(), None);
    assert!(story.execution.agenda().without_permit().contains(&story.task("a")));
    story.grant_permit("a").succeed("a").check(expect![[r#"
        0 claimed
        0 a#1 started
        0 a#1 retry_scheduled tool.failed until 100
        100 a#2 started
        100 a#2 succeeded {"by":"a"}, finished Completed
    "#]]);
}

#[test]
fn each_item_waits_for_its_own_permit_in_order() {
    let steps =
        vec![call("a", &[]), for_each("{{a}}", with_max_parallel(2, limited_step("each", &["a"])))];
    let mut story = start_limited(steps, ExecutionOptions::default());
    story.end_step("a", Ok(json!([1, 2, 3])));
    assert_eq!(story.execution.agenda().without_permit().len(), 2);
    story.grant_permit("each[1]").succeed("each[1]");
    assert_eq!(story.execution.agenda().without_permit().len(), 2);
    story
        .grant_permit("each[2]")
        .grant_permit("each[0]")
        .succeed("each[0]")
        .succeed("each[2]")
        .check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3
        0 each[1]#1 started
        0 each[1]#1 succeeded {"by":"each[1]"}
        0 each[2]#1 started
        0 each[0]#1 started
        0 each[0]#1 succeeded {"by":"each[0]"}
        0 each[2]#1 succeeded {"by":"each[2]"}, each#1 succeeded, finished Completed
    "#]]);
}

#[test]
fn a_step_that_waits_for_a_permit_stops_like_a_ready_one() {
    for how in [ExecutionState::Cancelled, ExecutionState::Failed] {
        let steps =
            vec![with_attempts(2, limited_step("a", &[])), limited_step("b", &[]), call("x", &[])];
        let mut story = start_limited(steps, ExecutionOptions::default());
        story.grant_permit("a").end_step("a", Err(failed_error())).wake_at(100);
        match how {
            ExecutionState::Cancelled => story.cancel().end_step("x", Err(cancelled_error())),
            _ => story.end_step("x", Err(failed_error())),
        };
        assert!(story.execution.agenda().without_permit().is_empty());
        story.grant_permit("a").grant_permit("b");
        story.assert_finished(how);
    }
}

#[test]
fn a_compensation_waits_for_its_permit() {
    let mut a = with_compensation(call("a", &[]));
    let undo = a.compensate.as_mut().unwrap();
    undo.tool = "set.limited".parse().unwrap();
    (undo.policy.retry.max_attempts, undo.policy.retry.jitter) = (2, false);
    let mut story = start_limited(vec![a, call("x", &["a"])], compensating_options());
    story.succeed("a").end_step("x", Err(failed_error()));
    assert_eq!(story.state(), ExecutionState::Compensating);
    assert!(story.execution.agenda().has_work());
    story
        .claim()
        .grant_permit("a/undo")
        .end_step("a/undo", Err(failed_error()))
        .wake_at(100)
        .check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, x#1 started
        0 x#1 failed tool.failed, compensation_started
        0 claimed
        0 a#1 compensation_started
        0 a#1 compensation_retry_scheduled tool.failed until 100
    "#]]);
    story.grant_permit("a/undo").succeed("a/undo").check(expect![[r#"
        100 a#2 compensation_started
        100 a#2 compensated {"by":"a/undo"}, finished Failed
    "#]]);
}

#[test]
fn a_worker_without_the_limit_starts_steps_that_waited() {
    let mut story = start_limited(vec![limited_step("a", &[])], ExecutionOptions::default());
    assert_eq!(story.log.len(), 2);
    let plan = Arc::clone(story.execution.plan());
    story.execution = Execution::replay(story.execution.id(), plan, &story.log).unwrap();
    story.limit_calls(&[]).claim().succeed("a");
    story.assert_finished(ExecutionState::Completed);
}

/// With one slot and no fixed order, a task that waits for a permit does not block a retry.
#[test]
fn a_parallel_retry_is_not_blocked_by_a_wait_for_a_permit() {
    let steps = vec![limited_step("a", &[]), with_attempts(2, call("b", &[]))];
    let options = ExecutionOptions { max_parallel: Some(1), ..Default::default() };
    let mut story = start_limited(steps, options);
    story.end_step("b", Err(failed_error()));
    assert_eq!(story.next_wake_ms(), Some(100));
    story.wake_at(100).succeed("b").grant_permit("a").succeed("a").check(expect![[r#"
        0 claimed, b#1 started
        0 b#1 retry_scheduled tool.failed until 100
        100 b#2 started
        100 b#2 succeeded {"by":"b"}
        100 a#1 started
        100 a#1 succeeded {"by":"a"}, finished Completed
    "#]]);
}

/// Regression: the permit queue, which only one worker knows, hid a retry from all other workers.
#[test]
fn a_worker_that_takes_over_starts_steps_in_the_same_order() {
    let steps = vec![
        with_attempts(2, call("again", &[])),
        call("long", &[]),
        with_approval(call("first", &[])),
        with_approval(call("second", &[])),
        call("next", &["first"]),
        with_attempts(2, limited_step("limited", &[])),
    ];
    let mut story = start_limited(
        steps,
        ExecutionOptions { max_parallel: Some(3), ..ExecutionOptions::default() },
    );
    story
        .grant_permit("limited")
        .end_step("limited", Err(failed_error()))
        .wake_at(10)
        .end_step("again", Err(failed_error()));
    story.wake_at(105).approve("first", true).approve("second", true).wake_at(200);
    assert_eq!(story.execution.agenda().without_permit().len(), 1);

    let plan = Arc::clone(story.execution.plan());
    let mut other = Execution::replay(story.execution.id(), plan, &story.log).unwrap();
    other.set_limited_tools(Arc::clone(&story.limited_tools));
    assert_eq!(other.agenda().without_permit().len(), 0);
    let (task, attempt) = (story.task("first"), story.attempt(story.task("first")));
    let input = Input::Ended { task, attempt, result: Ok(Value::Null.into()) };
    let events = decide(&mut other, input.clone(), DecisionContext::from(story.now));
    assert_eq!(events, decide(&mut story.execution, input, DecisionContext::from(story.now)));
    let is_start = |recorded: &RecordedEvent| matches!(&recorded.event, Event::StepStarted(started) if started.step.as_str() == "again");
    assert!(events.iter().any(is_start));
}
