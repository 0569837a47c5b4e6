use expect_test::{Expect, expect};

use super::super::{compile_all, parse};
use super::*;
use crate::sub_plans::SubPlans;

fn check(text: &str, expected: &Expect) {
    let found = parse(text).map_or_else(|diagnostics| diagnostics, |draft| draft.notices);
    expected.assert_eq(&format_diagnostics(&found));
}

#[test]
fn a_draft_is_parsed_with_all_fields() {
    let text = r#"{
        "query": "q", "requestId": null, "executionOrder": ["a"],
        "tools": [{
            "id": "a", "name": "t", "parameters": {"x": 1}, "dependsOn": ["b"], "outputMapping": {"p": "v"},
            "retry": {"maxAttempts": 2, "multiplier": 3}, "timeoutMs": 7, "onError": "wait",
            "requiresApproval": false, "when": null
        }, {"toolName": "u"}]
    }"#;
    let mut draft = parse(text).unwrap();
    let text = text.replace(r#", "when": null"#, "");
    assert_eq!(draft, serde_json::from_str(&text).unwrap());
    assert_eq!(draft.tools[0].retry.unwrap().multiplier, Some(3.0));
    let again = parse(&serde_json::to_string(&draft).unwrap()).unwrap();
    draft.request_id = None;
    assert_eq!(again, draft);
}

#[test]
fn all_errors_of_a_malformed_draft_are_reported() {
    check(
        r#"{"querry": "x", "executionOrder": ["a", 1], "tools": [
            {"name": 5, "dependson": "a", "parameters": 5, "outputMapping": "x", "timeoutMs": "5", "a b": 1},
            "createAuthor",
            {"id": ["a"], "retry": {"attempts": 5, "maxAttempts": 1.5, "jitter": "yes"}, "requiresApproval": 1},
            {"retry": 5, "onError": {}}
        ]}"#,
        &expect![[r#"
            error[plan.unknown_field] querry: there is no field `querry` (did you mean `query`?)
            error[plan.invalid_json] executionOrder[1]: this must be text, not `1`
            error[plan.unknown_field] tools[0].dependson: there is no field `dependson` (did you mean `dependsOn`?)
            error[plan.unknown_field] tools[0]["a b"]: there is no field `a b` (known are `id`, `name`, `toolName`, `plan`, `parameters`, `dependsOn`, `outputMapping`, `retry`, `timeoutMs`, `onError`, `requiresApproval`, `when`, `forEach`, `maxParallel`, `compensate`, `idleTimeoutMs`, `cacheTtlMs`, `strictTemplates`)
            error[plan.invalid_json] tools[0].name: this must be text, not `5`
            error[plan.invalid_mapping] tools[0].outputMapping: an output mapping must be an object, not text (write `{"path in the output": "variable"}`)
            error[plan.invalid_json] tools[0].timeoutMs: this must be a whole number, not text
            error[plan.invalid_json] tools[1]: this must be an object, not text
            error[plan.invalid_json] tools[2].id: this must be text, not a list
            error[plan.unknown_field] tools[2].retry.attempts: there is no field `attempts` (did you mean `maxAttempts`?)
            error[plan.invalid_json] tools[2].retry.maxAttempts: this must be a whole number, not `1.5`
            error[plan.invalid_json] tools[2].retry.jitter: this must be true or false, not text
            error[plan.invalid_json] tools[2].requiresApproval: this must be true or false, not `1`
            error[plan.invalid_json] tools[3].retry: this must be an object, not `5`
            error[plan.invalid_json] tools[3].onError: this must be text, not an object
        "#]],
    );
}

/// Regression: an unknown field hid unknown tools, missing parameters and cycles.
#[test]
fn an_unknown_field_hides_no_other_diagnostic() {
    let found = compile_invalid(json!({
        "colour": 1,
        "tools": [
            { "name": "createAuthor", "paramters": { "name": "Al" } },
            { "id": "a", "name": "flow.noop", "dependsOn": ["b"], "why": "so" },
            { "id": "b", "name": "flow.noop", "dependsOn": ["a"] },
            { "name": "flow.ech" },
        ],
    }));
    let expected = expect![[r#"
        error[plan.unknown_field] colour: there is no field `colour` (known are `query`, `requestId`, `tools`, `executionOrder`)
        error[plan.unknown_field] tools[0].paramters: there is no field `paramters` (did you mean `parameters`?)
        error[plan.missing_parameter] tools[0].parameters.email: `demo.createAuthor` needs `email` (of type string)
        error[plan.unknown_field] tools[1].why: there is no field `why` (known are `id`, `name`, `toolName`, `plan`, `parameters`, `dependsOn`, `outputMapping`, `retry`, `timeoutMs`, `onError`, `requiresApproval`, `when`, `forEach`, `maxParallel`, `compensate`, `idleTimeoutMs`, `cacheTtlMs`, `strictTemplates`)
        error[plan.cycle] tools[1].dependsOn: Circular dependency detected between tools: a -> b -> a (for example, take `b` out of `tools[1].dependsOn`)
        error[plan.unknown_tool] tools[3].name: no tool is called `flow.ech` (did you mean `flow.echo`?)
    "#]];
    expected.assert_eq(&format_diagnostics(&found));
}

#[test]
fn an_unknown_field_in_an_inline_plan_hides_no_other_diagnostic() {
    let draft = parse(
        r#"{"tools": [{"plan": {"tools": [{"name": "flow.ech", "why": "so"}]}}, {"name": "nothing"}]}"#,
    )
    .unwrap();
    let plans = SubPlans::default();
    let found = compile_all(&draft, plan_info(), &make_catalog(), &plans, &mut |_| plan_info())
        .unwrap_err();
    let expected = expect![[r#"
        error[plan.unknown_field] tools[0].plan.tools[0].why: there is no field `why` (known are `id`, `name`, `toolName`, `plan`, `parameters`, `dependsOn`, `outputMapping`, `retry`, `timeoutMs`, `onError`, `requiresApproval`, `when`, `forEach`, `maxParallel`, `compensate`, `idleTimeoutMs`, `cacheTtlMs`, `strictTemplates`)
        error[plan.unknown_tool] tools[0].plan.tools[0].name: no tool is called `flow.ech` (did you mean `flow.echo`?)
        error[plan.unknown_tool] tools[1].name: no tool is called `nothing` (`faber tools list` lists the tools)
    "#]];
    expected.assert_eq(&format_diagnostics(&found));
}

#[test]
fn a_draft_must_be_an_object_with_tools() {
    check(
        "[]",
        &expect![[r#"
        error[plan.invalid_json] : this must be an object, not a list
    "#]],
    );
    check(
        "{}",
        &expect![[r#"
        error[plan.invalid_json] tools: a plan must have a list of `tools`
    "#]],
    );
    check(
        r#"{"tools": null}"#,
        &expect![[r#"
        error[plan.invalid_json] tools: a plan must have a list of `tools`
    "#]],
    );
    check(
        r#"{"tools": {"a": 1}, "executionOrder": "a"}"#,
        &expect![[r#"
        error[plan.invalid_json] executionOrder: this must be a list, not text
        error[plan.invalid_json] tools: this must be a list, not an object
    "#]],
    );
    check(
        r#"{"tools": [}"#,
        &expect![[r#"
        error[plan.invalid_json] : the plan is not JSON: expected value at line 1 column 12 (write `{"tools": [{"name": …, "parameters": {…}}]}`)
    "#]],
    );
    check(
        "",
        &expect![[r#"
        error[plan.invalid_json] : the plan is not JSON: EOF while parsing a value at line 1 column 0 (write `{"tools": [{"name": …, "parameters": {…}}]}`)
    "#]],
    );
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    check(
        &deep,
        &expect![[r#"
        error[plan.too_large] : the JSON is nested too deeply: recursion limit exceeded at line 1 column 128 (put such data into a file and pass its name)
    "#]],
    );
}

#[test]
fn rounded_numbers_become_warnings_of_the_plan() {
    let text =
        r#"{"tools": [{"name": "flow.echo", "parameters": {"n": 123456789012345678901234}}]}"#;
    let plan = compile(&parse(text).unwrap(), plan_info(), &make_catalog()).unwrap();
    assert_eq!(list_codes(plan.diagnostics()), ["plan.number_rounded tools[0].parameters.n"]);
    assert_eq!(plan.steps()[0].parameters["n"], json!(1.234_567_890_123_456_8e23));
}
