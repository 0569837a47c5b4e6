//! Chooses tools for a query, and says which are wanted by the same sentences.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use planner::{
    embed::{Choice, Embedding},
    select::{Ask, Criterion, MARGIN, SelectError, Selection, Selector, Similarity, Told, Tools},
};
use shared::{limits, tool::ToolDefinition};
use toolbox::{Listing, ToolSet};

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
    planning_words: Arc<Selector>,
    /// What chooses with each model that was used, as long as the process lives: there are no more
    /// than are configured, and one that comes back need not learn the tools again.
    models: Arc<Mutex<Vec<Model>>>,
    /// What kept meaning out the last time, so that it is said once.
    told: Arc<Told>,
}

/// What chooses with one model.
#[derive(Clone, Debug)]
struct Model {
    /// The model; nothing where there is none.
    embedding: Option<Embedding>,
    /// What chooses from all tools.
    every: Arc<Selector>,
    /// What chooses from those that can be planned: another list, so that neither forgets its own.
    planning: Arc<Selector>,
}

/// From which tools some are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    /// From all.
    Every,
    /// From those that can be planned.
    Planning,
}

/// What chooses with the model that is used now, or was a moment ago.
pub(super) struct Used {
    choice: Arc<Choice>,
    among: Among,
    /// What chooses.
    pub(super) selector: Arc<Selector>,
}

impl Default for Choosing {
    fn default() -> Self {
        let words = || Arc::new(Selector::new(None));
        let (models, told) = (Arc::default(), Arc::default());
        Self { margin: MARGIN, words: words(), planning_words: words(), models, told }
    }
}

impl Choosing {
    /// Returns what chooses with a model.
    fn model(&self, embedding: Option<&Embedding>) -> Model {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |it: &Model| match (&it.embedding, embedding) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if let Some(known) = models.iter().find(|it| is_same(it)) {
            return known.clone();
        }
        let new = || Arc::new(embedding.map_or_else(|| Selector::new(None), Selector::with));
        let model = Model { embedding: embedding.cloned(), every: new(), planning: new() };
        models.push(model.clone());
        model
    }

    fn words(&self, among: Among) -> &Selector {
        match among {
            Among::Every => &self.words,
            Among::Planning => &self.planning_words,
        }
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

    /// Returns what chooses with the model that is used now.
    pub(super) async fn used(&self, among: Among) -> Used {
        self.using(self.embedders.choose().await, among)
    }

    fn using(&self, choice: Arc<Choice>, among: Among) -> Used {
        let model = self.choosing.model(choice.embedding.as_ref());
        let selector = match among {
            Among::Every => model.every,
            Among::Planning => model.planning,
        };
        Used { choice, among, selector }
    }

    /// Returns what to ask instead of what failed: what chooses with the next model that works. Where
    /// there is none, that it failed is the answer.
    pub(super) async fn after(&self, used: &Used, err: SelectError) -> Result<Used, SelectError> {
        let SelectError::Embed(why) = &err else { return Err(err) };
        let next = self.embedders.instead(&used.choice, why).await;
        next.map(|it| self.using(it, used.among)).ok_or(err)
    }

    /// Chooses tools. Without any model that works `HYBRID` goes by words alone.
    pub(super) async fn choose(
        &self,
        among: Among,
        tools: &Tools,
        ask: &Ask<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        if ask.by == Criterion::Lexical {
            return self.choosing.words(among).select(tools, ask, may).await;
        }
        let mut used = self.used(among).await;
        loop {
            let selection = match used.selector.select(tools, ask, &may).await {
                Ok(selection) => selection,
                Err(err) => {
                    used = self.after(&used, err).await?;
                    continue;
                }
            };
            if let Some(why) = &selection.without_meaning
                && let Ok(next) = self.after(&used, why.clone().into()).await
            {
                used = next;
                continue;
            }
            let why = selection.without_meaning.as_ref();
            self.choosing.told.tell(why, "tools are chosen by words alone");
            return Ok(selection);
        }
    }

    /// Says why nothing was chosen, and why no model that is wanted works.
    async fn unchosen(&self, err: SelectError) -> EngineError {
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
        let Wanted { query, by, limit, active_only } = wanted;
        let lessons = if by == Criterion::Hybrid { self.taught().await } else { None };
        let taught = lessons.as_deref().map(|it| (&it.outcomes, self.clock.now()));
        let (limit, margin) = (limit.min(SELECTED), self.choosing.margin);
        let ask = Ask { query, by, limit, margin, taught };
        let may = self.allowed(&listing);
        let may = |at| (!active_only || listing.set(at).is_active) && may(at);
        let selected = self.choose(Among::Every, listing.definitions(), &ask, may).await;
        let selected = match selected {
            Ok(selected) => selected,
            Err(err) => return Err(self.unchosen(err).await),
        };
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
        let mut used = self.used(Among::Every).await;
        let rows = loop {
            match used.selector.centroids(listing.definitions()).await {
                Ok(rows) => break rows,
                Err(err) => match self.after(&used, err).await {
                    Ok(next) => used = next,
                    Err(err) => return Err(self.unchosen(err).await),
                },
            }
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
            SelectError::NoEmbedder(_) | SelectError::Embed(_) => {
                Self::PlannerUnavailable { message, request: None }
            }
        }
    }
}
