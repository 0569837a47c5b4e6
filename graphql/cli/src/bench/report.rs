use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use shared::{
    clock::Timestamp,
    event::{Event, RecordedEvent},
    id::{ExecutionId, Seq},
    store::{Append, Store},
};

use super::{BenchArgs, BenchError};

/// Number of commits whose durations are measured before the workload, so that the report can
/// compare the workload with the speed of the store.
const PROBED_COMMITS: usize = 200;
/// Maximum number of commits before the measured commits, so that the files of the store have their
/// usual size during the measurement.
const MAX_WARM_UP_COMMITS: u64 = 3_000;
const MAX_WARM_UP_TIME: Duration = Duration::from_secs(2);

pub(crate) struct Report {
    fields: Map<String, Value>,
    commit_count: u64,
}

impl Report {
    pub(crate) fn new(args: &BenchArgs, url: &str) -> Self {
        let mut fields = Map::new();
        let effect = format!("{:?}", args.effect).to_lowercase();
        fields.insert("workload".to_owned(), format!("{:?}", args.workload).to_lowercase().into());
        fields.insert("store".to_owned(), hide_user_and_password(url).into());
        fields.insert("effect".to_owned(), effect.into());
        Self { fields, commit_count: 0 }
    }

    pub(crate) fn for_compiler(wall_time: Duration, steps: usize) -> Self {
        let texts = [("workload", "plan"), ("store", "none"), ("effect", "read")];
        let texts = texts.map(|(name, text)| (name.to_owned(), Value::from(text)));
        let mut report = Self { fields: Map::from_iter(texts), commit_count: 0 };
        report.set("concurrency", 1);
        report.add_figures(0, steps, wall_time, &mut [wall_time]);
        report
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    pub(crate) fn set_ms(&mut self, name: &str, duration: Duration) {
        self.set(name, round_to_four_decimals(duration.as_secs_f64() * 1_000.0));
    }

    /// Measures the durations of single appends of a small event. Does not measure the first
    /// appends, because commits are slower while files grow.
    pub(crate) async fn probe_commits(&mut self, store: &dyn Store) -> Result<(), BenchError> {
        let id = ExecutionId::draw(Timestamp::UNIX_EPOCH);
        let probed_at = Instant::now();
        let mut times = Vec::new();
        let (mut n, mut is_warm) = (0, false);
        while times.len() < PROBED_COMMITS {
            let started_at = Instant::now();
            append_small_event(store, id, n).await?;
            if is_warm {
                times.push(started_at.elapsed());
            }
            n += 1;
            is_warm =
                is_warm || n >= MAX_WARM_UP_COMMITS || probed_at.elapsed() >= MAX_WARM_UP_TIME;
        }
        times.sort_unstable();
        self.set_ms("store_commit_p50_ms", percentile(&times, 50));
        self.set_ms("store_commit_p99_ms", percentile(&times, 99));
        Ok(())
    }

    pub(crate) fn start_counting_commits(&mut self, store: &dyn Store) {
        self.commit_count = store.hints().commits();
    }

    pub(crate) fn record_runs(
        &mut self,
        store: &dyn Store,
        steps: usize,
        wall_time: Duration,
        runs: &mut [Duration],
    ) {
        self.add_figures(store.hints().commits() - self.commit_count, steps, wall_time, runs);
    }

    fn add_figures(
        &mut self,
        commits: u64,
        steps: usize,
        wall_time: Duration,
        runs: &mut [Duration],
    ) {
        let n = runs.len();
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵²")]
        let per_second =
            |count: usize| round_to_four_decimals(count as f64 / wall_time.as_secs_f64());
        runs.sort_unstable();
        self.set("runs", n);
        self.set("wall_s", round_to_four_decimals(wall_time.as_secs_f64()));
        self.set("commits", commits);
        self.set("steps_per_s", per_second(n * steps));
        self.set("runs_per_s", per_second(n));
        self.set_ms("run_p50_ms", percentile(runs, 50));
        self.set_ms("run_p99_ms", percentile(runs, 99));
        let each = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
        let per_step: Vec<Duration> = runs.iter().map(|run| *run / each).collect();
        self.set_ms("step_p50_ms", percentile(&per_step, 50));
        self.set_ms("step_p99_ms", percentile(&per_step, 99));
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut fields = self.fields.clone();
        fields.insert(
            "max_rss_mb".to_owned(),
            read_max_rss_mb().map_or(Value::Null, |size| json!(size)),
        );
        Value::Object(fields)
    }
}

async fn append_small_event(store: &dyn Store, id: ExecutionId, n: u64) -> Result<(), BenchError> {
    let event = Event::CancelRequested { reason: None };
    let recorded = RecordedEvent { seq: Seq(n + 1), at: Timestamp::UNIX_EPOCH, by: None, event };
    let appended = store.append(Append::new(id, Seq(n), &[recorded])).await;
    appended.map_err(|err| BenchError::Engine(err.to_string()))
}

pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
}

pub(crate) fn round_to_four_decimals(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

fn hide_user_and_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

fn read_max_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(round_to_four_decimals(kib / 1_024.0))
}
