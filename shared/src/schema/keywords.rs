use serde_json::Value;

/// Keywords that name a schema or change how references are resolved.
pub(super) const IDENTITY_KEYWORDS: [&str; 7] =
    ["$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"];
pub(super) const REFERENCE_KEYWORDS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A schema, or a list of schemas, for the same value.
    InPlace,
    InPlaceMap,
    /// A schema, or a list of schemas, for a part of the value.
    Inside,
    /// A map of schemas. Each applies to a part of the value, or is only a target of references.
    Map,
    Data,
    Unknown,
}

impl Content {
    pub(super) fn from_keyword(keyword: &str) -> Self {
        match keyword {
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => Self::InPlace,
            "dependentSchemas" | "dependencies" => Self::InPlaceMap,
            "items"
            | "prefixItems"
            | "additionalItems"
            | "additionalProperties"
            | "contains"
            | "contentSchema"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties" => Self::Inside,
            "properties" | "patternProperties" | "$defs" | "definitions" => Self::Map,
            "enum" | "const" | "default" | "example" | "examples" | "required" | "type"
            | "dependentRequired" => Self::Data,
            _ => Self::Unknown,
        }
    }

    pub(super) fn schemas(self, content: &Value) -> Vec<&Value> {
        match (self, content) {
            (Self::Data, _) => Vec::new(),
            (Self::InPlaceMap | Self::Map, Value::Object(all)) => all.values().collect(),
            (_, Value::Array(all)) => all.iter().collect(),
            (_, Value::Object(_)) => vec![content],
            _ => Vec::new(),
        }
    }
}

/// Resolves a reference within the document: a JSON pointer, or the name of an anchor.
pub(super) fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() || pointer.starts_with('/') {
        return root.pointer(&decode_fragment(pointer));
    }
    find_anchor(root, pointer)
}

fn find_anchor<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            let is_named = |word: &str| fields.get(word).and_then(Value::as_str) == Some(name);
            if is_named("$anchor") || is_named("$dynamicAnchor") {
                return Some(value);
            }
            fields.values().find_map(|field| find_anchor(field, name))
        }
        Value::Array(all) => all.iter().find_map(|item| find_anchor(item, name)),
        _ => None,
    }
}

pub(super) fn decode_fragment(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(code) = code.filter(|_| *first == b'%') {
            bytes.push(code);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
