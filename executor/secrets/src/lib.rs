//! Reads secrets from the environment, and removes them from texts.
//!
//! The configuration contains names of secrets only: `{secret: GITHUB_TOKEN}`. A call reads the
//! environment, and drops the value when it ends. `Debug` does not show values. Outputs and errors
//! contain `***GITHUB_TOKEN***` instead.

mod encoded_secret;

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Map, Number, Value};
use shared::tool::{ErrorCode, ToolError};

use self::encoded_secret::EncodedSecret;

/// The shortest secret that is redacted. A shorter secret would match everywhere.
const MIN_SECRET_BYTES: usize = 4;
/// The shortest redacted part of a secret: a line, or a part of its base 64.
const MIN_PART_BYTES: usize = 12;

/// A text or the name of a secret, in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum TextOrSecret {
    Plain(String),
    /// The value of an environment variable.
    Secret(SecretName),
}

/// The name of a secret and a prefix: `{secret: TOKEN, prefix: "Bearer "}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretName {
    secret: String,
    #[serde(default)]
    prefix: String,
}

/// The environment variable of a secret is not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret `{0}` is not set: set it in Faber's environment")]
pub struct MissingSecret(pub String);

impl From<MissingSecret> for ToolError {
    fn from(err: MissingSecret) -> Self {
        Self::new(ErrorCode::UNAVAILABLE, err.to_string()).without_retry()
    }
}

impl TryFrom<Value> for TextOrSecret {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Ok(Self::Plain(text)),
            Value::Number(_) | Value::Bool(_) => Ok(Self::Plain(value.to_string())),
            Value::Object(_) => SecretName::deserialize(value)
                .map(Self::Secret)
                .map_err(|err| format!("{err}: name a secret as in `{{secret: TOKEN}}`")),
            _ => Err("expected a string, or a secret as in `{secret: TOKEN}`".to_owned()),
        }
    }
}

impl TextOrSecret {
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::Plain(_) => None,
            Self::Secret(name) => Some(&name.secret),
        }
    }

    /// Returns the text, and adds a secret to `redaction` so that it can be redacted.
    pub fn resolve(&self, redaction: &mut Redaction) -> Result<String, MissingSecret> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Secret(name) => name.resolve(redaction),
        }
    }
}

impl SecretName {
    fn resolve(&self, redaction: &mut Redaction) -> Result<String, MissingSecret> {
        let value = read_variable(&self.secret).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| MissingSecret(self.secret.clone()))?;
        redaction.add_secret(&self.secret, &value);
        Ok(format!("{}{value}", self.prefix))
    }
}

pub fn resolve_variables(
    texts: &BTreeMap<String, TextOrSecret>,
    redaction: &mut Redaction,
) -> Result<BTreeMap<String, String>, MissingSecret> {
    texts.iter().map(|(name, text)| Ok((name.clone(), text.resolve(redaction)?))).collect()
}

#[expect(clippy::disallowed_methods, reason = "secrets are read here, when a tool is called")]
fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The secrets of a call, with their names. This type removes the secrets from texts.
#[derive(Clone, Default)]
pub struct Redaction(Vec<(String, String)>, Vec<(String, EncodedSecret)>);

impl Redaction {
    pub fn add_secret(&mut self, name: &str, value: &str) {
        let mut add = |value: String| {
            let is_known = self.0.iter().any(|(_, known)| *known == value);
            if value.len() >= MIN_SECRET_BYTES && !is_known {
                self.0.push((name.to_owned(), value));
            }
        };
        common_forms(value).into_iter().for_each(&mut add);
        let parts = base64_parts(value);
        let parts = parts.into_iter().inspect(|part| add(part.clone())).map(EncodedSecret::Lines);
        let parts: Vec<_> = parts.collect();
        let whole = [value.trim(), value].into_iter();
        let whole = whole.flat_map(|text| {
            [EncodedSecret::Percent(text.to_owned()), EncodedSecret::Escaped(text.to_owned())]
        });
        for encoded_secret in whole.chain(parts) {
            let is_known = self.1.iter().any(|(_, known)| *known == encoded_secret);
            if encoded_secret.text().len() >= MIN_SECRET_BYTES && !is_known {
                self.1.push((name.to_owned(), encoded_secret));
            }
        }
        // Redacts each line of a key, because programs print a key line by line. The lines that
        // frame a key are not secret.
        let lines = value.lines().map(str::trim);
        let lines = lines.filter(|line| line.len() >= MIN_PART_BYTES && !line.starts_with("-----"));
        lines.map(str::to_owned).for_each(&mut add);
        // One secret may contain another, so longer secrets are redacted first.
        self.0.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        self.1.sort_by_key(|(_, encoded_secret)| std::cmp::Reverse(encoded_secret.text().len()));
    }

    /// Adds a variable of the environment that a program gets, if it is set.
    pub fn add_variable(&mut self, name: &str) {
        if let Some(value) = read_variable(name) {
            self.add_secret(name, &value);
        }
    }

    pub fn redact(&self, mut text: String) -> String {
        for (name, value) in &self.0 {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), &format!("***{name}***"));
            }
        }
        for (name, encoded_secret) in &self.1 {
            text = encoded_secret.replace_in(text, &format!("***{name}***"));
        }
        text
    }

    /// Redacts bytes, which may be a text.
    pub fn redact_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => return self.redact(text).into_bytes(),
            Err(err) => err.into_bytes(),
        };
        // Each byte becomes a character, so that the bytes can be searched as text.
        let bytes_to_chars =
            |bytes: &[u8]| bytes.iter().copied().map(char::from).collect::<String>();
        let texts = self.0.iter().map(|(name, value)| {
            (bytes_to_chars(name.as_bytes()), bytes_to_chars(value.as_bytes()))
        });
        let encoded_secrets = self.1.iter().map(|(name, encoded_secret)| {
            (bytes_to_chars(name.as_bytes()), encoded_secret.clone())
        });
        let cleaned =
            Self(texts.collect(), encoded_secrets.collect()).redact(bytes_to_chars(&bytes));
        cleaned.chars().filter_map(|letter| u8::try_from(letter).ok()).collect()
    }

    pub fn redact_base64(&self, base64: String) -> String {
        if self.0.is_empty() {
            return base64;
        }
        let Ok(bytes) = STANDARD.decode(&base64) else { return self.redact(base64) };
        STANDARD.encode(self.redact_bytes(bytes))
    }

    pub fn occurs_in(&self, text: &str) -> bool {
        self.redact(text.to_owned()) != text
    }

    pub fn occurs_in_value(&self, value: &Value) -> bool {
        self.redact_value(value.clone()) != *value
    }

    /// Returns the length of the longest form of a secret in bytes.
    pub fn max_secret_bytes(&self) -> usize {
        let plain_bytes = self.0.first().map_or(0, |(_, value)| value.len());
        let encoded_bytes = self
            .1
            .iter()
            .map(|(_, encoded_secret)| encoded_secret.max_secret_bytes())
            .max()
            .unwrap_or(0);
        plain_bytes.max(encoded_bytes)
    }

    fn redact_number(&self, number: Number) -> Value {
        let is_secret = |value: &str| match value.parse::<f64>() {
            Ok(secret) => number.as_f64() == Some(secret),
            Err(_) => false,
        };
        match self.0.iter().find(|(_, value)| is_secret(value)) {
            Some((name, _)) => Value::String(format!("***{name}***")),
            None => Value::Number(number),
        }
    }

    pub fn redact_value(&self, value: Value) -> Value {
        if self.0.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.redact(text)),
            Value::Number(number) => self.redact_number(number),
            Value::Array(items) => items.into_iter().map(|item| self.redact_value(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let fields =
                    fields.map(|(key, value)| (self.redact(key), self.redact_value(value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other => other,
        }
    }

    pub fn redact_result(&self, result: Result<Value, ToolError>) -> Result<Value, ToolError> {
        if self.0.is_empty() {
            return result;
        }
        result.map(|output| self.redact_value(output)).map_err(|err| {
            let message = self.redact(err.message.to_string()).into();
            ToolError { message, ..err }
        })
    }
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Returns common forms of a secret: unchanged, in a URL, in a form and in JSON.
fn common_forms(value: &str) -> Vec<String> {
    let url = percent_encode(value);
    // Adds these forms, because some programs encode other characters than the standard requires,
    // or write lower-case digits.
    let form = url.replace("%20", "+").replace("%2A", "*").replace('~', "%7E");
    let json = Value::from(value).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let slashes = json.replace('/', "\\/");
    let mut forms = vec![value.to_owned(), value.trim().to_owned(), json, slashes];
    forms.extend([lower_case_hex(&url), lower_case_hex(&form), url, form]);
    forms
}

/// Returns the base64 of a secret, alone or at an offset within a longer text.
fn base64_parts(value: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for before in 0..3_usize {
        let padded = [vec![0; before], value.trim().as_bytes().to_vec()].concat();
        let encoded = encode_base64(&padded);
        // Leaves out the first and last characters that contain bits of the neighbouring text,
        // because a character encodes six bits.
        let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        let part = encoded.get(from..to).unwrap_or_default();
        if part.len() >= MIN_PART_BYTES {
            parts.extend([part.to_owned(), part.replace('+', "-").replace('/', "_")]);
        }
    }
    parts
}

/// Converts percent-encoded digits to lower case.
fn lower_case_hex(encoded: &str) -> String {
    let mut after = usize::MAX;
    let small = |letter: char| {
        after = if letter == '%' { 0 } else { after.saturating_add(1) };
        if after <= 2 { letter.to_ascii_lowercase() } else { letter }
    };
    encoded.chars().map(small).collect()
}

/// Percent-encodes all but unreserved characters (RFC 3986).
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            let digit = |bits: u8| char::from(b"0123456789ABCDEF"[usize::from(bits)]);
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

/// Encodes bytes in base 64 (RFC 4648), as basic authentication needs.
pub fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_read_from_its_variable_on_use() {
        let text: TextOrSecret =
            serde_json::from_value(json!({ "secret": "CARGO_PKG_NAME", "prefix": "Bearer " }))
                .unwrap();
        let mut redaction = Redaction::default();
        assert_eq!(text.resolve(&mut redaction).unwrap(), "Bearer secrets");
        assert!(!format!("{text:?} {redaction:?}").contains("secrets"));
        let output = json!({ "secrets": ["my secrets!", 1], "b": "x" });
        let expected = json!({ "***CARGO_PKG_NAME***": ["my ***CARGO_PKG_NAME***!", 1], "b": "x" });
        assert_eq!(redaction.redact_value(output), expected);
        let failed =
            redaction.redact_result(Err(ToolError::failed("no secrets here").without_retry()));
        assert_eq!(failed, Err(ToolError::failed("no ***CARGO_PKG_NAME*** here").without_retry()));
    }

    #[test]
    fn secrets_are_redacted_in_binaries() {
        let mut redaction = Redaction::default();
        redaction.add_secret("KEY", "ein größerer Schlüssel");
        let secret = "ein größerer Schlüssel";
        let encoded = percent_encode(secret);
        let cleaned = |bytes: &[u8]| {
            STANDARD.decode(redaction.redact_base64(STANDARD.encode(bytes))).unwrap()
        };
        for hidden in [secret, &encoded, &encode_base64(secret.as_bytes())] {
            let is_clean = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes);
                text.contains("***KEY***") && !text.contains(&hidden[..8])
            };
            assert!(is_clean(&cleaned(hidden.as_bytes())), "{hidden}");
            let binary = [&[0xff, 0xd8, 0], hidden.as_bytes(), &[0, 0xff]].concat();
            let came = cleaned(&binary);
            assert!(is_clean(&came), "{hidden}");
            assert!(came.starts_with(&[0xff, 0xd8, 0]) && came.ends_with(&[0, 0xff]));
        }
        let binary: Vec<u8> = (0..=255).collect();
        assert_eq!(cleaned(&binary), binary);
        assert_eq!(
            redaction.redact_base64(format!("no base 64: {secret}")),
            "no base 64: ***KEY***"
        );
    }

    #[test]
    fn a_missing_secret_is_named() {
        let text: TextOrSecret =
            serde_json::from_value(json!({ "secret": "FABER_NO_SUCH" })).unwrap();
        let err = ToolError::from(text.resolve(&mut Redaction::default()).unwrap_err());
        assert_eq!(
            err.to_string(),
            "tool.unavailable: the secret `FABER_NO_SUCH` is not set: set it in Faber's environment"
        );
        assert!(!err.retryable && err.is_definite);
    }

    #[test]
    fn a_secret_that_is_no_text_is_rejected() {
        for value in [json!(null), json!([]), json!({}), json!({ "secert": "X" })] {
            let err =
                serde_json::from_value::<TextOrSecret>(value.clone()).unwrap_err().to_string();
            assert!(err.contains("`{secret: TOKEN}`"), "{value}: {err}");
        }
        assert_eq!(
            serde_json::from_value::<TextOrSecret>(json!(1)).unwrap(),
            TextOrSecret::Plain("1".to_owned())
        );
    }

    #[test]
    fn the_longest_secret_is_redacted_first_in_every_form() {
        let mut redaction = Redaction::default();
        redaction.add_secret("SHORT", "abc");
        redaction.add_secret("INNER", "pass");
        redaction.add_secret("OUTER", "pass/word\n");
        let cleaned = redaction.redact("abc pass pass/word pass%2Fword%0A".to_owned());
        assert_eq!(cleaned, "abc ***INNER*** ***OUTER*** ***OUTER***");
    }

    #[test]
    fn a_secret_is_redacted_in_every_printed_form() {
        let mut redaction = Redaction::default();
        let secret = "a~b c/\"d\"*\nsecond line of it\n";
        redaction.add_secret("KEY", secret);
        let quoted = json!(secret).to_string();
        let encoded = encode_base64(format!("user:{secret}").as_bytes());
        for printed in [
            secret.to_owned(),
            secret.trim().to_owned(),
            "second line of it".to_owned(),
            "a~b%20c%2F%22d%22%2A%0Asecond%20line%20of%20it%0A".to_owned(),
            "a%7Eb+c%2F%22d%22*%0Asecond+line+of+it%0A".to_owned(),
            "a%7eb+c%2f%22d%22*%0asecond+line+of+it%0a".to_owned(),
            quoted[1..quoted.len() - 1].to_owned(),
            quoted[1..quoted.len() - 1].replace('/', "\\/"),
            encode_base64(secret.trim().as_bytes()),
            encoded.replace('+', "-").replace('/', "_"),
            encoded,
        ] {
            let cleaned = redaction.redact(format!("before {printed} behind"));
            assert!(cleaned.contains("***KEY***"), "{printed}: {cleaned}");
            assert!(!cleaned.contains("second") && cleaned.len() < 45, "{printed}: {cleaned}");
        }
    }

    /// JavaScript, Python, `jq` and URLs leave different characters unencoded, and programs print
    /// base 64 in lines. All these forms must be redacted.
    #[test]
    fn a_secret_is_redacted_in_every_encoding() {
        let mut redaction = Redaction::default();
        let secret = "p@ss(w)o!rd*'x~y of a length that takes more than one line of base 64";
        redaction.add_secret("KEY", secret);
        let rest = "%20of%20a%20length%20that%20takes%20more%20than%20one%20line%20of%20base%2064";
        let in_lines = |by: usize, end: &str| {
            let encoded = encode_base64(format!("user:{secret}").as_bytes());
            let lines = encoded.as_bytes().chunks(by).map(|line| str::from_utf8(line).unwrap());
            lines.collect::<Vec<_>>().join(end)
        };
        for printed in [
            format!("p%40ss(w)o!rd*'x~y{rest}"),
            format!("p@ss(w)o!rd*%27x~y{rest}"),
            format!("p%40ss(w)o%21rd%2A'x~y{rest}"),
            secret.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat(),
            in_lines(76, "\n"),
            in_lines(64, "\r\n"),
            in_lines(60, "\n  "),
            in_lines(76, "\\n"),
        ] {
            let cleaned = redaction.redact(format!("before {printed} behind"));
            assert!(cleaned.contains("***KEY***") && cleaned.len() < 45, "{printed}: {cleaned}");
            assert!(printed.len() <= redaction.max_secret_bytes() + 10, "{printed}");
        }
        let plain = "100% of\nit";
        assert_eq!(redaction.redact(plain.to_owned()), plain);
    }

    #[test]
    fn a_numeric_secret_is_redacted_as_a_json_number() {
        let mut redaction = Redaction::default();
        redaction.add_secret("PIN", "98765432109");
        redaction.add_secret("LONG", "987654321098765432109876");
        let output: Value =
            serde_json::from_str("[98765432109, 98765432109.0, 987654321098765432109876, 1]")
                .unwrap();
        let expected = json!(["***PIN***", "***PIN***", "***LONG***", 1]);
        assert_eq!(redaction.redact_value(output), expected);
    }

    #[test]
    fn encodings_match_the_standards() {
        assert_eq!(percent_encode("a b/ä~?"), "a%20b%2F%C3%A4~%3F");
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("user:pass", "dXNlcjpwYXNz"),
        ] {
            assert_eq!(encode_base64(text.as_bytes()), expected);
        }
    }
}
