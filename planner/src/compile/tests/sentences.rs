use super::*;

#[test]
fn a_step_without_an_id_takes_the_name_of_its_tool() {
    let plan = compile_valid(json!({ "tools": [
        { "name": "createBlog" },
        { "name": "createBlog" },
        { "name": "createBlog", "id": "createBlog" },
        { "name": "createBlog", "id": "createBlog_3" },
        { "toolName": "demo.createBlog" },
        { "name": "createBlog" },
    ] }));
    let expected = [
        "createBlog_2",
        "createBlog_4",
        "createBlog",
        "createBlog_3",
        "demo.createBlog",
        "createBlog_5",
    ];
    assert_eq!(list_ids(&plan), expected);
}

#[test]
fn characters_that_ids_cannot_have_are_replaced() {
    let long = "x".repeat(200);
    let odd = Catalog::new([
        make_tool("s", "send mail/now!", json!({})),
        make_tool("s", "item", json!({})),
        make_tool("s", &long, json!({})),
    ]);
    let names = ["send mail/now!", "item", "item", &long, &long, "send mail/now!"];
    let steps: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let draft = parse_value(json!({ "tools": steps })).unwrap();
    let plan = compile(&draft, plan_info(), &odd).unwrap();
    let (full, stem) = ("x".repeat(128), format!("{}_2", "x".repeat(121)));
    let expected = ["send_mail_now_", "item_2", "item_3", &full, &stem, "send_mail_now__2"];
    assert_eq!(list_ids(&plan), expected);
}

#[test]
fn an_invalid_step_id_is_reported() {
    for id in ["", "a b", "item", "index", "vars", "input", "a/b", &"x".repeat(129)] {
        let found = compile_invalid(json!({ "tools": [{ "id": id, "name": "flow.noop" }] }));
        assert_eq!(list_codes(&found), ["plan.invalid_step_id tools[0].id"], "{id}");
    }
    for id in ["flow.echo", "größe", "a-b_c.1", &"x".repeat(128)] {
        let plan = compile_valid(json!({ "tools": [{ "id": id, "name": "flow.noop" }] }));
        assert_eq!(list_ids(&plan), [id]);
    }
    let found =
        compile_invalid(draft_of_steps(&[("a", &[]), ("a", &[]), ("b", &["a"]), ("a", &[])]));
    assert_eq!(
        list_codes(&found),
        ["plan.duplicate_step tools[1].id", "plan.duplicate_step tools[3].id"]
    );
}

#[test]
fn a_step_must_name_exactly_one_tool() {
    for (step, expected) in [
        (json!({}), "plan.missing_tool tools[0]"),
        (json!({ "name": null }), "plan.missing_tool tools[0]"),
        (json!({ "toolName": "" }), "plan.missing_tool tools[0].toolName"),
        (json!({ "name": "flow.noop", "toolName": "flow.noop" }), "plan.two_tools tools[0]"),
        (json!({ "name": "createAutor" }), "plan.unknown_tool tools[0].name"),
        (json!({ "toolName": "x.y" }), "plan.unknown_tool tools[0].toolName"),
        (json!({ "name": "bad\u{7}" }), "plan.unknown_tool tools[0].name"),
        (json!({ "name": "glob" }), "plan.inactive_tool tools[0].name"),
        (json!({ "name": "files.glob" }), "plan.inactive_tool tools[0].name"),
        (json!({ "name": "weather" }), "plan.not_callable tools[0].name"),
    ] {
        assert_eq!(list_codes(&compile_invalid(json!({ "tools": [step] }))), [expected]);
    }
}

#[test]
fn a_plain_name_means_the_earliest_set_and_plans_store_the_qualified_one() {
    let names = ["createBlog", "other.createBlog", "demo.createBlog", "flow.echo", "listAuthors"];
    let steps: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let plan = compile_valid(json!({ "tools": steps }));
    let tools: Vec<_> = plan.steps().iter().map(|step| step.tool.as_str()).collect();
    let expected =
        ["demo.createBlog", "other.createBlog", "demo.createBlog", "flow.echo", "demo.listAuthors"];
    assert_eq!(tools, expected);
    assert_eq!(plan.steps()[4].policy.effect, Effect::Read);
    assert_eq!(plan.steps()[0].policy.effect, Effect::Once);
}

#[test]
fn depends_on_is_null_a_name_or_a_list() {
    for (on, expected) in [
        (json!(null), "z:"),
        (json!([]), "z:"),
        (json!("a"), "z: a"),
        (json!(["a", "a", "listAuthors"]), "z: a b"),
        (json!("demo.listAuthors"), "z: b"),
    ] {
        let plan = compile_valid(json!({ "tools": [
            { "id": "a", "name": "createBlog" },
            { "id": "b", "name": "listAuthors" },
            { "id": "z", "name": "createBlog", "dependsOn": on },
        ] }));
        assert_eq!(list_dependencies(&plan)[2], expected, "{on}");
    }
    for (on, expected) in [
        (json!("nobody"), "plan.unknown_dependency tools[1].dependsOn"),
        (json!("createBlog"), "plan.unknown_dependency tools[1].dependsOn"),
        (json!(["a", "nobody"]), "plan.unknown_dependency tools[1].dependsOn[1]"),
        (json!(5), "plan.invalid_dependency tools[1].dependsOn"),
        (json!({ "a": 1 }), "plan.invalid_dependency tools[1].dependsOn"),
        (json!([null]), "plan.invalid_dependency tools[1].dependsOn[0]"),
        (json!([["a"]]), "plan.invalid_dependency tools[1].dependsOn[0]"),
    ] {
        let found = compile_invalid(json!({ "tools": [
            { "id": "a", "name": "createBlog" },
            { "id": "z", "name": "createBlog", "dependsOn": on },
        ] }));
        assert_eq!(list_codes(&found), [expected]);
    }
}

#[test]
fn a_template_makes_a_dependency_whether_or_not_depends_on_says_so() {
    let plan = compile_valid(json!({ "tools": [
        { "id": "z", "name": "createBlog", "parameters": {
            "deep": [{ "x": "by {{ createAuthor._id }} and {{flow.echo[\"any key\"].0}}" }],
            "{{nobody}}": "{{{{nobody}} {{unclosed",
        } },
        { "name": "createAuthor", "parameters": { "name": "A", "email": "a@b.c" } },
        { "name": "flow.echo", "parameters": { "v": "{{demo.createAuthor.tags[0]}}" } },
    ] }));
    assert_eq!(
        list_dependencies(&plan),
        ["createAuthor:", "flow.echo: createAuthor", "z: createAuthor flow.echo"]
    );
}

#[test]
fn a_template_means_the_longest_matching_step_id() {
    let plan = compile_valid(json!({ "tools": [
        { "id": "flow", "name": "flow.noop" },
        { "id": "flow.echo", "name": "flow.noop" },
        { "id": "a", "name": "createBlog", "parameters": { "x": "{{flow.echo.v}}" } },
        { "id": "b", "name": "createBlog", "parameters": { "x": "{{flow.ech.v}}" } },
        { "id": "c", "name": "createBlog", "parameters": { "x": "{{flow.echo}}{{flow[0]}}" } },
    ] }));
    let found = &list_dependencies(&plan)[2..];
    assert_eq!(found, ["a: flow.echo", "b: flow", "c: flow flow.echo"]);
}

#[test]
fn a_template_without_a_meaning_is_an_error() {
    for (template, code) in [
        ("{{nobody._id}}", "plan.unknown_step_in_template"),
        ("{{createBlog._id}}", "plan.unknown_step_in_template"),
        ("{{item}}", "plan.unknown_step_in_template"),
        ("{{vars}}", "plan.unknown_step_in_template"),
        ("{{}}", "plan.invalid_template"),
        ("x {{a + b}} y", "plan.invalid_template"),
        ("{{a[x]}}", "plan.invalid_template"),
    ] {
        let found = compile_invalid(json!({ "tools": [
            { "id": "a", "name": "createBlog" },
            { "id": "b", "name": "createBlog", "parameters": { "tags": [1, 2, { "any key": template }] } },
        ] }));
        assert_eq!(
            list_codes(&found),
            [format!("{code} tools[1].parameters.tags[2][\"any key\"]")]
        );
    }
}

#[test]
fn a_variable_depends_on_every_step_that_maps_it() {
    let plan = compile_valid(json!({ "tools": [
        { "id": "r", "name": "flow.echo", "parameters": { "x": "{{vars.who.name}} {{vars[\"x.y\"]}}" } },
        { "id": "a", "name": "flow.echo", "outputMapping": { "_id": "who", "[0][\"any key\"]": "x.y" } },
        { "id": "b", "name": "flow.echo", "outputMapping": { ".list.0": "who", "": "all" } },
    ] }));
    assert_eq!(list_dependencies(&plan), ["a:", "b:", "r: a b"]);
    let found = compile_invalid(json!({ "tools": [
        { "name": "flow.noop", "outputMapping": { "_id": "author" } },
        { "name": "flow.echo", "parameters": { "x": ["{{vars.autor}}"] } },
    ] }));
    assert_eq!(list_codes(&found), ["plan.unknown_variable tools[1].parameters.x[0]"]);
    assert_eq!(found[0].help.as_deref(), Some("did you mean `author`?"));
}

#[test]
fn an_output_mapping_maps_paths_to_variables() {
    for (mapping, place) in [
        (json!({ "a..b": "x" }), "[\"a..b\"]"),
        (json!({ "a b": "x" }), "[\"a b\"]"),
        (json!({ "a": "" }), ".a"),
        (json!({ "a": "a b" }), ".a"),
        (json!({ "a": 5 }), ".a"),
        (json!({ "a": null }), ".a"),
    ] {
        let found = compile_invalid(
            json!({ "tools": [{ "name": "flow.noop", "outputMapping": mapping }] }),
        );
        assert_eq!(
            list_codes(&found),
            [format!("plan.invalid_mapping tools[0].outputMapping{place}")]
        );
    }
    let plan = compile_valid(
        json!({ "tools": [{ "name": "flow.noop", "outputMapping": { "a.0": "x" } }] }),
    );
    assert_eq!(plan.to_unchecked().steps[0].output_mapping, [("a.0".to_owned(), "x".to_owned())]);
}

#[test]
fn policy_values_have_ranges() {
    for (policy, expected) in [
        (json!({ "timeoutMs": 0 }), "plan.invalid_timeout tools[0].timeoutMs"),
        (json!({ "timeoutMs": -1 }), "plan.invalid_timeout tools[0].timeoutMs"),
        (json!({ "timeoutMs": i64::MAX }), "plan.invalid_timeout tools[0].timeoutMs"),
        (json!({ "retry": { "maxAttempts": 0 } }), "plan.invalid_retry tools[0].retry.maxAttempts"),
        (
            json!({ "retry": { "maxAttempts": 1_001 } }),
            "plan.invalid_retry tools[0].retry.maxAttempts",
        ),
        (json!({ "retry": { "backoffMs": -1 } }), "plan.invalid_retry tools[0].retry.backoffMs"),
        (
            json!({ "retry": { "maxBackoffMs": -1 } }),
            "plan.invalid_retry tools[0].retry.maxBackoffMs",
        ),
        (
            json!({ "retry": { "multiplier": -0.5 } }),
            "plan.invalid_retry tools[0].retry.multiplier",
        ),
        (json!({ "onError": "Fail" }), "plan.invalid_on_error tools[0].onError"),
    ] {
        let mut step = policy;
        step["name"] = json!("flow.noop");
        assert_eq!(list_codes(&compile_invalid(json!({ "tools": [step] }))), [expected]);
    }
    let plan = compile_valid(json!({ "tools": [
        { "id": "a", "name": "flow.noop" },
        { "id": "b", "name": "flow.noop", "timeoutMs": 5, "onError": "wait", "requiresApproval": true,
          "retry": { "maxAttempts": 3, "backoffMs": 0, "multiplier": 1.5, "maxBackoffMs": 9, "jitter": false } },
    ] }));
    let policies: Vec<_> =
        plan.steps().iter().map(|step| serde_json::to_value(&step.policy).unwrap()).collect();
    assert_eq!(
        policies,
        [
            json!({ "effect": "once", "timeoutMs": 300_000, "onError": "fail", "requiresApproval": false,
            "retry": { "maxAttempts": 1, "backoffMs": 100, "multiplier": 2.0, "maxBackoffMs": 30_000, "jitter": true } }),
            json!({ "effect": "once", "timeoutMs": 5, "onError": "wait", "requiresApproval": true,
            "retry": { "maxAttempts": 3, "backoffMs": 0, "multiplier": 1.5, "maxBackoffMs": 9, "jitter": false } }),
        ]
    );
}

#[test]
fn the_execution_order_prefers_the_step_written_first() {
    let plan = compile_valid(draft_of_steps(&[
        ("d", &["c"]),
        ("b", &[]),
        ("c", &["a"]),
        ("a", &[]),
        ("e", &["b"]),
    ]));
    assert_eq!(list_ids(&plan), ["b", "a", "c", "d", "e"]);
    let layers: Vec<Vec<_>> = plan
        .layers()
        .iter()
        .map(|layer| layer.iter().map(|number| plan.step(*number).id.to_string()).collect())
        .collect();
    assert_eq!(layers, [vec!["b", "a"], vec!["c", "e"], vec!["d"]]);
    let plan =
        compile_valid(draft_of_steps(&[("x", &["b"]), ("y", &["a"]), ("a", &[]), ("b", &[])]));
    assert_eq!(list_ids(&plan), ["a", "y", "b", "x"]);
    let layers: Vec<Vec<_>> = plan
        .layers()
        .iter()
        .map(|layer| layer.iter().map(|number| plan.step(*number).id.to_string()).collect())
        .collect();
    assert_eq!(layers, [vec!["a", "b"], vec!["x", "y"]]);
}

#[test]
fn an_ambiguous_tool_is_planned_by_its_qualified_name() {
    let tools =
        [make_tool("flow", "flow.noop", json!({})), make_tool("local", "flow.x", json!({}))];
    let catalog = Catalog::new(tools);
    let draft = |name: &str| parse_value(json!({ "tools": [{ "name": name }] })).unwrap();
    let found = compile(&draft("flow.x"), plan_info(), &catalog).unwrap_err();
    let help = found[0].help.as_deref().unwrap_or_default();
    assert!(help.starts_with("did you mean `local.flow.x`?"), "{help}");
    assert!(compile(&draft("local.flow.x"), plan_info(), &catalog).is_ok());
}

#[test]
fn a_given_execution_order_is_only_checked() {
    for (given, differs) in [
        (json!(null), false),
        (json!(["a", "createAuthor", "c"]), false),
        (json!(["a", "demo.createAuthor", "c"]), false),
        (json!(["a", "c", "b"]), true),
        (json!(["a", "b", "nobody"]), true),
        (json!(["a", "b"]), true),
        (json!(["a", "b", "c", "c"]), true),
        (json!([]), true),
    ] {
        let plan = compile_valid(json!({
            "tools": [
                { "id": "a", "name": "flow.noop" },
                { "id": "b", "name": "createAuthor", "parameters": { "name": "A", "email": "a@b.c" } },
                { "id": "c", "name": "createBlog", "dependsOn": "b" },
            ],
            "executionOrder": given,
        }));
        assert_eq!(list_ids(&plan), ["a", "b", "c"]);
        let expected: &[&str] = if differs { &["plan.order_differs executionOrder"] } else { &[] };
        assert_eq!(list_codes(plan.diagnostics()), expected, "{given}");
        assert!(plan.diagnostics().iter().all(|diagnostic| !diagnostic.is_error()));
    }
}

#[test]
fn a_plan_needs_at_least_one_step_and_has_a_limit() {
    assert_eq!(list_codes(&compile_invalid(json!({ "tools": [] }))), ["plan.empty tools"]);
    let step = json!({ "name": "flow.noop" });
    let mut draft = parse_value(json!({ "tools": [step] })).unwrap();
    draft.tools = vec![draft.tools[0].clone(); shared::limits::PLAN_STEPS + 1];
    let found = compile(&draft, plan_info(), &make_catalog()).expect_err("too many");
    assert_eq!(list_codes(&found), ["plan.too_large tools"]);
}

#[test]
fn too_many_dependencies_by_variables_are_reported() {
    let mut steps = vec![json!({ "name": "flow.noop", "outputMapping": { "": "x" } }); 5_000];
    steps.extend(vec![json!({ "name": "flow.echo", "parameters": { "x": "{{vars.x}}" } }); 5_000]);
    assert_eq!(list_codes(&compile_invalid(json!({ "tools": steps }))), ["plan.too_large tools"]);
}

#[test]
fn errors_beyond_the_limit_are_counted() {
    let steps = vec![json!({ "name": "nothing" }); 1_000];
    let found = compile_invalid(json!({ "tools": steps }));
    assert_eq!(found.len(), 101);
    assert_eq!(found[100].message, "900 more errors are not shown");
    assert_eq!(found[99].path, "tools[99].name");
}

#[test]
fn one_error_does_not_hide_others() {
    let found = compile_invalid(json!({
        "tools": [
            { "id": "a", "name": "createAutor", "parameters": { "x": "{{b._id}} {{nobody}}" } },
            { "id": "b", "name": "createAuthor", "dependsOn": ["a", "createAutor"], "parameters": { "name": 5 } },
            { "id": "c d", "name": "flow.echo", "parameters": { "x": "{{vars.x}} {{a+b}}", "y": "{{vars.y}}" } },
        ],
        "executionOrder": ["a"],
    }));
    let expected = [
        "plan.unknown_tool tools[0].name",
        "plan.unknown_step_in_template tools[0].parameters.x",
        "plan.cycle tools[0].parameters.x",
        "plan.invalid_parameters tools[1].parameters.name",
        "plan.missing_parameter tools[1].parameters.email",
        "plan.invalid_step_id tools[2].id",
        "plan.invalid_template tools[2].parameters.x",
        "plan.unknown_variable tools[2].parameters.x",
        "plan.unknown_variable tools[2].parameters.y",
        "plan.order_differs executionOrder",
    ];
    let mut found = list_codes(&found);
    found[3..5].sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_order_and_numbers_of_parameters_are_kept() {
    let text = r#"{"tools":[{"name":"flow.echo","parameters":{"z":9007199254740993,"a":18446744073709551615,"m":0.1,"b":-9223372036854775808}}]}"#;
    let plan = compile(&super::super::parse(text).unwrap(), plan_info(), &make_catalog()).unwrap();
    let expected =
        r#"{"z":9007199254740993,"a":18446744073709551615,"m":0.1,"b":-9223372036854775808}"#;
    assert_eq!(plan.steps()[0].parameters.to_string(), expected);
    assert!(plan.diagnostics().is_empty());
}
