//! Plans of queries that were planned before: the same words, the same tools, the same planner; and
//! where that is asked for, other words that ask for the same.
//!
//! What is kept is the draft, not the plan: it is compiled for the new request like any other, so
//! that whoever may not use a tool of it gets no plan by it.

mod alike;

use std::{fmt::Write as _, sync::Arc, time::Duration};

use chrono::TimeDelta;
use planner::{
    Note, Proposal,
    catalog::Catalog,
    draft::Draft,
    offline::alike::{Essence, SIMILARITY},
    select::Told,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use shared::{diagnostic::Diagnostic, id::RequestId, store::StoreError};

use super::{Engine, EngineError};

/// How long a draft is kept. Tools that change make it useless much sooner.
const KEPT: TimeDelta = TimeDelta::days(30);
/// The planner that is as fast as any memory.
const OFFLINE: &str = "offline";

/// Whether plans are taken again that were made before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanCache {
    /// Never.
    Off,
    /// Of exactly the same query.
    #[default]
    Exact,
    /// Also of a query that asks for the same in other words.
    Meaning,
}

impl PlanCache {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Off, Self::Exact, Self::Meaning];

    /// Returns the word that the configuration uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Exact => "exact",
            Self::Meaning => "meaning",
        }
    }
}

/// How plans are taken again where a query does not say.
#[derive(Clone, Debug)]
pub(super) struct Remembering {
    pub(super) cache: PlanCache,
    /// How near a query must be that asks for the same in other words.
    pub(super) similarity: f64,
    /// What kept meaning out the last time, so that it is said once.
    pub(super) told: Arc<Told>,
}

impl Default for Remembering {
    fn default() -> Self {
        Self { cache: PlanCache::default(), similarity: SIMILARITY, told: Arc::default() }
    }
}

/// A query, who is to plan it with which tools, and under what drafts of it are kept.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    rule: PlanCache,
    planner: &'a str,
    query: &'a str,
    /// What the planner is told of.
    catalog: &'a Catalog,
    /// Under what the draft of the query is kept.
    exact: String,
    /// Under what the queries are kept that ask for the same.
    alike: Option<String>,
}

impl<'a> Asked<'a> {
    fn new(rule: PlanCache, planner: &'a str, query: &'a str, catalog: &'a Catalog) -> Self {
        let alike = Essence::of(query, catalog)
            .map(|it| format!("alike:{}", fingerprint(planner, &it.key(), catalog)));
        let exact = exact_key(planner, query, catalog);
        Self { rule, planner, query, catalog, exact, alike }
    }
}

/// A draft that made a plan, and the request that it was made for.
struct Remembered {
    request: RequestId,
    draft: Draft,
    warnings: Vec<Diagnostic>,
    /// Who wrote it, where that was a fallback model.
    author: Option<String>,
}

impl Remembered {
    fn proposal(self, content: Value) -> Proposal {
        let notes = vec![Note { kind: "cache", content, after: Duration::ZERO }];
        Proposal { draft: self.draft, notes, warnings: self.warnings, author: self.author }
    }
}

impl Engine {
    /// Returns under what drafts of a query are kept, where any are: the planner without a model is
    /// faster than looking.
    pub(super) fn asked<'a>(
        &self,
        rule: Option<PlanCache>,
        (planner, query): (&'a str, &'a str),
        catalog: &'a Catalog,
    ) -> Option<Asked<'a>> {
        let rule = rule.unwrap_or(self.remembering.cache);
        let is_kept = rule != PlanCache::Off && planner != OFFLINE;
        is_kept.then(|| Asked::new(rule, planner, query, catalog))
    }

    /// Returns what was proposed for the same query before, or for one that asks for the same if
    /// that is wanted, if it still makes a plan.
    pub(super) async fn remembered(
        &self,
        asked: Option<&Asked<'_>>,
        catalog: &Catalog,
    ) -> Result<Option<Proposal>, EngineError> {
        let Some(asked) = asked else { return Ok(None) };
        if let Some(found) = self.found(&asked.exact).await?
            && self.is_plan(asked, &found.draft, catalog).await?
        {
            let content = json!({ "requestId": found.request, "match": PlanCache::Exact.as_str() });
            return Ok(Some(found.proposal(content)));
        }
        match asked.rule {
            PlanCache::Meaning => self.by_meaning(asked, catalog).await,
            PlanCache::Off | PlanCache::Exact => Ok(None),
        }
    }

    async fn is_plan(
        &self,
        asked: &Asked<'_>,
        draft: &Draft,
        catalog: &Catalog,
    ) -> Result<bool, EngineError> {
        let request = RequestId::draw(self.clock.now());
        let about = self.about(request, 1, String::new(), asked.planner);
        Ok(self.compile(draft, about, catalog).await?.is_ok())
    }

    /// Returns the draft that is kept under a key.
    async fn found(&self, key: &str) -> Result<Option<Remembered>, EngineError> {
        Ok(self.kept(key).await?.and_then(|it| read(&it)))
    }

    /// Returns what is kept under a key.
    async fn kept(&self, key: &str) -> Result<Option<Arc<Value>>, EngineError> {
        match self.store.cached(key, self.clock.now()).await {
            Ok(found) => Ok(found),
            // What is kept to save time must not cost any.
            Err(err @ StoreError::Corrupt { .. }) => {
                tracing::warn!(%err, "a draft that was kept cannot be read");
                Ok(None)
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Keeps what made a plan.
    pub(super) async fn remember(
        &self,
        asked: &Asked<'_>,
        request: RequestId,
        proposal: &Proposal,
    ) {
        let Proposal { draft, warnings, author, .. } = proposal;
        let kept = json!({
            "requestId": request,
            "draft": draft,
            "warnings": warnings,
            "author": author,
        });
        if let Err(err) = self.store.cache(&asked.exact, &kept, self.clock.now() + KEPT).await {
            tracing::warn!(%err, "a draft is not kept for the next time");
            return;
        }
        self.remember_words(asked).await;
    }
}

fn read(kept: &Value) -> Option<Remembered> {
    let request = kept["requestId"].as_str()?.parse().ok()?;
    let draft = serde_json::from_value(kept["draft"].clone()).ok()?;
    let warnings = serde_json::from_value(kept["warnings"].clone()).ok()?;
    let author = kept["author"].as_str().map(str::to_owned);
    Some(Remembered { request, draft, warnings, author })
}

/// Returns under what the draft of a query is kept.
fn exact_key(planner: &str, query: &str, catalog: &Catalog) -> String {
    format!("plan:{}", fingerprint(planner, query, catalog))
}

/// Names a planner, a query and everything that the planner is told of the tools.
fn fingerprint(planner: &str, query: &str, catalog: &Catalog) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    };
    add(planner);
    add(query);
    for tool in catalog.tools() {
        let it = &tool.definition;
        add(it.qualified().as_str());
        let told = json!([
            it.description,
            it.input_schema,
            it.output_schema,
            it.effect,
            it.examples,
            it.is_callable,
            tool.is_active,
        ]);
        add(&told.to_string());
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // A text takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use planner::catalog::CatalogTool;
    use shared::tool::{Effect, ToolDefinition};

    use super::*;

    fn catalog(description: &str, is_active: bool) -> Catalog {
        let definition = ToolDefinition {
            name: "t".parse().unwrap(),
            set: "s".parse().unwrap(),
            description: description.to_owned(),
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            effect: Effect::Read,
            examples: Vec::new(),
            is_callable: true,
        };
        Catalog::new([CatalogTool { definition: Arc::new(definition), is_active }])
    }

    #[test]
    fn whatever_a_planner_is_told_counts() {
        let all = [
            fingerprint("p", "q", &catalog("d", true)),
            fingerprint("p", "q ", &catalog("d", true)),
            fingerprint("pq", "", &catalog("d", true)),
            fingerprint("p", "q", &catalog("e", true)),
            fingerprint("p", "q", &catalog("d", false)),
            fingerprint("p", "q", &Catalog::default()),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(all[0], fingerprint("p", "q", &catalog("d", true)));
    }
}
