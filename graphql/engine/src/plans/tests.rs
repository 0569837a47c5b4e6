//! Tests queries that a model plans. The draft of the offline planner is a hint, and becomes the
//! plan if the model's plan is invalid.

use std::sync::Arc;

use planner::{
    model::{Message, Question},
    writer::ModelPlanner,
};
use serde_json::{Value, json};
use shared::tool::{Effect, ToolError};
use toolbox::{ToolContext, ToolSet, function};

use super::*;
use crate::{
    agent::tests::{ScriptedModel, reply_with},
    embedded::Embedded,
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    #[expect(dead_code, reason = "only its schema is used")]
    page: String,
}

const UNRELATED_TOOLS: [&str; 26] = [
    "paint_a", "paint_b", "paint_c", "paint_d", "paint_e", "paint_f", "paint_g", "paint_h",
    "paint_i", "paint_j", "paint_k", "paint_l", "paint_m", "paint_n", "paint_o", "paint_p",
    "paint_q", "paint_r", "paint_s", "paint_t", "paint_u", "paint_v", "paint_w", "paint_x",
    "paint_y", "paint_z",
];
const FEW_UNRELATED_TOOLS: usize = 11;

async fn engine_with_model(answers: &[Value]) -> (Embedded, crate::Engine, Arc<ScriptedModel>) {
    engine_with_tools(FEW_UNRELATED_TOOLS, answers).await
}

async fn engine_with_tools(
    unrelated_count: usize,
    answers: &[Value],
) -> (Embedded, crate::Engine, Arc<ScriptedModel>) {
    let run = |_: Page, _: ToolContext| async { Ok::<_, ToolError>("done") };
    let paint = |name: &&'static str| function("own", name, "Paints a wall.", Effect::Once, run);
    let mut tools = vec![function("own", "read_page", "Reads a page.", Effect::Read, run)];
    tools.extend(UNRELATED_TOOLS[..unrelated_count].iter().map(paint));
    let set = ToolSet::ready("own".parse().unwrap(), "local", "", tools);
    let faber = Embedded::open("memory:", [set]).await.unwrap();
    let answers = answers.iter().map(|answer| reply_with(&answer.to_string(), &[])).collect();
    let model = Arc::new(ScriptedModel::new(answers));
    let planner = Arc::new(ModelPlanner::new(Arc::<ScriptedModel>::clone(&model) as _, 0));
    let engine = faber.engine().clone().with_planner(planner);
    (faber, engine, model)
}

const QUERY: &str = "read the page home";

fn prompt_texts(question: &Question) -> (String, String) {
    match &question.messages[..] {
        [Message::System(rules), Message::User(request)] => (rules.clone(), request.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_model_sees_eight_of_many_tools_and_the_offline_draft() {
    let plan = json!({ "tools": [{ "name": "read_page", "parameters": { "page": "home" } }] });
    let (_faber, engine, model) = engine_with_tools(UNRELATED_TOOLS.len(), &[plan]).await;
    let plan = engine.plans.plan_query(QUERY, &PlanningOptions::default()).await.unwrap();
    assert_eq!(plan.info().planner, "scripted");
    let (rules, request) = prompt_texts(&model.questions.lock().unwrap()[0]);
    let tools = rules.split("<tools>\n").nth(1).unwrap();
    assert!(tools.contains("read_page(page); read"), "{tools}");
    let listed = tools.lines().filter(|line| line.contains("; ")).count();
    assert!((8..=10).contains(&listed), "eight, the draft's, and the replan: {tools}");
    assert!(
        request.contains("<hint>\n{\"tools\":[{") && request.contains("read_page"),
        "{request}"
    );
}

#[tokio::test]
async fn a_model_sees_the_same_tools_for_each_query_if_there_are_few() {
    let plan = json!({ "tools": [{ "name": "read_page", "parameters": { "page": "home" } }] });
    let (_faber, engine, model) = engine_with_model(&[plan.clone(), plan]).await;
    for query in [QUERY, "paint the wall of page home"] {
        engine.plans.plan_query(query, &PlanningOptions::default()).await.unwrap();
    }
    let questions = model.questions.lock().unwrap();
    let [first, second] = &questions[..] else { panic!("{questions:?}") };
    let (first, second) = (prompt_texts(first).0, prompt_texts(second).0);
    assert_eq!(first, second);
    for name in &UNRELATED_TOOLS[..FEW_UNRELATED_TOOLS] {
        assert!(first.contains(&format!("\n{name}(page)")), "{first}");
    }
}

#[tokio::test]
async fn a_model_sees_why_the_query_itself_forbids_a_plan() {
    for (query, is_forbidden) in [("don't paint the page home", true), ("xyzzy", false)] {
        let (_faber, engine, model) = engine_with_model(&[json!({ "impossible": "no" })]).await;
        engine.plans.plan_query(query, &PlanningOptions::default()).await.unwrap_err();
        let (_, request) = prompt_texts(&model.questions.lock().unwrap()[0]);
        assert_eq!(request.contains("<hint>\n{\"impossible\":\""), is_forbidden, "{request}");
    }
}

#[tokio::test]
async fn the_offline_draft_is_the_result_if_the_models_plan_is_invalid() {
    let wrong = json!({ "tools": [{ "name": "read_pages", "parameters": {} }] });
    let (_faber, engine, _) = engine_with_model(&[wrong]).await;
    let plan = engine.plans.plan_query(QUERY, &PlanningOptions::default()).await.unwrap();
    assert_eq!((plan.info().planner.as_str(), plan.steps().len()), ("offline", 1));
    let warning = &plan.diagnostics()[0];
    assert_eq!((&*warning.code, warning.is_error()), ("plan.model_failed", false));
    assert!(warning.message.contains("read_pages"), "{}", warning.message);
    let transcript = engine.store().transcript(plan.info().request).await.unwrap();
    let kinds: Vec<_> = transcript.iter().map(|entry| entry.kind.as_str()).collect();
    assert!(kinds.contains(&"reply") && kinds.contains(&"candidates"), "{kinds:?}");
}

#[tokio::test]
async fn a_model_that_does_not_answer_is_an_error_that_mentions_the_draft() {
    let (_faber, engine, _) = engine_with_model(&[]).await;
    for (query, has_draft) in [(QUERY, true), ("xyzzy", false)] {
        let err = engine.plans.plan_query(query, &PlanningOptions::default()).await.unwrap_err();
        assert_eq!(err.code(), "PLANNER_UNAVAILABLE");
        assert_eq!(err.to_string().contains("`--planner offline`"), has_draft, "{err}");
    }
}
