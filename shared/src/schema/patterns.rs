//! Patterns that do not compile, or compile to more bytes than a schema is allowed to use. They are
//! removed and reported, so that values are still checked against the other parts of the schema.

use serde_json::{Map, Value, json};

use super::{build_validator, cost::count_repetitions, keywords::Content};

/// A pattern with fewer repetitions and fewer bytes than these limits is not compiled to measure
/// it, because it certainly compiles to few bytes.
const SMALL_PATTERN_REPETITIONS: u64 = 64;
const SMALL_PATTERN_BYTES: usize = 512;

/// Removes and returns the patterns that do not compile, or compile to more than `bytes`.
pub(super) fn remove_unusable(schema: &mut Value, bytes: usize) -> Vec<String> {
    let mut removed = Vec::new();
    visit_schemas(schema, &mut |fields| {
        let own_pattern = fields.get("pattern").and_then(Value::as_str).map(str::to_owned);
        if let Some(pattern) = own_pattern.filter(|pattern| !is_usable(pattern, bytes)) {
            fields.remove("pattern");
            removed.push(pattern);
        }
        let Some(Value::Object(all)) = fields.get_mut("patternProperties") else { return };
        let unusable: Vec<String> =
            all.keys().filter(|pattern| !is_usable(pattern, bytes)).cloned().collect();
        if unusable.is_empty() {
            return;
        }
        all.retain(|pattern, _| !unusable.contains(pattern));
        // Removes these keywords, too, because the properties of the removed patterns would count
        // as additional properties.
        fields.remove("additionalProperties");
        fields.remove("unevaluatedProperties");
        removed.extend(unusable);
    });
    removed
}

/// Returns the patterns that do not compile, or compile to more than `bytes`. Tries at most `left`
/// patterns, and only those that can be large.
pub(super) fn find_unusable(schema: &Value, bytes: usize, left: &mut usize) -> Vec<String> {
    let mut large = Vec::new();
    visit_schemas(&mut schema.clone(), &mut |fields| {
        let own_pattern = fields.get("pattern").and_then(Value::as_str);
        let of_properties = fields.get("patternProperties").and_then(Value::as_object);
        let of_properties = of_properties.into_iter().flat_map(Map::keys).map(String::as_str);
        let patterns = own_pattern.into_iter().chain(of_properties);
        large.extend(patterns.filter(|pattern| can_be_large(pattern)).map(str::to_owned));
    });
    large.truncate(*left);
    *left -= large.len();
    large.retain(|pattern| !is_usable(pattern, bytes));
    large
}

fn can_be_large(pattern: &str) -> bool {
    pattern.len() > SMALL_PATTERN_BYTES || count_repetitions(pattern) > SMALL_PATTERN_REPETITIONS
}

fn is_usable(pattern: &str, bytes: usize) -> bool {
    build_validator(&json!({ "pattern": pattern }), bytes).is_ok()
}

fn visit_schemas(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(|item| visit_schemas(item, visit)),
        Value::Object(fields) => {
            visit(fields);
            for (keyword, content) in fields {
                match (Content::from_keyword(keyword), content) {
                    (Content::Data, _) => (),
                    (Content::Map | Content::InPlaceMap, Value::Object(all)) => {
                        all.values_mut().for_each(|inner| visit_schemas(inner, visit));
                    }
                    (_, content) => visit_schemas(content, visit),
                }
            }
        }
        _ => (),
    }
}
