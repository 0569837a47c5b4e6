//! The setting `server.oidc`: the issuer whose tokens and sign-in give access, and the rules that
//! turn claims into rights.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use engine::access::{Limits, Quotas, Role, See, Token, ToolPattern};
use oidc::{ClientCredentials, Rule, Settings};
use reqwest::Url;
use serde_json::{Map, Value, json};
use shared::secret_file::SecretFile;
use toolsets::sources::SetConfig;

use super::{
    Config, ConfigError,
    access::{check_keys, read_limits, read_patterns, read_see, read_text, with_equivalents},
};

const KEYS: [&str; 9] = [
    "issuer",
    "audience",
    "client_id",
    "client_secret_env",
    "client_secret_file",
    "scopes",
    "name_claim",
    "public_url",
    "rules",
];
const RULE_KEYS: [&str; 6] = ["claim", "value", "role", "tools", "limits", "see"];
/// Maximum number of rules. It is limited because each request is compared with each rule.
const MAX_RULES: usize = 1_000;
const MAX_NAMES: usize = 100;
const DEFAULT_SCOPE: &str = "openid";
const DEFAULT_NAME_CLAIM: &str = "sub";

#[derive(Clone, Debug, PartialEq)]
pub struct OidcConfig {
    issuer: String,
    audience: Vec<String>,
    client: Option<ClientConfig>,
    scopes: Vec<String>,
    name_claim: String,
    /// The origin under which browsers and MCP clients reach the server.
    public_url: Option<String>,
    rules: Vec<RuleConfig>,
}

#[derive(Clone, Debug, PartialEq)]
struct ClientConfig {
    id: String,
    secret: Option<SecretSource>,
}

#[derive(Clone, Debug, PartialEq)]
enum SecretSource {
    Variable(String),
    /// The path as written. A relative path starts at the folder of the configuration file.
    File(PathBuf),
}

#[derive(Clone, Debug, PartialEq)]
struct RuleConfig {
    claim: String,
    value: String,
    role: Role,
    tools: Option<Vec<ToolPattern>>,
    limits: Limits,
    quotas: Quotas,
    written_limits: Value,
    see: See,
}

impl OidcConfig {
    pub fn open(
        &self,
        base: &Path,
        sets: &[SetConfig],
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Settings, ConfigError> {
        let client = match &self.client {
            None => None,
            Some(ClientConfig { id, secret }) => {
                let secret = secret.as_ref().map(|source| source.read_secret(base, variable));
                let secret = secret.transpose().map_err(ConfigError::new)?;
                Some(ClientCredentials { id: id.clone(), secret })
            }
        };
        Ok(Settings {
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            client,
            scopes: self.scopes.clone(),
            name_claim: self.name_claim.clone(),
            rules: self.rules.iter().map(|rule| rule.open(sets)).collect(),
            public_url: self.public_url.clone(),
        })
    }

    pub(super) fn secret_file(&self) -> Option<&Path> {
        match self.client.as_ref()?.secret.as_ref()? {
            SecretSource::File(path) => Some(path),
            SecretSource::Variable(_) => None,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let secret = self.client.as_ref().and_then(|client| client.secret.as_ref());
        let (variable, file) = match secret {
            Some(SecretSource::Variable(name)) => (Some(name), None),
            Some(SecretSource::File(path)) => (None, Some(path)),
            None => (None, None),
        };
        json!({
            "issuer": self.issuer,
            "audience": self.audience,
            "client_id": self.client.as_ref().map(|client| &client.id),
            "client_secret_env": variable,
            "client_secret_file": file,
            "scopes": self.scopes,
            "name_claim": self.name_claim,
            "public_url": self.public_url,
            "rules": self.rules.iter().map(RuleConfig::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Config {
    /// Returns the environment variables that added toolsets are allowed to use. Returns `None` if
    /// all are allowed, because only this machine can add toolsets.
    pub fn secrets(&self) -> Option<BTreeSet<String>> {
        let named = self.access.value.secrets();
        if self.http_server.value.oidc.is_some() { Some(named.unwrap_or_default()) } else { named }
    }
}

impl SecretSource {
    fn read_secret(
        &self,
        base: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<String, String> {
        let (place, secret) = match self {
            Self::Variable(name) => (name.clone(), variable(name).unwrap_or_default()),
            Self::File(path) => {
                let file = SecretFile::new(path.display().to_string(), base);
                let text = file.read().map_err(|reason| {
                    format!("`server.oidc.client_secret_file` cannot be used: {reason}")
                })?;
                (file.written().to_owned(), text)
            }
        };
        match secret.trim() {
            "" => Err(format!(
                "the client secret of `server.oidc` is empty: set `{place}`, or remove the setting \
                 for a public client"
            )),
            secret => Ok(secret.to_owned()),
        }
    }
}

impl RuleConfig {
    fn open(&self, sets: &[SetConfig]) -> Rule {
        let mut rights = Token::new("", "", self.role);
        rights.tools = self.tools.as_ref().map(|patterns| {
            patterns.iter().flat_map(|pattern| with_equivalents(pattern, sets)).collect()
        });
        rights.limits = self.limits;
        rights.quotas = self.quotas;
        rights.see = self.see;
        Rule { claim: self.claim.clone(), value: self.value.clone(), rights }
    }

    fn to_json(&self) -> Value {
        let tools = self.tools.as_ref();
        let tools = tools.map(|all| all.iter().map(ToolPattern::to_string).collect());
        json!({
            "claim": self.claim,
            "value": self.value,
            "role": self.role.as_str(),
            "tools": tools.unwrap_or_else(|| vec!["*".to_owned()]),
            "limits": self.written_limits,
            "see": self.see.as_str(),
        })
    }
}

pub(super) fn read(value: Option<&Value>) -> Result<Option<OidcConfig>, String> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => {
            return Err(
                "`server.oidc` must be a map with `issuer`, `audience` and `rules`".to_owned()
            );
        }
    };
    read_fields(fields).map(Some).map_err(|reason| format!("`server.oidc`: {reason}"))
}

fn read_fields(fields: &Map<String, Value>) -> Result<OidcConfig, String> {
    if fields.contains_key("client_secret") {
        return Err("`client_secret` would put a secret into a file: use `client_secret_env` or \
                    `client_secret_file`"
            .to_owned());
    }
    check_keys(fields, &KEYS)?;
    let issuer = read_text(fields, "issuer")?;
    read_url(&issuer).map_err(|reason| format!("`issuer`: {reason}"))?;
    let audience = match fields.get("audience") {
        Some(Value::String(text)) if !text.trim().is_empty() => vec![text.clone()],
        None | Some(Value::Null) => return Err("`audience` is missing".to_owned()),
        Some(_) => read_names(fields, "audience", "faber")?,
    };
    let scopes = match fields.get("scopes") {
        None | Some(Value::Null) => vec![DEFAULT_SCOPE.to_owned()],
        Some(_) => read_names(fields, "scopes", DEFAULT_SCOPE)?,
    };
    if !scopes.iter().any(|scope| scope == DEFAULT_SCOPE) {
        return Err("`scopes` must contain `openid`".to_owned());
    }
    let name_claim = match fields.get("name_claim") {
        None | Some(Value::Null) => DEFAULT_NAME_CLAIM.to_owned(),
        Some(_) => read_text(fields, "name_claim")?,
    };
    Ok(OidcConfig {
        issuer,
        audience,
        client: read_client(fields)?,
        scopes,
        name_claim,
        public_url: read_public_url(fields)?,
        rules: read_rules(fields)?,
    })
}

fn read_client(fields: &Map<String, Value>) -> Result<Option<ClientConfig>, String> {
    let is_set = |key: &str| fields.get(key).is_some_and(|value| !value.is_null());
    let secret = match (is_set("client_secret_env"), is_set("client_secret_file")) {
        (true, true) => {
            return Err("name one of `client_secret_env` and `client_secret_file`".to_owned());
        }
        (true, false) => Some(SecretSource::Variable(read_text(fields, "client_secret_env")?)),
        (false, true) => Some(SecretSource::File(read_text(fields, "client_secret_file")?.into())),
        (false, false) => None,
    };
    match (is_set("client_id"), secret) {
        (true, secret) => Ok(Some(ClientConfig { id: read_text(fields, "client_id")?, secret })),
        (false, None) => Ok(None),
        (false, Some(_)) => Err("`client_id` is missing, and there is a client secret".to_owned()),
    }
}

fn read_names(
    fields: &Map<String, Value>,
    key: &str,
    example: &str,
) -> Result<Vec<String>, String> {
    let wrong =
        || format!("`{key}` must be a list of 1 to {MAX_NAMES} names, such as `[{example}]`");
    let items = fields.get(key).and_then(Value::as_array);
    let items = items.filter(|items| (1..=MAX_NAMES).contains(&items.len())).ok_or_else(wrong)?;
    let names = items.iter().map(|item| item.as_str().filter(|name| !name.trim().is_empty()));
    names.map(|name| name.map(str::to_owned).ok_or_else(wrong)).collect()
}

/// Reads a URL that is safe for tokens: HTTPS, or HTTP on this machine.
fn read_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|_| format!("`{text}` is not a URL"))?;
    let is_local = match url.host_str() {
        Some(host) => {
            let address = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost"
                || host.ends_with(".localhost")
                || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => false,
    };
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_local);
    if !is_safe || url.host_str().is_none() {
        return Err(format!(
            "`{text}` must begin with `https://`; only this machine may use `http`"
        ));
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err(format!("`{text}` must have no user, no query and no fragment"));
    }
    Ok(url)
}

fn read_public_url(fields: &Map<String, Value>) -> Result<Option<String>, String> {
    if fields.get("public_url").is_none_or(Value::is_null) {
        return Ok(None);
    }
    let text = read_text(fields, "public_url")?;
    let url = read_url(&text).map_err(|reason| format!("`public_url`: {reason}"))?;
    if url.path() != "/" {
        return Err(format!(
            "`public_url` is `{text}`: write the origin, such as `https://faber.example`; the path \
             is `server.path_prefix`"
        ));
    }
    Ok(Some(url.as_str().trim_end_matches('/').to_owned()))
}

fn read_rules(fields: &Map<String, Value>) -> Result<Vec<RuleConfig>, String> {
    let hint = "`rules` must be a list of 1 to 1000 rules, such as `[{ claim: groups, value: ops, \
                role: operator }]`";
    let items = fields.get("rules").and_then(Value::as_array);
    let items = items.filter(|items| (1..=MAX_RULES).contains(&items.len())).ok_or(hint)?;
    let placed = |index: usize, reason: String| format!("`rules[{index}]`: {reason}");
    let rules = items.iter().enumerate();
    rules.map(|(index, item)| read_rule(item).map_err(|reason| placed(index, reason))).collect()
}

fn read_rule(item: &Value) -> Result<RuleConfig, String> {
    let Value::Object(fields) = item else {
        return Err(
            "write a map such as `{ claim: groups, value: ops, role: operator }`".to_owned()
        );
    };
    check_keys(fields, &RULE_KEYS)?;
    let written_limits = fields.get("limits").cloned().unwrap_or_default();
    let value = match fields.get("value") {
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => read_text(fields, "value")?,
    };
    let role = read_text(fields, "role")?.parse()?;
    let (limits, quotas) = read_limits(&written_limits)?;
    Ok(RuleConfig {
        see: read_see(fields, role)?,
        claim: read_text(fields, "claim")?,
        value,
        role,
        tools: read_patterns(fields.get("tools"))?,
        limits,
        quotas,
        written_limits,
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn example_setting() -> Value {
        json!({
            "issuer": "https://login.example",
            "audience": "https://faber.example/mcp",
            "client_id": "faber",
            "client_secret_env": "SECRET",
            "public_url": "https://faber.example/",
            "rules": [
                { "claim": "groups", "value": "ops", "role": "operator", "tools": ["flow.*"],
                  "limits": { "calls": "100/h" } },
                { "claim": "email_verified", "value": true, "role": "viewer" },
            ],
        })
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check_refused(change: Value, expected: Expect) {
        let mut setting = example_setting();
        for (key, value) in change.as_object().unwrap() {
            setting[key] = value.clone();
        }
        expected.assert_eq(&read(Some(&setting)).unwrap_err());
    }

    #[test]
    fn the_setting_is_read_and_shown_without_the_secret() {
        let config = read(Some(&example_setting())).unwrap().unwrap();
        let secret = |name: &str| (name == "SECRET").then(|| "s3cret\n".to_owned());
        let settings = config.open(Path::new("/"), &[], secret).unwrap();
        assert_eq!(settings.client.unwrap().secret.as_deref(), Some("s3cret"));
        assert_eq!(settings.rules[1].value, "true");
        assert_eq!(settings.public_url.as_deref(), Some("https://faber.example"));
        let shown = config.to_json();
        assert!(!shown.to_string().contains("s3cret"));
        assert_eq!(shown["audience"], json!(["https://faber.example/mcp"]));
        assert_eq!(shown["scopes"], json!(["openid"]));
        assert!(config.open(Path::new("/"), &[], |_| None).is_err());
        assert_eq!(read(None), Ok(None));
    }

    #[test]
    fn the_secret_can_be_in_a_file_beside_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "from a file\n").unwrap();
        let mut setting = example_setting();
        setting["client_secret_env"] = Value::Null;
        setting["client_secret_file"] = json!("secret");
        let config = read(Some(&setting)).unwrap().unwrap();
        let settings = config.open(folder.path(), &[], |_| None).unwrap();
        assert_eq!(settings.client.unwrap().secret.as_deref(), Some("from a file"));
        assert!(config.open(Path::new("/none"), &[], |_| None).is_err());
    }

    #[test]
    fn a_wrong_setting_names_the_correction() {
        check_refused(
            json!({ "issuer": "http://login.example" }),
            expect![
                "`server.oidc`: `issuer`: `http://login.example` must begin with `https://`; only this machine may use `http`"
            ],
        );
        check_refused(
            json!({ "client_secret": "s3cret" }),
            expect![
                "`server.oidc`: `client_secret` would put a secret into a file: use `client_secret_env` or `client_secret_file`"
            ],
        );
        check_refused(
            json!({ "audiences": [] }),
            expect!["`server.oidc`: `audiences` is unknown: did you mean `audience`?"],
        );
        check_refused(json!({ "audience": null }), expect!["`server.oidc`: `audience` is missing"]);
        check_refused(
            json!({ "scopes": ["email"] }),
            expect!["`server.oidc`: `scopes` must contain `openid`"],
        );
        check_refused(
            json!({ "client_id": null }),
            expect!["`server.oidc`: `client_id` is missing, and there is a client secret"],
        );
        check_refused(
            json!({ "public_url": "https://faber.example/faber" }),
            expect![
                "`server.oidc`: `public_url` is `https://faber.example/faber`: write the origin, such as `https://faber.example`; the path is `server.path_prefix`"
            ],
        );
        check_refused(
            json!({ "rules": [] }),
            expect![
                "`server.oidc`: `rules` must be a list of 1 to 1000 rules, such as `[{ claim: groups, value: ops, role: operator }]`"
            ],
        );
        check_refused(
            json!({ "rules": [{ "claim": "a", "value": "b", "role": "root" }] }),
            expect![
                "`server.oidc`: `rules[0]`: there is no role `root`: use viewer, operator or admin"
            ],
        );
    }
}
