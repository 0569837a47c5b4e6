//! Injects faults. A seed decides which fault happens, on which node, when, and for how long.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tests::faulty::Dice;
use tokio::time::{Instant, sleep};

use super::{
    node::{Node, Role},
    shared_run::SharedRun,
    store_faults::TorturedStore,
    workspace::{LEASE, Workspace},
};

const NODE_ROLES: [Role; 3] = [Role::Serve, Role::Serve, Role::Work];
/// Longest pause between two faults, in milliseconds.
const MAX_PAUSE_MS: u64 = 900;
/// Longest time between the end and the restart of a node, in milliseconds.
const MAX_AWAY_MS: u64 = 900;
/// Time that an unreachable store can add to a drain, because the worker removes itself from the
/// store at the end.
const MAX_STORE_DELAY: Duration = Duration::from_secs(25);

pub(super) struct FaultInjector<'a> {
    workspace: &'a Workspace,
    run: Arc<SharedRun>,
    tortured_store: &'a TorturedStore,
    dice: Dice,
    nodes: Vec<Node>,
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// Longest time that a process took to drain.
    pub(super) slowest_drain: Duration,
}

impl<'a> FaultInjector<'a> {
    pub(super) async fn new(
        workspace: &'a Workspace,
        run: &Arc<SharedRun>,
        tortured_store: &'a TorturedStore,
        dice: Dice,
    ) -> Self {
        let mut nodes = Vec::new();
        for (number, role) in NODE_ROLES.into_iter().enumerate() {
            let node =
                Node::start(workspace, role).await.expect("the store works before the first fault");
            run.set_address(number, node.address.clone());
            nodes.push(node);
        }
        let (run, faults) = (Arc::clone(run), BTreeMap::new());
        Self { workspace, run, tortured_store, dice, nodes, faults, slowest_drain: Duration::ZERO }
    }

    pub(super) async fn inject_until(&mut self, end: Instant) {
        while Instant::now() < end {
            sleep(Duration::from_millis(self.dice.draw_below(MAX_PAUSE_MS))).await;
            self.inject_fault().await;
            self.restart_ended().await;
        }
    }

    async fn inject_fault(&mut self) {
        let number = self.dice.draw_index(self.nodes.len());
        match self.dice.draw_below(100) {
            0..26 => self.kill(number).await,
            26..32 => self.kill_all().await,
            32..50 => self.freeze(number).await,
            50..64 => self.drain(number).await,
            _ => self.inject_store_fault(number).await,
        }
    }

    async fn inject_store_fault(&mut self, number: usize) {
        let (tortured_store, dice) = (self.tortured_store, self.dice.clone());
        let fault = if dice.happens(300) {
            tokio::join!(tortured_store.inject_fault(&dice), self.kill(number)).0
        } else {
            tortured_store.inject_fault(&dice).await
        };
        self.count_fault(fault);
    }

    pub(super) async fn heal(&mut self) {
        self.tortured_store.heal().await;
        self.restart_ended().await;
    }

    fn count_fault(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    async fn kill(&mut self, number: usize) {
        self.count_fault("kill");
        self.nodes[number].process.kill().await;
        self.restart_later(number).await;
    }

    async fn kill_all(&mut self) {
        self.count_fault("kill of all");
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.process.kill().await;
            self.run.set_address(number, None);
        }
        for number in 0..self.nodes.len() {
            self.restart(number).await;
        }
    }

    /// Stops a process, about every second time for longer than its lease, and then lets it
    /// continue. Sometimes kills another node during that time.
    async fn freeze(&mut self, number: usize) {
        self.count_fault("freeze");
        let lease = u64::try_from(LEASE.as_millis()).unwrap();
        let frozen = Duration::from_millis(100 + self.dice.draw_below(2 * lease));
        self.nodes[number].process.signal("-STOP");
        if self.dice.happens(300) {
            let other = (number + 1) % self.nodes.len();
            self.kill(other).await;
        }
        sleep(frozen).await;
        self.nodes[number].process.signal("-CONT");
    }

    async fn drain(&mut self, number: usize) {
        self.count_fault("rolling restart");
        self.drain_node(number).await;
        self.restart_later(number).await;
    }

    async fn drain_node(&mut self, number: usize) {
        self.run.set_address(number, None);
        match self.nodes[number].drain(MAX_STORE_DELAY).await {
            Ok(durations) => self.slowest_drain = self.slowest_drain.max(durations),
            Err(error) => self.run.add_violation(format!("node {number}: {error}")),
        }
    }

    async fn restart_later(&mut self, number: usize) {
        self.run.set_address(number, None);
        sleep(Duration::from_millis(self.dice.draw_below(MAX_AWAY_MS))).await;
        self.restart(number).await;
    }

    async fn restart(&mut self, number: usize) {
        let role = self.nodes[number].role;
        match Node::start(self.workspace, role).await {
            Ok(node) => {
                self.run.set_address(number, node.address.clone());
                self.nodes[number] = node;
            }
            Err(error) => panic!("node {number} does not restart: {error}"),
        }
    }

    /// Restarts nodes that have ended although no fault stopped them. Reports each as a violation.
    async fn restart_ended(&mut self) {
        for number in 0..self.nodes.len() {
            let Some(status) = self.nodes[number].process.exit_status() else { continue };
            let output = self.nodes[number].process.output();
            self.run.add_violation(format!(
                "node {number} ended without being told, with {status}: {output}"
            ));
            self.restart(number).await;
        }
    }

    pub(super) fn serving_address(&self) -> &str {
        let mut addresses = self.nodes.iter().filter_map(|node| node.address.as_deref());
        addresses.next().expect("some nodes serve")
    }

    pub(super) async fn end_all(&mut self) {
        self.restart_ended().await;
        for number in 0..self.nodes.len() {
            self.drain_node(number).await;
        }
    }
}
