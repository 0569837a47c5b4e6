//! The configuration. Flags, environment, file and defaults become one [`Config`], which contains
//! the origin of most values.

mod access;
mod calls;
mod edit;
mod embedding;
mod encryption;
mod environment;
mod file;
mod http_server;
mod limits;
mod log_format;
mod mistake;
mod model;
mod node;
mod oidc;
mod protected_files;
mod retention;
mod schema;
mod show;
#[cfg(test)]
mod tests;
mod toolsets;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use ::toolsets::sources::SetConfig;
use client::failure::Failure;
use engine::{Guard, PlanCache, retention::RetentionPolicy};
use planner::{select::DEFAULT_MARGIN, toolkit::Toolkit};
use serde_json::Value;
use shared::secret_file::SecretFile;

pub(crate) use self::edit::add_toolset;
pub use self::{
    access::AccessConfig,
    embedding::EmbeddingConfig,
    encryption::EncryptionConfig,
    environment::{Environment, variable},
    http_server::{HttpServerConfig, TlsFiles},
    limits::Limits,
    log_format::LogFormat,
    mistake::{Mistake, Mistakes},
    model::{ModelConfig, PlannerConfig},
    schema::config_schema,
};

const MAX_FILE_BYTES: u64 = 4 << 20;
const DEFAULT_FILE: &str = "faber.yaml";
const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
const DEFAULT_AUDIT_RETENTION: Duration = Duration::from_hours(90 * 24);
const DEFAULT_PLANNER: &str = "offline";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub store: Option<String>,
    pub config: Option<PathBuf>,
    pub server: Option<String>,
    pub log_format: Option<LogFormat>,
    pub listen: Option<String>,
    pub metrics: Option<String>,
    pub node: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag(&'static str),
    Environment(&'static str),
    File,
    Default,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Setting<T> {
    pub value: T,
    pub origin: Origin,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub file: Option<PathBuf>,
    pub data: PathBuf,
    pub store: Setting<String>,
    store_file: Option<PathBuf>,
    pub server: Option<Setting<String>>,
    pub listen: Setting<SocketAddr>,
    pub http_server: Setting<HttpServerConfig>,
    /// The address of a worker's metrics. `None` serves none.
    pub metrics: Option<Setting<SocketAddr>>,
    /// The name of this node in events and traces.
    pub node: Setting<String>,
    pub planner: Setting<PlannerConfig>,
    pub plan_cache: Setting<PlanCache>,
    pub guard: Setting<Guard>,
    pub toolsets: Setting<Vec<SetConfig>>,
    pub limits: Limits,
    pub embedding: Setting<EmbeddingConfig>,
    pub encryption: Setting<Option<EncryptionConfig>>,
    /// Ages after which finished executions are removed. `None` means that they are kept forever.
    pub retention: Setting<Option<RetentionPolicy>>,
    /// Audit entries are removed after this time. `None` keeps them forever.
    pub audit_retention: Setting<Option<Duration>>,
    pub access: Setting<AccessConfig>,
    pub contexts: BTreeMap<String, Value>,
    pub toolkit: Setting<ToolkitFiles>,
    /// `true` if Faber learns from finished executions.
    pub learning: Setting<bool>,
    /// The margin of a hit: a tool is a hit if its score is at least the score of its least similar
    /// example plus this margin.
    pub margin: Setting<f64>,
    pub log_format: Setting<LogFormat>,
    /// The filter of the log. `None` is the default of the command.
    pub log_level: Setting<Option<String>>,
    written_toolsets: Value,
    described_files: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolkitFiles {
    pub files: Vec<PathBuf>,
    pub toolkit: Toolkit,
    pub warnings: Vec<String>,
}

/// A mistake in the configuration. The message names the setting and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    message: String,
    mistakes: Option<Box<Mistakes>>,
}

impl ConfigError {
    pub(crate) fn new(message: String) -> Self {
        Self { message, mistakes: None }
    }
}

impl From<Mistakes> for ConfigError {
    fn from(mistakes: Mistakes) -> Self {
        Self { message: mistakes.summary(), mistakes: Some(Box::new(mistakes)) }
    }
}

/// With `--json`, the failure lists each mistake with its file, line and path.
impl From<ConfigError> for Failure {
    fn from(err: ConfigError) -> Self {
        let failure = Self::usage(err.message);
        match err.mistakes {
            Some(mistakes) => failure.with("errors", mistakes.to_json()),
            None => failure,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    pub wrong_settings: Vec<String>,
    /// `false` if no setting of the file is used, because the file cannot be read or its settings
    /// do not fit together.
    pub is_file_parsed: bool,
    pub omitted_settings: Vec<String>,
}

impl Faults {
    pub fn has_valid_setting(&self, key: &str) -> bool {
        self.is_file_parsed && !self.omitted_settings.iter().any(|omitted| omitted == key)
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self { wrong_settings: Vec::new(), is_file_parsed: true, omitted_settings: Vec::new() }
    }
}

fn find_file(flags: &Flags, environment: &Environment) -> Option<PathBuf> {
    let named = flags.config.clone().or_else(|| environment.config.clone());
    named.or_else(|| Path::new(DEFAULT_FILE).is_file().then(|| PathBuf::from(DEFAULT_FILE)))
}

/// Checks a file, or else the file that other commands read. Returns the path of the file, or
/// `None` if there is none.
pub fn check_file(
    file: Option<PathBuf>,
    flags: &Flags,
    environment: &Environment,
) -> Result<Option<PathBuf>, Mistakes> {
    let Some(path) = file.or_else(|| find_file(flags, environment)) else { return Ok(None) };
    file::read(&path)?;
    Ok(Some(path))
}

impl Config {
    /// Loads the configuration. A flag overrides the environment, the environment overrides the
    /// file, and the file overrides the default.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, ConfigError> {
        let path = find_file(flags, environment);
        let file = path.as_deref().map(file::read).transpose()?.unwrap_or_default();
        Self::from_sources(path, file, flags, environment)
    }

    /// Like [`load`](Self::load), but omits wrong settings of the file and reports them.
    pub fn load_valid_settings(
        flags: &Flags,
        environment: &Environment,
    ) -> Result<(Self, Faults), ConfigError> {
        let path = find_file(flags, environment);
        let Some(named) = &path else {
            return Ok((Self::load(flags, environment)?, Faults::default()));
        };
        let file::PartialFile { file, mistakes, omitted_settings } =
            file::read_valid_settings(named);
        let mut wrong_settings: Vec<String> =
            mistakes.iter().map(|mistake| format!("`{}`: {mistake}", named.display())).collect();
        let mut is_file_parsed = file.is_some();
        let config =
            match Self::from_sources(path.clone(), file.unwrap_or_default(), flags, environment) {
                Ok(config) => config,
                Err(err) => {
                    is_file_parsed = false;
                    wrong_settings.push(err.to_string());
                    Self::from_sources(path, file::File::default(), flags, environment)?
                }
            };
        Ok((config, Faults { wrong_settings, is_file_parsed, omitted_settings }))
    }

    fn from_sources(
        path: Option<PathBuf>,
        file: file::File,
        flags: &Flags,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let data = environment.data_directory()?;
        let server = setting_from_flag("--server", flags.server.as_ref())
            .or_else(|| setting_from_variable("FABER_SERVER", environment.server.as_ref()));
        let (mut toolsets, written_toolsets) = match file.toolsets {
            Some((sets, written)) => (Setting { value: sets, origin: Origin::File }, written),
            None => toolsets::demo_toolset(),
        };
        toolsets.value.extend(file.tools_files_set);
        let store_file = file.store_file.as_ref().map(|file| file.path().to_owned());
        let named = flags.store.is_some() || environment.store.is_some();
        let store = match &file.store_file {
            Some(secret) if !named => Some(read_store_address(secret, path.as_deref())?),
            _ => file.store,
        };
        let log_format = log_format::read_setting(flags, environment, file.log_format)?;
        let log_level = setting_from_variable("FABER_LOG", environment.log.as_ref())
            .or_else(|| file.log_level.map(|value| Setting { value, origin: Origin::File }));
        let log_level =
            log_level.map(|Setting { value, origin }| Setting { value: Some(value), origin });
        Ok(Self {
            log_format: or_default_setting(log_format, LogFormat::default),
            log_level: or_default_setting(log_level, || None),
            file: path,
            store: read_store(flags, environment, store, &data),
            store_file,
            server,
            listen: read_listen(flags, environment)?,
            metrics: read_metrics(flags, environment)?,
            node: node::read_node(flags, environment)?,
            http_server: or_default(file.http_server, HttpServerConfig::default),
            planner: or_default(file.planner, PlannerConfig::default),
            plan_cache: or_default(file.plan_cache, PlanCache::default),
            guard: or_default(file.guard, Guard::default),
            toolsets,
            limits: file.limits,
            embedding: or_default(file.embedding, EmbeddingConfig::default),
            encryption: match file.encryption {
                Some(keys) => Setting { value: Some(keys), origin: Origin::File },
                None => Setting { value: None, origin: Origin::Default },
            },
            retention: match file.retention {
                Some(kept) => Setting { value: Some(kept), origin: Origin::File },
                None => Setting { value: None, origin: Origin::Default },
            },
            audit_retention: or_default(file.audit_retention.map(|age| age.0), || {
                Some(DEFAULT_AUDIT_RETENTION)
            }),
            access: or_default(file.access, AccessConfig::default),
            contexts: file.contexts,
            toolkit: or_default(file.toolkit, ToolkitFiles::default),
            learning: or_default(file.learning, || true),
            margin: or_default(file.margin, || DEFAULT_MARGIN),
            data,
            written_toolsets,
            described_files: file.tools_files,
        })
    }
}

impl Config {
    pub fn file_or_default(&self) -> PathBuf {
        self.file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
    }

    /// Returns the folder for relative paths: the folder of the configuration file, or the current
    /// folder.
    pub fn base_folder(&self) -> std::io::Result<PathBuf> {
        let path = std::path::absolute(self.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE)))?;
        Ok(path.parent().map_or_else(PathBuf::new, Path::to_owned))
    }
}

fn read_store_address(file: &SecretFile, config: Option<&Path>) -> Result<String, ConfigError> {
    let base = config.and_then(Path::parent).unwrap_or(Path::new(""));
    match file.read() {
        Ok(address) => Ok(file::resolve_store(address.trim(), base)),
        Err(reason) => Err(ConfigError::new(format!("`store_file`: {reason}"))),
    }
}

fn read_store(
    flags: &Flags,
    environment: &Environment,
    file: Option<String>,
    data: &Path,
) -> Setting<String> {
    let explicit = setting_from_flag("--store", flags.store.as_ref())
        .or_else(|| setting_from_variable("FABER_STORE", environment.store.as_ref()))
        .or_else(|| file.map(|value| Setting { value, origin: Origin::File }));
    explicit.unwrap_or_else(|| {
        let path = data.join("faber.db");
        Setting { value: format!("sqlite:{}", path.display()), origin: Origin::Default }
    })
}

fn read_listen(
    flags: &Flags,
    environment: &Environment,
) -> Result<Setting<SocketAddr>, ConfigError> {
    let explicit = setting_from_flag("--listen", flags.listen.as_ref())
        .or_else(|| setting_from_variable("FABER_LISTEN", environment.listen.as_ref()));
    parse_address(or_default_setting(explicit, || DEFAULT_LISTEN.to_owned()))
}

fn read_metrics(
    flags: &Flags,
    environment: &Environment,
) -> Result<Option<Setting<SocketAddr>>, ConfigError> {
    let explicit = setting_from_flag("--metrics", flags.metrics.as_ref())
        .or_else(|| setting_from_variable("FABER_METRICS", environment.metrics.as_ref()));
    explicit.map(parse_address).transpose()
}

fn parse_address(
    Setting { value, origin }: Setting<String>,
) -> Result<Setting<SocketAddr>, ConfigError> {
    let complaint = |_| {
        ConfigError::new(format!(
            "`{value}` ({origin}) is not an address to listen on: write an address and a port, \
             such as `{DEFAULT_LISTEN}`, or port 0 for any free port"
        ))
    };
    let text = value.replace("localhost:", "127.0.0.1:");
    let value = text.parse().map_err(complaint)?;
    Ok(Setting { value, origin })
}

fn setting_from_flag(name: &'static str, value: Option<&String>) -> Option<Setting<String>> {
    value.cloned().map(|value| Setting { value, origin: Origin::Flag(name) })
}

fn setting_from_variable(name: &'static str, value: Option<&String>) -> Option<Setting<String>> {
    value.cloned().map(|value| Setting { value, origin: Origin::Environment(name) })
}

fn or_default<T>(file: Option<T>, default: impl FnOnce() -> T) -> Setting<T> {
    or_default_setting(file.map(|value| Setting { value, origin: Origin::File }), default)
}

fn or_default_setting<T>(explicit: Option<Setting<T>>, default: impl FnOnce() -> T) -> Setting<T> {
    explicit.unwrap_or_else(|| Setting { value: default(), origin: Origin::Default })
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(name) | Self::Environment(name) => f.write_str(name),
            Self::File => f.write_str("file"),
            Self::Default => f.write_str("default"),
        }
    }
}
