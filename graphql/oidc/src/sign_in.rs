use std::{fmt, sync::Arc, time::Duration};

use engine::access::{Access, Grant};
use serde::{Deserialize, Serialize};
use shared::clock::Clock;

use crate::{
    claims::Claims,
    exchange_limit::ExchangeLimit,
    provider::Provider,
    rules::{Rule, find_rule},
    sealed::{NoRandomBytes, Purpose, Sealer},
    token_check::{CLOCK_SKEW_SECONDS, ExpectedClaims, UncheckedToken, has_token_form, read_time},
};

/// Beginning of the names of callers that an issuer identifies. Tokens of the configuration cannot
/// have such a name.
pub const NAME_PREFIX: &str = "oidc:";
/// Maximum number of characters of a caller's name at the issuer. Longer names would be cut in the
/// audit log, so that two callers could look like one.
const MAX_NAME_CHARS: usize = 120;

#[derive(Clone, Debug)]
pub struct Settings {
    /// The issuer, exactly as its tokens and its metadata name it.
    pub issuer: String,
    /// A token must name one of these audiences.
    pub audience: Vec<String>,
    /// Faber as a client of the issuer. `None` if the page has no sign-in.
    pub client: Option<ClientCredentials>,
    pub scopes: Vec<String>,
    /// The claim that names the caller in the audit log.
    pub name_claim: String,
    pub rules: Vec<Rule>,
    /// The origin under which browsers and MCP clients reach the server, without a slash at the end.
    /// `None` if the `Host` header of each request names it.
    pub public_url: Option<String>,
}

#[derive(Clone)]
pub struct ClientCredentials {
    pub id: String,
    /// `None` for a public client.
    pub secret: Option<String>,
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCredentials").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    #[error("the access token is not valid: {0}; sign in again, or get a new token of the issuer")]
    InvalidToken(String),
    #[error("the session has ended: sign in again")]
    SessionEnded,
    #[error(
        "`{name}` is signed in, but no rule matches its claims: add a rule to `server.oidc.rules`, \
         or change the claims at the issuer"
    )]
    NoRule { name: String },
    #[error("the issuer is not available: {0}; try again later")]
    Unavailable(String),
    #[error("too many users sign in at this moment: start the sign-in again in a few seconds")]
    Busy,
    #[error("the sign-in failed: {0}; start it again")]
    Failed(String),
}

impl From<NoRandomBytes> for SignInError {
    fn from(err: NoRandomBytes) -> Self {
        Self::Failed(err.to_string())
    }
}

#[derive(Clone, Debug)]
pub struct SignedIn {
    pub grant: Grant,
    /// Time until the token or the session expires. Connections end then.
    pub valid_for: Duration,
}

#[derive(Debug)]
pub struct SignIn {
    pub(crate) settings: Settings,
    pub(crate) provider: Arc<Provider>,
    pub(crate) sealer: Sealer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) exchanges: ExchangeLimit,
    access: Access,
}

/// The content of a session cookie. It has the claim that gave access, so that a change of the
/// rules also affects sessions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionContent {
    pub(crate) name: String,
    pub(crate) claim: String,
    pub(crate) value: String,
    pub(crate) expires_at: i64,
}

impl SignIn {
    /// Fails if the operating system gives no random bytes.
    pub fn new(settings: Settings, access: Access, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let secret = settings.client.as_ref().and_then(|client| client.secret.as_deref());
        let sealer = Sealer::new(secret, &settings.issuer).map_err(|err| err.to_string())?;
        let provider = Arc::new(Provider::new(settings.issuer.clone()));
        Ok(Self { settings, provider, sealer, clock, exchanges: ExchangeLimit::default(), access })
    }

    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    pub fn public_url(&self) -> Option<&str> {
        self.settings.public_url.as_deref()
    }

    pub fn has_client(&self) -> bool {
        self.settings.client.is_some()
    }

    /// Returns whether a bearer token has the form of an issuer's token. Others are tokens of the
    /// configuration.
    pub fn is_signed_token(&self, token: &str) -> bool {
        has_token_form(token)
    }

    pub async fn authenticate_token(&self, token: &str) -> Result<SignedIn, SignInError> {
        let claims = self.check_token(token, &self.settings.audience).await?;
        let name = self.read_name(&claims).map_err(SignInError::InvalidToken)?;
        let Some(index) = find_rule(&self.settings.rules, &claims) else {
            return Err(SignInError::NoRule { name });
        };
        let expires_at = read_time(&claims, "exp").map_err(SignInError::InvalidToken)?;
        let expires_at = expires_at.unwrap_or_default().saturating_add(CLOCK_SKEW_SECONDS);
        Ok(self.sign_in_as(&name, index, expires_at))
    }

    pub fn authenticate_session(&self, cookie: &str) -> Result<SignedIn, SignInError> {
        let text = self.sealer.open(Purpose::Session, cookie).ok_or(SignInError::SessionEnded)?;
        let session: SessionContent =
            serde_json::from_str(&text).map_err(|_| SignInError::SessionEnded)?;
        if session.expires_at <= self.now() {
            return Err(SignInError::SessionEnded);
        }
        let SessionContent { name, claim, value, expires_at } = session;
        let same = |rule: &Rule| rule.claim == claim && rule.value == value;
        match self.settings.rules.iter().position(same) {
            Some(index) => Ok(self.sign_in_as(&name, index, expires_at)),
            None => Err(SignInError::NoRule { name }),
        }
    }

    pub(crate) async fn check_token(
        &self,
        token: &str,
        audience: &[String],
    ) -> Result<Claims, SignInError> {
        let unchecked = UncheckedToken::parse(token).map_err(SignInError::InvalidToken)?;
        let key_id = unchecked.key_id.as_deref();
        let state = self.provider.state_with_key(key_id, unchecked.algorithm).await;
        let state = state.map_err(SignInError::Unavailable)?;
        let expected = ExpectedClaims { issuer: &self.settings.issuer, audience, now: self.now() };
        unchecked.check(&state.keys, &expected).map_err(SignInError::InvalidToken)
    }

    pub(crate) fn read_name(&self, claims: &Claims) -> Result<String, String> {
        let claim = &self.settings.name_claim;
        let name = claims.text(claim).ok_or_else(|| format!("it has no text `{claim}`"))?;
        let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
        if !is_plain || name.chars().count() > MAX_NAME_CHARS {
            return Err(format!("its `{claim}` is not a name of 1 to {MAX_NAME_CHARS} characters"));
        }
        Ok(name.to_owned())
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.now().timestamp()
    }

    fn sign_in_as(&self, name: &str, rule: usize, expires_at: i64) -> SignedIn {
        let rights = &self.settings.rules[rule].rights;
        let grant = self.access.grant_for_identity(&format!("{NAME_PREFIX}{name}"), rule, rights);
        let seconds = u64::try_from(expires_at.saturating_sub(self.now())).unwrap_or_default();
        SignedIn { grant, valid_for: Duration::from_secs(seconds) }
    }
}
