use expect_test::{Expect, expect};

use super::*;

fn check(tools: &Value, expected: &Expect) {
    let found = compile_json(json!({ "tools": tools }));
    expected.assert_eq(&format_diagnostics(
        &found.map_or_else(|diagnostics| diagnostics, |plan| plan.diagnostics().to_vec()),
    ));
}

#[test]
fn a_step_named_in_a_condition_becomes_a_dependency() {
    let plan = compile_valid(json!({ "tools": [
        { "id": "c", "name": "flow.echo", "when": "a.ok && steps[\"flow.echo_2\"] == 1 && vars.v > 2 && input.x" },
        { "id": "a", "name": "flow.echo" },
        { "name": "flow.echo", "id": "flow.echo_2" },
        { "id": "v1", "name": "flow.echo", "outputMapping": { "x": "v" } },
        { "id": "v2", "name": "flow.echo", "outputMapping": { "y": "v" } },
        { "id": "never", "name": "flow.noop", "when": "false" },
    ] }));
    assert_eq!(
        list_dependencies(&plan),
        ["a:", "flow.echo_2:", "v1:", "v2:", "c: a flow.echo_2 v1 v2", "never:"]
    );
    let when = plan.steps()[4].when.as_ref().unwrap();
    assert!(when.source().starts_with("a.ok"), "{when}");
}

#[test]
fn an_invalid_condition_is_reported() {
    check(
        &json!([
            { "id": "author", "name": "listAuthors" },
            { "id": "other", "name": "listAuthors" },
            { "name": "flow.noop", "when": "autor.ok" },
            { "name": "flow.noop", "when": "steps[\"listAuthors\"].ok" },
            { "name": "flow.noop", "when": "author.ok &&" },
            { "name": "flow.noop", "when": "" },
            { "name": "flow.noop", "when": "vars.nothing == 1" },
            { "name": "flow.noop", "when": "item == 1" },
            { "name": "flow.noop", "when": "{{author.ok}}" },
            { "name": "flow.noop", "when": "nothing(author)" },
            { "name": "flow.noop", "when": format!("{}true", "true || ".repeat(1_000)) },
        ]),
        &expect![[r#"
            error[plan.invalid_condition] tools[2].when: no step is called `autor` (did you mean `author`?)
            error[plan.invalid_condition] tools[3].when: 2 steps use the tool `listAuthors` (name one of them: `author`, `other`)
            error[plan.invalid_condition] tools[4].when: line 1, column 13: it ends too early (write CEL over earlier steps, such as `steps["createAuthor"].age > 17`)
            error[plan.invalid_condition] tools[5].when: line 1, column 1: it ends too early (write CEL over earlier steps, such as `steps["createAuthor"].age > 17`)
            error[plan.unknown_variable] tools[6].when: `vars.nothing`: no step maps the variable `nothing` (map it: `"outputMapping": {"path": "nothing"}`)
            error[plan.invalid_condition] tools[7].when: `item` has no value in a condition, which is evaluated once for the whole step (use `{{item}}` and `{{index}}` in `parameters` and `compensate`)
            error[plan.invalid_condition] tools[8].when: line 1, column 12: expected ':' in map entry (a condition cannot contain templates: write the names without braces)
            error[plan.invalid_condition] tools[9].when: there is no function `nothing` (write CEL over earlier steps, such as `steps["createAuthor"].age > 17`)
            error[plan.invalid_condition] tools[10].when: it has 8004 bytes; the limit is 4096 (write CEL over earlier steps, such as `steps["createAuthor"].age > 17`)
        "#]],
    );
}

#[test]
fn a_condition_can_close_a_cycle() {
    check(
        &json!([
            { "id": "a", "name": "flow.noop", "when": "b.ok" },
            { "id": "b", "name": "flow.noop", "dependsOn": "a" },
            { "id": "c", "name": "flow.noop", "when": "steps.c == null" },
        ]),
        &expect![[r#"
            error[plan.cycle] tools[0].when: Circular dependency detected between tools: a -> b -> a (for example, do not read `b` in `tools[0].when`)
            error[plan.cycle] tools[2].when: Circular dependency detected between tools: c -> c (for example, do not read `c` in `tools[2].when`)
        "#]],
    );
}
