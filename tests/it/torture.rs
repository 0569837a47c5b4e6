//! Nothing lost: the proof. Several processes of the real binary over one store, clients that come
//! and go, and one seed that says what goes wrong, when, and for how long.
//!
//! Afterwards the logs, what clients were told, and a ledger that the tools keep outside the system
//! must agree. Longer: `FABER_TORTURE_SECONDS=3600`; otherwise: `FABER_TORTURE_SEED=7`. A machine
//! on which no tmpfs can be mounted must say so with `FABER_TORTURE_NO_TMPFS=1`.
#![expect(clippy::print_stderr, reason = "figures are for whoever watches")]

mod audit;
mod check;
mod clients;
mod cluster;
mod course;
mod damage;
mod disk;
mod failover;
mod faults;
mod forgeries;
mod full;
mod ground;
mod home;
mod node;
mod people;
mod plans;
mod refused;
mod scene;
mod takeover;
pub(crate) mod wire;

use std::{collections::BTreeMap, time::Duration};

use tests::faulty::Dice;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use self::{
    audit::{Audit, Figures},
    clients::{Story, crowd},
    faults::Tormentor,
    ground::Ground,
    home::Home,
    scene::Scene,
};

/// How long there is harm in the usual run.
const SECONDS: u64 = 50;
/// Clients at once.
const CLIENTS: u64 = 6;
/// How long clients may take to come to their ends once nothing goes wrong any more.
const LAST: Duration = Duration::from_mins(6);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_in_a_file() {
    endure("nothing_is_lost_in_a_file", Ground::file(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_in_a_replica_set() {
    endure("nothing_is_lost_in_a_replica_set", Ground::set().await, 2).await;
}

/// Lets a store and everybody who uses it endure what a seed brings, and judges what is left.
async fn endure(name: &str, ground: Ground, seed: u64) {
    let seed = number("FABER_TORTURE_SEED").unwrap_or(seed);
    let seconds = number("FABER_TORTURE_SECONDS").unwrap_or(SECONDS);
    let (scene, home) = (Scene::new(), Home::new(ground.url()));
    let mut tormentor = Tormentor::new(&home, &scene, &ground, Dice::new(seed)).await;
    let begun = Instant::now();
    let clients = crowd(&scene, CLIENTS, seed);
    tormentor.torment(Instant::now() + Duration::from_secs(seconds)).await;
    let calm_at = begun.elapsed();
    tormentor.heal().await;
    scene.close();
    let stories = gather(&scene, clients).await;
    let closed_at = begun.elapsed();
    let mut audit = Audit::new(&home, &scene, stories);
    audit.ask_everybody(tormentor.address()).await;
    tormentor.end_all().await;
    let mut figures = audit.judge().await;
    figures.faults = std::mem::take(&mut tormentor.faults);
    figures.slowest_drain = tormentor.slowest_drain;
    figures.took = [calm_at, closed_at, begun.elapsed()];
    drop(tormentor);
    accept(name, home, seed, seconds, &figures);
}

/// Waits until every client has come to its end.
async fn gather(scene: &Scene, mut clients: JoinSet<Vec<Story>>) -> Vec<Story> {
    let mut stories = Vec::new();
    let all = async {
        while let Some(client) = clients.join_next().await {
            stories.extend(client.unwrap());
        }
    };
    if timeout(LAST, all).await.is_err() {
        for (execution, about) in scene.open() {
            scene.wrong(format!("{execution} ({about}) does not come to its end"));
        }
    }
    stories
}

/// Accepts what happened if nothing was wrong and something was tried.
fn accept(name: &str, home: Home, seed: u64, seconds: u64, figures: &Figures) {
    eprintln!("{name}, seed {seed}, {seconds} s of harm: {figures}");
    if figures.violations.is_empty() {
        let faults: u64 = figures.faults.values().sum();
        assert!(faults > 0 && figures.executions > 0 && figures.calls > 0, "nothing was tried");
        return;
    }
    for violation in &figures.violations {
        eprintln!("VIOLATION {violation}");
    }
    let kept = home.keep();
    panic!(
        "{} violations; what processes said is in {}; once more: FABER_TORTURE_SEED={seed} \
         FABER_TORTURE_SECONDS={seconds} ./tests/run -p tests --test it torture::{name}",
        figures.violations.len(),
        kept.display()
    );
}

/// Reads a number of the environment.
fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "whoever wants more or others says so here")]
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{variable}` is a number")))
}

/// Counts by a word.
type Counts = BTreeMap<String, u64>;
