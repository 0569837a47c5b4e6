//! Drafts of queries that ask for the same in other words.
//!
//! The queries that come to the same ([`Essence`](planner::offline::alike::Essence)) are kept under
//! one key, so that few are ever compared. Two processes that write there at once may lose one of
//! two queries: then a model is asked once more.

use planner::{Proposal, catalog::Catalog, embed::EmbedError, offline::alike, select::cosine};
use serde_json::{Value, json};

use super::{Asked, KEPT, PlanCache};
use crate::engine::{Engine, EngineError};

/// The most queries that are kept of those that ask for the same: the newest.
const QUERIES: usize = 32;

impl Engine {
    /// Returns what was proposed for the nearest query that asks for the same, if that is near
    /// enough and still makes a plan.
    pub(super) async fn by_meaning(
        &self,
        asked: &Asked<'_>,
        catalog: &Catalog,
    ) -> Result<Option<Proposal>, EngineError> {
        let Some(key) = &asked.alike else { return Ok(None) };
        let mut queries = self.kept_queries(key).await?;
        queries.retain(|it| it != asked.query);
        let near = self.nearness(asked.query, &queries).await;
        let mut near: Vec<(f64, &String)> = near.into_iter().zip(&queries).collect();
        near.retain(|it| it.0 >= self.remembering.similarity);
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (similarity, query) in near {
            let key = super::exact_key(asked.planner, query, asked.catalog);
            let Some(mut found) = self.found(&key).await? else { continue };
            if !alike::keeps_texts(&found.draft, query, asked.query) {
                continue;
            }
            if found.draft.query.is_some() {
                found.draft.query = Some(asked.query.to_owned());
            }
            if !self.is_plan(asked, &found.draft, catalog).await? {
                continue;
            }
            let content = json!({
                "requestId": found.request,
                "match": PlanCache::Meaning.as_str(),
                "query": query,
                "similarity": (similarity * 1e3).round() / 1e3,
            });
            return Ok(Some(found.proposal(content)));
        }
        Ok(None)
    }

    /// Keeps the words of a query beside those that ask for the same.
    pub(super) async fn remember_words(&self, asked: &Asked<'_>) {
        let Some(key) = &asked.alike else { return };
        let mut queries = self.kept_queries(key).await.unwrap_or_default();
        queries.retain(|it| it != asked.query);
        queries.insert(0, asked.query.to_owned());
        queries.truncate(QUERIES);
        if let Err(err) = self.store.cache(key, &json!(queries), self.clock.now() + KEPT).await {
            tracing::warn!(%err, "the words of a query are not kept for the next time");
        }
    }

    async fn kept_queries(&self, key: &str) -> Result<Vec<String>, EngineError> {
        let kept = self.kept(key).await?;
        let queries = kept.as_deref().and_then(Value::as_array).into_iter().flatten();
        Ok(queries.filter_map(Value::as_str).map(str::to_owned).take(QUERIES).collect())
    }

    /// Returns how near queries are to one; nothing where no embedder says so. They are few, and
    /// those that were asked lately are known, so that nothing is kept of them in the store.
    async fn nearness(&self, query: &str, others: &[String]) -> Vec<f64> {
        if others.is_empty() {
            return Vec::new();
        }
        let texts: Vec<&str> =
            std::iter::once(query).chain(others.iter().map(String::as_str)).collect();
        let told = |why: Option<&EmbedError>| {
            self.remembering
                .told
                .tell(why, "plans are taken again for exactly the same query only");
        };
        let mut choice = self.embedders.choose().await;
        loop {
            let Some(embedding) = &choice.embedding else {
                told(choice.passed_over.last().map(|it| &it.why));
                return Vec::new();
            };
            let err = match embedding.queries.embed(&texts).await {
                Ok(vectors) => {
                    told(None);
                    let Some((first, rest)) = vectors.split_first() else { return Vec::new() };
                    return rest.iter().map(|it| cosine(first, it)).collect();
                }
                Err(err) => err,
            };
            let Some(next) = self.embedders.instead(&choice, &err).await else {
                told(Some(&err));
                return Vec::new();
            };
            choice = next;
        }
    }
}
