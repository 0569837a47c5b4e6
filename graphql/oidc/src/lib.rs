//! Sign-in through an OpenID provider. A signed access token or the cookie of a session leads to
//! claims, and the first rule that matches a claim gives the caller its rights.

mod claims;
mod code_flow;
mod exchange_limit;
mod key_set;
mod provider;
mod rules;
mod sealed;
mod sign_in;
mod token_check;

#[cfg(test)]
mod tests;

pub use code_flow::{FinishedSignIn, StartedSignIn};
pub use rules::Rule;
pub use sign_in::{ClientCredentials, NAME_PREFIX, Settings, SignIn, SignInError, SignedIn};

fn encode(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok()
}
