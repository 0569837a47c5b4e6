mod person_probe;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use engine::{Engine, retention::Retention};
use executor::worker::WorkerHandle;
use futures::FutureExt;
use shared::{
    clock::Clock,
    metrics::process_metrics,
    store::{HeadQuery, Store},
};
use tokio::{
    sync::Mutex,
    time::{self, Instant},
};
use toolbox::{SetStatus, ToolSet, Toolbox};

use self::person_probe::PersonProbe;
use crate::{
    server::{Hooks, PathPrefix},
    web::Pages,
};

const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);
const MIN_QUEUE_READ_INTERVAL: Duration = Duration::from_secs(5);
const MIN_SIZE_READ_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time that a request for metrics waits for the store. It is short, because Prometheus
/// gives up after ten seconds.
const QUEUE_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of due executions that are counted. An alert needs no larger number.
const MAX_DUE_EXECUTIONS: usize = 1_000;

/// Checks that the store accepts writes. Each result is reused for [`MIN_PROBE_INTERVAL`], because
/// every client can request `/health/ready`.
struct WriteProbe {
    store: Arc<dyn Store>,
    last_result: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl WriteProbe {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last_result: Mutex::default() }
    }

    async fn check_writes(&self) -> Result<(), String> {
        // The lock is held during the check, so that concurrent requests share one check.
        let mut last_result = self.last_result.lock().await;
        if let Some((at, outcome)) = &*last_result
            && at.elapsed() < MIN_PROBE_INTERVAL
        {
            return outcome.clone();
        }
        let outcome = self.store.check_writable().await.map_err(|err| err.to_string());
        *last_result = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// Builds the hooks of the server that need the engine or the page: readiness, metrics and routes.
/// `store_file` is the file of an SQLite store. The page uses URLs below `path_prefix`.
pub fn build_server_hooks(
    engine: &Engine,
    worker: Option<WorkerHandle>,
    retention: &Arc<Retention>,
    store_file: Option<PathBuf>,
    path_prefix: &PathPrefix,
) -> Hooks {
    let pages = Pages::new(path_prefix);
    let queue = Arc::new(QueueProbe::new(engine));
    let size = Arc::new(SizeProbe::new(Arc::clone(engine.store()), store_file));
    let persons =
        Arc::new(PersonProbe::new(Arc::clone(engine.store()), Arc::clone(engine.clock())));
    let counted = Arc::clone(engine.store());
    let probe = Arc::new(WriteProbe::new(Arc::clone(&counted)));
    let toolbox = engine.tools.inventory.toolbox().clone();
    let retention = Arc::clone(retention);
    Hooks {
        ready: Arc::new(move || {
            let probe = Arc::clone(&probe);
            async move { probe.check_writes().await }.boxed()
        }),
        first_metrics: Arc::new(move || {
            let waiting = worker.as_ref().map_or(0, WorkerHandle::waiting_call_count);
            let (queue, size, persons) =
                (Arc::clone(&queue), Arc::clone(&size), Arc::clone(&persons));
            let own = [
                process_metrics().render(),
                format_engine_metrics(counted.hints().commits(), &toolbox),
                retention.format_metrics(),
                format!(
                    "# HELP faber_calls_waiting Calls of this process that wait for a limit of `limits.calls`.\n\
                     # TYPE faber_calls_waiting gauge\n\
                     faber_calls_waiting {waiting}\n"
                ),
            ];
            async move {
                let (figures, bytes, needing_person) =
                    tokio::join!(queue.read_figures(), size.read_bytes(), persons.format_metrics());
                let of_store = [format_store_size(bytes), format_queue(figures), needing_person];
                own.concat() + &of_store.concat()
            }
            .boxed()
        }),
        pages: pages.routes(),
        unknown_path_handler: Arc::new(move |uri, headers| pages.answer_unknown_path(uri, headers)),
        ..Hooks::default()
    }
}

/// Counts the executions that wait for a worker. A request for metrics reads the store only if the
/// last read is older than [`MIN_QUEUE_READ_INTERVAL`].
struct QueueProbe {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    last_figures: Mutex<Option<(Instant, Option<QueueFigures>)>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct QueueFigures {
    /// Number of due executions, at most [`MAX_DUE_EXECUTIONS`].
    due: usize,
    oldest_seconds: f64,
}

impl QueueProbe {
    fn new(engine: &Engine) -> Self {
        let (store, clock) = (Arc::clone(engine.store()), Arc::clone(engine.clock()));
        Self { store, clock, last_figures: Mutex::default() }
    }

    /// Returns `None` if the store fails or does not answer in time.
    async fn read_figures(&self) -> Option<QueueFigures> {
        let mut last_figures = self.last_figures.lock().await;
        if let Some((at, figures)) = &*last_figures
            && at.elapsed() < MIN_QUEUE_READ_INTERVAL
        {
            return *figures;
        }
        let now = self.clock.now();
        let query = HeadQuery::DueAfter { now, after: None };
        let found =
            time::timeout(QUEUE_READ_TIMEOUT, self.store.find_heads(query, MAX_DUE_EXECUTIONS))
                .await;
        let figures = found.ok().and_then(Result::ok).map(|heads| {
            let oldest = heads.iter().filter_map(|head| head.due).min();
            let waited = oldest.map(|due| (now - due).to_std().unwrap_or_default());
            let oldest_seconds = waited.unwrap_or_default().as_secs_f64();
            QueueFigures { due: heads.len(), oldest_seconds }
        });
        *last_figures = Some((Instant::now(), figures));
        figures
    }
}

/// Formats the metrics of the queue. If the store did not give the figures, returns an empty text,
/// because a zero would end an alert about a full queue.
fn format_queue(figures: Option<QueueFigures>) -> String {
    let Some(QueueFigures { due, oldest_seconds }) = figures else { return String::new() };
    format!(
        "# HELP faber_executions_due Executions in the store that wait for a worker, up to {MAX_DUE_EXECUTIONS}.\n\
         # TYPE faber_executions_due gauge\n\
         faber_executions_due {due}\n\
         # HELP faber_executions_oldest_due_seconds Time since the oldest execution that waits for a worker became due.\n\
         # TYPE faber_executions_oldest_due_seconds gauge\n\
         faber_executions_oldest_due_seconds {oldest_seconds}\n"
    )
}

/// Measures the store. A database server is asked only if its last answer is older than
/// [`MIN_SIZE_READ_INTERVAL`].
struct SizeProbe {
    store: Arc<dyn Store>,
    file: Option<PathBuf>,
    last_bytes: Mutex<Option<(Instant, Option<u64>)>>,
}

impl SizeProbe {
    fn new(store: Arc<dyn Store>, file: Option<PathBuf>) -> Self {
        Self { store, file, last_bytes: Mutex::default() }
    }

    /// Returns `None` for a store in memory, and if the server refuses the command or does not
    /// answer in time.
    async fn read_bytes(&self) -> Option<u64> {
        if let Some(file) = &self.file {
            return Some(measure_files(file));
        }
        let mut last_bytes = self.last_bytes.lock().await;
        if let Some((at, bytes)) = &*last_bytes
            && at.elapsed() < MIN_SIZE_READ_INTERVAL
        {
            return *bytes;
        }
        let read = time::timeout(QUEUE_READ_TIMEOUT, self.store.stored_bytes()).await;
        let bytes = read.ok().and_then(Result::ok).flatten();
        *last_bytes = Some((Instant::now(), bytes));
        bytes
    }
}

fn measure_files(file: &Path) -> u64 {
    let parts = ["", "-wal", "-shm"].map(|suffix| {
        let mut path = file.as_os_str().to_owned();
        path.push(suffix);
        fs::metadata(path).map_or(0, |part| part.len())
    });
    parts.iter().sum()
}

/// Formats nothing if the size is unknown, because a zero would look like a lost store.
fn format_store_size(bytes: Option<u64>) -> String {
    let Some(bytes) = bytes else { return String::new() };
    format!(
        "# HELP faber_store_size_bytes Size of the store on disk.\n\
         # TYPE faber_store_size_bytes gauge\n\
         faber_store_size_bytes {bytes}\n"
    )
}

fn format_engine_metrics(commits: u64, toolbox: &Toolbox) -> String {
    let sets = toolbox.sets();
    let count =
        |wanted: fn(&SetStatus) -> bool| sets.iter().filter(|set| wanted(&set.status)).count();
    let ready = count(|status| *status == SetStatus::Ready);
    let connecting = count(|status| *status == SetStatus::Connecting);
    // No plan needs an inactive set. Built-in sets without a folder are inactive and have failed
    // if the configuration is in `/etc`.
    let is_needed =
        |set: &&ToolSet| set.is_active && matches!(set.status, SetStatus::Failed { .. });
    let failed = sets.iter().filter(is_needed).count();
    let tools: usize = sets.iter().map(|set| set.tools.len()).sum();
    format!(
        "# HELP faber_store_commits_total Commits of the store by this process.\n\
         # TYPE faber_store_commits_total counter\n\
         faber_store_commits_total {commits}\n\
         # HELP faber_toolsets Toolsets, by their status. Inactive ones that failed are left out.\n\
         # TYPE faber_toolsets gauge\n\
         faber_toolsets{{status=\"ready\"}} {ready}\n\
         faber_toolsets{{status=\"connecting\"}} {connecting}\n\
         faber_toolsets{{status=\"failed\"}} {failed}\n\
         # HELP faber_tools Tools that this process knows.\n\
         # TYPE faber_tools gauge\n\
         faber_tools {tools}\n"
    )
}

#[cfg(test)]
mod tests {
    use shared::store::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn a_store_without_files_and_without_a_server_has_no_size() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let bytes = SizeProbe::new(Arc::clone(&store), None).read_bytes().await;
        assert_eq!((bytes, format_store_size(bytes)), (None, String::new()));
        // This file exists in each checkout, and has no write-ahead log.
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let length = fs::metadata(&file).unwrap().len();
        let bytes = SizeProbe::new(store, Some(file)).read_bytes().await;
        assert_eq!(bytes, Some(length));
        assert!(format_store_size(bytes).ends_with(&format!("faber_store_size_bytes {length}\n")));
    }
}
