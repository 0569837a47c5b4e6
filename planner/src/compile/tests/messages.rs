use expect_test::{Expect, expect};

use super::*;

fn check(tools: &Value, expected: &Expect) {
    expected.assert_eq(&format_diagnostics(&compile_invalid(json!({ "tools": tools }))));
}

#[test]
fn the_text_of_diagnostics_of_names_is_stable() {
    check(
        &json!([
            { "name": "createAutor" },
            { "name": "blog.createAuthor" },
            { "name": "sendMail" },
            { "name": "glob" },
            { "name": "weather" },
            {},
            { "name": "flow.noop", "toolName": "flow.noop" },
            { "name": "flow.noop", "id": "item" },
            { "name": "flow.noop", "id": "a b" },
            { "name": "flow.noop", "id": "x" },
            { "name": "flow.noop", "id": "x" },
        ]),
        &expect![[r#"
            error[plan.unknown_tool] tools[0].name: no tool is called `createAutor` (did you mean `createAuthor`?)
            error[plan.unknown_tool] tools[1].name: no tool is called `blog.createAuthor` (did you mean `createAuthor`?)
            error[plan.unknown_tool] tools[2].name: no tool is called `sendMail` (`faber tools list` lists the tools)
            error[plan.inactive_tool] tools[3].name: `glob` belongs to the inactive toolset `files` (activate it: `faber toolsets activate files`)
            error[plan.not_callable] tools[4].name: `weather` can be selected but not called (see its description with `faber tools show`, or add `run` to it)
            error[plan.missing_tool] tools[5]: the step names no tool (write the tool's name as `name`)
            error[plan.two_tools] tools[6]: the step has both `name` and `toolName` (keep exactly one of them)
            error[plan.invalid_step_id] tools[7].id: `item` is not a step id: letters, digits, `_`, `-` and `.`, at most 128, and none of `item`, `index`, `vars`, `input` (the word has another meaning in templates; choose another id)
            error[plan.invalid_step_id] tools[8].id: `a b` is not a step id: letters, digits, `_`, `-` and `.`, at most 128, and none of `item`, `index`, `vars`, `input` (for example `a_b`)
            error[plan.duplicate_step] tools[10].id: `x` is the id of `tools[9]` already (give each step a different id)
        "#]],
    );
}

#[test]
fn the_text_of_diagnostics_of_references_is_stable() {
    check(
        &json!([
            { "id": "author1", "name": "listAuthors" },
            { "id": "author2", "name": "listAuthors" },
            { "id": "b", "name": "flow.echo", "dependsOn": ["author3", "listAuthors", "x", 5], "parameters": {
                "a": "{{autor1._id}} {{listAuthors[0]._id}}",
                "b": "{{demo.listAuthors.0}}",
                "c": "{{a + b}} {{}} {{b[x]}}",
                "d": "{{vars.x}} {{vars}} {{item}}",
            } },
        ]),
        &expect![[r#"
            error[plan.unknown_dependency] tools[2].dependsOn[0]: no step is called `author3` (did you mean `author1`?)
            error[plan.unknown_dependency] tools[2].dependsOn[1]: 2 steps use the tool `listAuthors` (name one of them: `author1`, `author2`)
            error[plan.unknown_dependency] tools[2].dependsOn[2]: no step is called `x` (the plan has `author1`, `author2`, `b`)
            error[plan.invalid_dependency] tools[2].dependsOn[3]: a dependency must be a step's id, not a number (write null, a name, or a list of names)
            error[plan.unknown_step_in_template] tools[2].parameters.a: `{{autor1._id}}`: no step is called `autor1` (did you mean `author1`?)
            error[plan.unknown_step_in_template] tools[2].parameters.a: `{{listAuthors[0]._id}}`: 2 steps use the tool `listAuthors` (name one of them: `author1`, `author2`)
            error[plan.unknown_step_in_template] tools[2].parameters.b: `{{demo.listAuthors.0}}`: 2 steps use the tool `demo.listAuthors` (name one of them: `author1`, `author2`)
            error[plan.invalid_template] tools[2].parameters.c: `{{a + b}}` is not a template: `a + b` is not a name; write other keys as `["any key"]` (write `{{step.path}}`, or `{{{{` for two literal braces)
            error[plan.invalid_template] tools[2].parameters.c: `{{}}` is not a template: there is nothing between the braces (write `{{step.path}}`, or `{{{{` for two literal braces)
            error[plan.invalid_template] tools[2].parameters.c: `{{b[x]}}` is not a template: `[x]` is neither `[0]` nor `["any key"]` (write `{{step.path}}`, or `{{{{` for two literal braces)
            error[plan.unknown_step_in_template] tools[2].parameters.d: `{{vars}}`: no variable is named (write `{{vars.name}}`)
            error[plan.unknown_variable] tools[2].parameters.d: `{{vars.x}}`: no step maps the variable `x` (map it: `"outputMapping": {"path": "x"}`)
            error[plan.unknown_step_in_template] tools[2].parameters.d: `{{item}}` has a value only in a step with `forEach` (give the step a `forEach` such as `{{listAuthors.items}}`: then `{{item}}` is the current item, and `{{index}}` its index from 0; use them in `parameters` and `compensate`)
        "#]],
    );
}

#[test]
fn the_text_of_diagnostics_of_parameters_is_stable() {
    check(
        &json!([
            { "name": "createAuthor", "parameters": { "emial": "a@b.c", "age": "x", "kind": "dog", "address": {} } },
            { "name": "createAuthor", "parameters": { "name": "A", "email": "a@b.c", "zip": 5 } },
            { "name": "createAuthor", "parameters": [] },
            { "name": "flow.echo", "parameters": "five" },
        ]),
        &expect![[r#"
            error[plan.missing_parameter] tools[0].parameters.name: `demo.createAuthor` needs `name` (string: the full name)
            error[plan.missing_parameter] tools[0].parameters.email: `demo.createAuthor` needs `email` (of type string)
            error[plan.invalid_parameters] tools[0].parameters.age: "x" is not of type "integer"
            error[plan.invalid_parameters] tools[0].parameters.kind: "dog" is not one of "person" or "group"
            error[plan.missing_parameter] tools[0].parameters.address.city: `demo.createAuthor` needs `city` (of type string)
            error[plan.invalid_parameters] tools[0].parameters.emial: `demo.createAuthor` has no parameter `emial` (did you mean `email`?)
            error[plan.invalid_parameters] tools[1].parameters.zip: `demo.createAuthor` has no parameter `zip` (it takes `name`, `email`, `age`, `tags`, `address`, `kind`)
            error[plan.invalid_parameters] tools[2].parameters: parameters must be an object, not a list (write `{"name": value}`)
            error[plan.invalid_parameters] tools[3].parameters: parameters must be an object, not a string that is not the JSON of an object (write `{"name": value}`)
        "#]],
    );
}

#[test]
fn the_text_of_diagnostics_of_policies_and_mappings_is_stable() {
    check(
        &json!([
            { "name": "flow.noop", "timeoutMs": 0, "retry": { "maxAttempts": 5_000, "multiplier": 1e9 } },
            { "name": "flow.noop", "onError": "contine", "outputMapping": { "a b": "x", "c": "d e", "f": 5 } },
            { "name": "flow.noop", "onError": "explode" },
        ]),
        &expect![[r#"
            error[plan.invalid_timeout] tools[0].timeoutMs: `0` is out of range (choose a number from 1 to 31536000000)
            error[plan.invalid_retry] tools[0].retry.maxAttempts: `5000` is out of range (choose a number from 1 to 1000)
            error[plan.invalid_retry] tools[0].retry.multiplier: `1000000000` is out of range (choose a number from 0 to 1000)
            error[plan.invalid_mapping] tools[1].outputMapping["a b"]: `a b` is not a path: `a b` is not a name; write other keys as `["any key"]` (write `{"path in the output": "variable"}`)
            error[plan.invalid_mapping] tools[1].outputMapping.c: `d e` is not a variable's name: letters, digits, `_`, `-` and `.`, at most 128 (write `{"path in the output": "variable"}`)
            error[plan.invalid_mapping] tools[1].outputMapping.f: a variable's name must be text, not a number (write `{"path in the output": "variable"}`)
            error[plan.invalid_on_error] tools[1].onError: `contine` is not `fail`, `continue`, `ignore` or `wait` (did you mean `continue`?)
            error[plan.invalid_on_error] tools[2].onError: `explode` is not `fail`, `continue`, `ignore` or `wait` (remove it for `fail`)
        "#]],
    );
}

#[test]
fn the_text_of_diagnostics_of_cycles_and_order_is_stable() {
    let mut draft = draft_of_steps(&[("a", &["b"]), ("b", &["a"])]);
    draft["executionOrder"] = json!(["a", "c"]);
    expect![[r#"
        error[plan.cycle] tools[0].dependsOn: Circular dependency detected between tools: a -> b -> a (for example, take `b` out of `tools[0].dependsOn`)
        warning[plan.order_differs] executionOrder: it differs from the computed order: it names `c`, but no step is called `c` (the plan has `a`, `b`); it leaves out `b` (remove `executionOrder`, because Faber always computes the order)
    "#]].assert_eq(&format_diagnostics(&compile_invalid(draft)));
    let mut draft = draft_of_steps(&[("a", &["b"]), ("b", &[])]);
    draft["executionOrder"] = json!(["a", "b"]);
    expect![[r#"
        warning[plan.order_differs] executionOrder: it differs from the computed order: position 1 has `a`, not `b`; position 2 has `b`, not `a` (remove `executionOrder`, because Faber always computes the order)
    "#]].assert_eq(&format_diagnostics(compile_valid(draft).diagnostics()));
    let mut draft = draft_of_steps(&[("a", &[]), ("b", &[])]);
    draft["executionOrder"] = json!(["x", "y"]);
    expect![[r#"
        warning[plan.order_differs] executionOrder: it differs from the computed order: it names `x`, but no step is called `x` (the plan has `a`, `b`); it names `y`, but no step is called `y` (the plan has `a`, `b`); it leaves out `a`; it leaves out `b` (remove `executionOrder`, because Faber always computes the order)
    "#]].assert_eq(&format_diagnostics(compile_valid(draft).diagnostics()));
    let ids: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    let steps: Vec<_> = ids.iter().map(|id| (id.as_str(), &[][..])).collect();
    let mut draft = draft_of_steps(&steps);
    draft["executionOrder"] = ids.iter().rev().map(String::as_str).collect();
    let text = format_diagnostics(compile_valid(draft).diagnostics());
    assert!(text.contains("position 8 has `s12`, not `s7`; and more"), "{text}");
    let mut draft = draft_of_steps(&[("a", &[]), ("b", &[])]);
    draft["executionOrder"] = json!(["a", "flow.echo", "a"]);
    expect![[r#"
        warning[plan.order_differs] executionOrder: it differs from the computed order: it names `flow.echo`, but 2 steps use the tool `flow.echo` (name one of them: `a`, `b`); it leaves out `b` (remove `executionOrder`, because Faber always computes the order)
    "#]].assert_eq(&format_diagnostics(compile_valid(draft).diagnostics()));
}

#[test]
fn the_text_of_diagnostics_of_outputs_is_stable() {
    let plan = compile_valid(json!({ "tools": [
        { "name": "createAuthor", "parameters": { "name": "A", "email": "a@b.c" } },
        { "name": "flow.echo", "parameters": { "a": "{{createAuthor.id}}", "b": "{{createAuthor._id.x}}",
            "beside": "{{createAuthor.$content[0].data}}" } },
    ] }));
    expect![[r#"
        warning[plan.path_not_in_output] tools[1].parameters.a: `{{createAuthor.id}}`: the output of `demo.createAuthor` has no `id` (did you mean `_id`?)
        warning[plan.path_not_in_output] tools[1].parameters.b: `{{createAuthor._id.x}}`: the output of `demo.createAuthor` has no `x` (there, it is of type `string`)
    "#]].assert_eq(&format_diagnostics(plan.diagnostics()));
}
