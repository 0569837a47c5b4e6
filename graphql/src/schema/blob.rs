//! A large binary that a tool returned.

use async_graphql::{ID, Object};
use shared::blob;

use super::scalar::{DateTime, int};

/// A large binary that a tool returned, which outputs only refer to.
pub(super) struct Blob {
    /// What is known of it.
    pub(super) blob: blob::Blob,
    /// What is in it.
    pub(super) base64: String,
}

/// A large binary that a tool returned, which outputs only refer to: as
/// `{"$blob": id, "mimeType": …, "bytes": …}`.
#[Object]
impl Blob {
    /// `exec_…/SHA-256`, or `call/SHA-256` of a call outside plans.
    async fn id(&self) -> ID {
        ID(self.blob.id.to_string())
    }

    /// What kind of thing it is, as the tool says.
    async fn mime_type(&self) -> &str {
        &self.blob.mime_type
    }

    /// How many bytes it has.
    async fn bytes(&self) -> i64 {
        int(self.blob.bytes)
    }

    /// The SHA-256 of its bytes.
    async fn sha256(&self) -> &str {
        self.blob.id.sha256()
    }

    /// When it was kept.
    async fn at(&self) -> DateTime {
        self.blob.at.into()
    }

    /// Its bytes, in base 64.
    async fn data(&self) -> &str {
        &self.base64
    }
}
