//! Replans of finished executions. Tokio's clock is paused.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use serde_json::json;
use shared::{
    event::Created,
    execution::{ExecutionOptions, ExecutionState, ReplanOptions},
    plan::Plan,
    store::{Documents as _, Log as _, memory::Memory},
};
use tokio::time;

use super::*;
use crate::{
    control::{Control, Start},
    replan::Replanner,
    worker::tests::{plan, step, worker},
};

const LONG_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Debug)]
struct FakeReplanner {
    control: Control,
    plan: Arc<Plan>,
    /// The behavior of the next calls, the last entry first. Without an entry, a call replans
    /// normally.
    behaviors: Mutex<Vec<ReplanBehavior>>,
    calls: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplanBehavior {
    Thinks,
    Begins,
    Fails,
    Panics,
}

#[async_trait]
impl Replanner for FakeReplanner {
    async fn replan(&self, ended: &Execution) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let behaviors = self.behaviors.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match behaviors {
            Some(ReplanBehavior::Fails) => {
                return Err(StoreError::Unavailable("not now".to_owned()));
            }
            Some(ReplanBehavior::Panics) => panic!("the test requested this panic"),
            Some(ReplanBehavior::Thinks) => std::future::pending().await,
            Some(ReplanBehavior::Begins) | None => (),
        }
        let created = Created::new(self.plan.id(), ended.request(), ExecutionOptions::default());
        let created = Created { retry_of: Some(ended.id()), ..created };
        // Ignores a conflict, because another worker has started the same execution.
        let start = Start {
            id: Some(next_execution_id(ended.id())),
            ..Start::from_created(&self.plan, created)
        };
        let started = self.control.start(start).await;
        started.map_err(|err| StoreError::Unavailable(err.to_string()))?;
        match behaviors {
            Some(ReplanBehavior::Begins) => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

fn next_execution_id(ended: ExecutionId) -> ExecutionId {
    ExecutionId::derive_child(shared::clock::Timestamp::UNIX_EPOCH, &ended.to_string())
}

struct ReplanTest {
    store: Arc<Memory>,
    plan: Arc<Plan>,
    control: Option<Control>,
}

struct RunningWorker {
    tasks: JoinSet<()>,
    drain: tokio_util::sync::CancellationToken,
    fake: Arc<FakeReplanner>,
}

impl ReplanTest {
    async fn new() -> Self {
        let store = Arc::new(Memory::new());
        let plan = plan(vec![step("a", "flow.noop", json!({}))]);
        store.put_plan(&plan).await.unwrap();
        Self { store, plan, control: None }
    }

    fn start_worker(&mut self, behaviors: &[ReplanBehavior]) -> RunningWorker {
        let (worker, handle) = worker(&self.store);
        let clock = Arc::clone(&worker.context().clock);
        let store = Arc::<Memory>::clone(&self.store);
        let control = Control::new(store, clock, Some(handle));
        let (behaviors, ask_count) = (Mutex::new(behaviors.to_vec()), AtomicUsize::new(0));
        let plan = Arc::clone(&self.plan);
        let fake =
            Arc::new(FakeReplanner { control: control.clone(), plan, behaviors, calls: ask_count });
        worker.set_replanner(Arc::<FakeReplanner>::clone(&fake));
        self.control = Some(control);
        let drain = worker.context().drain.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run());
        RunningWorker { tasks, drain, fake }
    }

    async fn start_failing_execution(&self) -> ExecutionId {
        let plan = plan(vec![step("a", "flow.fail", json!({ "message": "no" }))]);
        self.start(plan, ReplanOptions::times(1)).await
    }

    async fn start(&self, plan: Arc<Plan>, replans: ReplanOptions) -> ExecutionId {
        if self.store.plan(plan.id()).await.unwrap().is_none() {
            self.store.put_plan(&plan).await.unwrap();
        }
        let options = ExecutionOptions { replans, ..ExecutionOptions::default() };
        self.control.as_ref().unwrap().start(Start::new(&plan, options)).await.unwrap().id
    }

    async fn wait_for_head(&self, id: ExecutionId, is_so: impl Fn(&ExecutionHead) -> bool) {
        let mut look = time::interval(Duration::from_millis(10));
        let wait = async {
            loop {
                look.tick().await;
                if self.store.head(id).await.unwrap().is_some_and(|head| is_so(&head)) {
                    return;
                }
            }
        };
        let in_time = time::timeout(LONG_TIMEOUT, wait).await.is_ok();
        assert!(in_time, "{:#?}", self.store.head(id).await);
    }

    async fn wait_for_calls(&self, running: &RunningWorker, times: usize) {
        let mut look = time::interval(Duration::from_millis(10));
        let wait = async {
            while running.call_count() < times {
                look.tick().await;
            }
        };
        assert!(time::timeout(LONG_TIMEOUT, wait).await.is_ok(), "it is asked {times} times");
    }

    async fn wait_until_replanned(&self, id: ExecutionId) {
        self.wait_for_head(id, |head| head.state == ExecutionState::Failed && head.owner.is_none())
            .await;
        self.wait_for_head(next_execution_id(id), |head| head.state == ExecutionState::Completed)
            .await;
    }
}

impl RunningWorker {
    fn call_count(&self) -> usize {
        self.fake.calls.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_execution_is_replanned_once() {
    let mut test = ReplanTest::new().await;
    let running = test.start_worker(&[]);
    let id = test.start_failing_execution().await;
    test.wait_until_replanned(id).await;
    let asks = step("a", "flow.replan", json!({ "goal": "more" }));
    let asks = test.start(plan(vec![asks]), ReplanOptions::default()).await;
    test.wait_for_head(asks, |head| {
        head.state == ExecutionState::Completed && head.owner.is_none()
    })
    .await;
    test.wait_for_head(next_execution_id(asks), |head| head.state == ExecutionState::Completed)
        .await;
    let fails = plan(vec![step("a", "flow.fail", json!({ "message": "no" }))]);
    let left_alone = test.start(fails, ReplanOptions::times(0)).await;
    test.wait_for_head(left_alone, |head| head.state == ExecutionState::Failed).await;
    // Waits longer than every delay, and longer than the interval at which the worker looks for
    // executions that it owns and does not drive.
    time::sleep(LONG_TIMEOUT).await;
    assert_eq!(running.call_count(), 2);
}

/// The worker is lost before or after it starts the next execution.
#[tokio::test(start_paused = true)]
async fn a_replan_of_a_lost_worker_is_done_once_by_another() {
    for behaviors in [ReplanBehavior::Thinks, ReplanBehavior::Begins] {
        let mut test = ReplanTest::new().await;
        let mut gone = test.start_worker(&[behaviors]);
        let id = test.start_failing_execution().await;
        test.wait_for_calls(&gone, 1).await;
        if behaviors == ReplanBehavior::Begins {
            test.wait_for_head(next_execution_id(id), |head| {
                head.state == ExecutionState::Completed
            })
            .await;
        }
        let owner = test.store.head(id).await.unwrap().unwrap().owner;
        assert!(owner.is_some(), "{behaviors:?}");
        gone.tasks.shutdown().await;
        let running = test.start_worker(&[]);
        test.wait_until_replanned(id).await;
        time::sleep(LONG_TIMEOUT).await;
        assert_eq!(running.call_count(), 1, "{behaviors:?}");
        let log = test.store.read(next_execution_id(id), shared::id::Seq::START).await.unwrap();
        let created = log.iter().filter(|recorded| recorded.event.kind() == "created").count();
        assert_eq!(created, 1, "{log:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_draining_worker_leaves_its_replans_to_others() {
    let mut test = ReplanTest::new().await;
    let mut ending = test.start_worker(&[ReplanBehavior::Thinks]);
    let id = test.start_failing_execution().await;
    test.wait_for_calls(&ending, 1).await;
    ending.drain.cancel();
    let ended = time::timeout(Duration::from_secs(1), ending.tasks.join_next()).await;
    assert!(ended.is_ok(), "the worker ends at once");
    let running = test.start_worker(&[]);
    test.wait_until_replanned(id).await;
    assert_eq!(running.call_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replan_that_fails_temporarily_is_retried() {
    let mut test = ReplanTest::new().await;
    let running =
        test.start_worker(&[ReplanBehavior::Panics, ReplanBehavior::Fails, ReplanBehavior::Fails]);
    let id = test.start_failing_execution().await;
    test.wait_until_replanned(id).await;
    assert_eq!(running.call_count(), 4);
}

/// The worker has three slots, and more executions than that wait for replans by a model.
#[tokio::test(start_paused = true)]
async fn replans_that_wait_for_a_model_block_no_executions() {
    let mut test = ReplanTest::new().await;
    let running = test.start_worker(&[ReplanBehavior::Thinks; 9]);
    let mut owed = Vec::new();
    for _ in 0..MAX_RUNNING + 3 {
        owed.push(test.start_failing_execution().await);
    }
    for id in &owed {
        test.wait_for_head(*id, |head| head.state == ExecutionState::Failed).await;
    }
    test.wait_for_calls(&running, MAX_RUNNING).await;
    let id = test.start(Arc::clone(&test.plan), ReplanOptions::default()).await;
    test.wait_for_head(id, |head| head.state == ExecutionState::Completed).await;
    assert_eq!(running.call_count(), MAX_RUNNING, "no further replan runs at the same time");
    for id in owed {
        assert!(
            test.store.head(id).await.unwrap().unwrap().owner.is_some(),
            "the execution still needs a replan"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_replanner_leaves_replans_to_others() {
    let mut test = ReplanTest::new().await;
    let (without, handle) = worker(&test.store);
    let clock = Arc::clone(&without.context().clock);
    test.control = Some(Control::new(Arc::<Memory>::clone(&test.store), clock, Some(handle)));
    let mut tasks = JoinSet::new();
    tasks.spawn(without.run());
    let id = test.start_failing_execution().await;
    test.wait_for_head(id, |head| head.state == ExecutionState::Failed).await;
    let running = test.start_worker(&[]);
    time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        running.call_count(),
        0,
        "the execution belongs to the other worker while that worker lives"
    );
    tasks.shutdown().await;
    test.wait_until_replanned(id).await;
}
