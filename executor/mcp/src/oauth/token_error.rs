use http_client::HttpError;
use rmcp::transport::auth::AuthError;
use secrets::Redaction;

pub(super) const MAX_ERROR_CHARACTERS: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// A person has to log in, or to correct the configuration.
    Refused(String),
    /// No authorization server was found. A challenge of the MCP server may still name one.
    UnknownServer(String),
    /// The authorization server cannot be reached now.
    Unreachable(String),
}

impl TokenError {
    pub(super) fn from_auth_error(err: &AuthError, redaction: &Redaction) -> Self {
        let text = describe_auth_error(err, redaction);
        match err {
            AuthError::DiscoveryRequestFailed { .. } | AuthError::HttpError(_) => {
                Self::Unreachable(text)
            }
            _ => Self::Refused(text),
        }
    }

    pub(super) fn from_http_error(err: &HttpError) -> Self {
        let text = err.to_string();
        match err {
            HttpError::Unsent(_) | HttpError::Later(_) | HttpError::Lost(_) => {
                Self::Unreachable(text)
            }
            HttpError::Refused(_) | HttpError::Denied(_) => Self::Refused(text),
        }
    }

    /// Prefers the recorded error of the connection, because it shows whether the failure is
    /// temporary. If that error is a refusal, an unknown server stays unknown and gets its text.
    pub(super) fn or_recorded_error(self, last_error: Option<Self>) -> Self {
        match (self, last_error) {
            (error, None) => error,
            (Self::UnknownServer(_), Some(Self::Refused(text))) => Self::UnknownServer(text),
            (_, Some(last_error)) => last_error,
        }
    }

    pub(super) fn into_unknown_server(self) -> Self {
        match self {
            Self::Refused(text) => Self::UnknownServer(text),
            other => other,
        }
    }

    pub(super) fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Refused(text) => Self::Refused(change(text)),
            Self::UnknownServer(text) => Self::UnknownServer(change(text)),
            Self::Unreachable(text) => Self::Unreachable(change(text)),
        }
    }

    pub(super) fn into_text(self) -> String {
        let (Self::Refused(text) | Self::UnknownServer(text) | Self::Unreachable(text)) = self;
        text
    }
}

impl From<TokenError> for HttpError {
    fn from(denied: TokenError) -> Self {
        match denied {
            TokenError::Refused(text) | TokenError::UnknownServer(text) => Self::Denied(text),
            TokenError::Unreachable(text) => Self::Later(text),
        }
    }
}

/// Removes control characters from a server's text, and shortens it.
pub(super) fn to_printable(text: &str) -> String {
    let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.take(MAX_ERROR_CHARACTERS).collect::<String>().trim().to_owned()
}

/// Describes an error for the user. Removes secrets before it shortens the text, because a part of
/// a secret would not be recognized.
pub(super) fn describe_auth_error(err: &AuthError, redaction: &Redaction) -> String {
    to_printable(&redaction.redact(auth_error_sentence(err)))
}

fn auth_error_sentence(err: &AuthError) -> String {
    match err {
        AuthError::DiscoveryRequestFailed { source, .. } => source.to_string(),
        AuthError::HttpError(_) | AuthError::InternalError(_) => {
            "the authorization server cannot be used".to_owned()
        }
        AuthError::PkceUnsupported => {
            "the authorization server does not support PKCE with S256, which a safe login needs"
                .to_owned()
        }
        AuthError::RegistrationFailed(reason) => format!(
            "the authorization server does not register clients ({reason}): ask for a `client_id` and \
             write it into `auth`"
        ),
        other => {
            let text = other.to_string();
            let mut letters = text.chars();
            let first = letters.next().map(|letter| letter.to_lowercase().to_string());
            first.unwrap_or_default() + letters.as_str()
        }
    }
}
