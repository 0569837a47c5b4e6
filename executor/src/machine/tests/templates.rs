//! Templates without a value.

use expect_test::expect;

use super::*;

fn options(strict_templates: Option<bool>) -> ExecutionOptions {
    ExecutionOptions { strict_templates, ..ExecutionOptions::default() }
}

fn strict(is_strict: Option<bool>, mut step: UncheckedStep) -> UncheckedStep {
    step.policy.strict_templates = is_strict;
    step
}

fn with_input(input: Value, options: ExecutionOptions) -> ExecutionOptions {
    ExecutionOptions { input: Arc::new(input), ..options }
}

fn error_code(story: &Story, id: &str) -> Option<String> {
    match &story.execution.step(story.step_number(id)).state {
        StepState::Failed(error) => Some(error.code.to_string()),
        _ => None,
    }
}

#[test]
fn an_unresolved_template_fails_a_call_with_an_effect_by_default() {
    for of_effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
        for of_step in [None, Some(false), Some(true)] {
            for of_options in [None, Some(false), Some(true)] {
                let lacking = with_parameters(json!({ "x": "{{a.missing}}" }), call("b", &["a"]));
                let lacking = strict(of_step, effect(of_effect, lacking));
                let mut story =
                    Story::with_options(vec![call("a", &[]), lacking], options(of_options));
                story.succeed("a");
                let is_strict = of_step.or(of_options).unwrap_or(of_effect != Effect::Read);
                let case = format!("{of_effect:?} {of_step:?} {of_options:?}");
                let expected = is_strict.then(|| "template.unresolved".to_owned());
                assert_eq!(error_code(&story, "b"), expected, "{case}");
                let b = story.execution.step(story.step_number("b"));
                if !is_strict {
                    let kept = json!({ "x": "{{a.missing}}" });
                    assert_eq!(b.parameters.as_deref(), Some(&kept), "{case}");
                    assert_eq!(b.warnings.len(), 1, "{case}");
                }
                story.assert_replays();
            }
        }
    }
}

#[test]
fn a_missing_input_fails_the_execution_before_its_first_step() {
    let greet = |id| with_parameters(json!({ "text": "Hello {{input.who}}" }), call(id, &["a"]));
    Story::new(vec![call("a", &[]), greet("b"), call("c", &["b"])]).check(expect![[r"
        0 claimed, execution_failed, b#1 failed template.unresolved, a skipped ExecutionFailed,
          c skipped ExecutionFailed, finished Failed
    "]]);
    // The caller left this input out, so `onError` of the step does not apply.
    for kind in [OnError::Continue, OnError::Ignore, OnError::Wait] {
        let story = Story::new(vec![call("a", &[]), on_error(kind, greet("b"))]);
        assert_eq!(story.state(), ExecutionState::Failed, "{kind}");
        assert_eq!(error_code(&story, "b").as_deref(), Some("template.unresolved"));
        assert_eq!(story.execution.step(story.step_number("a")).attempts, 0);
        story.assert_replays();
    }
    let mut sequential =
        Story::with_options(vec![call("a", &[]), greet("b")], sequential_options());
    assert_eq!(
        sequential
            .check(expect![[r"
                0 claimed, execution_failed, b#1 failed template.unresolved, a skipped ExecutionFailed,
                  finished Failed
            "]])
            .state(),
        ExecutionState::Failed
    );
}

#[test]
fn a_missing_input_is_tolerated_where_templates_are_not_strict() {
    let greet = || with_parameters(json!({ "text": "Hello {{input.who}}" }), call("b", &["a"]));
    let begins = |step, options| {
        let story = Story::with_options(vec![call("a", &[]), step], options);
        story.execution.step(story.step_number("a")).attempts == 1
    };
    let default = ExecutionOptions::default;
    assert!(begins(greet(), with_input(json!({ "who": null }), default())), "null is a value");
    assert!(begins(effect(Effect::Read, greet()), default()));
    assert!(begins(greet(), options(Some(false))));
    assert!(begins(strict(Some(false), greet()), options(Some(true))));
    assert!(!begins(strict(Some(true), effect(Effect::Read, greet())), default()));
    assert!(begins(with_parameters(json!({ "all": "{{input}}" }), call("b", &["a"])), default()));
}

#[test]
fn missing_inputs_of_conditions_lists_and_compensations_are_found() {
    let begins = |step, options| {
        let story = Story::with_options(vec![call("a", &[]), step], options);
        story.assert_replays();
        story.execution.step(story.step_number("a")).attempts == 1
    };
    let greet = || with_parameters(json!({ "text": "Hello {{input.who}}" }), call("b", &["a"]));
    let default = ExecutionOptions::default;
    assert!(
        begins(with_condition("has(input.who)", greet()), default()),
        "the step will be skipped"
    );
    assert!(begins(with_condition("steps.a.x == 1 && has(input.who)", greet()), default()));
    assert!(!begins(with_condition("!has(input.who)", greet()), default()));
    assert!(
        !begins(with_condition("steps.a.by == \"a\"", greet()), default()),
        "the output is not known yet"
    );
    assert!(!begins(for_each("{{input.list}}", call("b", &["a"])), default()));
    let mut read =
        Story::new(vec![for_each("{{input.list}}", effect(Effect::Read, call("b", &[])))]);
    assert_eq!(error_code(&read, "b").as_deref(), Some("step.not_a_list"));
    read.check(expect![[r"
        0 claimed, b#1 failed step.not_a_list, finished Failed
    "]]);
    let undo = || {
        let mut step = with_compensation(call("b", &["a"]));
        step.compensate.as_mut().unwrap().parameters = Arc::new(json!({ "of": "{{input.who}}" }));
        step
    };
    assert!(begins(undo(), default()), "no step will be undone");
    assert!(!begins(undo(), compensating_options()));
}

#[test]
fn an_item_without_a_field_fails_a_call_with_an_effect() {
    let steps = |of_effect| {
        let each = with_parameters(json!({ "x": "{{item.name}}" }), call("b", &["a"]));
        vec![call("a", &[]), for_each("{{a.list}}", effect(of_effect, each))]
    };
    let list = || Ok(json!({ "list": [{ "id": 1 }] }));
    let mut story = Story::new(steps(Effect::Once));
    story.end_step("a", list());
    assert_eq!(error_code(&story, "b").as_deref(), Some("template.unresolved"));
    let mut story = Story::new(steps(Effect::Read));
    story.end_step("a", list()).succeed("b[0]");
    assert_eq!(story.state(), ExecutionState::Completed);
}

#[test]
fn the_input_of_a_started_execution_is_not_checked_again() {
    let steps =
        vec![call("a", &[]), with_parameters(json!({ "x": "{{input.who}}" }), call("b", &["a"]))];
    let mut story = Story::with_options(steps, options(Some(false)));
    story.claim().check(expect![[r"
        0 claimed, a#1 started
        0 claimed, a#1 interrupted, a#2 started
    "]]);
}

#[test]
fn many_unresolved_templates_give_few_warnings() {
    let texts = vec!["{{a.missing}}"; 5_000];
    let lacking = effect(Effect::Read, with_parameters(json!({ "x": texts }), call("b", &["a"])));
    let mut story = Story::new(vec![call("a", &[]), lacking]);
    story.succeed("a");
    let warnings = &story.execution.step(story.step_number("b")).warnings;
    assert_eq!(warnings.len(), 1_001);
    assert_eq!(warnings[1_000], "4000 more templates have no value and were passed on as written");
}
