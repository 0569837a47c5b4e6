//! Selection by meaning and words, for the query and for each of its parts, so that each part finds
//! its tool.
//!
//! Sums of scores on one scale do better here than sums of reciprocal ranks, as in Bruch, Gai and
//! Ingber, “An Analysis of Fusion Functions for Hybrid Retrieval” (2023).

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Match, SelectError, Selection, SelectionRequest, Selector, Tools, best, index::embed_all,
    lexical::Lexical, parts, rows::Rows, vector::QueryVector,
};
use crate::embed::EmbedError;

/// The lexical score has this weight, and a cosine has the weight 1.
const LEXICAL_WEIGHT: f32 = 0.18;
const NAME_WEIGHT: f32 = 0.05;
/// The weight of learned outcomes, which are between -1 and 1.
const LEARNED_WEIGHT: f64 = 0.05;
const PART_WEIGHT: f64 = 0.5;

struct QueryMeaning {
    tools: Arc<Rows>,
    texts: Vec<QueryVector>,
}

impl Selector {
    pub(super) async fn select_by_words_and_meaning(
        &self,
        tools: &Tools,
        ask: &SelectionRequest<'_>,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        if ask.query.trim().is_empty() {
            return Ok(Selection::default());
        }
        let texts: Vec<&str> =
            std::iter::once(ask.query).chain(parts::split_parts(ask.query)).collect();
        let words = self.lock_index().await.words(tools);
        let (meaning, without_meaning) = match self.embed_query(tools, &texts).await {
            Ok(meaning) => (Some(meaning), None),
            Err(err) => (None, err),
        };
        let allowed: Vec<bool> = (0..tools.len()).map(is_allowed).collect();
        let lexical: Vec<Vec<f32>> =
            texts.iter().map(|text| lexical_scores(&words, text, &allowed)).collect();
        let learned = self.learned_scores(tools, ask, meaning.as_ref()).await;
        let field = ScoreInputs { lexical: &lexical, meaning: meaning.as_ref(), learned: &learned };
        let best = field.best_tools(&allowed, ask.limit).into_iter();
        let matches = best.map(|(index, score)| Match {
            learned: learned.get(&index).copied(),
            ..Match::match_with_score(index, score)
        });
        Ok(Selection { matches: matches.collect(), without_meaning })
    }

    /// Returns the learned scores of tools for similar queries, by index of the tool. Returns
    /// nothing if they cannot be computed.
    async fn learned_scores(
        &self,
        tools: &Tools,
        ask: &SelectionRequest<'_>,
        meaning: Option<&QueryMeaning>,
    ) -> BTreeMap<usize, f64> {
        let Some((outcomes, at)) = ask.outcomes.filter(|outcomes| !outcomes.0.is_empty()) else {
            return BTreeMap::new();
        };
        let Some(query_text) = meaning.and_then(|meaning| meaning.texts.first()) else {
            return BTreeMap::new();
        };
        let kind = self.find_kind(outcomes, query_text).await;
        self.last_learning_error.log_if_new(kind.as_ref().err(), "learned outcomes are not used");
        let Ok(Some(kind)) = kind else { return BTreeMap::new() };
        let positions = self.lock_index().await.positions(tools);
        let verdicts = outcomes.list_verdicts(kind, at);
        verdicts.filter_map(|(tool, verdict)| Some((*positions.get(tool)?, verdict))).collect()
    }

    /// Embeds texts. Returns the error if that fails, or `None` as the error if no embedder is
    /// configured.
    async fn embed_query(
        &self,
        tools: &Tools,
        texts: &[&str],
    ) -> Result<QueryMeaning, Option<EmbedError>> {
        let Some(pair) = self.embedders() else { return Err(None) };
        let found = async {
            let tools = self.lock_index().await.meanings(tools, &*pair.text_embedder).await?;
            let texts = embed_all(&*pair.query_embedder, texts).await?;
            let expected = tools.dimensions();
            if texts.iter().any(|vector| expected.is_some_and(|expected| expected != vector.len()))
            {
                let reason =
                    "the length of its vectors has changed: restart Faber after changing the model"
                        .to_owned();
                return Err(EmbedError::Model {
                    model: pair.query_embedder.model().to_owned(),
                    reason,
                });
            }
            Ok(QueryMeaning { tools, texts: texts.into_iter().map(QueryVector::new).collect() })
        };
        found.await.map_err(Some)
    }
}

fn lexical_scores(words: &Lexical, text: &str, allowed: &[bool]) -> Vec<f32> {
    let (mut lexical, names) = words.score_tools_and_names(text);
    let max_score = lexical
        .iter()
        .zip(allowed)
        .filter(|score| *score.1)
        .map(|score| *score.0)
        .fold(0.0, f32::max);
    let share = if max_score > 0.0 { LEXICAL_WEIGHT / max_score } else { 0.0 };
    for (lexical, name) in lexical.iter_mut().zip(names) {
        *lexical = share * *lexical + NAME_WEIGHT * name;
    }
    lexical
}

struct ScoreInputs<'a> {
    lexical: &'a [Vec<f32>],
    meaning: Option<&'a QueryMeaning>,
    learned: &'a BTreeMap<usize, f64>,
}

impl ScoreInputs<'_> {
    /// Returns the tools with the highest scores above 0. One pass in integers finds the candidates
    /// for all texts, and only these are scored exactly.
    fn best_tools(&self, allowed: &[bool], max_count: usize) -> Vec<(usize, f64)> {
        let mut quick = self.lexical.to_vec();
        if let Some(meaning) = self.meaning {
            meaning.tools.visit_quick_cosines(&meaning.texts, |text, tool, cosine| {
                quick[text][tool] += cosine;
            });
        }
        let score =
            |tool: usize| combine_points(quick.iter().map(|points| f64::from(points[tool])));
        let mut scores: Vec<f64> = (0..allowed.len()).map(score).collect();
        for (tool, verdict) in self.learned {
            scores[*tool] += LEARNED_WEIGHT * verdict;
        }
        let slack = self.meaning.map_or(0.0, |meaning| meaning.tools.slack());
        let positions = best::candidate_places(&scores, max_count, slack, |tool| allowed[tool]);
        let exact = positions
            .into_iter()
            .map(|tool| (tool, self.exact_score(tool)))
            .filter(|scored| scored.1 > 0.0);
        best::take_best(exact.collect(), max_count)
    }

    fn exact_score(&self, tool: usize) -> f64 {
        let points = self.lexical.iter().enumerate().map(|(text, points)| {
            let cosine = self
                .meaning
                .map_or(0.0, |meaning| meaning.tools.cosine(tool, &meaning.texts[text]));
            f64::from(points[tool]) + cosine
        });
        combine_points(points)
            + LEARNED_WEIGHT * self.learned.get(&tool).copied().unwrap_or_default()
    }
}

fn combine_points(mut points: impl Iterator<Item = f64>) -> f64 {
    let whole = points.next().unwrap_or_default();
    let Some(part) = points.reduce(f64::max) else { return whole };
    (1.0 - PART_WEIGHT) * whole + PART_WEIGHT * part
}
