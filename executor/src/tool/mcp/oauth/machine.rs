//! Tokens that are granted to programs: nobody logs in, and nothing is kept.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use oauth2::{ClientSecret, TokenResponse as _};
use reqwest::{
    Method, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig, OAuthTokenResponse,
    enterprise::{EmaAuthorizationServer, EmaClientAuthentication, EmaExchangeRequest},
};
use serde_json::Value;

use super::{
    assertion,
    bearer::Denied,
    config::{Client, Identity, Proof},
    discovery::{discover, shown},
    kept::Token,
    now,
    web::Web,
};
use crate::{
    secret::{Redaction, Text, url_encoded},
    tool::http::client::{Outgoing, Reach},
};

/// For which server a token is wanted.
pub(super) struct Wish<'a> {
    pub(super) web: &'a Arc<Web>,
    pub(super) server: &'a Url,
    /// What the server said when it refused us.
    pub(super) challenge: Option<&'a str>,
    /// What is asked for. Without a word, what the server says it needs.
    pub(super) scopes: &'a [String],
}

/// Who grants tokens for a server.
struct Granting {
    manager: AuthorizationManager,
    metadata: AuthorizationMetadata,
    scopes: Vec<String>,
}

impl Wish<'_> {
    async fn granting(&self) -> Result<Granting, Denied> {
        let client = Arc::clone(self.web);
        let manager =
            AuthorizationManager::new_with_oauth_http_client(self.server.clone(), client).await;
        let mut manager = manager.map_err(|err| Denied::of(&err))?;
        let metadata = discover(&mut manager, self.web, self.server, self.challenge).await;
        let metadata = metadata.map_err(|err| Denied::of(&err))?;
        let scopes = match self.scopes {
            [] => manager.select_initial_scopes(&[]).await,
            some => some.to_vec(),
        };
        Ok(Granting { manager, metadata, scopes })
    }

    /// Asks for a token as a program that has an account.
    pub(super) async fn as_program(
        &self,
        id: &str,
        proof: &Proof,
        seen: &mut Redaction,
    ) -> Result<Token, Denied> {
        let mut granting = self.granting().await?;
        let secret = match proof {
            Proof::Key(key) => {
                let key = resolve(key, seen)?;
                return self.by_key(&granting, id, &key).await;
            }
            Proof::Secret(secret) => resolve(secret, seen)?,
        };
        let client = ClientCredentialsConfig::ClientSecret {
            client_id: id.to_owned(),
            client_secret: secret,
            scopes: granting.scopes,
            resource: Some(self.server.to_string()),
        };
        let manager = &mut granting.manager;
        let checked = manager.validate_client_credentials_metadata(&client);
        checked
            .and_then(|()| manager.configure_client_credentials(&client))
            .map_err(|err| Denied::of(&err))?;
        let granted = manager.exchange_client_credentials(&client).await;
        Ok(token(&granted.map_err(|err| Denied::of(&err))?))
    }

    /// Asks with a signed assertion. (rmcp's way brings a second cryptographic library.)
    async fn by_key(&self, granting: &Granting, id: &str, pem: &str) -> Result<Token, Denied> {
        let Granting { metadata, scopes, .. } = granting;
        let audience = metadata.issuer.as_deref().unwrap_or(&metadata.token_endpoint);
        let assertion = assertion::sign(pem, id, audience, now());
        let assertion = assertion.map_err(|err| Denied::Refused(err.to_string()))?;
        let scope = scopes.join(" ");
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", &assertion),
            ("resource", self.server.as_str()),
        ];
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        let answer = post(self.web, &metadata.token_endpoint, &fields, None).await?;
        let granted = serde_json::from_slice::<OAuthTokenResponse>(&answer);
        let granted = granted.map_err(|_| {
            Denied::Refused("the authorization server's answer is no token".to_owned())
        })?;
        Ok(token(&granted))
    }

    /// Asks for somebody who has logged in to a company's identity provider.
    pub(super) async fn as_employee(
        &self,
        client: &Client,
        identity: &Identity,
        seen: &mut Redaction,
    ) -> Result<Token, Denied> {
        let Granting { metadata, scopes, .. } = self.granting().await?;
        let id_token = resolve(&identity.id_token, seen)?;
        let mut known = |issuer: &str, endpoint: &str, id: &str, secret: Option<&Text>| {
            let server = EmaAuthorizationServer::new(issuer, endpoint, id);
            Ok::<_, Denied>(match secret {
                None => server,
                Some(secret) => {
                    let secret = ClientSecret::new(resolve(secret, seen)?);
                    let is_basic = prefers_basic(&metadata);
                    server.with_client_authentication(if is_basic {
                        EmaClientAuthentication::ClientSecretBasic(secret)
                    } else {
                        EmaClientAuthentication::ClientSecretPost(secret)
                    })
                }
            })
        };
        let endpoint = identity.token_endpoint.0.as_str();
        let secret = identity.client_secret.as_ref();
        let idp = known(&identity.issuer, endpoint, &identity.client_id, secret)?;
        let issuer = metadata.issuer.as_deref().unwrap_or_default();
        let own = known(issuer, &metadata.token_endpoint, &client.id, client.secret.as_ref())?;
        let resource = self.server.as_str();
        let request = EmaExchangeRequest::new_with_id_token(idp, own, resource, &id_token);
        let granted = request.with_scopes(scopes).exchange(&**self.web, &**self.web).await;
        let granted = granted.map_err(|err| Denied::Refused(err.to_string()))?;
        let text = granted.access_token.secret();
        Ok(Token::new(text, Some(now()), granted.expires_in))
    }
}

fn resolve(text: &Text, seen: &mut Redaction) -> Result<String, Denied> {
    text.resolve(seen).map_err(|err| Denied::Refused(err.to_string()))
}

fn token(granted: &OAuthTokenResponse) -> Token {
    Token::new(granted.access_token().secret(), Some(now()), granted.expires_in())
}

/// By RFC 8414 a server that does not say takes secrets in the header.
fn prefers_basic(metadata: &AuthorizationMetadata) -> bool {
    let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported");
    let methods = methods.and_then(Value::as_array);
    methods.is_none_or(|all| {
        let has = |name: &str| all.iter().any(|it| it == name);
        has("client_secret_basic") || !has("client_secret_post")
    })
}

/// Sends a form and returns the answer to it; a client that has a secret says so in the header.
pub(super) async fn post(
    web: &Web,
    url: &str,
    fields: &[(&str, &str)],
    client: Option<(&str, &str)>,
) -> Result<Vec<u8>, Denied> {
    let url = url.parse().map_err(|_| Denied::Refused(format!("`{url}` is no URL")))?;
    let mut headers = HeaderMap::new();
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, form);
    if let Some((id, secret)) = client {
        let pair = format!("{}:{}", url_encoded(id), url_encoded(secret));
        let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
        let mut value = value.map_err(|err| Denied::Refused(err.to_string()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", url_encoded(value)));
    let body = fields.collect::<Vec<_>>().join("&").into_bytes();
    let asked =
        Outgoing { method: Method::POST, url, headers, body: Some(body), reach: Reach::Public };
    let reply = web.ask(asked).await.map_err(|err| Denied::Unreachable(err.to_string()))?;
    if reply.status.is_success() {
        return Ok(reply.body);
    }
    let (host, status) = (&reply.host, reply.status);
    let said = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
    let said = ["error", "error_description"].map(|it| said[it].as_str().unwrap_or_default());
    let why = format!("`{host}` answered {status}: {}", shown(&said.join(" ")));
    let why = why.trim_end_matches([' ', ':']).to_owned();
    Err(if status.is_server_error() { Denied::Unreachable(why) } else { Denied::Refused(why) })
}
