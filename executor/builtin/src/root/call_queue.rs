//! Runs file calls on blocking threads, with a limit on concurrent calls.

use std::{
    panic,
    sync::Arc,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use shared::tool::{Effect, ErrorCode, ToolError};
use tokio::{sync::Semaphore, task};
use tokio_util::sync::CancellationToken;
use toolbox::{Tool, ToolContext, function};

use super::Root;

/// Maximum number of concurrent calls for single files. Such calls are short.
pub(super) const MAX_FILE_CALLS: usize = 8;
/// Maximum number of concurrent searches. Each search keeps a core and a disk busy.
pub(super) const MAX_SEARCH_CALLS: usize = 4;
/// Time limit of a search. After it, the search returns the results so far.
pub(crate) const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The queue of a call. Searches have a queue of their own, so they do not delay short calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    File,
    Search,
}

#[derive(Clone, Debug)]
pub(crate) struct StopSignal {
    cancel: CancellationToken,
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    Cancelled,
    TimeUp,
}

#[derive(Debug)]
pub(crate) struct ToolEntry {
    pub(crate) set: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) effect: Effect,
    pub(crate) queue: Queue,
}

impl ToolEntry {
    pub(crate) fn into_tool<Args>(
        self,
        root: &Root,
        run: fn(&Root, &Args, &StopSignal) -> Result<String, ToolError>,
    ) -> Arc<dyn Tool>
    where
        Args: DeserializeOwned + JsonSchema + Send + 'static,
    {
        let Self { set, name, description, effect, queue } = self;
        let root = root.clone();
        function(set, name, description, effect, move |args: Args, cx| {
            let root = root.clone();
            async move { root.run_queued(queue, &cx, move |root, stop| run(root, &args, stop)).await }
        })
    }
}

impl StopSignal {
    pub(crate) fn new(cancel: CancellationToken, limit: Option<Duration>) -> Self {
        Self { cancel, deadline: limit.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        if self.cancel.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_late.then_some(StopReason::TimeUp)
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() {
            return Err(cancelled_error());
        }
        Ok(())
    }
}

impl Root {
    /// Runs work when its queue has a free slot. Dropping the future stops the work.
    pub(crate) async fn run_queued<T: Send + 'static>(
        &self,
        queue: Queue,
        cx: &ToolContext,
        work: impl FnOnce(&Self, &StopSignal) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let cancel = cx.cancel.child_token();
        let _stops_the_work = cancel.clone().drop_guard();
        let permit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(cancelled_error()),
            permit = self.queue_permits(queue).acquire_owned() => permit.expect("the queue is never closed"),
        };
        let root = self.clone();
        let work = task::spawn_blocking(move || {
            let _until_done = permit;
            let root = match queue {
                Queue::File => root,
                Queue::Search => root.for_search(),
            };
            let stop = StopSignal::new(cancel, queue.time_limit());
            stop.check_cancelled()?;
            work(&root, &stop)
        });
        work.await.unwrap_or_else(|err| match err.try_into_panic() {
            Ok(payload) => panic::resume_unwind(payload),
            Err(_) => Err(cancelled_error()),
        })
    }

    pub(super) fn queue_permits(&self, queue: Queue) -> Arc<Semaphore> {
        let queue = match queue {
            Queue::File => &self.0.file_permits,
            Queue::Search => &self.0.search_permits,
        };
        Arc::clone(queue)
    }
}

impl Queue {
    fn time_limit(self) -> Option<Duration> {
        match self {
            Self::File => None,
            Self::Search => Some(SEARCH_TIMEOUT),
        }
    }
}

pub(crate) fn cancelled_error() -> ToolError {
    ToolError::new(ErrorCode::CANCELLED, "the work on files was interrupted")
}
