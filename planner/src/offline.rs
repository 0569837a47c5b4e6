//! Plans without a model: by the words of a query and of the tools' names, descriptions and
//! schemas, the same way every time.
//!
//! First by grammar: a query is cut into clauses ([`clause`]); each clause's tool is chosen by words
//! ([`choose`]); the tool's parameters are filled from the clause ([`scan`], [`cue`], [`value`],
//! [`fill`]), with what earlier clauses made where it speaks of that ([`memory`]). Whatever is not
//! understood is said ([`explain`]); what is derived by a rule is said too, as a warning.
//!
//! Where that gives no plan, by evidence ([`broad`]): every tool is read as slots ([`slot`],
//! [`describe`]), every text as spans that may be values ([`span`], [`amount`], [`when`], [`mod@unit`]);
//! how well each span fits each slot is a number ([`fit`]), the best together are taken
//! ([`assign`]), and what is said several times makes several calls ([`repeat`]). What that is not
//! sure enough of is refused.

mod amount;
mod assign;
mod bracket;
mod broad;
mod choose;
mod clause;
mod cue;
mod derive;
mod describe;
mod explain;
mod fill;
mod fit;
mod memory;
mod phrase;
mod planning;
mod profile;
mod property;
mod reference;
mod repeat;
mod scan;
mod several;
mod slot;
mod span;
#[cfg(test)]
mod tests;
mod token;
mod unit;
mod value;
mod when;
mod words;

use std::sync::Arc;

use async_trait::async_trait;
use shared::limits;

use self::{
    broad::Broad,
    planning::Planning,
    profile::{Profile, Vocabulary},
};
use crate::{
    Planner, PlanningError, Proposal,
    catalog::Catalog,
    embed::Embedder,
    select::{Ask, Criterion, Selector, Tools},
};

/// The planner that needs no model.
#[derive(Clone, Debug, Default)]
pub struct Offline {
    /// What knows which tools mean nearly the same as a query.
    selector: Option<Arc<Selector>>,
}

impl Offline {
    /// Makes a planner that lets the meaning of words have a say in the choice of tools.
    pub fn with(embedder: Arc<dyn Embedder>) -> Self {
        Self { selector: Some(Arc::new(Selector::new(Some(embedder)))) }
    }

    /// Returns how near every tool that can be planned is to a query, where that can be known.
    async fn meaning(&self, query: &str, catalog: &Catalog) -> Option<Vec<f32>> {
        let selector = self.selector.as_ref()?;
        let tools: Tools = catalog.plannable().cloned().collect();
        let limit = tools.len();
        if limit < 2 || query.len() > limits::QUERY_BYTES {
            return None;
        }
        let ask = Ask { query, by: Criterion::Description, limit, margin: 0.0, taught: None };
        let selection = selector.select(&tools, &ask, |_| true).await.ok()?;
        let mut near = vec![0.0; limit];
        for found in selection.matches {
            #[expect(clippy::cast_possible_truncation, reason = "a cosine needs no more")]
            let score = found.score as f32;
            near[found.at] = score;
        }
        Some(near)
    }
}

#[async_trait]
impl Planner for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    async fn propose(&self, query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
        let meaning = self.meaning(query, catalog).await;
        propose_with(query, catalog, meaning.as_deref())
    }
}

/// Proposes a draft for `query` that uses tools of `catalog`, or says why not.
pub fn propose(query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
    propose_with(query, catalog, None)
}

/// The same, with how near the tools are that can be planned, by somebody who knows.
fn propose_with(
    query: &str,
    catalog: &Catalog,
    meaning: Option<&[f32]>,
) -> Result<Proposal, PlanningError> {
    if query.len() > limits::QUERY_BYTES {
        return refuse(format!(
            "the query has {} bytes, but {} is the most: say it in fewer words",
            query.len(),
            limits::QUERY_BYTES
        ));
    }
    let asked = query;
    let query = unquoted(query);
    let Read { profiles, vocabulary } = catalog.read(Read::of);
    if profiles.is_empty() {
        return refuse(
            "there are no tools to plan with: register a toolset, or switch one on".to_owned(),
        );
    }
    let tokens = token::tokens(query);
    let clauses = clause::clauses(&tokens, vocabulary);
    if clauses.is_empty() {
        return refuse(
            "the query asks for nothing: say what to do, such as `list all …` or `create …`"
                .to_owned(),
        );
    }
    if clauses.len() > clause::CLAUSES {
        return refuse(format!(
            "the query has {} clauses, but {} is the most: split it",
            clauses.len(),
            clause::CLAUSES
        ));
    }
    let mut planning = Planning::new(query, profiles, vocabulary);
    for clause in clauses {
        planning.clause(clause);
    }
    let broad = Broad { query, tokens: &tokens, profiles, vocabulary, meaning };
    let found = if planning.is_certain() { None } else { by_evidence(&broad, &planning) };
    let mut proposal = found.unwrap_or(planning).finish()?;
    proposal.draft.query = Some(asked.to_owned());
    Ok(proposal)
}

/// Returns a query without quotation marks around all of it.
fn unquoted(query: &str) -> &str {
    let trimmed = query.trim();
    let inner = trimmed.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.filter(|it| it.contains(' ') && it.matches('"').count() % 2 == 0).unwrap_or(query)
}

/// Plans by what words may be worth, where that is sure enough.
fn by_evidence<'a>(broad: &Broad<'a>, strict: &Planning<'a>) -> Option<Planning<'a>> {
    let mut planning = Planning::new(broad.query, broad.profiles, broad.vocabulary);
    let parts = broad.parts();
    for part in &parts {
        planning.part(broad, part);
    }
    planning.is_likely(broad, &parts, strict).then_some(planning)
}

fn refuse(message: String) -> Result<Proposal, PlanningError> {
    Err(PlanningError::NoPlan { message, nearest: Vec::new(), notes: Vec::new() })
}

/// What this planner makes of the tools of a catalog: much work where they are thousands, and the
/// same for every query.
#[derive(Debug)]
pub(crate) struct Read {
    profiles: Vec<Profile>,
    vocabulary: Vocabulary,
}

impl Read {
    fn of(catalog: &Catalog) -> Self {
        let profiles = profiles(catalog);
        let vocabulary = Vocabulary::of(&profiles);
        Self { profiles, vocabulary }
    }
}

/// Reads every tool that can be planned; a plain name is used where it means that very tool.
fn profiles(catalog: &Catalog) -> Vec<Profile> {
    let is_plain = |tool: &shared::tool::ToolDefinition| {
        catalog.find(tool.name.as_str()).is_some_and(|it| it.definition.set == tool.set)
    };
    catalog
        .plannable()
        .map(|tool| {
            let name = if is_plain(tool) {
                tool.name.as_str().to_owned()
            } else {
                tool.qualified().as_str().to_owned()
            };
            Profile::read(tool, name)
        })
        .collect()
}
