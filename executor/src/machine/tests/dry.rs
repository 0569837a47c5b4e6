//! Dry runs: a log of verdicts, and no attempt.

use expect_test::expect;

use super::*;

fn verdict(error: Option<ToolError>) -> Verdict {
    let parameters = Arc::new(json!({ "x": "{{a.y}}" }));
    Verdict { parameters, warnings: vec!["look".to_owned()], error }
}

fn dry(steps: Vec<UncheckedStep>, verdicts: Vec<Verdict>) -> Story {
    let plan = plan(steps);
    let options = ExecutionOptions { dry_run: true, ..compensating() };
    let created = Created::new(plan.id(), plan.info().request, options);
    let id = "exec_1_aaaaaaaaa".parse().unwrap();
    let (execution, log) = dry_run(id, &plan, created, at(0), verdicts).unwrap();
    Story { execution, log, now: at(0), commands: 0, told: 1, limited: Arc::default() }
}

fn everything() -> Vec<UncheckedStep> {
    vec![
        approved(call("a", &[])),
        when("a == 1", call("b", &["a"])),
        for_each("{{a}}", undoable(call("c", &["a"]))),
        sub_plan("d", &["b"]),
        sleep("e", 10, &[]),
        wait("f", "go", &["e"]),
    ]
}

#[test]
fn a_dry_run_begins_nothing_and_is_over_at_once() {
    let mut story = dry(everything(), vec![verdict(None); 6]);
    story.check(expect![[r"
        0 step_checked a
        0 step_skipped a DryRun
        0 step_checked b
        0 step_skipped b DryRun
        0 step_checked c
        0 step_skipped c DryRun
        0 step_checked d
        0 step_skipped d DryRun
        0 step_checked e
        0 step_skipped e DryRun
        0 step_checked f
        0 step_skipped f DryRun
        0 finished Completed
    "]]);
    for step in story.execution.steps() {
        assert_eq!((step.attempts, step.warnings.len()), (0, 1));
        assert_eq!(step.parameters.as_deref(), Some(&json!({ "x": "{{a.y}}" })));
    }
    let tally = story.is_over(ExecutionState::Completed);
    assert_eq!(tally.skipped, 6);
}

#[test]
fn a_step_that_could_not_run_fails_a_dry_run_and_the_others_are_still_checked() {
    let mut verdicts = vec![verdict(None); 6];
    verdicts[0].error = Some(ToolError::new(ErrorCode::INVALID_PARAMETERS, "no"));
    let mut story = dry(everything(), verdicts);
    story.check(expect![[r"
        0 step_checked a
        0 step_failed a#1 tool.invalid_parameters
        0 step_checked b
        0 step_skipped b DryRun
        0 step_checked c
        0 step_skipped c DryRun
        0 step_checked d
        0 step_skipped d DryRun
        0 step_checked e
        0 step_skipped e DryRun
        0 step_checked f
        0 step_skipped f DryRun
        0 finished Failed
    "]]);
    let tally = story.is_over(ExecutionState::Failed);
    assert_eq!((tally.failed, tally.skipped), (1, 5));
}

#[test]
fn a_dry_run_needs_a_verdict_for_every_step() {
    let plan = plan(everything());
    let options = ExecutionOptions::default();
    let created = Created::new(plan.id(), plan.info().request, options);
    let id = "exec_1_aaaaaaaaa".parse().unwrap();
    assert!(dry_run(id, &plan, created, at(0), vec![verdict(None)]).is_err());
}
