use expect_test::{Expect, expect};
use shared::{id::PlanId, limits, plan::StepKind};

use super::super::{compile_all, compile_with};
use super::*;
use crate::{
    draft::{Draft, DraftStep, SubDraft},
    sub_plans::{self, SubPlan, SubPlans},
};

fn id(n: usize) -> PlanId {
    format!("plan_7_{n:0>9}").parse().unwrap()
}

fn saved_sub_plans() -> SubPlans {
    let inputs = json!({
        "type": "object",
        "properties": { "name": { "type": "string" } },
        "required": ["name"],
        "additionalProperties": false,
    });
    let plan = |n, depth, inputs| SubPlan { id: id(n), depth, inputs };
    SubPlans::new([
        ("welcome".to_owned(), plan(1, 0, Some(Arc::new(inputs)))),
        (id(2).to_string(), plan(2, 3, None)),
        ("deep".to_owned(), plan(3, limits::ANCESTORS, None)),
        ("almost".to_owned(), plan(4, limits::ANCESTORS - 1, None)),
        ("farewell".to_owned(), plan(5, 0, None)),
    ])
}

fn compile_with_inline_plans(tools: &Value) -> Result<Vec<Plan>, Vec<Diagnostic>> {
    let draft = parse_value(json!({ "tools": tools }))?;
    let mut drawn = 100;
    let compiled =
        compile_all(&draft, plan_info(), &make_catalog(), &saved_sub_plans(), &mut |inner| {
            drawn += 1;
            let query = inner.query.clone().unwrap_or_default();
            PlanInfo { id: id(drawn), query, ..plan_info() }
        })?;
    Ok(compiled.inner.into_iter().chain([compiled.plan]).collect())
}

fn check(tools: &Value, expected: &Expect) {
    let found = compile_with_inline_plans(tools).map_or_else(
        |diagnostics| diagnostics,
        |plans| plans.last().unwrap().diagnostics().to_vec(),
    );
    expected.assert_eq(&format_diagnostics(&found));
}

#[test]
fn a_step_may_execute_a_plan() {
    let tools = json!([
        { "plan": "welcome", "parameters": { "name": "{{flow.echo.x}}" } },
        { "plan": id(2).to_string(), "forEach": "{{welcome.all}}", "requiresApproval": true },
        { "plan": "welcome", "parameters": { "name": "B" }, "compensate": { "name": "flow.noop" } },
        { "plan": { "query": "inside", "tools": [{ "name": "flow.echo", "parameters": { "x": "{{input.x}}" } }] } },
        { "name": "flow.echo" },
    ]);
    let plans = compile_with_inline_plans(&tools)
        .unwrap_or_else(|diagnostics| panic!("{}", format_diagnostics(&diagnostics)));
    let [inner, plan] = plans.as_slice() else { panic!("{} plans", plans.len()) };
    assert_eq!((inner.info().query.as_str(), inner.id()), ("inside", id(101)));
    let long = id(2).to_string();
    assert_eq!(
        list_dependencies(plan),
        ["welcome_2:", "plan:", "flow.echo:", "welcome: flow.echo", &format!("{long}: welcome")]
    );
    let kinds: Vec<_> = plan.steps().iter().map(|step| step.kind).collect();
    let [one, two, inline] = [1, 2, 101].map(|n| StepKind::Plan(id(n)));
    assert_eq!(kinds, [one, inline, StepKind::Call, one, two]);
    let names: Vec<_> = plan.steps().iter().map(|step| step.tool.to_string()).collect();
    assert_eq!(names, ["welcome", &id(101).to_string(), "flow.echo", "welcome", &long]);
    assert_eq!(plan.steps()[0].policy.effect, Effect::Once);
    let tools: Vec<_> = plan.called_tools().map(ToString::to_string).collect();
    assert_eq!(tools, ["flow.noop", "flow.echo"]);
}

#[test]
fn an_unknown_sub_plan_is_reported() {
    check(
        &json!([
            { "plan": "welcom" },
            { "plan": "farewel" },
            { "plan": "plan_7_nothere00" },
            { "plan": "" },
            { "name": "flow.noop", "plan": "welcome" },
            { "plan": "welcome", "parameters": { "nam": 5 }, "cacheTtlMs": 5 },
            { "plan": "deep" },
            { "plan": "almost" },
        ]),
        &expect![[r#"
            error[plan.unknown_plan] tools[0].plan: no plan is called `welcom` (did you mean `welcome`?)
            error[plan.unknown_plan] tools[1].plan: no plan is called `farewel` (did you mean `farewell`?)
            error[plan.unknown_plan] tools[2].plan: no plan is called `plan_7_nothere00` (write the id of a plan, the name of a saved plan, or a plan: `{"tools": […]}`)
            error[plan.missing_tool] tools[3].plan: the plan's name is empty (write the plan's name)
            error[plan.two_tools] tools[4]: the step has both `name` and `plan` (keep exactly one of them)
            error[plan.invalid_cache] tools[5].cacheTtlMs: `welcome` is a plan, and with a cached output Faber would not execute the plan (remove `cacheTtlMs`; only tools with the effect READ can be cached)
            error[plan.invalid_parameters] tools[5].parameters.nam: `welcome` has no parameter `nam` (did you mean `name`?)
            error[plan.missing_parameter] tools[5].parameters.name: `welcome` needs `name` (of type string)
            error[plan.too_deep] tools[6].plan: more than 16 plans are nested (nest fewer plans, or copy the steps of one into another)
        "#]],
    );
    let found = compile_invalid(json!({ "tools": [{ "plan": ["a"] }] }));
    assert_eq!(list_codes(&found), ["plan.invalid_json tools[0].plan"]);
}

#[test]
fn an_error_in_an_inline_plan_has_its_full_path() {
    check(
        &json!([
            { "name": "flow.noop" },
            { "plan": { "tools": [{ "name": "flow.noop" }, { "plan": { "tools": [{ "name": "createAutor" }] } }] } },
            { "plan": { "tools": [{ "name": "flow.noop", "when": "a.b" }] }, "timeoutMs": 0 },
            { "plan": { "tools": [] } },
        ]),
        &expect![[r#"
            error[plan.unknown_tool] tools[1].plan.tools[1].plan.tools[0].name: no tool is called `createAutor` (did you mean `createAuthor`?)
            error[plan.invalid_condition] tools[2].plan.tools[0].when: no step is called `a` (the plan has `flow.noop`)
            error[plan.invalid_timeout] tools[2].timeoutMs: `0` is out of range (choose a number from 1 to 31536000000)
            error[plan.empty] tools[3].plan.tools: the plan has no steps (write at least one step: `{"name": "a tool"}`)
        "#]],
    );
    let text = json!([{ "plan": { "tools": [{ "nam": "x" }, { "plan": { "steps": [] } }] } }, { "id": 5 }]);
    check(
        &text,
        &expect![[r#"
        error[plan.unknown_field] tools[0].plan.tools[0].nam: there is no field `nam` (did you mean `name`?)
        error[plan.unknown_field] tools[0].plan.tools[1].plan.steps: there is no field `steps` (known are `query`, `requestId`, `tools`, `executionOrder`)
        error[plan.invalid_json] tools[0].plan.tools[1].plan.tools: a plan must have a list of `tools`
        error[plan.invalid_json] tools[1].id: this must be text, not `5`
    "#]],
    );
    let refused =
        compile_json(json!({ "tools": [{ "plan": { "tools": [{ "name": "flow.noop" }] } }] }));
    expect![[r#"
        error[plan.unknown_plan] tools[0].plan: a plan inside a plan cannot be compiled here (create that plan first, and write its id)
    "#]].assert_eq(&format_diagnostics(&refused.unwrap_err()));
}

#[test]
fn too_deeply_nested_inline_plans_are_reported() {
    let draft_with_inline_drafts = |levels: u32| {
        let innermost = json!({ "tools": [{ "name": "flow.noop" }] });
        (0..levels).fold(innermost, |inner, _| json!({ "tools": [{ "plan": inner }] }))
    };
    let tools = |levels| draft_with_inline_drafts(levels)["tools"].clone();
    assert_eq!(compile_with_inline_plans(&tools(limits::ANCESTORS)).unwrap().len(), 17);
    let found = compile_with_inline_plans(&tools(limits::ANCESTORS + 1)).unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, "plan.too_deep");
    // The limit also applies to drafts that were not parsed.
    let mut draft = Draft::default();
    for _ in 0..1_000 {
        let step =
            DraftStep { plan: Some(SubDraft::Inline(Box::new(draft))), ..DraftStep::default() };
        draft = Draft { tools: vec![step], ..Draft::default() };
    }
    let found =
        compile_all(&draft, plan_info(), &make_catalog(), &saved_sub_plans(), &mut |_| plan_info())
            .unwrap_err();
    assert_eq!(found[0].code, "plan.too_deep");
    assert!(sub_plans::list_sub_plan_names(&draft).is_empty());
    // The levels of an inline plan and of the plan that it names add up.
    let step = |plan: &str| json!([{ "plan": { "tools": [{ "plan": plan }] } }]);
    assert_eq!(
        list_codes(&compile_with_inline_plans(&step("almost")).unwrap_err()),
        ["plan.too_deep tools[0].plan"]
    );
    assert!(compile_with_inline_plans(&step(&id(2).to_string())).is_ok());
}

#[test]
fn the_named_sub_plans_of_a_draft_are_listed() {
    let draft = parse_value(json!({ "tools": [
        { "plan": "b" }, { "plan": { "tools": [{ "plan": "a" }, { "plan": "b" }] } }, { "name": "c" },
    ] }));
    assert_eq!(sub_plans::list_sub_plan_names(&draft.unwrap()), ["a", "b"]);
}

#[test]
fn a_recompiled_plan_keeps_its_sub_plans() {
    let tools = json!([{ "plan": "welcome", "parameters": { "name": "x" } }, { "plan": { "tools": [{ "name": "flow.noop" }] } }]);
    let plan = compile_with_inline_plans(&tools).unwrap().pop().unwrap();
    let draft = Draft::from_plan(&plan);
    let again =
        compile_with(&draft, plan_info(), &make_catalog(), &SubPlans::of_plan(&plan)).unwrap();
    assert_eq!(again.to_unchecked().steps, plan.to_unchecked().steps);
    assert_eq!(again.to_unchecked().steps[0].inputs.as_ref().unwrap()["required"], json!(["name"]));
}

#[test]
fn an_input_with_a_default_may_be_left_out() {
    let inputs = json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "default": 1 }, "m": { "type": "integer" } },
        "required": ["n", "m"],
    });
    let plan = SubPlan { id: id(1), depth: 0, inputs: Some(Arc::new(inputs)) };
    let plans = SubPlans::new([("p".to_owned(), plan)]);
    let draft = parse_value(json!({ "tools": [{ "plan": "p" }] })).unwrap();
    let found = compile_with(&draft, plan_info(), &make_catalog(), &plans).unwrap_err();
    assert_eq!(list_codes(&found), ["plan.missing_parameter tools[0].parameters.m"]);
}
