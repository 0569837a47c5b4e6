//! How large and how deep a JSON value is.

use serde_json::Value;

/// How deeply values may be nested. Events nest them a few levels deeper, and readers refuse 128.
pub const DEPTH: usize = 96;

/// Returns how many bytes a value has as compact JSON, but for escapes in strings.
pub fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|it| size(it) + 1).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(key, it)| key.len() + 4 + size(it)).sum::<usize>()
        }
    }
}

/// Returns whether a value is nested more deeply than logs keep.
pub fn is_too_deep(value: &Value) -> bool {
    is_deeper(value, DEPTH)
}

fn is_deeper(value: &Value, than: usize) -> bool {
    let Some(less) = than.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|it| is_deeper(it, less)),
        Value::Object(fields) => fields.values().any(|it| is_deeper(it, less)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_has_a_limit() {
        let nested = |levels| (0..levels).fold(json!(1), |it, _| json!({ "a": [it] }));
        assert!(!is_too_deep(&nested(47)));
        assert!(is_too_deep(&nested(48)));
    }
}
