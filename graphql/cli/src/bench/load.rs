//! Runs many executions of one plan.

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

/// Durations of executions, from the request to the durable end.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) wall: Duration,
    pub(crate) each: Vec<Duration>,
}

pub(crate) async fn drive(
    control: &Control,
    plan: &Arc<Plan>,
    options: &ExecutionOptions,
    concurrency: usize,
    until: StopCondition,
) -> Result<Runs, BenchError> {
    let begun = Instant::now();
    let started = Arc::new(AtomicUsize::new(0));
    let each = Arc::new(Mutex::new(Vec::new()));
    let mut clients = JoinSet::new();
    for _ in 0..concurrency.max(1) {
        let (control, plan, options) = (control.clone(), Arc::clone(plan), options.clone());
        let (started, each) = (Arc::clone(&started), Arc::clone(&each));
        clients.spawn(async move {
            let is_enough = |n: usize| match until {
                StopCondition::Runs(runs) => n >= runs,
                StopCondition::Time(time) => begun.elapsed() >= time,
            };
            while !is_enough(started.fetch_add(1, Ordering::Relaxed)) {
                let asked = Instant::now();
                one(&control, &plan, &options).await?;
                each.lock().unwrap_or_else(PoisonError::into_inner).push(asked.elapsed());
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(|err| BenchError::Engine(err.to_string()))??;
    }
    let wall = begun.elapsed();
    let each = std::mem::take(&mut *each.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Runs { wall, each })
}

pub(crate) async fn one(
    control: &Control,
    plan: &Arc<Plan>,
    options: &ExecutionOptions,
) -> Result<ExecutionId, BenchError> {
    let (finished, ended) = oneshot::channel();
    let start = Start { finished: Some(finished), ..Start::new(plan, options.clone()) };
    let started = control.start(start).await;
    let id = started.map_err(|err| BenchError::Engine(err.to_string()))?.id;
    ended.await.map_err(|_| BenchError::Engine(format!("`{id}` was not driven to its end")))?;
    Ok(id)
}
