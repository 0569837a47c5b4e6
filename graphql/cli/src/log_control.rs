//! The log, and its filter, which a reload of the configuration can change.

use client::failure::Failure;
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry,
    filter::{LevelFilter, filter_fn},
    layer::SubscriberExt as _,
    reload::{self, Handle},
    util::SubscriberInitExt as _,
};

use crate::{
    config::{Environment, LogFormat},
    screen,
};

/// Crates that log tokens or whole messages, and the most verbose level that is logged for each of
/// them.
const MAX_LOG_LEVELS: [(&str, LevelFilter); 1] = [("rmcp", LevelFilter::ERROR)];

#[derive(Clone, Debug)]
pub(crate) struct LogControl {
    handle: Handle<EnvFilter, Registry>,
    default: String,
}

impl LogControl {
    pub(crate) fn start(
        environment: &Environment,
        default: String,
        format: LogFormat,
    ) -> Result<Self, Failure> {
        let text = environment.log.as_deref().unwrap_or(&default);
        let filter = parse_log_filter("FABER_LOG", text).map_err(Failure::usage)?;
        let (filter, handle) = reload::Layer::new(filter);
        let level_filter = filter_fn(is_log_allowed);
        let lines = tracing_subscriber::fmt::layer().with_writer(move || screen::LogWriter(format));
        let lines = match format {
            LogFormat::Human => {
                let colours = screen::has_stderr_colours(environment);
                lines.with_ansi(colours).with_target(false).boxed()
            }
            LogFormat::Json => lines.with_ansi(false).json().flatten_event(true).boxed(),
        };
        let logging = tracing_subscriber::registry().with(filter).with(level_filter).with(lines);
        // Fails if a test has installed a logger before, which is harmless.
        let _ = logging.try_init();
        Ok(Self { handle, default })
    }

    pub(crate) fn set_level(&self, level: Option<&str>) {
        let Ok(filter) = parse_log_filter("log_level", level.unwrap_or(&self.default)) else {
            return;
        };
        // Fails only if the log was not started, which happens in tests.
        let _ = self.handle.reload(filter);
    }
}

/// Reads a log filter. Rejects a single word that is not a level, because `EnvFilter` would read it
/// as a module. `setting` is the name in the message.
pub(crate) fn parse_log_filter(setting: &str, text: &str) -> Result<EnvFilter, String> {
    let refuse = |reason: String| {
        let levels = "`error`, `warn`, `info`, `debug`, `trace` or `off`";
        format!(
            "`{setting}` is `{text}`: {reason}; write {levels}, for one module `executor=debug`"
        )
    };
    let mut lone = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let is_plain = |part: &&str| part.chars().all(|letter| letter.is_ascii_alphanumeric());
    if let Some(part) = lone.find(|part| is_plain(part) && part.parse::<LevelFilter>().is_err()) {
        return Err(refuse(format!("`{part}` is not a log level")));
    }
    EnvFilter::try_new(text).map_err(|err| refuse(err.to_string()))
}

/// Keeps the less severe events of the crates in [`MAX_LOG_LEVELS`] out of the log, because they
/// could contain tokens.
fn is_log_allowed(metadata: &Metadata<'_>) -> bool {
    MAX_LOG_LEVELS
        .iter()
        .all(|(name, max)| !metadata.target().starts_with(name) || metadata.level() <= max)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;
    use tracing_subscriber::{Layer, layer::Context};

    use super::*;

    struct LoggedEvents(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber> Layer<S> for LoggedEvents {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let about = event.metadata();
            self.0.lock().unwrap().push(format!("{} {}", about.level(), about.target()));
        }
    }

    #[test]
    fn an_invalid_log_level_is_rejected() {
        for good in ["warn", "", "INFO", "off", "executor=debug,warn", "graphql::cli=trace", "0"] {
            assert!(parse_log_filter("FABER_LOG", good).is_ok(), "{good}");
        }
        for bad in ["loud", "warn,verbose", "executor=loud", "a=b=c"] {
            let refused = parse_log_filter("FABER_LOG", bad).unwrap_err();
            assert!(refused.starts_with(&format!("`FABER_LOG` is `{bad}`")), "{bad}");
        }
    }

    #[test]
    fn whole_messages_of_servers_are_not_logged() {
        let heard = Arc::default();
        let layer = filter_fn(is_log_allowed);
        let logging =
            tracing_subscriber::registry().with(layer).with(LoggedEvents(Arc::clone(&heard)));
        with_default(logging, || {
            tracing::info!(target: "rmcp::service", "received notification");
            tracing::warn!(target: "rmcp::service::client", "Received unexpected message");
            tracing::warn!(target: "rmcp::transport::auth", "a token");
            tracing::error!(target: "rmcp::service", "fail to close sink");
            tracing::trace!(target: "executor", "ours");
        });
        assert_eq!(*heard.lock().unwrap(), ["ERROR rmcp::service", "TRACE executor"]);
    }
}
