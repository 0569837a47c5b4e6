//! Selection by meaning and by words, each part of a query by itself.
//!
//! For every text (the query, and each of its parts) a tool gets the cosine of its meaning, what its
//! words say as a share of what they say for the best tool, and how much of its name was said. These
//! are added up with their weights. A query with parts counts half for itself, half for the part
//! that a tool fits best, so that each part finds its tool. What executions have taught of a tool for
//! such queries moves it a little. Sums of scores on one scale do better
//! here than sums of reciprocal ranks, as in Bruch, Gai and Ingber, “An Analysis of Fusion Functions
//! for Hybrid Retrieval” (2023); `docs/reference/selection.md` has the figures of both.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Ask, Match, SelectError, Selection, Selector, Tools, best, index::embedded, lexical::Lexical,
    parts, rows::Rows, vector::Compared,
};
use crate::embed::EmbedError;

/// What words count beside meaning, whose cosines are at most 1.
const WORDS: f32 = 0.18;
/// What the name counts.
const NAME: f32 = 0.05;
/// What executions have taught counts, from -1 to 1 times this.
const LEARNED: f64 = 0.05;
/// What the part that fits best counts, and the whole query the rest.
const PART: f64 = 0.5;

/// What texts mean, beside what tools mean.
struct Meaning {
    tools: Arc<Rows>,
    /// One for each text.
    texts: Vec<Compared>,
}

impl Selector {
    pub(super) async fn by_both(
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
        let (meaning, without_meaning) = match self.meaning(tools, &texts).await {
            Ok(meaning) => (Some(meaning), None),
            Err(err) => (None, err),
        };
        let allowed: Vec<bool> = (0..tools.len()).map(may).collect();
        let said: Vec<Vec<f32>> = texts.iter().map(|it| said(&words, it, &allowed)).collect();
        let learned = self.taught(tools, ask, meaning.as_ref()).await;
        let field = Field { said: &said, meaning: meaning.as_ref(), learned: &learned };
        let best = field.best(&allowed, ask.limit).into_iter();
        let matches =
            best.map(|it| Match { learned: learned.get(&it.0).copied(), ..Match::plain(it) });
        Ok(Selection { matches: matches.collect(), without_meaning })
    }

    /// Returns what executions have taught of tools for such queries, by their places. Where that
    /// cannot be told, nothing was learned.
    async fn taught(
        &self,
        tools: &Tools,
        ask: &Ask<'_>,
        meaning: Option<&Meaning>,
    ) -> BTreeMap<usize, f64> {
        let Some((outcomes, at)) = ask.taught.filter(|it| !it.0.is_empty()) else {
            return BTreeMap::new();
        };
        let Some(asked) = meaning.and_then(|it| it.texts.first()) else { return BTreeMap::new() };
        let kind = self.kind_of(outcomes, asked).await;
        self.told_of_learned.tell(kind.as_ref().err(), "what was learned is not used");
        let Ok(Some(kind)) = kind else { return BTreeMap::new() };
        let places = self.index().await.places(tools);
        let verdicts = outcomes.verdicts(kind, at);
        verdicts.filter_map(|(tool, verdict)| Some((*places.get(tool)?, verdict))).collect()
    }

    /// Returns what texts mean; nothing where no embedder is configured, or why there is no
    /// meaning.
    async fn meaning(&self, tools: &Tools, texts: &[&str]) -> Result<Meaning, Option<EmbedError>> {
        let Some(pair) = self.embedders() else { return Err(None) };
        let found = async {
            let tools = self.index().await.meanings(tools, &*pair.texts).await?;
            let texts = embedded(&*pair.queries, texts).await?;
            let expected = tools.dimensions();
            if texts.iter().any(|it| expected.is_some_and(|expected| expected != it.len())) {
                let why =
                    "its vectors have got another length: restart after changing it".to_owned();
                return Err(EmbedError::Model { model: pair.queries.model().to_owned(), why });
            }
            Ok(Meaning { tools, texts: texts.into_iter().map(Compared::new).collect() })
        };
        found.await.map_err(Some)
    }
}

/// Returns what the words of a text and the names in it say for each tool.
fn said(words: &Lexical, text: &str, allowed: &[bool]) -> Vec<f32> {
    let (mut said, names) = words.scores_and_names(text);
    let most = said.iter().zip(allowed).filter(|it| *it.1).map(|it| *it.0).fold(0.0, f32::max);
    let share = if most > 0.0 { WORDS / most } else { 0.0 };
    for (said, name) in said.iter_mut().zip(names) {
        *said = share * *said + NAME * name;
    }
    said
}

/// What the score of a tool is made of.
struct Field<'a> {
    /// What words say, for the query and for each of its parts.
    said: &'a [Vec<f32>],
    meaning: Option<&'a Meaning>,
    learned: &'a BTreeMap<usize, f64>,
}

impl Field<'_> {
    /// Returns the tools with the highest scores above 0: all are looked at quickly, in one pass for
    /// the query and its parts, and those that may be among the best once more, exactly.
    fn best(&self, allowed: &[bool], most: usize) -> Vec<(usize, f64)> {
        let mut quick = self.said.to_vec();
        if let Some(it) = self.meaning {
            it.tools.quick_cosines(&it.texts, |text, tool, cosine| quick[text][tool] += cosine);
        }
        let score = |tool: usize| together(quick.iter().map(|points| f64::from(points[tool])));
        let mut scores: Vec<f64> = (0..allowed.len()).map(score).collect();
        for (tool, verdict) in self.learned {
            scores[*tool] += LEARNED * verdict;
        }
        let slack = self.meaning.map_or(0.0, |it| it.tools.slack());
        let places = best::candidates(&scores, most, slack, |tool| allowed[tool]);
        let exact = places.into_iter().map(|it| (it, self.exact(it))).filter(|it| it.1 > 0.0);
        best::first(exact.collect(), most)
    }

    fn exact(&self, tool: usize) -> f64 {
        let points = self.said.iter().enumerate().map(|(text, points)| {
            let cosine = self.meaning.map_or(0.0, |it| it.tools.cosine(tool, &it.texts[text]));
            f64::from(points[tool]) + cosine
        });
        together(points) + LEARNED * self.learned.get(&tool).copied().unwrap_or_default()
    }
}

/// Returns the score of a tool from its points: those of the query, and of each part.
fn together(mut points: impl Iterator<Item = f64>) -> f64 {
    let whole = points.next().unwrap_or_default();
    let Some(part) = points.reduce(f64::max) else { return whole };
    (1.0 - PART) * whole + PART * part
}
