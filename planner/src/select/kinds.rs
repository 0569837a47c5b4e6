//! The vectors of kinds of queries.
//!
//! They stay in memory: what people have asked for is not kept longer than the kinds themselves are.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    index::embedded,
    outcomes::{KINDS, Outcomes},
    rows::Rows,
};
use crate::embed::{EmbedError, Embedder};

/// The first queries of all kinds that were last asked about, and their vectors.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    texts: Vec<String>,
    rows: Arc<Rows>,
    /// By text, also those of a moment ago: who learns is ahead of who asks.
    vectors: BTreeMap<String, Vec<f32>>,
}

impl Kinds {
    /// Returns the vectors of all kinds, in their order; only what is new is embedded.
    pub(super) async fn rows(
        &mut self,
        outcomes: &Outcomes,
        embedder: &dyn Embedder,
    ) -> Result<Arc<Rows>, EmbedError> {
        if outcomes.queries().eq(self.texts.iter().map(String::as_str)) {
            return Ok(Arc::clone(&self.rows));
        }
        let new = |it: &&str| !self.vectors.contains_key(*it);
        let missing: Vec<&str> = outcomes.queries().filter(new).collect();
        if !missing.is_empty() {
            let made = embedded(embedder, &missing).await?;
            self.vectors.extend(missing.iter().map(|it| (*it).to_owned()).zip(made));
        }
        self.texts = outcomes.queries().map(str::to_owned).collect();
        if self.vectors.len() > 2 * KINDS {
            self.vectors.retain(|text, _| self.texts.contains(text));
        }
        let vectors = self.texts.iter().filter_map(|it| self.vectors.get(it));
        self.rows = Arc::new(Rows::new(vectors.map(Vec::as_slice).enumerate()));
        Ok(Arc::clone(&self.rows))
    }
}
