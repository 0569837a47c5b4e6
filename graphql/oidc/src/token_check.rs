use serde_json::{Map, Value};

use crate::{
    claims::Claims,
    decode,
    key_set::{Algorithm, KeySet},
};

/// Maximum size of a token. It is limited because everyone can send tokens.
const MAX_TOKEN_BYTES: usize = 16 << 10;
const MAX_SHOWN_CHARS: usize = 20;
/// Maximum difference between the clock of the provider and the clock of this machine, in seconds.
pub(crate) const CLOCK_SKEW_SECONDS: i64 = 60;

pub(crate) struct UncheckedToken<'a> {
    pub(crate) key_id: Option<String>,
    pub(crate) algorithm: Algorithm,
    message: &'a str,
    signature: Vec<u8>,
    payload: Vec<u8>,
}

/// The values that a valid token must have.
pub(crate) struct ExpectedClaims<'a> {
    pub(crate) issuer: &'a str,
    /// The token must name at least one of them.
    pub(crate) audience: &'a [String],
    pub(crate) now: i64,
}

/// Returns whether a text has the form of a signed token. Other texts can only be access tokens of
/// the configuration.
pub(crate) fn has_token_form(text: &str) -> bool {
    text.split('.').count() == 3 && text.split('.').next().and_then(read_object).is_some()
}

impl<'a> UncheckedToken<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(format!("it is larger than {MAX_TOKEN_BYTES} bytes"));
        }
        let malformed = || "it is not a signed token in the compact form".to_owned();
        let (message, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (header, payload) = message.split_once('.').ok_or_else(malformed)?;
        let header = read_object(header).ok_or_else(malformed)?;
        let payload = decode(payload).ok_or_else(malformed)?;
        let signature = decode(signature).ok_or_else(malformed)?;
        if header.contains_key("crit") {
            return Err("its header requires extensions that Faber does not know".to_owned());
        }
        let name = header.get("alg").and_then(Value::as_str).unwrap_or_default();
        let algorithm = Algorithm::parse(name).ok_or_else(|| {
            let shown: String = name.chars().take(MAX_SHOWN_CHARS).collect();
            format!("its algorithm `{}` is not RS256, PS256, ES256 or EdDSA", shown.escape_debug())
        })?;
        let key_id = header.get("kid").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { key_id, algorithm, message, signature, payload })
    }

    /// Checks the signature and then the claims. Returns the reason if the token is not valid.
    pub(crate) fn check(
        &self,
        keys: &KeySet,
        expected: &ExpectedClaims<'_>,
    ) -> Result<Claims, String> {
        let message = self.message.as_bytes();
        if !keys.verifies(self.key_id.as_deref(), self.algorithm, message, &self.signature) {
            return Err("its signature does not match a key of the issuer".to_owned());
        }
        let payload = serde_json::from_slice(&self.payload);
        let claims = Claims(payload.map_err(|_| "its payload is not a JSON object".to_owned())?);
        check_claims(&claims, expected)?;
        Ok(claims)
    }
}

fn read_object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&decode(part)?).ok()
}

fn check_claims(claims: &Claims, expected: &ExpectedClaims<'_>) -> Result<(), String> {
    if claims.0.get("iss").and_then(Value::as_str) != Some(expected.issuer) {
        return Err(format!("its issuer is not `{}`", expected.issuer));
    }
    let is_expected = |value: &Value| {
        value.as_str().is_some_and(|text| expected.audience.iter().any(|known| known == text))
    };
    let has_audience = match claims.0.get("aud") {
        Some(Value::Array(items)) => items.iter().any(is_expected),
        Some(value) => is_expected(value),
        None => false,
    };
    if !has_audience {
        return Err(format!("its audience is not `{}`", expected.audience.join("` or `")));
    }
    let expires_at = read_time(claims, "exp")?.ok_or("it has no time of expiry (`exp`)")?;
    if expected.now >= expires_at.saturating_add(CLOCK_SKEW_SECONDS) {
        return Err("it has expired".to_owned());
    }
    let valid_from = read_time(claims, "nbf")?;
    if valid_from.is_some_and(|from| from.saturating_sub(CLOCK_SKEW_SECONDS) > expected.now) {
        return Err("it is not valid yet".to_owned());
    }
    Ok(())
}

/// Reads a time in seconds since 1970. Drops fractions.
pub(crate) fn read_time(claims: &Claims, name: &str) -> Result<Option<i64>, String> {
    let wrong = || format!("its time `{name}` is not a number of seconds");
    match claims.0.get(name) {
        None => Ok(None),
        Some(Value::Number(number)) => {
            let text = number.to_string();
            let whole = text.split('.').next().unwrap_or_default();
            whole.parse().map(Some).map_err(|_| wrong())
        }
        Some(_) => Err(wrong()),
    }
}
