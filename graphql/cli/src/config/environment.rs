use std::{env, ffi::OsString, path::PathBuf};

use client::Secret;

use super::ConfigError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub store: Option<String>,
    pub config: Option<PathBuf>,
    pub server: Option<String>,
    pub token: Option<Secret>,
    pub listen: Option<String>,
    pub metrics: Option<String>,
    pub node: Option<String>,
    pub log: Option<String>,
    pub log_format: Option<String>,
    pub blog_file: Option<PathBuf>,
    pub hub: Option<String>,
    pub data_home: Option<PathBuf>,
    pub home: Option<PathBuf>,
    pub host: Option<String>,
    pub user: Option<String>,
    pub browser: Option<String>,
    /// `true` if `DISPLAY` or `WAYLAND_DISPLAY` is set, so that programs can open windows.
    pub has_display: bool,
    /// `true` if `TERM` is unset or `dumb`, so that lines cannot be redrawn.
    pub cannot_redraw: bool,
    /// `true` if `NO_COLOR` is set but empty, so that it has no effect, and `CLICOLOR` allows
    /// colors.
    pub has_empty_no_color: bool,
}

impl Environment {
    /// Reads the environment. An empty variable counts as unset.
    pub fn from_process() -> Self {
        Self {
            store: read_text_variable("FABER_STORE"),
            config: read_path_variable("FABER_CONFIG"),
            server: read_text_variable("FABER_SERVER"),
            token: read_text_variable("FABER_TOKEN").map(|token| Secret::new(token.trim())),
            listen: read_text_variable("FABER_LISTEN"),
            metrics: read_text_variable("FABER_METRICS"),
            node: read_text_variable("FABER_NODE"),
            log: read_text_variable("FABER_LOG"),
            log_format: read_text_variable("FABER_LOG_FORMAT"),
            blog_file: read_path_variable("FABER_BLOG_FILE"),
            hub: read_text_variable("HF_ENDPOINT"),
            data_home: read_path_variable("XDG_DATA_HOME"),
            home: read_path_variable("HOME"),
            host: read_text_variable("HOSTNAME"),
            user: read_text_variable("USER").or_else(|| read_text_variable("LOGNAME")),
            browser: read_text_variable("BROWSER"),
            has_display: read_os_variable("DISPLAY")
                .or_else(|| read_os_variable("WAYLAND_DISPLAY"))
                .is_some(),
            cannot_redraw: read_os_variable("TERM").is_none_or(|value| value == "dumb"),
            has_empty_no_color: env::var_os("NO_COLOR").is_some_and(|value| value.is_empty())
                && read_os_variable("CLICOLOR").is_none_or(|value| value != "0"),
        }
    }

    pub fn data_directory(&self) -> Result<PathBuf, ConfigError> {
        Ok(self.data_root()?.join("faber"))
    }

    pub fn data_root(&self) -> Result<PathBuf, ConfigError> {
        // Ignores relative paths, as the XDG specification requires.
        let data = self.data_home.clone().filter(|path| path.is_absolute());
        let home = || self.home.as_ref().map(|home| home.join(".local").join("share"));
        data.or_else(home).ok_or_else(|| {
            let reason = "no folder for data is known: set `HOME` or `XDG_DATA_HOME`";
            ConfigError::new(reason.to_owned())
        })
    }

    pub fn host_name(&self) -> String {
        let of_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = self.host.clone().or_else(of_kernel).unwrap_or_default();
        let name = name.trim();
        if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
    }
}

pub fn variable(name: &str) -> Option<String> {
    read_text_variable(name)
}

fn read_os_variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn read_text_variable(name: &str) -> Option<String> {
    read_os_variable(name).map(|value| value.to_string_lossy().into_owned())
}

fn read_path_variable(name: &str) -> Option<PathBuf> {
    read_os_variable(name).map(PathBuf::from)
}
