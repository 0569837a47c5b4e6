use serde_json::{Map, Value};

/// Maximum number of segments of a claim's path, such as 2 for `realm_access.roles`.
const MAX_SEGMENTS: usize = 8;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claims(pub(crate) Map<String, Value>);

impl Claims {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.find(name)?.as_str()
    }

    /// Finds a claim by its name, or else by a path with dots. Some providers use URLs as names, and
    /// others nest roles in objects.
    pub(crate) fn find(&self, name: &str) -> Option<&Value> {
        if let Some(value) = self.0.get(name) {
            return Some(value);
        }
        let mut segments = name.split('.').take(MAX_SEGMENTS);
        let first = self.0.get(segments.next()?)?;
        segments.try_fold(first, |value, segment| value.get(segment))
    }

    /// Returns whether a claim is `value`, or a list that contains `value`. The claims `scope` and
    /// `scp` are texts with one scope for each word.
    pub(crate) fn contains(&self, name: &str, value: &str) -> bool {
        let is_equal = |claim: &Value| match claim {
            Value::String(text) => text == value,
            Value::Bool(_) | Value::Number(_) => {
                let text = claim.to_string();
                text == value
            }
            _ => false,
        };
        match self.find(name) {
            Some(Value::Array(items)) => items.iter().any(is_equal),
            Some(Value::String(text)) if matches!(name, "scope" | "scp") => {
                text.split_ascii_whitespace().any(|scope| scope == value)
            }
            Some(claim) => is_equal(claim),
            None => false,
        }
    }
}
