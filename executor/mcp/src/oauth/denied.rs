//! Errors of token requests, with messages for the user.

use http_client::Broken;
use rmcp::transport::auth::AuthError;
use secrets::Redaction;

pub(super) const MAX_CHARACTERS: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// A person has to log in, or to correct the configuration.
    Refused(String),
    /// No authorization server was found. A challenge of the MCP server may still name one.
    Unfound(String),
    /// The authorization server cannot be reached now.
    Unreachable(String),
}

impl Denied {
    pub(super) fn from_auth_error(err: &AuthError, seen: &Redaction) -> Self {
        let text = describe_auth_error(err, seen);
        match err {
            AuthError::DiscoveryRequestFailed { .. } | AuthError::HttpError(_) => {
                Self::Unreachable(text)
            }
            _ => Self::Refused(text),
        }
    }

    pub(super) fn from_broken(err: &Broken) -> Self {
        let text = err.to_string();
        match err {
            Broken::Unsent(_) | Broken::Later(_) | Broken::Lost(_) => Self::Unreachable(text),
            Broken::Refused(_) | Broken::Denied(_) => Self::Refused(text),
        }
    }

    /// Prefers the recorded error of the connection, which knows whether the failure is temporary.
    pub(super) fn or_cause(self, trouble: Option<Self>) -> Self {
        match (self, trouble) {
            (own, None) => own,
            (Self::Unfound(_), Some(Self::Refused(text))) => Self::Unfound(text),
            (_, Some(trouble)) => trouble,
        }
    }

    pub(super) fn into_unfound(self) -> Self {
        match self {
            Self::Refused(text) => Self::Unfound(text),
            other => other,
        }
    }

    pub(super) fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Refused(text) => Self::Refused(change(text)),
            Self::Unfound(text) => Self::Unfound(change(text)),
            Self::Unreachable(text) => Self::Unreachable(change(text)),
        }
    }

    pub(super) fn into_text(self) -> String {
        let (Self::Refused(text) | Self::Unfound(text) | Self::Unreachable(text)) = self;
        text
    }
}

impl From<Denied> for Broken {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Refused(text) | Denied::Unfound(text) => Self::Denied(text),
            Denied::Unreachable(text) => Self::Later(text),
        }
    }
}

/// Removes control characters from a server's text, and shortens it.
pub(super) fn to_printable(text: &str) -> String {
    let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.take(MAX_CHARACTERS).collect::<String>().trim().to_owned()
}

/// Describes an error for the user. Removes secrets before it shortens the text, because a part of
/// a secret would not be recognized.
pub(super) fn describe_auth_error(err: &AuthError, seen: &Redaction) -> String {
    to_printable(&seen.clean(auth_error_sentence(err)))
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
        AuthError::RegistrationFailed(why) => format!(
            "the authorization server does not register clients ({why}): ask for a `client_id` and \
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
