//! Somebody sets the clock of one node's machine: no lease lapses, and nothing waits for a year.

use std::{
    fs,
    path::{Path, PathBuf},
};

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp, WallClock},
    event::Event,
    execution::ExecutionState,
    store::ExecutionHead,
};
use tempfile::TempDir;

use super::world::{World, id};
use crate::mongod::Mongod;

/// Where Debian's package `libfaketime` puts the library.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// A year, as libfaketime reads it.
const YEAR: &str = "+31536000";

/// A clock that says what a file says; the monotonic clocks go on as they are.
#[derive(Debug)]
struct FakeClock(PathBuf);

impl FakeClock {
    fn new(home: &Path, name: &str, says: &str) -> Self {
        let clock = Self(home.join(name));
        clock.set(says);
        clock
    }

    fn set(&self, says: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, says).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    /// Returns the variables by which a process goes by this clock.
    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("LD_PRELOAD", library()),
            ("FAKETIME_TIMESTAMP_FILE", self.0.clone()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

fn library() -> PathBuf {
    let path =
        std::env::var_os("FABER_TEST_FAKETIME").map_or_else(|| LIBRARY.into(), PathBuf::from);
    assert!(path.exists(), "there is no {}: apt-get install libfaketime", path.display());
    path
}

/// Returns plans that are under way for longer than a lease: a call that must not happen twice, and one
/// that is tried again, with a sleep behind it.
fn plans() -> [Value; 2] {
    let retry = json!({ "maxAttempts": 4, "backoffMs": 1_500, "multiplier": 1.0, "jitter": false });
    [
        json!([{ "name": "ledger.once", "parameters": { "n": 1, "seconds": 7 } }]),
        json!([
            { "name": "flow.fail", "parameters": { "message": "not yet", "times": 3 }, "retry": retry },
            { "name": "flow.sleep", "parameters": { "ms": 1_500 }, "dependsOn": "flow.fail" },
        ]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_loses_a_lease_where_a_clock_is_set_over_mongodb() {
    clock_is_set(Mongod::shared().await.fresh_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_loses_a_lease_where_a_clock_is_set_over_sqlite() {
    let folder = TempDir::new().unwrap();
    clock_is_set(format!("sqlite:{}", folder.path().join("store.db").display())).await;
}

async fn clock_is_set(url: String) {
    let world = World::over(url, &json!({})).await;
    let clock = FakeClock::new(&world.home.path("."), "clock", "+0");
    let right = world.home.serve().await;
    let moved = world.home.serve_with(&clock.variables()).await;
    let mut begun = 0;
    for says in [YEAR, "+0"] {
        // What is under way while the clock is set.
        let calls = world.home.ledger().len();
        for node in [&right, &moved] {
            for plan in plans() {
                node.start(&plan).await;
                begun += 1;
            }
        }
        world.until_said("both calls have begun", |said| said.len() >= calls + 2).await;
        clock.set(says);
        // What is asked for afterwards.
        for plan in plans() {
            moved.start(&plan).await;
            begun += 1;
        }
        world.all_completed(begun).await;
    }
    // One that never had the right time, and is lost while others work.
    let ahead = FakeClock::new(&world.home.path("."), "ahead", YEAR);
    let wrong = world.home.serve_with(&ahead.variables()).await;
    let calls = world.home.ledger().len();
    right.start(&plans()[0]).await;
    wrong.start(&plans()[1]).await;
    begun += 2;
    world.until_said("the call has begun", |said| said.len() > calls).await;
    wrong.kill().await;
    world.all_completed(begun).await;
    world.called_once();
    for head in world.heads().await {
        let log = world.log(head.execution).await;
        let is_lost = |event: &Event| matches!(event, Event::StepInterrupted { .. });
        assert!(!log.iter().any(|recorded| is_lost(&recorded.event)), "{log:#?}");
    }
}

/// Everything that began by the wrong clock waited for a year after the next start.
#[tokio::test(flavor = "multi_thread")]
async fn waits_that_began_by_a_wrong_clock_are_shortened() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let world = World::over(url, &json!({})).await;
    let ahead = FakeClock::new(&world.home.path("."), "ahead", YEAR);
    let wrong = world.home.serve_with(&ahead.variables()).await;
    let retry = json!({ "maxAttempts": 2, "backoffMs": 6_000, "multiplier": 1.0, "jitter": false });
    wrong.start(&json!([{ "name": "flow.sleep", "parameters": { "ms": 6_000 } }])).await;
    let fail = json!({ "message": "not yet", "times": 1 });
    wrong.start(&json!([{ "name": "flow.fail", "parameters": fail, "retry": retry }])).await;
    let wait = wrong.plan(&json!([{ "name": "flow.wait", "parameters": { "name": "go" } }])).await;
    wrong.execute(&wait, &json!({ "deadlineMs": 6_000 })).await;
    let wish = Timestamp::from_timestamp(WallClock.now().timestamp(), 0).unwrap();
    let wish = wish + TimeDelta::days(2 * 365);
    let planned = wrong.execute(&wait, &json!({ "startAt": wish.to_rfc3339() })).await;
    let all_wait = |heads: &[ExecutionHead]| {
        heads.len() == 4 && heads.iter().all(|head| head.owner.is_none() && head.due.is_some())
    };
    world.until("everything waits", all_wait).await;
    wrong.kill().await;

    let _right = world.home.serve().await;
    let planned = id(&planned);
    let is_as_planned = |head: &ExecutionHead| {
        let waits = head.owner.is_none() && head.due == Some(wish) && head.epoch.0 > 0;
        if head.execution == planned { waits } else { head.state.is_finished() }
    };
    let all_end = |heads: &[ExecutionHead]| heads.iter().all(is_as_planned);
    world.until("what began ends, and what is planned stays so", all_end).await;
    for head in world.heads().await.iter().filter(|head| head.execution != planned) {
        let execution = world.replay(head).await;
        let expected = if execution.missed_deadline() {
            ExecutionState::Failed
        } else {
            ExecutionState::Completed
        };
        let log = world.log(head.execution).await;
        let is_shortened = |event: &Event| matches!(event, Event::WaitsShortened { .. });
        assert!(log.iter().any(|recorded| is_shortened(&recorded.event)), "{log:#?}");
        assert_eq!(head.state, expected, "{log:#?}");
    }
}
