//! A command that runs while the test continues.

use std::process::Command;

use tests::toolset::MAX_WAIT;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStderr},
    time::timeout,
};

use super::workspace::CommandOutput;

pub(crate) struct RunningCommand {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl RunningCommand {
    pub(crate) fn new(mut child: Child) -> Self {
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    pub(crate) async fn wait_for_line(&mut self, part: &str) -> String {
        let found = async {
            loop {
                let line = self.lines.next_line().await.unwrap();
                let line =
                    line.unwrap_or_else(|| panic!("the command ended before it printed `{part}`"));
                if line.contains(part) {
                    return line;
                }
            }
        };
        timeout(MAX_WAIT, found)
            .await
            .unwrap_or_else(|_| panic!("the command does not print `{part}`"))
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    pub(crate) async fn wait_for_exit(mut self) -> CommandOutput {
        let ending = async {
            let (mut out, mut err) = (String::new(), String::new());
            let mut stdout = self.child.stdout.take().unwrap();
            let mut stderr = self.lines.into_inner();
            let (read, output) =
                tokio::join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err));
            read.unwrap();
            output.unwrap();
            let status = self.child.wait().await.unwrap();
            CommandOutput { status: status.code().unwrap_or(-1), out, err }
        };
        timeout(MAX_WAIT, ending).await.expect("the command ends")
    }
}
