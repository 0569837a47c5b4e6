use expect_test::{Expect, expect};

use super::*;

fn check(tools: &Value, expected: &Expect) {
    let found = compile_json(json!({ "tools": tools }));
    expected.assert_eq(&format_diagnostics(
        &found.map_or_else(|diagnostics| diagnostics, |plan| plan.diagnostics().to_vec()),
    ));
}

fn catalog_with_author_list() -> Catalog {
    let authors = json!({
        "type": "object",
        "properties": {
            "total": { "type": "integer" },
            "items": { "type": "array", "items": {
                "type": "object",
                "properties": { "_id": { "type": "string" } },
                "additionalProperties": false,
            } },
        },
        "additionalProperties": false,
    });
    let list = with_change(&make_tool("demo", "list", json!({})), |tool| {
        tool.output_schema = Some(authors);
    });
    let text = json!({ "type": "string" });
    let name =
        with_change(&make_tool("demo", "name", json!({})), |tool| tool.output_schema = Some(text));
    Catalog::new([list, name, make_tool("flow", "flow.echo", json!({}))])
}

fn check_warnings(tools: &Value, expected: &Expect) {
    let draft = parse_value(json!({ "tools": tools })).unwrap();
    let plan = compile(&draft, plan_info(), &catalog_with_author_list())
        .unwrap_or_else(|diagnostics| panic!("{}", format_diagnostics(&diagnostics)));
    expected.assert_eq(&format_diagnostics(plan.diagnostics()));
}

#[test]
fn a_loop_knows_its_list_and_items() {
    let plan = compile_valid(json!({ "tools": [
        { "id": "loop", "name": "flow.echo", "forEach": "{{ l.items }}", "maxParallel": 3,
          "parameters": { "x": "{{item._id}} {{index}}", "y": ["{{item}}", "{{input.z}}"] },
          "compensate": { "name": "flow.noop", "parameters": { "x": "{{item}} {{index}} {{loop}}" } } },
        { "id": "l", "name": "listAuthors" },
        { "id": "given", "name": "flow.echo", "forEach": "{{input.list}}" },
        { "id": "last", "name": "flow.echo", "forEach": "{{loop}}", "parameters": { "x": "{{loop[0]}}" } },
        { "id": "var", "name": "flow.echo", "forEach": "{{vars.v}}", "outputMapping": { "0": "w" } },
        { "id": "v", "name": "flow.echo", "outputMapping": { "x": "v" } },
    ] }));
    assert_eq!(list_dependencies(&plan), ["l:", "loop: l", "given:", "last: loop", "v:", "var: v"]);
    assert_eq!(plan.diagnostics(), []);
    let step = &plan.steps()[1];
    assert_eq!(step.policy.max_parallel, Some(3));
    let for_each = step.for_each.as_ref().unwrap();
    assert_eq!(
        (for_each.written.as_str(), &*for_each.list.text),
        ("{{ l.items }}", "{{ l.items }}")
    );
}

#[test]
fn a_for_each_that_is_no_list_template_is_reported() {
    check(
        &json!([
            { "id": "l", "name": "listAuthors" },
            { "name": "flow.noop", "forEach": "[1, 2]" },
            { "name": "flow.noop", "forEach": "all {{l}}" },
            { "name": "flow.noop", "forEach": "" },
            { "name": "flow.noop", "forEach": "{{l" },
            { "name": "flow.noop", "forEach": "{{k.items}}" },
            { "name": "flow.noop", "forEach": "{{item.list}}" },
            { "name": "flow.noop", "forEach": "{{vars.list}}" },
            { "name": "flow.noop", "forEach": "{{a b}}" },
            { "id": "self", "name": "flow.noop", "forEach": "{{self.x}}" },
        ]),
        &expect![[r#"
            error[plan.invalid_for_each] tools[1].forEach: `[1, 2]` is not a whole template (pass the list as input and write `{{input.list}}`, or let a `flow.echo` step return it and write `{{thatStep.list}}`)
            error[plan.invalid_for_each] tools[2].forEach: `all {{l}}` is not a whole template (write one template whose value is a list, such as `{{listAuthors.items}}`)
            error[plan.invalid_for_each] tools[3].forEach: `` is not a whole template (write one template whose value is a list, such as `{{listAuthors.items}}`)
            error[plan.invalid_for_each] tools[4].forEach: `{{l` is not a whole template (write one template whose value is a list, such as `{{listAuthors.items}}`)
            error[plan.unknown_step_in_template] tools[5].forEach: `{{k.items}}`: no step is called `k` (the plan has `l`, `flow.noop`, `flow.noop_2`, `flow.noop_3`, `flow.noop_4`, `flow.noop_5`, `flow.noop_6`, `flow.noop_7`, `flow.noop_8`, `self`)
            error[plan.unknown_step_in_template] tools[6].forEach: `{{item.list}}` has no value in `forEach`, because the list is read before the first item (for lists inside lists, let the step execute a plan (`plan`) with a `forEach` over `{{input.list}}`)
            error[plan.unknown_variable] tools[7].forEach: `{{vars.list}}`: no step maps the variable `list` (map it: `"outputMapping": {"path": "list"}`)
            error[plan.invalid_template] tools[8].forEach: `{{a b}}` is not a template: `a b` is not a name; write other keys as `["any key"]` (write `{{step.path}}`, or `{{{{` for two literal braces)
            error[plan.cycle] tools[9].forEach: Circular dependency detected between tools: self -> self (for example, take `{{self.x}}`, which reads `self`, out of `tools[9].forEach`)
            warning[plan.path_not_in_output] tools[9].forEach: `{{self.x}}`: the output of `flow.noop` has no `x` (it is the list of the items' outputs: take one of them, such as `[0]`, or loop over it with `forEach`)
        "#]],
    );
    for list in [json!([1, 2]), json!({ "a": 1 }), json!(5)] {
        let found = compile_invalid(json!({ "tools": [{ "name": "flow.noop", "forEach": list }] }));
        assert_eq!(list_codes(&found), ["plan.invalid_for_each tools[0].forEach"], "{list}");
        let is_about_lists = found[0].help.as_ref().unwrap().contains("{{input.list}}");
        assert_eq!(is_about_lists, list.is_array());
    }
}

#[test]
fn item_and_index_outside_of_a_loop_are_reported() {
    check(
        &json!([
            { "name": "flow.echo", "parameters": { "a": ["{{item.x}}", "{{index}}"] },
              "compensate": { "name": "flow.noop", "parameters": { "b": "{{item}}" } } },
        ]),
        &expect![[r#"
            error[plan.unknown_step_in_template] tools[0].parameters.a[0]: `{{item.x}}` has a value only in a step with `forEach` (give the step a `forEach` such as `{{listAuthors.items}}`: then `{{item}}` is the current item, and `{{index}}` its index from 0; use them in `parameters` and `compensate`)
            error[plan.unknown_step_in_template] tools[0].parameters.a[1]: `{{index}}` has a value only in a step with `forEach` (give the step a `forEach` such as `{{listAuthors.items}}`: then `{{item}}` is the current item, and `{{index}}` its index from 0; use them in `parameters` and `compensate`)
            error[plan.unknown_step_in_template] tools[0].compensate.parameters.b: `{{item}}` has a value only in a step with `forEach` (give the step a `forEach` such as `{{listAuthors.items}}`: then `{{item}}` is the current item, and `{{index}}` its index from 0; use them in `parameters` and `compensate`)
        "#]],
    );
}

#[test]
fn a_tool_named_item_is_not_the_loop_item() {
    let catalog = Catalog::new([make_tool("s", "item", json!({})), make_tool("s", "o", json!({}))]);
    let steps = json!({ "tools": [
        { "name": "item" },
        { "name": "o", "forEach": "{{item_2}}", "parameters": { "x": "{{item}}" } },
    ] });
    let plan = compile(&parse_value(steps).unwrap(), plan_info(), &catalog).unwrap();
    assert_eq!(list_dependencies(&plan), ["item_2:", "o: item_2"]);
    let shared::template::Template::Object(fields) = &plan.steps()[1].template else { panic!() };
    let shared::template::Template::Whole(item) = &fields[0].1 else { panic!() };
    assert_eq!(item.target, shared::template::Target::Item);
}

#[test]
fn the_output_of_a_loop_is_a_list() {
    check_warnings(
        &json!([
            { "name": "list" },
            { "id": "each", "name": "list", "forEach": "{{list.items}}" },
            { "name": "flow.echo", "parameters": {
                "right": "{{each[0].total}} {{each.0.items[1]._id}} {{each}}",
                "wrong": "{{each.total}}",
                "inside": "{{each[0].totals}}",
                "quoted": "{{each[\"0\"]}}",
            } },
            { "id": "echo", "name": "flow.echo", "forEach": "{{list.items}}" },
            { "name": "flow.echo", "parameters": { "x": "{{echo.text}} {{echo[3].text}}" } },
        ]),
        &expect![[r#"
            warning[plan.path_not_in_output] tools[2].parameters.wrong: `{{each.total}}`: the output of `demo.list` has no `total` (it is the list of the items' outputs: take one of them, such as `[0]`, or loop over it with `forEach`)
            warning[plan.path_not_in_output] tools[2].parameters.inside: `{{each[0].totals}}`: the output of `demo.list` has no `totals` (did you mean `total`?)
            warning[plan.path_not_in_output] tools[2].parameters.quoted: `{{each["0"]}}`: the output of `demo.list` has no `0` (it is the list of the items' outputs: take one of them, such as `[0]`, or loop over it with `forEach`)
            warning[plan.path_not_in_output] tools[4].parameters.x: `{{echo.text}}`: the output of `flow.echo` has no `text` (it is the list of the items' outputs: take one of them, such as `[0]`, or loop over it with `forEach`)
        "#]],
    );
}

#[test]
fn a_loop_over_a_known_non_list_is_a_warning() {
    check_warnings(
        &json!([
            { "name": "list" },
            { "name": "name" },
            { "id": "a", "name": "flow.echo", "forEach": "{{list}}" },
            { "id": "b", "name": "flow.echo", "forEach": "{{list.total}}" },
            { "id": "c", "name": "flow.echo", "forEach": "{{name}}" },
            { "id": "d", "name": "flow.echo", "forEach": "{{list.itmes}}" },
            { "id": "e", "name": "flow.echo", "forEach": "{{a}}" },
            { "id": "f", "name": "flow.echo", "forEach": "{{list.items[0]}}" },
        ]),
        &expect![[r#"
            warning[plan.not_a_list] tools[2].forEach: `{{list}}` is not a list: the output of `demo.list` has something of type `object` there (did you mean its `items`?)
            warning[plan.not_a_list] tools[3].forEach: `{{list.total}}` is not a list: the output of `demo.list` has something of type `integer` there (`b` fails with `step.not_a_list` when it runs)
            warning[plan.not_a_list] tools[4].forEach: `{{name}}` is not a list: the output of `demo.name` has something of type `string` there (`c` fails with `step.not_a_list` when it runs)
            warning[plan.path_not_in_output] tools[5].forEach: `{{list.itmes}}`: the output of `demo.list` has no `itmes` (did you mean `items`?)
            warning[plan.not_a_list] tools[7].forEach: `{{list.items[0]}}` is not a list: the output of `demo.list` has something of type `object` there (`f` fails with `step.not_a_list` when it runs)
        "#]],
    );
}

#[test]
fn the_schema_of_a_list_describes_its_items() {
    check_warnings(
        &json!([
            { "name": "list" },
            { "id": "a", "name": "list", "forEach": "{{list.items}}", "parameters": {
                "right": "{{item._id}} {{item}}", "wrong": "{{item.id}}",
            }, "compensate": { "name": "flow.echo", "parameters": { "x": "{{item.ID}} {{a.total}} {{a.totel}}" } } },
            { "id": "b", "name": "flow.echo", "forEach": "{{a}}", "parameters": { "x": "{{item.total}} {{item.x}}" } },
            { "id": "c", "name": "flow.echo", "forEach": "{{input}}", "parameters": { "x": "{{item.total}}" } },
        ]),
        &expect![[r#"
            warning[plan.path_not_in_output] tools[1].parameters.wrong: `{{item.id}}`: the item has no `id` (did you mean `_id`?)
            warning[plan.path_not_in_output] tools[1].compensate.parameters.x: `{{item.ID}}`: the item has no `ID` (did you mean `_id`?)
            warning[plan.path_not_in_output] tools[1].compensate.parameters.x: `{{a.totel}}`: the output of `demo.list` has no `totel` (did you mean `total`?)
            warning[plan.path_not_in_output] tools[2].parameters.x: `{{item.x}}`: the item has no `x` (it declares `total`, `items`)
        "#]],
    );
}
