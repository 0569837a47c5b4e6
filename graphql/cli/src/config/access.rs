//! The setting `access`. The tokens themselves are in the environment or in files.

mod patterns;

pub(super) use self::patterns::with_equivalents;

use std::{collections::BTreeSet, path::Path};

use engine::access::{Access, Limits, Quotas, Role, See, Token, ToolPattern};
use planner::suggest::did_you_mean;
use serde_json::{Map, Value, json};
use shared::{secret_file::SecretFile, store::Rate};
use toolsets::sources::SetConfig;

use super::{ConfigError, calls};

const TOKEN_KEYS: [&str; 7] = ["name", "token_env", "token_file", "role", "tools", "limits", "see"];
const LIMIT_KEYS: [&str; 5] = ["calls", "per_tool", "starts", "executions", "stored_bytes"];
const BYTE_UNITS: [(&str, u64); 4] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
/// Maximum number of tokens. It is limited because each request is compared with each token.
const MAX_TOKENS: usize = 1_000;
/// Maximum number of patterns of a token. It is limited because each call is matched with each
/// pattern.
const MAX_PATTERNS: usize = 1_000;
const MAX_SECRETS: usize = 1_000;
const MIN_SECRET_BYTES: usize = 16;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessConfig {
    tokens: Vec<TokenConfig>,
    secrets: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq)]
struct TokenConfig {
    name: String,
    source: TokenSource,
    role: Role,
    tools: Option<Vec<ToolPattern>>,
    limits: Limits,
    quotas: Quotas,
    written_limits: Value,
    see: See,
}

#[derive(Clone, Debug, PartialEq)]
enum TokenSource {
    Variable(String),
    File(SecretFile),
}

impl TokenSource {
    fn read(fields: &Map<String, Value>, base: &Path) -> Result<Self, String> {
        let is_set = |key: &str| fields.get(key).is_some_and(|value| !value.is_null());
        match (is_set("token_env"), is_set("token_file")) {
            (true, true) => Err("name one of `token_env` and `token_file`".to_owned()),
            (_, true) => Ok(Self::File(SecretFile::new(read_text(fields, "token_file")?, base))),
            _ => Ok(Self::Variable(read_text(fields, "token_env")?)),
        }
    }

    fn place(&self) -> &str {
        match self {
            Self::Variable(name) => name,
            Self::File(file) => file.written(),
        }
    }

    fn find_secret(
        &self,
        token: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<String, String> {
        let secret = match self {
            Self::File(file) => file.read().map_err(|reason| {
                format!(
                    "the access token `{token}` is not available: {reason}; correct the file, or \
                     remove the token from `access.tokens`"
                )
            })?,
            Self::Variable(name) => variable(name).unwrap_or_default(),
        };
        let secret = secret.trim();
        if secret.is_empty() {
            let from = self.place();
            return Err(format!(
                "the access token `{token}` is not set: set `{from}` in Faber's environment, or \
                 remove the token from `access.tokens`"
            ));
        }
        Ok(secret.to_owned())
    }
}

impl AccessConfig {
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.tokens.iter().filter_map(|token| match &token.source {
            TokenSource::File(file) => Some(file.path()),
            TokenSource::Variable(_) => None,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Returns the environment variables that added toolsets are allowed to use. `None` allows all
    /// variables, because only this machine can add toolsets then.
    pub fn secrets(&self) -> Option<BTreeSet<String>> {
        let named = self.secrets.clone();
        if self.is_empty() { named } else { Some(named.unwrap_or_default()) }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    #[cfg(test)]
    pub(crate) fn read(written: Value) -> Result<Self, String> {
        read(Some(written), Path::new("/"))
    }

    /// Reads the tokens from the environment and from files, and adds the equivalent patterns for
    /// renamed built-in toolsets. Most commands need no tokens and do not call this.
    pub fn open(
        &self,
        sets: &[SetConfig],
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Access, ConfigError> {
        Ok(Access::new(self.open_tokens(sets, variable)?))
    }

    pub fn open_tokens(
        &self,
        sets: &[SetConfig],
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Token>, ConfigError> {
        let mut tokens: Vec<Token> = Vec::with_capacity(self.tokens.len());
        for config in &self.tokens {
            let token = config.open_token(sets, &variable).map_err(ConfigError::new)?;
            if let Some(same) = tokens.iter().find(|known| known.is_same_secret(&token)) {
                return Err(ConfigError::new(format!(
                    "the access tokens `{}` and `{}` are the same: set `{}` to another token",
                    same.name,
                    config.name,
                    config.source.place()
                )));
            }
            tokens.push(token);
        }
        Ok(tokens)
    }

    pub(super) fn to_json(&self) -> Value {
        self.tokens.iter().map(TokenConfig::to_json).collect()
    }
}

impl TokenConfig {
    fn open_token(
        &self,
        sets: &[SetConfig],
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Token, String> {
        let Self { name, source, .. } = self;
        let from = source.place();
        let secret = source.find_secret(name, variable)?;
        if secret.chars().any(|letter| !letter.is_ascii_graphic()) {
            return Err(format!(
                "the access token `{name}` (`{from}`) cannot be sent: use letters, digits and `-._~+/=`"
            ));
        }
        if secret.len() < MIN_SECRET_BYTES {
            tracing::warn!(
                token = name,
                "this access token can be guessed: use one of at least 16 characters"
            );
        }
        let mut token = Token::new(name, &secret, self.role);
        let tools = self.tools.as_ref();
        token.tools = tools.map(|pattern| {
            pattern.iter().flat_map(|pattern| patterns::with_equivalents(pattern, sets)).collect()
        });
        (token.limits, token.quotas) = (self.limits, self.quotas);
        token.see = self.see;
        Ok(token)
    }

    fn to_json(&self) -> Value {
        let tools = self
            .tools
            .as_ref()
            .map(|patterns| patterns.iter().map(ToolPattern::to_string).collect());
        let source = match self.source {
            TokenSource::Variable(_) => "token_env",
            TokenSource::File(_) => "token_file",
        };
        json!({
            "name": self.name,
            source: self.source.place(),
            "role": self.role.as_str(),
            "tools": tools.unwrap_or_else(|| vec!["*".to_owned()]),
            "limits": self.written_limits,
            "see": self.see.as_str(),
        })
    }
}

pub(super) fn read(value: Option<Value>, base: &Path) -> Result<AccessConfig, String> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(AccessConfig::default()),
        Some(Value::Object(fields)) => fields,
        Some(_) => {
            let hint = "{ tokens: [{ name: ci, token_env: CI_TOKEN, role: operator }] }";
            return Err(format!("`access` must be a map, such as `{hint}`"));
        }
    };
    check_keys(&fields, &["tokens", "secrets"]).map_err(|error| format!("`access`: {error}"))?;
    let secrets = read_secret_names(fields.get("secrets"))?;
    let items = match fields.get("tokens") {
        None | Some(Value::Null) => return Ok(AccessConfig { secrets, ..AccessConfig::default() }),
        Some(Value::Array(items)) if items.len() <= MAX_TOKENS => items,
        Some(_) => {
            return Err(format!("`access.tokens` must be a list of at most {MAX_TOKENS} tokens"));
        }
    };
    let mut tokens: Vec<TokenConfig> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let placed = |reason: String| format!("`access.tokens[{index}]`: {reason}");
        let token = read_token(item, base).map_err(placed)?;
        if tokens.iter().any(|known| known.name == token.name) {
            let reason =
                format!("a token called `{}` exists already: use another name", token.name);
            return Err(placed(reason));
        }
        tokens.push(token);
    }
    Ok(AccessConfig { tokens, secrets })
}

fn read_secret_names(value: Option<&Value>) -> Result<Option<BTreeSet<String>>, String> {
    let wrong = || {
        format!(
            "`access.secrets` must be a list of at most {MAX_SECRETS} names, such as `[PET_KEY]`"
        )
    };
    let items = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) if items.len() <= MAX_SECRETS => items,
        Some(_) => return Err(wrong()),
    };
    let names = items.iter().map(|name| name.as_str().filter(|name| !name.trim().is_empty()));
    names.map(|name| name.map(str::to_owned).ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
}

fn read_token(item: &Value, base: &Path) -> Result<TokenConfig, String> {
    let Value::Object(fields) = item else {
        let hint = "{ name: ci, token_env: CI_TOKEN, role: operator }";
        return Err(format!("write a map such as `{hint}`"));
    };
    if fields.contains_key("token") {
        let reason = "`token` would put a secret into a file: name an environment variable with \
                   `token_env`, or another file with `token_file`";
        return Err(reason.to_owned());
    }
    check_keys(fields, &TOKEN_KEYS)?;
    let written_limits = fields.get("limits").cloned().unwrap_or_default();
    let name = read_text(fields, "name")?;
    if name.starts_with(oidc::NAME_PREFIX) {
        return Err(format!("`name` is `{name}`: `oidc:` is for callers of `server.oidc`"));
    }
    let (limits, quotas) = read_limits(&written_limits)?;
    let role = read_text(fields, "role")?.parse()?;
    Ok(TokenConfig {
        name,
        source: TokenSource::read(fields, base)?,
        role,
        see: read_see(fields, role)?,
        tools: read_patterns(fields.get("tools"))?,
        limits,
        quotas,
        written_limits,
    })
}

pub(super) fn read_see(fields: &Map<String, Value>, role: Role) -> Result<See, String> {
    if fields.get("see").is_none_or(Value::is_null) {
        return Ok(See::All);
    }
    let see = read_text(fields, "see")?.parse()?;
    if see == See::Own && role == Role::Admin {
        let reason = "`see: own` does not fit the role `admin`, which sees all: use `operator` or \
                      `viewer`";
        return Err(reason.to_owned());
    }
    Ok(see)
}

pub(super) fn check_keys(fields: &Map<String, Value>, keys: &[&str]) -> Result<(), String> {
    let Some(key) = fields.keys().find(|key| !keys.contains(&key.as_str())) else { return Ok(()) };
    let help = did_you_mean(key, keys.iter().copied());
    let help = help.unwrap_or_else(|| format!("there are `{}`", keys.join("`, `")));
    Err(format!("`{key}` is unknown: {help}"))
}

pub(super) fn read_text(fields: &Map<String, Value>, key: &str) -> Result<String, String> {
    match fields.get(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        None | Some(Value::Null) => Err(format!("`{key}` is missing")),
        Some(other) => Err(format!("`{key}` is {other}; write a string")),
    }
}

pub(super) fn read_patterns(value: Option<&Value>) -> Result<Option<Vec<ToolPattern>>, String> {
    let items = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) if items.len() <= MAX_PATTERNS => items,
        Some(_) => {
            let hint = "[\"file_tools.*\"]";
            return Err(format!(
                "`tools` must be a list of at most {MAX_PATTERNS} patterns, such as `{hint}`"
            ));
        }
    };
    let glob = |item: &Value| {
        let text = item.as_str().ok_or_else(|| format!("`tools` has {item}; write a string"))?;
        text.parse().map_err(|err: engine::access::GlobError| format!("`tools`: {err}"))
    };
    items.iter().map(glob).collect::<Result<_, _>>().map(Some)
}

pub(super) fn read_limits(value: &Value) -> Result<(Limits, Quotas), String> {
    let fields = match value {
        Value::Null => return Ok(Default::default()),
        Value::Object(fields) => fields,
        _ => return Err("`limits` must be a map such as `{ calls: 100/h }`".to_owned()),
    };
    check_keys(fields, &LIMIT_KEYS).map_err(|error| format!("`limits`: {error}"))?;
    let rate = |key: &str| -> Result<Option<Rate>, String> {
        if fields.get(key).is_none_or(Value::is_null) {
            return Ok(None);
        }
        let written = read_text(fields, key).map_err(|error| format!("`limits`: {error}"))?;
        let rate = calls::parse_rate(&written);
        let hint = "write a rate, such as `10/min` or `100/h`";
        rate.map(Some).ok_or_else(|| format!("`limits.{key}` is `{written}`; {hint}"))
    };
    let limits = Limits { calls: rate("calls")?, per_tool: rate("per_tool")? };
    let quotas = Quotas {
        starts: rate("starts")?,
        executions: read_count(fields)?,
        stored_bytes: read_bytes(fields)?,
    };
    Ok((limits, quotas))
}

fn read_count(fields: &Map<String, Value>) -> Result<Option<u64>, String> {
    match fields.get("executions") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|count| *count > 0) {
            Some(count) => Ok(Some(count)),
            None => Err(format!("`limits.executions` is {value}; write a whole number from 1")),
        },
    }
}

fn read_bytes(fields: &Map<String, Value>) -> Result<Option<u64>, String> {
    let value = match fields.get("stored_bytes") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let bytes = match value {
        Value::String(text) => parse_bytes(text),
        other => other.as_u64(),
    };
    let hint = "write a number of bytes, or a size such as `500MiB` or `10GiB`";
    let wrong = || format!("`limits.stored_bytes` is {value}; {hint}");
    bytes.filter(|bytes| *bytes > 0).map(Some).ok_or_else(wrong)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (unit, factor) = BYTE_UNITS.into_iter().find(|(unit, _)| text.trim().ends_with(unit))?;
    text.trim().strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::{read as read_below, *};

    fn read(value: Option<Value>) -> Result<AccessConfig, String> {
        read_below(value, Path::new("/"))
    }

    fn example_setting() -> Value {
        json!({ "tokens": [
            { "name": "ci", "token_env": "CI", "role": "operator", "tools": ["file_tools.*"],
              "limits": { "calls": "100/h", "per_tool": "10/min" }, "see": "own" },
            { "name": "owner", "token_env": "OWNER", "role": "admin" },
        ] })
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check_refused(value: Value, expected: Expect) {
        expected.assert_eq(&read(Some(value)).unwrap_err());
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check_refused_token(change: Value, expected: Expect) {
        let mut token = json!({ "name": "ci", "token_env": "CI", "role": "admin" });
        for (key, value) in change.as_object().unwrap() {
            token[key] = value.clone();
        }
        check_refused(json!({ "tokens": [token] }), expected);
    }

    #[test]
    fn tokens_are_parsed_and_shown_without_their_secrets() {
        let config = read(Some(example_setting())).unwrap();
        let access = config.open(&[], |name| Some(format!("the-secret-of-{name}\n"))).unwrap();
        let peer = std::net::IpAddr::from([10, 0, 0, 1]);
        let grant = access.authenticate(Some("the-secret-of-CI"), peer).unwrap();
        assert_eq!(grant.name(), Some("ci"));
        assert_eq!(grant.visible_token(), Some("ci"));
        let admin = access.authenticate(Some("the-secret-of-OWNER"), peer).unwrap();
        assert_eq!((admin.token_name(), admin.visible_token()), (Some("owner"), None));
        assert!(!grant.allows(&"blog.get".parse().unwrap()));
        expect![[r#"[{"name":"ci","token_env":"CI","role":"operator","tools":["file_tools.*"],"limits":{"calls":"100/h","per_tool":"10/min"},"see":"own"},{"name":"owner","token_env":"OWNER","role":"admin","tools":["*"],"limits":null,"see":"all"}]"#]]
            .assert_eq(&config.to_json().to_string());
        assert!(read(None).unwrap().is_empty());
        assert!(!read(Some(json!({}))).unwrap().open(&[], |_| None).unwrap().requires_token());
    }

    #[test]
    fn quotas_are_numbers_sizes_and_rates() {
        let limits = json!({ "executions": 20, "stored_bytes": "10 GiB", "starts": "100/min" });
        let (limits, quotas) = read_limits(&limits).unwrap();
        assert_eq!(limits, Limits::default());
        let starts = Some(Rate { calls: 100, per_ms: 60_000 });
        let expected = Quotas { starts, executions: Some(20), stored_bytes: Some(10 << 30) };
        assert_eq!(quotas, expected);
        let bytes = json!({ "stored_bytes": 5_000 });
        assert_eq!(read_limits(&bytes).unwrap().1.stored_bytes, Some(5_000));
    }

    #[test]
    fn added_toolsets_may_use_only_named_variables() {
        let config = read(Some(json!({ "secrets": ["PET_KEY", "A", "A"] }))).unwrap();
        assert_eq!(config.secrets().unwrap().iter().collect::<Vec<_>>(), ["A", "PET_KEY"]);
        assert!(config.is_empty());
        // Without tokens, all variables are allowed. With tokens, no variable is allowed unless the
        // setting names it.
        assert_eq!(read(Some(json!({}))).unwrap().secrets(), None);
        let token = json!({ "name": "ci", "token_env": "CI_TOKEN", "role": "admin" });
        let config = read(Some(json!({ "tokens": [token] }))).unwrap();
        assert_eq!(config.secrets(), Some(BTreeSet::new()));
        for wrong in [json!("A"), json!([1]), json!([" "])] {
            check_refused(
                json!({ "secrets": wrong }),
                expect![
                    "`access.secrets` must be a list of at most 1000 names, such as `[PET_KEY]`"
                ],
            );
        }
    }

    #[test]
    fn a_missing_token_variable_is_an_error() {
        let config = read(Some(example_setting())).unwrap();
        let err = |variable: fn(&str) -> Option<String>| {
            config.open(&[], variable).unwrap_err().to_string()
        };
        expect!["the access token `owner` is not set: set `OWNER` in Faber's environment, or remove the token from `access.tokens`"]
            .assert_eq(&err(|name| (name == "CI").then(|| "x".repeat(20))));
        assert_eq!(err(|_| Some(" ".to_owned())), err(|_| None));
        expect!["the access tokens `ci` and `owner` are the same: set `OWNER` to another token"]
            .assert_eq(&err(|_| Some("x".repeat(20))));
        expect!["the access token `ci` (`CI`) cannot be sent: use letters, digits and `-._~+/=`"]
            .assert_eq(&err(|_| Some("two words".to_owned())));
    }

    #[test]
    fn a_token_is_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let token = json!({ "name": "ci", "token_file": "ci.token", "role": "admin" });
        let config = read_below(Some(json!({ "tokens": [token] })), folder.path()).unwrap();
        let err = config.open(&[], |_| None).unwrap_err().to_string();
        assert!(
            err.starts_with("the access token `ci` is not available: `ci.token` cannot"),
            "{err}"
        );
        std::fs::write(folder.path().join("ci.token"), "\n").unwrap();
        let err = config.open(&[], |_| None).unwrap_err().to_string();
        expect!["the access token `ci` is not available: `ci.token` is empty; correct the file, or remove the token from `access.tokens`"]
            .assert_eq(&err);
        std::fs::write(folder.path().join("ci.token"), "a-token-of-20-letters\n").unwrap();
        let access = config.open(&[], |_| None).unwrap();
        let peer = std::net::IpAddr::from([10, 0, 0, 1]);
        assert!(access.authenticate(Some("a-token-of-20-letters"), peer).is_ok());
        assert_eq!(config.to_json()[0]["token_file"], "ci.token");
        check_refused_token(
            json!({ "token_file": "x" }),
            expect!["`access.tokens[0]`: name one of `token_env` and `token_file`"],
        );
    }

    #[test]
    fn a_wrong_access_setting_names_the_correction() {
        check_refused(
            json!([]),
            expect![
                "`access` must be a map, such as `{ tokens: [{ name: ci, token_env: CI_TOKEN, role: operator }] }`"
            ],
        );
        check_refused(
            json!({ "token": [] }),
            expect!["`access`: `token` is unknown: did you mean `tokens`?"],
        );
        check_refused(
            json!({ "tokens": [{ "name": "a", "role": "admin" }] }),
            expect!["`access.tokens[0]`: `token_env` is missing"],
        );
        check_refused_token(
            json!({ "token": "s3cret" }),
            expect![
                "`access.tokens[0]`: `token` would put a secret into a file: name an environment variable with `token_env`, or another file with `token_file`"
            ],
        );
        check_refused_token(
            json!({ "name": "oidc:ada" }),
            expect![
                "`access.tokens[0]`: `name` is `oidc:ada`: `oidc:` is for callers of `server.oidc`"
            ],
        );
        check_refused_token(
            json!({ "role": "root" }),
            expect!["`access.tokens[0]`: there is no role `root`: use viewer, operator or admin"],
        );
        check_refused_token(
            json!({ "tool": [] }),
            expect!["`access.tokens[0]`: `tool` is unknown: did you mean `tools`?"],
        );
        check_refused_token(
            json!({ "tools": ["bash"] }),
            expect![
                "`access.tokens[0]`: `tools`: `bash` is not a pattern for tools: write `set.name`, `set.*` or `*`"
            ],
        );
        check_refused_token(
            json!({ "limits": { "calls": "often" } }),
            expect![
                "`access.tokens[0]`: `limits.calls` is `often`; write a rate, such as `10/min` or `100/h`"
            ],
        );
        check_refused_token(
            json!({ "role": "viewer", "see": "mine" }),
            expect!["`access.tokens[0]`: `see` is `mine`: use own or all"],
        );
        check_refused_token(
            json!({ "see": "own" }),
            expect![
                "`access.tokens[0]`: `see: own` does not fit the role `admin`, which sees all: use `operator` or `viewer`"
            ],
        );
        let token = json!({ "name": "a", "token_env": "A", "role": "admin" });
        check_refused(
            json!({ "tokens": [token, token] }),
            expect!["`access.tokens[1]`: a token called `a` exists already: use another name"],
        );
    }

    #[test]
    fn a_wrong_quota_names_the_correction() {
        for limits in [
            json!({ "executions": 0 }),
            json!({ "executions": "5" }),
            json!({ "stored_bytes": "10GB" }),
            json!({ "stored_bytes": "99999999TiB" }),
            json!({ "stored_bytes": -1 }),
            json!({ "starts": 100 }),
        ] {
            let key = limits.as_object().unwrap().keys().next().unwrap().clone();
            let token = json!({ "name": "a", "token_env": "A", "role": "admin", "limits": limits });
            let message = read(Some(json!({ "tokens": [token] }))).unwrap_err();
            assert!(message.contains(&key) && message.contains("write"), "{message}");
        }
    }
}
