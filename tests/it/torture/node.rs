//! A node, which is a process of the real binary. Tests kill, freeze, drain and restart it.

use std::{process::ExitStatus, time::Duration};

use tokio::time::Instant;

use super::workspace::{DRAIN_LIMIT, Workspace};
use crate::harness::{MAX_START, Process};

/// Extra time for a drain, because the machine can be busy.
const DRAIN_MARGIN: Duration = Duration::from_secs(15);
/// Exit code of a process that cannot reach its store.
const UNREACHABLE_STATUS: i32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Serve,
    Work,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) role: Role,
    pub(super) process: Process,
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
                    if status.code() == Some(UNREACHABLE_STATUS) && Instant::now() < deadline => {}
                Err((status, output)) => {
                    return Err(format!("a node ended with {status}: {output}"));
                }
            }
        }
    }

    async fn try_start(workspace: &Workspace, role: Role) -> Result<Self, (ExitStatus, String)> {
        let mut process = match role {
            Role::Serve => workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]),
            Role::Work => workspace.spawn(&["worker"]),
        };
        let started = match role {
            Role::Serve => process.wait_for_address().await.map(Some),
            Role::Work => process.wait_for_worker().await.map(|()| None),
        };
        match started {
            Ok(address) => Ok(Self { role, process, address }),
            Err(status) => Err((status, process.output())),
        }
    }

    /// Sends SIGTERM and waits for the end. `store_bound` is the longest delay of the store.
    pub(super) async fn drain(&mut self, store_bound: Duration) -> Result<Duration, String> {
        // The limit counts twice, because the server drains first, and then the worker.
        self.process.drain(2 * DRAIN_LIMIT + store_bound + DRAIN_MARGIN).await
    }
}
