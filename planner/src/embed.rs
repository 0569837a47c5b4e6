//! Embeddings: texts as vectors, so that tools can be selected by meaning.

mod caching;
mod configured;
mod encoder;
mod fingerprint;
mod local;
mod math;
pub mod pull;
mod server;
mod shape;
#[cfg(test)]
mod tests;
mod transformer;
mod weights;

use async_trait::async_trait;

pub use self::{
    caching::{CachingEmbedder, RecentEmbedder},
    configured::{ConfiguredEmbedder, Embedding, Source},
    local::Local,
    server::{Server, ServerConfig},
};

/// Computes vectors. Texts with similar meanings get similar vectors.
#[async_trait]
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// Returns the model's name with its revision or server. Vectors are stored under this name.
    fn model(&self) -> &str;

    /// Returns one vector for each text. All vectors have the same length.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Checks that the embedder works. Called before the first use, and before the next use after a
    /// failure.
    async fn probe(&self) -> Result<(), EmbedError> {
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The model cannot be used, for example because a file is missing or invalid.
    #[error("the embedding model `{model}` cannot be used: {reason}")]
    Model { model: String, reason: String },
    /// The embedding server failed. A retry may help.
    #[error("the embedding server {url} is not available: {reason}")]
    Unavailable { url: String, reason: String },
    /// The embedding server refused, or sent an invalid answer. A retry does not help.
    #[error("the embedding server {url} cannot be used: {reason}")]
    Refused { url: String, reason: String },
    /// The embedding server rejects one of the texts. It may accept other texts.
    #[error("the embedding server {url} rejects a text: {reason}")]
    Text { url: String, reason: String },
}
