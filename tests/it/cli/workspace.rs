//! An empty folder in which tests run the binary.

use std::{fs, path::PathBuf, process::Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tests::{binary::faber, toolset::MAX_WAIT};
use tokio::{process::Command, time::timeout};

use super::running_command::RunningCommand;

pub(crate) const DEMO_QUERY: &str = "Create author Alice with email alice@test.com, then create blog by \
     Alice titled Hello about world";

pub(crate) struct Workspace(TempDir);

#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Prepares a command that runs in this folder. Its environment has only `HOME`, which is this
    /// folder, too.
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

    pub(crate) async fn run(&self, arguments: &[&str]) -> CommandOutput {
        let output = timeout(MAX_WAIT, self.command(arguments).output()).await;
        let output = output.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
        CommandOutput {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) async fn json(&self, arguments: &[&str], status: i32) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat()).await;
        assert_eq!(ended.status, status, "{ended:?}");
        serde_json::from_str(&ended.out).unwrap_or_else(|err| panic!("{err}: {ended:?}"))
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> RunningCommand {
        RunningCommand::new(self.command(arguments).spawn().unwrap())
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
