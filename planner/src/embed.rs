//! Texts as vectors: what lets tools be chosen by meaning.
//!
//! [`Embedders`] chooses among what is wanted: a model in a directory and the one that is part of
//! this program ([`Local`]), or a server ([`Server`]). What is made of a text is kept in the store
//! ([`Kept`]), so that no text is embedded twice.

mod choice;
mod encoder;
mod fingerprint;
mod kept;
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
    choice::{Choice, Embedders, Embedding, PassedOver, Source},
    kept::{Kept, Recent},
    local::Local,
    server::{Server, ServerConfig},
};

/// Turns texts into vectors, near each other where the texts mean the same.
#[async_trait]
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// Names the model and its revision: vectors are kept under it.
    fn model(&self) -> &str;

    /// Returns a vector for each text, exactly as given, all of one length.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Asks whether it works at all: before it is used, and again some time after it failed.
    async fn probe(&self) -> Result<(), EmbedError> {
        Ok(())
    }
}

/// Why there are no vectors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The model cannot be used as it is: a file is missing, or is not what it should be.
    #[error("the embedding model `{model}` cannot be used: {why}")]
    Model {
        /// Which model.
        model: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The server of the model did not answer as it should; it may, later.
    #[error("the embedding server {url} is not available: {why}")]
    Unavailable {
        /// Where the server is.
        url: String,
        /// What happened, and what to do.
        why: String,
    },
    /// The server of the model refused, or answered what it should not: asking again is no use.
    #[error("the embedding server {url} cannot be used: {why}")]
    Refused {
        /// Where the server is.
        url: String,
        /// What happened, and what to do.
        why: String,
    },
    /// The server of the model does not take one of the texts; others it may.
    #[error("the embedding server {url} does not take a text: {why}")]
    Text {
        /// Where the server is.
        url: String,
        /// What it says.
        why: String,
    },
}
