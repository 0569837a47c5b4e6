use std::time::Duration;

use executor::options::Options;
use planner::writer::ModelPlanner;
use serde_json::{Value, json};
use shared::{
    execution::{ExecutionOptions, ExecutionState, ReplanOptions, ReplanPermissions},
    id::PlanId,
    store::{AuditAction, AuditFilter, ExecutionFilter, Page, memory::Memory},
    tool::{Effect, ToolError},
};
use toolbox::{ToolContext, ToolSet, function};

use super::super::*;
use crate::{
    Engine, Guard, Order,
    agent::tests::{ScriptedModel, reply_with},
    embedded::Embedded,
};

const WAIT_LIMIT: Duration = Duration::from_mins(1);

fn make_toolset(name: &'static str) -> ToolSet {
    let run = |given: Value, _: ToolContext| async move {
        if given["fail"] == true { Err(ToolError::failed("no")) } else { Ok(given) }
    };
    let pay = function(name, "pay", "Pays.", Effect::Once, run);
    ToolSet::ready(name.parse().unwrap(), "local", "", [pay])
}

async fn open_faber(answers: &[Value]) -> (Embedded, Arc<ScriptedModel>) {
    let answers = answers.iter().map(|answer| reply_with(&answer.to_string(), &[])).collect();
    let model = Arc::new(ScriptedModel::new(answers));
    let planner = Arc::new(ModelPlanner::new(Arc::<ScriptedModel>::clone(&model), 0));
    // The guard is off, because the drafts of these tests do not fit the words of the query.
    let configure = |engine: Engine| engine.with_planner(planner).with_guard(Guard::Off);
    let (store, sets) = (Arc::new(Memory::new()), vec![make_toolset("crm"), make_toolset("shop")]);
    let faber =
        Embedded::open_configured(store, sets, Options::default(), configure).await.unwrap();
    (faber, model)
}

fn pay_step(id: &str, sum: u32) -> Value {
    json!({ "id": id, "name": "crm.pay", "parameters": { "sum": sum } })
}

fn failing_step(id: &str) -> Value {
    json!({ "id": id, "name": "crm.pay", "parameters": { "fail": true } })
}

fn draft_with_steps(steps: &[Value]) -> Value {
    json!({ "tools": steps })
}

fn order_with_replans(times: u32) -> Order {
    let options =
        ExecutionOptions { replans: ReplanOptions::times(times), ..ExecutionOptions::default() };
    Order { options, ..Order::default() }
}

async fn run_plan(faber: &Embedded, plan: Value, order: Order) -> Arc<Execution> {
    let plan: PlanId = faber.plan(plan).await.unwrap().id();
    let id = faber.engine().executions.start_plan(plan, order).await.unwrap();
    faber.ended(id).await.unwrap()
}

async fn wait_for_decision(faber: &Embedded, ended: &Execution) -> Replanning {
    let wait = async {
        loop {
            let found = faber
                .engine()
                .executions
                .reader
                .load_replanning(ended)
                .await
                .unwrap()
                .expect("the execution is replanned");
            let head = faber.engine().store().head(ended.id()).await.unwrap().unwrap();
            if found.stage != Stage::Pending && head.owner.is_none() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WAIT_LIMIT, wait).await.expect("the replan is decided")
}

async fn wait_for_next(faber: &Embedded, ended: &Execution) -> Arc<Execution> {
    let found = wait_for_decision(faber, ended).await;
    assert_eq!(found.stage, Stage::Begun, "{found:?}");
    let next = faber
        .engine()
        .executions
        .reader
        .next(ended)
        .await
        .unwrap()
        .expect("the next execution exists");
    faber.ended(next.id()).await.unwrap()
}

async fn transcript_kinds(faber: &Embedded, of: &Execution) -> Vec<String> {
    let transcript = faber.engine().store().transcript(of.request()).await.unwrap();
    transcript.into_iter().map(|entry| entry.kind).collect()
}

#[tokio::test]
async fn an_automatic_replan_reuses_steps_that_succeeded() {
    let (faber, model) =
        open_faber(&[draft_with_steps(&[pay_step("a", 1), pay_step("b", 2)])]).await;
    let first = run_plan(
        &faber,
        draft_with_steps(&[pay_step("a", 1), failing_step("x")]),
        order_with_replans(1),
    )
    .await;
    assert_eq!(first.state(), ExecutionState::Failed);
    let next = wait_for_next(&faber, &first).await;
    assert_eq!((next.state(), next.plan().info().version), (ExecutionState::Completed, 2));
    assert_eq!(next.retry_of(), Some(first.id()));
    let all = Page::first_items(10);
    let store = faber.engine().store();
    let audit = store.list_audit_entries(&AuditFilter::default(), &all).await.unwrap().items;
    let [(_, entry)] = audit.as_slice() else { panic!("only the engine acts: {audit:?}") };
    assert_eq!((&*entry.actor, &entry.action), (&Actor::faber(), &AuditAction::REPLAN));
    assert_eq!(entry.target.execution, Some(next.id()));
    assert_eq!(json!(entry.detail), json!({ "retryOf": first.id() }));
    assert!(next.steps()[0].is_reused, "what pays pays once");
    assert_eq!((next.options().replans.left, next.options().replans.before), (0, 1));
    assert_eq!(faber.engine().executions.reader.load_replanning(&next).await.unwrap(), None);
    let question = model.questions.lock().unwrap()[0]
        .messages
        .iter()
        .map(|message| format!("{message:?}"))
        .collect::<Vec<_>>()
        .concat();
    assert!(
        question.contains("did not complete") && !question.contains("flow.replan"),
        "{question}"
    );
    faber.close().await;
}

#[tokio::test]
async fn automatic_replans_stop_at_their_limit() {
    let answers = [
        draft_with_steps(&[failing_step("y")]),
        draft_with_steps(&[failing_step("z")]),
        draft_with_steps(&[pay_step("never", 1)]),
    ];
    let (faber, model) = open_faber(&answers).await;
    let first =
        run_plan(&faber, draft_with_steps(&[failing_step("x")]), order_with_replans(2)).await;
    let second = wait_for_next(&faber, &first).await;
    let third = wait_for_next(&faber, &second).await;
    assert_eq!((third.state(), third.plan().info().version), (ExecutionState::Failed, 3));
    let found = wait_for_decision(&faber, &third).await;
    assert_eq!(found.stage, Stage::GivenUp);
    assert!(found.given_up.unwrap().contains("replanned 2 times"));
    assert_eq!(model.questions.lock().unwrap().len(), 2);
    faber.close().await;
}

#[tokio::test]
async fn a_step_requests_one_replan_that_does_not_repeat() {
    let look =
        json!({ "id": "look", "name": "flow.replan", "parameters": { "goal": "pay the rest" } });
    let answers = [draft_with_steps(&[pay_step("a", 1), look.clone(), pay_step("b", 2)])];
    let (faber, model) = open_faber(&answers).await;
    let first =
        run_plan(&faber, draft_with_steps(&[pay_step("a", 1), look]), Order::default()).await;
    assert_eq!(first.state(), ExecutionState::Completed);
    let next = wait_for_next(&faber, &first).await;
    assert_eq!(next.state(), ExecutionState::Completed);
    let came = next.steps().iter().map(|step| step.is_reused).collect::<Vec<_>>();
    assert_eq!(came, [true, true, false]);
    let found = faber.engine().executions.reader.load_replanning(&first).await.unwrap().unwrap();
    assert_eq!(found.reason, "`look` asks for it: pay the rest");
    let question = model.questions.lock().unwrap()[0]
        .messages
        .iter()
        .map(|message| format!("{message:?}"))
        .collect::<Vec<_>>()
        .concat();
    assert!(question.contains("stopped where its author could not plan further"), "{question}");
    assert_eq!(faber.engine().executions.reader.load_replanning(&next).await.unwrap(), None);
    faber.close().await;
}

/// The model refuses, writes an invalid plan, or writes a plan that would repeat an effect.
#[tokio::test]
async fn a_replan_without_a_plan_is_given_up_with_a_reason() {
    let answers = [
        (json!({ "impossible": "closed" }), "NO_PLAN_FOUND"),
        (
            draft_with_steps(&[json!({ "name": "nothing.like_it", "parameters": {} })]),
            "INVALID_PLAN",
        ),
        (draft_with_steps(&[pay_step("other", 1)]), "INVALID_PLAN"),
    ];
    for (answer, code) in answers {
        let (faber, model) = open_faber(&[answer]).await;
        let first = run_plan(
            &faber,
            draft_with_steps(&[pay_step("a", 1), failing_step("x")]),
            order_with_replans(3),
        )
        .await;
        let found = wait_for_decision(&faber, &first).await;
        assert_eq!(found.stage, Stage::GivenUp, "{code}");
        let transcript = faber.engine().store().transcript(first.request()).await.unwrap();
        let last = transcript.last().unwrap();
        assert_eq!((last.kind.as_str(), &last.content["code"]), (GIVEN_UP, &json!(code)));
        assert_eq!(last.content["executionId"], json!(first.id()));
        assert!(faber.engine().executions.reader.next(&first).await.unwrap().is_none());
        // As after a crash, the replan is tried again. It finds the transcript entry and does not
        // ask the model.
        faber.engine().executions.replanner().replan(&first).await.unwrap();
        assert_eq!(model.questions.lock().unwrap().len(), 1);
        faber.close().await;
    }
}

/// Two workers replan the same execution at the same time, as after an expired lease. A third
/// worker does so later.
#[tokio::test]
async fn two_workers_start_one_replan() {
    let answers = [
        draft_with_steps(&[pay_step("b", 1)]),
        draft_with_steps(&[pay_step("c", 1)]),
        draft_with_steps(&[pay_step("d", 1)]),
    ];
    let (faber, _) = open_faber(&answers).await;
    let first =
        run_plan(&faber, draft_with_steps(&[failing_step("x")]), order_with_replans(1)).await;
    let (engine, replanner) = (faber.engine(), faber.engine().executions.replanner());
    let (one, other) = tokio::join!(replanner.replan(&first), replanner.replan(&first));
    assert_eq!((one, other), (Ok(()), Ok(())));
    let next = wait_for_next(&faber, &first).await;
    replanner.replan(&first).await.unwrap();
    let page = Page::first_items(10);
    let heads = engine.store().list_heads(&ExecutionFilter::default(), &page).await.unwrap();
    assert_eq!(heads.items.len(), 2, "{heads:?}");
    assert_eq!(next.state(), ExecutionState::Completed);
    assert!(!transcript_kinds(&faber, &first).await.iter().any(|kind| kind == GIVEN_UP));
    faber.close().await;
}

/// The test simulates workers of which each crashed during its attempt to replan.
#[tokio::test]
async fn a_replan_is_given_up_after_repeated_crashes() {
    let (faber, model) = open_faber(&[draft_with_steps(&[pay_step("a", 1)])]).await;
    let first = run_plan(&faber, draft_with_steps(&[failing_step("x")]), Order::default()).await;
    let engine = faber.engine();
    let content = json!({ "executionId": first.id(), "automatic": true });
    let tries = vec![engine.plans.new_entry(ATTEMPT, content); limits::REPLAN_ATTEMPTS];
    engine.store().add_transcript(first.request(), &tries).await.unwrap();
    engine.executions.replanner().replan(&first).await.unwrap();
    let transcript = engine.store().transcript(first.request()).await.unwrap();
    assert!(Attempts::read(&transcript, first.id()).given_up.is_some());
    assert_eq!(model.questions.lock().unwrap().len(), 0);
    faber.close().await;
}

#[tokio::test]
async fn an_impossible_replan_option_is_rejected_at_the_start() {
    let (with, _) = open_faber(&[]).await;
    let without =
        Embedded::open_over(Arc::new(Memory::new()), [make_toolset("crm")], Options::default());
    let without = without.await.unwrap();
    let asking = || json!({ "name": "flow.replan", "parameters": {} });
    let undoing = |times| Order { compensates: Some(true), ..order_with_replans(times) };
    let asks_undoing = Order { compensates: Some(true), ..Order::default() };
    for (faber, step, order, code) in [
        (&without, pay_step("a", 1), order_with_replans(1), Some("PLANNER_UNAVAILABLE")),
        (&without, pay_step("a", 1), order_with_replans(0), None),
        (&without, pay_step("a", 1), Order::default(), None),
        (&without, asking(), Order::default(), Some("PLANNER_UNAVAILABLE")),
        (&without, asking(), order_with_replans(0), None),
        (&with, pay_step("a", 1), undoing(1), Some("INVALID_ARGUMENT")),
        (&with, pay_step("a", 1), undoing(0), None),
        (&with, asking(), asks_undoing, Some("INVALID_ARGUMENT")),
    ] {
        let plan = faber.plan(draft_with_steps(std::slice::from_ref(&step))).await.unwrap().id();
        let started = faber.engine().executions.start_plan(plan, order).await;
        assert_eq!(started.as_ref().err().map(EngineError::code), code, "{step} {started:?}");
    }
    with.close().await;
    without.close().await;
}

/// A replan reuses the steps that succeeded, so compensation would undo work that the replan needs.
#[tokio::test]
async fn replans_leave_compensation_off_unless_the_caller_asks_for_it() {
    let (faber, _) = open_faber(&[]).await;
    let mut undoing = pay_step("a", 1);
    undoing["compensate"] = json!({ "name": "flow.noop" });
    let asking = json!({ "name": "flow.replan", "parameters": {}, "when": "false" });
    let only = |step: &Value| vec![step.clone()];
    for (steps_of, order, compensates) in [
        (only(&undoing), Order::default(), true),
        (only(&undoing), order_with_replans(0), true),
        (only(&undoing), order_with_replans(1), false),
        (only(&undoing), Order { compensates: Some(false), ..Order::default() }, false),
        (only(&pay_step("a", 1)), Order::default(), false),
        (only(&pay_step("a", 1)), Order { compensates: Some(true), ..Order::default() }, true),
        (vec![undoing.clone(), asking.clone()], Order::default(), false),
        (vec![undoing.clone(), asking.clone()], order_with_replans(0), true),
    ] {
        let ended = run_plan(&faber, draft_with_steps(&steps_of), order.clone()).await;
        assert_eq!(ended.options().compensate_on_failure, compensates, "{steps_of:?} {order:?}");
    }
    faber.close().await;
}

/// The next execution has the permissions of the first execution, which exclude the toolset `shop`.
#[tokio::test]
async fn a_replan_has_the_tools_of_the_first_caller() {
    let shop = json!({ "id": "b", "name": "shop.pay", "parameters": { "sum": 1 } });
    let (faber, _) = open_faber(&[draft_with_steps(&[shop])]).await;
    let tools = Some(vec!["crm.*".parse().unwrap()]);
    let within = ReplanPermissions { token: "t".to_owned(), tools, switches: false };
    let engine = faber.engine().with_grant(Grant::for_replan(&within));
    assert_eq!(engine.grant().replan_permissions(), Some(within.clone()));
    let plan = faber.plan(draft_with_steps(&[failing_step("x")])).await.unwrap().id();
    let first = engine.executions.start_plan(plan, order_with_replans(1)).await.unwrap();
    let first = faber.ended(first).await.unwrap();
    assert_eq!(first.options().replans.within, Some(within));
    let found = wait_for_decision(&faber, &first).await;
    assert_eq!(found.stage, Stage::GivenUp, "{found:?}");
    faber.close().await;
}
