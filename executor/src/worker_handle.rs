//! The handle by which this process gives executions to its worker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use shared::{
    event::RecordedEvent,
    execution::Execution,
    id::{ExecutionId, WorkerId},
    store::{AppendError, CallLimit, StoreError},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time,
};
use toolbox::Toolbox;

use crate::permits::{HeldPermit, Permits};

pub(crate) const MAX_REQUESTS: usize = 1_024;

#[derive(Clone, Debug)]
pub struct WorkerHandle {
    pub(crate) requests: mpsc::Sender<WorkerRequest>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) toolbox: Toolbox,
    pub(crate) permits: Arc<Permits>,
    pub(crate) worker: WorkerId,
    pub(crate) crowd: Arc<Crowd>,
}

/// Notes whether due executions of tokens wait for a slot. A token that starts one execution after
/// another would otherwise take each free slot.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// `true` if the worker claims due executions. Any other worker must start each execution
    /// itself.
    claims_due: bool,
    is_crowded: AtomicBool,
}

impl Crowd {
    pub(crate) fn new(claims_due: bool) -> Self {
        Self { claims_due, is_crowded: AtomicBool::new(false) }
    }
}

/// A permit for one call outside executions. Released when dropped.
#[derive(Debug)]
pub struct CallPermit {
    _granted: HeldPermit,
}

#[derive(Debug)]
pub(crate) enum WorkerRequest {
    Start {
        execution: Box<Execution>,
        created: Box<RecordedEvent>,
        stored: oneshot::Sender<Result<(), AppendError>>,
        finished: Option<oneshot::Sender<()>>,
        permit: OwnedSemaphorePermit,
    },
    Claim(ExecutionId),
}

impl WorkerHandle {
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.crowd.is_crowded.load(Ordering::Relaxed)
    }

    pub(crate) fn set_crowded(&self, is_crowded: bool) {
        let is_crowded = is_crowded && self.crowd.claims_due;
        self.crowd.is_crowded.store(is_crowded, Ordering::Relaxed);
    }

    pub fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    pub fn waiting_call_count(&self) -> usize {
        self.permits.queued_count()
    }

    /// Acquires a permit for a call outside executions, under limits that all nodes share. Returns
    /// `None` if that takes longer than `timeout`.
    pub async fn acquire_permit(
        &self,
        holder: String,
        limits: Vec<CallLimit>,
        timeout: Duration,
        token: Option<Arc<str>>,
    ) -> Option<CallPermit> {
        let acquired = self.permits.acquire_permit(holder, limits, 0, token);
        let granted = time::timeout(timeout, acquired).await;
        granted.ok().map(|granted| CallPermit { _granted: granted })
    }

    /// Gives a new execution to the worker, and waits until its creation is durable. Returns the
    /// execution if the worker cannot take it now.
    pub(crate) async fn start_execution(
        &self,
        execution: Execution,
        created: RecordedEvent,
        finished: Option<oneshot::Sender<()>>,
    ) -> Result<Result<(), AppendError>, (Box<Execution>, Box<RecordedEvent>)> {
        let give_back = |execution, created| Err((Box::new(execution), Box::new(created)));
        let has_token = execution.token().is_some();
        if has_token && self.is_crowded() {
            return give_back(execution, created);
        }
        let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() else {
            if has_token {
                self.set_crowded(true);
            }
            return give_back(execution, created);
        };
        if !self.toolbox.has_all(execution.plan().called_tools()) {
            return give_back(execution, created);
        }
        let (stored, answer) = oneshot::channel();
        let (execution, created) = (Box::new(execution), Box::new(created));
        let request = WorkerRequest::Start { execution, created, stored, finished, permit };
        if let Err(mpsc::error::SendError(request)) = self.requests.send(request).await {
            let WorkerRequest::Start { execution, created, .. } = request else {
                unreachable!("the channel returns the request")
            };
            return Err((execution, created));
        }
        let lost = || {
            StoreError::Unavailable("the worker ended before it started the execution".to_owned())
        };
        Ok(answer.await.unwrap_or_else(|_| Err(lost().into())))
    }

    pub async fn claim_execution(&self, id: ExecutionId) {
        // Ignores the error, because another worker finds the execution if this worker has ended.
        let _ = self.requests.send(WorkerRequest::Claim(id)).await;
    }
}
