//! Reloads the configuration of a running server or worker. A configuration with a mistake changes
//! nothing.

use std::collections::BTreeSet;

use engine::access::{Access, Token, TokenChanges};
use executor::call_limits::CurrentCallLimits;
use graphql::server::{Tls, TlsIdentity};
use toolsets::registry::{ConfiguredSets, Registry};

use crate::{
    App,
    config::{Config, ConfigError, Environment, Flags, variable},
    local_engine::{LocalEngine, list_configured_sets},
    log_control::LogControl,
    screen::Screen,
};

struct NextConfig {
    config: Config,
    tokens: Vec<Token>,
    sets: ConfiguredSets,
    identity: Option<TlsIdentity>,
}

pub(crate) struct Reloader {
    flags: Flags,
    environment: Environment,
    screen: Screen,
    log: LogControl,
    config: Config,
    /// The variables for added toolsets. Only a restart changes them.
    secrets: Option<BTreeSet<String>>,
    access: Option<Access>,
    tls: Option<Tls>,
    registry: Registry,
    calls: CurrentCallLimits,
}

impl Reloader {
    pub(crate) fn new(app: &App, local: &LocalEngine, access: Option<Access>) -> Self {
        // Names the file of the start. Otherwise a missing default file would mean a configuration
        // without tokens.
        let file = app.config.file.clone().or_else(|| app.flags.config.clone());
        Self {
            flags: Flags { config: file, ..app.flags.clone() },
            environment: app.environment.clone(),
            screen: app.screen.clone(),
            log: app.log.clone(),
            secrets: app.config.secrets(),
            config: app.config.clone(),
            access,
            tls: None,
            registry: local.engine.tools.inventory.registry().clone(),
            calls: local.call_limits.clone(),
        }
    }

    pub(crate) fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    pub(crate) async fn reload(&mut self) {
        match self.read() {
            Ok(next) => self.apply(next).await,
            Err(err) => {
                tracing::error!("the configuration has a mistake, so nothing was changed: {err}");
            }
        }
    }

    /// Reads everything that can fail, before anything is changed.
    fn read(&self) -> Result<NextConfig, ConfigError> {
        self.check_file()?;
        let config = Config::load(&self.flags, &self.environment)?;
        let tokens = match self.access {
            Some(_) => config.access.value.open_tokens(&config.toolsets.value, variable)?,
            None => Vec::new(),
        };
        self.check_tokens(&tokens)?;
        for set in &config.toolsets.value {
            if let Some(err) = set.secret_files().iter().find_map(|file| file.text().err()) {
                return Err(ConfigError::new(format!("the toolset `{}`: {err}", set.name)));
            }
        }
        let base = config.base_folder().map_err(|err| ConfigError::new(err.to_string()))?;
        let sets = list_configured_sets(&config, &base);
        let sets = ConfiguredSets { sets, contexts: config.contexts.clone() };
        let identity = match (&self.tls, &config.http_server.value.tls) {
            (Some(_), Some(files)) => Some(files.open()?),
            _ => None,
        };
        Ok(NextConfig { config, tokens, sets, identity })
    }

    /// Refuses a file that would silently mean "no settings", and so no tokens: a pipe that was read
    /// at the start, or a file that an editor has emptied and not written yet.
    fn check_file(&self) -> Result<(), ConfigError> {
        let Some(path) = &self.flags.config else { return Ok(()) };
        let refuse = |reason| ConfigError::new(format!("`{}` {reason}", path.display()));
        match std::fs::metadata(path) {
            Ok(about) if !about.is_file() => Err(refuse("is not a regular file")),
            Ok(about) if about.len() == 0 => Err(refuse("is empty")),
            _ => Ok(()),
        }
    }

    /// Refuses a configuration that has lost its last token, such as a half-written file, because
    /// every caller on this machine would then have all rights.
    fn check_tokens(&self, next: &[Token]) -> Result<(), ConfigError> {
        let needs_tokens = self.access.as_ref().is_some_and(Access::requires_token)
            && self.config.http_server.value.oidc.is_none();
        if needs_tokens && next.is_empty() {
            return Err(ConfigError::new(
                "`access.tokens` is empty now, so callers on this machine would need no token: \
                 restart to serve without tokens"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    async fn apply(&mut self, next: NextConfig) {
        let NextConfig { config, tokens, sets, identity } = next;
        let restart = self.list_restart_settings(&config);
        let mut changed: Vec<String> = self.list_changed_settings(&config);
        self.log.set_level(config.log_level.value.as_deref());
        self.calls.replace(config.limits.call_limits().clone());
        let tokens = self.access.as_ref().map(|access| access.replace_tokens(tokens));
        changed.extend(tokens.iter().flat_map(describe_tokens));
        if let (Some(tls), Some(identity)) = (&self.tls, identity)
            && tls.replace(identity)
        {
            changed.push("`server.tls`".to_owned());
        }
        let has_new_sets = self.config.toolsets.value != config.toolsets.value
            || self.config.contexts != config.contexts;
        if has_new_sets && let Err(err) = self.registry.reconfigure(sets).await {
            tracing::warn!(%err, "the toolsets change when the store answers again");
        }
        self.config.toolsets = config.toolsets;
        self.config.contexts = config.contexts;
        self.config.access = config.access;
        self.config.log_level = config.log_level;
        self.config.limits.take_calls_from(config.limits);
        let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(", ") };
        self.screen.say(&format!("reloaded the configuration; changed: {changed}"));
        if !restart.is_empty() {
            self.screen.say(&self.screen.err.yellow(format!(
                "warning: restart to apply the changes of {}",
                restart.join(", ")
            )));
        }
    }

    /// Returns the changed settings that a reload applies, without the tokens and the certificate.
    fn list_changed_settings(&self, next: &Config) -> Vec<String> {
        let now = &self.config;
        let changes = [
            ("toolsets", now.toolsets.value != next.toolsets.value),
            ("contexts", now.contexts != next.contexts),
            ("limits.calls", now.limits.call_limits() != next.limits.call_limits()),
            ("log_level", now.log_level.value != next.log_level.value),
        ];
        changes.iter().filter(|change| change.1).map(|change| format!("`{}`", change.0)).collect()
    }

    fn list_restart_settings(&self, next: &Config) -> Vec<String> {
        let now = &self.config;
        let (now_server, next_server) = (&now.http_server.value, &next.http_server.value);
        let changes = [
            ("store", now.store != next.store),
            ("planner", now.planner != next.planner),
            ("planner.cache", now.plan_cache != next.plan_cache),
            ("planner.guard", now.guard != next.guard),
            ("toolkit_files", now.toolkit != next.toolkit),
            ("learning", now.learning != next.learning),
            ("selection.margin", now.margin != next.margin),
            ("embedding", now.embedding != next.embedding),
            ("encryption", now.encryption != next.encryption),
            ("retention", now.retention != next.retention),
            ("retention.audit", now.audit_retention != next.audit_retention),
            ("access.secrets", self.secrets != next.secrets()),
            ("server", now_server.without_tls_files() != next_server.without_tls_files()),
            ("server.tls", now_server.tls.is_some() != next_server.tls.is_some()),
            ("log_format", now.log_format != next.log_format),
        ];
        let settings = changes.iter().filter(|change| change.1).map(|change| change.0.to_owned());
        let limits = now.limits.all().zip(next.limits.all());
        let limits = limits
            .filter(|((_, now), (_, next))| now.value != next.value)
            .map(|((key, _), _)| format!("limits.{key}"));
        settings.chain(limits).map(|name| format!("`{name}`")).collect()
    }
}

fn describe_tokens(changes: &TokenChanges) -> Vec<String> {
    let TokenChanges { added, changed, removed } = changes;
    let kinds = [("added", added), ("changed", changed), ("removed", removed)];
    let names = kinds.iter().flat_map(|(kind, names)| {
        names.iter().map(move |name| format!("{kind} the token `{name}`"))
    });
    names.collect()
}
