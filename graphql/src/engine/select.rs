//! Chooses tools for a query, and says which are wanted by the same sentences.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use executor::toolbox::{Listing, ToolSet};
use planner::select::{Ask, Criterion, MARGIN, SelectError, Selector, Similarity};
use shared::{limits, tool::ToolDefinition};

use super::{Engine, EngineError};

/// The most tools that one selection returns.
pub const SELECTED: usize = 1_000;

/// How tools are chosen.
#[derive(Clone, Debug)]
pub(super) struct Choosing {
    margin: f64,
    /// What chooses from all tools by their words: nobody waits for a model that has no say.
    words: Arc<Selector>,
    /// What does so from those that can be planned.
    pub(super) planning_words: Arc<Selector>,
    selectors: Arc<Mutex<Option<Selectors>>>,
}

/// What chooses with one model.
#[derive(Clone, Debug)]
pub(super) struct Selectors {
    /// The model, where there is one.
    model: Option<String>,
    /// What chooses from all tools.
    every: Arc<Selector>,
    /// What chooses from those that can be planned: another list, so that neither forgets its own.
    pub(super) planning: Arc<Selector>,
}

impl Default for Choosing {
    fn default() -> Self {
        let words = || Arc::new(Selector::new(None));
        Self { margin: MARGIN, words: words(), planning_words: words(), selectors: Arc::default() }
    }
}

/// A tool that was chosen.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// What it is.
    pub tool: Arc<ToolDefinition>,
    /// Its set.
    pub set: ToolSet,
    /// How well it fits.
    pub score: f64,
    /// Whether it fits well enough.
    pub is_hit: bool,
    /// The cosine of its least similar example to the centroid, where that was looked at.
    pub least_similar: Option<f64>,
    /// That example.
    pub least_similar_example: Option<String>,
    /// What executions have taught of it for such queries, from -1 to 1.
    pub learned: Option<f64>,
}

/// Two tools that are wanted by the same sentences.
#[derive(Clone, Debug, PartialEq)]
pub struct Colliding {
    /// The earlier tool.
    pub a: String,
    /// The later one.
    pub b: String,
    /// How similar their centroids are.
    pub similarity: f64,
}

/// Which tools are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted<'a> {
    /// What for, in words.
    pub query: &'a str,
    /// By what they are chosen.
    pub by: Criterion,
    /// At most so many.
    pub limit: usize,
    /// Only those whose sets are switched on.
    pub active_only: bool,
}

impl Engine {
    /// Returns an engine that takes for a hit what is nearer than the least similar example by this
    /// margin.
    #[must_use]
    pub fn with_margin(self, margin: f64) -> Self {
        Self { choosing: Choosing { margin, ..self.choosing.clone() }, ..self }
    }

    /// Returns what chooses tools with the model that is used now.
    pub(super) async fn selectors(&self) -> Selectors {
        let choice = self.embedders.choose().await;
        let model = choice.embedding.as_ref().map(|it| it.texts.model().to_owned());
        let mut held = self.choosing.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some(selectors) if selectors.model == model => selectors.clone(),
            _ => {
                let embedding = choice.embedding.as_ref();
                let new =
                    || Arc::new(embedding.map_or_else(|| Selector::new(None), Selector::with));
                let selectors = Selectors { model, every: new(), planning: new() };
                *held = Some(selectors.clone());
                selectors
            }
        }
    }

    /// Says why nothing was chosen; an embedder that failed is not trusted any more.
    async fn unchosen(&self, err: SelectError) -> EngineError {
        if matches!(err, SelectError::Embed(_)) {
            self.embedders.forget().await;
        }
        let mut err = EngineError::from(err);
        if let EngineError::PlannerUnavailable { message, .. } = &mut err {
            for it in &self.embedders.choose().await.passed_over {
                let _ = write!(message, "; {}: {}", it.source, it.why);
            }
        }
        err
    }

    /// Chooses the tools that a query needs, the best first.
    pub async fn select_tools(&self, wanted: Wanted<'_>) -> Result<Vec<Chosen>, EngineError> {
        check(wanted.query)?;
        self.settled().await;
        let listing = self.toolbox.listing();
        let selector = match wanted.by {
            Criterion::Lexical => Arc::clone(&self.choosing.words),
            _ => self.selectors().await.every,
        };
        let Wanted { query, by, limit, active_only } = wanted;
        let lessons = if by == Criterion::Hybrid { self.taught().await } else { None };
        let taught = lessons.as_deref().map(|it| (&it.outcomes, self.clock.now()));
        let (limit, margin) = (limit.min(SELECTED), self.choosing.margin);
        let ask = Ask { query, by, limit, margin, taught };
        let may = self.allowed(&listing);
        let may = |at| (!active_only || listing.set(at).is_active) && may(at);
        let selected = selector.select(listing.definitions(), &ask, may).await;
        let selected = match selected {
            Ok(selected) => selected,
            Err(err) => return Err(self.unchosen(err).await),
        };
        if selected.without_meaning.is_some() {
            self.embedders.forget().await;
        }
        let matches = selected.matches.into_iter();
        Ok(matches
            .map(|it| Chosen {
                tool: Arc::clone(&listing.definitions()[it.at]),
                set: listing.set(it.at).clone(),
                score: it.score,
                is_hit: it.is_hit,
                least_similar: it.least_similar,
                least_similar_example: it.least_similar_example,
                learned: it.learned,
            })
            .collect())
    }

    /// Returns every pair of tools that the same sentences want, in the order of the tools.
    pub async fn tool_collisions(
        &self,
        similarity: Similarity,
        threshold: f64,
    ) -> Result<Vec<Colliding>, EngineError> {
        self.settled().await;
        let listing = self.toolbox.listing();
        let rows = match self.selectors().await.every.centroids(listing.definitions()).await {
            Ok(rows) => rows,
            Err(err) => return Err(self.unchosen(err).await),
        };
        let engine = self.clone();
        let compared = tokio::task::spawn_blocking(move || {
            let pairs = rows.collisions(similarity, threshold, engine.allowed(&listing));
            let pairs = pairs.map_err(SelectError::from)?;
            let name = |at| listing.name(at);
            let named = pairs.into_iter().map(|it| Colliding {
                a: name(it.a),
                b: name(it.b),
                similarity: it.similarity,
            });
            Ok(named.collect())
        });
        let ending = |_| EngineError::Conflict("the process is about to end".to_owned());
        compared.await.map_err(ending)?
    }

    /// Returns whether whoever asks may use the tool at a place.
    pub(super) fn allowed<'a>(&'a self, listing: &'a Listing) -> impl Fn(usize) -> bool + 'a {
        let every = self.grant.allows_every_tool();
        move |at| every || self.grant.allows(&listing.definitions()[at].qualified())
    }
}

fn check(query: &str) -> Result<(), EngineError> {
    if query.trim().is_empty() {
        let why = "`query` is empty: say in words what a tool is wanted for".to_owned();
        return Err(EngineError::InvalidArgument(why));
    }
    if query.len() > limits::QUERY_BYTES {
        let (has, most) = (query.len(), limits::QUERY_BYTES);
        return Err(EngineError::LimitExceeded(format!(
            "`query` has {has} bytes; the most is {most}"
        )));
    }
    Ok(())
}

impl From<SelectError> for EngineError {
    fn from(err: SelectError) -> Self {
        let message = err.to_string();
        match err {
            SelectError::TooManyPairs(_) => Self::LimitExceeded(message),
            SelectError::NoEmbedder(_) | SelectError::Embed(_) | SelectError::Length { .. } => {
                Self::PlannerUnavailable { message, request: None }
            }
        }
    }
}
