//! The plan cache: drafts of earlier queries, for the same tools and planner. The engine compiles
//! the draft again for each request, so a caller without the right to a tool gets no plan that uses
//! it.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use shared::{diagnostic::Diagnostic, hex::to_hex, id::RequestId};

use crate::{Note, Proposal, catalog::Catalog, draft::Draft};

/// The planner that does not use the cache, because it is as fast as the cache.
const OFFLINE_PLANNER: &str = "offline";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanCache {
    Off,
    #[default]
    Exact,
}

impl PlanCache {
    pub const ALL: [Self; 2] = [Self::Off, Self::Exact];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Exact => "exact",
        }
    }
}

#[derive(Clone, Debug)]
pub struct CachedDraft {
    request: RequestId,
    draft: Draft,
    warnings: Vec<Diagnostic>,
    author: Option<String>,
}

/// Returns the key of a query's entry. Returns `None` if the cache is off or the planner is
/// `offline`.
pub fn entry_key(rule: PlanCache, planner: &str, query: &str, catalog: &Catalog) -> Option<String> {
    let is_cached = rule != PlanCache::Off && planner != OFFLINE_PLANNER;
    is_cached.then(|| format!("plan:{}", hash_inputs(planner, query, catalog)))
}

impl CachedDraft {
    pub fn new(request: RequestId, proposal: &Proposal) -> Self {
        let Proposal { draft, warnings, author, .. } = proposal.clone();
        Self { request, draft, warnings, author }
    }

    pub fn from_value(entry: &Value) -> Option<Self> {
        let request = entry["requestId"].as_str()?.parse().ok()?;
        let draft = serde_json::from_value(entry["draft"].clone()).ok()?;
        let warnings = serde_json::from_value(entry["warnings"].clone()).ok()?;
        let author = entry["author"].as_str().map(str::to_owned);
        Some(Self { request, draft, warnings, author })
    }

    pub fn to_value(&self) -> Value {
        json!({
            "requestId": self.request,
            "draft": self.draft,
            "warnings": self.warnings,
            "author": self.author,
        })
    }

    pub fn into_proposal(self) -> Proposal {
        let content = json!({ "requestId": self.request });
        let notes = vec![Note { kind: "cache", content, after: Duration::ZERO }];
        Proposal { draft: self.draft, notes, warnings: self.warnings, author: self.author }
    }
}

fn hash_inputs(planner: &str, query: &str, catalog: &Catalog) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    };
    add(planner);
    add(query);
    for tool in catalog.tools() {
        let definition = &tool.definition;
        add(definition.qualified_name().as_str());
        let key_parts = json!([
            definition.description,
            definition.input_schema,
            definition.output_schema,
            definition.effect,
            definition.examples,
            definition.is_callable,
            tool.is_active,
        ]);
        add(&key_parts.to_string());
    }
    to_hex(hash.finalize())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::tool::{Effect, ToolDefinition};

    use super::*;
    use crate::catalog::CatalogTool;

    fn make_catalog(description: &str, is_active: bool) -> Catalog {
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
    fn the_cache_key_depends_on_planner_query_and_catalog() {
        let all = [
            hash_inputs("p", "q", &make_catalog("d", true)),
            hash_inputs("p", "q ", &make_catalog("d", true)),
            hash_inputs("pq", "", &make_catalog("d", true)),
            hash_inputs("p", "q", &make_catalog("e", true)),
            hash_inputs("p", "q", &make_catalog("d", false)),
            hash_inputs("p", "q", &Catalog::default()),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(all[0], hash_inputs("p", "q", &make_catalog("d", true)));
    }
}
