use std::sync::{Arc, OnceLock};

use planner::{
    embed::{ConfiguredEmbedder, EmbedError, Embedding},
    select::{
        Centroids, Criterion, LastLoggedError, Outcomes, SelectError, Selection, SelectionRequest,
        Selector, Tools,
    },
};

#[derive(Debug)]
pub(super) struct Selectors {
    embedder: ConfiguredEmbedder,
    /// Compares only words, so it never waits for an embedder.
    lexical: SelectorPair,
    /// Uses the embedder and keeps the vectors of the tools.
    by_embedding: OnceLock<SelectorPair>,
    /// The last logged reason why only words are compared, so that the same reason is not logged
    /// again.
    logged_fallback: LastLoggedError,
}

/// A selector over all tools and a selector over the plannable tools. Each keeps the vectors of its
/// tools.
#[derive(Debug)]
struct SelectorPair {
    all_tools: Selector,
    plannable_tools: Selector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolScope {
    AllTools,
    Plannable,
}

impl SelectorPair {
    fn new(embedding: Option<&Embedding>) -> Self {
        let new = || embedding.map_or_else(|| Selector::new(None), Selector::from_embedding);
        Self { all_tools: new(), plannable_tools: new() }
    }

    fn selector_for(&self, scope: ToolScope) -> &Selector {
        match scope {
            ToolScope::AllTools => &self.all_tools,
            ToolScope::Plannable => &self.plannable_tools,
        }
    }
}

impl Selectors {
    pub(super) fn new(embedder: ConfiguredEmbedder) -> Self {
        Self {
            embedder,
            lexical: SelectorPair::new(None),
            by_embedding: OnceLock::new(),
            logged_fallback: LastLoggedError::default(),
        }
    }

    pub(super) fn embedder(&self) -> &ConfiguredEmbedder {
        &self.embedder
    }

    /// Returns the selector with the embedder. If none is configured, returns the selector that
    /// compares words only.
    async fn selector_with_embedder(&self, scope: ToolScope) -> Result<&Selector, EmbedError> {
        let selectors = match self.embedder.open().await? {
            Some(embedding) => {
                self.by_embedding.get_or_init(|| SelectorPair::new(Some(&embedding)))
            }
            None => &self.lexical,
        };
        Ok(selectors.selector_for(scope))
    }

    /// Selects tools for which `is_allowed` is true. If no embedder works, `HYBRID` compares words
    /// alone.
    pub(super) async fn select(
        &self,
        scope: ToolScope,
        tools: &Tools,
        request: &SelectionRequest<'_>,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        let lexical = self.lexical.selector_for(scope);
        match request.by {
            Criterion::Lexical => lexical.select(tools, request, is_allowed).await,
            Criterion::Centroid | Criterion::Description => {
                let selected = self
                    .selector_with_embedder(scope)
                    .await?
                    .select(tools, request, is_allowed)
                    .await;
                self.report_embedder_failure(selected)
            }
            Criterion::Hybrid => {
                let selection = match self.selector_with_embedder(scope).await {
                    Ok(selector) => selector.select(tools, request, is_allowed).await?,
                    Err(error) => {
                        let by_words = lexical.select(tools, request, is_allowed).await?;
                        Selection { without_meaning: Some(error), ..by_words }
                    }
                };
                let reason = selection.without_meaning.as_ref();
                if let Some(reason) = reason {
                    self.embedder.report_failure(reason);
                }
                self.logged_fallback.log_if_new(reason, "tools are chosen by words alone");
                Ok(selection)
            }
        }
    }

    pub(super) async fn list_centroids(
        &self,
        scope: ToolScope,
        tools: &Tools,
    ) -> Result<Arc<Centroids>, SelectError> {
        self.report_embedder_failure(
            self.selector_with_embedder(scope).await?.centroids(tools).await,
        )
    }

    pub(super) async fn query_kind(
        &self,
        outcomes: &Outcomes,
        query: &str,
    ) -> Result<Option<usize>, SelectError> {
        self.report_embedder_failure(
            self.selector_with_embedder(ToolScope::Plannable).await?.kind(outcomes, query).await,
        )
    }

    fn report_embedder_failure<T>(&self, result: Result<T, SelectError>) -> Result<T, SelectError> {
        if let Err(SelectError::Embed(reason)) = &result {
            self.embedder.report_failure(reason);
        }
        result
    }
}
