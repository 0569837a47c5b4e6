//! An empty home, and the binary in it.

use std::{fs, path::PathBuf, process::Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tests::{binary::faber, toolset::PATIENCE};
use tokio::{process::Command, time::timeout};

use super::begun::Begun;

/// The query that everything began with.
pub(crate) const SEED: &str = "Create author Alice with email alice@test.com, then create blog by \
     Alice titled Hello about world";

/// An empty home.
pub(crate) struct Home(TempDir);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Prepares a command that finds nothing but this home.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(faber());
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .env("HOME", self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        let output = timeout(PATIENCE, self.command(arguments).output()).await;
        let output = output.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
        Ended {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command with `--json` and returns its one document.
    pub(crate) async fn json(&self, arguments: &[&str], status: i32) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat()).await;
        assert_eq!(ended.status, status, "{ended:?}");
        serde_json::from_str(&ended.out).unwrap_or_else(|err| panic!("{err}: {ended:?}"))
    }

    /// Begins a command and lets it run.
    pub(super) fn begin(&self, arguments: &[&str]) -> Begun {
        Begun::new(self.command(arguments).spawn().unwrap())
    }

    /// Writes a file and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
