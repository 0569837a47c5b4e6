//! The clock of one machine is set a year ahead: no lease is lost, and no wait takes a year.

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
use tests::installed;

use super::cluster::{Cluster, execution_id};
use crate::mongod::Mongod;

/// Path of the library in Debian's package `libfaketime`.
const FAKETIME_LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// A year in seconds, in the format of libfaketime.
const ONE_YEAR_AHEAD: &str = "+31536000";

/// A wall clock whose offset is read from a file. Monotonic clocks are not changed.
#[derive(Debug)]
struct FakeClock(PathBuf);

impl FakeClock {
    fn new(workspace: &Path, name: &str, offset: &str) -> Self {
        let clock = Self(workspace.join(name));
        clock.set(offset);
        clock
    }

    fn set(&self, offset: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, offset).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("LD_PRELOAD", installed::find_path("FABER_TEST_FAKETIME", FAKETIME_LIBRARY)),
            ("FAKETIME_TIMESTAMP_FILE", self.0.clone()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// Returns plans that run longer than a lease: a `once` call, and a step with retries followed by a
/// sleep.
fn long_plans() -> [Value; 2] {
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
async fn a_changed_clock_costs_no_lease_on_mongodb() {
    assert_no_lease_is_lost(Mongod::shared().await.new_database_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_clock_costs_no_lease_on_sqlite() {
    let folder = TempDir::new().unwrap();
    assert_no_lease_is_lost(format!("sqlite:{}", folder.path().join("store.db").display())).await;
}

async fn assert_no_lease_is_lost(url: String) {
    let cluster = Cluster::open(url, &json!({})).await;
    let clock = FakeClock::new(&cluster.workspace.path("."), "clock", "+0");
    let right = cluster.workspace.start_server().await;
    let moved = cluster.workspace.start_server_with(&clock.variables()).await;
    let mut start_count = 0;
    for offset in [ONE_YEAR_AHEAD, "+0"] {
        // The steps of these plans run while the clock is changed.
        let calls = cluster.workspace.complete_ledger_lines().len();
        for node in [&right, &moved] {
            for plan in long_plans() {
                node.start(&plan).await;
                start_count += 1;
            }
        }
        cluster.wait_for_ledger("both calls started", |entries| entries.len() >= calls + 2).await;
        clock.set(offset);
        // These plans start after the change.
        for plan in long_plans() {
            moved.start(&plan).await;
            start_count += 1;
        }
        cluster.wait_for_all_completed(start_count).await;
    }
    // The clock of the next node is wrong from its start. This node is killed while another node
    // works.
    let ahead = FakeClock::new(&cluster.workspace.path("."), "ahead", ONE_YEAR_AHEAD);
    let wrong = cluster.workspace.start_server_with(&ahead.variables()).await;
    let calls = cluster.workspace.complete_ledger_lines().len();
    right.start(&long_plans()[0]).await;
    wrong.start(&long_plans()[1]).await;
    start_count += 2;
    cluster.wait_for_ledger("the call started", |entries| entries.len() > calls).await;
    wrong.kill().await;
    cluster.wait_for_all_completed(start_count).await;
    cluster.assert_once_tools_called_once();
    for head in cluster.read_heads().await {
        let log = cluster.read_log(head.execution).await;
        let is_lost = |event: &Event| matches!(event, Event::StepInterrupted { .. });
        assert!(!log.iter().any(|recorded| is_lost(&recorded.event)), "{log:#?}");
    }
}

/// Regression: after the restart with a right clock, these waits would have lasted a year.
#[tokio::test(flavor = "multi_thread")]
async fn waits_that_began_with_a_clock_far_ahead_are_shortened_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let cluster = Cluster::open(url, &json!({})).await;
    let ahead = FakeClock::new(&cluster.workspace.path("."), "ahead", ONE_YEAR_AHEAD);
    let wrong = cluster.workspace.start_server_with(&ahead.variables()).await;
    let retry = json!({ "maxAttempts": 2, "backoffMs": 6_000, "multiplier": 1.0, "jitter": false });
    wrong.start(&json!([{ "name": "flow.sleep", "parameters": { "ms": 6_000 } }])).await;
    let fail = json!({ "message": "not yet", "times": 1 });
    wrong.start(&json!([{ "name": "flow.fail", "parameters": fail, "retry": retry }])).await;
    let wait =
        wrong.create_plan(&json!([{ "name": "flow.wait", "parameters": { "name": "go" } }])).await;
    wrong.execute(&wait, &json!({ "deadlineMs": 6_000 })).await;
    let start_at = Timestamp::from_timestamp(WallClock.now().timestamp(), 0).unwrap();
    let start_at = start_at + TimeDelta::days(2 * 365);
    let planned = wrong.execute(&wait, &json!({ "startAt": start_at.to_rfc3339() })).await;
    let all_wait = |heads: &[ExecutionHead]| {
        heads.len() == 4 && heads.iter().all(|head| head.owner.is_none() && head.due.is_some())
    };
    cluster.wait_for_heads("everything waits", all_wait).await;
    wrong.kill().await;

    let _right = cluster.workspace.start_server().await;
    let planned = execution_id(&planned);
    let is_as_planned = |head: &ExecutionHead| {
        let waits = head.owner.is_none() && head.due == Some(start_at) && head.epoch.0 > 0;
        if head.execution == planned { waits } else { head.state.is_finished() }
    };
    let all_end = |heads: &[ExecutionHead]| heads.iter().all(is_as_planned);
    cluster.wait_for_heads("the waits end, and the planned start stays", all_end).await;
    for head in cluster.read_heads().await.iter().filter(|head| head.execution != planned) {
        let execution = cluster.replay(head).await;
        let expected = if execution.missed_deadline() {
            ExecutionState::Failed
        } else {
            ExecutionState::Completed
        };
        let log = cluster.read_log(head.execution).await;
        let is_shortened = |event: &Event| matches!(event, Event::WaitsShortened { .. });
        assert!(log.iter().any(|recorded| is_shortened(&recorded.event)), "{log:#?}");
        assert_eq!(head.state, expected, "{log:#?}");
    }
}
