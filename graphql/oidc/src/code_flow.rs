//! The sign-in on the page: the authorization code flow of OpenID Connect with PKCE (RFC 7636). The
//! browser keeps the state in a sealed cookie, so that a client that starts many sign-ins cannot
//! fill the memory.

use std::collections::BTreeMap;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::{
    claims::Claims,
    encode,
    provider::Metadata,
    rules::find_rule,
    sealed::{MAX_SEALED_BYTES, Purpose},
    sign_in::{ClientCredentials, SessionContent, SignIn, SignInError},
};

/// Time for the sign-in at the issuer, in seconds.
const LOGIN_SECONDS: i64 = 10 * 60;
/// Duration of a session, in seconds. The user signs in again afterwards, so that a change at the
/// issuer takes effect.
const SESSION_SECONDS: i64 = 8 * 60 * 60;
const MAX_RETURN_PATH_BYTES: usize = 1_000;
const MAX_SHOWN_CHARS: usize = 200;

/// A started sign-in. The browser goes to `url` and keeps `cookie` until it comes back.
#[derive(Clone, Debug)]
pub struct StartedSignIn {
    pub url: String,
    pub cookie: String,
    /// The lifetime of the cookie in seconds.
    pub max_age: i64,
}

#[derive(Clone, Debug)]
pub struct FinishedSignIn {
    pub cookie: String,
    /// The lifetime of the cookie in seconds.
    pub max_age: i64,
    pub return_to: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct LoginContent {
    state: String,
    nonce: String,
    verifier: String,
    return_to: String,
    expires_at: i64,
}

impl SignIn {
    /// Starts a sign-in. `return_to` is the path of the page that the user wants to see.
    pub async fn start(
        &self,
        redirect_url: &str,
        return_to: &str,
    ) -> Result<StartedSignIn, SignInError> {
        let client = self.client()?;
        let state = self.provider.state().await.map_err(SignInError::Unavailable)?;
        let endpoint = state.metadata.authorization_endpoint.clone();
        let mut url = endpoint.ok_or_else(|| missing_endpoint("authorization_endpoint"))?;
        let login = LoginContent {
            state: self.sealer.random_text()?,
            nonce: self.sealer.random_text()?,
            verifier: self.sealer.random_text()?,
            return_to: check_return_path(return_to).to_owned(),
            expires_at: self.now().saturating_add(LOGIN_SECONDS),
        };
        let challenge = encode(&Sha256::digest(login.verifier.as_bytes()));
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", redirect_url),
            ("scope", &self.settings.scopes.join(" ")),
            ("state", &login.state),
            ("nonce", &login.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let content = serde_json::to_string(&login).map_err(|err| failed(err.to_string()))?;
        let cookie = self.sealer.seal(Purpose::Login, &content)?;
        Ok(StartedSignIn { url: url.into(), cookie, max_age: LOGIN_SECONDS })
    }

    pub async fn finish(
        &self,
        redirect_url: &str,
        answer: &BTreeMap<String, String>,
        cookie: Option<&str>,
    ) -> Result<FinishedSignIn, SignInError> {
        let client = self.client()?;
        let login = self.open_login(answer, cookie)?;
        let code = answer.get("code").ok_or_else(|| failed("the issuer sent no code"))?;
        if !self.exchanges.count_exchange(Instant::now()) {
            return Err(SignInError::Busy);
        }
        let state = self.provider.state().await.map_err(SignInError::Unavailable)?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_url),
            ("code_verifier", &login.verifier),
        ];
        let tokens = self.fetch_tokens(client, &state.metadata, &form).await?;
        let id_token = tokens.get("id_token").and_then(Value::as_str);
        let id_token = id_token.ok_or_else(|| failed("the issuer sent no ID token"))?;
        let audience = [client.id.clone()];
        let mut claims = self.check_token(id_token, &audience).await.map_err(|err| match err {
            SignInError::InvalidToken(reason) => failed(format!("the ID token: {reason}")),
            other => other,
        })?;
        if claims.text("nonce") != Some(&login.nonce) {
            return Err(failed("the ID token belongs to another sign-in"));
        }
        if claims.text("azp").is_some_and(|party| party != client.id) {
            return Err(failed("the ID token belongs to another client"));
        }
        let has_name = claims.find(&self.settings.name_claim).is_some();
        if !has_name || find_rule(&self.settings.rules, &claims).is_none() {
            self.add_user_claims(&mut claims, &state.metadata, &tokens).await?;
        }
        self.make_session(&claims, login.return_to)
    }

    fn client(&self) -> Result<&ClientCredentials, SignInError> {
        let client = self.settings.client.as_ref();
        client.ok_or_else(|| failed("`server.oidc.client_id` is not set"))
    }

    fn open_login(
        &self,
        answer: &BTreeMap<String, String>,
        cookie: Option<&str>,
    ) -> Result<LoginContent, SignInError> {
        let content = cookie.and_then(|cookie| self.sealer.open(Purpose::Login, cookie));
        let login = content.and_then(|content| serde_json::from_str::<LoginContent>(&content).ok());
        let login = login.ok_or_else(|| failed("this browser has not started it"))?;
        if login.expires_at <= self.now() {
            return Err(failed("it took longer than 10 minutes"));
        }
        if answer.get("state") != Some(&login.state) {
            return Err(failed("the answer belongs to another sign-in"));
        }
        if answer.get("iss").is_some_and(|issuer| *issuer != self.settings.issuer) {
            return Err(failed("the answer comes from another issuer"));
        }
        match answer.get("error") {
            Some(code) => Err(failed(describe_error(code, answer.get("error_description")))),
            None => Ok(login),
        }
    }

    async fn fetch_tokens(
        &self,
        client: &ClientCredentials,
        metadata: &Metadata,
        form: &[(&str, &str)],
    ) -> Result<Value, SignInError> {
        let endpoint = metadata.token_endpoint.as_ref();
        let endpoint = endpoint.ok_or_else(|| missing_endpoint("token_endpoint"))?;
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let has_method = |name: &str| methods.iter().any(|method| method == name);
        let takes_basic = has_method("client_secret_basic") || !has_method("client_secret_post");
        let mut form = form.to_vec();
        let mut authorization = None;
        match &client.secret {
            Some(secret) if takes_basic => authorization = Some(encode_basic(&client.id, secret)),
            Some(secret) => form.extend([("client_id", &*client.id), ("client_secret", secret)]),
            None => form.push(("client_id", &client.id)),
        }
        let sending =
            self.provider.post_form(endpoint, encode_form(&form), authorization.as_deref());
        let (status, answer) = sending.await.map_err(SignInError::Unavailable)?;
        if status == 200 {
            return Ok(answer);
        }
        let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        let code = text("error").unwrap_or_else(|| format!("status {status}"));
        Err(failed(describe_error(&code, text("error_description").as_ref())))
    }

    /// Adds the claims of the userinfo endpoint, because many issuers do not put groups into the ID
    /// token.
    async fn add_user_claims(
        &self,
        claims: &mut Claims,
        metadata: &Metadata,
        tokens: &Value,
    ) -> Result<(), SignInError> {
        let access_token = tokens.get("access_token").and_then(Value::as_str);
        let (Some(url), Some(access_token)) = (&metadata.userinfo_endpoint, access_token) else {
            return Ok(());
        };
        let user = self.provider.fetch_user(url, access_token).await;
        let Value::Object(user) = user.map_err(SignInError::Unavailable)? else { return Ok(()) };
        if user.get("sub") != claims.0.get("sub") {
            return Err(failed("the issuer sent the claims of another user"));
        }
        for (name, value) in user {
            claims.0.entry(name).or_insert(value);
        }
        Ok(())
    }

    fn make_session(
        &self,
        claims: &Claims,
        return_to: String,
    ) -> Result<FinishedSignIn, SignInError> {
        let name =
            self.read_name(claims).map_err(|reason| failed(format!("the ID token: {reason}")))?;
        let Some(index) = find_rule(&self.settings.rules, claims) else {
            return Err(SignInError::NoRule { name });
        };
        let rule = &self.settings.rules[index];
        let session = SessionContent {
            name,
            claim: rule.claim.clone(),
            value: rule.value.clone(),
            expires_at: self.now().saturating_add(SESSION_SECONDS),
        };
        let content = serde_json::to_string(&session).map_err(|err| failed(err.to_string()))?;
        let cookie = self.sealer.seal(Purpose::Session, &content)?;
        if cookie.len() > MAX_SEALED_BYTES {
            return Err(failed("the claim of the matching rule is too long for a cookie"));
        }
        Ok(FinishedSignIn { cookie, max_age: SESSION_SECONDS, return_to })
    }
}

fn failed(reason: impl Into<String>) -> SignInError {
    SignInError::Failed(reason.into())
}

fn missing_endpoint(name: &str) -> SignInError {
    failed(format!("the issuer has no `{name}`"))
}

/// Describes an error of the issuer. Other sites can choose the text, so it is short and escaped.
fn describe_error(code: &str, description: Option<&String>) -> String {
    let shown = |text: &str| -> String {
        text.chars().filter(|char| !char.is_control()).take(MAX_SHOWN_CHARS).collect()
    };
    match description {
        Some(text) => format!("the issuer answered `{}`: {}", shown(code), shown(text)),
        None => format!("the issuer answered `{}`", shown(code)),
    }
}

/// Returns the path if it is a path of this server, and otherwise the root. A text such as
/// `//evil.example` would lead to another server.
fn check_return_path(path: &str) -> &str {
    let is_local = path.starts_with('/')
        && !path.starts_with("//")
        && path.len() <= MAX_RETURN_PATH_BYTES
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_local { path } else { "/" }
}

fn encode_form(pairs: &[(&str, &str)]) -> String {
    // Encodes the pairs as the query of a URL, which has the same form.
    let Ok(mut url) = Url::parse("form:") else { return String::new() };
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

fn encode_basic(id: &str, secret: &str) -> String {
    use base64::Engine as _;
    let encode_part = |text: &str| {
        let form = encode_form(&[("", text)]);
        form.strip_prefix('=').unwrap_or(&form).to_owned()
    };
    let pair = format!("{}:{}", encode_part(id), encode_part(secret));
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_returns_only_to_paths_of_this_server() {
        for path in ["/", "/executions/exec_1?tab=log", "/faber/tools#a"] {
            assert_eq!(check_return_path(path), path);
        }
        for path in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb", "x"]
        {
            assert_eq!(check_return_path(path), "/", "{path}");
        }
    }

    #[test]
    fn the_id_and_the_secret_are_encoded_separately() {
        assert_eq!(
            encode_basic("a:b", "c d"),
            format!("Basic {}", {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.encode("a%3Ab:c+d")
            })
        );
    }
}
