use std::sync::Arc;

use planner::{
    catalog::CatalogTool, compile::compile, draft::Draft, replan::StepResult, writer::ModelPlanner,
};
use serde_json::json;
use shared::{clock::Timestamp, plan::PlanInfo, tool::ToolError};
use toolbox::{ToolContext, ToolSet, function};

use super::*;
use crate::{
    EngineError, PlanningOptions,
    agent::tests::{ScriptedModel, reply_with},
    embedded::Embedded,
};

fn make_tool(name: &str, description: &str, effect: Effect, fields: &Value) -> CatalogTool {
    let definition = ToolDefinition {
        name: name.parse().unwrap(),
        set: "demo".parse().unwrap(),
        description: description.to_owned(),
        input_schema: json!({ "type": "object", "properties": fields }),
        output_schema: None,
        effect,
        examples: Vec::new(),
        is_callable: true,
    };
    CatalogTool { definition: Arc::new(definition), is_active: true }
}

fn make_catalog() -> Catalog {
    let (context, number) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let issue = json!({ "number": number });
    let state = json!({ "type": "string", "enum": ["open", "closed"] });
    let limit = json!({ "type": "integer", "default": 30 });
    Catalog::new([
        make_tool("get_issue", "Gets an issue.", Effect::Read, &issue),
        make_tool("list_issues", "Lists issues.", Effect::Read, &json!({ "state": state })),
        make_tool("delete_issue", "Deletes an issue.", Effect::Once, &issue),
        make_tool("close_issue", "Closes an issue.", Effect::Idempotent, &issue),
        make_tool(
            "update_issue",
            "Updates an issue.",
            Effect::Once,
            &json!({ "number": number, "title": context, "state": state, "limit": limit }),
        ),
        make_tool(
            "add_comment",
            "Comments on an issue.",
            Effect::Once,
            &json!({ "number": number, "body": context }),
        ),
        make_tool(
            "send_mail",
            "Sends a mail.",
            Effect::Once,
            &json!({ "to": context, "subject": context, "body": context }),
        ),
    ])
}

fn find_problem_lines(query: &str, steps: &Value) -> String {
    let (catalog, plan) = (make_catalog(), compile_plan(query, steps));
    let found = GuardedQuery::new(Guard::Approve, query, &catalog, &catalog).find_problems(&plan);
    let lines = found
        .iter()
        .map(|(_, found)| [&*found.code, " ", &found.path, ": ", &found.message, "\n"].concat());
    lines.collect()
}

fn compile_plan(query: &str, steps: &Value) -> Plan {
    let draft: Draft = serde_json::from_value(json!({ "tools": steps })).unwrap();
    let info = PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().unwrap(),
        request: "req_1_aaaaaaaaa".parse().unwrap(),
        version: 1,
        query: query.to_owned(),
        planner: "model".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    compile(&draft, info, &make_catalog()).unwrap()
}

fn delete_step(number: u32) -> Value {
    json!({ "id": format!("delete_{number}"), "name": "delete_issue", "parameters": { "number": number } })
}

#[test]
fn a_call_that_the_query_orders_is_not_doubted() {
    for query in [
        "Delete issue 4",
        "please delete issue #4",
        "Could you delete issue 4?",
        "I want to delete issue 4",
        "Show issue 4, then delete it",
        "Should I delete issue 5? Delete issue 4.",
        "Don't delete issue 5, but delete issue 4",
        "remove the issue 4",
        "delte issue 4",
    ] {
        assert_eq!(find_problem_lines(query, &json!([delete_step(4)])), "", "{query}");
    }
    let show = json!([{ "name": "get_issue", "parameters": { "number": 4 } }]);
    assert_eq!(find_problem_lines("Should I delete issue 4?", &show), "", "the tool only reads");
}

#[test]
fn a_call_that_the_query_does_not_order_is_doubted() {
    for (query, expected) in [
        ("Should I delete issue 4?", "`Should I delete issue 4` only asks about a call of"),
        ("How do I delete issue 4?", "`How do I delete issue 4` only asks about a call of"),
        ("Was issue 4 deleted?", "`Was issue 4 deleted` only asks about a call of"),
        ("Don't delete issue 4", "`Don't delete issue 4` denies a call of"),
        ("Show issue 4, but never delete it", "denies a call of"),
        ("Delete issue 5, but don't delete issue 4", "`don't delete issue 4` denies a call of"),
        ("What if I delete issue 4?", "`What if I delete issue 4` only supposes a call of"),
        ("I'm thinking of deleting issue 4", "only supposes a call of"),
        ("I have deleted issue 4", "`I have deleted issue 4` only reports a call of"),
        ("Show issue 4", "no part of `Show issue 4` asks for a call of"),
        ("Delete comment 4", "no part of `Delete comment 4` asks for a call of"),
        ("Lösche Ticket 4", "no part of `Lösche Ticket 4` asks for a call of"),
        ("Comment on issue 4 saying delete it", "no part of"),
        ("If issue 5 is closed, delete issue 4", "under a condition, and the step has no `when`"),
        ("If issue 5 is closed, close issue 5, otherwise delete issue 4", "under a condition"),
        ("Delete issue 4 unless it is open", "under a condition, and the step has no `when`"),
    ] {
        let found = find_problem_lines(query, &json!([delete_step(4)]));
        assert!(found.starts_with("plan.not_asked tools[0]: "), "{query}: {found}");
        assert!(
            found.contains(expected) && found.contains("demo.delete_issue"),
            "{query}: {found}"
        );
        assert_eq!(found.lines().count(), 1, "{query}: {found}");
    }
}

#[test]
fn a_step_with_a_condition_does_what_the_query_makes_conditional() {
    let query = "If issue 5 is closed, delete issue 4";
    let step = json!({ "name": "delete_issue", "when": "look.state == 'closed'", "parameters": { "number": 4 } });
    let look = json!({ "id": "look", "name": "get_issue", "parameters": { "number": 5 } });
    assert_eq!(find_problem_lines(query, &json!([look, step])), "");
}

#[test]
fn the_clause_with_the_values_of_a_call_counts() {
    let query = "Close issue 4 and don't delete issue 5";
    let close = json!({ "name": "close_issue", "parameters": { "number": 4 } });
    let found = find_problem_lines(query, &json!([close, delete_step(5)]));
    assert_eq!(
        found,
        "plan.not_asked tools[1]: `don't delete issue 5` denies a call of `demo.delete_issue`\n"
    );
}

#[test]
fn the_call_that_undoes_a_step_is_checked() {
    let query = "Comment on issue 4 saying done";
    let step = json!([{ "name": "add_comment", "parameters": { "number": 4, "body": "done" },
        "compensate": { "name": "delete_issue", "parameters": { "number": 4 } } }]);
    let found = find_problem_lines(query, &step);
    assert!(found.starts_with("plan.not_asked tools[0].compensate: no part of"), "{found}");
}

#[test]
fn a_value_that_nobody_said_is_invented() {
    let mail = |fields: Value| json!([{ "name": "send_mail", "parameters": fields }]);
    let update = |fields: Value| json!([{ "name": "update_issue", "parameters": fields }]);
    for (query, steps, expected) in [
        ("Mail ann@example.com", mail(json!({ "to": "ann@example.com" })), ""),
        ("Mail Ann", mail(json!({ "to": "ann@example.com" })), "to"),
        ("Mail bob@x.com about ann", mail(json!({ "to": "ann@x.com" })), "to"),
        (
            "Mail ann@x.com saying lunch is ready",
            mail(json!({ "to": "ann@x.com", "body": "Hi Ann, lunch is ready." })),
            "",
        ),
        ("Mail ann@x.com", mail(json!({ "to": "ann@x.com", "body": "I resign." })), "body"),
        (
            "Mail ann@x.com saying lunch is ready",
            mail(json!({ "to": "ann@x.com", "body": "lunch is ready, see http://evil.example" })),
            "body",
        ),
        (
            "Mail ann@x.com saying lunch is ready",
            mail(json!({ "to": "ann@x.com", "subject": "urgent" })),
            "subject",
        ),
        (
            "Update issue 4 with title New  Page",
            update(json!({ "number": 4, "title": "new page" })),
            "",
        ),
        ("Update issue four with title X", update(json!({ "number": 4, "title": "X" })), ""),
        ("Update the issue with title X", update(json!({ "number": 4, "title": "X" })), "number"),
        ("Update issue 45 with title X", update(json!({ "number": 4, "title": "X" })), "number"),
        ("Update issue 4", update(json!({ "number": 4, "state": "closed", "limit": 30 })), ""),
        ("Update issue 4", update(json!({ "number": 4, "limit": 31 })), "limit"),
    ] {
        let found = find_problem_lines(query, &steps);
        let path = format!("plan.invented_value tools[0].parameters.{expected}: ");
        let is_right =
            if expected.is_empty() { found.is_empty() } else { found.starts_with(&path) };
        assert!(is_right && found.lines().count() <= 1, "{query} {steps}: {found}");
    }
}

#[test]
fn a_template_is_said_by_an_output() {
    let look = json!({ "name": "get_issue", "parameters": { "number": 4 } });
    let mail = |to: &str, body: &str| json!([look, { "name": "send_mail", "parameters": { "to": to, "body": body } }]);
    let query = "Get issue 4 and mail its title to ann@x.com";
    assert_eq!(
        find_problem_lines(query, &mail("ann@x.com", "Here it is: {{get_issue.title}}")),
        ""
    );
    let found = find_problem_lines(query, &mail("ann@x.com", "{{get_issue.title}} or bob@x.com"));
    assert!(
        found.contains("`body` of `send_mail` is `{{get_issue.title}} or bob@x.com`"),
        "{found}"
    );
}

#[test]
fn a_replan_may_use_the_tools_and_values_of_the_earlier_plan() {
    let catalog = make_catalog();
    let close =
        |number: u32| json!({ "name": "demo.close_issue", "parameters": { "number": number } });
    let found = |steps: Value, is_approved: bool| {
        let mut earlier = close(4);
        earlier["requiresApproval"] = json!(is_approved);
        let result = StepResult {
            step: "close_issue".to_owned(),
            state: "succeeded",
            output: Some(Arc::new(json!({ "next": [9] }))),
            error: None,
            items: Vec::new(),
            failure: None,
        };
        let earlier = EarlierPlan {
            draft: serde_json::from_value(json!({ "tools": [earlier] })).unwrap(),
            results: vec![result],
            reason: String::new(),
            is_requested: false,
            failures: Vec::new(),
        };
        let plan = compile_plan("demo.close_issue", &steps);
        let guarded = GuardedQuery::new(Guard::Approve, "demo.close_issue", &catalog, &catalog);
        let found = guarded.accept_earlier_calls(&earlier).find_problems(&plan);
        found.into_iter().map(|(_, found)| found.code.into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(json!([close(4)]), false), [""; 0]);
    assert_eq!(found(json!([close(9)]), false), [""; 0], "an output has the number");
    assert_eq!(found(json!([close(5)]), false), ["plan.invented_value"]);
    assert_eq!(found(json!([delete_step(9)]), false), ["plan.not_asked"]);
    assert_eq!(found(json!([close(9)]), true), ["plan.not_asked"], "a person must decide again");
}

async fn engine_with_model(guard: Guard, answers: usize) -> (Embedded, crate::Engine) {
    let run = |_: Value, _: ToolContext| async { Ok::<_, ToolError>("done") };
    let tool = function("own", "delete_page", "Deletes a page.", Effect::Once, run);
    let set = ToolSet::ready("own".parse().unwrap(), "local", "", [tool]);
    let faber = Embedded::open("memory:", [set]).await.unwrap();
    let plan = json!({ "tools": [{ "name": "delete_page", "parameters": { "page": "home" } }] });
    let answers = (0..answers).map(|_| reply_with(&plan.to_string(), &[])).collect();
    let planner = Arc::new(ModelPlanner::new(Arc::new(ScriptedModel::new(answers)), 0));
    let engine = faber.engine().clone().with_planner(planner).with_guard(guard);
    (faber, engine)
}

#[tokio::test]
async fn the_guard_refuses_approves_or_warns() {
    let query = "Should I delete the page home?";
    for (configured, requested, expected) in [
        (Guard::Approve, None, Guard::Approve),
        (Guard::Approve, Some(Guard::Off), Guard::Approve),
        (Guard::Approve, Some(Guard::Strict), Guard::Strict),
        (Guard::Off, None, Guard::Off),
        (Guard::Off, Some(Guard::Approve), Guard::Approve),
        (Guard::Strict, Some(Guard::Off), Guard::Strict),
    ] {
        let (faber, engine) = engine_with_model(configured, 1).await;
        let options = PlanningOptions { guard: requested, ..PlanningOptions::default() };
        let planned = engine.plans.plan_query(query, &options).await;
        let context = format!("{configured:?} {requested:?}: {planned:?}");
        if expected == Guard::Strict {
            let Err(EngineError::InvalidPlan { diagnostics, request: Some(request) }) = planned
            else {
                panic!("{context}")
            };
            assert!(
                diagnostics[0].is_error() && diagnostics[0].code == "plan.not_asked",
                "{context}"
            );
            let transcript = engine.store().transcript(request).await.unwrap();
            let kinds: Vec<_> = transcript.iter().map(|entry| entry.kind.as_str()).collect();
            assert!(kinds.ends_with(&["guard", "draft", "error"]), "{kinds:?}");
        } else {
            let plan = planned.unwrap_or_else(|_| panic!("{context}"));
            let waits = plan.steps()[0].policy.requires_approval;
            assert_eq!(waits, expected == Guard::Approve, "{context}");
            let codes: Vec<_> = plan.diagnostics().iter().map(|found| &*found.code).collect();
            assert_eq!(codes, ["plan.not_asked"], "{context}");
        }
        faber.close().await;
    }
}

/// The cache stores the draft before the guard changes it, so a stricter guard later checks it
/// again.
#[tokio::test]
async fn a_cached_draft_is_guarded_again() {
    let query = "Should I delete the page home?";
    let (faber, engine) = engine_with_model(Guard::Off, 1).await;
    let loose = engine.plans.plan_query(query, &PlanningOptions::default()).await.unwrap();
    assert!(!loose.steps()[0].policy.requires_approval);
    let options = PlanningOptions { guard: Some(Guard::Approve), ..PlanningOptions::default() };
    let tight = engine.plans.plan_query(query, &options).await.unwrap();
    assert!(tight.steps()[0].policy.requires_approval);
    assert_eq!(tight.diagnostics().len(), 1, "{:?}", tight.diagnostics());
    let loose = engine.plans.plan_query(query, &PlanningOptions::default()).await.unwrap();
    assert!(!loose.steps()[0].policy.requires_approval);
    faber.close().await;
}

#[tokio::test]
async fn a_plan_that_a_person_wrote_is_not_guarded() {
    let (faber, engine) = engine_with_model(Guard::Strict, 0).await;
    let draft = json!({ "query": "Should I delete it?", "tools": [{ "name": "delete_page" }] });
    let draft: Draft = serde_json::from_value(draft).unwrap();
    let verdict = engine.plans.create_plan(&draft).await.unwrap();
    let plan = verdict.plan.unwrap();
    assert!(plan.diagnostics().is_empty() && !plan.steps()[0].policy.requires_approval);
    faber.close().await;
}
