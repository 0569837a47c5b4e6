//! Readiness and metrics of the engine for `faber serve`.

use std::{sync::Arc, time::Duration};

use engine::{Engine, retention::Retention};
use executor::worker::WorkerHandle;
use futures::FutureExt;
use shared::store::Store;
use tokio::{sync::Mutex, time::Instant};
use toolbox::{SetStatus, Toolbox};

use crate::{server::Hooks, web};

const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Checks that the store accepts writes. Any client may request `/health/ready`, so each result is
/// reused for [`PROBE_INTERVAL`].
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
            && at.elapsed() < PROBE_INTERVAL
        {
            return outcome.clone();
        }
        let outcome = self.store.check_writable().await.map_err(|err| err.to_string());
        *last_result = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// Returns the parts of the server that depend on the engine: readiness, metrics and pages.
pub fn server_hooks(
    engine: &Engine,
    worker: Option<WorkerHandle>,
    retention: &Arc<Retention>,
) -> Hooks {
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
            let figures = [
                format_engine_metrics(counted.hints().commits(), &toolbox),
                retention.format_metrics(),
                format!(
                    "# HELP faber_calls_waiting Calls that wait here for a limit of `limits.calls`.\n\
                     # TYPE faber_calls_waiting gauge\n\
                     faber_calls_waiting {waiting}\n"
                ),
            ];
            std::future::ready(figures.concat()).boxed()
        }),
        pages: web::page_routes(),
        unknown_path_handler: web::answer_unknown_path,
        ..Hooks::default()
    }
}

fn format_engine_metrics(commits: u64, toolbox: &Toolbox) -> String {
    let sets = toolbox.sets();
    let count =
        |wanted: fn(&SetStatus) -> bool| sets.iter().filter(|set| wanted(&set.status)).count();
    let ready = count(|status| *status == SetStatus::Ready);
    let connecting = count(|status| *status == SetStatus::Connecting);
    let failed = count(|status| matches!(status, SetStatus::Failed { .. }));
    let tools: usize = sets.iter().map(|set| set.tools.len()).sum();
    format!(
        "# HELP faber_store_commits_total Commits of the store by this process.\n\
         # TYPE faber_store_commits_total counter\n\
         faber_store_commits_total {commits}\n\
         # HELP faber_toolsets Toolsets, by their status.\n\
         # TYPE faber_toolsets gauge\n\
         faber_toolsets{{status=\"ready\"}} {ready}\n\
         faber_toolsets{{status=\"connecting\"}} {connecting}\n\
         faber_toolsets{{status=\"failed\"}} {failed}\n\
         # HELP faber_tools Tools that are known.\n\
         # TYPE faber_tools gauge\n\
         faber_tools {tools}\n"
    )
}
