//! `faber bench`: measures the engine on this machine. The duration of an execution ends when its
//! last event is durable.

mod load;
mod report;
mod select;
mod workload;

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use client::failure::Failure;
use executor::{
    control::Control,
    options::Options,
    worker::{Worker, WorkerParts, WorkerScope},
};
use serde_json::Value;
use shared::{
    clock::Clock,
    id::WorkerId,
    store::{self, Store},
    tool::Effect,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolbox::{Toolbox, flow};

use self::report::Report;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// The workload to measure.
    pub(crate) workload: Workload,
    /// Number of steps in a plan; for `select`, number of registered tools.
    #[arg(long)]
    pub(crate) steps: Option<usize>,
    /// Number of executions; for `select`, number of queries for each criterion.
    #[arg(long)]
    pub(crate) runs: Option<usize>,
    /// Number of executions at the same time; for `dag`, number of steps at the same time.
    #[arg(long)]
    pub(crate) concurrency: Option<usize>,
    /// The declared effect of the tool that the steps call.
    #[arg(long, value_enum, default_value_t = BenchEffect::Once)]
    pub(crate) effect: BenchEffect,
    /// Duration of the measurement in seconds, instead of a number of runs.
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// The file of `dag`: `{"steps":[{"id","after":[…],"ms"}]}`.
    #[arg(long)]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Steps one after another.
    Chain,
    /// Parallel steps, and one step that waits for all of them.
    Fanout,
    /// Sleeping steps with the dependencies in a file.
    Dag,
    /// The compiler alone: a large plan, and a cycle in a large graph.
    Plan,
    /// Selection from thousands of tools, by each criterion, and the collisions of these tools.
    Select,
    /// Subscribers of one execution, each of which reads all its events.
    Subscribe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchEffect {
    /// The tool has no effect.
    Read,
    /// A second call would repeat the tool's effect.
    Once,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Store(#[from] store::StoreError),
    #[error("{0}")]
    Engine(String),
}

impl From<BenchError> for Failure {
    fn from(err: BenchError) -> Self {
        match err {
            BenchError::Usage(reason) => Self::usage(reason),
            BenchError::Store(err) => err.into(),
            BenchError::Engine(reason) => Self::new("INTERNAL", reason),
        }
    }
}

struct BenchNode {
    store: Arc<dyn Store>,
    control: Control,
    toolbox: Toolbox,
    clock: Arc<dyn Clock>,
    drain: CancellationToken,
    worker: JoinSet<()>,
}

pub(crate) async fn run_workload(args: &BenchArgs, url: &str) -> Result<Value, BenchError> {
    if args.workload == Workload::Plan {
        return Ok(workload::measure_compiler(args.steps.unwrap_or(100_000)));
    }
    let mut bench_node = BenchNode::new(url).await?;
    let mut report = Report::new(args, url);
    report.probe_commits(&*bench_node.store).await?;
    match args.workload {
        Workload::Chain => workload::run_chain(&bench_node, args, &mut report).await?,
        Workload::Fanout => workload::run_fanout(&bench_node, args, &mut report).await?,
        Workload::Dag => workload::run_dag(&bench_node, args, &mut report).await?,
        Workload::Subscribe => workload::run_subscribers(&bench_node, args, &mut report).await?,
        Workload::Select => select::run_selection(&bench_node, args, &mut report).await?,
        Workload::Plan => unreachable!("measured above, without a store"),
    }
    bench_node.drain.cancel();
    while bench_node.worker.join_next().await.is_some() {}
    Ok(report.to_json())
}

const NEVER_PARK: Duration = Duration::from_hours(24 * 365);

impl BenchNode {
    async fn new(url: &str) -> Result<Self, BenchError> {
        let store = engine::store::open_store(url).await?;
        let clock: Arc<dyn Clock> = Arc::new(store::shared_clock(&*store).await?);
        let toolbox = Toolbox::new([flow::flow()]);
        let drain = CancellationToken::new();
        let parts = WorkerParts {
            node: "bench".to_owned(),
            store: Arc::clone(&store),
            toolbox: toolbox.clone(),
            clock: Arc::clone(&clock),
            options: Options {
                drain: Duration::from_secs(1),
                // This worker claims only the executions that it is given, so it would not claim a
                // parked execution again.
                park_after: NEVER_PARK,
                ..Options::default()
            },
            scope: WorkerScope::Given,
        };
        let (worker, handle) = Worker::new(parts, WorkerId::draw(clock.now()), drain.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run());
        let control = Control::new(Arc::clone(&store), Arc::clone(&clock), Some(handle));
        Ok(Self { store, control, toolbox, clock, drain, worker: tasks })
    }
}

impl From<BenchEffect> for Effect {
    fn from(effect: BenchEffect) -> Self {
        match effect {
            BenchEffect::Read => Self::Read,
            BenchEffect::Once => Self::Once,
        }
    }
}
