//! Whatever goes wrong: one seed says what, when, to whom, and for how long.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tests::faulty::Dice;
use tokio::time::{Instant, sleep};

use super::{
    ground::Ground,
    home::{Home, LEASE},
    node::{Node, Role},
    scene::Scene,
};

/// The nodes.
const ROLES: [Role; 3] = [Role::Serve, Role::Serve, Role::Work];
/// The longest calm between two faults, in milliseconds.
const CALM_MS: u64 = 900;
/// The longest time that a node stays away, in milliseconds.
const AWAY_MS: u64 = 900;
/// What a store may take to say that it cannot be reached: a process that drains says goodbye.
const STORE_BOUND: Duration = Duration::from_secs(25);

/// Does harm to everything, and puts it right again.
pub(super) struct Tormentor<'a> {
    home: &'a Home,
    scene: Arc<Scene>,
    ground: &'a Ground,
    dice: Dice,
    nodes: Vec<Node>,
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// The longest that a process took to end when told to.
    pub(super) slowest_drain: Duration,
}

impl<'a> Tormentor<'a> {
    /// Starts the nodes.
    pub(super) async fn new(
        home: &'a Home,
        scene: &Arc<Scene>,
        ground: &'a Ground,
        dice: Dice,
    ) -> Self {
        let mut nodes = Vec::new();
        for (number, role) in ROLES.into_iter().enumerate() {
            let node = Node::start(home, role).await.expect("nothing has gone wrong yet");
            scene.moved(number, node.address.clone());
            nodes.push(node);
        }
        let (scene, faults) = (Arc::clone(scene), BTreeMap::new());
        Self { home, scene, ground, dice, nodes, faults, slowest_drain: Duration::ZERO }
    }

    /// Does harm until `end`.
    pub(super) async fn torment(&mut self, end: Instant) {
        while Instant::now() < end {
            sleep(Duration::from_millis(self.dice.below(CALM_MS))).await;
            self.do_harm().await;
            self.look_after().await;
        }
    }

    async fn do_harm(&mut self) {
        let number = self.dice.index(self.nodes.len());
        match self.dice.below(100) {
            0..26 => self.kill(number).await,
            26..32 => self.kill_all().await,
            32..50 => self.freeze(number).await,
            50..64 => self.drain(number).await,
            _ => self.harm_store(number).await,
        }
    }

    /// Lets the store have trouble, and perhaps a node at the same time.
    async fn harm_store(&mut self, number: usize) {
        let (ground, dice) = (self.ground, self.dice.clone());
        let fault = if dice.happens(300) {
            tokio::join!(ground.harm(&dice), self.kill(number)).0
        } else {
            ground.harm(&dice).await
        };
        self.note(fault);
    }

    /// Puts the store right, and brings back whoever has gone.
    pub(super) async fn heal(&mut self) {
        self.ground.heal().await;
        self.look_after().await;
    }

    fn note(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    async fn kill(&mut self, number: usize) {
        self.note("kill");
        self.nodes[number].process.kill().await;
        self.return_later(number).await;
    }

    async fn kill_all(&mut self) {
        self.note("kill of all");
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.process.kill().await;
            self.scene.moved(number, None);
        }
        for number in 0..self.nodes.len() {
            self.restart(number).await;
        }
    }

    /// Stops a process in mid-air, mostly for longer than its lease, and lets it go on as if
    /// nothing had happened. Another one may be killed meanwhile.
    async fn freeze(&mut self, number: usize) {
        self.note("freeze");
        let lease = u64::try_from(LEASE.as_millis()).unwrap();
        let frozen = Duration::from_millis(100 + self.dice.below(2 * lease));
        self.nodes[number].process.signal("-STOP");
        if self.dice.happens(300) {
            let other = (number + 1) % self.nodes.len();
            self.kill(other).await;
        }
        sleep(frozen).await;
        self.nodes[number].process.signal("-CONT");
    }

    /// Tells a process to end, as a rolling restart does.
    async fn drain(&mut self, number: usize) {
        self.note("rolling restart");
        self.end(number).await;
        self.return_later(number).await;
    }

    async fn end(&mut self, number: usize) {
        self.scene.moved(number, None);
        match self.nodes[number].process.drain(STORE_BOUND).await {
            Ok(took) => self.slowest_drain = self.slowest_drain.max(took),
            Err(why) => self.scene.wrong(format!("node {number}: {why}")),
        }
    }

    async fn return_later(&mut self, number: usize) {
        self.scene.moved(number, None);
        sleep(Duration::from_millis(self.dice.below(AWAY_MS))).await;
        self.restart(number).await;
    }

    async fn restart(&mut self, number: usize) {
        let role = self.nodes[number].role;
        match Node::start(self.home, role).await {
            Ok(node) => {
                self.scene.moved(number, node.address.clone());
                self.nodes[number] = node;
            }
            Err(why) => panic!("node {number} does not come again: {why}"),
        }
    }

    /// Brings back who has ended without being told, which nobody may.
    async fn look_after(&mut self) {
        for number in 0..self.nodes.len() {
            let Some(status) = self.nodes[number].process.ended() else { continue };
            let said = self.nodes[number].process.said();
            self.scene.wrong(format!("node {number} ended by itself with {status}: {said}"));
            self.restart(number).await;
        }
    }

    /// Returns where a server listens.
    pub(super) fn address(&self) -> &str {
        let mut addresses = self.nodes.iter().filter_map(|node| node.address.as_deref());
        addresses.next().expect("some nodes serve")
    }

    /// Ends every node as a person would.
    pub(super) async fn end_all(&mut self) {
        self.look_after().await;
        for number in 0..self.nodes.len() {
            self.end(number).await;
        }
    }
}
