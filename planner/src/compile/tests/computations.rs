use expect_test::{Expect, expect};
use shared::condition::COMPUTE;

use super::*;

fn catalog_with_compute() -> Catalog {
    let schema = json!({
        "type": "object",
        "properties": { "expression": { "type": "string" }, "values": { "type": "object" } },
        "required": ["expression"],
        "additionalProperties": false,
    });
    let compute =
        with_change(&make_tool("flow", COMPUTE, schema), |tool| tool.effect = Effect::Read);
    Catalog::new(make_catalog().tools().iter().cloned().chain([compute]))
}

fn compile_steps(tools: &Value) -> Result<Plan, Vec<Diagnostic>> {
    compile(&parse_value(json!({ "tools": tools }))?, plan_info(), &catalog_with_compute())
}

#[expect(clippy::needless_pass_by_value, reason = "so that tests can write values in place")]
fn check(parameters: Value, expected: Expect) {
    let tools = json!([
        { "id": "list", "name": "listAuthors" },
        { "id": "sum", "name": COMPUTE, "parameters": parameters },
    ]);
    let found = compile_steps(&tools);
    expected.assert_eq(&format_diagnostics(
        &found.map_or_else(|found| found, |plan| plan.diagnostics().to_vec()),
    ));
}

#[test]
fn a_valid_expression_compiles_without_diagnostics() {
    for parameters in [
        json!({ "expression": "sum(prices) * 1.19", "values": { "prices": "{{list.prices}}" } }),
        json!({ "expression": "1 + 1" }),
        json!({ "expression": "anything.name", "values": "{{list}}" }),
        json!({ "expression": "'{{{{' + x", "values": { "x": "{{list.text}}" } }),
        json!({ "expression": "input + steps", "values": { "input": 1, "steps": 2 } }),
    ] {
        check(parameters, expect![""]);
    }
}

#[test]
fn a_wrong_expression_is_reported_with_its_place() {
    let values = json!({ "prices": "{{list.prices}}" });
    for (source, expected) in [
        (
            "sum(price)",
            expect![[r#"
                error[plan.invalid_parameters] tools[1].parameters.expression: line 1, column 5: `price` is not a field of `values` (did you mean `prices`?)
            "#]],
        ),
        (
            "total(prices)",
            expect![[r#"
                error[plan.invalid_parameters] tools[1].parameters.expression: line 1, column 1: there is no function `total` (write CEL over the fields of `values`, such as `sum(prices) * 1.19`)
            "#]],
        ),
        (
            "sum(prices",
            expect![[r#"
                error[plan.invalid_parameters] tools[1].parameters.expression: line 1, column 11: it ends too early (write CEL over the fields of `values`, such as `sum(prices) * 1.19`)
            "#]],
        ),
        (
            "sum(rows.prices)",
            expect![[r#"
                error[plan.invalid_parameters] tools[1].parameters.expression: line 1, column 5: `rows` is not a field of `values` (add it: `"values": {"rows": …}`)
            "#]],
        ),
        (
            "prices.exists(p, p.matches('('))",
            expect![[r#"
                error[plan.invalid_parameters] tools[1].parameters.expression: line 1, column 20: the pattern of `matches`: unclosed group (write CEL over the fields of `values`, such as `sum(prices) * 1.19`)
            "#]],
        ),
    ] {
        check(json!({ "expression": source, "values": values }), expected);
    }
    check(
        json!({ "expression": "", "values": {} }),
        expect![[r#"
                error[plan.invalid_parameters] tools[1].parameters.expression: line 1, column 1: it ends too early (write CEL over the fields of `values`, such as `sum(prices) * 1.19`)
            "#]],
    );
    check(
        json!({ "expression": 1 }),
        expect![[r#"
                error[plan.invalid_parameters] tools[1].parameters.expression: 1 is not of type "string"
            "#]],
    );
    check(
        json!({ "values": {} }),
        expect![[r#"
                error[plan.missing_parameter] tools[1].parameters.expression: `flow.compute` needs `expression` (of type string)
            "#]],
    );
    check(
        json!({ "expression": "a", "values": [] }),
        expect![[r#"
        error[plan.invalid_parameters] tools[1].parameters.values: [] is not of type "object"
    "#]],
    );
    check(
        json!({ "expression": "a", "value": {} }),
        expect![[r#"
        error[plan.invalid_parameters] tools[1].parameters.expression: line 1, column 1: `a` is not a field of `values` (add it: `"values": {"a": …}`)
        error[plan.invalid_parameters] tools[1].parameters.value: `flow.compute` has no parameter `value` (did you mean `values`?)
    "#]],
    );
}

#[test]
fn a_template_in_the_expression_is_reported_once() {
    for source in ["{{list.n}} + 1", "{{unknown.n}}", "{{}}", "{{item}}", "{{input.expression}}"] {
        check(
            json!({ "expression": source }),
            expect![[r#"
                error[plan.invalid_template] tools[1].parameters.expression: an expression cannot contain templates (name the value in the expression, and write the template into `values`: `{"expression": "sum(prices)", "values": {"prices": "{{list.prices}}"}}`)
            "#]],
        );
    }
}

#[test]
fn expressions_of_compensations_are_checked() {
    let tools = json!([{ "name": "createBlog", "compensate":
        { "name": COMPUTE, "parameters": { "expression": "a" } } }]);
    let found = compile_steps(&tools).expect_err("`a` has no value");
    assert_eq!(
        list_codes(&found),
        ["plan.invalid_parameters tools[0].compensate.parameters.expression"]
    );
}

#[test]
fn templates_are_strict_unless_the_step_says_otherwise() {
    let step = |id: &str, strict: Value| {
        json!({ "id": id, "name": COMPUTE, "parameters": { "expression": "1" },
            "strictTemplates": strict })
    };
    let tools = json!([step("a", json!(null)), step("b", json!(true)), step("c", json!(false))]);
    let plan = compile_steps(&tools).unwrap();
    let strict: Vec<_> = plan.steps().iter().map(|step| step.policy.strict_templates).collect();
    assert_eq!(strict, [Some(true), Some(true), Some(false)]);
}

#[test]
fn patterns_of_expressions_and_conditions_share_a_budget() {
    let pattern = "text.matches('^[a-z]{1,300}$')";
    let step = json!({ "name": COMPUTE,
        "parameters": { "expression": pattern, "values": { "text": "a" } } });
    let found = compile_steps(&Value::from(vec![step; 20_000]));
    let found = found.expect_err("too many patterns");
    assert_eq!(found[0].code, "plan.too_large");
    assert_eq!(found.last().map(|more| &*more.code), Some("plan.more"));
}
