//! Errors that name the path of a wrong value inside a document, because the messages of serde name
//! no place.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The reason why a value is wrong, and the path of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedError {
    /// The path from the value that was read, such as `tools[0].run`. Empty for that value itself.
    pub path: String,
    /// The reason, without the path.
    pub reason: String,
}

impl PlacedError {
    /// Splits a message such as "`run.cwd`: invalid type". A message without a path in front
    /// concerns the whole value.
    pub fn from_message(message: &str) -> Self {
        let split = message.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
        match split.filter(|(path, _)| !path.contains('`')) {
            Some((path, reason)) => Self { path: path.to_owned(), reason: reason.to_owned() },
            None => Self { path: String::new(), reason: message.to_owned() },
        }
    }

    /// Returns the error with the path of a value that contains the value which was read.
    #[must_use]
    pub fn inside(self, outer_path: &str) -> Self {
        Self { path: join_paths(outer_path, &self.path), reason: self.reason }
    }
}

impl fmt::Display for PlacedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, reason } = self;
        if path.is_empty() { f.write_str(reason) } else { write!(f, "`{path}`: {reason}") }
    }
}

impl From<PlacedError> for String {
    fn from(err: PlacedError) -> Self {
        err.to_string()
    }
}

/// Joins a path and the rest of a path, such as `tools[0]` and `run`.
pub fn join_paths(outer: &str, inner: &str) -> String {
    if outer.is_empty() || inner.is_empty() || inner.starts_with('[') {
        format!("{outer}{inner}")
    } else {
        format!("{outer}.{inner}")
    }
}

/// Reads a value, and finds the path of a mistake, even inside a `try_from` that reads its own
/// fields with this function.
pub fn read_placed<T: DeserializeOwned>(value: Value) -> Result<T, PlacedError> {
    serde_path_to_error::deserialize(value).map_err(|err| {
        let outer_path = err.path().to_string();
        let reason = err.into_inner().to_string();
        let outer_path = if outer_path == "." { "" } else { &outer_path };
        PlacedError::from_message(&reason).inside(outer_path)
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Map, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only the error is of interest")]
        items: Vec<Inner>,
    }

    /// Like a source of tools: a conversion hides its fields from serde's path.
    #[derive(Debug, Deserialize)]
    #[serde(try_from = "Map<String, Value>")]
    struct Inner;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        #[expect(dead_code, reason = "only the error is of interest")]
        size: u8,
    }

    impl TryFrom<Map<String, Value>> for Inner {
        type Error = PlacedError;

        fn try_from(fields: Map<String, Value>) -> Result<Self, PlacedError> {
            read_placed::<Fields>(Value::Object(fields)).map(|_| Self)
        }
    }

    #[test]
    fn an_error_has_the_path_of_the_wrong_value() {
        for (value, expected) in [
            (json!(7), "invalid type: integer `7`, expected struct Outer"),
            (json!({}), "missing field `items`"),
            (json!({ "itms": [] }), "`itms`: unknown field `itms`, expected `items`"),
            (json!({ "items": [{ "size": 1 }, {}] }), "`items[1]`: missing field `size`"),
            (
                json!({ "items": [{ "size": "x" }] }),
                "`items[0].size`: invalid type: string \"x\", expected u8",
            ),
            (
                json!({ "items": [{ "size": 1, "a.b": 2 }] }),
                "`items[0].a.b`: unknown field `a.b`, expected `size`",
            ),
        ] {
            let error = read_placed::<Outer>(value).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_message_begins_with_a_path_only_before_a_colon() {
        for (message, path) in [
            ("`run.cwd`: invalid type", "run.cwd"),
            ("`command` is the text `ls -l`: write a list", ""),
            ("`a` or `b`: one of them", ""),
            ("missing field `x`", ""),
        ] {
            let error = PlacedError::from_message(message);
            assert_eq!((error.path.as_str(), error.to_string()), (path, message.to_owned()));
        }
    }
}
