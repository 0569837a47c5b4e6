//! Nothing is lost: the real binary, killed and frozen at seeded moments while clients start
//! executions, follow them and come back.
//!
//! Afterwards the log, what clients were told, and a ledger that the tools themselves keep must
//! agree. Many more crashes: `FABER_CRASH_ROUNDS=500`; other ones: `FABER_CRASH_SEED=7`.
#![expect(clippy::print_stderr, reason = "figures are for whoever watches")]

mod check;
mod home;
mod http;
mod plans;
mod scene;

use std::{collections::BTreeSet, time::Duration};

use graphql::store::open_store;
use shared::{
    event::{Event, RecordedEvent},
    id::{ExecutionId, Seq, WorkerId},
    store::{ExecutionFilter, Page, Store},
};
use tests::{faulty::Dice, toolset::PATIENCE};
use tokio::{
    task::JoinSet,
    time::{interval, timeout},
};

use self::{
    check::{Figures, Kept, check, notices_forgeries},
    home::{Home, Process},
    scene::{Scene, Story},
};
use crate::mongod::Mongod;

/// Crashes in each test; more take longer.
const ROUNDS: u64 = 8;
/// Clients at once.
const CLIENTS: u64 = 6;
/// The most that clients are told between two crashes.
const TOLD: u64 = 120;
/// What clients are told before it is certain that something runs.
const RUNNING: u64 = 2 * CLIENTS;
/// The longest time between two crashes, in milliseconds.
const CALM_MS: u64 = 900;
/// The longest that a server lives which does not even come to listen, in milliseconds.
const STILLBORN_MS: u64 = 150;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing() {
    let home = Home::with_file();
    let figures = survive(&home, number("FABER_CRASH_SEED").unwrap_or(1)).await;
    accept(&figures);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_on_mongod() {
    let home = Home::with_store(Mongod::shared().await.fresh_url());
    let figures = survive(&home, number("FABER_CRASH_SEED").unwrap_or(2)).await;
    accept(&figures);
}

/// Two processes take turns at being frozen for longer than their lease, while the other takes
/// over; thawed, each believes for a moment that nothing has happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_process_does_no_harm_on_mongod() {
    let home = Home::with_store(Mongod::shared().await.fresh_url());
    let dice = Dice::new(number("FABER_CRASH_SEED").unwrap_or(3));
    let store = open_store(home.store()).await.unwrap();
    let (server, address) = home.serve().await;
    let worker = home.work().await;
    let scene = Scene::new(address);
    let crowd = scene.crowd(CLIENTS, 3);
    let freezes = number("FABER_CRASH_ROUNDS").unwrap_or(ROUNDS).div_ceil(2);
    for _ in 0..freezes {
        for process in [&server, &worker] {
            scene.proceed(RUNNING, PATIENCE).await;
            let told = 1 + dice.below(TOLD);
            scene.proceed(told, Duration::from_millis(dice.below(CALM_MS))).await;
            freeze(process, &*store, &scene.open()).await;
        }
    }
    let figures = end(&home, &scene, server, closed(&home, &scene, crowd).await).await;
    worker.end().await;
    eprintln!("{freezes} freezes of each of two processes: {figures:?}");
    accept(&figures);
}

/// Freezes a process until others have taken all that it had.
async fn freeze(process: &Process, store: &dyn Store, open: &[String]) {
    process.signal("-STOP");
    let mut owners = Vec::new();
    for id in open {
        let id = id.parse().unwrap();
        owners.push((id, owner(store, id).await));
    }
    let taken = async {
        let mut poll = interval(Duration::from_millis(20));
        for (id, before) in owners {
            // Those that the other one has come to their end.
            while !is_over(store, id).await && owner(store, id).await == before {
                poll.tick().await;
            }
        }
    };
    timeout(PATIENCE, taken).await.expect("others take over");
    process.signal("-CONT");
}

async fn owner(store: &dyn Store, id: ExecutionId) -> Option<WorkerId> {
    let log = read(store, id).await;
    let claims = log.iter().filter_map(|recorded| match &recorded.event {
        Event::Claimed(claimed) => Some(claimed.worker),
        _ => None,
    });
    claims.fold(None, |_, claimer| Some(claimer))
}

async fn is_over(store: &dyn Store, id: ExecutionId) -> bool {
    read(store, id).await.last().is_some_and(|recorded| recorded.event.is_last())
}

/// Kills the server again and again, and returns what came of it.
async fn survive(home: &Home, seed: u64) -> Figures {
    let dice = Dice::new(seed);
    let rounds = number("FABER_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let (mut server, address) = home.serve().await;
    let scene = Scene::new(address);
    let crowd = scene.crowd(CLIENTS, seed);
    let mut kills = 0;
    for round in 0..rounds {
        // Some crashes come before a server has done anything; on a slow machine all would.
        if round % 2 == 0 {
            scene.proceed(RUNNING, PATIENCE).await;
        }
        scene.proceed(dice.below(TOLD), Duration::from_millis(dice.below(CALM_MS))).await;
        server.kill().await;
        kills += 1;
        if dice.happens(250) {
            home.stillborn(Duration::from_millis(dice.below(STILLBORN_MS))).await;
            kills += 1;
        }
        let address;
        (server, address) = home.serve().await;
        scene.moved(address);
    }
    let figures = end(home, &scene, server, closed(home, &scene, crowd).await).await;
    eprintln!("{kills} kills: {figures:?}");
    figures
}

/// Waits for the end of everything, and shows what does not come to it.
async fn closed(home: &Home, scene: &Scene, crowd: JoinSet<Vec<Story>>) -> Vec<Story> {
    let open = match scene.close(crowd).await {
        Ok(stories) => return stories,
        Err(open) => open,
    };
    let store = open_store(home.store()).await.unwrap();
    for id in &open {
        let id = id.parse().unwrap();
        eprintln!("{:?}", store.head(id).await);
        for recorded in read(&*store, id).await {
            eprintln!("{recorded:?}");
        }
    }
    panic!("these do not end: {open:?}");
}

/// Asks the server once more for everything, ends it, and checks what it leaves behind.
async fn end(home: &Home, scene: &Scene, server: Process, stories: Vec<Story>) -> Figures {
    let mut wrongs = Vec::new();
    for story in &stories {
        let (again, kept) = scene.ask_again(story).await;
        let id = &story.execution;
        if again != *id {
            wrongs.push(format!("{id} was acknowledged, and then {again} under the same key"));
        }
        if story.events != kept {
            let same = story.events.iter().zip(&kept).take_while(|(told, kept)| told == kept);
            let (same, told) = (same.count(), story.events.len());
            let what = (story.events.get(same), kept.get(same));
            wrongs.push(format!("{id}: told {told} events, kept {}: {what:?}", kept.len()));
        }
    }
    server.end().await;
    let kept = everything(home).await;
    let told: BTreeSet<String> = stories.iter().map(|story| story.execution.clone()).collect();
    let stored: BTreeSet<String> = kept.iter().map(|head| head.id.to_string()).collect();
    if told != stored {
        wrongs.push(format!("acknowledged is {told:?}, stored is {stored:?}"));
    }
    let ledger = home.ledger();
    let mut figures = check(&kept, &ledger);
    notices_forgeries(&kept, &ledger);
    figures.violations.extend(wrongs);
    figures
}

/// Reads everything from the store, past every server.
async fn everything(home: &Home) -> Vec<Kept> {
    let store = open_store(home.store()).await.unwrap();
    let (mut kept, mut page) = (Vec::new(), Page { first: 100, after: None });
    loop {
        let heads = store.list_heads(&ExecutionFilter::default(), &page).await.unwrap();
        for (_, head) in &heads.items {
            let plan = store.plan(head.plan).await.unwrap().unwrap();
            kept.push(Kept { id: head.execution, plan, log: read(&*store, head.execution).await });
        }
        match heads.items.last() {
            Some((cursor, _)) if heads.has_more => page.after = Some(cursor.clone()),
            _ => return kept,
        }
    }
}

async fn read(store: &dyn Store, id: ExecutionId) -> Vec<RecordedEvent> {
    let mut log: Vec<RecordedEvent> = Vec::new();
    loop {
        let after = log.last().map_or(Seq::START, |recorded| recorded.seq);
        let more = store.read(id, after).await.unwrap();
        if more.is_empty() {
            return log;
        }
        log.extend(more);
    }
}

/// Accepts what happened if nothing was wrong and something was tried.
fn accept(figures: &Figures) {
    assert!(figures.violations.is_empty(), "{:#?}", figures.violations);
    assert!(figures.executions > 0 && figures.calls > 0, "nothing was done: {figures:?}");
    let cut_off = figures.interrupted + figures.unknown;
    assert!(figures.taken_over > 0 && cut_off > 0, "nothing was cut off: {figures:?}");
}

fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "whoever wants more or others says so here")]
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{variable}` is a number")))
}
