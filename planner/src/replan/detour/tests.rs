use serde_json::json;

use super::*;
use crate::{catalog::CatalogTool, replan::StepResult};

fn tool(name: &str, effect: Effect, inputs: &[&str], outputs: &[&str]) -> CatalogTool {
    let fields = |names: &[&str]| {
        let fields = names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" })));
        Value::Object(fields.collect())
    };
    let definition = ToolDefinition {
        name: name.parse().unwrap(),
        set: "shop".parse().unwrap(),
        description: String::new(),
        input_schema: json!({ "type": "object", "properties": fields(inputs), "required": inputs }),
        output_schema: Some(json!({ "type": "object", "properties": fields(outputs) })),
        effect,
        examples: Vec::new(),
        is_callable: true,
    };
    CatalogTool { definition: Arc::new(definition), is_active: true }
}

fn tools() -> Vec<CatalogTool> {
    vec![
        tool("get_order", Effect::Read, &["order_id"], &["order_id", "customer_id"]),
        tool("get_email", Effect::Read, &["customer_id"], &["customer_email"]),
        tool("read_email", Effect::Read, &["customer_id"], &["customer_email"]),
        tool("send_mail", Effect::Once, &["customer_email"], &["mail_id"]),
        tool("make_email", Effect::Once, &["customer_id"], &["customer_email"]),
    ]
}

fn plan() -> Value {
    json!({ "query": "q", "tools": [
        { "id": "order", "name": "shop.get_order", "parameters": { "order_id": "A-1" } },
        { "id": "email", "name": "shop.get_email", "dependsOn": ["order"],
          "parameters": { "customer_id": "{{order.customer_id}}" } },
        { "id": "send", "name": "shop.send_mail", "dependsOn": ["email"],
          "parameters": { "customer_email": "{{email.customer_email}}" } },
    ] })
}

fn gone() -> ToolError {
    ToolError::failed("410 Gone").without_retry()
}

fn succeeded(step: &str, output: Value) -> StepResult {
    StepResult {
        step: step.to_owned(),
        state: "succeeded",
        output: Some(Arc::new(output)),
        error: None,
        items: Vec::new(),
        failure: None,
    }
}

fn failed(step: &str, effect: Effect, err: ToolError) -> StepResult {
    let state = if err.is_definite { "failed" } else { "unknown" };
    let error = Some(err.to_string());
    let failure = Some((effect, err));
    StepResult { state, output: None, error, failure, ..succeeded(step, Value::Null) }
}

fn skipped(step: &str) -> StepResult {
    StepResult { state: "skipped", output: None, ..succeeded(step, Value::Null) }
}

fn failure(tool: &str, before: &[&str]) -> Failure {
    let name = |name: &str| format!("shop.{name}").parse().unwrap();
    Failure { tool: name(tool), before: before.iter().map(|before| name(before)).collect() }
}

fn earlier(plan: Value, results: Vec<StepResult>, failures: Vec<Failure>) -> EarlierPlan {
    let draft = serde_json::from_value(plan).unwrap();
    EarlierPlan { draft, results, reason: String::new(), is_requested: false, failures }
}

fn without_email(err: ToolError) -> EarlierPlan {
    let order = succeeded("order", json!({ "order_id": "A-1", "customer_id": "C-3" }));
    let results = vec![order, failed("email", Effect::Read, err), skipped("send")];
    earlier(plan(), results, vec![failure("get_email", &["get_order"])])
}

fn show(detour: &Detour) -> String {
    let steps = detour.draft.tools.iter().map(|step| {
        let approval = if step.requires_approval == Some(true) { " needs approval" } else { "" };
        let name = step.name.as_deref().unwrap().trim_start_matches("shop.");
        format!("{name} {}{approval}", step.parameters.as_ref().unwrap())
    });
    steps.collect::<Vec<_>>().join("\n")
}

fn why_not(earlier: &EarlierPlan, tools: Vec<CatalogTool>) -> String {
    find_detour(earlier, &Catalog::new(tools)).unwrap_err()
}

#[test]
fn another_tool_takes_the_place_of_one_that_failed() {
    let found = find_detour(&without_email(gone()), &Catalog::new(tools())).unwrap();
    assert_eq!(
        show(&found),
        "get_order {\"order_id\":\"A-1\"}\n\
         read_email {\"customer_id\":\"{{order.customer_id}}\"}\n\
         send_mail {\"customer_email\":\"{{read_email.customer_email}}\"}"
    );
    assert!(found.warnings.is_empty());
    let send = &found.draft.tools[2];
    assert_eq!(send.depends_on, Some(json!(["read_email"])));
    assert_eq!(found.draft.tools[0].id.as_deref(), Some("order"), "the step is reused");
}

#[test]
fn a_value_with_two_sources_waits_for_a_person() {
    let mut all = tools();
    all.push(tool("load_email", Effect::Read, &["customer_id"], &["customer_email"]));
    let found = find_detour(&without_email(gone()), &Catalog::new(all)).unwrap();
    assert!(show(&found).ends_with("needs approval"), "{}", show(&found));
    assert_eq!(found.warnings[0].code, "plan.guessed_value");
    assert_eq!(found.warnings[0].path, "tools[2].parameters");
}

#[test]
fn an_answer_without_readers_is_found_by_another_tool() {
    let only = json!({ "tools": [plan()["tools"][0], plan()["tools"][1]] });
    let results = vec![
        succeeded("order", json!({ "customer_id": "C-3" })),
        failed("email", Effect::Read, gone()),
    ];
    let earlier = earlier(only, results, vec![failure("get_email", &["get_order"])]);
    let found = find_detour(&earlier, &Catalog::new(tools())).unwrap();
    assert!(show(&found).ends_with("read_email {\"customer_id\":\"{{order.customer_id}}\"}"));
}

#[test]
fn no_detour_follows_a_failure_that_may_pass() {
    let inactive = ToolError::new(ErrorCode::INACTIVE, "it is switched off");
    for (err, has_detour) in [
        (gone(), true),
        (inactive, true),
        (ToolError::new(ErrorCode::INVALID_PARAMETERS, "no such customer"), true),
        (ToolError::failed("it is busy"), false),
        (ToolError::new(ErrorCode::TIMEOUT, "too slow"), false),
        (ToolError::new(ErrorCode::TIMEOUT, "too slow").without_retry(), false),
        (ToolError::new(ErrorCode::UNAVAILABLE, "no connection"), false),
        (ToolError::new(ErrorCode::REJECTED, "a person said no"), false),
        (ToolError::new(ErrorCode::CANCELLED, "stopped"), false),
        (gone().with_unknown_outcome(), false),
    ] {
        let found = find_detour(&without_email(err.clone()), &Catalog::new(tools()));
        assert_eq!(found.is_ok(), has_detour, "{err:?}: {found:?}");
    }
}

#[test]
fn nothing_takes_the_place_of_an_acting_step() {
    let order = || succeeded("order", json!({ "customer_id": "C-3" }));
    let email = || succeeded("email", json!({ "customer_email": "a@b.c" }));
    for err in [gone(), gone().with_unknown_outcome()] {
        for effect in [Effect::Once, Effect::Idempotent] {
            let results = vec![order(), email(), failed("send", effect, err.clone())];
            let reason = why_not(&earlier(plan(), results, Vec::new()), tools());
            assert_eq!(reason, "`send` has an effect, so no other call may replace it");
        }
    }
    // A step that reads failed, too.
    let unknown = failed("send", Effect::Once, gone().with_unknown_outcome());
    let results = vec![order(), failed("email", Effect::Read, gone()), unknown];
    why_not(&earlier(plan(), results, Vec::new()), tools());
    for state in ["undone", "undoing_failed"] {
        let undone = StepResult { state, ..order() };
        let results = vec![undone, failed("email", Effect::Read, gone()), skipped("send")];
        why_not(&earlier(plan(), results, Vec::new()), tools());
    }
}

#[test]
fn no_detour_uses_tools_that_act_or_are_forbidden_or_off() {
    // The catalog has the tools that the caller's token allows.
    let is_other = |tool: &CatalogTool| tool.definition.name.as_str() != "read_email";
    let allowed: Vec<CatalogTool> = tools().into_iter().filter(is_other).collect();
    let reason = why_not(&without_email(gone()), allowed);
    assert_eq!(reason, "no calls of other tools return the `customer_email` of `email`");
    let off = tools().into_iter().map(|tool| CatalogTool { is_active: is_other(&tool), ..tool });
    assert_eq!(why_not(&without_email(gone()), off.collect()), reason);
}

#[test]
fn tools_that_failed_in_earlier_versions_are_avoided() {
    let mut earlier = without_email(gone());
    earlier.failures.push(failure("read_email", &["find_order"]));
    let reason = why_not(&earlier, tools());
    assert_eq!(reason, "no calls of other tools return the `customer_email` of `email`");
}

/// Two tools reject the value of `get_order`, so it may be wrong.
#[test]
fn a_tool_whose_value_is_rejected_twice_is_avoided() {
    let mut all = tools();
    all.push(tool("find_order", Effect::Read, &["order_id"], &["customer_id"]));
    all.push(tool("load_email", Effect::Read, &["customer_id"], &["customer_email"]));
    let mut earlier = without_email(gone());
    earlier.failures.push(failure("read_email", &["get_order"]));
    let found = show(&find_detour(&earlier, &Catalog::new(all)).unwrap());
    assert!(found.contains("find_order {\"order_id\":\"A-1\"}"), "{found}");
    assert!(
        found.contains("load_email {\"customer_id\":\"{{find_order.customer_id}}\"}"),
        "{found}"
    );
}

#[test]
fn a_step_with_a_condition_a_list_or_a_mixed_value_has_no_detour() {
    for (index, field, value) in [
        (1, "when", json!("order.customer_id != \"\"")),
        (1, "forEach", json!("{{order.customer_id}}")),
        (1, "outputMapping", json!({ "customer_email": "to" })),
        (1, "requiresApproval", json!(true)),
        (2, "when", json!("email.customer_email != \"\"")),
        (2, "parameters", json!({ "customer_email": "to {{email.customer_email}}" })),
        (2, "parameters", json!({ "customer_email": "{{email}}" })),
        (
            2,
            "compensate",
            json!({ "name": "shop.send_mail", "parameters": { "customer_email": "{{email.customer_email}}" } }),
        ),
    ] {
        let mut changed = plan();
        changed["tools"][index][field] = value;
        let EarlierPlan { results, failures, .. } = without_email(gone());
        let found =
            find_detour(&earlier(changed.clone(), results, failures), &Catalog::new(tools()));
        assert!(found.is_err(), "{changed}: {found:?}");
    }
}

#[test]
fn a_plan_that_asks_for_the_next_one_has_no_detour() {
    let requested = EarlierPlan { is_requested: true, ..without_email(gone()) };
    assert!(why_not(&requested, tools()).starts_with("a step requests"));
}
