//! What calls that only read returned not long ago.

use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};
use shared::id::ToolName;

/// Returns the key of a call: the same for the same tool and the same parameters, and for no
/// others.
pub(crate) fn key(tool: &ToolName, parameters: &Value) -> String {
    let mut hash = Sha256::new();
    hash.update(tool.as_str());
    // No name has it, so no two calls have one text.
    hash.update([0]);
    hash.update(parameters.to_string());
    let mut key = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(key, "{byte:02x}");
    }
    key
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_of_the_tool_and_its_parameters() {
        let (one, other): (ToolName, ToolName) = ("a.b".parse().unwrap(), "a.c".parse().unwrap());
        let keys = [
            key(&one, &json!({ "x": 1 })),
            key(&one, &json!({ "x": 1.0 })),
            key(&one, &json!({ "x": "1" })),
            key(&one, &json!({})),
            key(&other, &json!({ "x": 1 })),
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(key(&one, &json!({ "x": 1 })), keys[0]);
        assert_eq!(keys[0].len(), 64);
    }
}
