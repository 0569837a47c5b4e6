use axum::http::{HeaderMap, header};

/// Returns the bearer token. Ignores other schemes, because a proxy can use them.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    values.find_map(|value| split_scheme(value.to_str().ok()?))
}

fn split_scheme(text: &str) -> Option<&str> {
    let (scheme, token) = text.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Removes the scheme `Bearer`, because clients write the token in the payload with or without it.
pub(super) fn strip_scheme(text: &str) -> &str {
    split_scheme(text).unwrap_or(text.trim())
}
