//! Loops that stop in the middle, long loops, and invalid lists.

use expect_test::expect;

use super::{
    loops::{a_loop, loop_step, start_loop, start_loop_with},
    *,
};

#[test]
fn cancelling_during_a_loop_stops_every_item() {
    let mut story =
        start_loop(with_max_parallel(2, with_attempts(2, loop_step())), json!([1, 2, 3, 4]));
    story
        .succeed("each[0]")
        .end_step("each[1]", Err(failed_error()))
        .cancel()
        .end_step("each[2]", Err(cancelled_error()));
    story.check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2,3,4], each#1 started of 4, each[0]#1 started, each[1]#1 started
        0 each[0]#1 succeeded {"by":"each[0]"}, each[2]#1 started
        0 each[1]#1 retry_scheduled tool.failed until 100
        0 cancel_requested, each[1] cancelled, each[3] cancelled
        0 each[2] cancelled, each cancelled, finished Cancelled
    "#]]);
    let tally = story.assert_finished(ExecutionState::Cancelled);
    assert_eq!((tally.successful, tally.cancelled), (1, 1));
}

#[test]
fn a_deadline_during_a_loop_fails_the_step() {
    let options = ExecutionOptions { deadline_ms: Some(50), ..Default::default() };
    let mut story = start_loop_with(with_max_parallel(1, loop_step()), json!([1, 2]), options);
    story.wake_at(50).end_step("each[0]", Err(cancelled_error())).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2], each#1 started of 2, each[0]#1 started
        50 deadline_passed, each[1] skipped ExecutionFailed
        50 each[0]#1 failed execution.deadline, each#1 failed execution.deadline,
          finished Failed
    "]]);
}

/// Regression: a loop whose items are allowed to fail succeeded, although the deadline had stopped
/// every item.
#[test]
fn a_loop_whose_items_miss_the_deadline_fails() {
    for kind in [OnError::Continue, OnError::Ignore] {
        for (effect, end) in [(Effect::Read, cancelled_error()), (Effect::Once, cancelled_error())]
        {
            let options = ExecutionOptions { deadline_ms: Some(50), ..Default::default() };
            let each = on_error(kind, super::effect(effect, loop_step()));
            let mut story = start_loop_with(each, json!([1, 2]), options);
            story.wake_at(50).end_step("each[0]", Err(end.clone())).end_step("each[1]", Err(end));
            story.assert_finished(ExecutionState::Failed);
            // The deadline did not stop an item that had failed by itself.
            let each = on_error(kind, super::effect(effect, super::loops::loop_step()));
            let options = ExecutionOptions { deadline_ms: Some(50), ..Default::default() };
            let mut story = start_loop_with(each, json!([1, 2]), options);
            story.end_step("each[0]", Err(failed_error()));
            story.now = time_at(60);
            story.succeed("each[1]");
            story.assert_finished(ExecutionState::Completed);
        }
    }
}

#[test]
fn a_failure_elsewhere_awaits_running_items_and_starts_no_others() {
    for kind in [OnError::Fail, OnError::Continue, OnError::Ignore] {
        let mut steps = a_loop(with_max_parallel(1, on_error(kind, loop_step())));
        steps.push(call("x", &[]));
        let mut story = Story::new(steps);
        story
            .end_step("a", Ok(json!([1, 2, 3])))
            .end_step("x", Err(failed_error()))
            .succeed("each[0]");
        let items = story.execution.step(story.step_number("each")).items.as_deref().unwrap();
        assert!(matches!(
            items.as_slice()[2].state,
            StepState::Skipped(SkipReason::ExecutionFailed)
        ));
        let tally = story.assert_finished(ExecutionState::Failed);
        assert_eq!((tally.successful, tally.failed, tally.cancelled), (1, 1, 1));
    }
}

#[test]
fn an_item_with_an_unknown_outcome_is_not_retried() {
    let mut story = start_loop(effect(Effect::Once, with_attempts(3, loop_step())), json!([1, 2]));
    story.succeed("each[0]").claim().check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2], each#1 started of 2, each[0]#1 started, each[1]#1 started
        0 each[0]#1 succeeded {"by":"each[0]"}
        0 claimed, each[1]#1 failed tool.outcome_unknown, each#1 failed tool.outcome_unknown,
          finished Failed
    "#]]);
}

#[test]
fn a_too_long_list_fails_the_step() {
    let list = Value::Array(vec![json!(0); limits::ITEMS + 1]);
    let mut story = start_loop(loop_step(), list);
    let StepState::Failed(error) = &story.execution.step(story.step_number("each")).state else {
        panic!("the loop has not failed");
    };
    assert_eq!(error.code, ErrorCode::INVALID_PARAMETERS);
    story.assert_finished(ExecutionState::Failed);
}

/// This test would take minutes if the cost of a decision grew with the number of items.
#[test]
fn ten_thousand_items_cost_two_events_each() {
    const ITEMS: usize = 10_000;
    let list = Value::Array((0..ITEMS).map(Value::from).collect());
    let mut story = start_loop(with_max_parallel(7, loop_step()), list);
    let mut events = story.log.len();
    for n in 0..ITEMS {
        let running = story.execution.agenda().running();
        assert!(running.len() <= 7);
        let task = *running.last().unwrap();
        story.end_task(task, Ok(json!(task.part.item)));
        let more = story.log.len() - events;
        assert!(more <= 2 || n == ITEMS - 1, "{more} events for the end of one item");
        events = story.log.len();
    }
    assert_eq!(story.log.len(), 7 + 2 * ITEMS);
    assert_eq!(story.output("each").as_array().unwrap().len(), ITEMS);
    assert_eq!(story.output("each")[9_999], json!(9_999));
    let Event::StepSucceeded { output, .. } = &story.log[story.log.len() - 2].event else {
        panic!("the list ends last");
    };
    assert_eq!(*output, None, "the log has each output once");
    story.assert_finished(ExecutionState::Completed);
}

#[test]
fn a_log_with_more_items_than_the_limit_is_corrupt() {
    let mut story =
        Story::new(vec![call("a", &[]), for_each("{{a}}", loop_step()), call("x", &[])]);
    story.end_step("a", Ok(json!([1])));
    let plan = Arc::clone(story.execution.plan());
    for (step, part, items) in [
        ("each", Part::WHOLE, Some(u32::MAX)),
        ("each", Part::WHOLE, None),
        ("each", Part::for_item(0), Some(1)),
        ("each", Part::for_item(7), None),
        ("x", Part::WHOLE, Some(1)),
        ("a", Part::WHOLE.compensation(), None),
    ] {
        let log = &story.log[..story.log.len() - 2];
        let mut execution =
            Execution::replay(story.execution.id(), Arc::clone(&plan), log).unwrap();
        let event = Event::StepStarted(StepStarted {
            step: step.parse().unwrap(),
            part,
            attempt: Attempt::FIRST,
            parameters: Arc::default(),
            warnings: Vec::new(),
            until: None,
            items,
            child: None,
            key: None,
            effect: None,
        });
        let recorded =
            RecordedEvent { seq: execution.seq().next(), at: time_at(0), by: None, event };
        assert!(execution.apply(&recorded).is_err(), "{step} {part:?} {items:?}");
    }
}
