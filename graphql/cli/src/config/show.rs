use serde_json::{Map, Value, json};

use super::{Config, EncryptionConfig, Origin, TlsFiles, oidc::OidcConfig, retention};

const MASK: &str = "***";

impl Config {
    pub fn to_json(&self) -> Value {
        let mut limits: Map<String, Value> = self
            .limits
            .all()
            .map(|(key, setting)| {
                (key.to_owned(), show_setting(&json!(setting.value), setting.origin))
            })
            .collect();
        let calls = self.limits.written_call_limits();
        limits.insert("calls".to_owned(), show_setting(calls.value, calls.origin));
        let retention = self.retention.value.as_ref().map(retention::show_policy);
        let server = self
            .server
            .as_ref()
            .map(|server| show_setting(&json!(mask_url(&server.value)), server.origin));
        let metrics = self.metrics.as_ref();
        let metrics = metrics.map(|address| show_setting(&json!(address.value), address.origin));
        let http = &self.http_server;
        json!({
            "file": self.file,
            "store": show_setting(&json!(mask_url(&self.store.value)), self.store.origin),
            "server": server,
            "listen": show_setting(&json!(self.listen.value), self.listen.origin),
            "metrics": metrics,
            "node": show_setting(&json!(self.node.value), self.node.origin),
            "server.allowed_hosts": show_setting(&json!(http.value.allowed_hosts.written), http.origin),
            "server.allowed_origins": show_setting(&json!(http.value.allowed_origins.written), http.origin),
            "server.path_prefix": show_setting(&json!(http.value.path_prefix.as_str()), http.origin),
            "server.oidc": show_setting(&json!(http.value.oidc.as_ref().map(OidcConfig::to_json)), http.origin),
            "server.tls": show_setting(
                &json!(http.value.tls.as_ref().map(TlsFiles::to_json)),
                http.origin,
            ),
            "planner": show_setting(&self.planner.value.to_json(), self.planner.origin),
            "planner.cache": show_setting(&json!(self.plan_cache.value.as_str()), self.plan_cache.origin),
            "planner.guard": show_setting(&json!(self.guard.value.as_str()), self.guard.origin),
            "toolsets": show_setting(&mask_sets(&self.written_toolsets), self.toolsets.origin),
            "tools_files": show_setting(&json!(self.described_files), file_origin(!self.described_files.is_empty())),
            "contexts": show_setting(&self.contexts_without_documents(), file_origin(!self.contexts.is_empty())),
            "toolkit_files": show_setting(&json!(self.toolkit.value.files), self.toolkit.origin),
            "learning": show_setting(&json!(self.learning.value), self.learning.origin),
            "selection": { "margin": show_setting(&json!(self.margin.value), self.margin.origin) },
            "embedding": show_setting(&self.embedding.value.to_json(), self.embedding.origin),
            "encryption": show_setting(
                &json!(self.encryption.value.as_ref().map(EncryptionConfig::to_json)),
                self.encryption.origin,
            ),
            "log_format": show_setting(&json!(self.log_format.value.as_str()), self.log_format.origin),
            "log_level": show_setting(&json!(self.log_level.value), self.log_level.origin),
            "limits": limits,
            "access": show_setting(&self.access.value.to_json(), self.access.origin),
            "access.secrets": show_setting(&json!(self.secrets()), self.access.origin),
            "retention": show_setting(&json!(retention), self.retention.origin),
            "retention.audit": show_setting(
                &json!(self.audit_retention.value.map(engine::age::format)),
                self.audit_retention.origin,
            ),
        })
    }

    /// Returns the data of each context. Each list of documents is replaced by the number of
    /// documents.
    fn contexts_without_documents(&self) -> Value {
        let masked_contexts = self.contexts.iter().map(|(name, data)| {
            let mut data = data.clone();
            if let Some(Value::Object(collections)) = data.get_mut("rag") {
                for documents in collections.values_mut() {
                    *documents = json!(documents.as_array().map_or(0, Vec::len));
                }
            }
            (name.clone(), data)
        });
        Value::Object(masked_contexts.collect())
    }

    pub fn store_name(&self) -> String {
        mask_url(&self.store.value)
    }
}

fn file_origin(has_value: bool) -> Origin {
    if has_value { Origin::File } else { Origin::Default }
}

fn show_setting(value: &Value, origin: Origin) -> Value {
    json!({ "value": value, "from": origin.to_string() })
}

pub(super) fn mask_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((login, host)) => {
            let user = login.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:{MASK}@{host}{tail}")
        }
        None => url.to_owned(),
    }
}

fn mask_sets(sets: &Value) -> Value {
    match sets {
        Value::Array(items) => items.iter().map(mask_sets).collect(),
        Value::Object(fields) => {
            let masked = fields.iter().map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    ("env" | "headers" | "auth", Value::Object(entries)) if !is_secret(value) => {
                        entries
                            .iter()
                            .map(|(key, value)| (key.clone(), mask_value(value)))
                            .collect()
                    }
                    ("auth", value) => mask_value(value),
                    (_, other) => mask_sets(other),
                };
                (key.clone(), value)
            });
            masked.collect()
        }
        other => other.clone(),
    }
}

fn is_secret(value: &Value) -> bool {
    ["secret", "secret_file"].iter().any(|key| value.get(key).is_some_and(Value::is_string))
}

fn mask_value(value: &Value) -> Value {
    if is_secret(value) { value.clone() } else { json!(MASK) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_toolsets_are_masked_and_secret_names_shown() {
        let secret = json!({ "secret": "KEY" });
        let source = |key: &str, value: &Value| json!([{ "source": { "x": { key: value } } }]);
        for (key, value, masked) in [
            ("env", json!({ "A": "plain" }), json!({ "A": MASK })),
            ("env", json!({ "A": secret }), json!({ "A": secret })),
            ("headers", json!({ "x-key": "plain" }), json!({ "x-key": MASK })),
            ("auth", json!({ "login": { "password": "plain" } }), json!({ "login": MASK })),
            ("auth", json!("plain"), json!(MASK)),
            ("auth", secret.clone(), secret.clone()),
            ("auth", json!({ "secret_file": "k" }), json!({ "secret_file": "k" })),
            ("url", json!("http://h"), json!("http://h")),
        ] {
            assert_eq!(mask_sets(&source(key, &value)), source(key, &masked));
        }
    }
}
