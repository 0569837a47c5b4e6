use expect_test::expect;

use super::*;

fn verdict(error: Option<ToolError>) -> CheckedStep {
    let parameters = Arc::new(json!({ "x": "{{a.y}}" }));
    CheckedStep { parameters, warnings: vec!["look".to_owned()], error }
}

fn replay_dry_run(steps: Vec<UncheckedStep>, verdicts: Vec<CheckedStep>) -> Story {
    let plan = plan(steps);
    let options = ExecutionOptions { dry_run: true, ..compensating_options() };
    let created = Created::new(plan.id(), plan.info().request, options);
    let id = "exec_1_aaaaaaaaa".parse().unwrap();
    let (execution, log) = dry_run_events(id, &plan, created, time_at(0), verdicts).unwrap();
    let (decision_starts, limited_tools) = (BTreeSet::new(), Arc::default());
    Story {
        execution,
        log,
        now: time_at(0),
        commands: 0,
        checked_events: 1,
        decision_starts,
        limited_tools,
    }
}

fn steps_of_all_kinds() -> Vec<UncheckedStep> {
    vec![
        with_approval(call("a", &[])),
        with_condition("a == 1", call("b", &["a"])),
        for_each("{{a}}", with_compensation(call("c", &["a"]))),
        sub_plan("d", &["b"]),
        sleep("e", 10, &[]),
        wait("f", "go", &["e"]),
    ]
}

#[test]
fn a_dry_run_starts_no_step_and_finishes_at_once() {
    let mut story = replay_dry_run(steps_of_all_kinds(), vec![verdict(None); 6]);
    story.check(expect![[r"
        0 a checked, a skipped DryRun, b checked, b skipped DryRun, c checked, c skipped DryRun,
          d checked, d skipped DryRun, e checked, e skipped DryRun, f checked, f skipped DryRun,
          finished Completed
    "]]);
    for step in story.execution.steps() {
        assert_eq!((step.attempts, step.warnings.len()), (0, 1));
        assert_eq!(step.parameters.as_deref(), Some(&json!({ "x": "{{a.y}}" })));
    }
    let tally = story.assert_finished(ExecutionState::Completed);
    assert_eq!(tally.skipped, 6);
}

#[test]
fn a_step_that_could_not_run_fails_a_dry_run_after_all_checks() {
    let mut verdicts = vec![verdict(None); 6];
    verdicts[0].error = Some(ToolError::new(ErrorCode::INVALID_PARAMETERS, "no"));
    let mut story = replay_dry_run(steps_of_all_kinds(), verdicts);
    story.check(expect![[r"
        0 a checked, a#1 failed tool.invalid_parameters, b checked, b skipped DryRun, c checked,
          c skipped DryRun, d checked, d skipped DryRun, e checked, e skipped DryRun, f checked,
          f skipped DryRun, finished Failed
    "]]);
    let tally = story.assert_finished(ExecutionState::Failed);
    assert_eq!((tally.failed, tally.skipped), (1, 5));
}

#[test]
fn a_dry_run_needs_a_check_of_every_step() {
    let plan = plan(steps_of_all_kinds());
    let options = ExecutionOptions::default();
    let created = Created::new(plan.id(), plan.info().request, options);
    let id = "exec_1_aaaaaaaaa".parse().unwrap();
    assert!(dry_run_events(id, &plan, created, time_at(0), vec![verdict(None)]).is_err());
}
