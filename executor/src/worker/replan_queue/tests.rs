//! Finished executions that are replanned, on paused time.

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

const LONG: Duration = Duration::from_mins(5);

/// A replanner that starts a given plan, or misbehaves.
#[derive(Debug)]
struct Fake {
    control: Control,
    plan: Arc<Plan>,
    /// One behaviour for each call, and then a normal replan.
    does: Mutex<Vec<Does>>,
    asked: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Thinks,
    /// Starts the next execution, and never returns.
    Begins,
    Fails,
    Panics,
}

#[async_trait]
impl Replanner for Fake {
    async fn replan(&self, ended: &Execution) -> Result<(), StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let does = self.does.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match does {
            Some(Does::Fails) => return Err(StoreError::Unavailable("not now".to_owned())),
            Some(Does::Panics) => panic!("as it was told"),
            Some(Does::Thinks) => std::future::pending().await,
            Some(Does::Begins) | None => (),
        }
        let created = Created::new(self.plan.id(), ended.request(), ExecutionOptions::default());
        let created = Created { retry_of: Some(ended.id()), ..created };
        // Another worker has started the same execution.
        let start =
            Start { id: Some(next(ended.id())), ..Start::from_created(&self.plan, created) };
        let begun = self.control.start(start).await;
        begun.map_err(|err| StoreError::Unavailable(err.to_string()))?;
        match does {
            Some(Does::Begins) => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

fn next(ended: ExecutionId) -> ExecutionId {
    ExecutionId::derive_child(shared::clock::Timestamp::UNIX_EPOCH, &ended.to_string())
}

struct Scene {
    store: Arc<Memory>,
    plan: Arc<Plan>,
    control: Option<Control>,
}

struct Working {
    tasks: JoinSet<()>,
    drain: tokio_util::sync::CancellationToken,
    fake: Arc<Fake>,
}

impl Scene {
    async fn new() -> Self {
        let store = Arc::new(Memory::new());
        let plan = plan(vec![step("a", "flow.noop", json!({}))]);
        store.put_plan(&plan).await.unwrap();
        Self { store, plan, control: None }
    }

    /// Starts a worker whose replanner does these acts, the last first.
    fn begin(&mut self, does: &[Does]) -> Working {
        let (worker, handle) = worker(&self.store);
        let clock = Arc::clone(&worker.context().clock);
        let store = Arc::<Memory>::clone(&self.store);
        let control = Control::new(store, clock, Some(handle));
        let (does, asked) = (Mutex::new(does.to_vec()), AtomicUsize::new(0));
        let plan = Arc::clone(&self.plan);
        let fake = Arc::new(Fake { control: control.clone(), plan, does, asked });
        worker.set_replanner(Arc::<Fake>::clone(&fake));
        self.control = Some(control);
        let drain = worker.context().drain.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run());
        Working { tasks, drain, fake }
    }

    /// Starts an execution that fails and is replanned.
    async fn fail(&self) -> ExecutionId {
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

    /// Waits until a head meets a condition.
    async fn until(&self, id: ExecutionId, is_so: impl Fn(&ExecutionHead) -> bool) {
        let mut look = time::interval(Duration::from_millis(10));
        let wait = async {
            loop {
                look.tick().await;
                if self.store.head(id).await.unwrap().is_some_and(|head| is_so(&head)) {
                    return;
                }
            }
        };
        let in_time = time::timeout(LONG, wait).await.is_ok();
        assert!(in_time, "{:#?}", self.store.head(id).await);
    }

    async fn until_asked(&self, working: &Working, times: usize) {
        let mut look = time::interval(Duration::from_millis(10));
        let wait = async {
            while working.asked() < times {
                look.tick().await;
            }
        };
        assert!(time::timeout(LONG, wait).await.is_ok(), "it is asked {times} times");
    }

    /// Waits until an execution was replanned and has no owner.
    async fn until_gone_on(&self, id: ExecutionId) {
        self.until(id, |head| head.state == ExecutionState::Failed && head.owner.is_none()).await;
        self.until(next(id), |head| head.state == ExecutionState::Completed).await;
    }
}

impl Working {
    fn asked(&self) -> usize {
        self.fake.asked.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_execution_is_replanned_once() {
    let mut scene = Scene::new().await;
    let working = scene.begin(&[]);
    let id = scene.fail().await;
    scene.until_gone_on(id).await;
    let asks = step("a", "flow.replan", json!({ "goal": "more" }));
    let asks = scene.start(plan(vec![asks]), ReplanOptions::default()).await;
    scene.until(asks, |head| head.state == ExecutionState::Completed && head.owner.is_none()).await;
    scene.until(next(asks), |head| head.state == ExecutionState::Completed).await;
    let fails = plan(vec![step("a", "flow.fail", json!({ "message": "no" }))]);
    let left_alone = scene.start(fails, ReplanOptions::times(0)).await;
    scene.until(left_alone, |head| head.state == ExecutionState::Failed).await;
    // Longer than the sweep interval and every delay.
    time::sleep(LONG).await;
    assert_eq!(working.asked(), 2);
}

/// The worker is lost before or after it starts the next execution.
#[tokio::test(start_paused = true)]
async fn a_replan_of_a_lost_worker_is_done_once_by_another() {
    for does in [Does::Thinks, Does::Begins] {
        let mut scene = Scene::new().await;
        let mut gone = scene.begin(&[does]);
        let id = scene.fail().await;
        scene.until_asked(&gone, 1).await;
        if does == Does::Begins {
            scene.until(next(id), |head| head.state == ExecutionState::Completed).await;
        }
        let owner = scene.store.head(id).await.unwrap().unwrap().owner;
        assert!(owner.is_some(), "{does:?}");
        gone.tasks.shutdown().await;
        let working = scene.begin(&[]);
        scene.until_gone_on(id).await;
        time::sleep(LONG).await;
        assert_eq!(working.asked(), 1, "{does:?}");
        let log = scene.store.read(next(id), shared::id::Seq::START).await.unwrap();
        let created = log.iter().filter(|recorded| recorded.event.kind() == "created").count();
        assert_eq!(created, 1, "{log:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_draining_worker_leaves_its_replans_to_others() {
    let mut scene = Scene::new().await;
    let mut ending = scene.begin(&[Does::Thinks]);
    let id = scene.fail().await;
    scene.until_asked(&ending, 1).await;
    ending.drain.cancel();
    let ended = time::timeout(Duration::from_secs(1), ending.tasks.join_next()).await;
    assert!(ended.is_ok(), "it ends at once");
    let working = scene.begin(&[]);
    scene.until_gone_on(id).await;
    assert_eq!(working.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replan_that_fails_temporarily_is_retried() {
    let mut scene = Scene::new().await;
    let working = scene.begin(&[Does::Panics, Does::Fails, Does::Fails]);
    let id = scene.fail().await;
    scene.until_gone_on(id).await;
    assert_eq!(working.asked(), 4);
}

/// There are three slots, and more executions wait for models.
#[tokio::test(start_paused = true)]
async fn replans_that_wait_for_a_model_block_no_executions() {
    let mut scene = Scene::new().await;
    let working = scene.begin(&[Does::Thinks; 9]);
    let mut owed = Vec::new();
    for _ in 0..MAX_RUNNING + 3 {
        owed.push(scene.fail().await);
    }
    for id in &owed {
        scene.until(*id, |head| head.state == ExecutionState::Failed).await;
    }
    scene.until_asked(&working, MAX_RUNNING).await;
    let id = scene.start(Arc::clone(&scene.plan), ReplanOptions::default()).await;
    scene.until(id, |head| head.state == ExecutionState::Completed).await;
    assert_eq!(working.asked(), MAX_RUNNING, "no more at once");
    for id in owed {
        assert!(scene.store.head(id).await.unwrap().unwrap().owner.is_some(), "it is still owed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_replanner_leaves_replans_to_others() {
    let mut scene = Scene::new().await;
    let (without, handle) = worker(&scene.store);
    let clock = Arc::clone(&without.context().clock);
    scene.control = Some(Control::new(Arc::<Memory>::clone(&scene.store), clock, Some(handle)));
    let mut tasks = JoinSet::new();
    tasks.spawn(without.run());
    let id = scene.fail().await;
    scene.until(id, |head| head.state == ExecutionState::Failed).await;
    let working = scene.begin(&[]);
    time::sleep(Duration::from_mins(1)).await;
    assert_eq!(working.asked(), 0, "it is the other's for as long as that lives");
    tasks.shutdown().await;
    scene.until_gone_on(id).await;
}
