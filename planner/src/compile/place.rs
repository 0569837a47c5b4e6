//! Paths in a draft, as diagnostics show them: `tools[1].parameters.tags[0]["any key"]`.

use serde_json::Value;

pub(super) fn field_path(step: usize, field: &str) -> String {
    format!("tools[{step}].{field}")
}

/// Returns the step of a path. A path outside all steps belongs to the first step.
pub(super) fn step_in_path(place: &str) -> usize {
    let inside = place.strip_prefix("tools[").and_then(|rest| rest.split_once(']'));
    inside.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

pub(super) fn template_path(step: usize, field: &str, value: &Value, text: &str) -> String {
    format!("tools[{step}].{field}{}", find_string_path(value, text).unwrap_or_default())
}

fn find_string_path(value: &Value, text: &str) -> Option<String> {
    match value {
        Value::String(string) => string.contains(text).then(String::new),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(n, item)| Some(format!("[{n}]{}", find_string_path(item, text)?))),
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            Some(format!("{}{}", key_path(name), find_string_path(field, text)?))
        }),
        _ => None,
    }
}

/// Returns the path segment of a key: `.key`, or `["any key"]`.
pub(crate) fn key_path(key: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@' | ':');
    if !key.is_empty() && key.chars().all(is_plain) {
        format!(".{key}")
    } else {
        format!("[{}]", Value::from(key))
    }
}

pub(super) fn pointer_path(pointer: &str, value: &Value) -> String {
    let mut place = String::new();
    let mut value = Some(value);
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        if let Some(Value::Array(items)) = value {
            place.extend(["[", &token, "]"]);
            value = token.parse().ok().and_then(|index: usize| items.get(index));
        } else {
            place.push_str(&key_path(&token));
            value = value.and_then(|object| object.get(&token));
        }
    }
    place
}

/// Returns the kind of a value for a sentence such as "must be text, not a list".
pub(super) fn describe_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_pointers_become_diagnostic_paths() {
        let value = json!({ "tags": [0, { "any key": { "a/b~": 1 } }], "0": [1] });
        for (text, expected) in [
            ("", ""),
            ("/tags/0", ".tags[0]"),
            ("/tags/1/any key/a~1b~0", ".tags[1][\"any key\"][\"a/b~\"]"),
            ("/0/0", ".0[0]"),
            ("/none/0", ".none.0"),
        ] {
            assert_eq!(pointer_path(text, &value), expected);
        }
    }
}
