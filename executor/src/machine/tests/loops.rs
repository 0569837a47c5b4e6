use expect_test::expect;

use super::*;

pub(super) fn a_loop(each: UncheckedStep) -> Vec<UncheckedStep> {
    vec![
        call("a", &[]),
        for_each("{{a}}", with_parameters(json!({ "it": "{{item}}", "at": "{{index}}" }), each)),
    ]
}

pub(super) fn loop_step() -> UncheckedStep {
    call("each", &["a"])
}

pub(super) fn start_loop(each: UncheckedStep, list: Value) -> Story {
    start_loop_with(each, list, ExecutionOptions::default())
}

pub(super) fn start_loop_with(
    each: UncheckedStep,
    list: Value,
    options: ExecutionOptions,
) -> Story {
    let mut story = Story::with_options(a_loop(each), options);
    story.end_step("a", Ok(list));
    story
}

#[test]
fn a_loop_returns_outputs_in_item_order() {
    let mut story = start_loop(loop_step(), json!(["x", "y", "z"]));
    assert_eq!(story.called_with("each[1]"), json!({ "it": "y", "at": 1 }));
    story
        .succeed("each[2]")
        .claim()
        .end_step("each[0]", Ok(json!("0")))
        .end_step("each[1]", Ok(json!(null)));
    story.check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded ["x","y","z"], each#1 started of 3, each[0]#1 started,
          each[1]#1 started, each[2]#1 started
        0 each[2]#1 succeeded {"by":"each[2]"}
        0 claimed, each[0]#1 interrupted, each[1]#1 interrupted, each[0]#2 started,
          each[1]#2 started
        0 each[0]#2 succeeded "0"
        0 each[1]#2 succeeded null, each#1 succeeded, finished Completed
    "#]]);
    assert_eq!(story.output("each"), json!(["0", null, { "by": "each[2]" }]));
    story.assert_survives_every_cut();
}

#[test]
fn a_loop_over_an_empty_list_returns_an_empty_list() {
    let mut steps = a_loop(loop_step());
    steps.push(with_parameters(json!({ "got": "{{each}}" }), call("after", &["each"])));
    let mut story = Story::new(steps);
    story.end_step("a", Ok(json!([])));
    assert_eq!(story.called_with("after"), json!({ "got": [] }));
    story.succeed("after").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded [], each#1 started of 0, each#1 succeeded, after#1 started
        0 after#1 succeeded {"by":"after"}, finished Completed
    "#]]);
    story.assert_survives_every_cut();
}

#[test]
fn a_loop_over_something_other_than_a_list_fails() {
    for (found, description) in [
        (json!(null), "null"),
        (json!({ "a": 1 }), "an object"),
        (json!("[1]"), "text"),
        (json!(7), "a number"),
    ] {
        let mut story = start_loop(loop_step(), found);
        let StepState::Failed(error) = &story.execution.step(story.step_number("each")).state
        else {
            panic!("the loop has not failed");
        };
        assert_eq!(error.code, ErrorCode::NOT_A_LIST);
        assert!(error.message.contains(description) && error.message.contains("{{a}}"), "{error}");
        story.assert_finished(ExecutionState::Failed);
    }
    let mut missing = Story::new(vec![call("a", &[]), for_each("{{a.list}}", loop_step())]);
    missing.succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, each#1 failed step.not_a_list, finished Failed
    "#]]);
}

#[test]
fn a_failed_item_fails_the_step_and_names_the_item() {
    let mut story = start_loop(with_max_parallel(2, loop_step()), json!([1, 2, 3]));
    story.end_step("each[1]", Err(failed_error())).succeed("each[0]").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3, each[0]#1 started, each[1]#1 started
        0 each[1]#1 failed tool.failed, each[2] skipped ExecutionFailed
        0 each[0]#1 succeeded {"by":"each[0]"}, each#1 failed tool.failed, finished Failed
    "#]]);
    let StepState::Failed(error) = &story.execution.step(story.step_number("each")).state else {
        panic!("the loop has not failed");
    };
    assert!(error.message.starts_with("item 1: "), "{error}");
    let tally = story.assert_finished(ExecutionState::Failed);
    assert_eq!((tally.total, tally.successful, tally.failed), (2, 1, 1));
}

#[test]
fn on_error_ignore_replaces_a_failed_item_by_null() {
    let mut story = start_loop(on_error(OnError::Ignore, loop_step()), json!([1, 2, 3]));
    story
        .end_step("each[1]", Err(failed_error()))
        .end_step("each[0]", Ok(json!(0)))
        .end_step("each[2]", Ok(json!(2)));
    story.check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3, each[0]#1 started, each[1]#1 started,
          each[2]#1 started
        0 each[1]#1 failed tool.failed
        0 each[0]#1 succeeded 0
        0 each[2]#1 succeeded 2, each#1 succeeded, finished Completed
    "]]);
    assert_eq!(story.output("each"), json!([0, null, 2]));
}

#[test]
fn on_error_continue_omits_a_failed_item() {
    let mut story = start_loop(on_error(OnError::Continue, loop_step()), json!([1, 2, 3]));
    story
        .end_step("each[1]", Err(failed_error()))
        .end_step("each[0]", Ok(json!(0)))
        .end_step("each[2]", Ok(json!(2)));
    assert_eq!(story.output("each"), json!([0, 2]));
    story.assert_finished(ExecutionState::Completed);
}

#[test]
fn a_loop_whose_items_all_fail_returns_a_list() {
    for (kind, expected) in [(OnError::Ignore, json!([null, null])), (OnError::Continue, json!([]))]
    {
        let mut story = start_loop(on_error(kind, loop_step()), json!([1, 2]));
        story.run(|_| Err(failed_error()));
        assert_eq!(story.output("each"), expected);
        story.assert_finished(ExecutionState::Completed);
    }
}

#[test]
fn each_item_is_retried_alone() {
    let mut story = start_loop(with_attempts(2, loop_step()), json!([1, 2]));
    story
        .end_step("each[0]", Err(failed_error()))
        .end_step("each[1]", Ok(json!(1)))
        .wake_at(100)
        .check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2], each#1 started of 2, each[0]#1 started, each[1]#1 started
        0 each[0]#1 retry_scheduled tool.failed until 100
        0 each[1]#1 succeeded 1
        100 each[0]#2 started
    "]]);
    story.end_step("each[0]", Ok(json!(0)));
    assert_eq!(story.output("each"), json!([0, 1]));
    story.assert_survives_every_cut();
    story.assert_finished(ExecutionState::Completed);
}

#[test]
fn a_loop_limits_its_parallel_items() {
    let mut story = start_loop(with_max_parallel(2, loop_step()), json!([1, 2, 3, 4, 5]));
    for n in 0..5 {
        let running = story.execution.agenda().running().len();
        assert_eq!(running, (5 - n).min(2));
        let task = *story.execution.agenda().running().last().unwrap();
        story.end_task(task, Ok(json!(0)));
    }
    story.assert_finished(ExecutionState::Completed);
}

#[test]
fn approval_is_requested_once_before_the_loop() {
    let mut story = start_loop(with_approval(loop_step()), json!([1, 2]));
    assert_eq!(story.state(), ExecutionState::Waiting);
    story.claim().approve("each", true).run(|_| Ok(json!(0))).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2], each waiting approval
        0 claimed
        0 each approved, each#1 started of 2, each[0]#1 started, each[1]#1 started
        0 each[0]#1 succeeded 0
        0 each[1]#1 succeeded 0, each#1 succeeded, finished Completed
    "]]);
    let mut refused = start_loop(with_approval(loop_step()), json!([1, 2]));
    refused.approve("each", false).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2], each waiting approval
        0 each#1 failed step.rejected, finished Failed
    "]]);
}

#[test]
fn a_person_decides_about_one_item_or_about_all() {
    let mut one = start_loop(on_error(OnError::Wait, loop_step()), json!([1, 2, 3]));
    one.end_step("each[0]", Err(failed_error()))
        .end_step("each[2]", Err(failed_error()))
        .succeed("each[1]");
    assert_eq!(one.state(), ExecutionState::Waiting);
    one.claim().approve("each[2]", true).check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3, each[0]#1 started, each[1]#1 started,
          each[2]#1 started
        0 each[0] waiting decision tool.failed
        0 each[2] waiting decision tool.failed
        0 each[1]#1 succeeded {"by":"each[1]"}
        0 claimed
        0 each[2] approved, each[2]#2 started
    "#]]);
    one.succeed("each[2]").approve("each[0]", true).succeed("each[0]");
    one.assert_finished(ExecutionState::Completed);
    let mut all = start_loop(on_error(OnError::Wait, loop_step()), json!([1, 2, 3]));
    all.run(|_| Err(failed_error())).approve("each", true).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3, each[0]#1 started, each[1]#1 started,
          each[2]#1 started
        0 each[0] waiting decision tool.failed
        0 each[1] waiting decision tool.failed
        0 each[2] waiting decision tool.failed
        0 each[0] approved, each[1] approved, each[2] approved, each[0]#2 started,
          each[1]#2 started, each[2]#2 started
    "]]);
    all.run(|_| Ok(json!(0)));
    all.assert_finished(ExecutionState::Completed);
    let mut refused = start_loop(on_error(OnError::Wait, loop_step()), json!([1, 2, 3]));
    refused.run(|_| Err(failed_error())).approve("each[1]", false).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3, each[0]#1 started, each[1]#1 started,
          each[2]#1 started
        0 each[0] waiting decision tool.failed
        0 each[1] waiting decision tool.failed
        0 each[2] waiting decision tool.failed
        0 each[1]#1 failed tool.failed, each[0]#1 failed tool.failed,
          each[2]#1 failed tool.failed, each#1 failed tool.failed, finished Failed
    "]]);
}

#[test]
fn a_waiting_item_lets_the_next_start_and_continues_after_the_answer() {
    let mut story =
        start_loop(with_max_parallel(1, on_error(OnError::Wait, loop_step())), json!([1, 2, 3]));
    story.end_step("each[0]", Err(failed_error())).approve("each[0]", true).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3, each[0]#1 started
        0 each[0] waiting decision tool.failed, each[1]#1 started
        0 each[0] approved
    "]]);
    story.succeed("each[1]").check(expect![[r#"
        0 each[1]#1 succeeded {"by":"each[1]"}, each[0]#2 started
    "#]]);
    story.succeed("each[0]").succeed("each[2]");
    story.assert_finished(ExecutionState::Completed);
}

#[test]
fn an_answered_item_that_is_stopped_does_not_start() {
    for kind in [ExecutionState::Failed, ExecutionState::Cancelled] {
        let mut steps = a_loop(with_max_parallel(1, on_error(OnError::Wait, loop_step())));
        steps.push(call("x", &[]));
        let mut story = Story::with_options(steps, compensating_options());
        story
            .end_step("a", Ok(json!([1, 2, 3])))
            .end_step("each[0]", Err(failed_error()))
            .approve("each[0]", true);
        // Item 1 has the slot, and item 0 waits for it.
        if kind == ExecutionState::Failed {
            story.end_step("x", Err(failed_error()));
        } else {
            story.cancel().end_step("x", Err(cancelled_error()));
        }
        story.succeed("each[1]");
        assert!(!story.execution.agenda().has_work(), "{:?}", story.execution.agenda());
        story.assert_finished(kind);
    }
}

#[test]
fn items_sleep_in_parallel_and_survive_a_claim() {
    let each = with_parameters(json!({ "ms": "{{item}}" }), step("each", "flow.sleep", &["a"]));
    let mut story = Story::new(vec![call("a", &[]), for_each("{{a}}", each)]);
    story.end_step("a", Ok(json!([50, 20]))).claim().wake_at(20).claim().wake_at(50).check(
        expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [50,20], each#1 started of 2, each[0]#1 started until 50,
          each[1]#1 started until 20
        0 claimed
        20 each[1]#1 succeeded null
        20 claimed
        50 each[0]#1 succeeded null, each#1 succeeded, finished Completed
    "]],
    );
    assert_eq!(story.output("each"), json!([null, null]));
}

#[test]
fn each_item_waits_for_its_own_signal() {
    let each = with_parameters(json!({ "name": "go {{item}}" }), step("each", "flow.wait", &["a"]));
    let mut story = Story::new(vec![call("a", &[]), for_each("{{a}}", with_max_parallel(1, each))]);
    story.signal("go y", json!("early")).end_step("a", Ok(json!(["x", "y", "z"])));
    assert_eq!(story.state(), ExecutionState::Waiting);
    story.signal("go z", json!("late")).claim().signal("go x", json!("last")).check(expect![[r#"
        0 claimed, a#1 started
        0 signal_received
        0 a#1 succeeded ["x","y","z"], each#1 started of 3, each[0] waiting signal go x,
          each[1] waiting signal go y, each[1]#1 succeeded "early", each[2] waiting signal go z
        0 signal_received, each[2]#1 succeeded "late"
        0 claimed
        0 signal_received, each[0]#1 succeeded "last", each#1 succeeded, finished Completed
    "#]]);
    assert_eq!(story.output("each"), json!(["last", "early", "late"]));
}

#[test]
fn sequential_items_start_in_order() {
    let mut story = start_loop_with(loop_step(), json!([1, 2, 3]), sequential_options());
    story.run(|_| Ok(json!(0))).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3], each#1 started of 3, each[0]#1 started
        0 each[0]#1 succeeded 0, each[1]#1 started
        0 each[1]#1 succeeded 0, each[2]#1 started
        0 each[2]#1 succeeded 0, each#1 succeeded, finished Completed
    "]]);
}
