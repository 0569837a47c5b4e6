use expect_test::expect;

use super::*;

#[test]
fn approval_is_requested_after_dependencies_with_rendered_parameters() {
    let request = with_parameters(json!({ "who": "{{a.by}}" }), with_approval(call("b", &["a"])));
    let mut story = Story::new(vec![call("a", &[]), request]);
    story.approve("b", true).succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        0 command_ignored
        0 a#1 succeeded {"by":"a"}, b waiting approval
    "#]]);
    let b = story.execution.step(story.step_number("b"));
    assert_eq!(b.parameters.as_deref(), Some(&json!({ "who": "a" })));
    assert_eq!(story.state(), ExecutionState::Waiting);
    story.approve("b", true).succeed("b").check(expect![[r#"
        0 b approved, b#1 started
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
}

#[test]
fn a_person_is_needed_until_nothing_waits() {
    let steps = vec![call("a", &[]), with_approval(call("b", &[])), wait("w", "go", &[])];
    let mut story = Story::new(steps.clone());
    let needs = |story: &Story| story.execution.needs_person();
    assert!(needs(&story), "b waits for an approval, and w for a signal");
    assert_eq!(story.state(), ExecutionState::InProgress, "a runs");
    assert!(needs(story.approve("b", true)), "step `w` still waits");
    assert!(!needs(story.signal("go", json!(1))));
    assert!(needs(story.send_command(Command::Pause)));
    assert!(!needs(story.send_command(Command::Resume)));
    assert!(!needs(story.succeed("a").succeed("b")), "the execution has finished");

    let mut cancelled = Story::new(steps);
    assert!(!needs(cancelled.send_command(Command::Cancel { reason: None })), "only a is awaited");

    let mut failed_once = Story::new(vec![on_error(OnError::Wait, call("a", &[]))]);
    assert!(!needs(&failed_once));
    assert!(
        needs(failed_once.end_step("a", Err(failed_error()))),
        "a person decides about the error"
    );
    assert!(!needs(failed_once.approve("a", true)), "the step starts again");
    let unknown = ToolError::outcome_unknown("the connection was lost");
    assert!(needs(failed_once.end_step("a", Err(unknown))), "the outcome of the call is unknown");
    assert!(!needs(failed_once.approve("a", false)));
}

#[test]
fn a_rejected_approval_fails_the_step() {
    let mut story = Story::new(vec![with_approval(call("a", &[])), call("b", &["a"])]);
    story.approve("a", false).check(expect![[r"
        0 claimed, a waiting approval
        0 a#1 failed step.rejected, b skipped ExecutionFailed, finished Failed
    "]]);
    let mut goes_on = Story::new(vec![
        on_error(OnError::Ignore, with_approval(call("a", &[]))),
        call("b", &["a"]),
    ]);
    goes_on.approve("a", false).succeed("b").check(expect![[r#"
        0 claimed, a waiting approval
        0 a#1 failed step.rejected, b#1 started
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
}

#[test]
fn an_approval_stays_valid_for_retries_and_claims() {
    let mut story = Story::new(vec![with_attempts(2, with_approval(call("a", &[])))]);
    story
        .claim()
        .approve("a", true)
        .claim()
        .end_step("a", Err(failed_error()))
        .wake_at(100)
        .succeed("a");
    story.check(expect![[r#"
        0 claimed, a waiting approval
        0 claimed
        0 a approved, a#1 started
        0 claimed, a#1 interrupted, a#2 started
        0 a#2 retry_scheduled tool.failed until 100
        100 a#3 started
        100 a#3 succeeded {"by":"a"}, finished Completed
    "#]]);
}

#[test]
fn a_signal_ends_a_wait_whether_it_comes_early_or_late() {
    let mut late = Story::new(vec![wait("w", "go", &[])]);
    late.signal("other", json!(0)).claim().signal("go", json!({ "x": 1 })).check(expect![[r#"
        0 claimed, w waiting signal go
        0 signal_received
        0 claimed
        0 signal_received, w#1 succeeded {"x":1}, finished Completed
    "#]]);
    let mut early = Story::new(vec![call("a", &[]), wait("w", "go", &["a"])]);
    early.signal("go", json!(1)).signal("go", json!(2)).claim().succeed("a").check(expect![[r#"
        0 claimed, a#1 started
        0 signal_received
        0 signal_received
        0 claimed, a#1 interrupted, a#2 started
        0 a#2 succeeded {"by":"a"}, w waiting signal go, w#1 succeeded 1, finished Completed
    "#]]);
}

#[test]
fn each_signal_ends_one_wait_in_order_of_arrival() {
    let steps = vec![wait("v", "go", &[]), wait("w", "go", &[]), wait("x", "go", &["v"])];
    let mut story = Story::new(steps);
    story.signal("go", json!(1)).signal("go", json!(2)).signal("go", json!(3));
    story.check(expect![[r"
        0 claimed, v waiting signal go, w waiting signal go
        0 signal_received, v#1 succeeded 1, x waiting signal go
        0 signal_received, w#1 succeeded 2
        0 signal_received, x#1 succeeded 3, finished Completed
    "]]);
}

#[test]
fn a_wait_may_need_approval_first() {
    let mut story = Story::new(vec![with_approval(wait("w", "go", &[]))]);
    story.signal("go", json!(1)).approve("w", true).check(expect![[r"
        0 claimed, w waiting approval
        0 signal_received
        0 w approved, w waiting signal go, w#1 succeeded 1, finished Completed
    "]]);
}

#[test]
fn a_wait_without_a_signal_name_is_invalid() {
    let mut story =
        Story::new(vec![with_parameters(json!({ "name": 7 }), step("w", "flow.wait", &[]))]);
    story.check(expect![[r"
        0 claimed, w#1 failed tool.invalid_parameters, finished Failed
    "]]);
}

#[test]
fn a_repeated_command_counts_once() {
    let mut story = Story::new(vec![wait("v", "go", &[]), wait("w", "go", &[])]);
    let signal = story.envelope(Command::Signal { name: "go".to_owned(), payload: Arc::default() });
    let pause = story.envelope(Command::Pause);
    let resume = story.envelope(Command::Resume);
    for _ in 0..3 {
        for envelope in [&signal, &pause, &resume] {
            story.decide(&Input::Command(envelope.clone()));
        }
    }
    story.check(expect![[r"
        0 claimed, v waiting signal go, w waiting signal go
        0 signal_received, v#1 succeeded null
        0 paused
        0 resumed
    "]]);
}

#[test]
fn an_approval_of_a_step_that_does_not_wait_changes_nothing() {
    let mut story = Story::new(vec![call("a", &[]), wait("w", "go", &[])]);
    story.checked_events = story.log.len();
    story.approve("a", true).approve("a", false).approve("w", true).approve("w", false);
    let nobody = "nobody".parse().unwrap();
    story.send_command(Command::Approve {
        step: nobody,
        item: None,
        approved: true,
        comment: None,
    });
    story.check(expect![[r"
        0 command_ignored
        0 command_ignored
        0 command_ignored
        0 command_ignored
        0 command_ignored
    "]]);
}

#[test]
fn a_paused_execution_starts_no_step_and_records_results() {
    let mut story =
        Story::new(vec![call("a", &[]), call("b", &["a"]), with_approval(call("c", &["a"]))]);
    story.send_command(Command::Pause).send_command(Command::Pause);
    assert_eq!(story.state(), ExecutionState::Paused);
    story.succeed("a").claim().check(expect![[r#"
        0 claimed, a#1 started
        0 paused
        0 command_ignored
        0 a#1 succeeded {"by":"a"}
        0 claimed
    "#]]);
    assert_eq!(story.state(), ExecutionState::Paused);
    story.send_command(Command::Resume).send_command(Command::Resume).check(expect![[r"
        0 resumed, c waiting approval, b#1 started
        0 command_ignored
    "]]);
    assert_eq!(story.state(), ExecutionState::InProgress);
}

#[test]
fn a_pause_before_the_first_claim_stays_in_force() {
    let mut story = Story::new_unclaimed(vec![call("a", &[])], ExecutionOptions::default());
    story.send_command(Command::Pause).claim().check(expect![[r"
        0 paused
        0 claimed
    "]]);
    assert_eq!(story.state(), ExecutionState::Paused);
    story.send_command(Command::Resume).check(expect![[r"
        0 resumed, a#1 started
    "]]);
}

#[test]
fn sleeps_and_retry_times_pass_during_a_pause_but_nothing_starts() {
    let mut story =
        Story::new(vec![sleep("s", 50, &[]), with_attempts(2, call("a", &[])), call("b", &["s"])]);
    story.end_step("a", Err(failed_error())).send_command(Command::Pause);
    assert_eq!(story.next_wake_ms(), Some(50));
    story.wake_at(500).check(expect![[r"
        0 claimed, s#1 started until 50, a#1 started
        0 a#1 retry_scheduled tool.failed until 100
        0 paused
        500 s#1 succeeded null
    "]]);
    assert_eq!(story.next_wake_ms(), None);
    story.send_command(Command::Resume).check(expect![[r"
        500 resumed, a#2 started, b#1 started
    "]]);
}

/// After a crash, the inbox can deliver a command again when the execution is in another state.
/// Regression: a `pause` without effect was delivered again, and paused an execution that a person
/// had resumed.
#[test]
fn a_command_without_effect_stays_without_effect_when_repeated() {
    let mut story = Story::new(vec![call("a", &[]), call("b", &["a"])]);
    let [first, second, go_on] =
        [Command::Pause, Command::Pause, Command::Resume].map(|command| story.envelope(command));
    for envelope in [&first, &second, &go_on, &go_on, &second, &first] {
        story.decide(&Input::Command(envelope.clone()));
    }
    story.succeed("a").succeed("b").check(expect![[r#"
        0 claimed, a#1 started
        0 paused
        0 command_ignored
        0 resumed
        0 a#1 succeeded {"by":"a"}, b#1 started
        0 b#1 succeeded {"by":"b"}, finished Completed
    "#]]);
}

/// A person clicks twice. The second click must not approve a later step, even if it is delivered
/// again.
#[test]
fn a_repeated_approval_does_not_approve_a_later_step() {
    let step = on_error(OnError::Wait, with_approval(effect(Effect::Once, call("a", &[]))));
    let mut story = Story::new(vec![step]);
    let agree = || Command::Approve {
        step: "a".parse().unwrap(),
        item: None,
        approved: true,
        comment: None,
    };
    let clicks = [story.envelope(agree()), story.envelope(agree())];
    for click in &clicks {
        story.decide(&Input::Command(click.clone()));
    }
    story.end_step("a", Err(failed_error())).claim().decide(&Input::Command(clicks[1].clone()));
    story.check(expect![[r"
        0 claimed, a waiting approval
        0 a approved, a#1 started
        0 command_ignored
        0 a waiting decision tool.failed
        0 claimed
    "]]);
    assert_eq!(story.state(), ExecutionState::Waiting);
}

#[test]
fn a_wait_ends_at_its_timeout() {
    let patient = |ms, name: &str| {
        let mut step = wait(name, name, &[]);
        step.policy.timeout_ms = ms;
        on_error(OnError::Continue, step)
    };
    let mut story = Story::new(vec![patient(500, "a"), patient(800, "b"), call("c", &["b"])]);
    assert_eq!(story.next_wake_ms(), Some(500));
    story.wake_at(499).claim().wake_at(500).signal("b", json!(1)).succeed("c").check(expect![[
        r#"
        0 claimed, a waiting signal a, b waiting signal b
        499 claimed
        500 a#1 failed tool.timeout
        500 signal_received, b#1 succeeded 1, c#1 started
        500 c#1 succeeded {"by":"c"}, finished Completed
    "#
    ]]);
    // A wait without a timeout needs no wake-up, because only a signal ends it.
    let story = Story::new(vec![wait("a", "a", &[])]);
    assert_eq!(story.next_wake_ms(), None);
}

#[test]
fn the_events_of_a_command_name_its_actor_and_their_consequences_do_not() {
    let mut story = Story::new(vec![with_approval(call("a", &[]))]);
    let step = story.execution.plan().step(story.step_number("a")).id.clone();
    let command = Command::Approve { step, item: None, approved: true, comment: None };
    let by = Some(Arc::new(Actor::token("ops")));
    let envelope = SentCommand { by: by.clone(), ..story.envelope(command) };
    story.decide(&Input::Command(envelope)).succeed("a");
    let named: Vec<_> =
        story.log.iter().map(|recorded| (recorded.event.kind(), &recorded.by)).collect();
    let expected = [
        ("created", &None),
        ("claimed", &None),
        ("step_waiting", &None),
        ("step_approved", &by),
        ("step_started", &None),
        ("step_succeeded", &None),
        ("finished", &None),
    ];
    assert_eq!(named, expected);
}
