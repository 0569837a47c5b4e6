//! Permits: calls whose limits are shared with others. What waits for one is not under way.

use expect_test::expect;

use super::*;

/// A step that calls a tool which has a limit.
fn limited(id: &str, after: &[&str]) -> UncheckedStep {
    step(id, "set.limited", after)
}

fn begun(steps: Vec<UncheckedStep>, options: ExecutionOptions) -> Story {
    let mut story = Story::unclaimed(steps, options);
    story.limit(&["set.limited"]).claim();
    story
}

#[test]
fn a_step_without_a_permit_is_pending_and_holds_nothing() {
    let steps = vec![limited("a", &[]), call("b", &[]), call("c", &[])];
    let options = ExecutionOptions { max_parallel: Some(1), ..Default::default() };
    let mut parallel = begun(steps.clone(), ExecutionOptions { max_parallel: Some(2), ..options });
    parallel.ok("b").check(expect![[]]);
    assert_eq!(parallel.execution.step(parallel.number("a")).state, StepState::Pending);
    assert_eq!(parallel.wakes_at(), None, "the permit wakes it");
    parallel.permit("a").ok("c").ok("a").check(expect![[]]);
    parallel.is_over(ExecutionState::Completed);
}

#[test]
fn one_at_a_time_nothing_overtakes_what_waits_for_a_permit() {
    let steps = vec![call("a", &[]), limited("b", &[]), call("c", &[])];
    let mut story = begun(steps, sequential());
    story.ok("a").claim().permit("b").ok("b").ok("c").check(expect![[]]);
    story.is_over(ExecutionState::Completed);
}

/// It woke at once, again and again, for a retry that could not begin.
#[test]
fn a_retry_behind_what_waits_for_a_permit_wakes_nobody() {
    let steps = vec![tries(2, call("a", &[])), limited("b", &[]), tries(2, call("c", &[]))];
    let mut story = begun(steps, sequential());
    // `a` is before `b`, so it goes on.
    story.end("a", Err(failed()));
    assert_eq!(story.wakes_at(), Some(100));
    story.wake(100).ok("a");
    assert_eq!(story.wakes_at(), None);
    story.permit("b").ok("b").end("c", Err(failed()));
    assert_eq!(story.wakes_at(), Some(200));
    story.wake(200).ok("c");
    story.is_over(ExecutionState::Completed);
}

#[test]
fn a_permit_counts_once_and_only_for_what_waits_for_one() {
    let mut story = begun(vec![limited("a", &[]), call("b", &[])], ExecutionOptions::default());
    let events = story.log.len();
    story.permit("b");
    assert_eq!(story.log.len(), events);
    story.permit("a").permit("a").ok("a").permit("a").ok("b").check(expect![[]]);
    story.is_over(ExecutionState::Completed);
}

#[test]
fn a_permit_that_comes_without_a_slot_or_in_a_pause_begins_nothing() {
    let steps = vec![limited("a", &[]), call("b", &[])];
    let options = ExecutionOptions { max_parallel: Some(1), ..Default::default() };
    let mut story = begun(steps.clone(), ExecutionOptions { max_parallel: Some(2), ..options });
    story.tell(Command::Pause);
    let events = story.log.len();
    story.permit("a");
    assert_eq!(story.log.len(), events);
    story.tell(Command::Resume).permit("a").ok("a").ok("b").check(expect![[]]);
    story.is_over(ExecutionState::Completed);
}

#[test]
fn another_try_needs_another_permit() {
    let mut story = begun(vec![tries(2, limited("a", &[]))], ExecutionOptions::default());
    story.permit("a").end("a", Err(failed()));
    assert_eq!(story.wakes_at(), Some(100));
    story.wake(100);
    assert_eq!(story.wakes_at(), None);
    assert!(story.execution.agenda().gated().contains(&story.task("a")));
    story.permit("a").ok("a").check(expect![[]]);
    story.is_over(ExecutionState::Completed);
}

#[test]
fn items_wait_for_permits_each_its_own_and_keep_their_turns() {
    let steps = vec![call("a", &[]), for_each("{{a}}", width(2, limited("each", &["a"])))];
    let mut story = begun(steps, ExecutionOptions::default());
    story.end("a", Ok(json!([1, 2, 3])));
    assert_eq!(story.execution.agenda().gated().len(), 2);
    story.permit("each[1]").ok("each[1]");
    assert_eq!(story.execution.agenda().gated().len(), 2);
    story.permit("each[2]").permit("each[0]").ok("each[0]").ok("each[2]").check(expect![[]]);
    story.is_over(ExecutionState::Completed);
}

#[test]
fn what_waits_for_a_permit_is_stopped_like_what_is_ready() {
    for how in [ExecutionState::Cancelled, ExecutionState::Failed] {
        let steps = vec![tries(2, limited("a", &[])), limited("b", &[]), call("x", &[])];
        let mut story = begun(steps, ExecutionOptions::default());
        story.permit("a").end("a", Err(failed())).wake(100);
        match how {
            ExecutionState::Cancelled => story.cancel().end("x", Err(stopped())),
            _ => story.end("x", Err(failed())),
        };
        assert!(story.execution.agenda().gated().is_empty());
        story.permit("a").permit("b");
        story.is_over(how);
    }
}

#[test]
fn a_compensation_waits_for_its_permit() {
    let mut a = undoable(call("a", &[]));
    let undo = a.compensate.as_mut().unwrap();
    undo.tool = "set.limited".parse().unwrap();
    (undo.policy.retry.max_attempts, undo.policy.retry.jitter) = (2, false);
    let mut story = begun(vec![a, call("x", &["a"])], compensating());
    story.ok("a").end("x", Err(failed()));
    assert_eq!(story.state(), ExecutionState::Compensating);
    assert!(story.execution.agenda().has_work());
    story.claim().permit("a/undo").end("a/undo", Err(failed())).wake(100).check(expect![[]]);
    story.permit("a/undo").ok("a/undo").check(expect![[]]);
    story.is_over(ExecutionState::Failed);
}

#[test]
fn a_worker_without_the_limit_begins_what_waited() {
    let mut story = begun(vec![limited("a", &[])], ExecutionOptions::default());
    assert_eq!(story.log.len(), 2);
    story.limit(&[]).permit("a").ok("a");
    story.is_over(ExecutionState::Completed);
}
