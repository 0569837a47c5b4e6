//! Plans without a model: by the words of a query and of the tools' names, descriptions and
//! schemas. The same query over the same tools gives the same plan.
//!
//! For each clause of the query, the tools whose verbs fit are tried ([`plan`]). The words of the
//! clause are given to the slots by one assignment ([`fill`]) that maximises a sum of weights
//! ([`weights`]).

mod clause;
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
    Note, PlanCompiler, Planner, PlanningError, Proposal, ProposedPlan,
    catalog::Catalog,
    draft::Draft,
    replan::{Detour, EarlierPlan, find_detour},
};
use serde_json::json;
use shared::{condition::COMPUTE, limits, tool::ToolDefinition};
use tokio::sync::Semaphore;

pub use self::weights::Weights;
pub use self::wording::{Standing, Wording};
use self::{
    plan::{Planning, PlanningResult},
    refusal::Refusal,
    token::Token,
    tool::Tool,
};

const PLANNING_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_RUNNING_QUERIES: usize = 4;
const MAX_CATALOGS: usize = 4;
const MAX_TOKENS: usize = 2_000;

const EMPTY_QUERY_REASON: &str =
    "the query asks for nothing: say what to do, such as `list all …` or `create …`";
const NO_TOOLS_REASON: &str =
    "there are no tools to plan with: register a toolset, or switch one on";
const WRONG_LANGUAGE_REASON: &str = "the offline planner reads English only: say it in English, or configure a model (`planner` in the configuration)";

#[derive(Clone, Debug, Default)]
pub struct Offline {
    parsed_catalogs: ParsedCatalogs,
    weights: Weights,
}

impl Offline {
    #[must_use]
    pub fn with_weights(self, weights: Weights) -> Self {
        Self { weights, ..self }
    }

    pub async fn propose(
        &self,
        query: &str,
        catalog: &Catalog,
        chain_catalog: &Catalog,
    ) -> Result<Proposal, PlanningError> {
        static PERMITS: LazyLock<Arc<Semaphore>> =
            LazyLock::new(|| Arc::new(Semaphore::new(MAX_RUNNING_QUERIES)));
        let (query, planner) = (query.to_owned(), self.clone());
        let (catalog, chain_catalog) = (catalog.clone(), chain_catalog.clone());
        let work = async {
            let permit = Arc::clone(&PERMITS).acquire_owned().await.ok();
            tokio::task::spawn_blocking(move || {
                let _permit = permit;
                planner.propose_within(&query, &catalog, &chain_catalog)
            })
            .await
        };
        let message = match tokio::time::timeout(PLANNING_TIMEOUT, work).await {
            Ok(Ok(done)) => return done,
            Ok(Err(err)) => format!("planning failed: {err}"),
            Err(_) => format!(
                "planning took longer than {} s: use fewer words, or split the query",
                PLANNING_TIMEOUT.as_secs()
            ),
        };
        Err(PlanningError::Unavailable { message, notes: Vec::new() })
    }

    /// Proposes a draft on the thread of the caller. The error explains why there is no draft.
    pub fn propose_blocking(
        &self,
        query: &str,
        catalog: &Catalog,
    ) -> Result<Proposal, PlanningError> {
        self.propose_within(query, catalog, catalog)
    }

    /// Proposes a draft that calls tools of `catalog`. If these cannot answer the query, a chain of
    /// tools of `chain_catalog` that only read may answer it.
    pub fn propose_within(
        &self,
        query: &str,
        catalog: &Catalog,
        chain_catalog: &Catalog,
    ) -> Result<Proposal, PlanningError> {
        let tools = self.parsed_catalogs.tools_of(catalog);
        let english = lexicon::english();
        let mut planning = Planning::new(query, english, &tools, &self.weights);
        planning.chain_catalog = Some(chain_catalog);
        let planned = check_limits(query, &tools).and_then(|mut tokens| {
            let known = tools.iter().flat_map(Tool::words).cloned().collect();
            english.correct_words(&mut tokens, &known);
            let is_english = english.knows_enough_words(&tokens, &known);
            planning.plan(&tokens).map_err(|refusal| {
                if is_english { refusal } else { Refusal::new(WRONG_LANGUAGE_REASON) }
            })
        });
        let PlanningResult { steps, doubts, candidates, clauses } = planning.planned;
        let note = |kind, content| Note { kind, content, after: Duration::ZERO };
        let notes = if candidates.is_empty() {
            Vec::new()
        } else {
            vec![note("clauses", json!(clauses)), note("candidates", json!(candidates))]
        };
        match planned {
            Ok(()) => {
                let query = Some(query.to_owned());
                Ok(Proposal {
                    draft: Draft { query, tools: steps, ..Draft::default() },
                    notes,
                    warnings: doubts,
                    author: None,
                })
            }
            Err(refusal) => Err(PlanningError::NoPlan {
                message: refusal.message,
                nearest: refusal.nearest_tool.into_iter().collect(),
                is_certain: refusal.is_certain,
                notes,
            }),
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
        self.plan_within(query, catalog, catalog, compiler).await
    }

    async fn plan_within(
        &self,
        query: &str,
        catalog: &Catalog,
        chain_catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        self.propose(query, catalog, chain_catalog).await?.compile(self.name(), compiler).await
    }

    /// Replaces the steps that failed by other steps. The words of the query are not read again,
    /// because they could then mean other calls with an effect.
    async fn replan(
        &self,
        _query: &str,
        earlier: &EarlierPlan,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        let Detour { draft, warnings } = find_detour(earlier, catalog).map_err(|why| {
            let message = format!("no other way is known: {why}");
            let (nearest, notes) = (Vec::new(), Vec::new());
            PlanningError::NoPlan { message, nearest, is_certain: false, notes }
        })?;
        let proposal = Proposal { draft, notes: Vec::new(), warnings, author: None };
        proposal.compile(self.name(), compiler).await
    }
}

fn check_limits(query: &str, tools: &[Tool]) -> Result<Vec<Token>, Refusal> {
    let (count, most) = (query.len(), limits::QUERY_BYTES);
    if count > most {
        let message = format!("the query has {count} bytes; the limit is {most}: use fewer words");
        return Err(Refusal::new(message));
    }
    if tools.is_empty() {
        return Err(Refusal::new(NO_TOOLS_REASON));
    }
    let tokens = token::unquoted_tokens(query);
    match tokens.len() {
        0 => Err(Refusal::new(EMPTY_QUERY_REASON)),
        1..=MAX_TOKENS => Ok(tokens),
        count => Err(Refusal::too_many_words(count, MAX_TOKENS)),
    }
}

#[derive(Clone, Debug, Default)]
struct ParsedCatalogs(Arc<Mutex<VecDeque<ReadCatalog>>>);

type ReadCatalog = (Catalog, Arc<Vec<Tool>>);

impl ParsedCatalogs {
    fn tools_of(&self, catalog: &Catalog) -> Arc<Vec<Tool>> {
        let recent = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tools)) = recent().iter().find(|(known, _)| known.is_same(catalog)) {
            return Arc::clone(tools);
        }
        let tools = Arc::new(read_tools(catalog));
        let mut recent = recent();
        recent.push_front((catalog.clone(), Arc::clone(&tools)));
        recent.truncate(MAX_CATALOGS);
        tools
    }
}

/// Reads every tool that can be planned from words. A plain name is used where it is unique.
fn read_tools(catalog: &Catalog) -> Vec<Tool> {
    let tools = catalog.list_plannable().filter(|tool| tool.qualified_name().as_str() != COMPUTE);
    tools.map(|tool| Tool::read(tool, plan_name(catalog, tool), lexicon::english())).collect()
}

fn plan_name(catalog: &Catalog, tool: &ToolDefinition) -> String {
    let plain = tool.name.as_str();
    let is_plain = catalog.find(plain).is_some_and(|found| found.definition.set == tool.set);
    if is_plain { plain.to_owned() } else { tool.qualified_name().to_string() }
}
