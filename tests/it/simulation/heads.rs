//! Heads that the store does not write, though it writes everything else.

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
    faulty::{Dice, Faulty, Malice},
    world::{SimClock, World},
};
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use toolbox::{Toolbox, flow::flow};

const CALM: Malice =
    Malice { fails_before: 0, fails_after: 0, forgets: 0, stalls: 0, stall: Duration::ZERO };

/// A worker before a store that refuses heads.
struct Scene {
    truth: Arc<Memory>,
    store: Arc<Faulty>,
    control: Control,
    clock: SimClock,
    workers: JoinSet<()>,
}

impl Scene {
    fn new(why: &StoreError) -> Self {
        let truth = Arc::new(Memory::new());
        let store = Arc::new(Faulty::new(Arc::clone(&truth) as _, Dice::new(1), CALM));
        store.refuse_heads(Some(why.clone()));
        let clock = World::new(1, CALM).clock;
        let control = Control::new(Arc::clone(&truth) as _, Arc::new(clock), None);
        let mut scene = Self { truth, store, control, clock, workers: JoinSet::new() };
        scene.employ();
        scene
    }

    fn employ(&mut self) {
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
        self.truth.put_plan(&plan).await.unwrap();
        let start = Start::new(&plan, ExecutionOptions::default());
        self.control.start(start).await.unwrap().id
    }

    async fn head(&self, id: ExecutionId) -> ExecutionHead {
        self.truth.head(id).await.unwrap().unwrap()
    }

    /// Waits until a head is as it should be.
    async fn until(
        &self,
        id: ExecutionId,
        within: Duration,
        is_so: impl Fn(&ExecutionHead) -> bool,
    ) {
        let wait = async {
            while !is_so(&self.head(id).await) {
                time::sleep(Duration::from_millis(100)).await;
            }
        };
        let waited = time::timeout(within, wait).await;
        assert!(waited.is_ok(), "{:#?}", self.head(id).await);
    }
}

/// Why a store may refuse one: because it is ill, or because of the head.
fn reasons() -> [StoreError; 2] {
    let ill = StoreError::Unavailable("it is ill".to_owned());
    [ill, StoreError::corrupt("the head", "nobody can write it")]
}

/// The driver asked for ever, deaf to what was asked of it; or the worker claimed it again and
/// again.
#[tokio::test(start_paused = true)]
async fn an_execution_that_cannot_be_put_aside_hears_what_is_asked_of_it() {
    for why in reasons() {
        let scene = Scene::new(&why);
        let id = scene.start("flow.wait", json!({ "name": "go" })).await;
        time::sleep(Duration::from_mins(10)).await;
        let log = scene.truth.read(id, Seq::START).await.unwrap();
        assert!(log.len() <= 4, "{why}: it was claimed again and again: {log:#?}");
        scene.control.signal(id, "go".to_owned(), json!(1)).await.unwrap();
        let is_over = |head: &ExecutionHead| head.state == ExecutionState::Completed;
        scene.until(id, Duration::from_secs(5), is_over).await;
    }
}

/// Nobody else looks for it: it slept for ever.
#[tokio::test(start_paused = true)]
async fn an_execution_that_cannot_be_put_aside_wakes_in_time() {
    for why in reasons() {
        let scene = Scene::new(&why);
        let id = scene.start("flow.sleep", json!({ "ms": 30_000 })).await;
        let is_over = |head: &ExecutionHead| head.state == ExecutionState::Completed;
        scene.until(id, Duration::from_secs(35), is_over).await;
    }
}

/// It stayed with its worker until that looked at all that it has.
#[tokio::test(start_paused = true)]
async fn an_execution_is_given_up_as_soon_as_its_head_can_be_written() {
    for why in reasons() {
        let mut scene = Scene::new(&why);
        let id = scene.start("flow.sleep", json!({ "ms": 120_000 })).await;
        time::sleep(Duration::from_mins(1)).await;
        let first = scene.head(id).await.owner;
        assert!(first.is_some(), "{why}");
        scene.store.refuse_heads(None);
        scene.until(id, Duration::from_secs(6), |head| head.owner.is_none()).await;
        let log = scene.truth.read(id, Seq::START).await.unwrap();
        assert!(log.len() <= 4, "{why}: {log:#?}");
        // Whoever is there takes it.
        scene.workers.shutdown().await;
        scene.employ();
        let is_over = |head: &ExecutionHead| head.state == ExecutionState::Completed;
        scene.until(id, Duration::from_mins(2), is_over).await;
    }
}
