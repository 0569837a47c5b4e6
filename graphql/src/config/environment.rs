//! The part of the environment that Faber looks at, read once.

use std::{env, ffi::OsString, path::PathBuf};

use super::ConfigError;

/// A text that no `Debug` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the text, for where it is used.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// What the environment said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `FABER_STORE`.
    pub store: Option<String>,
    /// `FABER_CONFIG`.
    pub config: Option<PathBuf>,
    /// `FABER_SERVER`.
    pub server: Option<String>,
    /// `FABER_TOKEN`: what is shown to servers.
    pub token: Option<Secret>,
    /// `FABER_LISTEN`.
    pub listen: Option<String>,
    /// `FABER_LOG`: which events of the log to print.
    pub log: Option<String>,
    /// `FABER_BLOG_FILE`: where the demo keeps its data.
    pub blog_file: Option<PathBuf>,
    /// `HF_ENDPOINT`: where models are fetched from.
    pub hub: Option<String>,
    /// `XDG_DATA_HOME`.
    pub data_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `HOSTNAME`.
    pub host: Option<String>,
    /// `BROWSER`: what opens addresses.
    pub browser: Option<String>,
    /// Whether programs can show windows: `DISPLAY` or `WAYLAND_DISPLAY` is there.
    pub has_display: bool,
    /// Whether `TERM` says that lines cannot be drawn again.
    pub is_dumb: bool,
    /// Whether `NO_COLOR` is there and says nothing, so that it does not count, and `CLICOLOR` does
    /// not say no.
    pub has_empty_no_color: bool,
}

impl Environment {
    /// Reads the environment of this process. A variable that is empty says nothing.
    pub fn of_process() -> Self {
        Self {
            store: text("FABER_STORE"),
            config: path("FABER_CONFIG"),
            server: text("FABER_SERVER"),
            token: text("FABER_TOKEN").map(|token| Secret(token.trim().to_owned())),
            listen: text("FABER_LISTEN"),
            log: text("FABER_LOG"),
            blog_file: path("FABER_BLOG_FILE"),
            hub: text("HF_ENDPOINT"),
            data_home: path("XDG_DATA_HOME"),
            home: path("HOME"),
            host: text("HOSTNAME"),
            browser: text("BROWSER"),
            has_display: os("DISPLAY").or_else(|| os("WAYLAND_DISPLAY")).is_some(),
            is_dumb: os("TERM").is_none_or(|value| value == "dumb"),
            has_empty_no_color: env::var_os("NO_COLOR").is_some_and(|value| value.is_empty())
                && os("CLICOLOR").is_none_or(|value| value != "0"),
        }
    }

    /// Returns where the user's data goes.
    pub fn data_directory(&self) -> Result<PathBuf, ConfigError> {
        Ok(self.data_root()?.join("faber"))
    }

    /// Returns where every program of the user keeps its data.
    pub fn data_root(&self) -> Result<PathBuf, ConfigError> {
        // The specification has relative paths ignored.
        let data = self.data_home.clone().filter(|path| path.is_absolute());
        let home = || self.home.as_ref().map(|home| home.join(".local").join("share"));
        data.or_else(home).ok_or_else(|| {
            let why = "there is no place for data: set `HOME` or `XDG_DATA_HOME`";
            ConfigError(why.to_owned())
        })
    }

    /// Returns the name of this machine, for people.
    pub fn node(&self) -> String {
        let of_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = self.host.clone().or_else(of_kernel).unwrap_or_default();
        let name = name.trim();
        if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
    }
}

/// Returns a variable that the configuration names.
pub fn variable(name: &str) -> Option<String> {
    text(name)
}

fn os(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn text(name: &str) -> Option<String> {
    os(name).map(|value| value.to_string_lossy().into_owned())
}

fn path(name: &str) -> Option<PathBuf> {
    os(name).map(PathBuf::from)
}
