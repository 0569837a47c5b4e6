//! Selection by meaning and words, for the query and for each of its parts.
//!
//! For each text, a tool gets a weighted sum: the cosine of its vectors, its lexical score as a
//! share of the best tool's, and the share of its name that the text has. In a query with parts,
//! the whole query counts half and the best part counts half, so each part finds its tool. Learned
//! outcomes move the score a little.
//!
//! Sums of scores on one scale do better here than sums of reciprocal ranks, as in Bruch, Gai and
//! Ingber, “An Analysis of Fusion Functions for Hybrid Retrieval” (2023).
//! `docs/reference/selection.md` has the figures of both.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Ask, Match, SelectError, Selection, Selector, Tools, best, index::embedded, lexical::Lexical,
    parts, rows::Rows, vector::Compared,
};
use crate::embed::EmbedError;

/// Cosines have weight 1.
const WORDS_WEIGHT: f32 = 0.18;
const NAME_WEIGHT: f32 = 0.05;
/// The weight of learned outcomes, which are between -1 and 1.
const LEARNED_WEIGHT: f64 = 0.05;
/// The weight of the best part. The whole query has the rest.
const PART_WEIGHT: f64 = 0.5;

struct Meaning {
    tools: Arc<Rows>,
    /// One for each text.
    texts: Vec<Compared>,
}

impl Selector {
    pub(super) async fn select_by_words_and_meaning(
        &self,
        tools: &Tools,
        ask: &Ask<'_>,
        may: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        if ask.query.trim().is_empty() {
            return Ok(Selection::default());
        }
        let texts: Vec<&str> = std::iter::once(ask.query).chain(parts::parts(ask.query)).collect();
        let words = self.index().await.words(tools);
        let (meaning, without_meaning) = match self.embed_query(tools, &texts).await {
            Ok(meaning) => (Some(meaning), None),
            Err(err) => (None, err),
        };
        let allowed: Vec<bool> = (0..tools.len()).map(may).collect();
        let said: Vec<Vec<f32>> =
            texts.iter().map(|text| lexical_scores(&words, text, &allowed)).collect();
        let learned = self.learned_scores(tools, ask, meaning.as_ref()).await;
        let field = Field { said: &said, meaning: meaning.as_ref(), learned: &learned };
        let best = field.best_tools(&allowed, ask.limit).into_iter();
        let matches = best.map(|(at, score)| Match {
            learned: learned.get(&at).copied(),
            ..Match::plain(at, score)
        });
        Ok(Selection { matches: matches.collect(), without_meaning })
    }

    /// Returns the learned scores of tools for similar queries, by place. Empty if they cannot be
    /// computed.
    async fn learned_scores(
        &self,
        tools: &Tools,
        ask: &Ask<'_>,
        meaning: Option<&Meaning>,
    ) -> BTreeMap<usize, f64> {
        let Some((outcomes, at)) = ask.taught.filter(|taught| !taught.0.is_empty()) else {
            return BTreeMap::new();
        };
        let Some(asked) = meaning.and_then(|meaning| meaning.texts.first()) else {
            return BTreeMap::new();
        };
        let kind = self.kind_of(outcomes, asked).await;
        self.told_of_learned.tell(kind.as_ref().err(), "learned outcomes are not used");
        let Ok(Some(kind)) = kind else { return BTreeMap::new() };
        let places = self.index().await.places(tools);
        let verdicts = outcomes.verdicts(kind, at);
        verdicts.filter_map(|(tool, verdict)| Some((*places.get(tool)?, verdict))).collect()
    }

    /// Embeds texts. Without vectors, returns the reason, or none without an embedder.
    async fn embed_query(
        &self,
        tools: &Tools,
        texts: &[&str],
    ) -> Result<Meaning, Option<EmbedError>> {
        let Some(pair) = self.embedders() else { return Err(None) };
        let found = async {
            let tools = self.index().await.meanings(tools, &*pair.text_embedder).await?;
            let texts = embedded(&*pair.query_embedder, texts).await?;
            let expected = tools.dimensions();
            if texts.iter().any(|vector| expected.is_some_and(|expected| expected != vector.len()))
            {
                let why =
                    "its vectors have got another length: restart after changing it".to_owned();
                return Err(EmbedError::Model {
                    model: pair.query_embedder.model().to_owned(),
                    why,
                });
            }
            Ok(Meaning { tools, texts: texts.into_iter().map(Compared::new).collect() })
        };
        found.await.map_err(Some)
    }
}

/// Returns the scores of words and names, for each tool.
fn lexical_scores(words: &Lexical, text: &str, allowed: &[bool]) -> Vec<f32> {
    let (mut said, names) = words.scores_and_names(text);
    let most =
        said.iter().zip(allowed).filter(|score| *score.1).map(|score| *score.0).fold(0.0, f32::max);
    let share = if most > 0.0 { WORDS_WEIGHT / most } else { 0.0 };
    for (said, name) in said.iter_mut().zip(names) {
        *said = share * *said + NAME_WEIGHT * name;
    }
    said
}

struct Field<'a> {
    said: &'a [Vec<f32>],
    meaning: Option<&'a Meaning>,
    learned: &'a BTreeMap<usize, f64>,
}

impl Field<'_> {
    /// Returns the tools with the highest scores above 0. One fast pass finds the candidates for
    /// all texts. Only these are scored exactly.
    fn best_tools(&self, allowed: &[bool], most: usize) -> Vec<(usize, f64)> {
        let mut quick = self.said.to_vec();
        if let Some(meaning) = self.meaning {
            meaning
                .tools
                .quick_cosines(&meaning.texts, |text, tool, cosine| quick[text][tool] += cosine);
        }
        let score =
            |tool: usize| combine_points(quick.iter().map(|points| f64::from(points[tool])));
        let mut scores: Vec<f64> = (0..allowed.len()).map(score).collect();
        for (tool, verdict) in self.learned {
            scores[*tool] += LEARNED_WEIGHT * verdict;
        }
        let slack = self.meaning.map_or(0.0, |meaning| meaning.tools.slack());
        let places = best::candidate_places(&scores, most, slack, |tool| allowed[tool]);
        let exact = places
            .into_iter()
            .map(|tool| (tool, self.exact_score(tool)))
            .filter(|scored| scored.1 > 0.0);
        best::best_first(exact.collect(), most)
    }

    fn exact_score(&self, tool: usize) -> f64 {
        let points = self.said.iter().enumerate().map(|(text, points)| {
            let cosine = self
                .meaning
                .map_or(0.0, |meaning| meaning.tools.cosine(tool, &meaning.texts[text]));
            f64::from(points[tool]) + cosine
        });
        combine_points(points)
            + LEARNED_WEIGHT * self.learned.get(&tool).copied().unwrap_or_default()
    }
}

/// Returns the score of a tool from the points of the query and of each part.
fn combine_points(mut points: impl Iterator<Item = f64>) -> f64 {
    let whole = points.next().unwrap_or_default();
    let Some(part) = points.reduce(f64::max) else { return whole };
    (1.0 - PART_WEIGHT) * whole + PART_WEIGHT * part
}
