//! Plans without a model: by the words of a query and of the tools' names, descriptions and schemas.
//!
//! The same query over the same tools gives the same plan. A query is cut into tokens ([`token`])
//! and clauses with moods ([`clause`]). Every tool is read once: its verb, its nouns, its slots for
//! values and its outputs ([`tool`]). For each clause, the tools whose verbs fit are tried
//! ([`plan`]): the words of the clause are given to the slots by one assignment ([`fill`]) that
//! maximises a sum of weights ([`weights`]). Words such as `its title` refer to outputs of earlier
//! steps ([`memory`]), and conditions become expressions ([`condition`]).
//!
//! Words without a place and guessed values are doubts: warnings, with which a step that acts needs
//! approval. A query is refused only if it orders nothing, if a required value is missing, or if no
//! tool fits ([`refusal`]). All words come from one file ([`lexicon`]).

mod clause;
mod condition;
mod fill;
mod lexicon;
mod memory;
mod moment;
mod plan;
mod refusal;
#[cfg(test)]
mod tests;
mod token;
mod tool;
mod weights;
mod wording;

use std::{
    collections::VecDeque,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use planner::{
    Note, PlanCompiler, Planner, PlanningError, Proposal, ProposedPlan, catalog::Catalog,
    draft::Draft,
};
use serde_json::json;
use shared::{condition::COMPUTE, limits, tool::ToolDefinition};
use tokio::sync::Semaphore;

pub use self::wording::{Standing, Wording};
use self::{
    plan::Planning,
    tool::Tool,
    weights::{WEIGHTS, Weights},
};

/// The time that planning may take, with the wait for its turn.
const DEADLINE: Duration = Duration::from_secs(5);
/// Queries that are planned at the same time.
const AT_ONCE: usize = 4;
/// Catalogs whose tools stay read.
const CATALOGS: usize = 4;
/// Words and marks that a query may have.
const TOKENS: usize = 2_000;

/// The planner that needs no model.
#[derive(Clone, Debug, Default)]
pub struct Offline {
    readings: Readings,
}

impl Offline {
    /// Proposes a draft for `query` that uses tools of `catalog`.
    ///
    /// The work runs beside the runtime, because it takes milliseconds of a core.
    pub async fn propose(&self, query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
        static PERMITS: LazyLock<Arc<Semaphore>> =
            LazyLock::new(|| Arc::new(Semaphore::new(AT_ONCE)));
        let (query, catalog, readings) = (query.to_owned(), catalog.clone(), self.readings.clone());
        let work = async {
            let permit = Arc::clone(&PERMITS).acquire_owned().await.ok();
            tokio::task::spawn_blocking(move || {
                let _permit = permit;
                propose_with(&query, &catalog, &readings, &WEIGHTS)
            })
            .await
        };
        let unavailable =
            |message: String| PlanningError::Unavailable { message, notes: Vec::new() };
        match tokio::time::timeout(DEADLINE, work).await {
            Ok(Ok(done)) => done,
            Ok(Err(err)) => Err(unavailable(format!("planning failed: {err}"))),
            Err(_) => Err(unavailable(format!(
                "planning took longer than {} s: use fewer words, or split the query",
                DEADLINE.as_secs()
            ))),
        }
    }
}

#[async_trait]
impl Planner for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    async fn plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        self.propose(query, catalog).await?.compile(self.name(), compiler).await
    }
}

/// Proposes a draft for `query` that uses tools of `catalog`, or says why not.
pub fn propose(query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
    propose_with(query, catalog, &Readings::default(), &WEIGHTS)
}

fn propose_with(
    query: &str,
    catalog: &Catalog,
    readings: &Readings,
    weights: &Weights,
) -> Result<Proposal, PlanningError> {
    if query.len() > limits::QUERY_BYTES {
        return refuse(format!(
            "the query has {} bytes, but {} is the most: use fewer words",
            query.len(),
            limits::QUERY_BYTES
        ));
    }
    let asked = query;
    let query = unquoted(query);
    let tools = readings.of(catalog);
    if tools.is_empty() {
        return refuse(
            "there are no tools to plan with: register a toolset, or switch one on".to_owned(),
        );
    }
    let mut tokens = token::tokens(query);
    if tokens.len() > TOKENS {
        return refuse(format!(
            "the query has {} words and marks, but {TOKENS} is the most: split it",
            tokens.len()
        ));
    }
    if tokens.is_empty() {
        return refuse(
            "the query asks for nothing: say what to do, such as `list all …` or `create …`"
                .to_owned(),
        );
    }
    let known = tools.iter().flat_map(Tool::words).cloned().collect();
    lexicon::english().correct(&mut tokens, &known);
    let planning = Planning::new(query, lexicon::english(), &tools, weights);
    match planning.plan(&tokens) {
        Ok(planned) => {
            let note = |kind, content| Note { kind, content, after: Duration::ZERO };
            Ok(Proposal {
                draft: Draft {
                    query: Some(asked.to_owned()),
                    tools: planned.steps,
                    ..Draft::default()
                },
                notes: vec![
                    note("clauses", json!(planned.clauses)),
                    note("candidates", json!(planned.candidates)),
                ],
                warnings: planned.doubts,
                author: None,
            })
        }
        Err(refusal) => {
            let nearest = refusal.tool().into_iter().collect();
            Err(PlanningError::NoPlan { message: refusal.message(), nearest, notes: Vec::new() })
        }
    }
}

/// Returns a query without quotation marks around all of it.
fn unquoted(query: &str) -> &str {
    let inner = query.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner
        .filter(|inner| inner.contains(' ') && inner.matches('"').count() % 2 == 0)
        .unwrap_or(query)
}

fn refuse<T>(message: String) -> Result<T, PlanningError> {
    Err(PlanningError::NoPlan { message, nearest: Vec::new(), notes: Vec::new() })
}

/// The tools of recent catalogs, read once for all queries over the same catalog.
#[derive(Clone, Debug, Default)]
struct Readings(Arc<Mutex<VecDeque<(Catalog, Arc<Vec<Tool>>)>>>);

impl Readings {
    fn of(&self, catalog: &Catalog) -> Arc<Vec<Tool>> {
        let recent = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tools)) = recent().iter().find(|(known, _)| known.is_same(catalog)) {
            return Arc::clone(tools);
        }
        let tools = Arc::new(read_tools(catalog));
        let mut recent = recent();
        recent.push_front((catalog.clone(), Arc::clone(&tools)));
        recent.truncate(CATALOGS);
        tools
    }
}

/// Reads every tool that can be planned from words. A plain name is used where it is unique.
fn read_tools(catalog: &Catalog) -> Vec<Tool> {
    let is_plain = |tool: &ToolDefinition| {
        catalog.find(tool.name.as_str()).is_some_and(|found| found.definition.set == tool.set)
    };
    // Nobody says an expression in words.
    let tools = catalog.plannable().filter(|tool| tool.qualified_name().as_str() != COMPUTE);
    tools
        .map(|tool| {
            let name = if is_plain(tool) {
                tool.name.as_str().to_owned()
            } else {
                tool.qualified_name().as_str().to_owned()
            };
            Tool::read(tool, name, lexicon::english())
        })
        .collect()
}
