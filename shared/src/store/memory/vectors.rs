//! Vectors in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::Memory;
use crate::store::{
    StoreError, TextHash, Vectors,
    backend::{check_vectors, decode_vector, encode_vector},
};

/// Vectors by model and text, encoded as on a disk.
pub(super) type StoredVectors = BTreeMap<String, BTreeMap<TextHash, Vec<u8>>>;

#[async_trait]
impl Vectors for Memory {
    async fn vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        let state = self.lock_state();
        let stored = state.vectors.get(model);
        let find = |text: &TextHash| {
            let bytes = stored.and_then(|stored| stored.get(text));
            bytes.map(|bytes| decode_vector(text, bytes)).transpose()
        };
        texts.iter().map(find).collect()
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        check_vectors(model, vectors)?;
        let mut state = self.lock_state();
        let stored = state.vectors.entry(model.to_owned()).or_default();
        for (text, numbers) in vectors {
            stored.entry(*text).or_insert_with(|| encode_vector(numbers));
        }
        Ok(())
    }
}
