//! A node: a process of the real binary that tests kill, freeze, drain and restart.

use std::{
    path::PathBuf,
    process::{Command, ExitStatus},
    time::Duration,
};

use tokio::{
    process::Child,
    time::{Instant, interval, timeout},
};

use super::workspace::{DRAIN, Workspace, read};

/// Time for a process to start while the store works.
const MAX_START: Duration = Duration::from_mins(1);
/// Extra time for a drain, because the machine has two cores and other work.
const DRAIN_MARGIN: Duration = Duration::from_secs(15);
/// Poll interval.
const POLL: Duration = Duration::from_millis(10);
/// Exit code of a process that cannot reach its store.
const UNREACHABLE: i32 = 3;

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    said: PathBuf,
}

impl Process {
    pub(super) fn new(child: Child, said: PathBuf) -> Self {
        Self { child, said }
    }

    /// Waits until the process prints a line with `part`, and returns the line. Returns the exit
    /// status if the process ends first.
    pub(super) async fn wait_for_line(&mut self, part: &str) -> Result<String, ExitStatus> {
        let mut look = interval(POLL);
        let found = async {
            loop {
                look.tick().await;
                let ended = self.child.try_wait().unwrap();
                let said = read(&self.said);
                if let Some(line) = said.lines().find(|line| line.contains(part)) {
                    return Ok(line.to_owned());
                }
                if let Some(status) = ended {
                    return Err(status);
                }
            }
        };
        timeout(MAX_START, found)
            .await
            .unwrap_or_else(|_| panic!("the process does not print `{part}`"))
    }

    pub(super) fn output(&self) -> String {
        read(&self.said)
    }

    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(super) fn signal(&self, name: &str) {
        let id = self.child.id().expect("the process was not awaited").to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    pub(super) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends SIGTERM and waits for the end. Fails at the limit or with an exit code other than 0.
    /// Returns how long it took.
    pub(super) async fn drain(&mut self, store_bound: Duration) -> Result<Duration, String> {
        let begun = Instant::now();
        self.signal("-TERM");
        // The server drains first, then the worker.
        let bound = 2 * DRAIN + store_bound + DRAIN_MARGIN;
        match timeout(bound, self.child.wait()).await {
            Err(_) => Err(format!("did not drain within {bound:?}")),
            Ok(status) if status.as_ref().unwrap().success() => Ok(begun.elapsed()),
            Ok(status) => Err(format!("drained with {}", status.unwrap())),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Serves the API and executes.
    Serve,
    /// Only executes.
    Work,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) role: Role,
    pub(super) process: Process,
    /// Address of the API, if the node serves it.
    pub(super) address: Option<String>,
}

impl Node {
    /// Starts a node and waits until it works. Starts it again while it cannot reach the store.
    pub(super) async fn start(workspace: &Workspace, role: Role) -> Result<Self, String> {
        let deadline = Instant::now() + MAX_START;
        loop {
            match Self::try_start(workspace, role).await {
                Ok(node) => return Ok(node),
                Err((status, _))
                    if status.code() == Some(UNREACHABLE) && Instant::now() < deadline => {}
                Err((status, said)) => return Err(format!("a node ended with {status}: {said}")),
            }
        }
    }

    async fn try_start(workspace: &Workspace, role: Role) -> Result<Self, (ExitStatus, String)> {
        let (arguments, part): (&[&str], _) = match role {
            Role::Serve => (&["serve", "--listen", "127.0.0.1:0"], "listening on http://"),
            Role::Work => (&["worker"], "working on "),
        };
        let mut process = workspace.spawn(arguments);
        let line = match process.wait_for_line(part).await {
            Ok(line) => line,
            Err(status) => return Err((status, process.output())),
        };
        let address = line.rsplit('/').next().filter(|_| role == Role::Serve);
        Ok(Self { role, address: address.map(str::to_owned), process })
    }
}
