//! Measures, compares and patches JSON values.

mod foreign;

use std::borrow::Cow;

use serde_json::{Number, Value};

pub use self::foreign::parse_lenient;

/// Returns `true` if lists and objects nest deeper than `limit`. A string alone has depth 0.
///
/// This function recurses at most `limit` levels.
pub fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let Some(below) = limit.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper_than(item, below)),
        Value::Object(fields) => fields.values().any(|field| is_deeper_than(field, below)),
        _ => false,
    }
}

/// Returns the size of `value` as compact JSON, the form in which logs keep it. Does not serialize
/// the value.
///
/// This function recurses without limit, so check [`is_deeper_than`] first.
pub fn json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => number_bytes(number),
        Value::String(text) => text_bytes(text),
        Value::Array(items) => 1 + items.len().max(1) + items.iter().map(json_size).sum::<usize>(),
        Value::Object(fields) => {
            let inside = fields.iter().map(|(key, value)| text_bytes(key) + 1 + json_size(value));
            1 + fields.len().max(1) + inside.sum::<usize>()
        }
    }
}

fn number_bytes(number: &Number) -> usize {
    match number.as_u64() {
        Some(0) => 1,
        Some(whole) => whole.ilog10() as usize + 1,
        None => number.to_string().len(),
    }
}

/// Returns the size of a text as JSON, with its quotes and escapes. A control character without a
/// short escape takes six bytes.
fn text_bytes(text: &str) -> usize {
    let escaped = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    });
    text.len() + 2 + escaped.sum::<usize>()
}

/// Normalizes numbers: each whole number that fits an integer of 64 bits becomes one, so that `1.0`
/// and `1` are equal.
///
/// This function recurses without limit, so check [`is_deeper_than`] first.
pub fn normalize_numbers(value: &Value) -> Cow<'_, Value> {
    if !has_whole_float(value) {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    normalize_in_place(&mut value);
    Cow::Owned(value)
}

/// Compares two values as if both were normalized by [`normalize_numbers`]. Stops at the first
/// difference.
pub fn equals_normalized(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() != other.is_f64() => {
            to_integer(one).as_ref() == Some(other) || to_integer(other).as_ref() == Some(one)
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| equals_normalized(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_equal = |(name, value)| {
                other.get(name).is_some_and(|other| equals_normalized(value, other))
            };
            one.len() == other.len() && one.iter().all(is_equal)
        }
        _ => one == other,
    }
}

fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => to_integer(number).is_some(),
        Value::Array(items) => items.iter().any(has_whole_float),
        Value::Object(fields) => fields.values().any(has_whole_float),
        _ => false,
    }
}

fn normalize_in_place(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = to_integer(number) {
                *number = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_in_place),
        Value::Object(fields) => fields.values_mut().for_each(normalize_in_place),
        _ => (),
    }
}

/// Converts a number with a fraction or an exponent to an integer, if it is whole.
fn to_integer(number: &Number) -> Option<Number> {
    let number = number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0)?;
    // Parses the decimal digits, which are exact. Parsing fails if the number does not fit an
    // integer.
    let digits = format!("{number:.0}");
    let below = || digits.parse::<i64>().ok().map(Number::from);
    digits.parse::<u64>().ok().map(Number::from).or_else(below)
}

/// Applies a JSON Merge Patch (RFC 7396): replaces fields one by one, and removes fields that are
/// null.
pub fn apply_merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in fields {
        if value.is_null() {
            target.shift_remove(name);
        } else {
            apply_merge_patch(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Combines two patches into a single patch with the same effect on `target`.
///
/// Nulls stay, because they remove fields. Fields of `target` that the first patch removed stay
/// removed.
pub fn combine_patches(patch: &mut Value, later: &Value, target: Option<&Value>) {
    let Value::Object(fields) = later else {
        patch.clone_from(later);
        return;
    };
    if !patch.is_object() {
        let gone = target.and_then(Value::as_object).into_iter().flatten();
        *patch = gone.map(|(name, _)| (name.clone(), Value::Null)).collect();
    }
    let Value::Object(patch) = patch else { return };
    for (name, value) in fields {
        let there = target.and_then(|target| target.get(name));
        match patch.get_mut(name) {
            Some(earlier) if !value.is_null() => combine_patches(earlier, value, there),
            _ => {
                // `prune_patch` drops the oldest removals first, so the newest removal must be
                // last.
                patch.shift_remove(name);
                patch.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Drops nulls that remove nothing from `target`, except the last `limit` of them.
///
/// The other nulls stay, because the patch can be applied to another target that has these fields.
/// The limit bounds the size of the patch.
pub fn prune_patch(patch: &mut Value, target: Option<&Value>, limit: usize) {
    let mut excess = count_idle_nulls(patch, target).saturating_sub(limit);
    drop_nulls(patch, target, &mut excess);
}

fn count_idle_nulls(patch: &Value, target: Option<&Value>) -> usize {
    let Value::Object(fields) = patch else { return 0 };
    let each =
        fields.iter().map(|(name, value)| match target.and_then(|target| target.get(name)) {
            None if value.is_null() => 1,
            there => count_idle_nulls(value, there),
        });
    each.sum()
}

fn drop_nulls(patch: &mut Value, target: Option<&Value>, excess: &mut usize) {
    let Value::Object(fields) = patch else { return };
    fields.retain(|name, value| {
        let there = target.and_then(|target| target.get(name));
        drop_nulls(value, there, excess);
        let is_dropped = *excess > 0 && value.is_null() && there.is_none();
        *excess -= usize::from(is_dropped);
        !is_dropped
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn pruning_a_patch_drops_nulls_that_remove_nothing() {
        let target = json!({ "a": 1, "b": { "c": 1 } });
        let mut patch = json!({ "a": null, "b": { "c": null, "d": null, "e": 2 }, "f": null });
        let mut whole = target.clone();
        apply_merge_patch(&mut whole, &patch);
        prune_patch(&mut patch, Some(&target), 0);
        assert_eq!(patch, json!({ "a": null, "b": { "c": null, "e": 2 } }));
        let mut pruned = target;
        apply_merge_patch(&mut pruned, &patch);
        assert_eq!(pruned, whole);
        let mut alone = json!({ "x": null, "y": { "z": null } });
        prune_patch(&mut alone, None, 0);
        assert_eq!(alone, json!({ "y": {} }));
    }

    #[test]
    fn numbers_with_the_same_value_are_equal_in_any_notation() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for (one, other, is_same) in [
            ("1", "1.0", true),
            ("{\"a\": [10, \"1.0\"]}", "{\"a\": [1e1, \"1.0\"]}", true),
            ("0", "-0.0", true),
            ("-7", "-7.0", true),
            ("18446744073709549568", "18446744073709549568.0", true),
            ("9007199254740993", "9007199254740992.0", false),
            ("1e300", "1e300", true),
            ("1.5", "1", false),
            ("1", "\"1\"", false),
            ("1", "2.0", false),
        ] {
            let (one, other) = (read(one), read(other));
            assert_eq!(
                normalize_numbers(&one) == normalize_numbers(&other),
                is_same,
                "{one} {other}"
            );
            assert_eq!(equals_normalized(&one, &other), is_same, "{one} {other}");
            assert_eq!(equals_normalized(&other, &one), is_same, "{other} {one}");
        }
        let plain = json!({ "a": [1, 1.5, "1.0", null, true] });
        assert!(matches!(normalize_numbers(&plain), Cow::Borrowed(_)));
    }

    #[test]
    fn pruning_a_patch_keeps_the_newest_nulls_up_to_a_limit() {
        let mut patch = json!({ "a": null, "b": null, "c": 1 });
        combine_patches(&mut patch, &json!({ "d": { "e": null }, "a": null }), None);
        prune_patch(&mut patch, None, 2);
        assert_eq!(patch, json!({ "c": 1, "d": { "e": null }, "a": null }));
        prune_patch(&mut patch, None, 1);
        assert_eq!(patch, json!({ "c": 1, "d": {}, "a": null }));
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!([null]))];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let names = prop::sample::select(vec!["a", "b", "c"]);
            let fields = prop::collection::vec((names, inner), 0..3);
            fields.prop_map(|fields| {
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            })
        })
    }

    proptest! {
        #[test]
        fn a_combined_patch_has_the_effect_of_its_parts(
            target in document(),
            patches in prop::collection::vec(document(), 1..4),
            limit in 0..4_usize,
        ) {
            // Removes nulls from the target, because applying a patch never leaves a null.
            let mut whole = json!({});
            if target.is_object() {
                apply_merge_patch(&mut whole, &target);
            }
            let target = whole.clone();
            let mut one = json!({});
            for patch in patches.iter().filter(|patch| patch.is_object()) {
                apply_merge_patch(&mut whole, patch);
                combine_patches(&mut one, patch, Some(&target));
                prune_patch(&mut one, Some(&target), limit);
            }
            let mut composed = target;
            apply_merge_patch(&mut composed, &one);
            prop_assert_eq!(composed, whole);
        }
    }

    #[test]
    fn json_depth_counts_lists_and_objects() {
        for (value, depth) in
            [(json!("x"), 0), (json!([]), 1), (json!({ "a": 1 }), 1), (json!([1, { "a": [] }]), 3)]
        {
            assert!(!is_deeper_than(&value, depth), "{value}");
            assert!(depth == 0 || is_deeper_than(&value, depth - 1), "{value}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<Option<bool>>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            prop::collection::vec(0..0x80_u8, 0..8).prop_map(|ascii| ascii
                .into_iter()
                .map(char::from)
                .collect::<String>()
                .into()),
        ];
        leaf.prop_recursive(3, 24, 4, |inside| {
            let fields = prop::collection::vec((any::<String>(), inside.clone()), 0..4);
            prop_oneof![
                prop::collection::vec(inside, 0..4).prop_map(Value::from),
                fields.prop_map(|fields| fields.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_size_is_the_length_of_the_text(value in any_value()) {
            prop_assert_eq!(json_size(&value), value.to_string().len());
        }
    }

    #[test]
    fn a_control_character_counts_as_six_bytes() {
        assert_eq!(json_size(&json!("\u{1}".repeat(1_000))), 6_002);
    }
}
