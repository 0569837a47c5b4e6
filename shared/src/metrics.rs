//! The metrics of this process, for Prometheus. Names of tools, models and planners come from
//! users, so each label has a limited number of values, and all further values count as `other`.

mod build;
mod process;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    sync::{Arc, LazyLock, OnceLock, PoisonError, RwLock, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

pub use self::build::{Build, set_build};
use self::process::ProcessCollector;
use crate::{
    execution::{AttemptOutcome, ExecutionState},
    id::ToolName,
};

/// Maximum number of values of a label that users choose.
const MAX_LABEL_VALUES: usize = 200;
const OTHER_VALUE: &str = "other";

/// Upper bounds of buckets in seconds, from a millisecond to a day, because executions and steps
/// can run for hours.
const LONG_BUCKET_SECONDS: [f64; 16] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0, 3_600.0,
    86_400.0,
];
/// Upper bounds of buckets in seconds, from a tenth of a millisecond to ten seconds.
const SHORT_BUCKET_SECONDS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0];

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

pub fn process_metrics() -> &'static Metrics {
    &METRICS
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabel {
    tool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    tool: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlannerLabels {
    planner: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabel {
    model: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    executions: ExecutionFigures,
    steps: StepFigures,
    store: StoreFigures,
    models: ModelFigures,
}

#[derive(Debug)]
struct ExecutionFigures {
    started: Counter,
    finished: Family<StateLabel, Counter>,
    active: Gauge,
    duration: Histograms<StateLabel>,
    queue_wait: Histogram,
    claims: Counter,
    takeovers: Counter,
    inbox: Gauge,
}

#[derive(Debug)]
struct StepFigures {
    ended: Family<StepLabels, Counter>,
    duration: Histograms<ToolLabel>,
    retries: Counter,
    tools: ToolSeriesMap,
}

/// The series of each tool by its name, up to [`MAX_LABEL_VALUES`] tools.
#[derive(Debug, Default)]
struct ToolSeriesMap(RwLock<BTreeMap<String, Arc<ToolSeries>>>);

/// The series of one tool. They are kept, because every step counts here, and a search by labels
/// takes longer than the counting.
#[derive(Debug)]
struct ToolSeries {
    tool: String,
    duration: OnceLock<Histogram>,
    ended: [OnceLock<Counter>; AttemptOutcome::ALL.len()],
}

impl ToolSeries {
    fn new(tool: &str) -> Arc<Self> {
        let ended = std::array::from_fn(|_| OnceLock::new());
        Arc::new(Self { tool: tool.to_owned(), duration: OnceLock::new(), ended })
    }
}

impl ToolSeriesMap {
    /// Returns the series of a tool, or those of [`OTHER_VALUE`] if there are too many tools.
    fn find_or_create(&self, tool: &str) -> Arc<ToolSeries> {
        let existing = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = existing.get(tool) {
            return Arc::clone(series);
        }
        drop(existing);
        let mut existing = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = existing.len() >= MAX_LABEL_VALUES && !existing.contains_key(tool);
        let tool = if is_full { OTHER_VALUE } else { tool };
        Arc::clone(existing.entry(tool.to_owned()).or_insert_with(|| ToolSeries::new(tool)))
    }
}

#[derive(Debug)]
struct StoreFigures {
    append_time: Histogram,
    append_errors: Counter,
}

#[derive(Debug)]
struct ModelFigures {
    planning_time: Histograms<PlannerLabels>,
    requests: Family<ModelLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<ModelLabel, Counter<f64, AtomicU64>>,
    planners: LabelValues,
    models: LabelValues,
}

/// The tokens and the cost of one answer of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The cost in the currency of the configured price.
    pub cost: Option<f64>,
}

impl Metrics {
    fn new() -> Self {
        let mut registry = Registry::default();
        let executions = ExecutionFigures::register(&mut registry);
        // Creates the series with zero, because Prometheus's `rate` does not count the first value
        // of a series.
        for state in ExecutionState::ALL.into_iter().filter(|state| state.is_finished()) {
            executions.finished.get_or_create_owned(&StateLabel { state: state.as_str() });
        }
        let steps = StepFigures::register(&mut registry);
        let store = StoreFigures::register(&mut registry);
        let models = ModelFigures::register(&mut registry);
        registry.register_collector(Box::new(ProcessCollector));
        Self { registry, executions, steps, store, models }
    }

    pub fn count_start(&self) {
        self.executions.started.inc();
    }

    pub fn count_end(&self, state: &'static str, duration: Duration) {
        let label = StateLabel { state };
        self.executions.finished.get_or_create(&label).inc();
        self.executions.duration.get_or_create(&label).observe(duration.as_secs_f64());
    }

    /// Counts an execution as driven by this process until the result is dropped.
    pub fn count_active(&'static self) -> ActiveExecution {
        self.executions.active.inc();
        ActiveExecution(self)
    }

    /// Counts an attempt that ended. An attempt that failed before its call has no duration, and
    /// an attempt whose worker was lost has an unknown one.
    pub fn count_attempt(
        &self,
        tool: &ToolName,
        outcome: AttemptOutcome,
        duration: Option<Duration>,
    ) {
        let series = self.steps.tools.find_or_create(tool.as_str());
        if outcome == AttemptOutcome::Retried {
            self.steps.retries.inc();
        }
        if let Some(duration) = duration {
            let create = || {
                let label = ToolLabel { tool: series.tool.clone() };
                self.steps.duration.get_or_create_owned(&label)
            };
            series.duration.get_or_init(create).observe(duration.as_secs_f64());
        }
        let create = || {
            let labels = StepLabels { tool: series.tool.clone(), outcome: outcome.as_str() };
            self.steps.ended.get_or_create_owned(&labels)
        };
        series.ended[outcome as usize].get_or_init(create).inc();
    }

    /// Counts a claim. For the first claim of an execution, `waited` is the time since the
    /// execution was due.
    pub fn count_claim(&self, waited: Option<Duration>) {
        self.executions.claims.inc();
        if let Some(waited) = waited {
            self.executions.queue_wait.observe(waited.as_secs_f64());
        }
    }

    pub fn count_takeover(&self) {
        self.executions.takeovers.inc();
    }

    pub fn set_inbox_depth(&self, commands: usize) {
        self.executions.inbox.set(i64::try_from(commands).unwrap_or(i64::MAX));
    }

    pub fn count_append(&self, duration: Duration, is_confirmed: bool) {
        self.store.append_time.observe(duration.as_secs_f64());
        if !is_confirmed {
            self.store.append_errors.inc();
        }
    }

    pub fn count_planning(&self, planner: &str, has_plan: bool, duration: Duration) {
        let outcome = if has_plan { "planned" } else { "failed" };
        let labels = PlannerLabels { planner: self.models.planners.limit(planner), outcome };
        self.models.planning_time.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Counts a question to a model. `usage` is missing if there is no answer.
    pub fn count_model_request(&self, model: &str, usage: Option<ModelUsage>) {
        let model = self.models.models.limit(model);
        let outcome = if usage.is_some() { "answered" } else { "failed" };
        self.models.requests.get_or_create(&ModelLabels { model: model.clone(), outcome }).inc();
        let Some(usage) = usage else { return };
        for (r#type, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            let labels = TokenLabels { model: model.clone(), r#type };
            self.models.tokens.get_or_create(&labels).inc_by(tokens);
        }
        if let Some(cost) = usage.cost {
            self.models.cost.get_or_create(&ModelLabel { model }).inc_by(cost);
        }
    }

    pub fn render(&self) -> String {
        let mut text = String::new();
        // Ignores the result, because writing to a string never fails.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }
}

impl ExecutionFigures {
    fn register(registry: &mut Registry) -> Self {
        let mut add = Registrar(registry);
        Self {
            started: add.register(
                "faber_executions_started",
                "Executions created by this process",
                Counter::default(),
            ),
            finished: add.register(
                "faber_executions_finished",
                "Executions finished by this process, by state",
                Family::default(),
            ),
            active: add.register(
                "faber_executions_active",
                "Executions that this process drives now",
                Gauge::default(),
            ),
            duration: add.register(
                "faber_execution_duration_seconds",
                "From the creation of an execution to its end, by state",
                long_times(),
            ),
            queue_wait: add.register(
                "faber_queue_wait_seconds",
                "Time from when an execution became due until its first claim",
                Histogram::new(LONG_BUCKET_SECONDS),
            ),
            claims: add.register(
                "faber_claims",
                "Claims of executions by this process",
                Counter::default(),
            ),
            takeovers: add.register(
                "faber_takeovers",
                "Claims of executions whose worker was lost",
                Counter::default(),
            ),
            inbox: add.register(
                "faber_inbox_depth",
                "Commands that waited for workers when the store was last read",
                Gauge::default(),
            ),
        }
    }
}

impl StepFigures {
    fn register(registry: &mut Registry) -> Self {
        let mut add = Registrar(registry);
        Self {
            ended: add.register(
                "faber_steps",
                "Attempts of steps that ended in this process, by tool and outcome",
                Family::default(),
            ),
            duration: add.register(
                "faber_step_duration_seconds",
                "Duration of an attempt of a step, by tool",
                long_times(),
            ),
            retries: add.register(
                "faber_step_retries",
                "Attempts that failed and are repeated",
                Counter::default(),
            ),
            tools: ToolSeriesMap::default(),
        }
    }
}

impl StoreFigures {
    fn register(registry: &mut Registry) -> Self {
        let mut add = Registrar(registry);
        Self {
            append_time: add.register(
                "faber_store_append_seconds",
                "Time until events are durable",
                Histogram::new(SHORT_BUCKET_SECONDS),
            ),
            append_errors: add.register(
                "faber_store_append_errors",
                "Appends of events that the store did not confirm",
                Counter::default(),
            ),
        }
    }
}

impl ModelFigures {
    fn register(registry: &mut Registry) -> Self {
        let mut add = Registrar(registry);
        Self {
            planning_time: add.register(
                "faber_planning_seconds",
                "Duration of planning a query, by planner and outcome",
                long_times(),
            ),
            requests: add.register(
                "faber_model_requests",
                "Questions to models, by model and outcome",
                Family::default(),
            ),
            tokens: add.register(
                "faber_model_tokens",
                "Tokens of models, by model and type",
                Family::default(),
            ),
            cost: add.register(
                "faber_model_cost",
                "Cost of models, in the currency of their prices",
                Family::default(),
            ),
            planners: LabelValues::default(),
            models: LabelValues::default(),
        }
    }
}

#[derive(Debug)]
pub struct ActiveExecution(&'static Metrics);

impl Drop for ActiveExecution {
    fn drop(&mut self) {
        self.0.executions.active.dec();
    }
}

fn long_times<L: Clone + Hash + Eq>() -> Histograms<L> {
    Family::new_with_constructor(|| Histogram::new(LONG_BUCKET_SECONDS))
}

struct Registrar<'a>(&'a mut Registry);

impl Registrar<'_> {
    /// Adds a metric. The exporter appends `_total` to the names of counters.
    fn register<M: Metric + Clone>(
        &mut self,
        name: &'static str,
        help: &'static str,
        metric: M,
    ) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}

#[derive(Debug, Default)]
struct LabelValues(RwLock<BTreeSet<String>>);

impl LabelValues {
    /// Returns the value, or [`OTHER_VALUE`] if the label already has the maximum number of other
    /// values.
    fn limit(&self, value: &str) -> String {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.contains(value) {
            return value.to_owned();
        }
        let is_full = known.len() >= MAX_LABEL_VALUES;
        drop(known);
        if is_full {
            return OTHER_VALUE.to_owned();
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_LABEL_VALUES && !known.contains(value) {
            return OTHER_VALUE.to_owned();
        }
        known.insert(value.to_owned());
        value.to_owned()
    }
}
