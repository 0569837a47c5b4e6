use std::collections::BTreeMap;

use secrets::{Redaction, TextOrSecret, encode_base64, percent_encode};
use serde::Deserialize;
use serde_json::Value;
use shared::tool::ToolError;

use super::{document::Document, parameter::RequestParts};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(super) enum Credential {
    /// A key, a token, or `user:password`.
    Token(TextOrSecret),
    User(User),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct User {
    username: TextOrSecret,
    password: TextOrSecret,
}

impl Credential {
    pub(super) fn texts(&self) -> Vec<&TextOrSecret> {
        match self {
            Self::Token(token) => vec![token],
            Self::User(User { username, password }) => vec![username, password],
        }
    }

    pub(super) fn texts_mut(&mut self) -> Vec<&mut TextOrSecret> {
        match self {
            Self::Token(token) => vec![token],
            Self::User(User { username, password }) => vec![username, password],
        }
    }
}

impl TryFrom<Value> for Credential {
    type Error = String;

    fn try_from(written: Value) -> Result<Self, String> {
        if written.get("username").is_some() {
            let user = serde_json::from_value(written).map(Self::User);
            return user.map_err(|err| err.to_string());
        }
        TextOrSecret::try_from(written).map(Self::Token)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Header(String),
    Query(String),
    Cookie(String),
    Bearer,
    Basic,
}

pub(super) fn find_schemes(
    document: &Document,
    auth: &BTreeMap<String, Credential>,
) -> Result<BTreeMap<String, Scheme>, String> {
    let written = document.root().pointer("/components/securitySchemes");
    let written = written.and_then(Value::as_object).into_iter().flatten();
    let schemes: BTreeMap<String, Scheme> = written
        .filter_map(|(name, written)| {
            Some((name.clone(), parse_scheme(document.resolve(written).ok()?)?))
        })
        .collect();
    match auth.keys().find(|name| !schemes.contains_key(*name)) {
        None => Ok(schemes),
        Some(unknown) => {
            let known_names: Vec<_> = schemes.keys().map(|name| format!("`{name}`")).collect();
            let known_names =
                if known_names.is_empty() { "none".to_owned() } else { known_names.join(", ") };
            Err(format!(
                "`auth` names `{unknown}`; the document's security schemes are {known_names}"
            ))
        }
    }
}

fn parse_scheme(written: &Value) -> Option<Scheme> {
    let text = |key: &str| written.get(key).and_then(Value::as_str);
    match (text("type")?, text("in"), text("name")) {
        ("apiKey", Some("header"), Some(name)) => Some(Scheme::Header(name.to_owned())),
        ("apiKey", Some("query"), Some(name)) => Some(Scheme::Query(name.to_owned())),
        ("apiKey", Some("cookie"), Some(name)) => Some(Scheme::Cookie(name.to_owned())),
        ("http", ..) if text("scheme")?.eq_ignore_ascii_case("basic") => Some(Scheme::Basic),
        ("http" | "oauth2" | "openIdConnect", ..) => Some(Scheme::Bearer),
        _ => None,
    }
}

/// The schemes that calls use, and the schemes for which credentials are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Security {
    pub(super) used_schemes: Vec<String>,
    pub(super) missing_schemes: Vec<String>,
}

pub(super) fn choose_schemes(
    document: &Document,
    operation: &Value,
    auth: &BTreeMap<String, Credential>,
) -> Security {
    let written = operation.get("security").or_else(|| document.root().get("security"));
    let alternatives: Vec<Vec<String>> = written
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|alternative| Some(alternative.as_object()?.keys().cloned().collect()))
        .collect();
    let has_credentials = |names: &&Vec<String>| {
        !names.is_empty() && names.iter().all(|name| auth.contains_key(name))
    };
    if let Some(used) = alternatives.iter().find(has_credentials) {
        return Security { used_schemes: used.clone(), missing_schemes: Vec::new() };
    }
    Security {
        used_schemes: Vec::new(),
        missing_schemes: alternatives.into_iter().next().unwrap_or_default(),
    }
}

impl Scheme {
    pub(super) fn write(
        &self,
        name: &str,
        credential: &Credential,
        parts: &mut RequestParts,
        redaction: &mut Redaction,
    ) -> Result<(), ToolError> {
        let token = match credential {
            Credential::Token(token) => token.resolve(redaction)?,
            Credential::User(User { username, password }) => {
                format!("{}:{}", username.resolve(redaction)?, password.resolve(redaction)?)
            }
        };
        let authorization = "authorization".to_owned();
        match self {
            Self::Header(header) => parts.headers.push((header.clone(), token)),
            Self::Query(key) => {
                parts.query.push(format!("{}={}", percent_encode(key), percent_encode(&token)));
            }
            Self::Cookie(key) => parts.cookies.push(format!("{key}={}", percent_encode(&token))),
            Self::Bearer => parts.headers.push((authorization, format!("Bearer {token}"))),
            Self::Basic => {
                let encoded = encode_base64(token.as_bytes());
                redaction.add_secret(name, &encoded);
                parts.headers.push((authorization, format!("Basic {encoded}")));
            }
        }
        Ok(())
    }
}
