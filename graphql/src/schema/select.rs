use async_graphql::{Context, Enum, Object, Result};
use engine::{CollidingTools, Engine, MAX_SELECTED, SelectedTool, SelectionQuery};
use planner::select::{Criterion, Similarity};

use super::{
    error::{ApiError, invalid_argument},
    tool::Tool,
};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SelectQuery;

/// Method to rank tools for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "Criterion")]
pub(super) enum SelectionCriterion {
    /// Cosine of the query to the centroid of the tool's examples. A tool is a hit if this value is
    /// at least the sum of two numbers: the cosine of the tool's least similar example to the
    /// centroid, and the setting `selection.margin`. Tools without examples are left out.
    Centroid,
    /// Cosine of the query to the tool's description. Tools without a description are left out.
    Description,
    /// BM25 over name, description, parameter names and examples. Tools that share no word with the
    /// query are left out.
    Lexical,
    /// Combines embeddings with common words, for the whole query and for each of its parts.
    /// Planning uses this method.
    Hybrid,
}

/// Measure of how similar two centroids are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "Similarity")]
pub(super) enum CollisionSimilarity {
    /// Dot product of the centroids. It is lower if the examples of a tool differ much from each
    /// other.
    Dot,
    /// Cosine of the centroids.
    Cosine,
}

#[Object]
impl SelectQuery {
    /// Tools for a query, best first. Tools that are not hits are also returned, and count toward
    /// `limit`. Without an embedder, `CENTROID` and `DESCRIPTION` fail with `PLANNER_UNAVAILABLE`.
    async fn select_tools(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Query in words.")] query: String,
        #[graphql(
            desc = "Method to rank the tools.",
            default_with = "Some(SelectionCriterion::Centroid)"
        )]
        by: Option<SelectionCriterion>,
        #[graphql(desc = "Maximum number of tools, from 1 to 1000.", default_with = "Some(5)")]
        limit: Option<i32>,
        #[graphql(desc = "True: tools of active toolsets only.", default_with = "Some(true)")]
        active_only: Option<bool>,
    ) -> Result<Vec<ToolMatch>> {
        let limit = usize::try_from(limit.unwrap_or(5))
            .ok()
            .filter(|limit| (1..=MAX_SELECTED).contains(limit));
        let Some(limit) = limit else {
            return Err(
                invalid_argument(format!("`limit` must be from 1 to {MAX_SELECTED}")).into()
            );
        };
        let by = by.unwrap_or(SelectionCriterion::Centroid).into();
        let active_only = active_only.unwrap_or(true);
        let selection_query = SelectionQuery { query: &query, by, limit, active_only };
        let chosen = ctx
            .data::<Engine>()?
            .selection
            .select_tools(selection_query)
            .await
            .map_err(ApiError::from)?;
        Ok(chosen.into_iter().map(ToolMatch).collect())
    }

    /// Pairs of tools that the same sentences select, because their examples have similar
    /// centroids. Tools without examples are left out. At most 100000 pairs.
    async fn tool_collisions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Lowest similarity of a pair.", default_with = "Some(0.3)")]
        threshold: Option<f64>,
        #[graphql(
            desc = "Measure of how similar two centroids are.",
            default_with = "Some(CollisionSimilarity::Dot)"
        )]
        similarity: Option<CollisionSimilarity>,
    ) -> Result<Vec<ToolCollision>> {
        let similarity = similarity.unwrap_or(CollisionSimilarity::Dot).into();
        let engine = ctx.data::<Engine>()?;
        let found = engine.selection.tool_collisions(similarity, threshold.unwrap_or(0.3)).await;
        Ok(found.map_err(ApiError::from)?.into_iter().map(ToolCollision).collect())
    }
}

pub(super) struct ToolMatch(SelectedTool);

/// Tool that was ranked for a query.
#[Object]
impl ToolMatch {
    /// Tool to which the score belongs.
    async fn tool(&self) -> Tool {
        Tool::new(&self.0.tool, &self.0.set)
    }

    /// Score of the tool: a cosine for `CENTROID` and `DESCRIPTION`. For other criteria, only the
    /// order of the scores is meaningful.
    async fn score(&self) -> f64 {
        self.0.score
    }

    /// True if the tool fits well enough. For `CENTROID`, `score` must be at least `leastSimilar`
    /// plus `selection.margin`. For other criteria, always true.
    async fn hit(&self) -> bool {
        self.0.is_hit
    }

    /// Cosine of the tool's least similar example to its centroid. Null unless the criterion is
    /// `CENTROID`.
    async fn least_similar(&self) -> Option<f64> {
        self.0.least_similar
    }

    /// Example that is least similar to the tool's centroid. Null unless the criterion is
    /// `CENTROID`.
    async fn least_similar_example(&self) -> Option<&str> {
        self.0.least_similar_example.as_deref()
    }

    /// Result of the tool in earlier executions with similar queries, from -1 (it failed) to 1 (it
    /// succeeded). `HYBRID` adds a twentieth of this value to the score. Null without such
    /// executions, and for other criteria.
    async fn learned(&self) -> Option<f64> {
        self.0.learned
    }
}

pub(super) struct ToolCollision(CollidingTools);

/// Two tools that the same sentences select.
#[Object]
impl ToolCollision {
    /// First tool, in the order of the toolsets.
    async fn a(&self) -> &str {
        &self.0.a
    }

    /// Second tool, in the order of the toolsets.
    async fn b(&self) -> &str {
        &self.0.b
    }

    /// Similarity of the centroids of both tools' examples.
    async fn similarity(&self) -> f64 {
        self.0.similarity
    }
}
