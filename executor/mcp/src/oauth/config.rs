use http_client::ServerUrl;
use reqwest::Url;
use secrets::TextOrSecret;
use serde::Deserialize;
use serde_json::Value;
use shared::placed_error::read_placed;

/// The setting `auth`: `oauth`, or a map with details.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct OAuth {
    pub(super) grant: Grant,
    /// The scopes to request. Default: the scopes that the server names.
    pub(super) scopes: Vec<String>,
    /// The expected issuer, compared byte by byte. A server with another issuer gets no secret.
    pub(super) issuer: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// A person logs in.
    Person { client: Option<Client>, document: Option<String>, port: Option<u16> },
    /// No person logs in, because the program has an account of its own.
    Program { id: String, proof: Credential },
    /// Exchanges the identity token of a company's identity provider.
    CrossApp { client: Client, identity: Box<Identity> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<TextOrSecret>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    Secret(TextOrSecret),
    Key(TextOrSecret),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) issuer: String,
    pub(super) token_endpoint: ServerUrl,
    pub(super) client_id: String,
    pub(super) client_secret: Option<TextOrSecret>,
    pub(super) id_token: TextOrSecret,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OAuthFields {
    grant: GrantKind,
    issuer: Option<String>,
    client_id: Option<String>,
    client_secret: Option<TextOrSecret>,
    private_key: Option<TextOrSecret>,
    client_metadata: Option<String>,
    scopes: Vec<String>,
    callback_port: Option<u16>,
    identity: Option<Identity>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrantKind {
    #[default]
    AuthorizationCode,
    ClientCredentials,
    CrossApp,
}

impl TryFrom<Value> for OAuth {
    type Error = String;

    fn try_from(settings: Value) -> Result<Self, String> {
        let settings = match settings {
            Value::String(word) if word == "oauth" => OAuthFields::default(),
            Value::Object(_) => read_placed::<OAuthFields>(settings)?,
            _ => {
                let reason = "`auth` must be `oauth` or a map, such as `{scopes: [read]}`";
                return Err(reason.to_owned());
            }
        };
        if let Some(scope) = settings.scopes.iter().find(|scope| !is_scope(scope)) {
            return Err(format!("`{scope}` is not a valid OAuth scope"));
        }
        for text in settings.secret_texts() {
            if matches!(text, TextOrSecret::Plain(_)) {
                let reason = "a secret in `auth` must be named, as in `{secret: TOKEN}`";
                return Err(reason.to_owned());
            }
        }
        if let Some(issuer) = settings.issuer.as_ref().filter(|issuer| Url::parse(issuer).is_err())
        {
            return Err(format!(
                "`issuer` must be the address of the authorization server, not `{issuer}`"
            ));
        }
        let (scopes, issuer) = (settings.scopes.clone(), settings.issuer.clone());
        Ok(Self { grant: settings.into_grant()?, scopes, issuer })
    }
}

impl OAuthFields {
    fn secret_texts(&self) -> Vec<&TextOrSecret> {
        let identity = self.identity.iter();
        let identity =
            identity.flat_map(|identity| identity.client_secret.iter().chain([&identity.id_token]));
        self.client_secret.iter().chain(&self.private_key).chain(identity).collect()
    }

    fn into_grant(self) -> Result<Grant, String> {
        let kind = self.grant;
        self.reject_foreign_fields(kind)?;
        match kind {
            GrantKind::AuthorizationCode => {
                let document = self.client_metadata.map(check_document).transpose()?;
                let client = match (self.client_id, self.client_secret) {
                    (Some(id), secret) => Some(Client { id, secret }),
                    (None, None) => None,
                    (None, Some(_)) => return Err("`client_secret` needs a `client_id`".to_owned()),
                };
                Ok(Grant::Person { client, document, port: self.callback_port })
            }
            GrantKind::ClientCredentials => {
                let proof = match (self.client_secret, self.private_key) {
                    (Some(secret), None) => Credential::Secret(secret),
                    (None, Some(key)) => Credential::Key(key),
                    _ => {
                        let reason = "`grant: client_credentials` needs either a `client_secret` or a \
                                   `private_key`";
                        return Err(reason.to_owned());
                    }
                };
                let reason = "`grant: client_credentials` needs a `client_id`";
                Ok(Grant::Program { id: self.client_id.ok_or(reason)?, proof })
            }
            GrantKind::CrossApp => {
                let reason = "`grant: cross_app` needs a `client_id` and an `identity`";
                let client =
                    Client { id: self.client_id.ok_or(reason)?, secret: self.client_secret };
                Ok(Grant::CrossApp { client, identity: Box::new(self.identity.ok_or(reason)?) })
            }
        }
    }

    fn reject_foreign_fields(&self, kind: GrantKind) -> Result<(), String> {
        let is_there = [
            (
                "private_key",
                self.private_key.is_some(),
                matches!(kind, GrantKind::ClientCredentials),
            ),
            ("identity", self.identity.is_some(), matches!(kind, GrantKind::CrossApp)),
            (
                "client_metadata",
                self.client_metadata.is_some(),
                matches!(kind, GrantKind::AuthorizationCode),
            ),
            (
                "callback_port",
                self.callback_port.is_some(),
                matches!(kind, GrantKind::AuthorizationCode),
            ),
        ];
        match is_there.into_iter().find(|(_, is_there, is_its_own)| *is_there && !is_its_own) {
            Some((field, ..)) => Err(format!("this `grant` has no `{field}`")),
            None => Ok(()),
        }
    }
}

fn check_document(settings: String) -> Result<String, String> {
    let url = Url::parse(&settings).ok();
    if url.is_some_and(|url| url.scheme() == "https" && url.path() != "/") {
        return Ok(settings);
    }
    Err(format!("`client_metadata` must be the https address of a document, not `{settings}`"))
}

/// Returns whether a text is a valid scope (RFC 6749, section 3.3).
pub(super) fn is_scope(text: &str) -> bool {
    let is_scope_byte = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    !text.is_empty() && text.bytes().all(is_scope_byte)
}

impl OAuth {
    pub(crate) fn texts(&self) -> Vec<&TextOrSecret> {
        match &self.grant {
            Grant::Person { client, .. } => {
                client.iter().filter_map(|client| client.secret.as_ref()).collect()
            }
            Grant::Program { proof: Credential::Secret(text) | Credential::Key(text), .. } => {
                vec![text]
            }
            Grant::CrossApp { client, identity } => {
                let texts = client.secret.iter().chain(&identity.client_secret);
                texts.chain([&identity.id_token]).collect()
            }
        }
    }

    pub(crate) fn texts_mut(&mut self) -> Vec<&mut TextOrSecret> {
        match &mut self.grant {
            Grant::Person { client, .. } => {
                client.iter_mut().filter_map(|client| client.secret.as_mut()).collect()
            }
            Grant::Program { proof: Credential::Secret(text) | Credential::Key(text), .. } => {
                vec![text]
            }
            Grant::CrossApp { client, identity } => {
                let texts = client.secret.iter_mut().chain(&mut identity.client_secret);
                texts.chain([&mut identity.id_token]).collect()
            }
        }
    }

    pub fn has_callback_port(&self) -> bool {
        matches!(self.grant, Grant::Person { port: Some(_), .. })
    }

    pub fn is_for_people(&self) -> bool {
        matches!(self.grant, Grant::Person { .. })
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_parsed_config(settings: Value, expected: Expect) {
        let read = serde_json::from_value::<OAuth>(settings);
        let summary = match read {
            Ok(oauth) => {
                let secrets: Vec<_> =
                    oauth.texts().into_iter().filter_map(TextOrSecret::secret).collect();
                format!("{:?} {:?} {secrets:?}", oauth.grant, oauth.scopes)
            }
            Err(err) => format!("✗ {err}"),
        };
        expected.assert_eq(&summary);
    }

    #[test]
    fn each_kind_of_grant_is_parsed() {
        check_parsed_config(
            json!("oauth"),
            expect!["Person { client: None, document: None, port: None } [] []"],
        );
        check_parsed_config(
            json!({ "client_id": "faber", "client_secret": { "secret": "S" }, "scopes": ["a:b"], "callback_port": 8123 }),
            expect![[
                r#"Person { client: Some(Client { id: "faber", secret: Some(Secret(SecretName { secret: "S", prefix: "" })) }), document: None, port: Some(8123) } ["a:b"] ["S"]"#
            ]],
        );
        check_parsed_config(
            json!({ "grant": "client_credentials", "client_id": "c", "private_key": { "secret": "K" } }),
            expect![[
                r#"Program { id: "c", proof: Key(Secret(SecretName { secret: "K", prefix: "" })) } [] ["K"]"#
            ]],
        );
        let identity = json!({ "issuer": "https://idp", "token_endpoint": "https://idp/token", "client_id": "i", "id_token": { "secret": "ID" } });
        check_parsed_config(
            json!({ "grant": "cross_app", "client_id": "c", "identity": identity }),
            expect![[
                r#"CrossApp { client: Client { id: "c", secret: None }, identity: Identity { issuer: "https://idp", token_endpoint: ServerUrl(Url { scheme: "https", cannot_be_a_base: false, username: "", password: None, host: Some(Domain("idp")), port: None, path: "/token", query: None, fragment: None }), client_id: "i", client_secret: None, id_token: Secret(SecretName { secret: "ID", prefix: "" }) } } [] ["ID"]"#
            ]],
        );
    }

    #[test]
    fn a_wrong_grant_is_explained() {
        check_parsed_config(
            json!("basic"),
            expect!["✗ `auth` must be `oauth` or a map, such as `{scopes: [read]}`"],
        );
        check_parsed_config(
            json!({ "client_secret": { "secret": "S" } }),
            expect!["✗ `client_secret` needs a `client_id`"],
        );
        check_parsed_config(
            json!({ "client_id": "c", "client_secret": "in plain sight" }),
            expect!["✗ a secret in `auth` must be named, as in `{secret: TOKEN}`"],
        );
        check_parsed_config(
            json!({ "scopes": ["a b"] }),
            expect!["✗ `a b` is not a valid OAuth scope"],
        );
        check_parsed_config(
            json!({ "grant": "password" }),
            expect![
                "✗ `grant`: unknown variant `password`, expected one of `authorization_code`, `client_credentials`, `cross_app`"
            ],
        );
        check_parsed_config(
            json!({ "grant": "client_credentials", "client_id": "c" }),
            expect![
                "✗ `grant: client_credentials` needs either a `client_secret` or a `private_key`"
            ],
        );
        check_parsed_config(
            json!({ "grant": "client_credentials", "callback_port": 1 }),
            expect!["✗ this `grant` has no `callback_port`"],
        );
        check_parsed_config(
            json!({ "grant": "cross_app", "client_id": "c" }),
            expect!["✗ `grant: cross_app` needs a `client_id` and an `identity`"],
        );
        check_parsed_config(
            json!({ "issuer": "example" }),
            expect!["✗ `issuer` must be the address of the authorization server, not `example`"],
        );
        check_parsed_config(
            json!({ "private_key": { "secret": "K" } }),
            expect!["✗ this `grant` has no `private_key`"],
        );
        check_parsed_config(
            json!({ "client_metadata": "http://example.com/client.json" }),
            expect![
                "✗ `client_metadata` must be the https address of a document, not `http://example.com/client.json`"
            ],
        );
        check_parsed_config(
            json!({ "clientId": "c" }),
            expect![
                "✗ `clientId`: unknown field `clientId`, expected one of `grant`, `issuer`, `client_id`, `client_secret`, `private_key`, `client_metadata`, `scopes`, `callback_port`, `identity`"
            ],
        );
    }
}
