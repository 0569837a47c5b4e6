//! Which tools a query needs, and which are wanted by the same sentences.

use async_graphql::{Context, Enum, Object, Result};
use planner::select::{Criterion, Similarity};

use super::{
    error::{ApiError, invalid},
    tool::Tool,
};
use crate::engine::{Chosen, Colliding, Engine, MAX_SELECTED, Wanted};

/// Selection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SelectQuery;

/// By what tools are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "Criterion")]
pub(super) enum SelectionCriterion {
    /// The cosine to the middle of their examples. A hit is nearer than their least similar
    /// example by `selection.margin`. Tools without examples take no part.
    Centroid,
    /// The cosine to their description.
    Description,
    /// The words of their name, description, parameters and examples, by BM25.
    Lexical,
    /// Meaning and words together, each part of the query by itself: what planning uses.
    Hybrid,
}

/// How the centroids of two tools are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "Similarity")]
pub(super) enum CollisionSimilarity {
    /// The product of the two means as they are: tools whose examples scatter collide less.
    Dot,
    /// Their cosine.
    Cosine,
}

/// Selection.
#[Object]
impl SelectQuery {
    /// The tools that a query needs, the best first: those that are no hits, too.
    async fn select_tools(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What a tool is wanted for, in words.")] query: String,
        #[graphql(desc = "By what.", default_with = "Some(SelectionCriterion::Centroid)")]
        by: Option<SelectionCriterion>,
        #[graphql(
            desc = "At most so many, 1 to 1000. Hits are judged afterwards.",
            default_with = "Some(5)"
        )]
        limit: Option<i32>,
        #[graphql(desc = "Only those that plans may use.", default_with = "Some(true)")]
        active_only: Option<bool>,
    ) -> Result<Vec<ToolMatch>> {
        let limit = usize::try_from(limit.unwrap_or(5))
            .ok()
            .filter(|limit| (1..=MAX_SELECTED).contains(limit));
        let Some(limit) = limit else {
            return Err(invalid(format!("`limit` must be 1 to {MAX_SELECTED}")).into());
        };
        let by = by.unwrap_or(SelectionCriterion::Centroid).into();
        let active_only = active_only.unwrap_or(true);
        let wanted = Wanted { query: &query, by, limit, active_only };
        let chosen =
            ctx.data::<Engine>()?.selection.select_tools(wanted).await.map_err(ApiError::from)?;
        Ok(chosen.into_iter().map(ToolMatch).collect())
    }

    /// Every pair of tools that the same sentences want: those whose examples have similar
    /// centroids. Tools without examples take no part.
    async fn tool_collisions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "How similar at least.", default_with = "Some(0.3)")] threshold: Option<
            f64,
        >,
        #[graphql(
            desc = "How they are compared.",
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

/// A tool that was chosen.
pub(super) struct ToolMatch(Chosen);

/// A tool that was chosen.
#[Object]
impl ToolMatch {
    /// The tool.
    async fn tool(&self) -> Tool {
        Tool::new(&self.0.tool, &self.0.set)
    }

    /// How well it fits: a cosine by CENTROID and DESCRIPTION, else points of which only the order
    /// counts.
    async fn score(&self) -> f64 {
        self.0.score
    }

    /// Whether it fits well enough. By CENTROID, whether `score` is at least `leastSimilar` and
    /// the margin.
    async fn hit(&self) -> bool {
        self.0.is_hit
    }

    /// By CENTROID: the cosine of its least similar example to the centroid.
    async fn least_similar(&self) -> Option<f64> {
        self.0.least_similar
    }

    /// By CENTROID: that example.
    async fn least_similar_example(&self) -> Option<&str> {
        self.0.least_similar_example.as_deref()
    }

    /// By HYBRID: what executions have taught of it for such queries, from -1 (it failed) to 1 (it
    /// did well); null where nothing. A twentieth of it is part of `score`.
    async fn learned(&self) -> Option<f64> {
        self.0.learned
    }
}

/// Two tools that are wanted by the same sentences.
pub(super) struct ToolCollision(Colliding);

/// Two tools that are wanted by the same sentences.
#[Object]
impl ToolCollision {
    /// The earlier tool.
    async fn a(&self) -> &str {
        &self.0.a
    }

    /// The later one.
    async fn b(&self) -> &str {
        &self.0.b
    }

    /// How similar their centroids are.
    async fn similarity(&self) -> f64 {
        self.0.similarity
    }
}
