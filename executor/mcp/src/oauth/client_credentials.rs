//! Tokens for programs and for employees of a company, and the signed assertions by which programs
//! authenticate (RFC 7523). No person logs in through Faber, and the tokens are not stored.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use http_client::{AddressScope, OutgoingRequest};
use oauth2::{ClientSecret, TokenResponse as _};
use reqwest::{
    Method,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use ring::{
    rand::{SecureRandom, SystemRandom},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use rmcp::transport::auth::{
    AuthorizationMetadata, ClientCredentialsConfig, OAuthTokenResponse,
    enterprise::{EmaAuthorizationServer, EmaClientAuthentication, EmaExchangeRequest},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use secrets::{Redaction, TextOrSecret, percent_encode};
use serde_json::{Value, json};

use super::{
    config::{Client, Credential, Identity},
    discovery::{AuthServer, Discovery},
    token_error::{TokenError, to_printable},
    token_store::AccessToken,
    unix_time,
    web::{AuthHttp, resource_url},
};

pub(super) struct TokenRequest<'a> {
    pub(super) discovery: Discovery<'a>,
    /// The scopes to request. Default: the scopes that the server names.
    pub(super) scopes: &'a [String],
}

impl TokenRequest<'_> {
    /// Finds the authorization server. If Faber is going to send a secret, the server's metadata
    /// must name its issuer, because Faber compares it with the configured issuer.
    async fn discover(
        &self,
        sends_secret: bool,
        redaction: &Redaction,
    ) -> Result<AuthServer, TokenError> {
        let auth_server = self.discovery.discover().await;
        let auth_server = auth_server
            .map_err(|err| TokenError::from_auth_error(&err, redaction).into_unknown_server())?;
        if sends_secret && auth_server.metadata.issuer.is_none() {
            let reason =
                "the server names no authorization server, so Faber does not send the secret";
            return Err(TokenError::UnknownServer(reason.to_owned()));
        }
        Ok(auth_server)
    }

    async fn select_scopes(&self, auth_server: &AuthServer) -> Vec<String> {
        match self.scopes {
            [] => auth_server.manager.select_initial_scopes(&[]).await,
            some => some.to_vec(),
        }
    }

    fn resource_text(&self) -> String {
        resource_url(self.discovery.server).to_string()
    }

    pub(super) async fn request_as_program(
        &self,
        id: &str,
        proof: &Credential,
        redaction: &mut Redaction,
    ) -> Result<AccessToken, TokenError> {
        let secret = match proof {
            Credential::Key(key) => return self.request_with_key(id, key, redaction).await,
            Credential::Secret(secret) => secret,
        };
        let mut auth_server = self.discover(true, redaction).await?;
        let client = ClientCredentialsConfig::ClientSecret {
            client_id: id.to_owned(),
            client_secret: resolve_secret(secret, redaction)?,
            scopes: self.select_scopes(&auth_server).await,
            resource: Some(self.resource_text()),
        };
        let manager = &mut auth_server.manager;
        let checked = manager.validate_client_credentials_metadata(&client);
        checked
            .and_then(|()| manager.configure_client_credentials(&client))
            .map_err(|err| TokenError::from_auth_error(&err, redaction))?;
        let granted = manager.exchange_client_credentials(&client).await;
        Ok(granted_token(&granted.map_err(|err| TokenError::from_auth_error(&err, redaction))?))
    }

    /// Requests a token with a signed assertion. Does not use rmcp's function, because it needs a
    /// second cryptographic library.
    async fn request_with_key(
        &self,
        id: &str,
        key: &TextOrSecret,
        redaction: &mut Redaction,
    ) -> Result<AccessToken, TokenError> {
        let auth_server = self.discover(false, redaction).await?;
        let metadata = &auth_server.metadata;
        let audience = metadata.issuer.as_deref().unwrap_or(&metadata.token_endpoint);
        let assertion = sign_assertion(&resolve_secret(key, redaction)?, id, audience, unix_time());
        let assertion = assertion.map_err(|err| TokenError::Refused(err.to_string()))?;
        redaction.add_secret("ASSERTION", &assertion);
        let (scope, resource) =
            (self.select_scopes(&auth_server).await.join(" "), self.resource_text());
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", &assertion),
            ("resource", &resource),
        ];
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        let answer =
            post_form(self.discovery.web, &metadata.token_endpoint, &fields, None, redaction)
                .await?;
        let granted = serde_json::from_slice::<OAuthTokenResponse>(&answer);
        let granted = granted.map_err(|_| {
            TokenError::Refused("the answer of the authorization server is not a token".to_owned())
        })?;
        Ok(granted_token(&granted))
    }

    /// Requests a token for a person who has logged in to a company's identity provider.
    pub(super) async fn request_as_employee(
        &self,
        client: &Client,
        identity: &Identity,
        redaction: &mut Redaction,
    ) -> Result<AccessToken, TokenError> {
        let auth_server = self.discover(true, redaction).await?;
        let (scopes, metadata) = (self.select_scopes(&auth_server).await, &auth_server.metadata);
        let id_token = resolve_secret(&identity.id_token, redaction)?;
        let endpoint = identity.token_endpoint.0.as_str();
        let idp = EmaAuthorizationServer::new(&identity.issuer, endpoint, &identity.client_id);
        let idp = match &identity.client_secret {
            None => idp,
            // Sends the secret in the `Authorization` header, because every server must support
            // that (RFC 6749, section 2.3.1).
            Some(secret) => {
                idp.with_client_authentication(EmaClientAuthentication::ClientSecretBasic(
                    resolve_client_secret(secret, redaction)?,
                ))
            }
        };
        let issuer = metadata.issuer.as_deref().unwrap_or_default();
        let server = EmaAuthorizationServer::new(issuer, &metadata.token_endpoint, &client.id);
        let server = match &client.secret {
            None => server,
            Some(secret) => server.with_client_authentication(if accepts_basic(metadata) {
                EmaClientAuthentication::ClientSecretBasic(resolve_client_secret(
                    secret, redaction,
                )?)
            } else {
                EmaClientAuthentication::ClientSecretPost(resolve_client_secret(secret, redaction)?)
            }),
        };
        let resource = self.resource_text();
        let request = EmaExchangeRequest::new_with_id_token(idp, server, &resource, &id_token);
        let web = &**self.discovery.web;
        let granted = request.with_scopes(scopes).exchange(web, web).await;
        let granted = granted
            .map_err(|err| TokenError::Refused(to_printable(&redaction.redact(err.to_string()))))?;
        let text = granted.access_token.secret();
        Ok(AccessToken::new(text, Some(unix_time()), granted.expires_in))
    }
}

fn resolve_client_secret(
    text: &TextOrSecret,
    redaction: &mut Redaction,
) -> Result<ClientSecret, TokenError> {
    resolve_secret(text, redaction).map(ClientSecret::new)
}

fn resolve_secret(text: &TextOrSecret, redaction: &mut Redaction) -> Result<String, TokenError> {
    text.resolve(redaction).map_err(|err| TokenError::Refused(err.to_string()))
}

fn granted_token(granted: &OAuthTokenResponse) -> AccessToken {
    AccessToken::new(granted.access_token().secret(), Some(unix_time()), granted.expires_in())
}

/// Returns whether a server gets a client's secret in the `Authorization` header, which is the
/// default (RFC 8414).
fn accepts_basic(metadata: &AuthorizationMetadata) -> bool {
    let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported");
    let methods = methods.and_then(Value::as_array);
    methods.is_none_or(|all| {
        let has = |name: &str| all.iter().any(|known| known == name);
        has("client_secret_basic") || !has("client_secret_post")
    })
}

/// Sends a form, and returns the body of the answer. A client with a secret sends the secret in the
/// `Authorization` header.
pub(super) async fn post_form(
    web: &AuthHttp,
    url: &str,
    fields: &[(&str, &str)],
    client: Option<(&str, &str)>,
    redaction: &Redaction,
) -> Result<Vec<u8>, TokenError> {
    let url = url.parse().map_err(|_| TokenError::Refused(format!("`{url}` is not a URL")))?;
    let mut headers = HeaderMap::new();
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, form);
    if let Some((id, secret)) = client {
        let pair = format!("{}:{}", percent_encode(id), percent_encode(secret));
        let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
        let mut value = value.map_err(|err| TokenError::Refused(err.to_string()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", percent_encode(value)));
    let body = fields.collect::<Vec<_>>().join("&").into_bytes();
    let request = OutgoingRequest {
        method: Method::POST,
        url,
        headers,
        body: Some(body),
        reach: AddressScope::Public,
    };
    let reply = web.send(request).await.map_err(|err| TokenError::from_http_error(&err))?;
    if reply.status.is_success() {
        return Ok(reply.body);
    }
    let (host, status) = (&reply.host, reply.status);
    let body = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
    let parts =
        ["error", "error_description"].map(|field| body[field].as_str().unwrap_or_default());
    let reason =
        format!("`{host}` answered {status}: {}", to_printable(&redaction.redact(parts.join(" "))));
    let reason = reason.trim_end_matches([' ', ':']).to_owned();
    Err(if status.is_server_error() {
        TokenError::Unreachable(reason)
    } else {
        TokenError::Refused(reason)
    })
}

/// Lifetime of an assertion in seconds. It is long enough for clocks that differ.
const ASSERTION_LIFETIME_SECONDS: u64 = 300;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignError {
    #[error(
        "the `private_key` of `auth` is not an RSA, P-256, P-384 or Ed25519 key in PEM (PKCS#8, \
         which `openssl pkcs8 -topk8 -nocrypt` writes)"
    )]
    Key,
    #[error("signing with the `private_key` of `auth` failed")]
    Sign,
}

enum SigningKey {
    Ecdsa(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    fn from_pem(pem: &str, random: &SystemRandom) -> Result<Self, SignError> {
        match PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| SignError::Key)? {
            PrivateKeyDer::Pkcs8(der) => Self::from_pkcs8(der.secret_pkcs8_der(), random),
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der())
                .map(Self::Rsa)
                .map_err(|_| SignError::Key),
            _ => Err(SignError::Key),
        }
    }

    fn from_pkcs8(der: &[u8], random: &SystemRandom) -> Result<Self, SignError> {
        for (kind, name) in [
            (&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256"),
            (&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384"),
        ] {
            if let Ok(key) = EcdsaKeyPair::from_pkcs8(kind, der, random) {
                return Ok(Self::Ecdsa(key, name));
            }
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self::Ed25519(key));
        }
        RsaKeyPair::from_pkcs8(der).map(Self::Rsa).map_err(|_| SignError::Key)
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ecdsa(_, name) => name,
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8], random: &SystemRandom) -> Result<Vec<u8>, SignError> {
        match self {
            Self::Ecdsa(key, _) => {
                let signed = key.sign(random, message).map_err(|_| SignError::Sign)?;
                Ok(signed.as_ref().to_vec())
            }
            Self::Ed25519(key) => Ok(key.sign(message).as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signed = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, random, message, &mut signed)
                    .map_err(|_| SignError::Sign)?;
                Ok(signed)
            }
        }
    }
}

/// Signs an assertion of a client's identity for one server. The assertion is valid for a short
/// time from `now`.
pub(super) fn sign_assertion(
    pem: &str,
    client: &str,
    audience: &str,
    now: u64,
) -> Result<String, SignError> {
    let random = SystemRandom::new();
    let key = SigningKey::from_pem(pem, &random)?;
    let mut id = [0_u8; 16];
    random.fill(&mut id).map_err(|_| SignError::Sign)?;
    let header = json!({ "alg": key.algorithm(), "typ": "JWT" });
    let claims = json!({
        "iss": client,
        "sub": client,
        "aud": audience,
        "iat": now,
        "exp": now.saturating_add(ASSERTION_LIFETIME_SECONDS),
        "jti": URL_SAFE_NO_PAD.encode(id),
    });
    let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let message = format!("{}.{}", part(&header), part(&claims));
    let signed = key.sign(message.as_bytes(), &random)?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signed)))
}

#[cfg(test)]
mod tests {
    use reqwest::Url;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, KeyPair, UnparsedPublicKey, VerificationAlgorithm,
    };
    use serde_json::json;

    use super::{
        super::tests::test_server::{ServerBehavior, TestServers},
        *,
    };

    fn program_auth() -> Value {
        let secret = json!({ "secret": "CARGO_PKG_NAME" });
        json!({ "grant": "client_credentials", "client_id": "robot", "client_secret": secret })
    }

    fn employee_auth(servers: &TestServers) -> Value {
        let secret = json!({ "secret": "CARGO_PKG_NAME" });
        let company = format!("{}/company", servers.base_url);
        let identity = json!({
            "issuer": "https://company", "token_endpoint": company, "client_id": "faber",
            "client_secret": secret, "id_token": { "secret": "CARGO_MANIFEST_DIR" },
        });
        json!({ "grant": "cross_app", "client_id": "robot", "client_secret": secret, "identity": identity })
    }

    fn received_posts(now: &ServerBehavior) -> Vec<&(String, String, String)> {
        now.requests.iter().filter(|(request_line, ..)| request_line.starts_with("POST")).collect()
    }

    #[tokio::test]
    async fn the_client_secret_goes_only_to_the_configured_issuer() {
        let (servers, other) = (TestServers::new().await, TestServers::new().await);
        let mut auth = program_auth();
        auth["issuer"] = servers.base_url.clone().into();
        servers.bearer(auth.clone()).current_token().await.unwrap().unwrap();
        assert_eq!(servers.count_requests("POST /token"), 1);
        servers.behavior().issuer = Some(other.base_url.clone());
        let bearer = servers.bearer(auth);
        // `current_token` finds no usable authorization server, so the request goes out without a
        // token. After the server refuses it, `replace_token` finds the same wrong issuer.
        assert_eq!(bearer.current_token().await, Ok(None));
        let denied = bearer.replace_token(None, &servers.post(None).await).await.unwrap_err();
        let expected = format!(
            "no token for `s`: authorization server issuer mismatch: expected {}, received {}",
            servers.base_url, other.base_url,
        );
        assert_eq!(denied.into_text(), expected);
        assert!(received_posts(&other.behavior()).is_empty());
    }

    #[tokio::test]
    async fn a_server_without_an_issuer_gets_no_client_secret() {
        for kind in [|_: &TestServers| program_auth(), employee_auth] {
            let servers = TestServers::new().await;
            servers.behavior().has_no_metadata = true;
            let bearer = servers.bearer(kind(&servers));
            assert_eq!(bearer.current_token().await, Ok(None));
            let denied = bearer
                .replace_token(None, &servers.post(None).await)
                .await
                .unwrap_err()
                .into_text();
            assert!(denied.contains("the server names no authorization server"), "{denied}");
            let now = servers.behavior();
            assert!(
                received_posts(&now).iter().all(|(what, ..)| what == "POST /mcp"),
                "{:?}",
                now.requests
            );
        }
    }

    #[tokio::test]
    async fn the_client_secret_is_sent_with_the_supported_method() {
        let servers = TestServers::new().await;
        servers.behavior().more =
            json!({ "token_endpoint_auth_methods_supported": ["client_secret_post"] });
        servers.bearer(employee_auth(&servers)).current_token().await.unwrap().unwrap();
        let now = servers.behavior();
        let all: Vec<_> = received_posts(&now)
            .into_iter()
            .map(|(request_line, who, body)| {
                (
                    request_line.as_str(),
                    who.starts_with("Basic "),
                    body.contains("client_secret=mcp"),
                )
            })
            .collect();
        assert_eq!(all, [("POST /company", true, false), ("POST /token", false, true)]);
    }

    #[tokio::test]
    async fn the_query_of_the_server_url_is_not_sent_to_others() {
        let servers = TestServers::new().await;
        let server: Url = format!("{}?key=sesame", servers.url()).parse().unwrap();
        for auth in [program_auth(), employee_auth(&servers)] {
            servers.bearer_for(&server, auth).current_token().await.unwrap().unwrap();
        }
        let now = servers.behavior();
        for (request_line, _, body) in &now.requests {
            let is_server = request_line.ends_with(" /mcp?key=sesame");
            assert!(
                is_server || !format!("{request_line} {body}").contains("sesame"),
                "{request_line} {body}"
            );
        }
        assert!(now.requests.iter().any(|(what, ..)| what == "GET /mcp?key=sesame"));
        assert!(
            now.requests
                .iter()
                .any(|(.., body)| body.contains("%2Fmcp&") || body.ends_with("%2Fmcp"))
        );
    }

    #[tokio::test]
    async fn posted_secrets_are_redacted_in_errors() {
        let servers = TestServers::new().await;
        let mut redaction = Redaction::default();
        redaction.add_secret("CLIENT_SECRET", "sesame-open");
        let token = format!("{}/token", servers.base_url);
        let web = AuthHttp::new(servers.url());
        for before in 0..60 {
            let fields = [
                ("grant_type", "refresh_token"),
                ("x", &"x".repeat(500 - 100 + before)),
                ("secret", "sesame-open"),
            ];
            let reason =
                post_form(&web, &token, &fields, None, &redaction).await.unwrap_err().into_text();
            assert!(reason.contains("invalid_client") && !reason.contains("sesame"), "{reason}");
        }
    }

    fn pem(der: &[u8]) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
    }

    fn check_signature(
        assertion: &str,
        algorithm: &str,
        verify: &'static dyn VerificationAlgorithm,
        key: &[u8],
    ) {
        let parts: Vec<&str> = assertion.split('.').collect();
        let read = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let json = |part: &str| serde_json::from_slice::<Value>(&read(part)).unwrap();
        assert_eq!(json(parts[0]), json!({ "alg": algorithm, "typ": "JWT" }));
        let claims = json(parts[1]);
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("me"), &json!("me")));
        assert_eq!((&claims["aud"], &claims["exp"]), (&json!("https://as"), &json!(1_300)));
        assert_eq!(claims["jti"].as_str().unwrap().len(), 22);
        let message = format!("{}.{}", parts[0], parts[1]);
        UnparsedPublicKey::new(verify, key).verify(message.as_bytes(), &read(parts[2])).unwrap();
    }

    #[test]
    fn a_signed_assertion_is_verified_by_its_public_key() {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random);
        let assertion = sign_assertion(&pem(der.as_ref()), "me", "https://as", 1_000).unwrap();
        check_signature(
            &assertion,
            "ES256",
            &ECDSA_P256_SHA256_FIXED,
            key.unwrap().public_key().as_ref(),
        );

        let der = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap();
        let assertion = sign_assertion(&pem(der.as_ref()), "me", "https://as", 1_000).unwrap();
        check_signature(&assertion, "EdDSA", &ED25519, key.public_key().as_ref());
        let again = sign_assertion(&pem(der.as_ref()), "me", "https://as", 1_000).unwrap();
        assert_ne!(assertion, again, "no copy can be used twice");
    }

    #[test]
    fn an_invalid_key_is_not_quoted_in_the_error() {
        for written in [
            "",
            "the key",
            &pem(b"no key"),
            "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----",
        ] {
            let err = sign_assertion(written, "me", "a", 0).unwrap_err();
            assert_eq!(err, SignError::Key);
            assert!(!err.to_string().contains("the key"));
        }
    }
}
