use async_graphql::{ID, Object};
use shared::blob;

use super::scalar::{DateTime, to_int};

pub(super) struct Blob {
    pub(super) blob: blob::Blob,
    pub(super) base64: String,
}

/// Large binary that a tool returned. Outputs refer to it as
/// `{"$blob": id, "mimeType": …, "bytes": …}`.
#[Object]
impl Blob {
    /// Id of the blob: `exec_…/SHA-256`, or `call/SHA-256` for a call outside plans.
    async fn id(&self) -> ID {
        ID(self.blob.id.to_string())
    }

    /// MIME type, as the tool declares it. `application/octet-stream` if the tool declares none.
    async fn mime_type(&self) -> &str {
        &self.blob.mime_type
    }

    /// Size in bytes.
    async fn bytes(&self) -> i64 {
        to_int(self.blob.bytes)
    }

    /// SHA-256 hash of the data, in hexadecimal.
    async fn sha256(&self) -> &str {
        self.blob.id.sha256()
    }

    /// Time at which the blob was stored.
    async fn at(&self) -> DateTime {
        self.blob.at.into()
    }

    /// Data in base64.
    async fn data(&self) -> &str {
        &self.base64
    }
}
