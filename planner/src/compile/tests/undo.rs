use expect_test::{Expect, expect};

use super::*;

fn check(tools: &Value, expected: &Expect) {
    let found = compile_json(json!({ "tools": tools }));
    expected.assert_eq(&format_diagnostics(
        &found.map_or_else(|diagnostics| diagnostics, |plan| plan.diagnostics().to_vec()),
    ));
}

#[test]
fn a_compensation_can_use_the_output_of_its_step() {
    let plan = compile_valid(json!({ "tools": [
        { "id": "b", "name": "createBlog", "compensate": {
            "toolName": "flow.noop", "parameters": { "id": "{{b._id}}", "who": "{{a}} {{vars.v}} {{input.x}}" },
            "retry": { "maxAttempts": 5 }, "timeoutMs": 70,
        } },
        { "id": "a", "name": "flow.echo" },
        { "id": "v", "name": "flow.echo", "outputMapping": { "x": "v" } },
    ] }));
    assert_eq!(list_dependencies(&plan), ["a:", "v:", "b: a v"]);
    let undo = plan.steps()[2].compensate.as_ref().unwrap();
    assert_eq!(undo.tool.as_str(), "flow.noop");
    assert_eq!((undo.policy.retry.max_attempts, undo.policy.timeout_ms), (5, 70));
    let tools: Vec<_> = plan.called_tools().map(shared::id::ToolName::as_str).collect();
    assert!(tools.contains(&"flow.noop"), "{tools:?}");
}

#[test]
fn an_invalid_compensation_is_reported() {
    check(
        &json!([
            { "name": "flow.noop", "compensate": "flow.noop" },
            { "name": "flow.noop", "compensate": {} },
            { "name": "flow.noop", "compensate": { "name": "a", "toolName": "b" } },
            { "name": "flow.noop", "compensate": { "name": "deleteAuthor" } },
            { "name": "flow.noop", "compensate": { "toolName": "glob" } },
            { "name": "flow.noop", "compensate": { "name": "weather" } },
            { "name": "flow.noop", "compensate": { "name": "flow.noop", "paramters": {}, "dependsOn": "x", "retry": { "a": 1 } } },
            { "name": "flow.noop", "compensate": { "name": "flow.noop", "parameters": 5, "timeoutMs": 0, "retry": { "maxAttempts": 0 } } },
            { "name": "flow.noop", "compensate": { "name": "createAuthor", "parameters": { "name": 5, "email": "{{flow.noop}}" } } },
            { "name": "flow.noop", "compensate": { "name": "createAuthor", "parameters": { "name": "{{nobody.name}}", "email": "{{vars.x}} {{}}" } } },
        ]),
        &expect![[r#"
            error[plan.invalid_json] tools[0].compensate: this must be an object, not text
            error[plan.missing_tool] tools[1].compensate: the step names no tool (write the tool's name as `name`)
            error[plan.two_tools] tools[2].compensate: the step has both `name` and `toolName` (keep exactly one of them)
            error[plan.unknown_tool] tools[2].compensate.name: no tool is called `a` (`faber tools list` lists the tools)
            error[plan.unknown_tool] tools[3].compensate.name: no tool is called `deleteAuthor` (did you mean `createAuthor`?)
            error[plan.inactive_tool] tools[4].compensate.toolName: `glob` belongs to the inactive toolset `files` (activate it: `faber toolsets activate files`)
            error[plan.not_callable] tools[5].compensate.name: `weather` can be selected but not called (see its description with `faber tools show`, or add `run` to it)
            error[plan.unknown_field] tools[6].compensate.paramters: there is no field `paramters` (did you mean `parameters`?)
            error[plan.unknown_field] tools[6].compensate.dependsOn: there is no field `dependsOn` (known are `name`, `toolName`, `parameters`, `retry`, `timeoutMs`)
            error[plan.unknown_field] tools[6].compensate.retry.a: there is no field `a` (known are `maxAttempts`, `backoffMs`, `maxBackoffMs`, `multiplier`, `jitter`)
            error[plan.invalid_parameters] tools[7].compensate.parameters: parameters must be an object, not a number (write `{"name": value}`)
            error[plan.invalid_timeout] tools[7].compensate.timeoutMs: `0` is out of range (choose a number from 1 to 31536000000)
            error[plan.invalid_retry] tools[7].compensate.retry.maxAttempts: `0` is out of range (choose a number from 1 to 1000)
            error[plan.invalid_parameters] tools[8].compensate.parameters.name: 5 is not of type "string" (the full name)
            error[plan.unknown_step_in_template] tools[9].compensate.parameters.name: `{{nobody.name}}`: no step is called `nobody` (the plan has `flow.noop`, `flow.noop_2`, `flow.noop_3`, `flow.noop_4`, `flow.noop_5`, `flow.noop_6`, `flow.noop_7`, `flow.noop_8`, `flow.noop_9`, `flow.noop_10`)
            error[plan.invalid_template] tools[9].compensate.parameters.email: `{{}}` is not a template: there is nothing between the braces (write `{{step.path}}`, or `{{{{` for two literal braces)
            error[plan.unknown_variable] tools[9].compensate.parameters.email: `{{vars.x}}`: no step maps the variable `x` (map it: `"outputMapping": {"path": "x"}`)
        "#]],
    );
}

#[test]
fn a_compensation_that_reads_a_dependent_closes_a_cycle() {
    check(
        &json!([
            { "id": "a", "name": "flow.noop", "compensate": { "name": "flow.echo", "parameters": { "x": "{{b.x}}" } } },
            { "id": "b", "name": "flow.noop", "dependsOn": "a" },
        ]),
        &expect![[r#"
            error[plan.cycle] tools[0].compensate.parameters.x: Circular dependency detected between tools: a -> b -> a (for example, take `{{b.x}}`, which reads `b`, out of `tools[0].compensate.parameters.x`)
        "#]],
    );
}
