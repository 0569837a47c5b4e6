use std::{path::Path, time::Duration};

use planner::{
    model::{Key, Price, ProviderKind, Settings, settings},
    suggest::{did_you_mean, nearest},
    writer,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::{placed_error::read_placed, secret_file::SecretFile};

use super::{Config, DEFAULT_PLANNER, environment::variable, show::mask_url};

/// Maximum number of tokens of an answer of a local model, unless the file sets `max_tokens`.
/// Without a limit, a small model can repeat the same text forever.
const MAX_LOCAL_TOKENS: u32 = 1_500;
/// Number of repairs of a local model, unless the file sets `max_repairs`. Each repair takes long,
/// and a second repair seldom helps a small model.
const MAX_LOCAL_REPAIRS: u32 = 1;
pub(super) const MIN_TIMEOUT_MS: u64 = 100;
pub(super) const MAX_TIMEOUT_MS: u64 = 3_600_000;
/// The highest price of a million tokens. It is large because prices in some currencies are large
/// numbers.
pub(super) const MAX_PRICE: f64 = 1e9;

#[derive(Clone, Debug, Default, PartialEq)]
pub enum PlannerConfig {
    #[default]
    Offline,
    Model(Box<ModelConfig>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    provider: ProviderKind,
    base_url: Option<String>,
    model: String,
    api_key_env: Option<String>,
    api_key_file: Option<SecretFile>,
    timeout_ms: u64,
    max_retries: u32,
    max_repairs: u32,
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    price: Option<Price>,
    structured_output: bool,
    native_tools: bool,
    fallback: Option<Box<ModelConfig>>,
}

/// Keys of `planner` that apply to every planner. Does not include `provider`.
const RULE_KEYS: [&str; 2] = ["cache", "guard"];
const MODEL_KEYS: [&str; 14] = [
    "provider",
    "model",
    "base_url",
    "api_key_env",
    "api_key_file",
    "timeout_ms",
    "max_retries",
    "max_repairs",
    "max_tokens",
    "temperature",
    "price",
    "structured",
    "native_tools",
    "fallback",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenModel {
    provider: String,
    model: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    api_key_file: Option<String>,
    timeout_ms: Option<u64>,
    max_retries: Option<u32>,
    max_repairs: Option<u32>,
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    price: Option<WrittenPrice>,
    #[serde(rename = "structured")]
    structured_output: Option<bool>,
    native_tools: Option<bool>,
    fallback: Option<Box<WrittenModel>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPrice {
    input: f64,
    output: f64,
}

pub(super) fn read(value: Option<Value>, base: &Path) -> Result<Option<PlannerConfig>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if name == DEFAULT_PLANNER => Ok(Some(PlannerConfig::Offline)),
        Some(Value::String(name)) => Err(format!(
            "`planner: {name}` is incomplete: write `planner: {DEFAULT_PLANNER}`, or `planner: {{ \
             provider: {name}, model: NAME, api_key_env: VARIABLE }}`"
        )),
        Some(Value::Object(fields)) => match fields.get("provider").and_then(Value::as_str) {
            None => Err(format!(
                "`planner.provider` is missing: write `planner: {DEFAULT_PLANNER}`, or `planner: {{ \
                 provider: openai, model: NAME, api_key_env: VARIABLE }}`"
            )),
            Some(DEFAULT_PLANNER) => match fields.keys().find(|key| *key != "provider") {
                Some(other) => Err(describe_unused_key(other)),
                None => Ok(Some(PlannerConfig::Offline)),
            },
            Some(_) => {
                check_rule_keys(&fields)?;
                let written = read_placed(Value::Object(fields));
                let written: WrittenModel = written.map_err(|err| err.inside("planner"))?;
                let model = written.check("planner", base)?;
                Ok(Some(PlannerConfig::Model(Box::new(model))))
            }
        },
        Some(other) => Err(format!("`planner` is {other}; write `planner: {DEFAULT_PLANNER}`")),
    }
}

fn describe_unused_key(key: &str) -> String {
    let known_keys = MODEL_KEYS.iter().chain(&RULE_KEYS).copied();
    match did_you_mean(key, known_keys.clone()) {
        _ if MODEL_KEYS.contains(&key) => {
            format!("`planner.{key}` has no effect on `{DEFAULT_PLANNER}`: remove it")
        }
        Some(meant) => format!("`planner.{key}` is unknown: {meant}"),
        None => {
            let keys = RULE_KEYS.join("`, `");
            format!("`planner.{key}` is unknown: `{DEFAULT_PLANNER}` has the keys `{keys}`")
        }
    }
}

/// Reports a key that looks like a misspelt key of [`RULE_KEYS`]. The correct keys were removed
/// before.
fn check_rule_keys(fields: &Map<String, Value>) -> Result<(), String> {
    let known_keys = || MODEL_KEYS.iter().chain(&RULE_KEYS).copied();
    let unknown = fields.keys().filter(|key| !known_keys().any(|known| known == key.as_str()));
    for key in unknown {
        if let Some(meant) = nearest(key, known_keys()).filter(|meant| RULE_KEYS.contains(meant)) {
            return Err(format!("`planner.{key}` is unknown: did you mean `{meant}`?"));
        }
    }
    Ok(())
}

impl WrittenModel {
    fn check(self, place: &str, base: &Path) -> Result<ModelConfig, String> {
        let provider = ProviderKind::find_by_name(&self.provider)
            .map_err(|err| format!("`{place}.provider`: {err}"))?;
        let model = self.model.filter(|name| !name.trim().is_empty());
        let model = model.or_else(|| provider.is_local().then(String::new)).ok_or_else(|| {
            format!("`{place}.model` is missing: write the name that the provider gives the model")
        })?;
        if let Some(url) = &self.base_url {
            check_url(place, url)?;
        }
        if let Some(name) = self.api_key_env.as_deref().filter(|name| !is_variable(name)) {
            // The value is perhaps the secret key itself, so the message shows only its beginning.
            let prefix = if name.len() < 3 { name } else { &name[..name.floor_char_boundary(3)] };
            return Err(format!(
                "`{place}.api_key_env` is `{prefix}…`, which is not the name of a variable: put \
                 the key into an environment variable such as OPENAI_API_KEY, and write its name \
                 here"
            ));
        }
        if self.api_key_env.is_some() && self.api_key_file.is_some() {
            return Err(format!(
                "`{place}.api_key_file`: name one of `api_key_env` and `api_key_file`"
            ));
        }
        let timeout_ms = self.timeout_ms.unwrap_or(to_ms(settings::DEFAULT_TIMEOUT));
        check_range(place, "timeout_ms", timeout_ms, MIN_TIMEOUT_MS, MAX_TIMEOUT_MS)?;
        let max_retries = self.max_retries.unwrap_or(settings::DEFAULT_RETRIES);
        check_range(place, "max_retries", max_retries, 0, settings::MAX_RETRIES)?;
        let usual = if provider.is_local() { MAX_LOCAL_REPAIRS } else { writer::DEFAULT_REPAIRS };
        let max_repairs = self.max_repairs.unwrap_or(usual);
        check_range(place, "max_repairs", max_repairs, 0, writer::MAX_REPAIRS)?;
        if let Some(maximum) = self.max_tokens {
            check_range(place, "max_tokens", maximum, 1, 10_000_000)?;
        }
        if let Some(temperature) =
            self.temperature.filter(|temperature| !(0.0..=2.0).contains(temperature))
        {
            return Err(format!(
                "`{place}.temperature` is {temperature}; write a number from 0 to 2"
            ));
        }
        if let Some(price) = self.price {
            check_range(&format!("{place}.price"), "input", price.input, 0.0, MAX_PRICE)?;
            check_range(&format!("{place}.price"), "output", price.output, 0.0, MAX_PRICE)?;
        }
        let inner_place = format!("{place}.fallback");
        if self.fallback.as_ref().is_some_and(|model| model.fallback.is_some()) {
            return Err(format!(
                "`{inner_place}.fallback`: a fallback cannot have a fallback itself, so remove it"
            ));
        }
        let fallback = self.fallback.map(|model| model.check(&inner_place, base));
        Ok(ModelConfig {
            provider,
            base_url: self.base_url,
            model: model.trim().to_owned(),
            api_key_env: self.api_key_env,
            api_key_file: self.api_key_file.map(|file| SecretFile::new(file, base)),
            timeout_ms,
            max_retries,
            max_repairs,
            max_tokens: self.max_tokens.or_else(|| provider.is_local().then_some(MAX_LOCAL_TOKENS)),
            temperature: self.temperature.or_else(|| provider.is_local().then_some(0.0)),
            price: self.price.map(|price| Price { input: price.input, output: price.output }),
            structured_output: self.structured_output.unwrap_or(true),
            native_tools: self.native_tools.unwrap_or(true),
            fallback: fallback.transpose()?.map(Box::new),
        })
    }
}

fn check_url(place: &str, url: &str) -> Result<(), String> {
    let is_web = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    if !is_web || url.parse::<reqwest::Url>().is_err() {
        let masked_url = mask_url(url);
        return Err(format!("`{place}.base_url` is `{masked_url}`; write `https://host/v1`"));
    }
    if mask_url(url) != url {
        return Err(format!(
            "`{place}.base_url` contains a password: remove it, and name a variable with \
             `{place}.api_key_env`"
        ));
    }
    Ok(())
}

fn is_variable(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.len() <= 128
        && name.chars().all(is_letter)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn check_range<T: Copy + PartialOrd + std::fmt::Display>(
    place: &str,
    key: &str,
    value: T,
    minimum: T,
    maximum: T,
) -> Result<(), String> {
    if value < minimum || value > maximum {
        return Err(format!(
            "`{place}.{key}` is {value}; write a number from {minimum} to {maximum}"
        ));
    }
    Ok(())
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl ModelConfig {
    pub fn settings(&self) -> Settings {
        self.settings_from(&variable)
    }

    fn settings_from(&self, variable: &dyn Fn(&str) -> Option<String>) -> Settings {
        let key = match &self.api_key_file {
            Some(file) => Key::File(file.clone()),
            None => self.key_from(variable),
        };
        Settings {
            provider: self.provider,
            base_url: self.base_url.clone(),
            model: self.model.clone(),
            key,
            timeout: Duration::from_millis(self.timeout_ms),
            retries: self.max_retries,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            price: self.price,
            structured_output: self.structured_output,
            native_tools: self.native_tools,
            fallback: self.fallback.as_ref().map(|model| Box::new(model.settings_from(variable))),
            starter: None,
        }
    }

    fn key_from(&self, variable: &dyn Fn(&str) -> Option<String>) -> Key {
        let name = match (&self.api_key_env, &self.base_url) {
            (Some(name), _) => Some(name.as_str()),
            // A server at another address gets a key only if `api_key_env` names the variable. The
            // default variable contains the key of the provider's own server.
            (None, Some(_)) => None,
            (None, None) => self.provider.default_key_variable(),
        };
        let value = |name: &str| {
            let value = variable(name).map(|value| value.trim().to_owned());
            value.filter(|value| !value.is_empty())
        };
        name.map_or(Key::None, |name| Key::Variable(name.to_owned(), value(name)))
    }

    fn key_files(&self) -> Vec<&Path> {
        let fallback = self.fallback.as_deref().into_iter().flat_map(Self::key_files);
        self.api_key_file.iter().map(SecretFile::path).chain(fallback).collect()
    }

    pub fn max_repairs(&self) -> u32 {
        self.max_repairs
    }

    fn to_json(&self) -> Value {
        json!({
            "provider": self.provider.name(),
            "base_url": self.base_url.as_deref().map(mask_url),
            "model": Some(&self.model).filter(|name| !name.is_empty()),
            "api_key_env": self.api_key_env,
            "api_key_file": self.api_key_file.as_ref().map(SecretFile::written),
            "timeout_ms": self.timeout_ms,
            "max_retries": self.max_retries,
            "max_repairs": self.max_repairs,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "price": self.price.map(|price| json!({ "input": price.input, "output": price.output })),
            "structured": self.structured_output,
            "native_tools": self.native_tools,
            "fallback": self.fallback.as_deref().map(Self::to_json),
        })
    }
}

impl PlannerConfig {
    /// Returns the setting with names of variables, never their values.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Offline => json!(DEFAULT_PLANNER),
            Self::Model(model) => model.to_json(),
        }
    }

    pub(super) fn key_files(&self) -> Vec<&Path> {
        match self {
            Self::Offline => Vec::new(),
            Self::Model(model) => model.key_files(),
        }
    }
}

impl Config {
    pub fn planning_model(&self) -> Option<&ModelConfig> {
        match &self.planner.value {
            PlannerConfig::Offline => None,
            PlannerConfig::Model(model) => Some(model),
        }
    }
}

#[cfg(test)]
mod tests;
