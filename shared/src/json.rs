//! How large a JSON value is, asked before anybody recurses into it.

use serde_json::Value;

/// Returns whether lists and objects nest deeper than `limit`; a bare string has depth 0.
///
/// It never looks deeper than that, so the stack is as bounded as `limit`.
pub fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let Some(below) = limit.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|it| is_deeper_than(it, below)),
        Value::Object(fields) => fields.values().any(|it| is_deeper_than(it, below)),
        _ => false,
    }
}

/// Returns a lower bound of the bytes that `value` has as JSON text, without writing it.
///
/// It recurses: ask [`is_deeper_than`] first.
pub fn bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 1 + items.len().max(1) + items.iter().map(bytes).sum::<usize>(),
        Value::Object(fields) => {
            let inside = fields.iter().map(|(key, it)| key.len() + 3 + bytes(it));
            1 + fields.len().max(1) + inside.sum::<usize>()
        }
    }
}

/// Changes a value as a JSON Merge Patch says (RFC 7396): fields are replaced one by one, and those
/// that are null are removed.
pub fn merge(target: &mut Value, patch: &Value) {
    change(target, patch, Nulls::Remove);
}

/// Makes one patch of two that follow each other: nulls stay, because they remove something.
pub fn compose(patch: &mut Value, later: &Value) {
    change(patch, later, Nulls::Keep);
}

/// Drops what a patch removes and what it is for does not have: that would stay for ever.
pub fn prune(patch: &mut Value, target: Option<&Value>) {
    let Value::Object(fields) = patch else { return };
    fields.retain(|name, value| {
        let there = target.and_then(|it| it.get(name));
        prune(value, there);
        !value.is_null() || there.is_some()
    });
}

#[derive(Clone, Copy, PartialEq)]
enum Nulls {
    Remove,
    Keep,
}

fn change(target: &mut Value, patch: &Value, nulls: Nulls) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in fields {
        if value.is_null() && nulls == Nulls::Remove {
            target.shift_remove(name);
        } else {
            change(target.entry(name.clone()).or_insert(Value::Null), value, nulls);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_keeps_only_the_nulls_that_remove_something() {
        let target = json!({ "a": 1, "b": { "c": 1 } });
        let mut patch = json!({ "a": null, "b": { "c": null, "d": null, "e": 2 }, "f": null });
        let mut whole = target.clone();
        merge(&mut whole, &patch);
        prune(&mut patch, Some(&target));
        assert_eq!(patch, json!({ "a": null, "b": { "c": null, "e": 2 } }));
        let mut pruned = target;
        merge(&mut pruned, &patch);
        assert_eq!(pruned, whole);
        let mut alone = json!({ "x": null, "y": { "z": null } });
        prune(&mut alone, None);
        assert_eq!(alone, json!({ "y": {} }));
    }

    #[test]
    fn depth_counts_lists_and_objects() {
        for (value, depth) in
            [(json!("x"), 0), (json!([]), 1), (json!({ "a": 1 }), 1), (json!([1, { "a": [] }]), 3)]
        {
            assert!(!is_deeper_than(&value, depth), "{value}");
            assert!(depth == 0 || is_deeper_than(&value, depth - 1), "{value}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_text_or_fewer() {
        for value in [
            json!(null),
            json!(false),
            json!([]),
            json!({}),
            json!([1, 2, 3]),
            json!({ "a": ["b", { "c": 1.5 }], "d": true }),
        ] {
            let text = value.to_string();
            let bytes = bytes(&value);
            assert!(bytes <= text.len() && bytes * 2 >= text.len(), "{text} {bytes}");
        }
    }
}
