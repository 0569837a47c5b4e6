//! What models made of texts, so that no model makes it twice.

use std::fmt;

use async_trait::async_trait;

use super::StoreError;
use crate::limits;

/// What a text is known by: its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextHash(pub [u8; 32]);

impl fmt::Debug for TextHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|it| write!(f, "{it:02x}"))
    }
}

/// Keeps the vectors of texts, by model.
///
/// What a model makes of a text never changes, so the first vector stays, whoever writes another.
#[async_trait]
pub trait Vectors: fmt::Debug + Send + Sync {
    /// Returns the vector of each text, in their order, where there is one.
    async fn vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError>;

    /// Keeps vectors, of [`limits::VECTOR_LEN`] numbers at most. Many are not written at once: what
    /// fails may have kept some.
    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError>;
}

/// Refuses what no store keeps.
pub fn check_vectors(model: &str, vectors: &[(TextHash, Vec<f32>)]) -> Result<(), StoreError> {
    let unfit = |what: String, why: String| StoreError::Unfit { what, why };
    if model.is_empty() || model.len() > limits::TEXT_BYTES || model.contains('\0') {
        let why = format!("a model's name has 1 to {} bytes, none of them NUL", limits::TEXT_BYTES);
        return Err(unfit("a vector".to_owned(), why));
    }
    let Some((text, vector)) = vectors.iter().find(|(_, it)| it.len() > limits::VECTOR_LEN) else {
        return Ok(());
    };
    let why = format!("it has {} numbers, {} is the most", vector.len(), limits::VECTOR_LEN);
    Err(unfit(format!("the vector of {text:?}"), why))
}

/// Writes a vector: four bytes a number, the low ones first.
pub fn encode_vector(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|it| it.to_le_bytes()).collect()
}

/// Reads a vector.
pub fn decode_vector(text: &TextHash, bytes: &[u8]) -> Result<Vec<f32>, StoreError> {
    if let (numbers, []) = bytes.as_chunks() {
        Ok(numbers.iter().map(|it| f32::from_le_bytes(*it)).collect())
    } else {
        let why = format!("its vector has {} bytes, not four a number", bytes.len());
        Err(StoreError::corrupt(format_args!("text {text:?}"), why))
    }
}
