//! The bytes that an execution takes in the store. They follow from the log, so each process and
//! each store has the same number.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    blob,
    event::{Event, RecordedEvent},
    id::ExecutionId,
};

/// Base64 takes four characters for three bytes.
const BASE64_CHARS: u64 = 4;
const BASE64_BYTES: u64 = 3;
/// Nesting of an output below which references to blobs are not counted. Outputs that were stored
/// nest less.
const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, Default)]
pub(super) struct StoredSize {
    bytes: u64,
    /// References to blobs that are counted, because several outputs can have the same reference.
    blobs: BTreeSet<String>,
}

impl StoredSize {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn add_event(&mut self, id: ExecutionId, recorded: &RecordedEvent) {
        self.add_bytes(u64::try_from(recorded.bytes()).unwrap_or(u64::MAX));
        if let Event::StepSucceeded { output: Some(output), .. } = &recorded.event {
            self.add_blobs(&format!("{id}/"), output, MAX_DEPTH);
        }
    }

    fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Adds the sizes of this execution's blobs that a value refers to. A blob of another execution
    /// counts toward that execution.
    fn add_blobs(&mut self, prefix: &str, value: &Value, depth: usize) {
        if depth == 0 {
            return;
        }
        match value {
            Value::Array(items) => {
                for item in items {
                    self.add_blobs(prefix, item, depth - 1);
                }
            }
            Value::Object(fields) => {
                let reference = fields.get(blob::REFERENCE_FIELD).and_then(Value::as_str);
                if let Some(reference) = reference.filter(|text| text.starts_with(prefix))
                    && let Some(bytes) = fields.get("bytes").and_then(Value::as_u64)
                    && self.blobs.insert(reference.to_owned())
                {
                    self.add_bytes(bytes.div_ceil(BASE64_BYTES).saturating_mul(BASE64_CHARS));
                }
                fields.values().for_each(|field| self.add_blobs(prefix, field, depth - 1));
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        clock::Timestamp,
        id::{Attempt, Part, Seq},
    };

    #[test]
    fn the_size_has_the_log_and_each_blob_once() {
        let id: ExecutionId = "exec_1704123456_aaaaaaaaa".parse().unwrap();
        let hash = "a".repeat(64);
        let succeed = |output: Value| RecordedEvent {
            seq: Seq(2),
            at: Timestamp::UNIX_EPOCH,
            by: None,
            event: Event::StepSucceeded {
                step: "a".parse().unwrap(),
                part: Part::WHOLE,
                attempt: Attempt::FIRST,
                output: Some(Arc::new(output)),
                cached: false,
                stderr: None,
            },
        };
        let blob = json!({ "$blob": format!("{id}/{hash}"), "bytes": 3_000_000 });
        let foreign = json!({ "$blob": format!("call/{hash}"), "bytes": 3_000_000 });
        let mut size = StoredSize::default();
        size.add_event(id, &succeed(json!(["x".repeat(1_000), foreign])));
        let log = size.bytes();
        assert!((1_000..2_000).contains(&log), "{log}");
        size.add_event(id, &succeed(json!({ "files": [blob, blob] })));
        assert!((4_000_000..4_003_000).contains(&size.bytes()), "{}", size.bytes());
        size.add_event(id, &succeed(blob));
        assert!(size.bytes() < 4_004_000, "a reference that is passed on counts once");
    }
}
