//! The binary as a node that is killed, frozen and told to end, and always comes again.

use std::{
    path::PathBuf,
    process::{Command, ExitStatus},
    time::Duration,
};

use tokio::{
    process::Child,
    time::{Instant, interval, timeout},
};

use super::home::{DRAIN, Home, read};

/// How long a process may take until it works, the store being well.
const START: Duration = Duration::from_mins(1);
/// What a process that drains may take beyond the drain of its server and of its worker: the
/// machine has two cores and other things to do.
const MARGIN: Duration = Duration::from_secs(15);
/// How often is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(10);
/// The status of a process that cannot reach its store.
const UNREACHABLE: i32 = 3;

/// A process of the binary.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    said: PathBuf,
}

impl Process {
    pub(super) fn new(child: Child, said: PathBuf) -> Self {
        Self { child, said }
    }

    /// Waits until it has said something, and returns that line; or how it ended before.
    pub(super) async fn line(&mut self, part: &str) -> Result<String, ExitStatus> {
        let mut look = interval(LOOK);
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
        timeout(START, found).await.unwrap_or_else(|_| panic!("it does not say `{part}`"))
    }

    /// Returns what it said.
    pub(super) fn said(&self) -> String {
        read(&self.said)
    }

    /// Returns how it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends a signal.
    pub(super) fn signal(&self, name: &str) {
        let id = self.child.id().expect("nobody has waited for it").to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Kills it, and waits until it is dead.
    pub(super) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Tells it to end and waits until it has, for no longer than it may take. It must say that
    /// all is well.
    pub(super) async fn drain(&mut self, store_bound: Duration) -> Result<Duration, String> {
        let begun = Instant::now();
        self.signal("-TERM");
        // The server and the worker drain one after the other.
        let bound = 2 * DRAIN + store_bound + MARGIN;
        match timeout(bound, self.child.wait()).await {
            Err(_) => Err(format!("told to end, it has not within {bound:?}")),
            Ok(status) if status.as_ref().unwrap().success() => Ok(begun.elapsed()),
            Ok(status) => Err(format!("told to end, it did with {}", status.unwrap())),
        }
    }
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It serves the API, and works.
    Serve,
    /// It works.
    Work,
}

/// A process that is there again after it has gone.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) role: Role,
    pub(super) process: Process,
    /// Where it listens, if it serves.
    pub(super) address: Option<String>,
}

impl Node {
    /// Starts a node, and waits until it works. While the store cannot be reached it is told so,
    /// and tries again.
    pub(super) async fn start(home: &Home, role: Role) -> Result<Self, String> {
        let deadline = Instant::now() + START;
        loop {
            match Self::try_start(home, role).await {
                Ok(node) => return Ok(node),
                Err((status, _))
                    if status.code() == Some(UNREACHABLE) && Instant::now() < deadline => {}
                Err((status, said)) => return Err(format!("a node ended with {status}: {said}")),
            }
        }
    }

    async fn try_start(home: &Home, role: Role) -> Result<Self, (ExitStatus, String)> {
        let (arguments, part): (&[&str], _) = match role {
            Role::Serve => (&["serve", "--listen", "127.0.0.1:0"], "listening on http://"),
            Role::Work => (&["worker"], "working on "),
        };
        let mut process = home.begin(arguments);
        let line = match process.line(part).await {
            Ok(line) => line,
            Err(status) => return Err((status, process.said())),
        };
        let address = line.rsplit('/').next().filter(|_| role == Role::Serve);
        Ok(Self { role, address: address.map(str::to_owned), process })
    }
}
