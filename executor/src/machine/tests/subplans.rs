//! Steps that execute other plans. The machine derives the id of the child, and the driver starts
//! it.

use expect_test::expect;

use super::*;

fn child_id(story: &Story, task: &str) -> ExecutionId {
    let state = &story.execution.task(story.task(task)).unwrap().state;
    match state {
        StepState::Running { how: AttemptKind::Executing { child }, .. } => *child,
        other => panic!("`{task}` is {other:?}"),
    }
}

#[test]
fn a_sub_plan_runs_as_a_child_and_its_result_finishes_the_step() {
    let mut story =
        Story::new(vec![with_parameters(json!({ "x": 1 }), sub_plan("p", &[])), call("b", &["p"])]);
    let id = child_id(&story, "p");
    assert_ne!(id, story.execution.id());
    assert_eq!(story.called_with("p"), json!({ "x": 1 }));
    assert!(!story.execution.agenda().has_calls(), "no step of this plan needs a driver");
    assert_eq!(story.state(), ExecutionState::InProgress);
    story.end_step("p", Ok(json!({ "out": 2 }))).succeed("b").check(expect![[r#"
        0 claimed, p#1 started elsewhere
        0 p#1 succeeded {"out":2}, b#1 started
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
    assert_eq!(story.output("p"), json!({ "out": 2 }));
}

/// Regression: defaults and types of inputs applied only to plans that were run by name.
#[test]
fn the_input_of_a_sub_plan_gets_defaults_and_is_validated() {
    let inputs = json!({
        "type": "object",
        "properties": { "s": { "type": "string" }, "n": { "type": "integer", "default": 7 } },
        "required": ["s"],
    });
    let given = |s: &str, id: &str, after: &[&str]| {
        let step = sub_plan(id, after);
        with_parameters(
            json!({ "s": s }),
            UncheckedStep { inputs: Some(Arc::new(inputs.clone())), ..step },
        )
    };
    let lenient = on_error(OnError::Continue, given("{{a.list}}", "q", &["a"]));
    let each = for_each("{{a.list}}", given("{{item}}", "each", &["a"]));
    let steps = vec![call("a", &[]), given("{{a.by}}", "p", &["a"]), lenient, each];
    let mut story = Story::new(steps);
    story.end_step("a", Ok(json!({ "by": "x", "list": ["y"] })));
    assert_eq!(story.called_with("p"), json!({ "s": "x", "n": 7 }));
    assert_eq!(story.called_with("each[0]"), json!({ "s": "y", "n": 7 }));
    let StepState::Failed(error) = &story.execution.step(story.step_number("q")).state else {
        panic!("a list is not a text");
    };
    expect![[
        r#"the input of `set.flow` does not fit its schema: at `/s`: ["y"] is not of type "string""#
    ]]
    .assert_eq(&error.message);
    assert_eq!(error.code, ErrorCode::INVALID_PARAMETERS);
    story.end_step("p", Ok(json!(1))).end_step("each[0]", Ok(json!(2)));
    story.assert_finished(ExecutionState::Completed);
}

#[test]
fn a_claim_does_not_interrupt_a_sub_plan() {
    let mut once = sub_plan("p", &[]);
    once.policy.effect = Effect::Once;
    let mut story = Story::new(vec![once, call("x", &[])]);
    let id = child_id(&story, "p");
    story.claim().claim();
    assert_eq!(child_id(&story, "p"), id);
    story.end_step("p", Ok(json!(1))).succeed("x").check(expect![[r#"
        0 claimed, p#1 started elsewhere, x#1 started
        0 claimed, x#1 interrupted, x#2 started
        0 claimed, x#2 interrupted, x#3 started
        0 p#1 succeeded 1
        0 x#3 succeeded {"by":"x"}, finished Completed
    "#]]);
}

#[test]
fn each_attempt_of_a_sub_plan_is_another_execution() {
    let mut story = Story::new(vec![with_attempts(2, sub_plan("p", &[]))]);
    let first = child_id(&story, "p");
    story.end_step("p", Err(failed_error())).wake_at(100);
    assert_ne!(child_id(&story, "p"), first);
    story.end_step("p", Err(failed_error())).check(expect![[r"
        0 claimed, p#1 started elsewhere
        0 p#1 retry_scheduled tool.failed until 100
        100 p#2 started elsewhere
        100 p#2 failed tool.failed, finished Failed
    "]]);
}

#[test]
fn each_item_of_a_sub_plan_loop_is_an_execution() {
    let steps = vec![
        call("a", &[]),
        for_each("{{a}}", with_parameters(json!({ "x": "{{item}}" }), sub_plan("p", &["a"]))),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Ok(json!([1, 2])));
    assert_ne!(child_id(&story, "p[0]"), child_id(&story, "p[1]"));
    story.end_step("p[1]", Ok(json!("b"))).claim().end_step("p[0]", Ok(json!("a"))).check(expect![
        [r#"
        0 claimed, a#1 started
        0 a#1 succeeded [1,2], p#1 started of 2, p[0]#1 started elsewhere,
          p[1]#1 started elsewhere
        0 p[1]#1 succeeded "b"
        0 claimed
        0 p[0]#1 succeeded "a", p#1 succeeded, finished Completed
    "#]
    ]);
    assert_eq!(story.output("p"), json!(["a", "b"]));
}

#[test]
fn a_cancelled_execution_waits_for_its_sub_plan_to_stop() {
    let mut story = Story::new(vec![sub_plan("p", &[]), call("b", &["p"])]);
    story.cancel();
    assert_eq!(story.state(), ExecutionState::InProgress);
    let error = ToolError::new(ErrorCode::CANCELLED, "it was cancelled");
    story.end_step("p", Err(error)).check(expect![[r"
        0 claimed, p#1 started elsewhere
        0 cancel_requested, b cancelled
        0 p cancelled, finished Cancelled
    "]]);
}

#[test]
fn nested_sub_plans_have_a_limit() {
    let plan = plan(vec![sub_plan("p", &[])]);
    for (depth, state) in [
        (limits::ANCESTORS - 1, ExecutionState::InProgress),
        (limits::ANCESTORS, ExecutionState::Failed),
    ] {
        let mut created = Created::new(plan.id(), plan.info().request, ExecutionOptions::default());
        created.parent = Some(shared::event::Parent {
            execution: "exec_9_aaaaaaaaa".parse().unwrap(),
            step: "p".parse().unwrap(),
            part: Part::WHOLE,
            attempt: Attempt::FIRST,
            depth,
        });
        let mut story = Story::created(&plan, created);
        story.claim();
        assert_eq!(story.state(), state, "{depth} above");
    }
}
