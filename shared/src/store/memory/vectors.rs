//! Vectors in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::Memory;
use crate::store::{
    StoreError, TextHash, Vectors,
    backend::{check_vectors, decode_vector, encode_vector},
};

/// The vectors of every model, as a disk would have them.
pub(super) type KeptVectors = BTreeMap<String, BTreeMap<TextHash, Vec<u8>>>;

#[async_trait]
impl Vectors for Memory {
    async fn vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        let state = self.state();
        let kept = state.vectors.get(model);
        let find = |it: &TextHash| {
            kept.and_then(|kept| kept.get(it)).map(|kept| decode_vector(it, kept)).transpose()
        };
        texts.iter().map(find).collect()
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        check_vectors(model, vectors)?;
        let kept = &mut self.state().vectors;
        let kept = kept.entry(model.to_owned()).or_default();
        for (text, numbers) in vectors {
            kept.entry(*text).or_insert_with(|| encode_vector(numbers));
        }
        Ok(())
    }
}
