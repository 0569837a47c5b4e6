//! Executes one test: a store in memory, an engine with a worker, and virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use chrono::{DurationRound, TimeDelta};
use client::failure::Failure;
use engine::{Engine, EngineError, EventBudget, MAX_FINDINGS, Order};
use executor::{
    control::Control,
    machine::wake_at,
    options::Options,
    worker::{Worker, WorkerParts, WorkerScope},
};
use offline::Offline;
use shared::{
    clock::{Clock, Timestamp, WallClock},
    event::Event,
    execution::{Execution, ExecutionOptions},
    id::{ExecutionId, PlanId, Seq, WorkerId},
    store::{Documents, ExecutionFilter, Page, Store, memory::Memory},
};
use tokio::{
    runtime,
    task::JoinSet,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use toolbox::Toolbox;
use toolsets::{
    registry::{self, Registry},
    sources::Sources,
};

use super::{
    TestResult,
    answers::Answers,
    expectation::{Observation, compare},
    file::{Test, TestFile},
    mocks::MockServer,
    plans::Workload,
};

/// The virtual time at the start of each test, in seconds since 1970.
const START_SECONDS: i64 = 1_700_000_000;
/// With paused time, this sleep ends when all other tasks are idle.
const SETTLE_TIME: Duration = Duration::from_millis(1);
/// An execution that changes nothing for this time, although no timer is due, is stuck.
const STALL_TIME: Duration = Duration::from_mins(10);
const DAY: Duration = Duration::from_hours(24);
const MAX_ROUNDS: usize = 100_000;
const MAX_EXECUTIONS: usize = 100_000;

#[derive(Debug)]
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_timestamp(START_SECONDS, 0).unwrap_or_default();
        let now = start + self.0.elapsed();
        now.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(now)
    }
}

/// Runs the tests of a file, one after another. Fails if the file is wrong: a test mocks a tool
/// that the plan does not have, or the plan does not compile.
pub(crate) fn run_tests(workload: &Workload, file: &TestFile) -> Result<Vec<TestResult>, Failure> {
    file.tests.iter().map(|test| run_test(workload, test)).collect()
}

fn run_test(workload: &Workload, test: &Test) -> Result<TestResult, Failure> {
    let started = WallClock.now();
    let internal = |err: &dyn std::fmt::Display| Failure::new("INTERNAL", err.to_string());
    let mut builder = runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|err| internal(&err))?;
    let result =
        runtime.block_on(async { World::open(workload, test).await?.run(workload, test).await });
    let took = (WallClock.now() - started).to_std().unwrap_or_default();
    Ok(TestResult { took, ..result? })
}

struct World {
    store: Arc<Memory>,
    clock: Arc<dyn Clock>,
    engine: Engine,
    control: Control,
    server: Arc<MockServer>,
    _tasks: JoinSet<()>,
}

impl World {
    async fn open(workload: &Workload, test: &Test) -> Result<Self, Failure> {
        let store = Arc::new(Memory::new());
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock(Instant::now()));
        for plan in &workload.plans {
            store.put_plan(plan).await?;
        }
        for saved in &workload.saved {
            (&*store as &dyn Store).save_plan(saved).await?;
        }
        let mut scripts = BTreeMap::new();
        for (tool, script) in &test.tools {
            let wrong = |reason| Failure::usage(format!("the test `{}`: {reason}", test.name));
            scripts.insert(workload.find_tool(tool).map_err(wrong)?, script.clone());
        }
        let recording = test.record.and_then(|id| workload.recordings.get(&id)).cloned();
        let server = Arc::new(MockServer::new(Arc::clone(&store), recording, scripts));
        let toolbox = Toolbox::default();
        for set in server.make_sets(&workload.definitions) {
            let exists = |err: toolbox::SetExists| Failure::usage(err.to_string());
            toolbox.register_set(set).map_err(exists)?;
        }
        // Long intervals, because virtual time passes each of them, even while steps sleep for
        // years. Hints wake the worker in time.
        let options = Options {
            lease: 1_000 * DAY,
            poll: DAY,
            park_after: 100_000 * DAY,
            ..Options::default()
        };
        let store_of_all = Arc::clone(&store) as Arc<dyn Store>;
        let registry = Registry::new(registry::Parts {
            sources: Sources::new(&toolbox, options.output_bytes),
            toolbox: toolbox.clone(),
            store: Arc::clone(&store_of_all),
            clock: Arc::clone(&clock),
            configured: Vec::new(),
            contexts: BTreeMap::new(),
            base: PathBuf::from("."),
            secrets: None,
        });
        registry.sync().await?;
        let parts = WorkerParts {
            node: "test".to_owned(),
            store: Arc::clone(&store_of_all),
            toolbox,
            clock: Arc::clone(&clock),
            options: options.clone(),
            scope: WorkerScope::Everything,
        };
        let (worker, handle) =
            Worker::new(parts, WorkerId::draw(clock.now()), CancellationToken::new());
        let control = Control::new(store_of_all, Arc::clone(&clock), Some(handle));
        let planner = Arc::new(Offline::default());
        let engine = Engine::new(control.clone(), registry, planner, Arc::clone(&clock), options);
        worker.set_replanner(engine.executions.replanner());
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run());
        Ok(Self { store, clock, engine, control, server, _tasks: tasks })
    }

    async fn run(self, workload: &Workload, test: &Test) -> Result<TestResult, Failure> {
        let plan = self.find_plan(workload).await?;
        let began = self.clock.now();
        let mut result = TestResult {
            name: test.name.clone(),
            failures: Vec::new(),
            state: None,
            calls: Vec::new(),
            virtual_ms: 0,
            took: Duration::ZERO,
        };
        match self.start(workload, test, plan).await {
            Ok(id) => {
                self.drive(id, workload, test).await?;
                let observed = self.observe(id).await?;
                result.state = Some(observed.execution.state());
                result.failures = compare(&test.expect, &observed);
            }
            Err(err) => result.failures.push(format!("the execution did not start: {err}")),
        }
        for call in self.server.unmocked_calls() {
            let reason = format!(
                "`{}` was called by `{}` without a mock: {}",
                call.tool, call.step, call.parameters
            );
            result.failures.insert(0, reason);
        }
        result.calls = self.server.calls();
        result.virtual_ms = (self.clock.now() - began).num_milliseconds();
        Ok(result)
    }

    /// Returns the plan under test. Compiles a draft with the mocked tools.
    async fn find_plan(&self, workload: &Workload) -> Result<PlanId, Failure> {
        let Some(draft) = &workload.draft else {
            let plan = workload.plans.last().map(|plan| plan.id());
            return plan.ok_or_else(|| Failure::new("INTERNAL", "the plan is missing"));
        };
        let verdict = self.engine.plans.create_plan(draft).await?;
        match verdict.plan {
            Some(plan) => Ok(plan.id()),
            None => Err(Failure::invalid_plan(&verdict.diagnostics)),
        }
    }

    async fn start(
        &self,
        workload: &Workload,
        test: &Test,
        plan: PlanId,
    ) -> Result<ExecutionId, EngineError> {
        let recorded = test.record.and_then(|id| workload.recordings.get(&id));
        let recorded = recorded.map(|recording| recording.input.clone());
        let input = test.input.clone().or(recorded).unwrap_or_default();
        let executions = &self.engine.executions;
        if let Some(name) = &workload.saved_name {
            return executions.start_saved_plan(name, Some(input), Order::default()).await;
        }
        let options = ExecutionOptions { input: Arc::new(input), ..ExecutionOptions::default() };
        executions.start_plan(plan, Order { options, ..Order::default() }).await
    }

    /// Lets virtual time pass until the execution has finished, or waits for an answer that the
    /// test does not have.
    async fn drive(
        &self,
        id: ExecutionId,
        workload: &Workload,
        test: &Test,
    ) -> Result<(), Failure> {
        let mut answers = Answers {
            signals: test.signals.clone(),
            approvals: test.approvals.clone(),
            recording: test.record.and_then(|id| workload.recordings.get(&id)).cloned(),
            answered: BTreeSet::new(),
        };
        let mut stalled_at = None;
        for _ in 0..MAX_ROUNDS {
            time::sleep(SETTLE_TIME).await;
            let open = self.load_unfinished().await?;
            if open.iter().all(|execution| execution.id() != id) {
                return Ok(());
            }
            let mut has_answered = false;
            for execution in &open {
                let above = self.server.find_path(execution.id()).await;
                let answered = answers.answer_waits(&self.control, execution, &above).await;
                has_answered |= answered.map_err(EngineError::from)?;
            }
            if has_answered {
                continue;
            }
            let due = open.iter().filter_map(wake_at).min();
            if let Some(due) = due {
                let left = (due - self.clock.now()).to_std().unwrap_or_default();
                time::sleep(left).await;
                continue;
            }
            let position: Vec<Seq> = open.iter().map(Execution::seq).collect();
            if stalled_at.as_ref() == Some(&position) {
                return Ok(());
            }
            stalled_at = Some(position);
            time::sleep(STALL_TIME).await;
        }
        Err(Failure::new("LIMIT_EXCEEDED", format!("the test `{}` does not end", test.name)))
    }

    async fn load_unfinished(&self) -> Result<Vec<Execution>, Failure> {
        let page = Page::first_items(MAX_EXECUTIONS);
        let heads = self.store.list_heads(&ExecutionFilter::default(), &page).await?;
        let mut open = Vec::new();
        for (_, head) in heads.items {
            if !head.state.is_finished() {
                open.extend(self.engine.executions.reader.load(head.execution).await?);
            }
        }
        open.retain(|execution| !execution.state().is_finished());
        Ok(open)
    }

    async fn observe(&self, id: ExecutionId) -> Result<Observation, Failure> {
        let missing = || Failure::new("INTERNAL", "the execution is missing");
        let executions = &self.engine.executions;
        let execution = executions.reader.load(id).await?.ok_or_else(missing)?;
        let workers = executions.live_workers().await?;
        let findings = executions.findings(&execution, &workers, MAX_FINDINGS).await?;
        let mut budget = EventBudget::new(usize::MAX);
        let mut started = Vec::new();
        for recorded in executions.reader.events(id, Seq::START, &mut budget).await? {
            if let Event::StepStarted(start) = &recorded.event
                && !start.part.undo
            {
                let step = start.step.to_string();
                if !started.contains(&step) {
                    started.push(step);
                }
            }
        }
        Ok(Observation { execution, findings, started, calls: self.server.calls() })
    }
}
