use expect_test::expect;

use super::*;

fn deadline_options(ms: u64) -> ExecutionOptions {
    ExecutionOptions { deadline_ms: Some(ms), ..ExecutionOptions::default() }
}

/// Returns one step of every kind that can be unfinished when an execution stops.
fn all_open_step_kinds() -> Vec<UncheckedStep> {
    vec![
        call("running", &[]),
        effect(Effect::Once, call("once", &[])),
        with_attempts(2, call("retrying", &[])),
        sleep("sleeping", 60_000, &[]),
        with_approval(call("asking", &[])),
        wait("waiting", "go", &[]),
        on_error(OnError::Wait, call("deciding", &[])),
        call("pending", &["running"]),
    ]
}

fn start_all_step_kinds(options: ExecutionOptions) -> Story {
    let mut story = Story::with_options(all_open_step_kinds(), options);
    story.end_step("retrying", Err(failed_error())).end_step("deciding", Err(failed_error()));
    story.checked_events = story.log.len();
    story
}

#[test]
fn cancelling_ends_waiting_steps_and_awaits_running_ones() {
    let mut story = start_all_step_kinds(ExecutionOptions::default());
    story.cancel().cancel().check(expect![[r"
        0 cancel_requested, sleeping cancelled, retrying cancelled, asking cancelled,
          waiting cancelled, deciding cancelled, pending cancelled
    "]]);
    assert_eq!(story.state(), ExecutionState::InProgress);
    story
        .end_step("running", Err(cancelled_error()))
        .end_step("once", Err(cancelled_error()))
        .check(expect![[r"
        0 running cancelled
        0 once#1 failed tool.outcome_unknown, finished Cancelled
    "]]);
    let tally = story.assert_finished(ExecutionState::Cancelled);
    assert_eq!((tally.cancelled, tally.failed), (7, 1));
}

#[test]
fn a_step_that_succeeds_during_a_cancellation_has_succeeded() {
    let mut story = Story::new(vec![call("a", &[]), call("b", &["a"])]);
    story.cancel().succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        0 cancel_requested, b cancelled
        0 a#1 succeeded {"by":"a"}, finished Cancelled
    "#]]);
}

#[test]
fn a_once_call_that_was_cancelled_before_its_start_is_cancelled() {
    let mut story = Story::new(vec![effect(Effect::Once, call("a", &[]))]);
    let not_begun = ToolError::new(ErrorCode::CANCELLED, "cancelled before the call started");
    story.cancel().end_step("a", Err(not_begun)).check(expect![[r"
        0 claimed, a#1 started
        0 cancel_requested
        0 a cancelled, finished Cancelled
    "]]);
}

#[test]
fn a_claim_ends_the_running_steps_of_a_cancelled_execution() {
    let mut story = start_all_step_kinds(ExecutionOptions::default());
    story.cancel().claim().check(expect![[r"
        0 cancel_requested, sleeping cancelled, retrying cancelled, asking cancelled,
          waiting cancelled, deciding cancelled, pending cancelled
        0 claimed, running#1 interrupted, once#1 failed tool.outcome_unknown, running cancelled,
          finished Cancelled
    "]]);
}

#[test]
fn cancelling_before_the_first_claim_starts_no_step() {
    let mut story = Story::new_unclaimed(all_open_step_kinds(), ExecutionOptions::default());
    story.claim_and_cancel().check(expect![[r"
        0 claimed, cancel_requested, running cancelled, once cancelled, retrying cancelled,
          sleeping cancelled, asking cancelled, waiting cancelled, deciding cancelled,
          pending cancelled, finished Cancelled
    "]]);
    assert_eq!(story.assert_finished(ExecutionState::Cancelled).cancelled, 8);
}

impl Story {
    fn claim_and_cancel(&mut self) -> &mut Self {
        let worker = "work_1_aaaaaaaaa".parse().unwrap();
        let claimed = Input::Claimed { worker, node: "n".into(), commands_follow: false };
        let cancel = Input::Command(self.envelope(Command::Cancel { reason: None }));
        let moment = DecisionContext { now: self.now, is_start_allowed: false, effects: None };
        for input in [claimed, cancel, Input::Woken] {
            self.log.extend(decide(&mut self.execution, input, moment));
        }
        self
    }
}

#[test]
fn a_deadline_counts_from_the_start_and_ends_every_step() {
    let mut story = start_all_step_kinds(deadline_options(10_000));
    assert_eq!(story.next_wake_ms(), Some(100));
    story.send_command(Command::Pause).wake_at(9_999).check(expect![[r"
        0 paused
    "]]);
    assert_eq!(story.next_wake_ms(), Some(10_000));
    story.wake_at(10_000).check(expect![[r"
        10000 deadline_passed, sleeping#1 failed execution.deadline,
          retrying#1 failed execution.deadline, asking#1 failed execution.deadline,
          waiting#1 failed execution.deadline, deciding#1 failed execution.deadline,
          pending skipped ExecutionFailed
    "]]);
    story
        .end_step("running", Err(cancelled_error()))
        .end_step("once", Err(cancelled_error()))
        .check(expect![[r"
        10000 running#1 failed execution.deadline
        10000 once#1 failed tool.outcome_unknown, finished Failed
    "]]);
}

#[test]
fn a_deadline_applies_to_a_failing_execution() {
    let mut story =
        Story::with_options(vec![call("a", &[]), call("b", &[])], deadline_options(10_000));
    story.end_step("a", Err(failed_error()));
    assert_eq!(story.next_wake_ms(), Some(10_000));
    story.wake_at(10_000).end_step("b", Err(cancelled_error())).check(expect![[r"
        0 claimed, a#1 started, b#1 started
        0 a#1 failed tool.failed
        10000 deadline_passed
        10000 b#1 failed execution.deadline, finished Failed
    "]]);
}

#[test]
fn a_deadline_does_not_count_before_the_start() {
    let options = ExecutionOptions { start_at: Some(time_at(60_000)), ..deadline_options(10_000) };
    let mut story = Story::with_options(vec![call("a", &[])], options);
    story.wake_at(30_000);
    assert_eq!(story.state(), ExecutionState::Pending);
    story.wake_at(60_000).claim().check(expect![[r"
        0 claimed
        60000 claimed, a#1 started
    "]]);
    assert_eq!(story.next_wake_ms(), Some(70_000));
}

#[test]
fn cancellation_takes_precedence_over_failure_and_deadline() {
    let mut failing = Story::new(vec![call("a", &[]), call("b", &[])]);
    failing.end_step("a", Err(failed_error())).cancel().end_step("b", Err(cancelled_error()));
    failing.assert_finished(ExecutionState::Cancelled);
    let mut expired = Story::with_options(vec![call("a", &[])], deadline_options(1));
    expired.wake_at(1).cancel().end_step("a", Err(cancelled_error()));
    expired.assert_finished(ExecutionState::Cancelled);
}

#[test]
fn a_deadline_without_running_steps_is_recorded() {
    let steps = vec![call("a", &[]), call("b", &["a"]), call("c", &["b"])];
    let mut story = Story::with_options(steps, deadline_options(10_000));
    story.send_command(Command::Pause).succeed("a").wake_at(10_000).check(expect![[r#"
        0 claimed, a#1 started
        0 paused
        0 a#1 succeeded {"by":"a"}
        10000 deadline_passed, b skipped ExecutionFailed, c skipped ExecutionFailed,
          finished Failed
    "#]]);
    let tally = story.assert_finished(ExecutionState::Failed);
    assert_eq!((tally.successful, tally.skipped, tally.failed), (1, 2, 0));
    assert!(story.execution.missed_deadline());
}

/// Regression: a step that had not started got the error of the deadline if a step with an effect
/// was running.
#[test]
fn a_deadline_skips_steps_that_never_started() {
    for of in [Effect::Read, Effect::Once] {
        let steps = vec![effect(of, call("a", &[])), call("b", &["a"])];
        let mut story = Story::with_options(steps, deadline_options(10_000));
        story.wake_at(10_000).end_step("a", Err(cancelled_error()));
        let code = |id: &str| match &story.execution.step(story.step_number(id)).state {
            StepState::Failed(error) => error.code.to_string(),
            state => state.name().to_owned(),
        };
        let unknown = of == Effect::Once;
        let code_of_a = if unknown { "tool.outcome_unknown" } else { "execution.deadline" };
        assert_eq!([code("a"), code("b")], [code_of_a, "skipped"]);
        assert!(story.execution.missed_deadline());
        story.assert_finished(ExecutionState::Failed);
    }
}

#[test]
fn an_execution_that_failed_before_its_deadline_did_not_miss_it() {
    let mut story =
        Story::with_options(vec![call("a", &[]), call("b", &[])], deadline_options(10_000));
    story.end_step("a", Err(failed_error())).wake_at(10_000).end_step("b", Err(cancelled_error()));
    story.assert_finished(ExecutionState::Failed);
    assert!(!story.execution.missed_deadline());
}

#[test]
fn a_deadline_after_the_last_step_changes_nothing() {
    let mut story =
        Story::with_options(vec![call("a", &[]), call("b", &["a"])], deadline_options(10_000));
    story.now = time_at(20_000);
    story.succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        20000 a#1 succeeded {"by":"a"}, deadline_passed, b skipped ExecutionFailed,
          finished Failed
    "#]]);
    let mut story = Story::with_options(vec![call("a", &[])], deadline_options(10_000));
    story.now = time_at(20_000);
    story.succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        20000 a#1 succeeded {"by":"a"}, finished Completed
    "#]]);
}

/// Regression: a step that its condition had skipped got the error of the deadline.
#[test]
fn a_deadline_with_only_skipped_steps_left_changes_nothing() {
    let steps = || {
        let skipped = with_condition("a.by == 1", call("skipped", &["a"]));
        vec![call("a", &[]), skipped, on_error(OnError::Ignore, call("b", &[])), call("c", &[])]
    };
    let mut story = Story::with_options(steps(), deadline_options(10_000));
    story.succeed("a").end_step("b", Err(failed_error()));
    story.now = time_at(20_000);
    story.succeed("c");
    story.assert_finished(ExecutionState::Completed);
    // A step that the deadline stopped did not finish by itself, even if its failure is allowed.
    let mut story = Story::with_options(steps(), deadline_options(10_000));
    story.succeed("a").succeed("c").wake_at(10_000).end_step("b", Err(cancelled_error()));
    story.assert_finished(ExecutionState::Failed);
}
