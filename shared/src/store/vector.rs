//! Stored embeddings, so that no model embeds a text twice.

use std::fmt;

use super::StoreError;
use crate::{hex::Hex, limits};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextHash(pub [u8; 32]);

impl fmt::Debug for TextHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Hex(&self.0), f)
    }
}

/// Fails if no store can keep the vectors, because a vector is too long or the name of the model is
/// unfit.
pub fn check_vectors(model: &str, vectors: &[(TextHash, Vec<f32>)]) -> Result<(), StoreError> {
    let unfit = |what: String, why: String| StoreError::Unfit { what, why };
    if model.is_empty() || model.len() > limits::TEXT_BYTES || model.contains('\0') {
        let why = format!("a model's name has 1 to {} bytes, none of them NUL", limits::TEXT_BYTES);
        return Err(unfit("a vector".to_owned(), why));
    }
    let Some((text, vector)) = vectors.iter().find(|(_, vector)| vector.len() > limits::VECTOR_LEN)
    else {
        return Ok(());
    };
    let why = format!("it has {} numbers; the limit is {}", vector.len(), limits::VECTOR_LEN);
    Err(unfit(format!("the vector of {text:?}"), why))
}

/// Encodes a vector: four bytes per number, little-endian.
pub fn encode_vector(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub fn decode_vector(text: &TextHash, bytes: &[u8]) -> Result<Vec<f32>, StoreError> {
    if let (numbers, []) = bytes.as_chunks() {
        Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
    } else {
        let why = format!("its vector has {} bytes, not four for each number", bytes.len());
        Err(StoreError::corrupt(format_args!("text {text:?}"), why))
    }
}
