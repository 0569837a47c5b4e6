//! The secrets that a server knows, and their removal from its messages and from the descriptions
//! and schemas of its tools. People and models read these texts, and stores keep them. A tool is
//! skipped if its name or a name in its schemas contains a secret.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rmcp::model::Tool as Offer;
use secrets::Redaction;
use serde_json::{Map, Value};

use super::EXAMPLES_FIELD;

/// Maximum number of tokens that are removed from texts: the newest ones.
const MAX_TOKENS: usize = 4;
const PLACEHOLDER: &str = "ACCESS_TOKEN";

#[derive(Default)]
pub(super) struct Secrets(RwLock<KnownSecrets>);

#[derive(Default)]
struct KnownSecrets {
    configured: Redaction,
    tokens: VecDeque<String>,
    combined: Arc<Redaction>,
}

impl Secrets {
    pub(super) fn new(configured: Redaction) -> Self {
        let all = Arc::new(configured.clone());
        Self(RwLock::new(KnownSecrets { configured, tokens: VecDeque::new(), combined: all }))
    }

    pub(super) fn redaction(&self) -> Arc<Redaction> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).combined)
    }

    pub(super) fn add_token(&self, token: &str) {
        let mut secrets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if secrets.tokens.iter().any(|other| other == token) {
            return;
        }
        secrets.tokens.push_back(token.to_owned());
        if secrets.tokens.len() > MAX_TOKENS {
            secrets.tokens.pop_front();
        }
        let mut all = secrets.configured.clone();
        secrets.tokens.iter().for_each(|token| all.add_secret(PLACEHOLDER, token));
        secrets.combined = Arc::new(all);
    }

    pub(super) fn redact(&self, text: String) -> String {
        self.redaction().redact(text)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redaction().fmt(f)
    }
}

/// Keywords of a schema whose value is a map from names to schemas.
const SCHEMA_MAPS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Removes secrets from the tools of a server. Skips a tool with a secret in its name, because
/// calls need the name.
pub(super) fn redact_offers(offers: Vec<Offer>, server: &str, redaction: &Redaction) -> Vec<Offer> {
    let cleaned = offers.into_iter().filter_map(|mut offer| {
        let is_fit = !redaction.occurs_in(&offer.name) && redact_offer(&mut offer, redaction);
        if !is_fit {
            let tool = redaction.redact(offer.name.into_owned());
            tracing::warn!(
                %server, %tool,
                "skipped a tool of the server: one of its names contains a secret"
            );
            return None;
        }
        Some(offer)
    });
    cleaned.collect()
}

/// Removes secrets from one tool. Returns `false` if one of its names contains a secret.
fn redact_offer(offer: &mut Offer, redaction: &Redaction) -> bool {
    offer.description =
        offer.description.take().map(|text| redaction.redact(text.into_owned()).into());
    offer.title = offer.title.take().map(|title| redaction.redact(title));
    for (key, value) in offer.meta.iter_mut().flat_map(|meta| &mut meta.0) {
        if key == EXAMPLES_FIELD {
            *value = redaction.redact_value(value.take());
        }
    }
    let mut schemas = std::iter::once(&mut offer.input_schema).chain(&mut offer.output_schema);
    schemas.all(|schema| redact_schema(Arc::make_mut(schema), redaction))
}

fn redact_schema(schema: &mut Map<String, Value>, redaction: &Redaction) -> bool {
    let mut is_fit = !schema.keys().any(|key| redaction.occurs_in(key));
    schema.retain(|key, value| match (key.as_str(), value) {
        ("description" | "title" | "$comment", Value::String(text)) => {
            *text = redaction.redact(std::mem::take(text));
            true
        }
        ("required", names) => {
            is_fit &= !redaction.occurs_in_value(names);
            true
        }
        ("enum" | "examples", Value::Array(values)) => {
            values.retain(|value| !redaction.occurs_in_value(value));
            !values.is_empty()
        }
        ("default" | "const" | "example" | "enum" | "examples", value) => {
            !redaction.occurs_in_value(value)
        }
        (map, Value::Object(schemas)) if SCHEMA_MAPS.contains(&map) => {
            is_fit &= !schemas.keys().any(|key| redaction.occurs_in(key));
            let mut schemas = schemas.values_mut().filter_map(Value::as_object_mut);
            is_fit &= schemas.all(|schema| redact_schema(schema, redaction));
            true
        }
        (_, Value::Object(schema)) => {
            is_fit &= redact_schema(schema, redaction);
            true
        }
        (_, Value::Array(items)) => {
            items.retain_mut(|item| match item {
                Value::Object(schema) => {
                    is_fit &= redact_schema(schema, redaction);
                    true
                }
                other => !redaction.occurs_in_value(other),
            });
            true
        }
        (_, other) => !redaction.occurs_in_value(other),
    });
    is_fit
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_that_are_learned_later_are_redacted() {
        let mut configured = Redaction::default();
        configured.add_secret("KEY", "the key");
        let secrets = Secrets::new(configured);
        secrets.add_token("token-0");
        assert_eq!(secrets.redact("token-0 the key".to_owned()), "***ACCESS_TOKEN*** ***KEY***");
        (1..=MAX_TOKENS).for_each(|n| secrets.add_token(&format!("token-{n}")));
        let text = secrets.redact("token-0 token-1 token-4 the key".to_owned());
        assert_eq!(text, "token-0 ***ACCESS_TOKEN*** ***ACCESS_TOKEN*** ***KEY***");
        assert!(!format!("{secrets:?}").contains("token-"));
    }

    fn redaction() -> Redaction {
        let mut redaction = Redaction::default();
        redaction.add_secret("KEY", "sesame");
        redaction
    }

    fn offer(written: Value) -> Offer {
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn secrets_in_tool_descriptions_are_redacted() {
        let redacted_offer = |word: &str| {
            let schema = json!({
                "type": "object", "title": word,
                "properties": { "title": { "enum": ["door"], "description": format!("the {word}") } },
                "anyOf": [{ "description": word }],
            });
            offer(json!({
                "name": "open", "title": word, "description": format!("says {word}"),
                "inputSchema": schema, "outputSchema": schema,
                "_meta": { EXAMPLES_FIELD: [format!("open {word}")], "other": "sesame" },
            }))
        };
        assert_eq!(
            redact_offers(vec![redacted_offer("sesame")], "s", &redaction()),
            [redacted_offer("***KEY***")]
        );
    }

    #[test]
    fn schema_values_with_a_secret_are_removed() {
        let schema = json!({
            "type": "object",
            "properties": {
                "default": { "type": "string", "default": "sesame", "examples": ["a sesame", "b"] },
                "b": { "const": "sesame", "examples": ["sesame"] },
                "c": { "enum": ["x", "sesame"], "default": "x" },
                "d": { "enum": ["sesame"], "pattern": "^sesame$" },
                "e": { "anyOf": [{ "default": { "deep": ["sesame"] } }, true] },
            },
            "required": ["b"],
        });
        let left = json!({
            "type": "object",
            "properties": {
                "default": { "type": "string", "examples": ["b"] },
                "b": {},
                "c": { "enum": ["x"], "default": "x" },
                "d": {},
                "e": { "anyOf": [{}, true] },
            },
            "required": ["b"],
        });
        let redacted_offer = |schema: &Value| offer(json!({ "name": "t", "inputSchema": schema }));
        assert_eq!(
            redact_offers(vec![redacted_offer(&schema)], "s", &redaction()),
            [redacted_offer(&left)]
        );
    }

    #[test]
    fn a_tool_with_a_secret_in_its_name_is_removed() {
        let good = json!({ "name": "good", "inputSchema": { "properties": { "a": true } } });
        let bad = [
            json!({ "name": "get_sesame", "inputSchema": {} }),
            json!({ "name": "a", "inputSchema": { "properties": { "sesame": {} } } }),
            json!({ "name": "b", "inputSchema": { "required": ["sesame"] } }),
            json!({ "name": "c", "inputSchema": { "items": [{ "$defs": { "sesame": true } }] } }),
            json!({ "name": "d", "inputSchema": {}, "outputSchema": { "x-sesame": 1 } }),
        ];
        let offers = bad.into_iter().chain([good.clone()]).map(offer);
        assert_eq!(redact_offers(offers.collect(), "s", &redaction()), [offer(good)]);
    }
}
