pub(super) mod learning;
mod selectors;
pub(super) mod toolkit;

use std::sync::Arc;

use planner::{
    candidates::Candidates,
    catalog::Catalog,
    embed::ConfiguredEmbedder,
    select::{
        Criterion, DEFAULT_MARGIN, SelectError, SelectionRequest, Similarity, Tools as ToolList,
    },
    toolkit::{
        Toolkit,
        learned::{Follower, Learned},
    },
};
use shared::{id::NodeName, limits, tool::ToolDefinition};
use toolbox::{Listing, ToolSet};

use self::{
    learning::Learning,
    selectors::{Selectors, ToolScope},
};
use super::{error::EngineError, tools::Tools};
use crate::access::Grant;

pub const MAX_SELECTED: usize = 1_000;

#[derive(Clone)]
pub struct Selection {
    pub learning: Arc<Learning>,
    pub(super) tools: Arc<Tools>,
    pub(super) margin: f64,
    selectors: Arc<Selectors>,
}

#[derive(Clone, Debug)]
pub struct SelectedTool {
    pub tool: Arc<ToolDefinition>,
    pub set: ToolSet,
    pub score: f64,
    pub is_hit: bool,
    /// The cosine between the tool's centroid and the example that is least similar to it. Set only
    /// by `CENTROID`.
    pub least_similar: Option<f64>,
    pub least_similar_example: Option<String>,
    /// Result of the tool in earlier executions with similar queries, from -1 (it failed) to 1 (it
    /// succeeded).
    pub learned: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CollidingTools {
    pub a: String,
    pub b: String,
    pub similarity: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectionQuery<'a> {
    pub query: &'a str,
    pub by: Criterion,
    pub limit: usize,
    pub active_only: bool,
}

impl Selection {
    pub(super) fn new(tools: Arc<Tools>, embedder: ConfiguredEmbedder) -> Self {
        let selectors = Arc::new(Selectors::new(embedder));
        let learning = Learning::new(&tools, Arc::clone(&selectors), true);
        Self { learning: Arc::new(learning), tools, margin: DEFAULT_MARGIN, selectors }
    }

    pub(super) fn with_embedder(self, embedder: ConfiguredEmbedder) -> Self {
        let selectors = Arc::new(Selectors::new(embedder));
        let is_on = self.learning.is_on();
        Self { selectors, ..self }.with_learning(is_on)
    }

    pub(super) fn with_learning(self, is_on: bool) -> Self {
        let learning = Learning::new(&self.tools, Arc::clone(&self.selectors), is_on);
        Self { learning: Arc::new(learning), ..self }
    }

    pub fn embedder(&self) -> &ConfiguredEmbedder {
        self.selectors.embedder()
    }

    pub async fn select_tools(
        &self,
        tool_query: SelectionQuery<'_>,
    ) -> Result<Vec<SelectedTool>, EngineError> {
        check_query(tool_query.query)?;
        self.tools.inventory.wait_until_connected().await;
        let listing = self.tools.inventory.toolbox().listing();
        let SelectionQuery { query, by, limit, active_only } = tool_query;
        let lessons =
            if by == Criterion::Hybrid { self.learning.recent_lessons().await } else { None };
        let now = self.tools.clock.now();
        let outcomes = lessons.as_deref().map(|lessons| (&lessons.outcomes, now));
        let ask = SelectionRequest {
            query,
            by,
            limit: limit.min(MAX_SELECTED),
            margin: self.margin,
            outcomes,
        };
        let is_granted = filter_by_grant(&self.tools.grant, &listing);
        let is_allowed =
            |index| (!active_only || listing.set(index).is_active) && is_granted(index);
        let tools = listing.definitions();
        let selected = self.selectors.select(ToolScope::AllTools, tools, &ask, is_allowed).await?;
        let matches = selected.matches.into_iter();
        Ok(matches
            .map(|found| SelectedTool {
                tool: Arc::clone(&listing.definitions()[found.index]),
                set: listing.set(found.index).clone(),
                score: found.score,
                is_hit: found.is_hit,
                least_similar: found.least_similar,
                least_similar_example: found.least_similar_example,
                learned: found.learned,
            })
            .collect())
    }

    /// Returns every pair of tools whose examples are so similar that the same sentences may select
    /// both, in the order of the tools.
    pub async fn tool_collisions(
        &self,
        similarity: Similarity,
        threshold: f64,
    ) -> Result<Vec<CollidingTools>, EngineError> {
        self.tools.inventory.wait_until_connected().await;
        let listing = self.tools.inventory.toolbox().listing();
        let rows =
            self.selectors.list_centroids(ToolScope::AllTools, listing.definitions()).await?;
        let grant = self.tools.grant.clone();
        let compared = tokio::task::spawn_blocking(move || {
            let pairs = rows.collisions(similarity, threshold, filter_by_grant(&grant, &listing));
            let pairs = pairs.map_err(SelectError::from)?;
            let name = |index| listing.name(index);
            let named = pairs.into_iter().map(|pair| CollidingTools {
                a: name(pair.a),
                b: name(pair.b),
                similarity: pair.similarity,
            });
            Ok(named.collect())
        });
        let ending = |_| EngineError::Conflict("the process is about to end".to_owned());
        compared.await.map_err(ending)?
    }

    /// Selects at most `max_tools` of the plannable tools. If there are not more tools than that,
    /// all of them are candidates, and words alone are enough to sort them.
    pub(super) async fn candidates(
        &self,
        query: &str,
        catalog: &Catalog,
        max_tools: usize,
    ) -> Candidates {
        let tools: ToolList = catalog.list_plannable().cloned().collect();
        let by = if tools.len() > max_tools { Criterion::Hybrid } else { Criterion::Lexical };
        let limit = tools.len().min(MAX_SELECTED);
        let lessons =
            if by == Criterion::Hybrid { self.learning.recent_lessons().await } else { None };
        let now = self.tools.clock.now();
        let outcomes = lessons.as_deref().map(|lessons| (&lessons.outcomes, now));
        let ask = SelectionRequest { query, by, limit, margin: 0.0, outcomes };
        let selected = self.selectors.select(ToolScope::Plannable, &tools, &ask, |_| true).await;
        Candidates::new(catalog, &tools, &selected.unwrap_or_default(), by, max_tools)
    }

    /// Returns the likeliest followers of a tool, likeliest first. Leaves out tools that the caller
    /// is not allowed to use.
    pub async fn followers(
        &self,
        tool: &NodeName,
        limit: usize,
    ) -> Result<Vec<Follower>, EngineError> {
        let tool = self.tools.inventory.qualify_name(tool);
        let learned = self.learning.load_learned().await?;
        if !learned.is_followed(&tool) {
            return Ok(Vec::new());
        }
        let found = learned.followers(&tool, usize::MAX, self.tools.clock.now());
        let allowed = found.into_iter().filter(|found| self.tools.grant.allows(&found.tool));
        Ok(allowed.take(limit).collect())
    }

    pub fn learned_score(
        &self,
        learned: &Learned,
        toolkit: &Toolkit,
        from: &NodeName,
        to: &NodeName,
    ) -> Option<f64> {
        let qualified = |name: &_| Some(self.tools.inventory.qualify_name(name));
        learned.score(toolkit, from, to, qualified, self.tools.clock.now())
    }
}

fn filter_by_grant<'a>(grant: &'a Grant, listing: &'a Listing) -> impl Fn(usize) -> bool + 'a {
    let every = grant.allows_every_tool();
    move |index| every || grant.allows(&listing.definitions()[index].qualified_name())
}

fn check_query(query: &str) -> Result<(), EngineError> {
    if query.trim().is_empty() {
        let reason = "`query` is empty: describe the task in words".to_owned();
        return Err(EngineError::InvalidArgument(reason));
    }
    if query.len() > limits::QUERY_BYTES {
        let (has, limit) = (query.len(), limits::QUERY_BYTES);
        return Err(EngineError::LimitExceeded(format!(
            "`query` has {has} bytes; the limit is {limit}"
        )));
    }
    Ok(())
}

impl From<SelectError> for EngineError {
    fn from(err: SelectError) -> Self {
        let message = err.to_string();
        match err {
            SelectError::TooManyPairs(_) => Self::LimitExceeded(message),
            SelectError::NoEmbedder(_) | SelectError::Embed(_) => {
                Self::PlannerUnavailable { message, request: None }
            }
        }
    }
}
