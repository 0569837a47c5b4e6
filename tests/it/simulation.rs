//! Simulates random plans on random workers that crash, freeze and drain, over a store with faults,
//! while people send commands. Each world runs in one thread with paused time, and its seed decides
//! everything that happens.
//!
//! `FABER_SIM_SEED=17 cargo test -p tests simulation` replays a failure, `FABER_SIM_SEEDS=10000`
//! runs more worlds, and `FABER_SIM_TRACE=1` prints every event.

#![expect(clippy::print_stderr, reason = "prints the figures of the worlds")]

mod log_rules;
mod people;
mod plans;
mod refused_heads;

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use executor::{
    call_limits::{CallLimits, LimitRule, LimitedCalls},
    control::{Control, IdempotencyKey, Start},
    options::Options,
    worker::{Worker, WorkerHandle, WorkerParts, WorkerScope},
};
use futures::TryStreamExt;
use serde_json::json;
use shared::{
    clock::Clock,
    event::{Event, RecordedEvent},
    execution::{Execution, ExecutionOptions},
    id::{ExecutionId, Seq, WorkerId},
    plan::Plan,
    store::{self, Documents, ExecutionFilter, Page, Reservation, Store},
};
use tests::{
    faulty::FaultRates,
    ledger::Ledger,
    world::{View, World},
};
use tokio::{
    runtime,
    task::{AbortHandle, JoinSet},
    time,
};
use tokio_util::sync::CancellationToken;
use toolbox::Toolbox;

/// Number of worlds in a usual run. Before a release, `FABER_SIM_SEEDS` sets thousands.
const DEFAULT_WORLDS: u64 = 120;
/// Maximum number of attempts of a client to start one execution.
const MAX_START_ATTEMPTS: usize = 10_000;
/// One of this many worlds is simulated twice, and both results must be identical.
const WORLDS_PER_REPEAT: u64 = 10;
const MAX_WORKERS: usize = 3;
/// Maximum time for all executions to finish after the last fault. Nested steps that people retry
/// take longest.
const MAX_FINISH_TIME: Duration = Duration::from_mins(30);
/// An execution that is unfinished this long after the last fault must be paused, or wait for a
/// person, a signal or a child.
const QUIET_TIME: Duration = Duration::from_secs(30);
/// The quiet time in a world with wrong clocks. It is longer, because a sleep can start by one
/// clock and end by another clock.
const SKEWED_QUIET_TIME: Duration = Duration::from_secs(150);

#[derive(Debug, Default)]
struct SimulationCounts {
    states: BTreeMap<&'static str, u32>,
    events: BTreeMap<&'static str, u32>,
    errors: BTreeMap<String, u32>,
}

#[test]
fn every_execution_finishes_despite_crashes_and_store_faults() {
    let seeds = number_from_env("FABER_SIM_SEEDS").unwrap_or(DEFAULT_WORLDS);
    let seeds: Vec<u64> =
        number_from_env("FABER_SIM_SEED").map_or((0..seeds).collect(), |seed| vec![seed]);
    let halves = [0, 1].map(|half| seeds.iter().copied().filter(move |seed| seed % 2 == half));
    let figures = std::thread::scope(|scope| {
        let threads =
            halves.map(|seeds| scope.spawn(move || simulate_all(seeds, ToolPresence::Stay)));
        threads.map(|thread| thread.join().expect("a world failed, its seed is above"))
    });
    let [mut figures, other] = figures;
    figures.add(other);
    eprintln!(
        "{} worlds: {:?}\n{:?}\n{:?}",
        seeds.len(),
        figures.states,
        figures.events,
        figures.errors
    );
}

/// Tools disappear and return, as with conditional toolsets and servers that change their tools.
#[test]
fn every_execution_finishes_when_tools_disappear_and_return() {
    let seeds = number_from_env("FABER_SIM_SEEDS").unwrap_or(DEFAULT_WORLDS) / 5;
    let seeds = number_from_env("FABER_SIM_SEED").map_or(0..seeds, |seed| seed..seed + 1);
    let figures = simulate_all(seeds, ToolPresence::ComeAndGo);
    eprintln!("{:?}\n{:?}\n{:?}", figures.states, figures.events, figures.errors);
}

/// Seeds that found a bug in an earlier version.
#[test]
fn seeds_that_once_found_a_bug_pass() {
    // 200, 239: a worker that lost an execution removed a command for which the new owner waited.
    // 733: the lease of a worker was in doubt, so an execution could not start. The worker then
    // parked the execution. 333: a driver lost the message that a child had ended, and a draining
    // worker did not take over the child.
    simulate_all([200, 239, 333, 733], ToolPresence::Stay);
    // 370: an execution was parked forever if its missing tool returned before it was parked.
    simulate_all([370], ToolPresence::ComeAndGo);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolPresence {
    Stay,
    ComeAndGo,
}

fn number_from_env(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "only tests read these variables")]
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("seeds are numbers"))
}

fn simulate_all(seeds: impl IntoIterator<Item = u64>, tools: ToolPresence) -> SimulationCounts {
    let mut figures = SimulationCounts::default();
    for seed in seeds {
        let wrong =
            |description: &dyn std::fmt::Debug| panic!("seed {seed}, {tools:?}: {description:#?}");
        let end = simulate(seed, tools);
        if number_from_env("FABER_SIM_TRACE").is_some() {
            eprintln!("seed {seed}\n{}", end.describe());
        }
        match end.check() {
            Ok(world) => figures.add(world),
            Err(violations) => wrong(&violations),
        }
        if seed % WORLDS_PER_REPEAT == 0 && simulate(seed, tools).describe() != end.describe() {
            wrong(&"not the same the second time");
        }
    }
    figures
}

fn simulate(seed: u64, tools: ToolPresence) -> FinalState {
    let mut builder = runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime can be built");
    runtime.block_on(async { Simulation::new(seed, tools).run().await })
}

struct FinalState {
    plans: BTreeMap<ExecutionId, Arc<Plan>>,
    logs: BTreeMap<ExecutionId, Vec<RecordedEvent>>,
    violations: Vec<String>,
}

struct Simulation {
    world: Arc<World>,
    ledger: Arc<Ledger>,
    /// The view of the store through which people send commands. This view has faults, too.
    client_view: Arc<View>,
    /// Executions that a client started, and retries. Their children are not in this list.
    executions: Vec<ExecutionId>,
    retry_count: u32,
    workers: Vec<LivingWorker>,
    tools: ToolPresence,
    tool_changes: JoinSet<()>,
    tasks: JoinSet<()>,
    started_worker_count: u32,
    subscribers: JoinSet<(ExecutionId, Vec<RecordedEvent>)>,
    acknowledged_commands: Vec<people::AcknowledgedCommand>,
    violations: Vec<String>,
}

struct LivingWorker {
    view: Arc<View>,
    handle: WorkerHandle,
    drain: CancellationToken,
    abort_handle: AbortHandle,
}

impl Simulation {
    fn new(seed: u64, tools: ToolPresence) -> Self {
        let rates = FaultRates {
            failures_before: 30,
            failures_after: 30,
            failures_before_inbox: 200,
            stalls: 6,
            max_stall: Duration::from_secs(7),
        };
        let world = World::new(seed, rates);
        Self {
            ledger: Ledger::new(Arc::clone(&world)),
            client_view: world.view(),
            world,
            executions: Vec::new(),
            retry_count: 0,
            workers: Vec::new(),
            tools,
            tool_changes: JoinSet::new(),
            tasks: JoinSet::new(),
            started_worker_count: 0,
            subscribers: JoinSet::new(),
            acknowledged_commands: Vec::new(),
            violations: Vec::new(),
        }
    }

    async fn run(mut self) -> FinalState {
        let count = 1 + self.world.dice.draw_below(3);
        let rounds = 6 + self.world.dice.draw_below(8);
        for round in 0..rounds {
            if self.workers.len() < MAX_WORKERS && self.world.dice.happens(700) {
                self.start_worker();
            }
            if round < count {
                self.start_execution().await;
            }
            self.sleep_up_to(2_000).await;
            self.disturb_worker();
            self.send_random_command().await;
        }
        self.world.stop_faults();
        self.start_worker();
        self.wait_until_settled().await;
        self.end_world().await
    }

    async fn sleep_up_to(&self, max_ms: u64) {
        time::sleep(Duration::from_millis(1 + self.world.dice.draw_below(max_ms))).await;
    }

    fn start_worker(&mut self) {
        self.started_worker_count += 1;
        let view = self.world.view();
        let drain = CancellationToken::new();
        let options = Options {
            lease: Duration::from_secs(2),
            poll: Duration::from_millis(400),
            park_after: Duration::from_millis(1_500),
            executions: 4,
            cancel_grace: Duration::from_millis(700),
            connect: Duration::from_secs(1),
            store_tries: 6,
            drain: Duration::from_secs(1),
            calls: Arc::new(limits()).into(),
            ..Options::default()
        };
        let toolbox = self.ledger.make_toolbox();
        if self.tools == ToolPresence::ComeAndGo {
            self.tool_changes
                .spawn(remove_and_restore_tools(Arc::clone(&self.world), toolbox.clone()));
        }
        let parts = WorkerParts {
            node: format!("node {}", self.started_worker_count),
            store: Arc::<View>::clone(&view),
            toolbox,
            clock: Arc::new(self.world.draw_clock()),
            options,
            scope: WorkerScope::Everything,
        };
        let id: WorkerId =
            format!("work_{}_simulated", self.started_worker_count).parse().expect("well-formed");
        let (worker, handle) = Worker::new(parts, id, drain.clone());
        let abort_handle = self.tasks.spawn(worker.run());
        self.workers.push(LivingWorker { view, handle, drain, abort_handle });
    }

    /// Starts an execution and repeats the request with its key until it is acknowledged.
    async fn start_execution(&mut self) {
        let n = self.executions.len();
        let mut plans =
            plans::draw_plans(&self.world.dice, n).into_iter().map(Arc::new).collect::<Vec<_>>();
        for plan in &plans {
            self.world.memory.put_plan(plan).await.expect("the memory store does not fail");
        }
        let plan = plans.pop().expect("a plan was drawn");
        let options = plans::draw_options(&self.world.dice, self.world.clock.now());
        let key = IdempotencyKey {
            key: plan.id().to_string(),
            subject: json!(plan.id()),
            compensates: options.compensate_on_failure.then_some(true),
            labels: options.labels.clone(),
        };
        self.reserve(&key, &options, n).await;
        let mut tries = 0;
        let id = loop {
            tries += 1;
            assert!(tries <= MAX_START_ATTEMPTS, "the execution does not start");
            let index = self.world.dice.draw_index(1 + self.workers.len());
            let worker = self.workers.get(index).map(|worker| worker.handle.clone());
            let view = self.workers.get(index).map_or(&self.client_view, |worker| &worker.view);
            let control = self.control(view, worker);
            let start = control
                .start(Start { key: Some(key.clone()), ..Start::new(&plan, options.clone()) });
            match time::timeout(Duration::from_secs(5), start).await {
                Ok(Ok(started)) => break started.id,
                Ok(Err(_)) | Err(_) => self.sleep_up_to(200).await,
            }
        };
        self.register_started(id);
        // Waits for the next second, because ids are sorted by the second of their creation, and
        // due executions by their ids.
        time::sleep(Duration::from_secs(1)).await;
    }

    /// Reserves the key with a fixed id, because the sequence of claims and the retry delays depend
    /// on the id.
    async fn reserve(&self, key: &IdempotencyKey, options: &ExecutionOptions, n: usize) {
        let execution = format!("exec_{}_simulated", n + 1).parse().expect("well-formed");
        let mut options = serde_json::to_value(options).expect("options are JSON");
        options.sort_all_objects();
        let fingerprint = json!([key.subject, options]).to_string();
        let reservation = Reservation { key: key.key.clone(), execution, fingerprint };
        (&*self.world.memory as &dyn Store)
            .reserve_key(&reservation)
            .await
            .expect("the memory store does not fail");
    }

    fn register_started(&mut self, id: ExecutionId) {
        self.executions.push(id);
        for _ in 0..2 {
            self.subscribers.spawn(subscribe(Arc::clone(&self.world), id));
        }
    }

    async fn all_executions(&self) -> Vec<ExecutionId> {
        let page = Page::first_items(10_000);
        let heads = self.world.memory.list_heads(&ExecutionFilter::default(), &page).await;
        let heads = heads.expect("the memory store does not fail").items;
        let mut all: Vec<ExecutionId> = heads.into_iter().map(|head| head.1.execution).collect();
        all.sort_unstable();
        all
    }

    /// Returns a client of the engine that starts and controls executions through a view of the
    /// store. `worker` is the worker in the same process, if there is one.
    fn control(&self, view: &Arc<View>, worker: Option<WorkerHandle>) -> Control {
        let store: Arc<dyn Store> = Arc::<View>::clone(view);
        Control::new(store, Arc::new(self.world.clock), worker)
    }

    fn disturb_worker(&mut self) {
        self.workers.retain(|worker| !worker.abort_handle.is_finished());
        if self.workers.is_empty() {
            return;
        }
        let dice = &self.world.dice;
        let index = dice.draw_index(self.workers.len());
        match dice.draw_below(100) {
            0..30 => self.workers.swap_remove(index).abort_handle.abort(),
            30..50 => {
                self.workers[index]
                    .view
                    .freeze(Duration::from_millis(500 + dice.draw_below(6_000)));
            }
            50..65 => self.workers[index].drain.cancel(),
            _ => (),
        }
    }

    async fn replay_state(&self, id: ExecutionId) -> Option<Execution> {
        let log = self.world.read_log(id).await;
        let plan = self.plan_of(&log).await?;
        Execution::replay(id, plan, &log).ok()
    }

    async fn plan_of(&self, log: &[RecordedEvent]) -> Option<Arc<Plan>> {
        let Some(Event::Created(created)) = log.first().map(|recorded| &recorded.event) else {
            return None;
        };
        self.world.memory.plan(created.plan).await.expect("the memory store does not fail")
    }

    /// Waits until all executions have finished, for at most [`MAX_FINISH_TIME`]. First lets them
    /// run without people, and then acts as a helpful person.
    async fn wait_until_settled(&mut self) {
        let started_at = self.world.clock.now();
        time::sleep(if self.world.is_skewed() { SKEWED_QUIET_TIME } else { QUIET_TIME }).await;
        self.check_waits().await;
        self.check_acknowledged_commands(started_at).await;
        while self.world.clock.now() < started_at + MAX_FINISH_TIME {
            let mut is_over = true;
            for id in self.all_executions().await {
                is_over &= self.act_as_helpful_person(id).await;
            }
            if is_over {
                break;
            }
            time::sleep(Duration::from_secs(1)).await;
        }
        time::sleep(Duration::from_secs(8)).await;
    }

    async fn end_world(mut self) -> FinalState {
        let mut logs = BTreeMap::new();
        let mut plans = BTreeMap::new();
        for id in self.all_executions().await {
            let log = self.world.read_log(id).await;
            plans.extend(self.plan_of(&log).await.map(|plan| (id, plan)));
            logs.insert(id, log);
        }
        self.check_store(&logs).await;
        for worker in &self.workers {
            worker.drain.cancel();
        }
        time::sleep(Duration::from_secs(8)).await;
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(err) = ended
                && err.is_panic()
            {
                self.violations.push(format!("a worker panicked: {err}"));
            }
        }
        if !self.tasks.is_empty() {
            self.violations.push("a worker did not drain".to_owned());
        }
        while let Some(seen) = self.subscribers.try_join_next() {
            let (id, events) = seen.expect("subscribers do not panic");
            if logs.get(&id) != Some(&events) {
                self.violations.push(format!("a subscriber saw {} events of {id}", events.len()));
            }
        }
        if !self.subscribers.is_empty() {
            self.violations.push("a subscriber still waits".to_owned());
        }
        let mut violations = self.world.violations(&logs);
        violations.append(&mut self.violations);
        FinalState { plans, logs, violations }
    }
}

/// Removes the toolset `sim` and restores it, until faults stop.
async fn remove_and_restore_tools(world: Arc<World>, toolbox: Toolbox) {
    let name = "sim".parse().expect("well-formed");
    let set = toolbox.set_with_tools(&name).expect("the ledger has tools");
    while !world.has_stopped_faults() {
        time::sleep(Duration::from_millis(1 + world.dice.draw_below(3_000))).await;
        toolbox.remove_set(&name);
        // Sometimes the tools disappear only for a short time, so that they can return during a
        // write.
        let max_ms = if world.dice.happens(500) { 40 } else { 3_000 };
        time::sleep(Duration::from_millis(1 + world.dice.draw_below(max_ms))).await;
        toolbox.put_set(set.clone());
    }
}

fn limits() -> CallLimits {
    let of = LimitedCalls::Tool("sim.limited".parse().expect("well-formed"));
    CallLimits::new(vec![LimitRule { calls: of, key: None, concurrency: Some(2), rate: None }])
}

/// Follows a log until the execution finishes. After each failure it continues after the last
/// event.
async fn subscribe(world: Arc<World>, id: ExecutionId) -> (ExecutionId, Vec<RecordedEvent>) {
    let view: Arc<dyn Store> = world.view();
    let poll = Duration::from_secs(2);
    let mut events: Vec<RecordedEvent> = Vec::new();
    while events.last().is_none_or(|recorded| !recorded.event.is_last()) {
        let after = events.last().map_or(Seq::START, |recorded| recorded.seq);
        let follow =
            store::follow_log(Arc::clone(&view), id, after, poll).try_for_each(|recorded| {
                events.push(recorded);
                std::future::ready(Ok(()))
            });
        // The subscription ends here if the store failed or the time is over. Then the loop
        // subscribes again.
        let retry_delay = Duration::from_millis(1_000 + world.dice.draw_below(20_000));
        let _ = time::timeout(retry_delay, follow).await;
        time::sleep(Duration::from_millis(50)).await;
    }
    (id, events)
}

impl FinalState {
    /// Returns all events as text, with the ids of executions, but without the other ids, which are
    /// random.
    fn describe(&self) -> String {
        let mut story = String::new();
        for (id, log) in &self.logs {
            writeln!(story, "{id}").expect("strings are writable");
            for RecordedEvent { at, event, .. } in log {
                let step = event.step().map(ToString::to_string).unwrap_or_default();
                let attempt =
                    event.attempt().map(|attempt| attempt.to_string()).unwrap_or_default();
                let at = at.timestamp_micros() % 1_000_000_000_000;
                let item = event.part().item.map(|item| format!("[{item}]")).unwrap_or_default();
                writeln!(story, "{at} {} {step}{item} {attempt}", event.kind())
                    .expect("strings are writable");
            }
        }
        story
    }
}

impl SimulationCounts {
    fn add(&mut self, other: Self) {
        let Self { states, events, errors } = other;
        for (name, n) in states {
            *self.states.entry(name).or_default() += n;
        }
        for (name, n) in events {
            *self.events.entry(name).or_default() += n;
        }
        for (name, n) in errors {
            *self.errors.entry(name).or_default() += n;
        }
    }
}
