//! Plans of queries that were planned before: the same words, the same tools, the same planner.
//!
//! What is kept is the draft, not the plan: it is compiled for the new request like any other, so
//! that whoever may not use a tool of it gets no plan by it.

use std::fmt::Write as _;

use chrono::TimeDelta;
use planner::{Note, Proposal, catalog::Catalog, draft::Draft};
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
    /// Of exactly the same query.
    #[default]
    Exact,
    /// Never.
    Off,
}

impl PlanCache {
    /// Every rule.
    pub const ALL: [Self; 2] = [Self::Exact, Self::Off];

    /// Returns the word that the configuration uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Off => "off",
        }
    }
}

/// Under what the draft of a query is kept.
#[derive(Clone, Debug)]
pub(super) struct Key(String);

impl Engine {
    /// Returns under what the draft of a query is kept, where any is: the planner without a model
    /// is faster than looking.
    pub(super) fn memory_key(&self, planner: &str, query: &str, catalog: &Catalog) -> Option<Key> {
        let is_kept = self.plan_cache == PlanCache::Exact && planner != OFFLINE;
        is_kept.then(|| Key(format!("plan:{}", fingerprint(planner, query, catalog))))
    }

    /// Returns what was proposed for the same query before, if it still makes a plan.
    pub(super) async fn remembered(
        &self,
        planner: &str,
        key: Option<&Key>,
        catalog: &Catalog,
    ) -> Result<Option<Proposal>, EngineError> {
        let Some(Key(key)) = key else { return Ok(None) };
        let found = match self.store.cached(key, self.clock.now()).await {
            Ok(found) => found,
            // What is kept to save time must not cost any.
            Err(err @ StoreError::Corrupt { .. }) => {
                tracing::warn!(%err, "a draft that was kept cannot be read");
                None
            }
            Err(err) => return Err(err.into()),
        };
        let Some((of, draft, warnings)) = found.and_then(|it| read(&it)) else { return Ok(None) };
        let request = RequestId::draw(self.clock.now());
        let about = self.about(request, 1, String::new(), planner);
        if self.compile(&draft, about, catalog).await?.is_err() {
            return Ok(None);
        }
        let content = json!({ "requestId": of, "match": PlanCache::Exact.as_str() });
        Ok(Some(Proposal { draft, notes: vec![Note { kind: "cache", content }], warnings }))
    }

    /// Keeps what made a plan.
    pub(super) async fn remember(
        &self,
        Key(key): &Key,
        request: RequestId,
        draft: &Draft,
        warnings: &[Diagnostic],
    ) {
        let kept = json!({ "requestId": request, "draft": draft, "warnings": warnings });
        if let Err(err) = self.store.cache(key, &kept, self.clock.now() + KEPT).await {
            tracing::warn!(%err, "a draft is not kept for the next time");
        }
    }
}

fn read(kept: &Value) -> Option<(RequestId, Draft, Vec<Diagnostic>)> {
    let of = kept["requestId"].as_str()?.parse().ok()?;
    let draft = serde_json::from_value(kept["draft"].clone()).ok()?;
    let warnings = serde_json::from_value(kept["warnings"].clone()).ok()?;
    Some((of, draft, warnings))
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
