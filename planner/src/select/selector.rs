use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as Plain, PoisonError},
};

use shared::clock::Timestamp;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    Criterion, TooManyPairs, best,
    index::{Centroids, Index, Tools, embed_all, list_examples},
    outcomes::{self, MAX_KINDS, Outcomes},
    rows::Rows,
    vector::QueryVector,
};
use crate::embed::{EmbedError, Embedder, Embedding};

/// The default margin. The cosine of a hit exceeds the cosine of the tool's least similar example
/// by at least this much.
pub const DEFAULT_MARGIN: f64 = 0.01;

/// Selects tools. It keeps the index of the last tools and updates only the tools that changed.
#[derive(Debug)]
pub struct Selector {
    embedders: Option<EmbedderPair>,
    index: Mutex<Index>,
    kinds: Mutex<Kinds>,
    /// The last error of learned outcomes. It is kept so that the same error is logged only once.
    pub(super) last_learning_error: LastLoggedError,
}

/// The first queries of all kinds, and their vectors. They are kept only in memory, because no
/// user's query may be stored longer than its kind.
#[derive(Debug, Default)]
struct Kinds {
    texts: Vec<String>,
    rows: Arc<Rows>,
    /// Vectors by text, including recently evicted vectors that readers may still need.
    vectors: BTreeMap<String, Vec<f32>>,
}

impl Kinds {
    /// Returns the vectors of all kinds, in order. Embeds only new texts.
    async fn query_rows(
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
            let made = embed_all(embedder, &missing).await?;
            self.vectors.extend(missing.iter().map(|query| (*query).to_owned()).zip(made));
        }
        self.texts = outcomes.queries().map(str::to_owned).collect();
        if self.vectors.len() > 2 * MAX_KINDS {
            self.vectors.retain(|text, _| self.texts.contains(text));
        }
        let vectors = self.texts.iter().filter_map(|text| self.vectors.get(text));
        self.rows = Arc::new(Rows::new(vectors.map(Vec::as_slice).enumerate()));
        Ok(Arc::clone(&self.rows))
    }
}

#[derive(Debug, Default)]
pub struct LastLoggedError(Plain<Option<EmbedError>>);

impl LastLoggedError {
    /// Logs an error and its consequence, unless the last logged error is the same.
    pub fn log_if_new(&self, err: Option<&EmbedError>, consequence: &str) {
        let mut last_error = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(err) = err
            && last_error.as_ref() != Some(err)
        {
            tracing::warn!(%err, "{consequence}");
        }
        *last_error = err.cloned();
    }
}

#[derive(Clone, Debug)]
pub(super) struct EmbedderPair {
    pub(super) text_embedder: Arc<dyn Embedder>,
    pub(super) query_embedder: Arc<dyn Embedder>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectionRequest<'a> {
    pub query: &'a str,
    pub by: Criterion,
    pub limit: usize,
    pub margin: f64,
    pub outcomes: Option<(&'a Outcomes, Timestamp)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    pub matches: Vec<Match>,
    /// The reason why a hybrid selection used words only.
    pub without_meaning: Option<EmbedError>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    pub index: usize,
    /// The score: a cosine, or points of which only the order is comparable.
    pub score: f64,
    /// `true` if the tool fits well enough. Only a selection by centroids can set this to false.
    pub is_hit: bool,
    /// The cosine of the least similar example to the centroid. Only a selection by centroids sets
    /// it.
    pub least_similar: Option<f64>,
    pub least_similar_example: Option<String>,
    /// The learned score for similar queries, from -1 to 1. `None` if no score was used.
    pub learned: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectError {
    #[error(
        "selecting tools {0} needs an embedding model, and none is configured: set `embedding` to \
         `{{ model: DIR }}`, `{{ base_url: URL, model: NAME }}` or `{{ builtin: true }}`, or \
         select by LEXICAL or HYBRID"
    )]
    NoEmbedder(&'static str),
    #[error(transparent)]
    Embed(#[from] EmbedError),
    #[error(transparent)]
    TooManyPairs(#[from] TooManyPairs),
}

impl Selector {
    /// Creates a selector without an index. Without an embedder, it selects by words only.
    pub fn new(embedder: Option<Arc<dyn Embedder>>) -> Self {
        let pair = embedder.map(|embedder| EmbedderPair {
            text_embedder: Arc::clone(&embedder),
            query_embedder: embedder,
        });
        Self::with_embedders(pair)
    }

    pub fn from_embedding(embedding: &Embedding) -> Self {
        let (texts, queries) = (Arc::clone(&embedding.texts), Arc::clone(&embedding.queries));
        Self::with_embedders(Some(EmbedderPair { text_embedder: texts, query_embedder: queries }))
    }

    fn with_embedders(embedders: Option<EmbedderPair>) -> Self {
        let (index, kinds) = (Mutex::default(), Mutex::default());
        Self { embedders, index, kinds, last_learning_error: LastLoggedError::default() }
    }

    pub(super) fn embedders(&self) -> Option<&EmbedderPair> {
        self.embedders.as_ref()
    }

    /// Selects tools for a query. `is_allowed` filters the tools. The limit applies before it is
    /// known which tools are hits.
    pub async fn select(
        &self,
        tools: &Tools,
        ask: &SelectionRequest<'_>,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        let matches = match ask.by {
            Criterion::Centroid => self.select_by_centroid(tools, ask, is_allowed).await?,
            Criterion::Description => self.select_by_description(tools, ask, is_allowed).await?,
            Criterion::Lexical => self.select_by_words(tools, ask, is_allowed).await,
            Criterion::Hybrid => {
                return self.select_by_words_and_meaning(tools, ask, is_allowed).await;
            }
        };
        Ok(Selection { matches, without_meaning: None })
    }

    async fn select_by_centroid(
        &self,
        tools: &Tools,
        ask: &SelectionRequest<'_>,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Vec<Match>, SelectError> {
        let EmbedderPair { text_embedder: texts, query_embedder: queries } =
            self.required_embedders("by their examples")?;
        let centroids = self.lock_index().await.centroids(tools, &**texts).await?;
        let query = embed_query(&**queries, ask.query, &centroids.rows).await?;
        let nearest = centroids.rows.find_nearest(&query, ask.limit, is_allowed);
        Ok(nearest
            .into_iter()
            .filter_map(|(index, score)| judge_match(tools, &centroids, index, score, ask.margin))
            .collect())
    }

    async fn select_by_description(
        &self,
        tools: &Tools,
        ask: &SelectionRequest<'_>,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Vec<Match>, SelectError> {
        let EmbedderPair { text_embedder: texts, query_embedder: queries } =
            self.required_embedders("by their description")?;
        let rows = self.lock_index().await.descriptions(tools, &**texts).await?;
        let query = embed_query(&**queries, ask.query, &rows).await?;
        Ok(rows
            .find_nearest(&query, ask.limit, is_allowed)
            .into_iter()
            .map(|(index, score)| Match::match_with_score(index, score))
            .collect())
    }

    async fn select_by_words(
        &self,
        tools: &Tools,
        ask: &SelectionRequest<'_>,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Vec<Match> {
        let words = self.lock_index().await.words(tools);
        let scores: Vec<f64> = words.score_tools(ask.query).into_iter().map(f64::from).collect();
        let positions = best::candidate_places(&scores, ask.limit, 0.0, |index| {
            scores[index] > 0.0 && is_allowed(index)
        });
        let best = best::take_best(
            positions.into_iter().map(|place| (place, scores[place])).collect(),
            ask.limit,
        );
        best.into_iter().map(|(index, score)| Match::match_with_score(index, score)).collect()
    }

    pub async fn centroids(&self, tools: &Tools) -> Result<Arc<Centroids>, SelectError> {
        let EmbedderPair { text_embedder: texts, .. } = self.required_embedders("that collide")?;
        Ok(self.lock_index().await.centroids(tools, &**texts).await?)
    }

    /// Returns the kind of a query, or `None` if no kind is similar. Fails without an embedder.
    pub async fn kind(
        &self,
        outcomes: &Outcomes,
        query: &str,
    ) -> Result<Option<usize>, SelectError> {
        let EmbedderPair { query_embedder: queries, .. } =
            self.required_embedders("with learned outcomes")?;
        let vector = embed_all(&**queries, &[query]).await?.pop().unwrap_or_default();
        Ok(self.find_kind(outcomes, &QueryVector::new(vector)).await?)
    }

    pub(super) async fn find_kind(
        &self,
        outcomes: &Outcomes,
        query_vector: &QueryVector,
    ) -> Result<Option<usize>, EmbedError> {
        let Some(pair) = self.embedders() else { return Ok(None) };
        let rows = self.kinds.lock().await.query_rows(outcomes, &*pair.query_embedder).await?;
        if rows.dimensions().is_some_and(|dimensions| dimensions != query_vector.len()) {
            // The model has changed, so the vectors of the old model are dropped.
            *self.kinds.lock().await = Kinds::default();
            return Ok(None);
        }
        let cosines = (0..rows.len()).map(|row| rows.cosine(row, query_vector));
        Ok(outcomes::nearest_kind(cosines).map(|row| rows.owner_of_row(row)))
    }

    pub(super) async fn lock_index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().await
    }

    fn required_embedders(
        &self,
        criterion_name: &'static str,
    ) -> Result<&EmbedderPair, SelectError> {
        self.embedders.as_ref().ok_or(SelectError::NoEmbedder(criterion_name))
    }
}

impl Match {
    pub(super) fn match_with_score(index: usize, score: f64) -> Self {
        let (least_similar, least_similar_example) = (None, None);
        Self { index, score, is_hit: true, least_similar, least_similar_example, learned: None }
    }
}

fn judge_match(
    tools: &Tools,
    centroids: &Centroids,
    index: usize,
    score: f64,
    margin: f64,
) -> Option<Match> {
    let (example, least_similar) = centroids.least_similar_index(index)?;
    Some(Match {
        index,
        score,
        is_hit: score >= least_similar + margin,
        least_similar: Some(least_similar),
        least_similar_example: list_examples(&tools[index]).nth(example).map(str::to_owned),
        learned: None,
    })
}

async fn embed_query(
    embedder: &dyn Embedder,
    query: &str,
    rows: &Rows,
) -> Result<QueryVector, EmbedError> {
    let vector = embed_all(embedder, &[query]).await?.pop().unwrap_or_default();
    match rows.dimensions() {
        Some(expected) if expected != vector.len() => {
            let (model, has) = (embedder.model().to_owned(), vector.len());
            let reason = format!(
                "it returned a vector of {has} numbers, but the tools have vectors of {expected}: \
                 restart Faber after replacing a model by another one of the same name"
            );
            Err(EmbedError::Model { model, reason })
        }
        _ => Ok(QueryVector::new(vector)),
    }
}
