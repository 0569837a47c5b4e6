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

/// Concurrent calls for single files. They are short.
pub(super) const FILES: usize = 8;
/// Concurrent searches. Each keeps a core and a disk busy.
pub(super) const SEARCHES: usize = 4;
/// Time limit of a search. After it, the search returns the results so far.
pub(crate) const SEARCH_TIME: Duration = Duration::from_secs(30);

/// The queue of a call. Long searches do not delay short calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// Calls for single files.
    File,
    /// Searches through folders, with a time limit.
    Search,
}

/// Tells a running call when to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    cancel: CancellationToken,
    until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    Cancelled,
    /// The time limit was reached.
    TimeUp,
}

/// The definition of a file tool without its function.
#[derive(Debug)]
pub(crate) struct ToolEntry {
    pub(crate) set: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) effect: Effect,
    pub(crate) lane: Lane,
}

impl ToolEntry {
    pub(crate) fn tool<Args>(
        self,
        root: &Root,
        run: fn(&Root, &Args, &Stop) -> Result<String, ToolError>,
    ) -> Arc<dyn Tool>
    where
        Args: DeserializeOwned + JsonSchema + Send + 'static,
    {
        let Self { set, name, description, effect, lane } = self;
        let root = root.clone();
        function(set, name, description, effect, move |args: Args, cx| {
            let root = root.clone();
            async move { root.work(lane, &cx, move |root, stop| run(root, &args, stop)).await }
        })
    }
}

impl Stop {
    /// Starts the time limit, if any.
    pub(crate) fn new(cancel: CancellationToken, limit: Option<Duration>) -> Self {
        Self { cancel, until: limit.and_then(|it| Instant::now().checked_add(it)) }
    }

    pub(crate) fn halt(&self) -> Option<Halt> {
        if self.cancel.is_cancelled() {
            return Some(Halt::Cancelled);
        }
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        is_late.then_some(Halt::TimeUp)
    }

    /// Fails if the call was cancelled.
    pub(crate) fn check(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        Ok(())
    }
}

impl Root {
    /// Runs work when its queue has a free slot. Dropping the future stops the work.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        lane: Lane,
        cx: &ToolContext,
        work: impl FnOnce(&Self, &Stop) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let cancel = cx.cancel.child_token();
        let _stops_the_work = cancel.clone().drop_guard();
        let permit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(cancelled()),
            permit = self.lane(lane).acquire_owned() => permit.expect("nobody closes a lane"),
        };
        let root = self.clone();
        let work = task::spawn_blocking(move || {
            let _until_done = permit;
            let root = match lane {
                Lane::File => root,
                Lane::Search => root.searched(),
            };
            let stop = Stop::new(cancel, lane.limit());
            stop.check()?;
            work(&root, &stop)
        });
        work.await.unwrap_or_else(|err| match err.try_into_panic() {
            Ok(payload) => panic::resume_unwind(payload),
            Err(_) => Err(cancelled()),
        })
    }

    pub(super) fn lane(&self, lane: Lane) -> Arc<Semaphore> {
        let lane = match lane {
            Lane::File => &self.0.files,
            Lane::Search => &self.0.searches,
        };
        Arc::clone(lane)
    }
}

impl Lane {
    fn limit(self) -> Option<Duration> {
        match self {
            Self::File => None,
            Self::Search => Some(SEARCH_TIME),
        }
    }
}

pub(crate) fn cancelled() -> ToolError {
    ToolError::new(ErrorCode::CANCELLED, "the work on files was cut short")
}
