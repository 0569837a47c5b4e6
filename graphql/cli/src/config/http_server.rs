//! The setting `server`: the names, origins and path under which clients reach `faber serve`, and
//! its certificate.

use std::{fmt, path::Path, str::FromStr};

use graphql::server::{AllowedHost, AllowedOrigin, PathPrefix, TlsIdentity};
use planner::suggest::did_you_mean;
use serde_json::{Map, Value, json};
use shared::secret_file::SecretFile;

use super::{
    ConfigError,
    oidc::{self, OidcConfig},
};

const KEYS: [&str; 5] = ["allowed_hosts", "allowed_origins", "path_prefix", "oidc", "tls"];
const TLS_KEYS: [&str; 2] = ["cert_file", "key_file"];
/// Maximum number of hosts, and of origins. It is limited because each request is compared with
/// each entry.
const MAX_ENTRIES: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpServerConfig {
    pub allowed_hosts: Entries<AllowedHost>,
    pub allowed_origins: Entries<AllowedOrigin>,
    pub path_prefix: PathPrefix,
    pub oidc: Option<OidcConfig>,
    pub tls: Option<TlsFiles>,
}

impl HttpServerConfig {
    /// Returns the settings without the files of the certificate, which a reload can replace.
    #[must_use]
    pub fn without_tls_files(&self) -> Self {
        Self { tls: None, ..self.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    chain: SecretFile,
    key: SecretFile,
}

impl TlsFiles {
    fn read(value: Option<&Value>, base: &Path) -> Result<Option<Self>, String> {
        let fields = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(fields)) => fields,
            Some(_) => {
                let hint = "{ cert_file: faber.pem, key_file: faber.key }";
                return Err(format!("`server.tls` must be a map, such as `{hint}`"));
            }
        };
        check_keys(fields, "server.tls", &TLS_KEYS)?;
        let file = |key: &str| match fields.get(key) {
            Some(Value::String(path)) if !path.is_empty() => {
                Ok(SecretFile::new(path.clone(), base))
            }
            None | Some(Value::Null) => {
                Err(format!("`server.tls.{key}` is missing: name a file in PEM"))
            }
            Some(other) => Err(format!("`server.tls.{key}` is {other}; write the path of a file")),
        };
        Ok(Some(Self { chain: file("cert_file")?, key: file("key_file")? }))
    }

    pub fn open(&self) -> Result<TlsIdentity, ConfigError> {
        let read = |file: &SecretFile| file.read();
        let identity = read(&self.chain).and_then(|chain| {
            let key = read(&self.key)?;
            TlsIdentity::from_pem(&chain, &key).map_err(|err| err.to_string())
        });
        identity.map_err(|reason| ConfigError::new(format!("`server.tls`: {reason}")))
    }

    pub(super) fn paths(&self) -> [&Path; 2] {
        [self.chain.path(), self.key.path()]
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "cert_file": self.chain.written(), "key_file": self.key.written() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries<T> {
    pub values: Vec<T>,
    pub written: Vec<String>,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { values: Vec::new(), written: Vec::new() }
    }
}

pub(super) fn read(value: Option<Value>, base: &Path) -> Result<Option<HttpServerConfig>, String> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => {
            return Err("`server` must be a map, such as `{ allowed_hosts: [faber.example] }`; \
                        `--server` or FABER_SERVER names the server of commands"
                .to_owned());
        }
    };
    check_keys(&fields, "server", &KEYS)?;
    Ok(Some(HttpServerConfig {
        allowed_hosts: read_entries(&fields, "allowed_hosts", "faber.example")?,
        allowed_origins: read_entries(&fields, "allowed_origins", "https://app.example")?,
        oidc: oidc::read(fields.get("oidc"))?,
        path_prefix: match fields.get("path_prefix") {
            None | Some(Value::Null) => PathPrefix::default(),
            Some(Value::String(text)) => {
                text.parse().map_err(|err| format!("`server.path_prefix`: {err}"))?
            }
            Some(other) => {
                return Err(format!(
                    "`server.path_prefix` is {other}; write a path such as `/faber`"
                ));
            }
        },
        tls: TlsFiles::read(fields.get("tls"), base)?,
    }))
}

fn check_keys(fields: &Map<String, Value>, path: &str, keys: &[&str]) -> Result<(), String> {
    let unknown = fields.keys().find(|key| !keys.contains(&key.as_str()));
    let Some(key) = unknown else { return Ok(()) };
    let help = did_you_mean(key, keys.iter().copied());
    let help = help.unwrap_or_else(|| format!("there are `{}`", keys.join("`, `")));
    Err(format!("`{path}.{key}` is unknown: {help}"))
}

fn read_entries<T>(
    fields: &Map<String, Value>,
    key: &str,
    example: &str,
) -> Result<Entries<T>, String>
where
    T: FromStr<Err: fmt::Display>,
{
    let wrong = || {
        format!(
            "`server.{key}` must be a list of at most {MAX_ENTRIES} entries, such as `[{example}]`"
        )
    };
    let items = match fields.get(key) {
        None | Some(Value::Null) => return Ok(Entries::default()),
        Some(Value::Array(items)) if items.len() <= MAX_ENTRIES => items,
        Some(_) => return Err(wrong()),
    };
    let mut entries = Entries::default();
    for (index, item) in items.iter().enumerate() {
        let text = item.as_str().ok_or_else(wrong)?;
        let value = text.parse().map_err(|err| format!("`server.{key}[{index}]`: {err}"))?;
        entries.values.push(value);
        entries.written.push(text.to_owned());
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::{read as read_below, *};

    fn read(value: Option<Value>) -> Result<Option<HttpServerConfig>, String> {
        read_below(value, Path::new("/etc/faber"))
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check_refused(value: Value, expected: Expect) {
        expected.assert_eq(&read(Some(value)).unwrap_err());
    }

    #[test]
    fn hosts_origins_and_the_prefix_are_read() {
        let written = json!({
            "allowed_hosts": ["faber.example", "10.0.0.1:8443"],
            "allowed_origins": ["https://app.example"],
            "path_prefix": "/faber/",
        });
        let config = read(Some(written)).unwrap().unwrap();
        assert_eq!(config.allowed_hosts.written, ["faber.example", "10.0.0.1:8443"]);
        assert_eq!(config.allowed_hosts.values.len(), 2);
        assert_eq!(config.allowed_origins.values, ["https://app.example".parse().unwrap()]);
        assert_eq!(config.path_prefix.as_str(), "/faber");
        assert_eq!(read(None), Ok(None));
        assert_eq!(read(Some(json!({}))), Ok(Some(HttpServerConfig::default())));
    }

    #[test]
    fn the_files_of_a_certificate_are_read() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tls");
        let open = |chain: &str, key: &str| {
            let tls = json!({ "cert_file": chain, "key_file": key });
            let config = read_below(Some(json!({ "tls": tls })), Path::new(tests)).unwrap();
            let files = config.unwrap().tls.unwrap();
            assert_eq!(files.to_json(), tls);
            files.open().map_err(|err| err.to_string())
        };
        assert!(open("first.pem", "first.key").is_ok());
        for (chain, key, expected) in [
            ("first.pem", "second.key", "`server.tls`: the certificate and the key do not fit"),
            ("first.key", "first.key", "`server.tls`: the certificate file has no certificate"),
            ("first.pem", "none.key", "`server.tls`: `none.key` cannot be read"),
        ] {
            let err = open(chain, key).unwrap_err();
            assert!(err.starts_with(expected), "{err}");
        }
    }

    #[test]
    fn a_wrong_server_setting_names_the_correction() {
        check_refused(
            json!("http://127.0.0.1:8080"),
            expect![
                "`server` must be a map, such as `{ allowed_hosts: [faber.example] }`; `--server` or FABER_SERVER names the server of commands"
            ],
        );
        check_refused(
            json!({ "allowed_host": [] }),
            expect!["`server.allowed_host` is unknown: did you mean `allowed_hosts`?"],
        );
        check_refused(
            json!({ "allowed_hosts": "a" }),
            expect![
                "`server.allowed_hosts` must be a list of at most 1000 entries, such as \
                 `[faber.example]`"
            ],
        );
        check_refused(
            json!({ "allowed_hosts": ["a", "https://b"] }),
            expect![
                "`server.allowed_hosts[1]`: `https://b` is not a host: write `name` or `name:port`, without `https://`"
            ],
        );
        check_refused(
            json!({ "allowed_origins": ["*"] }),
            expect![
                "`server.allowed_origins[0]`: `*` is not an origin: write `https://name` or `https://name:port`, without a path"
            ],
        );
        check_refused(
            json!({ "path_prefix": "faber" }),
            expect![
                "`server.path_prefix`: `faber` is not a path prefix: write a path such as `/faber`, with letters, digits, `-`, `.`, `_` and `~` between the slashes"
            ],
        );
        check_refused(
            json!({ "tls": { "cert_file": "a.pem" } }),
            expect!["`server.tls.key_file` is missing: name a file in PEM"],
        );
        check_refused(
            json!({ "tls": { "cert_files": "a.pem" } }),
            expect!["`server.tls.cert_files` is unknown: did you mean `cert_file`?"],
        );
        check_refused(
            json!({ "path_prefix": 1 }),
            expect!["`server.path_prefix` is 1; write a path such as `/faber`"],
        );
    }
}
