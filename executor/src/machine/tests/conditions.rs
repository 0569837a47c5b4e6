use expect_test::expect;

use super::*;

#[test]
fn a_condition_is_evaluated_after_all_dependencies_finished() {
    let steps = vec![
        call("a", &[]),
        call("b", &[]),
        with_condition("a.by == 'a'", call("yes", &["a", "b"])),
        with_condition("steps['a'].by == 'b'", call("no", &["a"])),
        call("after_no", &["no"]),
    ];
    let mut story = Story::new(steps);
    story.succeed("a").claim().succeed("b").succeed("yes").check(expect![[r#"
        0 claimed, a#1 started, b#1 started
        0 a#1 succeeded {"by":"a"}, no skipped Condition, after_no skipped Dependency
        0 claimed, b#1 interrupted, b#2 started
        0 b#2 succeeded {"by":"b"}, yes#1 started
        0 yes#1 succeeded {"by":"yes"}, finished Completed
    "#]]);
    let tally = story.assert_finished(ExecutionState::Completed);
    assert_eq!((tally.successful, tally.skipped), (3, 2));
}

#[test]
fn a_dependent_of_a_skipped_step_with_a_condition_decides_itself() {
    let steps = vec![
        with_condition("false", call("a", &[])),
        call("plain", &["a"]),
        with_condition(
            "true",
            with_parameters(
                json!({ "got": "{{a}}", "plain": "{{plain}}" }),
                call("own", &["a", "plain"]),
            ),
        ),
        with_condition("a == null", call("asks", &["a"])),
        with_condition("a != null", call("no", &["a"])),
        call("join", &["own", "asks"]),
    ];
    let mut story = Story::new(steps);
    assert_eq!(story.called_with("own"), json!({ "got": null, "plain": null }));
    story.succeed("own").succeed("asks").succeed("join").check(expect![[r#"
        0 claimed, a skipped Condition, no skipped Condition, asks#1 started,
          plain skipped Dependency, own#1 started
        0 own#1 succeeded {"by":"own"}
        0 asks#1 succeeded {"by":"asks"}, join#1 started
        0 join#1 succeeded {"by":"join"}, finished Completed
    "#]]);
}

#[test]
fn a_condition_is_evaluated_after_a_tolerated_failure() {
    let steps = vec![
        on_error(OnError::Continue, call("a", &[])),
        with_condition("a == null", call("b", &["a"])),
        call("c", &["a"]),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Err(failed_error())).succeed("b").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 failed tool.failed, c skipped Dependency, b#1 started
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
}

#[test]
fn a_condition_with_an_error_fails_its_step() {
    let steps = || {
        vec![call("a", &[]), with_condition("a.missing > 1", call("b", &["a"])), call("c", &["b"])]
    };
    let mut story = Story::new(steps());
    story.succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 failed template.unresolved, c skipped ExecutionFailed,
          finished Failed
    "#]]);
    let mut ignored = steps();
    ignored[1].policy.on_error = OnError::Ignore;
    let mut story = Story::new(ignored);
    story.succeed("a").succeed("c").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 failed template.unresolved, c#1 started
        0 c#1 succeeded {"by":"c"}, finished Completed
    "#]]);
}

#[test]
fn a_condition_can_read_the_input_and_variables() {
    let mut a = call("a", &[]);
    a.output_mapping = vec![("by".to_owned(), "who".to_owned())];
    let steps = vec![
        a,
        with_condition("input.days > 3 && vars.who == 'a'", call("b", &["a"])),
        with_condition("input.days > 30", call("c", &[])),
    ];
    let input = Arc::new(json!({ "days": 7 }));
    let mut story = Story::with_options(steps, ExecutionOptions { input, ..Default::default() });
    story.succeed("a").succeed("b").check(expect![[r#"
        0 claimed, c skipped Condition, a#1 started
        0 a#1 succeeded {"by":"a"}, b#1 started
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
}

#[test]
fn a_condition_is_evaluated_before_approval_and_loop() {
    let list = json!({ "list": [1, 2] });
    let steps = vec![
        call("a", &[]),
        with_condition("false", with_approval(for_each("{{a.list}}", call("no", &["a"])))),
        with_condition("true", with_approval(for_each("{{a.list}}", call("yes", &["a"])))),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Ok(list)).approve("yes", true).run(|_| Ok(json!(0))).check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded {"list":[1,2]}, no skipped Condition, yes waiting approval
        0 yes approved, yes#1 started of 2, yes[0]#1 started, yes[1]#1 started
        0 yes[0]#1 succeeded 0
        0 yes[1]#1 succeeded 0, yes#1 succeeded, finished Completed
    "#]]);
}

#[test]
fn no_condition_is_evaluated_during_a_pause_or_drain() {
    let mut story = Story::new(vec![call("a", &[]), with_condition("false", call("b", &["a"]))]);
    story.send_command(Command::Pause).succeed("a").claim().check(expect![[r#"
        0 claimed, a#1 started
        0 paused
        0 a#1 succeeded {"by":"a"}
        0 claimed
    "#]]);
    assert_eq!(story.state(), ExecutionState::Paused);
    story.send_command(Command::Resume).check(expect![[r"
        0 resumed, b skipped Condition, finished Completed
    "]]);
}

#[test]
fn a_step_with_a_condition_stops_like_any_other() {
    let steps = || vec![call("a", &[]), call("x", &[]), with_condition("true", call("b", &["a"]))];
    let mut failing = Story::new(steps());
    failing.end_step("x", Err(failed_error())).succeed("a").check(expect![[r#"
        0 claimed, a#1 started, x#1 started
        0 x#1 failed tool.failed, b skipped ExecutionFailed
        0 a#1 succeeded {"by":"a"}, finished Failed
    "#]]);
    let mut cancelled = Story::new(steps());
    cancelled.cancel().end_step("x", Err(cancelled_error())).succeed("a").check(expect![[r#"
        0 claimed, a#1 started, x#1 started
        0 cancel_requested, b cancelled
        0 x cancelled
        0 a#1 succeeded {"by":"a"}, finished Cancelled
    "#]]);
    let tally = cancelled.assert_finished(ExecutionState::Cancelled);
    assert_eq!((tally.successful, tally.cancelled), (1, 2));
}
