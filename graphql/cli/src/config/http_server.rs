//! The setting `server`: the names, origins and path under which clients reach `faber serve`.

use std::{fmt, str::FromStr};

use graphql::server::{AllowedHost, AllowedOrigin, PathPrefix};
use planner::suggest::did_you_mean;
use serde_json::Value;

const KEYS: [&str; 3] = ["allowed_hosts", "allowed_origins", "path_prefix"];
/// Maximum number of hosts, and of origins. It is limited because each request is compared with
/// each entry.
const MAX_ENTRIES: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpServerConfig {
    pub allowed_hosts: Entries<AllowedHost>,
    pub allowed_origins: Entries<AllowedOrigin>,
    pub path_prefix: PathPrefix,
}

/// Entries of a list, with their texts in the file.
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

pub(super) fn read(value: Option<Value>) -> Result<Option<HttpServerConfig>, String> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => {
            return Err("`server` must be a map, such as `{ allowed_hosts: [faber.example] }`; \
                        `--server` or FABER_SERVER names the server of commands"
                .to_owned());
        }
    };
    if let Some(key) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let help = did_you_mean(key, KEYS.iter().copied());
        let help = help.unwrap_or_else(|| format!("there are `{}`", KEYS.join("`, `")));
        return Err(format!("`server.{key}` is unknown: {help}"));
    }
    Ok(Some(HttpServerConfig {
        allowed_hosts: read_entries(&fields, "allowed_hosts", "faber.example")?,
        allowed_origins: read_entries(&fields, "allowed_origins", "https://app.example")?,
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
    }))
}

fn read_entries<T>(
    fields: &serde_json::Map<String, Value>,
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
    use serde_json::json;

    use super::*;

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
            json!({ "path_prefix": 1 }),
            expect!["`server.path_prefix` is 1; write a path such as `/faber`"],
        );
    }
}
