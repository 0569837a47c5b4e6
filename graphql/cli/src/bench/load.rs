use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use executor::control::{Control, Start};
use shared::{execution::ExecutionOptions, id::ExecutionId, plan::Plan};
use tokio::{sync::oneshot, task::JoinSet};

use super::BenchError;

#[derive(Clone, Copy, Debug)]
pub(crate) enum StopCondition {
    Runs(usize),
    Time(Duration),
}

#[derive(Debug)]
pub(crate) struct RunTimes {
    pub(crate) wall_time: Duration,
    pub(crate) run_durations: Vec<Duration>,
}

pub(crate) async fn drive_executions(
    control: &Control,
    plan: &Arc<Plan>,
    options: &ExecutionOptions,
    concurrency: usize,
    until: StopCondition,
) -> Result<RunTimes, BenchError> {
    let started_at = Instant::now();
    let started = Arc::new(AtomicUsize::new(0));
    let run_durations = Arc::new(Mutex::new(Vec::new()));
    let mut clients = JoinSet::new();
    for _ in 0..concurrency.max(1) {
        let (control, plan, options) = (control.clone(), Arc::clone(plan), options.clone());
        let (started, run_durations) = (Arc::clone(&started), Arc::clone(&run_durations));
        clients.spawn(async move {
            let is_enough = |n: usize| match until {
                StopCondition::Runs(runs) => n >= runs,
                StopCondition::Time(time) => started_at.elapsed() >= time,
            };
            while !is_enough(started.fetch_add(1, Ordering::Relaxed)) {
                let asked_at = Instant::now();
                run_once(&control, &plan, &options).await?;
                run_durations
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(asked_at.elapsed());
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(|err| BenchError::Engine(err.to_string()))??;
    }
    let wall_time = started_at.elapsed();
    let run_durations =
        std::mem::take(&mut *run_durations.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(RunTimes { wall_time, run_durations })
}

pub(crate) async fn run_once(
    control: &Control,
    plan: &Arc<Plan>,
    options: &ExecutionOptions,
) -> Result<ExecutionId, BenchError> {
    let (finished, ended) = oneshot::channel();
    let start = Start { finished: Some(finished), ..Start::new(plan, options.clone()) };
    let started = control.start(start).await;
    let id = started.map_err(|err| BenchError::Engine(err.to_string()))?.id;
    ended
        .await
        .map_err(|_| BenchError::Engine(format!("`{id}` was not driven until it finished")))?;
    Ok(id)
}
