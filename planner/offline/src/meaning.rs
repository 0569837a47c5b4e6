//! How near tools are to a query by their descriptions: evidence where words leave several close.

use std::sync::Arc;

use shared::limits;

use super::Proposal;
use planner::{
    catalog::Catalog,
    embed::{EmbedError, Embedders},
    select::{Told, cosine},
};

/// The most tools that are compared with a query.
const TOOLS: usize = 32;

/// What knows how near texts are.
#[derive(Debug)]
pub(super) struct Meaning {
    embedders: Arc<Embedders>,
    /// What kept meaning out the last time, so that it is said once.
    told: Told,
}

impl Meaning {
    pub(super) fn new(embedders: Arc<Embedders>) -> Self {
        Self { embedders, told: Told::default() }
    }

    /// Returns how near every tool that can be planned is to a query, 0 for those that are not
    /// `close` by their words; nothing where there is nothing to choose from, or nobody who knows.
    pub(super) async fn near(
        &self,
        query: &str,
        catalog: &Catalog,
        close: &[usize],
    ) -> Option<Vec<f32>> {
        let close = &close[..close.len().min(TOOLS)];
        if close.len() < 2 || query.len() > limits::QUERY_BYTES {
            return None;
        }
        let tools: Vec<_> = super::tools_for_words(catalog).collect();
        let close: Vec<usize> = close.iter().copied().filter(|it| *it < tools.len()).collect();
        let texts: Vec<&str> = close.iter().map(|it| tools[*it].description.as_str()).collect();
        let cosines = self.cosines(query, &texts).await?;
        let mut near = vec![0.0; tools.len()];
        for (tool, cosine) in close.into_iter().zip(cosines) {
            #[expect(clippy::cast_possible_truncation, reason = "a cosine needs no more")]
            let cosine = cosine as f32;
            near[tool] = cosine;
        }
        Some(near)
    }

    async fn cosines(&self, query: &str, texts: &[&str]) -> Option<Vec<f64>> {
        let told =
            |why: Option<&EmbedError>| self.told.tell(why, "queries are read by words alone");
        let mut choice = self.embedders.choose().await;
        loop {
            let Some(embedding) = &choice.embedding else {
                told(choice.passed_over.last().map(|it| &it.why));
                return None;
            };
            let made = async {
                let asked = embedding.queries.embed(&[query]).await?;
                Ok((asked, embedding.texts.embed(texts).await?))
            };
            let err: EmbedError = match made.await {
                Ok((asked, texts)) => {
                    told(None);
                    let asked = asked.first()?;
                    return Some(texts.iter().map(|it| cosine(asked, it)).collect());
                }
                Err(err) => err,
            };
            let Some(next) = self.embedders.instead(&choice, &err).await else {
                told(Some(&err));
                return None;
            };
            choice = next;
        }
    }
}

/// Returns whether a proposal calls nothing but tools that only look.
pub(super) fn only_looks(proposal: &Proposal, catalog: &Catalog) -> bool {
    proposal.draft.tools.iter().all(|step| {
        let name = step.name.as_deref().or(step.tool_name.as_deref());
        let tool = name.and_then(|it| catalog.find(it));
        tool.is_some_and(|it| it.definition.effect == shared::tool::Effect::Read)
    })
}
