//! Tests of joins, branches and slots. Most of them are problems that users of other engines
//! report.

use expect_test::expect;

use super::*;

/// Problem of `LangGraph`: a slow sibling delays an unrelated branch at each step.
#[test]
fn a_slow_branch_does_not_delay_a_fast_one() {
    let steps = vec![
        call("slow", &[]),
        call("fast", &[]),
        call("faster", &["fast"]),
        call("fastest", &["faster"]),
        call("join", &["slow", "fastest"]),
    ];
    let mut story = Story::new(steps);
    story.succeed("fast").succeed("faster").succeed("fastest").check(expect![[r#"
        0 claimed, slow#1 started, fast#1 started
        0 fast#1 succeeded {"by":"fast"}, faster#1 started
        0 faster#1 succeeded {"by":"faster"}, fastest#1 started
        0 fastest#1 succeeded {"by":"fastest"}
    "#]]);
    story.succeed("slow").succeed("join");
    story.assert_finished(ExecutionState::Completed);
}

/// A long loop that could use every slot lets other steps start first.
#[test]
fn a_long_loop_does_not_delay_the_branch_beside_it() {
    let list = Value::Array(vec![json!(0); 1_000]);
    let steps = vec![
        call("a", &[]),
        for_each("{{a}}", call("each", &["a"])),
        call("b", &[]),
        call("c", &["b"]),
        call("d", &["c"]),
    ];
    let options = ExecutionOptions { max_parallel: Some(4), ..Default::default() };
    let mut story = Story::with_options(steps, options);
    story.end_step("a", Ok(list));
    story.succeed("b").succeed("each[0]");
    assert_eq!(story.execution.step(story.step_number("c")).state.name(), "running");
    story.succeed("c").succeed("each[1]");
    assert_eq!(story.execution.step(story.step_number("d")).state.name(), "running");
    story.run(|_| Ok(json!(0)));
    story.assert_finished(ExecutionState::Completed);
}

/// Problem of Conductor: a join of 6,000 forks finished before its forks.
#[test]
fn a_join_of_six_thousand_branches_starts_after_the_last() {
    const BRANCHES: usize = 6_000;
    let names: Vec<String> = (0..BRANCHES).map(|number| format!("b{number}")).collect();
    let mut steps: Vec<UncheckedStep> = names.iter().map(|name| call(name, &[])).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    steps.push(call("join", &all));
    let mut story = Story::new(steps);
    let join = story.step_number("join");
    for n in 0..BRANCHES {
        assert_eq!(story.execution.step(join).state, StepState::Pending, "after {n}");
        let agenda = story.execution.agenda();
        // Ends the running task with the lowest number and the one with the highest number in turn,
        // because the join must wait for all tasks in any order.
        let task = if n % 2 == 0 { agenda.running().first() } else { agenda.running().last() };
        let task = *task.unwrap();
        story.end_task(task, Ok(json!(n)));
    }
    assert_eq!(story.execution.step(join).state.name(), "running");
    story.succeed("join");
    let start_count =
        story.log.iter().filter(|recorded| recorded.event.kind() == "step_started").count();
    assert_eq!(start_count, BRANCHES + 1, "each once");
    story.assert_finished(ExecutionState::Completed);
}

/// Problem of Conductor: a join finished before the 6,000 items of one list.
#[test]
fn a_dependent_of_six_thousand_items_starts_after_the_last() {
    let list = Value::Array(vec![json!(0); 6_000]);
    let steps = vec![
        call("a", &[]),
        for_each("{{a}}", call("each", &["a"])),
        with_parameters(json!({ "all": "{{each}}" }), call("join", &["each"])),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Ok(list));
    for n in 0..6_000 {
        assert_eq!(story.execution.step(story.step_number("join")).state, StepState::Pending);
        let task = *story.execution.agenda().running().first().unwrap();
        story.end_task(task, Ok(json!(n)));
    }
    assert_eq!(story.called_with("join")["all"].as_array().unwrap().len(), 6_000);
    story.succeed("join");
    story.assert_finished(ExecutionState::Completed);
}

/// Problem of Conductor: a join without branches completes immediately, or never.
#[test]
fn a_loop_without_items_lets_its_dependents_start() {
    let steps = vec![
        call("a", &[]),
        for_each("{{a}}", call("each", &["a"])),
        with_condition("false", call("no", &["a"])),
        with_condition("each.size() == 0 && no == null", call("join", &["each", "no"])),
    ];
    let mut story = Story::new(steps);
    story.end_step("a", Ok(json!([]))).succeed("join").check(expect![[r#"
        0 claimed, a#1 started
        0 a#1 succeeded [], no skipped Condition, each#1 started of 0, each#1 succeeded,
          join#1 started
        0 join#1 succeeded {"by":"join"}, finished Completed
    "#]]);
}

/// Problem of Conductor: an optional task that fails completes the join early.
#[test]
fn a_failed_optional_branch_does_not_start_the_join_early() {
    let steps = vec![
        on_error(OnError::Ignore, call("optional", &[])),
        call("other", &[]),
        with_parameters(
            json!({ "got": ["{{optional}}", "{{other.by}}"] }),
            call("join", &["optional", "other"]),
        ),
    ];
    let mut story = Story::new(steps);
    story.end_step("optional", Err(failed_error()));
    assert_eq!(story.execution.step(story.step_number("join")).state, StepState::Pending);
    story.succeed("other");
    assert_eq!(story.called_with("join"), json!({ "got": [null, "other"] }));
    story.succeed("join");
    story.assert_finished(ExecutionState::Completed);
}

/// Problem of Conductor: a step is skipped on which a join depends. Here, a join without a
/// condition is then skipped immediately, and a join with a condition waits for all its other
/// dependencies.
#[test]
fn a_join_over_a_skipped_branch_is_skipped_or_decides_for_itself() {
    let steps = vec![
        with_condition("false", call("skipped", &[])),
        call("other", &[]),
        call("plain", &["skipped", "other"]),
        with_condition("other.by == 'other'", call("own", &["skipped", "other", "plain"])),
    ];
    let mut story = Story::new(steps);
    story.check(expect![[r"
        0 claimed, skipped skipped Condition, other#1 started, plain skipped Dependency
    "]]);
    assert_eq!(story.execution.step(story.step_number("own")).state, StepState::Pending);
    story.succeed("other").succeed("own").check(expect![[r#"
        0 other#1 succeeded {"by":"other"}, own#1 started
        0 own#1 succeeded {"by":"own"}, finished Completed
    "#]]);
}

/// Problem of Mastra: a branch that is suspended loses its siblings' results, or gets the results
/// of another branch.
#[test]
fn a_suspended_branch_keeps_its_siblings_results() {
    let steps = vec![
        call("a", &[]),
        with_approval(call("b", &[])),
        wait("w", "go", &[]),
        call("c", &[]),
        with_parameters(
            json!(["{{a.by}}", "{{b.by}}", "{{w}}", "{{c.by}}"]),
            call("join", &["a", "b", "w", "c"]),
        ),
    ];
    let mut story = Story::new(steps);
    story.succeed("a").claim().approve("b", true).succeed("c").claim().succeed("b");
    assert_eq!(story.state(), ExecutionState::Waiting);
    story.claim().signal("go", json!("w"));
    assert_eq!(story.called_with("join"), json!(["a", "b", "w", "c"]));
    story.succeed("join");
    story.assert_finished(ExecutionState::Completed);
}

/// Problem of Mastra: the items of a loop that are suspended resume with the data of other items.
#[test]
fn suspended_items_keep_their_own_results() {
    let each =
        on_error(OnError::Wait, with_parameters(json!({ "it": "{{item}}" }), call("each", &["a"])));
    let mut story = Story::new(vec![call("a", &[]), for_each("{{a}}", each)]);
    story.end_step("a", Ok(json!(["x", "y", "z"])));
    story
        .end_step("each[0]", Err(failed_error()))
        .end_step("each[1]", Ok(json!("Y")))
        .end_step("each[2]", Err(failed_error()));
    story.claim().approve("each[2]", true);
    assert_eq!(story.called_with("each[2]"), json!({ "it": "z" }));
    story.end_step("each[2]", Ok(json!("Z"))).claim().approve("each[0]", true);
    story.end_step("each[0]", Ok(json!("X")));
    assert_eq!(story.output("each"), json!(["X", "Y", "Z"]));
    story.assert_finished(ExecutionState::Completed);
}

/// Problem of Kestra: a paused or waiting task keeps its slot, so all other tasks wait for it.
#[test]
fn a_waiting_step_holds_no_slot() {
    let steps = vec![
        with_approval(call("a", &[])),
        wait("w", "go", &[]),
        with_attempts(2, call("r", &[])),
        on_error(OnError::Wait, call("d", &[])),
        call("z", &[]),
    ];
    let options = ExecutionOptions { max_parallel: Some(1), ..Default::default() };
    let mut story = Story::with_options(steps, options);
    story.end_step("r", Err(failed_error())).end_step("d", Err(failed_error()));
    assert_eq!(story.execution.step(story.step_number("z")).state.name(), "running");
    story
        .succeed("z")
        .wake_at(100)
        .succeed("r")
        .approve("a", true)
        .succeed("a")
        .approve("d", true)
        .succeed("d");
    story.signal("go", json!(1)).check(expect![[r#"
        0 claimed, a waiting approval, w waiting signal go, r#1 started
        0 r#1 retry_scheduled tool.failed until 100, d#1 started
        0 d waiting decision tool.failed, z#1 started
        0 z#1 succeeded {"by":"z"}
        100 r#2 started
        100 r#2 succeeded {"by":"r"}
        100 a approved, a#1 started
        100 a#1 succeeded {"by":"a"}
        100 d approved, d#2 started
        100 d#2 succeeded {"by":"d"}
        100 signal_received, w#1 succeeded 1, finished Completed
    "#]]);
}

/// Problem of Kestra: a loop with one slot waits for itself and never ends.
#[test]
fn a_loop_with_one_slot_finishes() {
    let each =
        with_max_parallel(1, with_attempts(2, on_error(OnError::Wait, call("each", &["a"]))));
    for options in
        [sequential_options(), ExecutionOptions { max_parallel: Some(1), ..Default::default() }]
    {
        let steps = vec![call("a", &[]), for_each("{{a}}", each.clone()), call("z", &["each"])];
        let mut story = Story::with_options(steps, options);
        story.end_step("a", Ok(json!([1, 2, 3])));
        story
            .end_step("each[0]", Err(failed_error()))
            .wake_at(100)
            .end_step("each[0]", Err(failed_error()));
        story.succeed("each[1]").approve("each", true).run(|_| Ok(json!(0)));
        story.assert_finished(ExecutionState::Completed);
    }
}

/// Problem of Kestra: sub-flows with one slot wait for the slot that their parent occupies. Here, a
/// child has its own slots, and its parent needs no worker.
#[test]
fn a_sub_plan_does_not_need_a_slot_of_its_parent() {
    let mut story =
        Story::with_options(vec![sub_plan("p", &[]), call("b", &[])], sequential_options());
    assert!(!story.execution.agenda().has_calls());
    story.end_step("p", Ok(json!(1))).succeed("b");
    story.assert_finished(ExecutionState::Completed);
}

/// Problem of Kestra: an approval approves itself after thirty seconds.
#[test]
fn an_approval_is_given_by_a_person_only() {
    let mut story = Story::new(vec![with_approval(call("a", &[]))]);
    story.wake_at(1 << 40).claim().signal("a", json!(true)).send_command(Command::Pause);
    story.send_command(Command::Resume).wake_at(1 << 41);
    assert_eq!((story.state(), story.next_wake_ms()), (ExecutionState::Waiting, None));
}

/// Problem of Argo: a plan whose retries are exhausted keeps running forever.
#[test]
fn exhausted_retries_finish_the_execution_for_every_kind_of_step() {
    let list = json!([1, 2]);
    for kind in [OnError::Fail, OnError::Continue, OnError::Ignore] {
        let a = with_attempts(3, on_error(kind, call("b", &[])));
        let each = with_attempts(3, on_error(kind, for_each("{{a}}", call("each", &["a"]))));
        let steps = vec![call("a", &[]), a, each, call("c", &["b"]), call("d", &["each"])];
        let mut story = Story::new(steps);
        story.end_step("a", Ok(list.clone()));
        for _ in 0..10 {
            story.run(|_| Err(failed_error()));
            let Some(at) = wake_at(&story.execution) else { break };
            story.now = at;
            story.decide(&Input::Woken);
        }
        assert!(story.state().is_finished(), "{kind:?}: {:?}", story.state());
    }
}

/// Problem of Argo: memoized outputs are not used if there are retries.
#[test]
fn a_cached_output_succeeds_during_a_retry() {
    let mut story = Story::new(vec![with_attempts(2, call("a", &[])), call("b", &["a"])]);
    story.end_step("a", Err(failed_error())).wake_at(100);
    let (task, result) =
        (story.task("a"), Ok(CallOutput { cached: true, ..CallOutput::from(json!(1)) }));
    story.decide(&Input::Ended { task, attempt: Attempt::nth_after(1), result }).succeed("b");
    story.assert_finished(ExecutionState::Completed);
}
