use std::sync::Arc;

use serde_json::json;
use shared::{
    clock::Timestamp,
    id::{PlanId, RequestId},
    plan::PlanInfo,
    tool::ToolDefinition,
};

use super::*;
use crate::{
    catalog::CatalogTool,
    compile::compile,
    model::scripted::{Scripted, busy, reply_with},
};

pub(super) fn plan_info() -> PlanInfo {
    let (id, request) =
        (PlanId::draw(Timestamp::UNIX_EPOCH), RequestId::draw(Timestamp::UNIX_EPOCH));
    let (query, planner) = (String::new(), "test".to_owned());
    PlanInfo { id, request, version: 1, query, planner, created_at: Timestamp::UNIX_EPOCH }
}

pub(crate) fn make_catalog() -> Catalog {
    let tool = |name: &str, set: &str, required: &[&str], is_active: bool| {
        let properties: serde_json::Map<_, _> =
            required.iter().map(|note| ((*note).to_owned(), json!({ "type": "string" }))).collect();
        let schema = if required.is_empty() {
            json!({ "type": "object" })
        } else {
            json!({
                "type": "object", "properties": properties, "required": required,
                "additionalProperties": false,
            })
        };
        CatalogTool {
            definition: Arc::new(ToolDefinition {
                name: name.parse().unwrap(),
                set: set.parse().unwrap(),
                description: format!("Does {name}."),
                input_schema: schema,
                output_schema: None,
                effect: shared::tool::Effect::Once,
                examples: Vec::new(),
                is_callable: true,
            }),
            is_active,
        }
    };
    Catalog::new([
        tool("createAuthor", "blog", &["name", "email"], true),
        tool("createBlog", "blog", &["authorId", "title", "content"], true),
        tool("listAuthors", "blog", &[], true),
        tool("hidden", "secret", &[], false),
    ])
}

pub(super) fn catalog_with_tool(description: &str, input: Value, output: Option<Value>) -> Catalog {
    let definition = ToolDefinition {
        name: "make".parse().unwrap(),
        set: "test".parse().unwrap(),
        description: description.to_owned(),
        input_schema: input,
        output_schema: output,
        effect: shared::tool::Effect::Once,
        examples: Vec::new(),
        is_callable: true,
    };
    Catalog::new([CatalogTool { definition: Arc::new(definition), is_active: true }])
}

struct TestCompiler;

#[async_trait]
impl PlanCompiler for TestCompiler {
    async fn compile(&self, draft: &Draft, author: &str) -> Result<Compiled, Rejection> {
        let about = PlanInfo { planner: author.to_owned(), ..plan_info() };
        let plan = compile(draft, about, &make_catalog()).map_err(Rejection::Invalid)?;
        Ok(Compiled { plan, inner: Vec::new() })
    }
}

const VALID_PLAN: &str =
    r#"{"tools": [{"name": "createAuthor", "parameters": {"name": "Al", "email": "a@b.c"}}]}"#;
const UNKNOWN_TOOL_PLAN: &str =
    r#"{"tools": [{"name": "createAuthr", "parameters": {"name": "Al"}}]}"#;

async fn propose(
    answers: Vec<Result<Reply, ModelError>>,
    repairs: u32,
) -> (Result<ProposedPlan, PlanningError>, Vec<Question>) {
    let model = Arc::new(Scripted::new(answers));
    let planner = ModelPlanner::new(Arc::clone(&model) as _, repairs);
    let proposed = planner.plan("create Al", &make_catalog(), &TestCompiler).await;
    (proposed, model.asked())
}

fn note_kinds(notes: &[Note]) -> Vec<&'static str> {
    notes.iter().map(|note| note.kind).collect()
}

#[tokio::test]
async fn a_valid_plan_needs_one_question() {
    let (proposed, questions) = propose(vec![reply_with(VALID_PLAN)], 3).await;
    let proposed = proposed.unwrap().proposal;
    assert_eq!(proposed.draft.tools[0].name.as_deref(), Some("createAuthor"));
    assert_eq!(note_kinds(&proposed.notes), ["prompt", "reply", "usage"]);
    assert_eq!(questions.len(), 1);
    assert!(questions[0].answer.is_some());
    let usage = &proposed.notes[2].content;
    assert_eq!(usage["tokens"], json!({ "input": 10, "output": 2 }));
}

#[tokio::test]
async fn all_errors_are_sent_back_to_the_model() {
    let (proposed, questions) = propose(
        vec![reply_with("What?"), reply_with(UNKNOWN_TOOL_PLAN), reply_with(VALID_PLAN)],
        3,
    )
    .await;
    let notes = proposed.unwrap().proposal.notes;
    let expected =
        ["prompt", "reply", "repair", "prompt", "reply", "repair", "prompt", "reply", "usage"];
    assert_eq!(note_kinds(&notes), expected);
    assert_eq!(questions.iter().map(|note| note.messages.len()).collect::<Vec<_>>(), [2, 4, 6]);
    let message = |index: usize, n: usize| match &questions[index].messages[n] {
        Message::User(text) | Message::Assistant { text, .. } => text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(message(1, 2), "What?");
    assert!(message(1, 3).contains("there is no JSON object"), "{}", message(1, 3));
    assert_eq!(message(2, 4), UNKNOWN_TOOL_PLAN);
    let complaint = message(2, 5);
    assert!(complaint.contains("did you mean `createAuthor`?"), "{complaint}");
    // No message is in the notes twice.
    let prompts: Vec<_> = notes.iter().filter(|note| note.kind == "prompt").collect();
    let counts: Vec<_> =
        prompts.iter().map(|note| note.content["messages"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [2, 1, 1]);
}

#[tokio::test]
async fn planning_fails_after_the_last_repair_and_lists_the_attempts() {
    let (proposed, questions) = propose(
        vec![reply_with(UNKNOWN_TOOL_PLAN), reply_with(UNKNOWN_TOOL_PLAN), reply_with(VALID_PLAN)],
        1,
    )
    .await;
    assert_eq!(questions.len(), 2);
    let Err(PlanningError::Invalid { diagnostics, notes }) = proposed else { panic!() };
    assert_eq!(diagnostics[0].code, "plan.unknown_tool");
    let expected = ["prompt", "reply", "repair", "prompt", "reply", "repair", "usage"];
    assert_eq!(note_kinds(&notes), expected);
}

#[tokio::test]
async fn a_model_cannot_plan_inactive_tools() {
    let reaching = r#"{"tools": [{"name": "secret.hidden", "parameters": {}}]}"#;
    let (proposed, _) = propose(vec![reply_with(reaching)], 0).await;
    let Err(PlanningError::Invalid { diagnostics, .. }) = proposed else { panic!() };
    assert_eq!(diagnostics[0].code, "plan.inactive_tool");
}

#[tokio::test]
async fn a_model_cannot_plan_sub_plans() {
    let reaching = r#"{"tools": [{"id": "x", "plan": "nightly-wipe"}]}"#;
    let (proposed, _) = propose(vec![reply_with(reaching)], 0).await;
    let Err(PlanningError::Invalid { diagnostics, .. }) = proposed else { panic!() };
    assert!(diagnostics.iter().any(Diagnostic::is_error), "{diagnostics:?}");
}

#[tokio::test]
async fn a_truncated_answer_is_requested_in_a_shorter_form() {
    let cut = reply_with(&VALID_PLAN[..40]).map(|note| Reply { stop: Stop::Length, ..note });
    let (proposed, questions) = propose(vec![cut, reply_with(VALID_PLAN)], 1).await;
    assert!(proposed.is_ok());
    let Message::User(complaint) = &questions[1].messages[3] else { panic!() };
    assert!(complaint.contains("the answer was cut off"), "{complaint}");
}

#[tokio::test]
async fn long_texts_in_notes_are_cut() {
    let long = "ä".repeat(MAX_NOTED_BYTES);
    let (proposed, questions) = propose(vec![reply_with(&long), reply_with(VALID_PLAN)], 1).await;
    let text = proposed.unwrap().proposal.notes[1].content["text"].as_str().unwrap().to_owned();
    assert!(
        text.ends_with(&format!("… (cut: {MAX_NOTED_BYTES} of {} bytes)", 2 * MAX_NOTED_BYTES))
    );
    let Message::Assistant { text, .. } = &questions[1].messages[2] else { panic!() };
    assert_eq!(text.len(), MAX_REPEATED_BYTES);
}

#[tokio::test]
async fn an_impossible_request_returns_the_models_reason() {
    let (proposed, _) =
        propose(vec![reply_with(r#"{"impossible": "nothing sends mail"}"#)], 3).await;
    let Err(PlanningError::NoPlan { message, notes, .. }) = proposed else { panic!() };
    assert_eq!(message, "no plan for `create Al`: nothing sends mail");
    assert_eq!(note_kinds(&notes), ["prompt", "reply", "usage"]);
    let (proposed, _) =
        propose(vec![reply_with(r#"{"tools": [], "reason": "I may not"}"#)], 3).await;
    assert_eq!(proposed.unwrap_err().to_string(), "no plan for `create Al`: I may not");
}

#[tokio::test]
async fn an_answer_in_words_is_quoted_in_the_error() {
    let words = "I am sorry,\nbut no tool sends mail.";
    for (answers, repairs, questions) in [
        (vec![reply_with(words)], 0, 1),
        (vec![reply_with("Let me think."), reply_with(words), reply_with(VALID_PLAN)], 3, 2),
        (vec![reply_with(UNKNOWN_TOOL_PLAN), reply_with(words)], 1, 2),
    ] {
        let (proposed, asked_questions) = propose(answers, repairs).await;
        let Err(PlanningError::NoPlan { message, .. }) = proposed else { panic!("{proposed:?}") };
        let quoted = "`I am sorry, but no tool sends mail.`";
        assert_eq!(
            message,
            format!("no plan for `create Al`: the model answers in words: {quoted}")
        );
        assert_eq!(asked_questions.len(), questions);
    }
    let (proposed, _) = propose(vec![reply_with(&"no ".repeat(10_000))], 0).await;
    let message = proposed.unwrap_err().to_string();
    assert!(message.len() < 1_000 && message.ends_with("…`"), "{message}");
}

#[tokio::test]
async fn a_plan_names_the_fallback_model_that_wrote_it() {
    let second = reply_with(VALID_PLAN).map(|reply| Reply { model: "second".to_owned(), ..reply });
    let (proposed, _) = propose(vec![reply_with(UNKNOWN_TOOL_PLAN), second], 1).await;
    let ProposedPlan { compiled, proposal } = proposed.unwrap();
    assert_eq!(proposal.author.as_deref(), Some("second"));
    assert_eq!(compiled.plan.info().planner, "second");
}

#[tokio::test]
async fn a_draft_with_an_unknown_field_goes_back_to_the_model() {
    let bad = r#"{"tools": [{"name": "listAuthors", "retry": {"attempts": 2}}]}"#;
    let (proposed, questions) = propose(vec![reply_with(bad), reply_with(VALID_PLAN)], 1).await;
    assert_eq!(proposed.unwrap().proposal.draft.tools[0].name.as_deref(), Some("createAuthor"));
    assert_eq!(questions.len(), 2);
}

#[tokio::test]
async fn a_model_without_an_answer_is_reported_as_unavailable() {
    let (proposed, _) = propose(vec![reply_with(UNKNOWN_TOOL_PLAN), busy(None)], 3).await;
    let Err(PlanningError::Unavailable { message, notes }) = proposed else { panic!() };
    assert!(message.contains("the model `scripted` is not available: busy"), "{message}");
    assert_eq!(note_kinds(&notes), ["prompt", "reply", "repair", "prompt", "usage"]);
}

#[tokio::test]
async fn no_model_is_asked_without_tools() {
    let model = Arc::new(Scripted::new(vec![reply_with(VALID_PLAN)]));
    let planner = ModelPlanner::new(Arc::clone(&model) as _, 3);
    let proposed = planner.plan("x", &Catalog::default(), &TestCompiler).await;
    assert!(matches!(proposed, Err(PlanningError::NoPlan { .. })));
    assert!(model.asked().is_empty());
}
