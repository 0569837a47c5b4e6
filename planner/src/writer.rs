//! The model planner: asks a language model for a draft and lets it repair the draft until it
//! compiles.

mod grammar;
mod prompt;
mod reading;
#[cfg(test)]
pub(crate) mod tests;
mod tool_lines;

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::{diagnostic::Diagnostic, limits};
use tokio::time::Instant;

use self::reading::ParsedAnswer;
use crate::{
    Hint, Note, PlanCompiler, Planner, PlanningError, Proposal, ProposedPlan, Rejection,
    catalog::Catalog,
    compile::Compiled,
    draft::{Draft, SubDraft},
    model::{
        AnswerForm, Message, Model, ModelError, Question, Reply, Settings, Stop, Tokens, sum_costs,
    },
    replan::EarlierPlan,
};

pub const DEFAULT_REPAIRS: u32 = 3;
/// Maximum number of repairs. Each repair is a question, and models do not improve after a few.
pub const MAX_REPAIRS: u32 = 10;
/// Maximum number of bytes of an answer that are sent back to its model.
const MAX_REPEATED_BYTES: usize = 64 << 10;
const MAX_QUOTED_QUERY_BYTES: usize = 200;
const MAX_QUOTED_ANSWER_BYTES: usize = 500;
/// Maximum number of bytes of a message in a note, because notes are stored with their request.
const MAX_NOTED_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub struct ModelPlanner {
    model: Arc<dyn Model>,
    name: String,
    max_repairs: u32,
}

struct WriterRounds<'a> {
    earlier: Option<&'a EarlierPlan>,
    form: AnswerForm,
    messages: Vec<Message>,
    noted_count: usize,
    notes: Vec<Note>,
    tokens: Tokens,
    costs: Vec<Option<f64>>,
    author: Option<String>,
    started_at: Instant,
}

impl ModelPlanner {
    pub fn new(model: Arc<dyn Model>, max_repairs: u32) -> Self {
        let name = model.name().to_owned();
        Self { model, name, max_repairs }
    }

    pub fn from_settings(settings: &Settings, max_repairs: u32) -> Result<Self, ModelError> {
        Ok(Self::new(settings.build_model()?, max_repairs))
    }

    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    async fn finish_plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
        mut rounds: WriterRounds<'_>,
    ) -> Result<ProposedPlan, PlanningError> {
        let written = self.write_plan(query, catalog, compiler, &mut rounds).await;
        rounds.note_usage();
        let (notes, author) = (rounds.notes, rounds.author);
        match written {
            Ok((draft, plans)) => {
                let proposal = Proposal { draft, notes, warnings: Vec::new(), author };
                Ok(ProposedPlan { compiled: plans, proposal })
            }
            Err(err) => Err(err.with_notes(notes)),
        }
    }

    async fn write_plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
        rounds: &mut WriterRounds<'_>,
    ) -> Result<(Draft, Compiled), PlanningError> {
        let known_plans =
            rounds.earlier.map(|earlier| list_named_plans(&earlier.draft)).unwrap_or_default();
        let mut errors = Vec::new();
        let mut has_declined = false;
        for round in 0..=self.max_repairs {
            let reply = self.ask_model(rounds, round).await?;
            let draft = match reading::read_answer(&reply.text, catalog, &known_plans) {
                Ok(ParsedAnswer::Impossible(reason)) => {
                    return Err(impossible_plan_error(query, &reason));
                }
                // Some models talk before they plan, so only a second answer in words, or a last
                // one, declines the request.
                Ok(ParsedAnswer::Prose(words))
                    if reply.stop != Stop::Length
                        && (has_declined || round == self.max_repairs) =>
                {
                    return Err(declined_plan_error(query, &words));
                }
                Ok(ParsedAnswer::Prose(_)) => {
                    has_declined = true;
                    errors = vec![reading::no_json_error()];
                    None
                }
                Ok(ParsedAnswer::Draft(draft)) => {
                    has_declined = false;
                    match compiler.compile(&draft, &reply.model).await {
                        Ok(plans) => return Ok((*draft, plans)),
                        Err(Rejection::Invalid(diagnostics)) => errors = diagnostics,
                        Err(Rejection::Store(error)) => {
                            return Err(PlanningError::Store { error, notes: Vec::new() });
                        }
                    }
                    Some(*draft)
                }
                Err(diagnostics) => {
                    errors = diagnostics;
                    None
                }
            };
            if reply.stop == Stop::Length && draft.is_none() {
                let message = "the answer was cut off before it was complete";
                let help = "write less: no prose, and no step that is not needed";
                errors = vec![Diagnostic::error("plan.too_large", "", message).with_help(help)];
            }
            rounds.note_repair(round, &errors);
            let complaint = prompt::repair_message(&errors, draft.as_ref(), catalog);
            rounds.add_complaint(reply, complaint);
        }
        Err(PlanningError::Invalid { diagnostics: errors, notes: Vec::new() })
    }

    async fn ask_model(
        &self,
        rounds: &mut WriterRounds<'_>,
        round: u32,
    ) -> Result<Reply, PlanningError> {
        let answer = Some(rounds.form.clone());
        let question = Question { messages: rounds.messages.clone(), tools: Vec::new(), answer };
        rounds.note_prompt(round, self.model.name());
        let started_at = Instant::now();
        let reply = self.model.ask(&question).await.map_err(|err| unavailable_model_error(&err))?;
        rounds.note_reply(round, &reply, started_at);
        Ok(reply)
    }
}

#[async_trait]
impl Planner for ModelPlanner {
    fn name(&self) -> &str {
        &self.name
    }

    async fn plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        self.plan_with_hint(query, None, catalog, compiler).await
    }

    async fn plan_with_hint(
        &self,
        query: &str,
        hint: Option<Hint<'_>>,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        check_query(query, catalog)?;
        let (messages, form) = (
            prompt::first_messages(query, hint, catalog),
            prompt::answer_form(grammar::plan_schema_for_query(query, hint, catalog)),
        );
        let rounds = WriterRounds::new(messages, form, None);
        self.finish_plan(query, catalog, compiler, rounds).await
    }

    async fn replan(
        &self,
        query: &str,
        earlier: &EarlierPlan,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        check_query(query, catalog)?;
        let messages = prompt::replan_messages(query, earlier, catalog);
        let rounds = WriterRounds::new(messages, prompt::replan_form(), Some(earlier));
        self.finish_plan(query, catalog, compiler, rounds).await
    }
}

fn check_query(query: &str, catalog: &Catalog) -> Result<(), PlanningError> {
    if query.len() > limits::QUERY_BYTES {
        let max_bytes = limits::QUERY_BYTES;
        let reason = format!("the query has {} bytes; the limit is {max_bytes}", query.len());
        return Err(no_plan_error(reason));
    }
    if catalog.list_plannable().next().is_none() {
        let reason = "there are no tools to plan with: register a toolset, or switch one on";
        return Err(no_plan_error(reason.to_owned()));
    }
    Ok(())
}

impl<'a> WriterRounds<'a> {
    fn new(messages: Vec<Message>, form: AnswerForm, earlier: Option<&'a EarlierPlan>) -> Self {
        Self {
            earlier,
            form,
            messages,
            noted_count: 0,
            notes: Vec::new(),
            tokens: Tokens::default(),
            costs: Vec::new(),
            author: None,
            started_at: Instant::now(),
        }
    }

    fn add_note(&mut self, kind: &'static str, content: Value) {
        self.notes.push(Note { kind, content, after: self.started_at.elapsed() });
    }

    fn note_prompt(&mut self, round: u32, model: &str) {
        let new: Vec<Value> =
            self.messages[self.noted_count..].iter().map(describe_message).collect();
        self.noted_count = self.messages.len();
        self.add_note("prompt", json!({ "round": round, "model": model, "messages": new }));
    }

    fn note_reply(&mut self, round: u32, reply: &Reply, started_at: Instant) {
        self.tokens += reply.tokens;
        self.costs.push(reply.cost);
        self.author = Some(reply.model.clone());
        let mut content = json!({
            "round": round,
            "model": reply.model,
            "text": shorten_note(&reply.text),
            "stop": reply.stop,
            "tokens": reply.tokens,
            "ms": milliseconds_since(started_at),
        });
        if let Some(cost) = reply.cost {
            content["cost"] = json!(cost);
        }
        if !reply.missed.is_empty() {
            content["missed"] = reply.missed.iter().map(ToString::to_string).collect();
        }
        self.add_note("reply", content);
    }

    fn note_repair(&mut self, round: u32, errors: &[Diagnostic]) {
        self.add_note("repair", json!({ "round": round, "diagnostics": errors }));
    }

    fn add_complaint(&mut self, reply: Reply, complaint: String) {
        let mut text = reply.text;
        let end = text.floor_char_boundary(MAX_REPEATED_BYTES);
        text.truncate(end);
        self.messages.push(Message::Assistant { text, calls: Vec::new() });
        // Skips the answer when the next prompt is noted, because the notes contain the answer
        // already.
        self.noted_count = self.messages.len();
        self.messages.push(Message::User(complaint));
    }

    fn note_usage(&mut self) {
        let rounds = self.notes.iter().filter(|note| note.kind == "prompt").count();
        let (tokens, duration) = (self.tokens, milliseconds_since(self.started_at));
        let mut content = json!({ "rounds": rounds, "tokens": tokens, "ms": duration });
        if let Some(cost) = sum_costs(std::mem::take(&mut self.costs)) {
            content["cost"] = json!(cost);
        }
        self.add_note("usage", content);
    }
}

fn milliseconds_since(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

fn describe_message(message: &Message) -> Value {
    let (role, text) = match message {
        Message::System(text) => ("system", text.as_str()),
        Message::User(text) => ("user", text.as_str()),
        Message::Assistant { text, .. } => ("assistant", text.as_str()),
        Message::Results(_) => ("tool", ""),
    };
    json!({ "role": role, "content": shorten_note(text) })
}

fn shorten_note(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_NOTED_BYTES {
        return text.into();
    }
    let end = text.floor_char_boundary(MAX_NOTED_BYTES);
    format!("{}… (cut: {end} of {} bytes)", &text[..end], text.len()).into()
}

fn list_named_plans(draft: &Draft) -> BTreeSet<&str> {
    let named = draft.tools.iter().filter_map(|step| match &step.plan {
        Some(SubDraft::Named(name)) => Some(name.as_str()),
        _ => None,
    });
    named.collect()
}

fn no_plan_error(message: String) -> PlanningError {
    let (nearest, notes) = (Vec::new(), Vec::new());
    PlanningError::NoPlan { message, nearest, is_certain: false, notes }
}

fn impossible_plan_error(query: &str, reason: &str) -> PlanningError {
    no_plan_error(format!(
        "no plan for `{}`: {reason}",
        shorten_text(query, MAX_QUOTED_QUERY_BYTES)
    ))
}

fn declined_plan_error(query: &str, words: &str) -> PlanningError {
    let reply = words.rsplit("</think>").next().unwrap_or(words);
    let words = reply.split_whitespace().collect::<Vec<_>>().join(" ");
    let (query, words) = (
        shorten_text(query, MAX_QUOTED_QUERY_BYTES),
        shorten_text(&words, MAX_QUOTED_ANSWER_BYTES),
    );
    no_plan_error(format!("no plan for `{query}`: the model answers in words: `{words}`"))
}

fn shorten_text(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let end = text.floor_char_boundary(max_bytes);
    if end == text.len() { text.into() } else { format!("{}…", &text[..end]).into() }
}

fn unavailable_model_error(err: &ModelError) -> PlanningError {
    PlanningError::Unavailable {
        message: format!("{err}; `planner: offline` plans without a model"),
        notes: Vec::new(),
    }
}
