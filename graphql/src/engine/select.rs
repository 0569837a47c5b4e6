//! Chooses tools for a query, and says which are wanted by the same sentences.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use planner::{
    embed::{Choice, Embedders, Embedding},
    select::{Ask, Criterion, MARGIN, SelectError, Selection, Selector, Similarity, Told, Tools},
};
use shared::{limits, tool::ToolDefinition};
use toolbox::{Listing, ToolSet};

use super::{Engine, EngineError};

/// The most tools that one selection returns.
pub const SELECTED: usize = 1_000;

/// Selectors by the embedding that they use.
type EmbeddedSelectors = Vec<(Option<Embedding>, Selectors)>;

/// Selects tools by words and by embeddings.
#[derive(Clone, Debug)]
pub(super) struct ToolSelection {
    embedders: Arc<Embedders>,
    margin: f64,
    /// Compares words only, so that it never waits for an embedder.
    words: Selectors,
    /// Selectors of each embedder that was used. One that is used again has the tools' vectors.
    embedded: Arc<Mutex<EmbeddedSelectors>>,
    /// The last reason why words alone decided, which is logged once.
    told: Arc<Told>,
}

/// Selectors from all tools and from the plannable ones. Each keeps vectors of its own list.
#[derive(Clone, Debug)]
struct Selectors {
    every: Arc<Selector>,
    planning: Arc<Selector>,
}

/// The tools to select from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    /// All tools.
    Every,
    /// The tools that can be planned.
    Planning,
}

/// A selector with an embedder that works, or worked a moment ago.
pub(super) struct Used {
    choice: Arc<Choice>,
    among: Among,
    pub(super) selector: Arc<Selector>,
}

impl Selectors {
    fn new(embedding: Option<&Embedding>) -> Self {
        let new = || Arc::new(embedding.map_or_else(|| Selector::new(None), Selector::with));
        Self { every: new(), planning: new() }
    }

    fn among(&self, among: Among) -> &Arc<Selector> {
        match among {
            Among::Every => &self.every,
            Among::Planning => &self.planning,
        }
    }
}

impl ToolSelection {
    pub(super) fn new(embedders: Arc<Embedders>) -> Self {
        let words = Selectors::new(None);
        let (embedded, told) = (Arc::default(), Arc::default());
        Self { embedders, margin: MARGIN, words, embedded, told }
    }

    pub(super) fn with_embedders(self, embedders: Arc<Embedders>) -> Self {
        Self { embedders, ..self }
    }

    pub(super) fn embedders(&self) -> &Embedders {
        &self.embedders
    }

    fn selectors(&self, embedding: Option<&Embedding>) -> Selectors {
        let mut embedded = self.embedded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: Option<&Embedding>| match (known, embedding) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if let Some((_, known)) = embedded.iter().find(|(known, _)| is_same(known.as_ref())) {
            return known.clone();
        }
        let selectors = Selectors::new(embedding);
        embedded.push((embedding.cloned(), selectors.clone()));
        selectors
    }

    /// Returns the selector with the embedder that works now.
    pub(super) async fn current(&self, among: Among) -> Used {
        self.used(self.embedders.choose().await, among)
    }

    fn used(&self, choice: Arc<Choice>, among: Among) -> Used {
        let selectors = self.selectors(choice.embedding.as_ref());
        Used { choice, among, selector: Arc::clone(selectors.among(among)) }
    }

    /// Returns the selector with the next embedder after a failed one, or the failure.
    pub(super) async fn next(&self, used: &Used, err: SelectError) -> Result<Used, SelectError> {
        let SelectError::Embed(why) = &err else { return Err(err) };
        let next = self.embedders.instead(&used.choice, why).await;
        next.map(|choice| self.used(choice, used.among)).ok_or(err)
    }

    /// Selects tools. Without an embedder that works, `HYBRID` compares words alone.
    pub(super) async fn select(
        &self,
        among: Among,
        tools: &Tools,
        ask: &Ask<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        if ask.by == Criterion::Lexical {
            return self.words.among(among).select(tools, ask, may).await;
        }
        let mut used = self.current(among).await;
        loop {
            let selection = match used.selector.select(tools, ask, &may).await {
                Ok(selection) => selection,
                Err(err) => {
                    used = self.next(&used, err).await?;
                    continue;
                }
            };
            if let Some(why) = &selection.without_meaning
                && let Ok(next) = self.next(&used, why.clone().into()).await
            {
                used = next;
                continue;
            }
            let why = selection.without_meaning.as_ref();
            self.told.tell(why, "tools are chosen by words alone");
            return Ok(selection);
        }
    }

    /// Adds to an error why no embedder works.
    async fn explain(&self, err: SelectError) -> EngineError {
        let mut err = EngineError::from(err);
        if let EngineError::PlannerUnavailable { message, .. } = &mut err {
            for passed in &self.embedders.choose().await.passed_over {
                let _ = write!(message, "; {}: {}", passed.source, passed.why);
            }
        }
        err
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
    /// Returns an engine that counts a tool as a hit if it is nearer than its least similar example
    /// by this margin.
    #[must_use]
    pub fn with_margin(self, margin: f64) -> Self {
        Self { selection: ToolSelection { margin, ..self.selection.clone() }, ..self }
    }

    /// Chooses the tools that a query needs, the best first.
    pub async fn select_tools(&self, wanted: Wanted<'_>) -> Result<Vec<Chosen>, EngineError> {
        check(wanted.query)?;
        self.settled().await;
        let listing = self.toolbox.listing();
        let Wanted { query, by, limit, active_only } = wanted;
        let lessons = if by == Criterion::Hybrid { self.taught().await } else { None };
        let taught = lessons.as_deref().map(|it| (&it.outcomes, self.clock.now()));
        let (limit, margin) = (limit.min(SELECTED), self.selection.margin);
        let ask = Ask { query, by, limit, margin, taught };
        let may = self.allowed(&listing);
        let may = |at| (!active_only || listing.set(at).is_active) && may(at);
        let selected = self.selection.select(Among::Every, listing.definitions(), &ask, may).await;
        let selected = match selected {
            Ok(selected) => selected,
            Err(err) => return Err(self.selection.explain(err).await),
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
        let mut used = self.selection.current(Among::Every).await;
        let rows = loop {
            match used.selector.centroids(listing.definitions()).await {
                Ok(rows) => break rows,
                Err(err) => match self.selection.next(&used, err).await {
                    Ok(next) => used = next,
                    Err(err) => return Err(self.selection.explain(err).await),
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
        move |at| every || self.grant.allows(&listing.definitions()[at].qualified_name())
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
