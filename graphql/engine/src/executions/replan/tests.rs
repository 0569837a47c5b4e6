mod automatic;
mod detours;

use executor::options::Options;
use planner::writer::ModelPlanner;
use serde_json::Value;
use shared::{
    execution::StepState,
    store::{Append, Log as _, RequestFilter, Store, memory::Memory},
    tool::{Effect, ToolError},
};
use toolbox::{ToolContext, ToolSet, function};

use super::*;
use crate::{
    AgentOptions, Engine, Guard,
    access::{Access, Role, Token},
    agent::tests::{ScriptedModel, reply_with},
    embedded::Embedded,
};

fn make_toolset(name: &'static str, tools: &[&'static str]) -> ToolSet {
    let run = |given: Value, _: ToolContext| async move {
        if given["fail"] == true { Err(ToolError::failed("no")) } else { Ok(given) }
    };
    let tools = tools.iter().map(|tool| function(name, tool, "Does it.", Effect::Once, run));
    ToolSet::ready(name.parse().unwrap(), "local", "", tools)
}

/// Returns an engine whose model gives these answers. The guard is off, because the answers do not
/// fit the words of the query.
fn engine_with_answers(faber: &Embedded, answers: &[Value]) -> Engine {
    let answers = answers.iter().map(|answer| reply_with(&answer.to_string(), &[])).collect();
    let planner = Arc::new(ModelPlanner::new(Arc::new(ScriptedModel::new(answers)), 0));
    faber.engine().clone().with_planner(planner).with_guard(Guard::Off)
}

async fn open_faber(sets: Vec<ToolSet>) -> (Embedded, Arc<Memory>) {
    let store = Arc::new(Memory::new());
    let over = Arc::clone(&store) as Arc<dyn Store>;
    (Embedded::open_over(over, sets, Options::default()).await.unwrap(), store)
}

/// The model sees only one of three tools. The name `pay` in its answer still means `crm.pay`, as
/// in every plan, because `crm` comes before `shop`.
#[tokio::test]
async fn an_approval_is_carried_over_if_the_model_saw_few_tools() {
    let sets = vec![make_toolset("crm", &["pay", "greet"]), make_toolset("shop", &["pay"])];
    let (faber, _) = open_faber(sets).await;
    let earlier = json!({ "query": "greet everybody", "tools": [
        { "id": "greet", "name": "crm.greet", "parameters": { "fail": true } },
        { "id": "pay", "name": "crm.pay", "requiresApproval": true, "timeoutMs": 7000,
          "dependsOn": ["greet"], "parameters": { "sum": 1 } },
    ] });
    let ended = faber.run_plan(earlier).await.unwrap();
    assert_eq!(ended.state(), ExecutionState::Failed);
    let anew = json!({ "tools": [{ "id": "pay", "name": "pay", "parameters": { "sum": 1 } }] });
    let engine = engine_with_answers(&faber, &[anew]);
    let options = PlanningOptions { max_tools: Some(1), ..PlanningOptions::default() };
    let next = engine.executions.replan(ended.id(), &options).await.unwrap();
    let next = engine.executions.reader.expect(next).await.unwrap();
    let step = &next.plan().steps()[0];
    assert_eq!((step.tool.as_str(), step.policy.requires_approval), ("crm.pay", true));
    assert_eq!(step.policy.timeout_ms, 7000);
    assert!(
        !matches!(next.steps()[0].state, StepState::Succeeded(_)),
        "no person approved the step"
    );
    faber.close().await;
}

/// The test simulates a node that stopped after it wrote the log of the next execution and before
/// it wrote the head.
#[tokio::test]
async fn a_next_execution_without_a_head_is_found_and_not_duplicated() {
    let (faber, store) = open_faber(vec![make_toolset("crm", &["pay"])]).await;
    let steps = |id: &str| json!({ "tools": [{ "id": id, "name": "crm.pay", "parameters": { "fail": true } }] });
    let ended = faber.run_plan(steps("a")).await.unwrap();
    let lost = faber.plan(steps("lost")).await.unwrap();
    let created = create_replan(&ended, &lost).unwrap();
    let (next, now) = (next_execution(&ended), ended.created_at());
    let (_, first) =
        executor::machine::create_execution_from(next, &lost, created, None, now).unwrap();
    store.append(Append::new(next, shared::id::Seq::START, &[first])).await.unwrap();
    let engine = engine_with_answers(&faber, &[steps("b")]);
    let err = engine.executions.replan(ended.id(), &PlanningOptions::default()).await.unwrap_err();
    assert_eq!(err.code(), "CONFLICT", "{err}");
    assert!(err.to_string().contains(&next.to_string()), "{err}");
    let next = faber.ended(next).await.unwrap();
    assert_eq!(next.plan().id(), lost.id(), "the execution keeps its plan");
    faber.close().await;
}

/// The calls of reused steps are in the log of an earlier execution, so the guard must read this
/// log, too.
#[tokio::test]
async fn a_replan_does_not_repeat_effects_of_earlier_versions() {
    let (faber, _) = open_faber(vec![make_toolset("crm", &["pay"])]).await;
    let pay =
        |id: &str, sum: u32| json!({ "id": id, "name": "crm.pay", "parameters": { "sum": sum } });
    let fail = |id: &str| json!({ "id": id, "name": "crm.pay", "parameters": { "fail": true } });
    let first = json!({ "tools": [pay("a", 1), fail("x")] });
    let first = faber.run_plan(first).await.unwrap();
    let engine = engine_with_answers(
        &faber,
        &[json!({ "tools": [pay("a", 1), fail("y")] }), json!({ "tools": [pay("b", 1)] })],
    );
    let second = engine.executions.replan(first.id(), &PlanningOptions::default()).await.unwrap();
    let second = faber.ended(second).await.unwrap();
    assert!(second.steps()[0].is_reused);
    let err = engine.executions.replan(second.id(), &PlanningOptions::default()).await.unwrap_err();
    let EngineError::InvalidPlan { diagnostics, .. } = err else { panic!("{err}") };
    assert_eq!(diagnostics[0].code, "plan.done_twice");
    assert!(
        diagnostics[0].message.contains("repeat the call of `a`"),
        "{}",
        diagnostics[0].message
    );
    faber.close().await;
}

#[tokio::test]
async fn a_replan_does_not_repeat_effects_of_sub_plans() {
    let (faber, _) = open_faber(vec![make_toolset("crm", &["pay"])]).await;
    let inner = json!({ "tools": [
        { "id": "a", "name": "crm.pay", "parameters": { "sum": 1 } },
        { "id": "x", "name": "crm.pay", "dependsOn": ["a"], "parameters": { "fail": true } },
    ] });
    let ended = faber.run_plan(json!({ "tools": [{ "id": "s", "plan": inner }] })).await.unwrap();
    assert_eq!(ended.state(), ExecutionState::Failed);
    let anew = json!({ "tools": [{ "id": "b", "name": "crm.pay", "parameters": { "sum": 1 } }] });
    let engine = engine_with_answers(&faber, &[anew]);
    let err = engine.executions.replan(ended.id(), &PlanningOptions::default()).await.unwrap_err();
    let EngineError::InvalidPlan { diagnostics, .. } = err else { panic!("{err}") };
    assert_eq!(diagnostics[0].code, "plan.done_twice", "{diagnostics:?}");
    faber.close().await;
}

/// Executions beyond the read limit are not read, so each call with an effect could repeat one of
/// their calls.
#[tokio::test]
async fn a_repeat_guard_is_truncated_after_too_many_sub_plans() {
    let (faber, _) = open_faber(vec![make_toolset("crm", &["pay"])]).await;
    let inner = json!({ "tools": [{ "id": "a", "name": "crm.pay", "parameters": { "sum": 1 } }] });
    let ended = faber.run_plan(json!({ "tools": [
        { "id": "list", "name": "flow.echo", "parameters": { "items": [1, 2, 3] } },
        { "id": "all", "forEach": "{{list.items}}", "plan": inner },
        { "id": "x", "name": "crm.pay", "dependsOn": ["all"], "parameters": { "fail": true } },
    ] }));
    let ended = ended.await.unwrap();
    assert_eq!(ended.state(), ExecutionState::Failed);
    let engine = faber.engine();
    for (maximum, is_cut) in [(0, true), (2, true), (3, false), (9, false)] {
        let guard = engine.executions.reader.load_repeat_guard(&ended, maximum).await.unwrap();
        assert_eq!(guard.is_truncated(), is_cut, "{maximum}");
    }
    faber.close().await;
}

/// A refused start would waste the planning, and its request would stay in the store.
#[tokio::test]
async fn a_caller_that_has_used_up_a_quota_plans_nothing() {
    let (faber, _) = open_faber(vec![make_toolset("crm", &["pay"])]).await;
    let grant = |quota| {
        let mut token = Token::new("ci", "a secret that is hard to guess", Role::Operator);
        token.quotas.executions = quota;
        Access::new([token]).find_grant_by_name("ci").unwrap()
    };
    let free = faber.engine().with_grant(grant(None));
    let start = async |step: Value| {
        let plan = faber.plan(json!({ "tools": [step] })).await.unwrap();
        free.executions.start_plan(plan.id(), Order::default()).await.unwrap()
    };
    let failed = start(json!({ "name": "crm.pay", "parameters": { "fail": true } })).await;
    let failed = faber.ended(failed).await.unwrap();
    start(json!({ "name": "flow.sleep", "parameters": { "ms": 600_000 } })).await;

    let limited = engine_with_answers(&faber, &[]).with_grant(grant(Some(1)));
    let planning = PlanningOptions::default();
    let refusals = [
        limited.executions.plan_and_start("pay now", &planning, Order::default()).await,
        limited.executions.start_agent("pay now", &AgentOptions::default()).await,
        limited.executions.replan(failed.id(), &planning).await,
    ];
    for refused in refusals {
        let err = refused.unwrap_err();
        assert!(err.to_string().contains("its limit `executions` is 1"), "{err}");
        assert_eq!(err.code(), "LIMIT_EXCEEDED");
    }
    let requests = faber.engine().store().count_requests(&RequestFilter::default()).await;
    assert_eq!(requests, Ok(2), "only the plans have requests");
    // A replan of a foreign execution counts toward the quota of its owner.
    let mut other = Token::new("other", "another secret of this test", Role::Operator);
    other.quotas.executions = Some(0);
    let other = Access::new([other]).find_grant_by_name("other").unwrap();
    let engine = engine_with_answers(&faber, &[]).with_grant(other);
    let err = engine.executions.replan(failed.id(), &planning).await.unwrap_err();
    assert_ne!(err.code(), "LIMIT_EXCEEDED", "the model is asked: {err}");
    faber.close().await;
}
