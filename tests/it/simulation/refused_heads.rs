//! A store that writes everything except heads.

use std::{sync::Arc, time::Duration};

use executor::{
    control::{Control, Start},
    options::Options,
    worker::{Worker, WorkerParts, WorkerScope},
};
use serde_json::{Value, json};
use shared::{
    clock::Clock,
    execution::{ExecutionOptions, ExecutionState},
    id::{ExecutionId, Seq, WorkerId},
    plan::Plan,
    store::{Documents, ExecutionHead, Log, StoreError, memory::Memory},
};
use tests::{
    faulty::{Dice, FaultRates, FaultyStore},
    world::{SimClock, World},
};
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use toolbox::{Toolbox, flow::flow};

const NO_FAULTS: FaultRates = FaultRates {
    failures_before: 0,
    failures_after: 0,
    failures_before_inbox: 0,
    stalls: 0,
    max_stall: Duration::ZERO,
};

struct HeadTest {
    memory: Arc<Memory>,
    store: Arc<FaultyStore>,
    control: Control,
    clock: SimClock,
    workers: JoinSet<()>,
}

impl HeadTest {
    fn new(error: &StoreError) -> Self {
        let memory = Arc::new(Memory::new());
        let store = Arc::new(FaultyStore::new(Arc::clone(&memory) as _, Dice::new(1), NO_FAULTS));
        store.refuse_heads(Some(error.clone()));
        let clock = World::new(1, NO_FAULTS).clock;
        let control = Control::new(Arc::clone(&memory) as _, Arc::new(clock), None);
        let mut test = Self { memory, store, control, clock, workers: JoinSet::new() };
        test.add_worker();
        test
    }

    fn add_worker(&mut self) {
        let parts = WorkerParts {
            node: "a".to_owned(),
            store: Arc::clone(&self.store) as _,
            toolbox: Toolbox::new([flow()]),
            clock: Arc::new(self.clock),
            options: Options::default(),
            scope: WorkerScope::Everything,
        };
        let id = WorkerId::draw(self.clock.now());
        let (worker, _) = Worker::new(parts, id, CancellationToken::new());
        self.workers.spawn(worker.run());
    }

    async fn start(&self, tool: &str, parameters: Value) -> ExecutionId {
        let plan = json!({
            "about": {
                "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa",
                "version": 1, "query": "q", "planner": "explicit", "created_at": 0,
            },
            "steps": [{ "id": "a", "tool": tool, "parameters": parameters, "policy": {} }],
        });
        let plan = Arc::new(Plan::from_json(&plan.to_string()).unwrap());
        self.memory.put_plan(&plan).await.unwrap();
        let start = Start::new(&plan, ExecutionOptions::default());
        self.control.start(start).await.unwrap().id
    }

    async fn head(&self, id: ExecutionId) -> ExecutionHead {
        self.memory.head(id).await.unwrap().unwrap()
    }

    async fn wait_for_head(
        &self,
        id: ExecutionId,
        within: Duration,
        is_expected: impl Fn(&ExecutionHead) -> bool,
    ) {
        let wait = async {
            while !is_expected(&self.head(id).await) {
                time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = time::timeout(within, wait).await;
        assert!(waited.is_ok(), "{:#?}", self.head(id).await);
    }
}

/// Returns the two errors of a refused head: the store is unavailable, or this head cannot be
/// stored.
fn head_errors() -> [StoreError; 2] {
    let ill = StoreError::Unavailable("the store is unavailable".to_owned());
    [ill, StoreError::corrupt("the head", "it cannot be written")]
}

/// Regression: the driver retried forever and missed commands, or the worker claimed the execution
/// again and again.
#[tokio::test(start_paused = true)]
async fn an_execution_that_cannot_be_parked_still_hears_commands() {
    for reason in head_errors() {
        let test = HeadTest::new(&reason);
        let id = test.start("flow.wait", json!({ "name": "go" })).await;
        time::sleep(Duration::from_mins(10)).await;
        let log = test.memory.read(id, Seq::START).await.unwrap();
        assert!(log.len() <= 4, "{reason}: the worker claimed it again and again: {log:#?}");
        test.control.signal(id, "go".to_owned(), json!(1)).await.unwrap();
        let is_over = |head: &ExecutionHead| head.state == ExecutionState::Completed;
        test.wait_for_head(id, Duration::from_secs(5), is_over).await;
    }
}

/// Regression: the execution slept forever. Its head still named its worker, so no other worker
/// polled for it.
#[tokio::test(start_paused = true)]
async fn an_execution_that_cannot_be_parked_wakes_in_time() {
    for reason in head_errors() {
        let test = HeadTest::new(&reason);
        let id = test.start("flow.sleep", json!({ "ms": 30_000 })).await;
        let is_over = |head: &ExecutionHead| head.state == ExecutionState::Completed;
        test.wait_for_head(id, Duration::from_secs(35), is_over).await;
    }
}

/// Regression: the execution stayed with its worker until the next time that the worker checked all
/// its executions.
#[tokio::test(start_paused = true)]
async fn an_execution_is_parked_as_soon_as_its_head_can_be_written() {
    for reason in head_errors() {
        let mut test = HeadTest::new(&reason);
        let id = test.start("flow.sleep", json!({ "ms": 120_000 })).await;
        time::sleep(Duration::from_mins(1)).await;
        let first = test.head(id).await.owner;
        assert!(first.is_some(), "{reason}");
        test.store.refuse_heads(None);
        test.wait_for_head(id, Duration::from_secs(6), |head| head.owner.is_none()).await;
        let log = test.memory.read(id, Seq::START).await.unwrap();
        assert!(log.len() <= 4, "{reason}: {log:#?}");
        // The execution is parked, so any worker can claim it now.
        test.workers.shutdown().await;
        test.add_worker();
        let is_over = |head: &ExecutionHead| head.state == ExecutionState::Completed;
        test.wait_for_head(id, Duration::from_mins(2), is_over).await;
    }
}
