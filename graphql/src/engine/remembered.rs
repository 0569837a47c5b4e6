//! The plan cache: drafts of queries that were planned before with the same tools by the same planner.
//!
//! The cache holds the draft, not the plan. The engine compiles the draft again for each request, so
//! a caller without the right to a tool gets no plan that uses it.

use std::{fmt::Write as _, time::Duration};

use chrono::TimeDelta;
use planner::{Note, Proposal, catalog::Catalog, draft::Draft};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use shared::{diagnostic::Diagnostic, id::RequestId, store::StoreError};

use super::{Engine, EngineError};

/// How long a draft is kept. A change of the tools makes it useless much sooner.
const KEPT: TimeDelta = TimeDelta::days(30);
/// The planner that is as fast as any cache.
const OFFLINE: &str = "offline";

/// Whether a query that was planned before takes its draft from the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanCache {
    /// Never.
    Off,
    /// Only exactly the same query.
    #[default]
    Exact,
}

impl PlanCache {
    /// Every rule.
    pub const ALL: [Self; 2] = [Self::Off, Self::Exact];

    /// Returns the word that the configuration uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Exact => "exact",
        }
    }
}

/// The cache entry of a query.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    planner: &'a str,
    key: String,
}

/// A draft that made a plan, and the request that it was made for.
struct Remembered {
    request: RequestId,
    draft: Draft,
    warnings: Vec<Diagnostic>,
    /// The fallback model that wrote the draft, if one did.
    author: Option<String>,
}

impl Engine {
    /// Returns the cache entry of a query, unless the cache is off or the planner is `offline`.
    pub(super) fn asked<'a>(
        &self,
        rule: Option<PlanCache>,
        (planner, query): (&'a str, &'a str),
        catalog: &'a Catalog,
    ) -> Option<Asked<'a>> {
        let rule = rule.unwrap_or(self.plan_cache);
        let is_kept = rule != PlanCache::Off && planner != OFFLINE;
        is_kept.then(|| Asked {
            planner,
            key: format!("plan:{}", fingerprint(planner, query, catalog)),
        })
    }

    /// Returns the proposal of an entry if its draft still makes a plan.
    pub(super) async fn remembered(
        &self,
        asked: Option<&Asked<'_>>,
        catalog: &Catalog,
    ) -> Result<Option<Proposal>, EngineError> {
        let Some(asked) = asked else { return Ok(None) };
        let kept = match self.store.cached(&asked.key, self.clock.now()).await {
            Ok(kept) => kept,
            // A damaged entry must not keep a query from being planned.
            Err(err @ StoreError::Corrupt { .. }) => {
                tracing::warn!(%err, "a draft that was kept cannot be read");
                None
            }
            Err(err) => return Err(err.into()),
        };
        let Some(found) = kept.and_then(|kept| read(&kept)) else { return Ok(None) };
        let request = RequestId::draw(self.clock.now());
        let about = self.about(request, 1, String::new(), asked.planner);
        if self.compile(&found.draft, about, catalog).await?.is_err() {
            return Ok(None);
        }
        let content = json!({ "requestId": found.request });
        Ok(Some(Proposal {
            draft: found.draft,
            notes: vec![Note { kind: "cache", content, after: Duration::ZERO }],
            warnings: found.warnings,
            author: found.author,
        }))
    }

    /// Keeps a draft that made a plan.
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
        if let Err(err) = self.store.cache(&asked.key, &kept, self.clock.now() + KEPT).await {
            tracing::warn!(%err, "a draft is not kept for the next time");
        }
    }
}

fn read(kept: &Value) -> Option<Remembered> {
    let request = kept["requestId"].as_str()?.parse().ok()?;
    let draft = serde_json::from_value(kept["draft"].clone()).ok()?;
    let warnings = serde_json::from_value(kept["warnings"].clone()).ok()?;
    let author = kept["author"].as_str().map(str::to_owned);
    Some(Remembered { request, draft, warnings, author })
}

/// Hashes the planner's name, the query and everything that the planner reads about the tools.
fn fingerprint(planner: &str, query: &str, catalog: &Catalog) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    };
    add(planner);
    add(query);
    for tool in catalog.tools() {
        let definition = &tool.definition;
        add(definition.qualified().as_str());
        let told = json!([
            definition.description,
            definition.input_schema,
            definition.output_schema,
            definition.effect,
            definition.examples,
            definition.is_callable,
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
