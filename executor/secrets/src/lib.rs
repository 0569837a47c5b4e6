//! Reads secrets from the environment and from files, and removes them from texts.

mod encoded_secret;
mod file;

use std::{collections::BTreeMap, fmt, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Map, Number, Value};
use shared::tool::{ErrorCode, ToolError};

use self::encoded_secret::EncodedSecret;
pub use self::file::FileSecret;

/// The shortest secret that is redacted. A shorter secret would match everywhere.
const MIN_SECRET_BYTES: usize = 4;
/// The shortest redacted part of a secret: a line, or a part of its base 64.
const MIN_PART_BYTES: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum TextOrSecret {
    Plain(String),
    Secret(SecretName),
    File(FileSecret),
}

/// The name of a secret and a prefix: `{secret: TOKEN, prefix: "Bearer "}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretName {
    secret: String,
    #[serde(default)]
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingSecret {
    #[error("the secret `{0}` is not set: set it in Faber's environment")]
    Variable(String),
    #[error("a secret is missing: {0}")]
    File(String),
    /// A caller of the API named the file.
    #[error(
        "`secret_file: {0}` is not read, because only the configuration can name files: name a variable with `secret`"
    )]
    ForeignFile(String),
}

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
            Value::Object(fields) if fields.contains_key("secret_file") => {
                if fields.contains_key("secret") {
                    return Err("name one of `secret` and `secret_file`".to_owned());
                }
                let file = FileSecret::deserialize(Value::Object(fields));
                file.map(Self::File)
                    .map_err(|err| format!("{err}: name a file as in `{{secret_file: token}}`"))
            }
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
            Self::Plain(_) | Self::File(_) => None,
            Self::Secret(name) => Some(&name.secret),
        }
    }

    pub fn file(&self) -> Option<&FileSecret> {
        match self {
            Self::Plain(_) | Self::Secret(_) => None,
            Self::File(file) => Some(file),
        }
    }

    /// Reads the file of a secret, if it has one. Must not be called for the texts of callers. A
    /// relative path starts at `base`.
    pub fn read_file(&mut self, base: &Path) {
        if let Self::File(file) = self {
            file.read(base);
        }
    }

    /// Returns the text, and adds a secret to `redaction` so that it can be redacted.
    pub fn resolve(&self, redaction: &mut Redaction) -> Result<String, MissingSecret> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Secret(name) => name.resolve(redaction),
            Self::File(file) => file.resolve(redaction),
        }
    }
}

impl SecretName {
    fn resolve(&self, redaction: &mut Redaction) -> Result<String, MissingSecret> {
        let value = read_variable(&self.secret).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| MissingSecret::Variable(self.secret.clone()))?;
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
        // Redacts each long line of a secret, because programs print a key line by line. The lines
        // that frame a key are not secret.
        let lines = value.lines().map(str::trim);
        let lines = lines.filter(|line| line.len() >= MIN_PART_BYTES && !line.starts_with("-----"));
        lines.map(str::to_owned).for_each(&mut add);
        // One secret may contain another, so longer secrets are redacted first.
        self.0.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        self.1.sort_by_key(|(_, encoded_secret)| std::cmp::Reverse(encoded_secret.text().len()));
    }

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
mod tests;
