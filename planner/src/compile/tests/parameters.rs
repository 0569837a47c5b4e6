use super::*;

fn author_draft(change: &Value) -> Value {
    let mut parameters = json!({ "name": "A", "email": "a@b.c" });
    for (key, value) in change.as_object().unwrap() {
        parameters[key] = value.clone();
    }
    json!({ "tools": [
        { "id": "s", "name": "flow.noop" },
        { "id": "a", "name": "createAuthor", "parameters": parameters },
    ] })
}

fn find_codes(draft: Value) -> Vec<String> {
    compile_json(draft).map_or_else(|diagnostics| list_codes(&diagnostics), |_| Vec::new())
}

#[test]
fn literal_parameters_must_fit_the_schema() {
    for (change, expected) in [
        (json!({}), vec![]),
        (json!({ "age": 5, "tags": ["a"], "kind": "group" }), vec![]),
        (json!({ "name": 5 }), vec!["plan.invalid_parameters tools[1].parameters.name"]),
        (json!({ "age": -1 }), vec!["plan.invalid_parameters tools[1].parameters.age"]),
        (json!({ "tags": ["a", 5] }), vec!["plan.invalid_parameters tools[1].parameters.tags[1]"]),
        (json!({ "tags": ["a", "a"] }), vec!["plan.invalid_parameters tools[1].parameters.tags"]),
        (json!({ "kind": "dog" }), vec!["plan.invalid_parameters tools[1].parameters.kind"]),
        (json!({ "emial": "x" }), vec!["plan.invalid_parameters tools[1].parameters.emial"]),
        (json!({ "a b": 1 }), vec!["plan.invalid_parameters tools[1].parameters[\"a b\"]"]),
        (json!({ "address": {} }), vec!["plan.missing_parameter tools[1].parameters.address.city"]),
        (json!({ "address": 1 }), vec!["plan.invalid_parameters tools[1].parameters.address"]),
    ] {
        assert_eq!(find_codes(author_draft(&change)), expected, "{change}");
    }
    let nothing = json!({ "tools": [{ "name": "createAuthor" }] });
    let missing =
        ["email", "name"].map(|name| format!("plan.missing_parameter tools[0].parameters.{name}"));
    let mut absent = find_codes(nothing);
    absent.sort_unstable();
    assert_eq!(absent, missing);
}

#[test]
fn parameters_with_templates_are_not_checked_by_the_compiler() {
    for (change, expected) in [
        (
            json!({ "age": "{{s.x}}", "tags": "{{s.x}}", "kind": "{{s}}", "address": "{{s}}" }),
            vec![],
        ),
        (json!({ "tags": ["{{s.x}}", "{{s.x}}"], "email": "{{s}}{{s}}" }), vec![]),
        (json!({ "kind": "a {{s}}" }), vec![]),
        (json!({ "address": { "city": "{{s}}" } }), vec![]),
        // A template inside text is always text.
        (
            json!({ "age": "{{s.x}} years" }),
            vec!["plan.invalid_parameters tools[1].parameters.age"],
        ),
        // The values around a template are known, so they are checked.
        (
            json!({ "tags": { "x": "{{s}}" } }),
            vec!["plan.invalid_parameters tools[1].parameters.tags"],
        ),
        (
            json!({ "address": { "x": "{{s}}" } }),
            vec!["plan.missing_parameter tools[1].parameters.address.city"],
        ),
        (
            json!({ "age": "{{s}}", "emial": "{{s}}" }),
            vec!["plan.invalid_parameters tools[1].parameters.emial"],
        ),
        (
            json!({ "age": "{{s}}", "tags": ["{{s}}", 5] }),
            vec!["plan.invalid_parameters tools[1].parameters.tags[1]"],
        ),
        (
            json!({ "age": "{{s}}", "kind": "dog" }),
            vec!["plan.invalid_parameters tools[1].parameters.kind"],
        ),
    ] {
        assert_eq!(find_codes(author_draft(&change)), expected, "{change}");
    }
}

#[test]
fn a_violation_that_depends_on_a_template_is_not_reported() {
    let schema = json!({
        "type": "object",
        "properties": {
            "kind": { "type": "string" },
            "any": { "anyOf": [{ "type": "integer" }, { "required": ["n"], "properties": { "n": { "type": "integer" } } }] },
            "not": { "not": { "properties": { "n": { "type": "string" } } } },
            "has": { "contains": { "const": 1 } },
            "text": { "type": "string", "pattern": "^x$" },
        },
        "if": { "properties": { "kind": { "const": "long" } } },
        "then": { "required": ["more"] },
        "else": { "required": ["less"] },
    });
    let catalog = Catalog::new([make_tool("s", "t", schema), make_tool("s", "o", json!({}))]);
    let compiled = |parameters: &Value| {
        let steps =
            json!({ "tools": [{ "name": "o" }, { "name": "t", "parameters": parameters }] });
        compile(&parse_value(steps).unwrap(), plan_info(), &catalog)
    };
    for fine in [
        json!({ "kind": "{{o}}" }),
        json!({ "any": { "n": "{{o}}" }, "less": 1 }),
        json!({ "not": { "n": "{{o}}" }, "less": 1 }),
        json!({ "has": ["{{o}}"], "less": 1 }),
        json!({ "text": "{{o}}{{o}}", "less": 1 }),
        json!({ "text": "{{{{x", "less": 1 }),
    ] {
        assert!(compiled(&fine).is_ok(), "{fine}");
    }
    for wrong in [
        json!({}),
        json!({ "kind": "long", "less": 1 }),
        json!({ "any": { "n": "x" }, "less": 1, "o": "{{o}}" }),
        json!({ "has": [2], "less": 1, "o": "{{o}}" }),
        json!({ "text": "y", "less": 1, "o": "{{o}}" }),
    ] {
        assert!(compiled(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn many_templates_do_not_hide_a_later_violation() {
    let schema =
        json!({ "items": {}, "properties": { "list": { "items": { "type": "integer" } } } });
    let catalog = Catalog::new([make_tool("s", "t", schema), make_tool("s", "o", json!({}))]);
    let mut list = vec![json!("{{o}}"); 50];
    list.push(json!("wrong"));
    let steps =
        json!({ "tools": [{ "name": "o" }, { "name": "t", "parameters": { "list": list } }] });
    let found = compile(&parse_value(steps).unwrap(), plan_info(), &catalog).expect_err("wrong");
    assert_eq!(list_codes(&found), ["plan.invalid_parameters tools[1].parameters.list[50]"]);
}

#[test]
fn an_invalid_tool_schema_rejects_no_parameters() {
    compile_valid(json!({ "tools": [{ "name": "wrong", "parameters": { "a": 1 } }] }));
}

#[test]
fn parameters_must_be_an_object() {
    for parameters in [json!(5), json!([1]), json!("text"), json!("[1]"), json!(true)] {
        let found = compile_invalid(
            json!({ "tools": [{ "name": "flow.echo", "parameters": parameters }] }),
        );
        assert_eq!(list_codes(&found), ["plan.invalid_parameters tools[0].parameters"]);
    }
    for parameters in [json!(null), json!({})] {
        let plan =
            compile_valid(json!({ "tools": [{ "name": "flow.echo", "parameters": parameters }] }));
        assert_eq!(*plan.steps()[0].parameters, json!({}));
    }
    let text = r#"{"a": "{{flow.noop}}", "big": 18446744073709551616}"#;
    let plan = compile_valid(json!({ "tools": [
        { "name": "flow.echo", "parameters": text }, { "name": "flow.noop" },
    ] }));
    assert_eq!(list_dependencies(&plan), ["flow.noop:", "flow.echo: flow.noop"]);
    let expected = [
        "plan.parameters_as_text tools[0].parameters",
        "plan.number_rounded tools[0].parameters.big",
    ];
    assert_eq!(list_codes(plan.diagnostics()), expected);
}

#[test]
fn too_deeply_nested_parameters_are_reported() {
    let nest_objects =
        |levels: usize| (1..levels).fold(json!({ "x": 1 }), |inner, _| json!({ "x": inner }));
    let draft =
        |parameters: Value| json!({ "tools": [{ "name": "flow.echo", "parameters": parameters }] });
    compile_valid(draft(nest_objects(96)));
    let expected = ["plan.too_large tools[0].parameters"];
    assert_eq!(list_codes(&compile_invalid(draft(nest_objects(97)))), expected);
    let as_text = list_codes(&compile_invalid(draft(json!(nest_objects(97).to_string()))));
    assert_eq!(as_text, [expected[0], "plan.parameters_as_text tools[0].parameters"]);
    assert_eq!(list_codes(&compile_invalid(draft(nest_objects(300)))), expected);
}

#[test]
fn a_path_that_an_output_cannot_have_is_a_warning() {
    for (template, warns) in [
        ("{{a._id}}", false),
        ("{{a}}", false),
        ("{{a.tags.0}}", false),
        ("{{a.tags[0]}}", false),
        ("{{l.anything}}", false),
        ("{{a.id}}", true),
        ("{{a._id.deep}}", true),
        ("{{a.tags.length}}", true),
        ("{{a.tags[\"0\"]}}", true),
    ] {
        let plan = compile_valid(json!({ "tools": [
            { "id": "a", "name": "createAuthor", "parameters": { "name": "A", "email": "a@b.c" } },
            { "id": "l", "name": "listAuthors" },
            { "id": "b", "name": "flow.echo", "parameters": { "x": template } },
        ] }));
        let expected: &[&str] =
            if warns { &["plan.path_not_in_output tools[2].parameters.x"] } else { &[] };
        assert_eq!(list_codes(plan.diagnostics()), expected, "{template}");
    }
}

#[test]
fn a_path_that_an_output_does_not_declare_is_a_warning() {
    let fields = json!({ "_id": { "type": "string" }, "name": { "type": "string" } });
    let open = |more: Value| {
        let mut schema = json!({ "type": "object", "properties": fields });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let undeclared = |help: &str| {
        vec![format!(
            "warning[plan.path_not_declared] tools[1].parameters.x: `{{{{a.PATH}}}}`: the output of \
             `demo.made` declares no `PATH` ({help})"
        )]
    };
    let listed = || undeclared("it declares `_id`, `name`");
    let near = || undeclared("did you mean `name`?");
    for (schema, path, expected) in [
        (open(json!({})), "name", vec![]),
        (open(json!({})), "nme", near()),
        (open(json!({})), "age", listed()),
        (open(json!({ "title": "Made", "required": ["_id"] })), "age", listed()),
        // A schema that allows more fields is trusted, unless the name looks misspelt.
        (open(json!({ "additionalProperties": true })), "age", vec![]),
        (open(json!({ "additionalProperties": { "type": "string" } })), "nme", near()),
        (open(json!({ "patternProperties": { "^x": {} } })), "age", vec![]),
        // These schemas may allow other fields, so no field is reported.
        (open(json!({ "allOf": [{ "properties": { "nme": {} } }] })), "nme", vec![]),
        (open(json!({ "$ref": "#/x" })), "nme", vec![]),
        (json!({ "type": "object" }), "nme", vec![]),
        (json!({ "type": ["object", "null"], "properties": fields }), "nme", vec![]),
    ] {
        let made = with_change(&make_tool("demo", "made", json!({})), |tool| {
            tool.output_schema = Some(schema.clone());
        });
        let echo = make_tool("flow", "flow.echo", json!({ "type": "object" }));
        let draft = parse_value(json!({ "tools": [
            { "id": "a", "name": "made" },
            { "id": "b", "name": "flow.echo", "parameters": { "x": format!("{{{{a.{path}}}}}") } },
        ] }));
        let plan = compile(&draft.unwrap(), plan_info(), &Catalog::new([made, echo])).unwrap();
        let expected: Vec<_> = expected.iter().map(|line| line.replace("PATH", path)).collect();
        let found = format_diagnostics(plan.diagnostics());
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{schema} {path}");
    }
}
