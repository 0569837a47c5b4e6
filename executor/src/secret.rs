//! Secrets, which configuration names and never holds.
//!
//! `{secret: GITHUB_TOKEN}` stands for what the environment says when a tool is called. What was
//! looked up lives as long as that call, is shown by no `Debug`, and where an output or an error
//! repeats it, `***GITHUB_TOKEN***` stands there instead.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::{Map, Value};
use shared::tool::{ErrorCode, ToolError};

/// Bytes that a secret must have to be taken out of outputs: a shorter one is no secret, and
/// would be found in everything.
const SHORTEST: usize = 4;

/// A text that the configuration says, or a secret that it names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Text {
    /// As it is written.
    Plain(String),
    /// What the environment says.
    Secret(SecretName),
}

/// The name of a secret, and what stands before it: `{secret: TOKEN, prefix: "Bearer "}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretName {
    /// The variable of the environment.
    secret: String,
    /// What stands before it.
    #[serde(default)]
    prefix: String,
}

/// A secret that the environment does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret `{0}` is not there: set it in Faber's environment")]
pub struct Missing(pub String);

impl From<Missing> for ToolError {
    fn from(err: Missing) -> Self {
        Self::new(ErrorCode::UNAVAILABLE, err.to_string()).terminal()
    }
}

impl TryFrom<Value> for Text {
    type Error = String;

    fn try_from(written: Value) -> Result<Self, String> {
        match written {
            Value::String(text) => Ok(Self::Plain(text)),
            Value::Number(_) | Value::Bool(_) => Ok(Self::Plain(written.to_string())),
            Value::Object(_) => SecretName::deserialize(written)
                .map(Self::Secret)
                .map_err(|err| format!("{err}: name a secret as in `{{secret: TOKEN}}`")),
            _ => Err("expected a text, or a secret as in `{secret: TOKEN}`".to_owned()),
        }
    }
}

impl Text {
    /// Returns the variable of the environment that it stands for, if it is a secret.
    pub(crate) fn secret(&self) -> Option<&str> {
        match self {
            Self::Plain(_) => None,
            Self::Secret(name) => Some(&name.secret),
        }
    }

    /// Returns the text; what is secret about it is noted, so that it can be taken out again.
    pub(crate) fn resolve(&self, seen: &mut Redaction) -> Result<String, Missing> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Secret(name) => name.resolve(seen),
        }
    }
}

impl SecretName {
    fn resolve(&self, seen: &mut Redaction) -> Result<String, Missing> {
        let value = environment(&self.secret).filter(|it| !it.is_empty());
        let value = value.ok_or_else(|| Missing(self.secret.clone()))?;
        seen.note(&self.secret, &value);
        Ok(format!("{}{value}", self.prefix))
    }
}

/// Resolves all variables of an environment.
pub(crate) fn variables(
    texts: &BTreeMap<String, Text>,
    seen: &mut Redaction,
) -> Result<BTreeMap<String, String>, Missing> {
    texts.iter().map(|(name, text)| Ok((name.clone(), text.resolve(seen)?))).collect()
}

#[expect(clippy::disallowed_methods, reason = "secrets are read here, when a tool is called")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What must not be seen: the secrets that a call has looked up, each with its name.
#[derive(Clone, Default)]
pub(crate) struct Redaction(Vec<(String, String)>);

impl Redaction {
    /// Notes that `value` is what `name` says.
    pub(crate) fn note(&mut self, name: &str, value: &str) {
        let mut add = |value: String| {
            let is_known = self.0.iter().any(|(_, it)| *it == value);
            if value.len() >= SHORTEST && !is_known {
                self.0.push((name.to_owned(), value));
            }
        };
        add(value.to_owned());
        add(value.trim().to_owned());
        add(url_encoded(value));
        // One secret may contain another: the longer is taken out first.
        self.0.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    }

    /// Takes the secrets out of a text.
    pub(crate) fn clean(&self, mut text: String) -> String {
        for (name, value) in &self.0 {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), &format!("***{name}***"));
            }
        }
        text
    }

    /// Takes the secrets out of every text in a value.
    pub(crate) fn clean_value(&self, value: Value) -> Value {
        if self.0.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.clean(text)),
            Value::Array(items) => items.into_iter().map(|it| self.clean_value(it)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let fields = fields.map(|(key, it)| (self.clean(key), self.clean_value(it)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other => other,
        }
    }

    /// Takes the secrets out of what a call returned.
    pub(crate) fn clean_result(
        &self,
        result: Result<Value, ToolError>,
    ) -> Result<Value, ToolError> {
        if self.0.is_empty() {
            return result;
        }
        result.map(|it| self.clean_value(it)).map_err(|err| {
            let message = self.clean(err.message.to_string()).into();
            ToolError { message, ..err }
        })
    }
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Writes a text as a part of a URL: all but unreserved characters in percent (RFC 3986).
pub(crate) fn url_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            let digit = |it: u8| char::from(b"0123456789ABCDEF"[usize::from(it)]);
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

/// Writes bytes in base 64 (RFC 4648), as the header of basic authentication wants them.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for n in 0..4_u32 {
            let index = usize::try_from((bits >> (18 - 6 * n)) & 63).unwrap_or(0);
            let is_padding = usize::try_from(n).unwrap_or(0) > chunk.len();
            encoded.push(if is_padding { '=' } else { char::from(ALPHABET[index]) });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_named_and_looked_up_when_asked() {
        let text: Text =
            serde_json::from_value(json!({ "secret": "CARGO_PKG_NAME", "prefix": "Bearer " }))
                .unwrap();
        let mut seen = Redaction::default();
        assert_eq!(text.resolve(&mut seen).unwrap(), "Bearer executor");
        assert!(!format!("{text:?} {seen:?}").contains("executor"));
        let output = json!({ "executor": ["my executor!", 1], "b": "x" });
        let expected = json!({ "***CARGO_PKG_NAME***": ["my ***CARGO_PKG_NAME***!", 1], "b": "x" });
        assert_eq!(seen.clean_value(output), expected);
        let failed = seen.clean_result(Err(ToolError::failed("no executor here").terminal()));
        assert_eq!(failed, Err(ToolError::failed("no ***CARGO_PKG_NAME*** here").terminal()));
    }

    #[test]
    fn a_secret_that_is_not_there_is_named() {
        let text: Text = serde_json::from_value(json!({ "secret": "FABER_NO_SUCH" })).unwrap();
        let err = ToolError::from(text.resolve(&mut Redaction::default()).unwrap_err());
        assert_eq!(
            err.to_string(),
            "tool.unavailable: the secret `FABER_NO_SUCH` is not there: set it in Faber's environment"
        );
        assert!(!err.retryable && err.is_definite);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for written in [json!(null), json!([]), json!({}), json!({ "secert": "X" })] {
            let err = serde_json::from_value::<Text>(written.clone()).unwrap_err().to_string();
            assert!(err.contains("`{secret: TOKEN}`"), "{written}: {err}");
        }
        assert_eq!(serde_json::from_value::<Text>(json!(1)).unwrap(), Text::Plain("1".to_owned()));
    }

    #[test]
    fn the_longest_secret_goes_first_and_every_form_of_it() {
        let mut seen = Redaction::default();
        seen.note("SHORT", "abc");
        seen.note("INNER", "pass");
        seen.note("OUTER", "pass/word\n");
        let cleaned = seen.clean("abc pass pass/word pass%2Fword%0A".to_owned());
        assert_eq!(cleaned, "abc ***INNER*** ***OUTER*** ***OUTER***");
    }

    #[test]
    fn encodings_are_those_of_the_standards() {
        assert_eq!(url_encoded("a b/ä~?"), "a%20b%2F%C3%A4~%3F");
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("user:pass", "dXNlcjpwYXNz"),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
