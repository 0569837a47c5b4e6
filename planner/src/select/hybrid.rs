//! Selection by meaning and by words, each part of a query by itself.
//!
//! For every text (the query, and each of its parts) a tool gets the cosine of its meaning, what its
//! words say as a share of what they say for the best tool, and how much of its name was said. These
//! are added up with their weights. A query with parts counts half for itself, half for the part
//! that a tool fits best, so that each part finds its tool. Sums of scores on one scale do better
//! here than sums of reciprocal ranks, as in Bruch, Gai and Ingber, “An Analysis of Fusion Functions
//! for Hybrid Retrieval” (2023); `docs/selection.md` has the figures of both.

use std::sync::Arc;

use super::{
    Ask, Match, SelectError, Selection, Selector, Tools, fusion, index::embedded, lexical::Lexical,
    parts, rows::Rows, vector,
};
use crate::embed::EmbedError;

/// What words count beside meaning, whose cosines are at most 1.
const WORDS: f32 = 0.18;
/// What the name counts.
const NAME: f32 = 0.05;
/// What the part that fits best counts, and the whole query the rest.
const PART: f32 = 0.5;

/// What texts mean, beside what tools mean.
struct Meaning {
    tools: Arc<Rows>,
    /// One for each text, of length 1.
    texts: Vec<Vec<f32>>,
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
        let parts = parts::parts(ask.query);
        let texts: Vec<&str> = std::iter::once(ask.query).chain(parts).collect();
        let words = self.index().await.words(tools);
        let (meaning, without_meaning) = match self.meaning(tools, &texts).await {
            Ok(meaning) => (Some(meaning), None),
            Err(err) => (None, err.map(|it| it.to_string())),
        };
        let allowed: Vec<bool> = (0..tools.len()).map(may).collect();
        let points = |at: usize| points(&words, meaning.as_ref(), (at, texts[at]), &allowed);
        let mut scores = points(0);
        if texts.len() > 1 {
            let mut best = points(1);
            for part in 2..texts.len() {
                for (best, it) in best.iter_mut().zip(points(part)) {
                    *best = best.max(it);
                }
            }
            for (score, best) in scores.iter_mut().zip(best) {
                *score = (1.0 - PART) * *score + PART * best;
            }
        }
        let best = fusion::best(&scores, ask.limit, |at| allowed[at]);
        let matches = best.into_iter().map(Match::plain).collect();
        Ok(Selection { matches, without_meaning })
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
            Ok(Meaning { tools, texts: texts.iter().map(|it| vector::unit(it)).collect() })
        };
        let found: Result<_, EmbedError> = found.await;
        self.tell(found.as_ref().err());
        found.map_err(Some)
    }
}

/// Returns how well each tool fits a text.
fn points(
    words: &Lexical,
    meaning: Option<&Meaning>,
    (at, text): (usize, &str),
    allowed: &[bool],
) -> Vec<f32> {
    let said = words.scores(text);
    let most = said.iter().zip(allowed).filter(|it| *it.1).map(|it| *it.0).fold(0.0, f32::max);
    let share = if most > 0.0 { WORDS / most } else { 0.0 };
    let names = words.names(text);
    let mut points: Vec<f32> =
        said.iter().zip(names).map(|(said, name)| share * said + NAME * name).collect();
    if let Some(meaning) = meaning {
        for (tool, cosine) in meaning.tools.cosines(&meaning.texts[at]) {
            points[tool] += cosine;
        }
    }
    points
}
