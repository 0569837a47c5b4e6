use expect_test::expect;

use super::*;

fn story_with_reused_steps(
    steps: Vec<UncheckedStep>,
    options: ExecutionOptions,
    reused: &[(&str, Value)],
) -> Story {
    let plan = plan(steps);
    let mut created = Created::new(plan.id(), plan.info().request, options);
    created.retry_of = Some("exec_9_aaaaaaaaa".parse().unwrap());
    let reused = reused.iter().cloned();
    created.reused =
        reused.map(|(step, output)| (step.parse().unwrap(), Arc::new(output))).collect();
    let mut story = Story::created(&plan, created);
    story.claim();
    story
}

#[test]
fn reused_steps_succeed_from_the_start_without_calls() {
    let steps = vec![
        call("a", &[]),
        call("b", &["a"]),
        with_parameters(json!({ "got": ["{{a}}", "{{b.x}}"] }), call("c", &["a", "b"])),
    ];
    let mut story = story_with_reused_steps(
        steps,
        ExecutionOptions::default(),
        &[("a", json!(null)), ("b", json!({ "x": 2 }))],
    );
    assert_eq!(story.called_with("c"), json!({ "got": [null, 2] }));
    let a = story.execution.step(story.step_number("a"));
    assert!(a.is_reused && a.attempts == 0 && a.started_at.is_none());
    story.succeed("c").check(expect![[r#"
        0 claimed, c#1 started
        0 c#1 succeeded {"by":"c"}, finished Completed
    "#]]);
    let tally = story.assert_finished(ExecutionState::Completed);
    assert_eq!(tally.successful, 3);
}

#[test]
fn an_execution_that_reuses_every_step_finishes_at_its_claim() {
    let steps = vec![call("a", &[]), with_approval(call("b", &["a"]))];
    let mut story = story_with_reused_steps(
        steps,
        ExecutionOptions::default(),
        &[("a", json!(1)), ("b", json!(2))],
    );
    story.check(expect![[r"
        0 claimed, finished Completed
    "]]);
}

#[test]
fn a_reused_step_may_follow_a_step_that_runs_again() {
    let steps = vec![
        on_error(OnError::Ignore, call("a", &[])),
        call("b", &["a"]),
        with_condition("b == 2", call("c", &["a", "b"])),
    ];
    let mut story = story_with_reused_steps(steps, ExecutionOptions::default(), &[("b", json!(2))]);
    story.end_step("a", Err(failed_error())).succeed("c").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 failed tool.failed, c#1 started
        0 c#1 succeeded {"by":"c"}, finished Completed
    "#]]);
}

#[test]
fn a_reused_step_is_not_compensated() {
    let steps = vec![
        with_compensation(call("a", &[])),
        for_each("{{a}}", with_compensation(call("each", &["a"]))),
        with_compensation(call("b", &["each"])),
        call("x", &["b"]),
    ];
    let reused = [("a", json!([1])), ("each", json!([1]))];
    let mut story = story_with_reused_steps(steps, compensating_options(), &reused);
    story.succeed("b").end_step("x", Err(failed_error())).succeed("b/undo").check(expect![[r#"
        0 claimed, b#1 started
        0 b#1 succeeded {"by":"b"}, x#1 started
        0 x#1 failed tool.failed, compensation_started, b#1 compensation_started
        0 b#1 compensated {"by":"b/undo"}, finished Failed
    "#]]);
}

#[test]
fn progress_is_recorded_for_the_running_attempt_only() {
    let mut story = Story::new(vec![with_attempts(2, call("a", &[])), sleep("s", 50, &[])]);
    let task = story.task("a");
    let report = |attempt, progress| Input::Progressed {
        task,
        attempt,
        progress: Progress { progress, total: Some(3.0), message: None },
    };
    let second = Attempt::FIRST.next();
    let mut say = |input: Input| {
        story.log.extend(decide(&mut story.execution, input, time_at(0)));
    };
    say(report(Attempt::FIRST, 1.0));
    say(report(second, 9.0));
    say(report(Attempt::FIRST, 2.0));
    let progress = story.execution.step(task.step).progress.as_ref().unwrap().progress;
    assert!((progress - 2.0).abs() < f64::EPSILON);
    story.end_step("a", Err(failed_error())).wake_at(100);
    assert_eq!(story.execution.step(task.step).progress, None, "a new attempt has no progress yet");
    story.log.extend(decide(&mut story.execution, report(Attempt::FIRST, 3.0), time_at(100)));
    story.succeed("a").check(expect![[r#"
        0 claimed, a#1 started, s#1 started until 50, a#1 progress 1, a#1 progress 2
        0 a#1 retry_scheduled tool.failed until 100
        100 s#1 succeeded null, a#2 started
        100 a#2 succeeded {"by":"a"}, finished Completed
    "#]]);
}

#[test]
fn a_cached_output_is_marked_as_reused() {
    let mut story = Story::new(vec![call("a", &[])]);
    let task = story.task("a");
    let result = Ok(CallOutput { cached: true, ..CallOutput::from(json!(1)) });
    story.decide(&Input::Ended { task, attempt: Attempt::FIRST, result }).check(expect![[r"
        0 claimed, a#1 started
        0 a#1 succeeded 1 cached, finished Completed
    "]]);
    assert!(story.execution.step(task.step).is_reused);
}

#[test]
fn signals_without_a_waiting_step_are_limited() {
    let mut story = Story::new(vec![call("a", &[]), wait("w", "late", &["a"])]);
    for n in 0..limits::KEPT_SIGNALS {
        story.signal(if n == 0 { "late" } else { "go" }, json!(n));
    }
    story.checked_events = story.log.len();
    story.signal("go", json!("too many")).succeed("a").signal("go", json!("one again"));
    story.check(expect![[r#"
        0 signal_refused
        0 a#1 succeeded {"by":"a"}, w waiting signal late, w#1 succeeded 0, finished Completed
    "#]]);
}
