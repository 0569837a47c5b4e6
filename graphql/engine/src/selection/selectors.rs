//! Selectors of tools, one for each embedder.

use std::sync::{Arc, Mutex, PoisonError};

use planner::{
    embed::{Choice, Embedders, Embedding},
    select::{Ask, Criterion, SelectError, Selection, Selector, Told, Tools},
};

type EmbeddedSelectors = Vec<(Option<Embedding>, SelectorPair)>;

#[derive(Debug)]
pub(super) struct Selectors {
    embedders: Arc<Embedders>,
    /// Compares words only, so that it never waits for an embedder.
    lexical: SelectorPair,
    /// Selectors of each embedder that was used. They keep the vectors of the tools.
    embedded: Mutex<EmbeddedSelectors>,
    /// The last reason why words alone decided, so that it is logged once.
    fallback: Told,
}

/// Selectors from all tools and from the plannable ones. Each keeps vectors of its own list.
#[derive(Clone, Debug)]
struct SelectorPair {
    every: Arc<Selector>,
    plannable: Arc<Selector>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolScope {
    Every,
    Plannable,
}

pub(super) struct ChosenSelector {
    choice: Arc<Choice>,
    scope: ToolScope,
    pub(super) selector: Arc<Selector>,
}

impl SelectorPair {
    fn new(embedding: Option<&Embedding>) -> Self {
        let new = || Arc::new(embedding.map_or_else(|| Selector::new(None), Selector::with));
        Self { every: new(), plannable: new() }
    }

    fn in_scope(&self, scope: ToolScope) -> &Arc<Selector> {
        match scope {
            ToolScope::Every => &self.every,
            ToolScope::Plannable => &self.plannable,
        }
    }
}

impl Selectors {
    pub(super) fn new(embedders: Arc<Embedders>) -> Self {
        let lexical = SelectorPair::new(None);
        Self { embedders, lexical, embedded: Mutex::default(), fallback: Told::default() }
    }

    pub(super) fn embedders(&self) -> &Embedders {
        &self.embedders
    }

    fn find(&self, embedding: Option<&Embedding>) -> SelectorPair {
        let mut embedded = self.embedded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: Option<&Embedding>| match (known, embedding) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if let Some((_, known)) = embedded.iter().find(|(known, _)| is_same(known.as_ref())) {
            return known.clone();
        }
        let selectors = SelectorPair::new(embedding);
        embedded.push((embedding.cloned(), selectors.clone()));
        selectors
    }

    /// Returns the selector with the embedder that works now.
    pub(super) async fn choose(&self, scope: ToolScope) -> ChosenSelector {
        self.chosen(self.embedders.choose().await, scope)
    }

    fn chosen(&self, choice: Arc<Choice>, scope: ToolScope) -> ChosenSelector {
        let selectors = self.find(choice.embedding.as_ref());
        ChosenSelector { choice, scope, selector: Arc::clone(selectors.in_scope(scope)) }
    }

    /// Returns the selector with the next embedder after a failed one, or the failure.
    pub(super) async fn choose_next(
        &self,
        failed: &ChosenSelector,
        err: SelectError,
    ) -> Result<ChosenSelector, SelectError> {
        let SelectError::Embed(why) = &err else { return Err(err) };
        let next = self.embedders.instead(&failed.choice, why).await;
        next.map(|choice| self.chosen(choice, failed.scope)).ok_or(err)
    }

    /// Selects tools for which `is_allowed` is true. Without an embedder that works, `HYBRID`
    /// compares words alone.
    pub(super) async fn select(
        &self,
        scope: ToolScope,
        tools: &Tools,
        ask: &Ask<'_>,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Selection, SelectError> {
        if ask.by == Criterion::Lexical {
            return self.lexical.in_scope(scope).select(tools, ask, is_allowed).await;
        }
        let mut chosen = self.choose(scope).await;
        loop {
            let selection = match chosen.selector.select(tools, ask, &is_allowed).await {
                Ok(selection) => selection,
                Err(err) => {
                    chosen = self.choose_next(&chosen, err).await?;
                    continue;
                }
            };
            if let Some(why) = &selection.without_meaning
                && let Ok(next) = self.choose_next(&chosen, why.clone().into()).await
            {
                chosen = next;
                continue;
            }
            let why = selection.without_meaning.as_ref();
            self.fallback.tell(why, "tools are chosen by words alone");
            return Ok(selection);
        }
    }
}
