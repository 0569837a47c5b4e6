//! Kills and freezes the real binary while clients start and follow executions. A seed decides
//! when.
//! Afterwards the tests check that the logs, the events that clients received, and the ledger that
//! the tools wrote agree. `FABER_CRASH_ROUNDS=500` kills the binary more often, and
//! `FABER_CRASH_SEED=7` kills it at other moments.
#![expect(clippy::print_stderr, reason = "prints the figures of the run")]

mod log_checker;
mod plans;
mod shared_run;
mod workspace;

use std::{collections::BTreeSet, time::Duration};

use engine::store::open_store;
use shared::{
    event::Event,
    id::{ExecutionId, WorkerId},
    store::Store,
};
use tests::{faulty::Dice, toolset::MAX_WAIT};
use tokio::{
    task::JoinSet,
    time::{interval, timeout},
};

use self::{
    log_checker::{LogCounts, StoredExecution, assert_forgeries_are_found, check_run},
    shared_run::{ClientRecord, SharedRun},
    workspace::{Workspace, drain},
};
use crate::{
    harness::{Process, number_from_env, read_heads, read_log},
    mongod::Mongod,
};

/// Number of crashes in each test, unless `FABER_CRASH_ROUNDS` is set.
const DEFAULT_ROUNDS: u64 = 8;
const CLIENT_COUNT: u64 = 6;
/// Maximum number of events for which a round waits before its crash, apart from
/// [`EVENTS_WHEN_RUNNING`].
const MAX_EVENTS: u64 = 120;
/// Number of received events after which at least one execution certainly runs.
const EVENTS_WHEN_RUNNING: u64 = 2 * CLIENT_COUNT;
/// Maximum duration in milliseconds of the random wait before a crash.
const MAX_PAUSE_MS: u64 = 900;
/// Longest life in milliseconds of a server that is killed before it listens.
const MAX_EARLY_LIFE_MS: u64 = 150;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_again_and_again_loses_no_event_on_sqlite() {
    let workspace = Workspace::with_sqlite();
    let figures =
        run_with_kills(&workspace, number_from_env("FABER_CRASH_SEED").unwrap_or(1)).await;
    assert_accepted(&figures);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_again_and_again_loses_no_event_on_mongodb() {
    let workspace = Workspace::with_store(Mongod::shared().await.new_database_url());
    let figures =
        run_with_kills(&workspace, number_from_env("FABER_CRASH_SEED").unwrap_or(2)).await;
    assert_accepted(&figures);
}

/// Two processes are frozen in turn for longer than their lease, while the other process takes
/// over. After the thaw, each process still believes that it owns its executions.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_frozen_beyond_its_lease_repeats_no_effect() {
    let workspace = Workspace::with_store(Mongod::shared().await.new_database_url());
    let dice = Dice::new(number_from_env("FABER_CRASH_SEED").unwrap_or(3));
    let store = open_store(workspace.store()).await.unwrap();
    let (server, address) = workspace.start_server().await;
    let worker = workspace.start_worker().await;
    let run = SharedRun::new(address);
    let clients = run.spawn_clients(CLIENT_COUNT, 3);
    let freezes = number_from_env("FABER_CRASH_ROUNDS").unwrap_or(DEFAULT_ROUNDS).div_ceil(2);
    for _ in 0..freezes {
        for process in [&server, &worker] {
            run.wait_for_events(EVENTS_WHEN_RUNNING, MAX_WAIT).await;
            let events = 1 + dice.draw_below(MAX_EVENTS);
            run.wait_for_events(events, Duration::from_millis(dice.draw_below(MAX_PAUSE_MS))).await;
            freeze_until_taken_over(process, &*store, &run.list_open_executions()).await;
        }
    }
    let figures = finish_and_check(
        &workspace,
        &run,
        server,
        wait_for_clients(&workspace, &run, clients).await,
    )
    .await;
    drain(worker).await;
    eprintln!("{freezes} freezes of each of two processes: {figures:?}");
    assert_accepted(&figures);
}

/// Freezes a process until each open execution has another owner or has finished.
async fn freeze_until_taken_over(process: &Process, store: &dyn Store, open: &[String]) {
    process.signal("-STOP");
    let mut owners = Vec::new();
    for id in open {
        let id = id.parse().unwrap();
        owners.push((id, read_owner(store, id).await));
    }
    let taken = async {
        let mut poll = interval(Duration::from_millis(20));
        for (id, before) in owners {
            // A finished execution gets no new owner, so the loop does not wait for one.
            while !is_finished(store, id).await && read_owner(store, id).await == before {
                poll.tick().await;
            }
        }
    };
    timeout(MAX_WAIT, taken).await.expect("another worker takes over");
    process.signal("-CONT");
}

async fn read_owner(store: &dyn Store, id: ExecutionId) -> Option<WorkerId> {
    let log = read_log(store, id).await;
    let claims = log.iter().filter_map(|recorded| match &recorded.event {
        Event::Claimed(claimed) => Some(claimed.worker),
        _ => None,
    });
    claims.fold(None, |_, claimer| Some(claimer))
}

async fn is_finished(store: &dyn Store, id: ExecutionId) -> bool {
    read_log(store, id).await.last().is_some_and(|recorded| recorded.event.is_last())
}

async fn run_with_kills(workspace: &Workspace, seed: u64) -> LogCounts {
    let dice = Dice::new(seed);
    let rounds = number_from_env("FABER_CRASH_ROUNDS").unwrap_or(DEFAULT_ROUNDS);
    let (mut server, address) = workspace.start_server().await;
    let run = SharedRun::new(address);
    let clients = run.spawn_clients(CLIENT_COUNT, seed);
    let mut kills = 0;
    for round in 0..rounds {
        // An odd round can kill a server before clients receive events. On a slow machine this
        // would happen in every round, so even rounds wait for events first.
        if round % 2 == 0 {
            run.wait_for_events(EVENTS_WHEN_RUNNING, MAX_WAIT).await;
        }
        run.wait_for_events(
            dice.draw_below(MAX_EVENTS),
            Duration::from_millis(dice.draw_below(MAX_PAUSE_MS)),
        )
        .await;
        server.kill().await;
        kills += 1;
        if dice.happens(250) {
            workspace.kill_early(Duration::from_millis(dice.draw_below(MAX_EARLY_LIFE_MS))).await;
            kills += 1;
        }
        let address;
        (server, address) = workspace.start_server().await;
        run.set_address(address);
    }
    let figures =
        finish_and_check(workspace, &run, server, wait_for_clients(workspace, &run, clients).await)
            .await;
    eprintln!("{kills} kills: {figures:?}");
    figures
}

async fn wait_for_clients(
    workspace: &Workspace,
    run: &SharedRun,
    clients: JoinSet<Vec<ClientRecord>>,
) -> Vec<ClientRecord> {
    let open = match run.stop_and_wait(clients).await {
        Ok(records) => return records,
        Err(open) => open,
    };
    let store = open_store(workspace.store()).await.unwrap();
    for id in &open {
        let id = id.parse().unwrap();
        eprintln!("{:?}", store.head(id).await);
        for recorded in read_log(&*store, id).await {
            eprintln!("{recorded:?}");
        }
    }
    for (file, output) in workspace.outputs_of_processes() {
        eprintln!("{}: {output}", file.display());
    }
    panic!("executions do not finish: {open:?}");
}

/// Repeats every request, ends the server, and checks the stored data.
async fn finish_and_check(
    workspace: &Workspace,
    run: &SharedRun,
    server: Process,
    records: Vec<ClientRecord>,
) -> LogCounts {
    let mut violations = Vec::new();
    for record in &records {
        let (again, kept) = run.repeat_start(record).await;
        let id = &record.execution;
        if again != *id {
            violations.push(format!("{id} was acknowledged, then {again} under the same key"));
        }
        if record.events != kept {
            let same =
                record.events.iter().zip(&kept).take_while(|(received, kept)| received == kept);
            let (same, received) = (same.count(), record.events.len());
            let description = (record.events.get(same), kept.get(same));
            violations.push(format!(
                "{id}: the client received {received} events, the log has {}: {description:?}",
                kept.len()
            ));
        }
    }
    drain(server).await;
    let kept = read_executions(workspace).await;
    let acknowledged: BTreeSet<String> =
        records.iter().map(|record| record.execution.clone()).collect();
    let stored: BTreeSet<String> = kept.iter().map(|head| head.id.to_string()).collect();
    if acknowledged != stored {
        violations.push(format!("acknowledged are {acknowledged:?}, stored are {stored:?}"));
    }
    let ledger = workspace.ledger();
    let mut figures = check_run(&kept, &ledger);
    assert_forgeries_are_found(&kept, &ledger);
    figures.violations.extend(violations);
    figures
}

async fn read_executions(workspace: &Workspace) -> Vec<StoredExecution> {
    let store = open_store(workspace.store()).await.unwrap();
    let mut kept = Vec::new();
    for head in read_heads(&*store).await {
        let plan = store.plan(head.plan).await.unwrap().unwrap();
        let log = read_log(&*store, head.execution).await;
        kept.push(StoredExecution { id: head.execution, plan, log });
    }
    kept
}

/// Fails if there are violations, or if the run had no execution, no call, no takeover or no
/// interrupted call.
fn assert_accepted(figures: &LogCounts) {
    assert!(figures.violations.is_empty(), "{:#?}", figures.violations);
    assert!(figures.executions > 0 && figures.calls > 0, "the run tried nothing: {figures:?}");
    let cut_off = figures.interruptions + figures.unknown_outcomes;
    assert!(figures.takeovers > 0 && cut_off > 0, "no attempt was interrupted: {figures:?}");
}
