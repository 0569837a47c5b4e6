//! Checks that Faber loses no event and repeats no effect while its processes and its store fail.
//!
//! Several processes of the real binary share one store. Clients connect and leave, and a seed
//! decides which faults happen, when, and for how long. Afterwards the logs, the events that
//! clients received, and a ledger that the tools write outside the system must agree.
//! `FABER_TORTURE_SECONDS=3600` runs for an hour, and `FABER_TORTURE_SEED=7` chooses other faults.
//! On a machine that cannot mount a tmpfs, `FABER_TORTURE_NO_TMPFS=1` skips tests and faults that
//! need one.
#![expect(clippy::print_stderr, reason = "prints the figures of the run")]

mod audit;
mod clients;
mod cluster;
mod damaged_data;
mod disk;
mod failover;
mod fault_injector;
mod forged_logs;
mod full_disk;
mod log_checker;
mod node;
mod people;
mod plans;
mod refused_stores;
mod shared_run;
mod store_faults;
mod takeover;
mod task_state;
mod workspace;

use std::{collections::BTreeMap, time::Duration};

use tests::faulty::Dice;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use self::{
    audit::{Audit, AuditCounts},
    clients::{ClientRecord, spawn_clients},
    fault_injector::FaultInjector,
    shared_run::SharedRun,
    store_faults::TorturedStore,
    workspace::Workspace,
};
use crate::harness::number_from_env;

/// Duration of the faults in a usual run, in seconds.
const DEFAULT_FAULT_SECONDS: u64 = 20;
const CLIENT_COUNT: u64 = 6;
/// Time for clients to finish after the last fault.
const MAX_FINISH_TIME: Duration = Duration::from_mins(6);

#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_lost_under_faults_on_sqlite() {
    run_under_faults("no_event_is_lost_under_faults_on_sqlite", TorturedStore::sqlite(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_is_lost_under_faults_on_a_replica_set() {
    run_under_faults(
        "no_event_is_lost_under_faults_on_a_replica_set",
        TorturedStore::replica_set().await,
        2,
    )
    .await;
}

async fn run_under_faults(name: &str, tortured_store: TorturedStore, seed: u64) {
    let seed = number_from_env("FABER_TORTURE_SEED").unwrap_or(seed);
    let seconds = number_from_env("FABER_TORTURE_SECONDS").unwrap_or(DEFAULT_FAULT_SECONDS);
    let (run, workspace) = (SharedRun::new(), Workspace::new(tortured_store.url()));
    let mut injector = FaultInjector::new(&workspace, &run, &tortured_store, Dice::new(seed)).await;
    let started_at = Instant::now();
    let clients = spawn_clients(&run, CLIENT_COUNT, seed);
    injector.inject_until(Instant::now() + Duration::from_secs(seconds)).await;
    let calm_at = started_at.elapsed();
    injector.heal().await;
    run.stop_starting();
    let records = join_clients(&run, clients).await;
    let closed_at = started_at.elapsed();
    let mut audit = Audit::new(&workspace, &run, records);
    audit.query_nodes(injector.serving_address()).await;
    injector.end_all().await;
    let mut figures = audit.check_all().await;
    figures.faults = std::mem::take(&mut injector.faults);
    figures.slowest_drain = injector.slowest_drain;
    figures.durations = [calm_at, closed_at, started_at.elapsed()];
    drop(injector);
    report_figures(name, workspace, seed, seconds, &figures);
}

async fn join_clients(
    run: &SharedRun,
    mut clients: JoinSet<Vec<ClientRecord>>,
) -> Vec<ClientRecord> {
    let mut records = Vec::new();
    let all = async {
        while let Some(client) = clients.join_next().await {
            records.extend(client.unwrap());
        }
    };
    if timeout(MAX_FINISH_TIME, all).await.is_err() {
        for (execution, about) in run.list_open_executions() {
            run.add_violation(format!("{execution} ({about}) does not finish"));
        }
    }
    records
}

/// Prints the figures of the run. Fails if there are violations, or if there was no fault, no
/// execution or no call.
fn report_figures(
    name: &str,
    workspace: Workspace,
    seed: u64,
    seconds: u64,
    figures: &AuditCounts,
) {
    eprintln!("{name}, seed {seed}, {seconds} s of faults: {figures}");
    if figures.violations.is_empty() {
        let faults: u64 = figures.faults.values().sum();
        assert!(faults > 0 && figures.executions > 0 && figures.calls > 0, "the run tried nothing");
        return;
    }
    for violation in &figures.violations {
        eprintln!("VIOLATION {violation}");
    }
    let folder = workspace.keep();
    panic!(
        "{} violations; the output of the processes is in {}; repeat with FABER_TORTURE_SEED={seed} \
         FABER_TORTURE_SECONDS={seconds} ./tests/run -p tests --test it torture::{name}",
        figures.violations.len(),
        folder.display()
    );
}

type Counts = BTreeMap<String, u64>;
