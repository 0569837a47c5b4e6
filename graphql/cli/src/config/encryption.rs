//! The setting `encryption`: the keys that encrypt a store, and where they are.

use std::{path::Path, process::Stdio, time::Duration};

use engine::store::{Key, Keyring};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{placed_error::read_placed, secret_file::SecretFile};
use tokio::{process::Command, time};

use super::{ConfigError, environment::variable};

const VALID_FORM: &str =
    "write `{ keys: [{ id: NAME, env: VARIABLE }] }`, with `file` or `command` in place of `env`";
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionConfig {
    keys: Vec<KeyConfig>,
    active_key_id: String,
    encrypt_queries: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyConfig {
    id: String,
    source: KeySource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeySource {
    Variable(String),
    File(SecretFile),
    Command(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEncryption {
    keys: Vec<WrittenKey>,
    active: Option<String>,
    #[serde(default)]
    encrypt_queries: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    id: String,
    env: Option<String>,
    file: Option<String>,
    command: Option<Vec<String>>,
}

pub(super) fn read(value: Option<Value>, base: &Path) -> Result<Option<EncryptionConfig>, String> {
    let value = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let written: WrittenEncryption =
        read_placed(value).map_err(|err| format!("{}; {VALID_FORM}", err.inside("encryption")))?;
    let keys: Result<Vec<KeyConfig>, String> = written
        .keys
        .into_iter()
        .enumerate()
        .map(|(index, key)| {
            KeyConfig::read(key, base).map_err(|why| format!("`encryption.keys[{index}]`: {why}"))
        })
        .collect();
    let keys = keys?;
    let active = match (written.active, keys.as_slice()) {
        (Some(active), _) => active,
        (None, [only]) => only.id.clone(),
        (None, []) => return Err(format!("`encryption.keys` is empty: {VALID_FORM}")),
        (None, _) => {
            let why = "`encryption.active` is missing: name the key that encrypts new values";
            return Err(why.to_owned());
        }
    };
    // Checks only the ids of the keys here, because the keys are read later.
    let ids = keys.iter().map(|key| (key.id.clone(), None)).collect();
    Keyring::new(ids, &active, false).map_err(|err| format!("`encryption`: {err}"))?;
    let encrypt_queries = written.encrypt_queries;
    Ok(Some(EncryptionConfig { keys, active_key_id: active, encrypt_queries }))
}

impl KeyConfig {
    fn read(written: WrittenKey, base: &Path) -> Result<Self, String> {
        let source = match (written.env, written.file, written.command) {
            (Some(name), None, None) if is_variable_name(&name) => KeySource::Variable(name),
            (Some(_), None, None) => {
                return Err(
                    "`env` is not the name of a variable: the file must not contain the key"
                        .to_owned(),
                );
            }
            (None, Some(written), None) => KeySource::File(SecretFile::new(written, base)),
            (None, None, Some(command)) if !command.is_empty() => KeySource::Command(command),
            _ => return Err("name one of `env`, `file` and `command`".to_owned()),
        };
        Ok(Self { id: written.id, source })
    }

    async fn find(
        &self,
        variable: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Result<String, String> {
        match &self.source {
            KeySource::Variable(name) => {
                variable(name).ok_or_else(|| format!("the variable `{name}` is not set"))
            }
            KeySource::File(file) => file.read(),
            KeySource::Command(command) => run_command(command).await,
        }
    }
}

fn is_variable_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_letter) && !text.as_bytes()[0].is_ascii_digit()
}

async fn run_command(command: &[String]) -> Result<String, String> {
    let Some((program, arguments)) = command.split_first() else {
        return Err("the command is empty".to_owned());
    };
    let mut child = Command::new(program);
    child.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    // The operator sees the standard error of the command.
    child.stderr(Stdio::inherit());
    let output = time::timeout(COMMAND_TIMEOUT, child.output()).await;
    let output = output
        .map_err(|_| format!("`{program}` printed no key in {} s", COMMAND_TIMEOUT.as_secs()))?
        .map_err(|err| format!("`{program}` cannot be started: {err}"))?;
    if !output.status.success() {
        return Err(format!("`{program}` failed: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{program}` printed no text"))
}

impl EncryptionConfig {
    /// Reads the keys, and reports each key that is not available. Values of such a key cannot be
    /// read.
    pub async fn open_keys(&self) -> Result<Keyring, ConfigError> {
        let (ring, missing) = self.open_keys_with(&variable).await?;
        for reason in missing {
            tracing::error!("{reason}: values of this key stay hidden");
        }
        Ok(ring)
    }

    pub(crate) async fn open_keys_with(
        &self,
        variable: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Result<(Keyring, Vec<String>), ConfigError> {
        let (mut keys, mut missing) = (Vec::new(), Vec::new());
        for key in &self.keys {
            let id = &key.id;
            let found = match key.find(variable).await {
                Ok(text) => {
                    let wrong = |err| {
                        ConfigError::new(format!("the encryption key `{id}` is wrong: {err}"))
                    };
                    Some(Key::parse(&text).map_err(wrong)?)
                }
                Err(reason) => {
                    missing.push(format!("the encryption key `{id}` is missing: {reason}"));
                    None
                }
            };
            keys.push((id.clone(), found));
        }
        let ring = Keyring::new(keys, &self.active_key_id, self.encrypt_queries)
            .map_err(|err| ConfigError::new(format!("`encryption`: {err}")))?;
        Ok((ring, missing))
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.keys.iter().filter_map(|key| match &key.source {
            KeySource::File(file) => Some(file.path()),
            KeySource::Variable(_) | KeySource::Command(_) => None,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let keys = self.keys.iter().map(|KeyConfig { id, source }| match source {
            KeySource::Variable(name) => json!({ "id": id, "env": name }),
            KeySource::File(file) => json!({ "id": id, "file": file.written() }),
            KeySource::Command(command) => json!({ "id": id, "command": command }),
        });
        json!({
            "keys": keys.collect::<Vec<_>>(),
            "active": self.active_key_id,
            "encrypt_queries": self.encrypt_queries,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn parse(value: Value) -> Result<Option<EncryptionConfig>, String> {
        read(Some(value), Path::new("/etc/faber"))
    }

    #[test]
    fn a_wrong_setting_is_refused_with_the_place_and_the_remedy() {
        let key = |id: &str| json!({ "id": id, "env": "K" });
        for (value, why) in [
            (json!([]), "`encryption`: invalid"),
            (json!({ "keys": [] }), "`encryption.keys` is empty"),
            (json!({ "keys": [key("a"), key("b")] }), "`encryption.active` is missing"),
            (json!({ "keys": [key("a"), key("a")], "active": "a" }), "two keys have the id `a`"),
            (json!({ "keys": [key("a")], "active": "b" }), "`b` is not among the keys"),
            (json!({ "keys": [key("a b")] }), "`a b` is not a key id"),
            (json!({ "keys": [{ "id": "a" }] }), "`encryption.keys[0]`: name one of"),
            (json!({ "keys": [{ "id": "a", "env": "K", "file": "f" }] }), "name one of"),
            (json!({ "keys": [{ "id": "a", "command": [] }] }), "name one of"),
            (json!({ "keys": [{ "id": "a", "env": KEY }] }), "not the name of a variable"),
            (json!({ "keys": [{ "id": "a", "key": KEY }] }), "unknown field `key`"),
        ] {
            let error = parse(value.clone()).unwrap_err();
            assert!(error.contains(why), "{value}: {error}");
            assert!(!error.contains(KEY), "{error}");
        }
    }

    #[tokio::test]
    async fn keys_come_from_the_environment_a_file_or_a_command() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), format!("{KEY}\n")).unwrap();
        let written = json!({
            "keys": [
                { "id": "a", "env": "K" },
                { "id": "b", "file": "key" },
                { "id": "c", "command": ["printf", KEY] },
            ],
            "active": "c",
            "encrypt_queries": true,
        });
        let config = read(Some(written.clone()), folder.path()).unwrap().unwrap();
        assert_eq!(config.to_json(), written);
        assert_eq!(config.files().collect::<Vec<_>>(), [folder.path().join("key")]);
        let set = |name: &str| (name == "K").then(|| KEY.to_owned());
        let (ring, missing) = config.open_keys_with(&set).await.unwrap();
        assert!(missing.is_empty(), "{missing:?}");
        let expected =
            r#"Keyring { keys: ["a", "b", "c"], active: Some("c"), encrypts_queries: true }"#;
        assert_eq!(format!("{ring:?}"), expected);
    }

    #[tokio::test]
    async fn a_missing_key_is_reported_and_a_wrong_one_refused() {
        let written = json!({
            "keys": [
                { "id": "a", "env": "K" },
                { "id": "b", "file": "no/such/file" },
                { "id": "c", "command": ["false"] },
                { "id": "d", "command": ["/no/such/program"] },
            ],
            "active": "a",
        });
        let config = parse(written).unwrap().unwrap();
        let (ring, missing) = config.open_keys_with(&|_| None).await.unwrap();
        let expected = r"Keyring { keys: [], active: None, encrypts_queries: false }";
        assert_eq!(format!("{ring:?}"), expected);
        assert_eq!(missing.len(), 4, "{missing:?}");
        assert_eq!(missing[0], "the encryption key `a` is missing: the variable `K` is not set");
        let wrong = config.open_keys_with(&|_| Some(KEY[1..].to_owned())).await.unwrap_err();
        assert!(wrong.to_string().contains("the encryption key `a` is wrong"), "{wrong}");
        assert!(!wrong.to_string().contains(&KEY[1..]), "{wrong}");
    }
}
