use std::sync::Arc;

use serde_json::json;
use shared::{
    clock::{Clock, WallClock},
    execution::ExecutionOptions,
    id::Seq,
    plan::Plan,
    store::{Append, Documents, Log, memory::Memory},
};
use tokio_util::sync::CancellationToken;
use toolbox::{Toolbox, flow::flow};

use super::*;
use crate::{machine, options::Options, worker::WorkerParts};

#[test]
fn executions_are_shared_evenly_between_workers() {
    let now = Timestamp::UNIX_EPOCH;
    let executions: Vec<_> =
        (0..4_000).map(|number| ExecutionId::derive_child(now, &number.to_string())).collect();
    for _ in 0..16 {
        let workers: Vec<_> = (0..4).map(|_| WorkerId::draw(now)).collect();
        for worker in &workers {
            let is_preferred =
                |id: &&ExecutionId| preferred_worker(**id, &workers) == Some(*worker);
            let n = executions.iter().filter(is_preferred).count();
            // The bounds are five and a half standard deviations of a fair distribution.
            assert!((850..1_150).contains(&n), "{n} of {workers:?}");
        }
        // A worker that leaves does not change the shares of the other workers.
        let fewer = &workers[..3];
        for execution in &executions {
            let before = preferred_worker(*execution, &workers);
            if before != Some(workers[3]) {
                assert_eq!(preferred_worker(*execution, fewer), before);
            }
        }
    }
    assert_eq!(preferred_worker(executions[0], &[]), None);
}

fn plan(n: usize, tool: &str) -> Arc<Plan> {
    let plan = json!({
        "about": {
            "id": format!("plan_{n}_aaaaaaaaa"), "request": format!("req_{n}_aaaaaaaaa"),
            "version": 1, "query": "q", "planner": "explicit", "created_at": 0,
        },
        "steps": [{ "id": "a", "tool": tool, "parameters": {}, "policy": {} }],
    });
    Arc::new(Plan::from_json(&plan.to_string()).unwrap())
}

/// Many executions that lack a tool, and after them one execution that the worker can run.
struct Crowd {
    worker: Worker,
    store: Arc<Memory>,
    runnable: ExecutionId,
}

impl Crowd {
    async fn new(many: usize, owner: Option<WorkerId>) -> Self {
        let (store, now) = (Arc::new(Memory::new()), WallClock.now());
        let (far, near) = (plan(1, "far.away"), plan(2, "flow.noop"));
        store.put_plan(&far).await.unwrap();
        store.put_plan(&near).await.unwrap();
        let ids = (0..=many).map(|number| ExecutionId::derive_child(now, &number.to_string()));
        let mut ids: Vec<_> = ids.collect();
        ids.sort();
        for id in &ids {
            let is_last = *id == ids[many];
            let (plan, priority) = if is_last { (&near, 0) } else { (&far, 7) };
            let options = ExecutionOptions { priority, ..ExecutionOptions::default() };
            let (execution, created) = machine::create_execution(*id, plan, options, now);
            let head =
                ExecutionHead::from_execution(&execution, owner, owner.is_none().then_some(now));
            let append = Append::new(*id, Seq::START, &[created]);
            store.append(Append { head: Some(head), ..append }).await.unwrap();
        }
        let parts = WorkerParts {
            node: "here".to_owned(),
            store: Arc::<Memory>::clone(&store),
            toolbox: Toolbox::new([flow()]),
            clock: Arc::new(WallClock),
            options: Options::default(),
            scope: WorkerScope::Everything,
        };
        let (worker, _) = Worker::new(parts, WorkerId::draw(now), CancellationToken::new());
        Self { worker, store, runnable: ids[many] }
    }
}

#[tokio::test]
async fn a_scan_finds_work_behind_executions_of_missing_tools_and_stays_short() {
    let mut crowd = Crowd::new(1_000, None).await;
    for _ in 0..8 {
        crowd.worker.claim_due_executions().await.unwrap();
        assert!(
            crowd.worker.backlog.unclaimable_count <= MAX_HEADS + MAX_UNCLAIMABLE,
            "{} were read",
            crowd.worker.backlog.unclaimable_count
        );
    }
    assert!(crowd.worker.local.contains(crowd.runnable), "the scan did not find the execution");
}

#[tokio::test]
async fn a_scan_finds_work_behind_orphans_of_missing_tools() {
    let gone = WorkerId::draw(WallClock.now());
    let mut crowd = Crowd::new(600, Some(gone)).await;
    for _ in 0..4 {
        crowd.worker.claim_due_executions().await.unwrap();
    }
    assert!(crowd.worker.local.contains(crowd.runnable), "the scan did not find the execution");
    let left = crowd
        .store
        .find_heads(HeadQuery::Due { now: WallClock.now(), turn: 0 }, 1_000)
        .await
        .unwrap();
    assert_eq!(left.len(), 600, "a worker with the tool can find the others");
}
