//! Large binaries in outputs and parameters. The store keeps them as blobs.

use std::{fmt::Write as _, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use sha2::{Digest, Sha256};
use shared::{
    blob::{self, Blob, BlobId},
    clock::Clock,
    hex::to_hex,
    id::ExecutionId,
    limits,
    store::{Store, StoreError},
    tool::{ErrorCode, ToolError},
};

/// Stores and loads large binaries.
#[derive(Clone, Debug)]
pub struct Blobs {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The token that makes calls outside plans.
    token: Option<Arc<str>>,
}

/// A large binary that was extracted from an output.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The place in the output, as a JSON pointer.
    pub pointer: String,
    pub base64: String,
    pub mime_type: String,
}

impl Binary {
    /// Extracts a binary from a value, if a large binary is at `pointer`.
    pub fn extract(value: &mut Value, pointer: String, mime_type: &str) -> Option<Self> {
        let Some(Value::String(text)) = value.pointer_mut(&pointer) else { return None };
        let is_large = text.len() > limits::INLINE_BINARY_BYTES;
        let mime_type = mime_type.to_owned();
        is_large.then(|| Self { pointer, base64: std::mem::take(text), mime_type })
    }

    fn replace(pointer: &str, output: &mut Value, value: Value) {
        if let Some(place) = output.pointer_mut(pointer) {
            *place = value;
        }
    }
}

impl Blobs {
    /// Stores large binaries in `store`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, token: None }
    }

    /// Returns a copy for the calls outside plans of the token with this name, to which the blobs
    /// then belong.
    #[must_use]
    pub fn of_token(self, token: Option<&str>) -> Self {
        Self { token: token.map(Arc::from), ..self }
    }

    /// Stores a binary and returns the reference to it. Returns `None` if it is not valid base64.
    async fn store_binary(
        &self,
        owner: Option<ExecutionId>,
        binary: &Binary,
    ) -> Result<Option<Value>, StoreError> {
        let Ok(bytes) = STANDARD.decode(&binary.base64) else { return Ok(None) };
        let sha256 = to_hex(Sha256::digest(&bytes));
        let Some(id) = BlobId::new(owner, &sha256) else { return Ok(None) };
        let (mime_type, at) = (binary.mime_type.clone(), self.clock.now());
        let blob = Blob { id, mime_type, bytes: bytes.len(), at };
        let token = self.token.as_deref();
        blob::save_blob_of(&*self.store, &blob, &binary.base64, token).await?;
        Ok(Some(blob.to_reference()))
    }

    /// Replaces the references in `parameters` by the binaries in base64.
    pub async fn restore(&self, parameters: &Arc<Value>) -> Result<Arc<Value>, ToolError> {
        let mut references = Vec::new();
        collect_references(parameters, &mut String::new(), &mut references);
        if references.is_empty() {
            return Ok(Arc::clone(parameters));
        }
        let mut restored = Value::clone(parameters);
        let mut room = limits::RESTORED_BYTES;
        for (pointer, id) in references {
            let base64 = self.load_base64(&id).await?;
            room = room.checked_sub(base64.len()).ok_or_else(too_many_bytes_error)?;
            Binary::replace(&pointer, &mut restored, Value::String(base64));
        }
        Ok(Arc::new(restored))
    }

    async fn load_base64(&self, id: &BlobId) -> Result<String, ToolError> {
        match blob::load_blob(&*self.store, id).await {
            Ok(Some((_, base64))) => Ok(base64),
            Ok(None) => {
                let reason =
                    format!("the blob `{id}` no longer exists: it was deleted with its execution");
                Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, reason))
            }
            Err(err) => {
                let reason = format!("the blob `{id}` cannot be read: {err}");
                Err(ToolError::new(ErrorCode::UNAVAILABLE, reason))
            }
        }
    }
}

/// Stores extracted binaries and replaces them by references. An output keeps its binary if there
/// is no store, or if the binary is not valid base64.
pub async fn store_binaries(
    blobs: Option<&Blobs>,
    owner: Option<ExecutionId>,
    mut output: Value,
    binaries: Vec<Binary>,
) -> Result<Value, ToolError> {
    for binary in binaries {
        let reference = match blobs {
            Some(blobs) => {
                blobs.store_binary(owner, &binary).await.map_err(|err| not_stored_error(&err))?
            }
            None => None,
        };
        let Binary { pointer, base64, .. } = binary;
        Binary::replace(&pointer, &mut output, reference.unwrap_or(Value::String(base64)));
    }
    Ok(output)
}

fn not_stored_error(err: &StoreError) -> ToolError {
    let reason = format!("the binary that the tool returned could not be stored: {err}");
    ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, reason).without_retry()
}

fn too_many_bytes_error() -> ToolError {
    let limit = limits::RESTORED_BYTES;
    let reason = format!("the blobs that the parameters refer to have more than {limit} bytes");
    ToolError::new(ErrorCode::INVALID_PARAMETERS, reason)
}

fn collect_references(value: &Value, pointer: &mut String, references: &mut Vec<(String, BlobId)>) {
    let length = pointer.len();
    match value {
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate().filter(|(_, item)| is_nested(item)) {
                let _ = write!(pointer, "/{n}");
                collect_references(item, pointer, references);
                pointer.truncate(length);
            }
        }
        Value::Object(fields) => {
            if let Some(id) = BlobId::from_reference(value) {
                return references.push((pointer.clone(), id));
            }
            for (key, field) in fields.iter().filter(|(_, field)| is_nested(field)) {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                collect_references(field, pointer, references);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
}

fn is_nested(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::{clock::WallClock, store::memory::Memory};

    use super::*;

    fn blobs() -> Blobs {
        Blobs::new(Arc::new(Memory::default()), Arc::new(WallClock))
    }

    fn test_binary(pointer: &str, base64: &str) -> Binary {
        Binary {
            pointer: pointer.to_owned(),
            base64: base64.to_owned(),
            mime_type: "image/png".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_stored_binary_is_restored_at_every_reference() {
        let blobs = blobs();
        let data = STANDARD.encode(vec![7; 5 << 20]);
        let output = json!([{ "data": "" }, { "a/b~": "" }]);
        let binaries = vec![test_binary("/0/data", &data), test_binary("/1/a~1b~0", "AQID")];
        let owner = "exec_1_aaaaaaaaa".parse().ok();
        let output = store_binaries(Some(&blobs), owner, output, binaries).await.unwrap();
        let small =
            "exec_1_aaaaaaaaa/039058c6f2c0cb492c533b0a4d14ef77cc0f78abccced5287d84a1a2011cfb81";
        assert_eq!(
            output[1]["a/b~"],
            json!({ "$blob": small, "mimeType": "image/png", "bytes": 3 })
        );
        assert_eq!(output[0]["data"]["bytes"], 5 << 20);
        let parameters = Arc::new(json!({ "x": output, "y~/": output[0]["data"] }));
        let restored = blobs.restore(&parameters).await.unwrap();
        let whole = json!([{ "data": data }, { "a/b~": "AQID" }]);
        assert_eq!(*restored, json!({ "x": whole, "y~/": data }));
    }

    #[tokio::test]
    async fn a_binary_that_cannot_be_stored_stays_inline() {
        let output = || json!({ "data": "" });
        let base64 = "no base 64!";
        for blobs in [Some(blobs()), None] {
            let kept =
                store_binaries(blobs.as_ref(), None, output(), vec![test_binary("/data", base64)])
                    .await;
            assert_eq!(kept, Ok(json!({ "data": base64 })));
        }
        let kept = store_binaries(None, None, output(), vec![test_binary("/data", "AQID")]).await;
        assert_eq!(kept, Ok(json!({ "data": "AQID" })));
    }

    #[tokio::test]
    async fn a_reference_to_a_missing_blob_is_an_error() {
        let id = format!("call/{}", "0".repeat(64));
        let parameters = Arc::new(json!([[{ "$blob": id }]]));
        let err = blobs().restore(&parameters).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::INVALID_PARAMETERS);
        let plain = Arc::new(json!({ "$blob": "x", "a": [{ "$blob": 1 }] }));
        assert!(Arc::ptr_eq(&plain, &blobs().restore(&plain).await.unwrap()));
    }

    #[test]
    fn only_large_binaries_become_blobs() {
        let large = "A".repeat(limits::INLINE_BINARY_BYTES + 4);
        let mut value = json!({ "data": large, "small": large[8..], "n": 1 });
        assert_eq!(Binary::extract(&mut value, "/small".to_owned(), ""), None);
        assert_eq!(Binary::extract(&mut value, "/n".to_owned(), ""), None);
        let taken = Binary::extract(&mut value, "/data".to_owned(), "a/b").unwrap();
        assert_eq!((taken.base64.len(), taken.mime_type.as_str()), (large.len(), "a/b"));
        assert_eq!(value["data"], "");
    }
}
