use expect_test::expect;

use super::*;

#[test]
fn a_failed_step_fails_the_execution_and_running_ones_are_awaited() {
    let steps = vec![
        call("a", &[]),
        call("b", &[]),
        with_attempts(3, call("c", &[])),
        call("d", &["b"]),
        call("e", &["d"]),
    ];
    let mut story = Story::new(steps);
    story.end_step("c", Err(failed_error()));
    story.end_step("a", Err(failed_error())).check(expect![[r"
        0 claimed, a#1 started, b#1 started, c#1 started
        0 c#1 retry_scheduled tool.failed until 100
        0 a#1 failed tool.failed, c#1 failed tool.failed, d skipped ExecutionFailed,
          e skipped ExecutionFailed
    "]]);
    assert_eq!(story.state(), ExecutionState::InProgress);
    story.succeed("b").check(expect![[r#"
        0 b#1 succeeded {"by":"b"}, finished Failed
    "#]]);
    let tally = story.assert_finished(ExecutionState::Failed);
    assert_eq!((tally.successful, tally.failed, tally.skipped), (1, 2, 2));
}

#[test]
fn a_second_failure_while_failing_is_not_retried() {
    let mut story = Story::new(vec![call("a", &[]), with_attempts(3, call("b", &[]))]);
    story.end_step("a", Err(failed_error())).end_step("b", Err(failed_error())).check(expect![[
        r"
        0 claimed, a#1 started, b#1 started
        0 a#1 failed tool.failed
        0 b#1 failed tool.failed, finished Failed
    "
    ]]);
}

#[test]
fn on_error_continue_skips_dependents_only() {
    let steps = vec![
        on_error(OnError::Continue, call("a", &[])),
        call("b", &["a"]),
        call("c", &["b"]),
        call("d", &[]),
        call("e", &["d"]),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Err(failed_error())).succeed("d").succeed("e").check(expect![[r#"
        0 claimed, a#1 started, d#1 started
        0 a#1 failed tool.failed, b skipped Dependency, c skipped Dependency
        0 d#1 succeeded {"by":"d"}, e#1 started
        0 e#1 succeeded {"by":"e"}, finished Completed
    "#]]);
    let tally = story.assert_finished(ExecutionState::Completed);
    assert_eq!((tally.successful, tally.failed, tally.skipped), (2, 1, 2));
}

#[test]
fn a_step_with_a_skipped_dependency_is_skipped_at_once() {
    let steps =
        vec![on_error(OnError::Continue, call("a", &[])), call("b", &[]), call("c", &["a", "b"])];
    let mut story = Story::new(steps);
    story.end_step("a", Err(failed_error())).succeed("b").check(expect![[r#"
        0 claimed, a#1 started, b#1 started
        0 a#1 failed tool.failed, c skipped Dependency
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
}

#[test]
fn on_error_ignore_sets_a_null_output_and_runs_dependents() {
    let steps = vec![
        on_error(OnError::Ignore, call("a", &[])),
        with_parameters(
            json!({ "whole": "{{a}}", "text": "a is {{a}}", "part": "{{a.x}}" }),
            effect(Effect::Read, call("b", &["a"])),
        ),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Err(failed_error()));
    let b = story.execution.step(story.step_number("b"));
    let expected = json!({ "whole": null, "text": "a is null", "part": "{{a.x}}" });
    assert_eq!(b.parameters.as_deref(), Some(&expected));
    assert_eq!(b.warnings.len(), 1);
    story.succeed("b").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 failed tool.failed, b#1 started
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
}

#[test]
fn on_error_wait_lets_a_person_retry_or_fail_the_step() {
    let mut story = Story::new(vec![on_error(OnError::Wait, call("a", &[])), call("b", &["a"])]);
    story.end_step("a", Err(failed_error()));
    assert_eq!(story.state(), ExecutionState::Waiting);
    story.approve("a", true).end_step("a", Err(failed_error())).check(expect![[r"
        0 claimed, a#1 started
        0 a waiting decision tool.failed
        0 a approved, a#2 started
        0 a waiting decision tool.failed
    "]]);
    story.approve("a", false).check(expect![[r"
        0 a#2 failed tool.failed, b skipped ExecutionFailed, finished Failed
    "]]);
}

#[test]
fn retries_back_off_and_stop_at_the_maximum() {
    let mut story = Story::new(vec![with_attempts(3, call("a", &[]))]);
    story.end_step("a", Err(failed_error()));
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Waiting, Some(100)));
    story.wake_at(99).wake_at(100).end_step("a", Err(failed_error())).wake_at(299).wake_at(300);
    story.end_step("a", Err(failed_error())).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 retry_scheduled tool.failed until 100
        100 a#2 started
        100 a#2 retry_scheduled tool.failed until 300
        300 a#3 started
        300 a#3 failed tool.failed, finished Failed
    "]]);
}

#[test]
fn an_error_that_is_not_retryable_is_final() {
    let mut story = Story::new(vec![with_attempts(3, call("a", &[]))]);
    story.end_step("a", Err(failed_error().without_retry())).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 failed tool.failed, finished Failed
    "]]);
    let mut story = Story::new(vec![with_attempts(3, call("a", &[]))]);
    let invalid = ToolError::new(ErrorCode::INVALID_PARAMETERS, "no");
    story.end_step("a", Err(invalid)).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 failed tool.invalid_parameters, finished Failed
    "]]);
}

#[test]
fn jitter_is_drawn_from_the_attempt_and_stays_within_half() {
    let mut jittery = with_attempts(9, call("a", &[]));
    jittery.policy.retry.jitter = true;
    let until =
        |story: &mut Story| story.end_step("a", Err(failed_error())).next_wake_ms().unwrap();
    let first = until(&mut Story::new(vec![jittery.clone()]));
    assert_eq!(until(&mut Story::new(vec![jittery.clone()])), first);
    assert!((50..=100).contains(&first), "{first}");
}

#[test]
fn interruptions_do_not_count_as_attempts() {
    let mut story = Story::new(vec![with_attempts(2, call("a", &[]))]);
    story.claim().claim();
    story
        .end_step("a", Err(failed_error()))
        .wake_at(100)
        .claim()
        .end_step("a", Err(failed_error()));
    story.check(expect![[r"
        0 claimed, a#1 started
        0 claimed, a#1 interrupted, a#2 started
        0 claimed, a#2 interrupted, a#3 started
        0 a#3 retry_scheduled tool.failed until 100
        100 a#4 started
        100 claimed, a#4 interrupted, a#5 started
        100 a#5 failed tool.failed, finished Failed
    "]]);
}

#[test]
fn a_step_that_crashes_its_workers_fails() {
    let mut story = Story::new(vec![call("a", &[])]);
    for _ in 0..limits::INTERRUPTIONS {
        assert_eq!(story.claim().state(), ExecutionState::InProgress);
    }
    story.claim();
    assert_eq!(story.assert_finished(ExecutionState::Failed).failed, 1);
    let StepState::Failed(error) = &story.execution.steps()[0].state else { panic!() };
    assert_eq!(error.code, ErrorCode::UNAVAILABLE);
}

fn missing_tool_error() -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, "there is no such tool now")
}

/// Regression: the step failed, even if the toolset's condition was false only for a short time.
#[test]
fn a_step_whose_tool_disappears_restarts_any_number_of_times() {
    let mut story = Story::new(vec![effect(Effect::Once, call("a", &[]))]);
    for _ in 0..=limits::INTERRUPTIONS {
        story.end_uncalled("a", missing_tool_error());
    }
    let a = &story.execution.steps()[0];
    assert_eq!((a.interruptions, a.failures), (0, 0), "no worker was lost, and no try failed");
    story.succeed("a");
    story.assert_finished(ExecutionState::Completed);

    let mut story = Story::new(vec![effect(Effect::Once, call("a", &[]))]);
    story.end_uncalled("a", missing_tool_error()).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 interrupted, a#2 started
    "]]);
    // After a claim by another worker, the tool may have been called, so the step is not called
    // again.
    story.claim().check(expect![[r"
        0 claimed, a#2 failed tool.outcome_unknown, finished Failed
    "]]);
}

#[test]
fn a_step_whose_tool_disappears_stays_stopped_in_a_failing_execution() {
    let steps = || vec![call("a", &[]), call("b", &[])];
    let mut story = Story::new(steps());
    story
        .cancel()
        .end_uncalled("a", missing_tool_error())
        .end_step("b", Err(cancelled_error()))
        .check(expect![[r"
        0 claimed, a#1 started, b#1 started
        0 cancel_requested
        0 a#1 interrupted, a cancelled
        0 b cancelled, finished Cancelled
    "]]);
    let mut story = Story::new(steps());
    story.end_step("b", Err(failed_error())).end_uncalled("a", missing_tool_error()).check(
        expect![[r"
        0 claimed, a#1 started, b#1 started
        0 b#1 failed tool.failed
        0 a#1 interrupted, a#1 failed tool.unavailable, finished Failed
    "]],
    );
}

/// Regression: failures that a person retried counted as interruptions.
#[test]
fn failures_that_a_person_retried_do_not_count_as_interruptions() {
    let mut story = Story::new(vec![on_error(OnError::Wait, call("a", &[]))]);
    for _ in 0..=limits::INTERRUPTIONS {
        story.end_step("a", Err(failed_error())).approve("a", true);
    }
    story.claim().succeed("a");
    story.assert_finished(ExecutionState::Completed);
}

#[test]
fn a_once_call_is_retried_only_after_a_definite_failure() {
    let once = || with_attempts(3, effect(Effect::Once, call("a", &[])));
    let mut story = Story::new(vec![once()]);
    story
        .end_step("a", Err(failed_error()))
        .wake_at(100)
        .end_step("a", Err(timeout_error()))
        .check(expect![[r"
        0 claimed, a#1 started
        0 a#1 retry_scheduled tool.failed until 100
        100 a#2 started
        100 a#2 failed tool.outcome_unknown, finished Failed
    "]]);
    let mut idempotent = Story::new(vec![with_attempts(3, call("a", &[]))]);
    idempotent.end_step("a", Err(timeout_error())).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 retry_scheduled tool.timeout until 100
    "]]);
    let mut lost = Story::new(vec![once()]);
    lost.claim().check(expect![[r"
        0 claimed, a#1 started
        0 claimed, a#1 failed tool.outcome_unknown, finished Failed
    "]]);
}

#[test]
fn a_once_call_with_an_unknown_outcome_may_wait_for_a_person() {
    let once = on_error(OnError::Wait, effect(Effect::Once, call("a", &[])));
    let mut story = Story::new(vec![once]);
    story.claim().check(expect![[r"
        0 claimed, a#1 started
        0 claimed, a waiting decision tool.outcome_unknown
    "]]);
    story.approve("a", true).succeed("a").check(expect![[r#"
        0 a approved, a#2 started
        0 a#2 succeeded {"by":"a"}, finished Completed
    "#]]);
}

#[test]
fn late_and_repeated_results_change_nothing() {
    let mut story = Story::new(vec![with_attempts(3, call("a", &[]))]);
    let (task, result) = (story.task("a"), Ok(json!("late").into()));
    let first = Input::Ended { task, attempt: Attempt::FIRST, result };
    story
        .end_step("a", Err(failed_error()))
        .decide(&first)
        .wake_at(100)
        .decide(&first)
        .succeed("a")
        .decide(&first);
    story.check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 retry_scheduled tool.failed until 100
        100 a#2 started
        100 a#2 succeeded {"by":"a"}, finished Completed
    "#]]);
}

#[test]
fn templates_in_outputs_are_not_rendered() {
    let steps = vec![
        call("a", &[]),
        call("b", &["a"]),
        with_parameters(json!({ "x": "{{a}}" }), call("c", &["a"])),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Ok(json!("{{b}}")));
    let c = story.execution.step(story.step_number("c"));
    assert_eq!(c.parameters.as_deref(), Some(&json!({ "x": "{{b}}" })));
    assert_eq!(c.warnings, Vec::<String>::new());
}

#[test]
fn a_failing_execution_awaits_running_sleeps() {
    let steps = vec![call("a", &[]), sleep("s", 1_000_000, &[]), wait("w", "go", &[])];
    let mut story = Story::new(steps);
    story.end_step("a", Err(failed_error()));
    assert_eq!(story.execution.state(), ExecutionState::InProgress);
    story.wake_at(1_000_000).check(expect![[r"
        0 claimed, w waiting signal go, a#1 started, s#1 started until 1000000
        0 a#1 failed tool.failed, w skipped ExecutionFailed
        1000000 s#1 succeeded null, finished Failed
    "]]);
    let tally = story.execution.count_steps();
    assert_eq!((tally.total, tally.failed, tally.successful, tally.skipped), (3, 1, 1, 1));
}

/// Regression: an event with large parameters could not be written, and was appended again and
/// again.
#[test]
fn parameters_above_the_event_limit_are_invalid() {
    let large = json!({ "text": "x".repeat(limits::PARAMETER_BYTES) });
    for step in [
        with_parameters(large.clone(), call("a", &[])),
        with_parameters(large, with_approval(call("a", &[]))),
    ] {
        let mut story = Story::new(vec![step]);
        story.check(expect![[r"
            0 claimed, a#1 failed tool.invalid_parameters, finished Failed
        "]]);
    }
}
