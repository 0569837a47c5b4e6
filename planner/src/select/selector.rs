//! Chooses tools, and keeps what it knows of them up to date.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as Plain, PoisonError},
};

use shared::clock::Timestamp;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    Criterion, TooManyPairs, best,
    index::{Centroids, Index, Tools, embedded, examples},
    outcomes::{self, KINDS, Outcomes},
    rows::Rows,
    vector::Compared,
};
use crate::embed::{EmbedError, Embedder, Embedding};

/// How much nearer to a tool's centroid than its least similar example a query must be for a hit,
/// where nothing else is said.
pub const MARGIN: f64 = 0.01;

/// Chooses tools. It knows those that it was last asked about: where they changed, only what is
/// new is read and embedded.
#[derive(Debug)]
pub struct Selector {
    embedders: Option<Pair>,
    index: Mutex<Index>,
    /// The kinds of queries that were last asked about.
    kinds: Mutex<Kinds>,
    /// What kept out what was learned the last time, so that it is said once.
    pub(super) told_of_learned: Told,
}

/// The first queries of all kinds that were last asked about, and their vectors.
///
/// They stay in memory: queries of people are not stored longer than the kinds themselves.
#[derive(Debug, Default)]
struct Kinds {
    texts: Vec<String>,
    rows: Arc<Rows>,
    /// Vectors by text, including recently evicted ones that readers may still need.
    vectors: BTreeMap<String, Vec<f32>>,
}

impl Kinds {
    /// Returns the vectors of all kinds, in their order; only what is new is embedded.
    async fn rows(
        &mut self,
        outcomes: &Outcomes,
        embedder: &dyn Embedder,
    ) -> Result<Arc<Rows>, EmbedError> {
        if outcomes.queries().eq(self.texts.iter().map(String::as_str)) {
            return Ok(Arc::clone(&self.rows));
        }
        let new = |query: &&str| !self.vectors.contains_key(*query);
        let missing: Vec<&str> = outcomes.queries().filter(new).collect();
        if !missing.is_empty() {
            let made = embedded(embedder, &missing).await?;
            self.vectors.extend(missing.iter().map(|query| (*query).to_owned()).zip(made));
        }
        self.texts = outcomes.queries().map(str::to_owned).collect();
        if self.vectors.len() > 2 * KINDS {
            self.vectors.retain(|text, _| self.texts.contains(text));
        }
        let vectors = self.texts.iter().filter_map(|text| self.vectors.get(text));
        self.rows = Arc::new(Rows::new(vectors.map(Vec::as_slice).enumerate()));
        Ok(Arc::clone(&self.rows))
    }
}

/// What was said in the log the last time.
#[derive(Debug, Default)]
pub struct Told(Plain<Option<EmbedError>>);

impl Told {
    /// Says in the log what went wrong and what comes of it, unless that was said already.
    pub fn tell(&self, err: Option<&EmbedError>, what: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(err) = err
            && told.as_ref() != Some(err)
        {
            tracing::warn!(%err, "{what}");
        }
        *told = err.cloned();
    }
}

/// One model, for what is embedded once and for what is asked.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) texts: Arc<dyn Embedder>,
    pub(super) queries: Arc<dyn Embedder>,
}

/// What is asked of a selector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask<'a> {
    /// What is wanted, in words.
    pub query: &'a str,
    /// By what tools are chosen.
    pub by: Criterion,
    /// At most so many.
    pub limit: usize,
    /// How much nearer than the least similar example a query must be for a hit.
    pub margin: f64,
    /// What executions have taught about queries, and as of when.
    pub taught: Option<(&'a Outcomes, Timestamp)>,
}

/// The tools that were chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The tools, the best first.
    pub matches: Vec<Match>,
    /// Why meaning had no say, where it should have.
    pub without_meaning: Option<EmbedError>,
}

/// A tool that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The tool's place among those that were asked about.
    pub at: usize,
    /// How well it fits: a cosine, or points; only the order of those is comparable.
    pub score: f64,
    /// Whether it fits well enough. By their centroids only what is near enough does.
    pub is_hit: bool,
    /// The cosine of its least similar example to the centroid, where that was looked at.
    pub least_similar: Option<f64>,
    /// That example.
    pub least_similar_example: Option<String>,
    /// What executions have taught of it for such queries, from -1 to 1, where that was looked at.
    pub learned: Option<f64>,
}

/// Why no tools were chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// There is nothing that turns texts into vectors.
    #[error(
        "choosing tools {0} needs an embedding model, and none is configured: set `embedding` to \
         `{{ model: DIR }}`, `{{ base_url: URL, model: NAME }}` or `{{ builtin: true }}`, or choose by \
         LEXICAL or HYBRID"
    )]
    NoEmbedder(&'static str),
    /// It did not.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// More tools collide than anybody reads.
    #[error(transparent)]
    TooManyPairs(#[from] TooManyPairs),
}

impl Selector {
    /// Makes a selector that knows no tool yet. Without an embedder only words have a say.
    pub fn new(embedder: Option<Arc<dyn Embedder>>) -> Self {
        let pair = embedder.map(|it| Pair { texts: Arc::clone(&it), queries: it });
        Self::over(pair)
    }

    /// Makes a selector that knows no tool yet, with one model for what is embedded once and for
    /// what is asked.
    pub fn with(embedding: &Embedding) -> Self {
        let (texts, queries) = (Arc::clone(&embedding.texts), Arc::clone(&embedding.queries));
        Self::over(Some(Pair { texts, queries }))
    }

    fn over(embedders: Option<Pair>) -> Self {
        let (index, kinds) = (Mutex::default(), Mutex::default());
        Self { embedders, index, kinds, told_of_learned: Told::default() }
    }

    /// Returns what turns texts into vectors, where something does.
    pub(super) fn embedders(&self) -> Option<&Pair> {
        self.embedders.as_ref()
    }

    /// Chooses from `tools` those of which a query needs one, by their places; only what `may`
    /// take part does. The limit comes first, hits are judged after it.
    pub async fn select(
        &self,
        tools: &Tools,
        ask: &Ask<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        let matches = match ask.by {
            Criterion::Centroid => self.by_centroid(tools, ask, may).await?,
            Criterion::Description => self.by_description(tools, ask, may).await?,
            Criterion::Lexical => self.by_words(tools, ask, may).await,
            Criterion::Hybrid => return self.by_both(tools, ask, may).await,
        };
        Ok(Selection { matches, without_meaning: None })
    }

    async fn by_centroid(
        &self,
        tools: &Tools,
        ask: &Ask<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Result<Vec<Match>, SelectError> {
        let Pair { texts, queries } = self.needed("by their examples")?;
        let centroids = self.index().await.centroids(tools, &**texts).await?;
        let query = query(&**queries, ask.query, &centroids.rows).await?;
        let nearest = centroids.rows.nearest(&query, ask.limit, may);
        Ok(nearest.into_iter().filter_map(|it| judged(tools, &centroids, it, ask.margin)).collect())
    }

    async fn by_description(
        &self,
        tools: &Tools,
        ask: &Ask<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Result<Vec<Match>, SelectError> {
        let Pair { texts, queries } = self.needed("by their description")?;
        let rows = self.index().await.descriptions(tools, &**texts).await?;
        let query = query(&**queries, ask.query, &rows).await?;
        Ok(rows.nearest(&query, ask.limit, may).into_iter().map(Match::plain).collect())
    }

    async fn by_words(
        &self,
        tools: &Tools,
        ask: &Ask<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Vec<Match> {
        let words = self.index().await.words(tools);
        let scores: Vec<f64> = words.scores(ask.query).into_iter().map(f64::from).collect();
        let places = best::candidates(&scores, ask.limit, 0.0, |at| scores[at] > 0.0 && may(at));
        let best = best::first(places.into_iter().map(|it| (it, scores[it])).collect(), ask.limit);
        best.into_iter().map(Match::plain).collect()
    }

    /// Returns the centroids of tools.
    pub async fn centroids(&self, tools: &Tools) -> Result<Arc<Centroids>, SelectError> {
        let Pair { texts, .. } = self.needed("that collide")?;
        Ok(self.index().await.centroids(tools, &**texts).await?)
    }

    /// Returns which of the kinds of queries a query is of, if it is of any; without an embedder
    /// nobody can tell.
    pub async fn kind(
        &self,
        outcomes: &Outcomes,
        query: &str,
    ) -> Result<Option<usize>, SelectError> {
        let Pair { queries, .. } = self.needed("by what was learned")?;
        let asked = embedded(&**queries, &[query]).await?.pop().unwrap_or_default();
        Ok(self.kind_of(outcomes, &Compared::new(asked)).await?)
    }

    pub(super) async fn kind_of(
        &self,
        outcomes: &Outcomes,
        asked: &Compared,
    ) -> Result<Option<usize>, EmbedError> {
        let Some(pair) = self.embedders() else { return Ok(None) };
        let rows = self.kinds.lock().await.rows(outcomes, &*pair.queries).await?;
        if rows.dimensions().is_some_and(|it| it != asked.len()) {
            // Another model has taken the place of the one that made them.
            *self.kinds.lock().await = Kinds::default();
            return Ok(None);
        }
        let cosines = (0..rows.len()).map(|it| rows.cosine(it, asked));
        Ok(outcomes::kind(cosines).map(|it| rows.owner(it)))
    }

    /// Returns what is known of tools, once nobody else changes it.
    pub(super) async fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().await
    }

    fn needed(&self, how: &'static str) -> Result<&Pair, SelectError> {
        self.embedders.as_ref().ok_or(SelectError::NoEmbedder(how))
    }
}

impl Match {
    pub(super) fn plain((at, score): (usize, f64)) -> Self {
        let (least_similar, least_similar_example) = (None, None);
        Self { at, score, is_hit: true, least_similar, least_similar_example, learned: None }
    }
}

/// Judges whether a tool that is near is near enough.
fn judged(
    tools: &Tools,
    centroids: &Centroids,
    (at, score): (usize, f64),
    margin: f64,
) -> Option<Match> {
    let (example, least_similar) = centroids.least(at)?;
    Some(Match {
        at,
        score,
        is_hit: score >= least_similar + margin,
        least_similar: Some(least_similar),
        least_similar_example: examples(&tools[at]).nth(example).map(str::to_owned),
        learned: None,
    })
}

/// Embeds a query, exactly as it is.
async fn query(embedder: &dyn Embedder, query: &str, rows: &Rows) -> Result<Compared, EmbedError> {
    let vector = embedded(embedder, &[query]).await?.pop().unwrap_or_default();
    match rows.dimensions() {
        Some(expected) if expected != vector.len() => {
            let (model, has) = (embedder.model().to_owned(), vector.len());
            let why = format!(
                "it gave a vector of {has} numbers, and the tools have {expected}: \
                 restart after changing a model under its name"
            );
            Err(EmbedError::Model { model, why })
        }
        _ => Ok(Compared::new(vector)),
    }
}
