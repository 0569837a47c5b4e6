//! Heads: summaries of executions for lists, counts and claims.

use std::sync::Arc;

use super::search::fold_case;
use crate::{
    clock::Timestamp,
    execution::{Execution, ExecutionState},
    id::{Epoch, ExecutionId, PlanId, RequestId, Seq, ToolName, WorkerId},
    labels::{self, Labels},
    limits, sealed,
    tool::ErrorCode,
};

/// A summary of an execution for lists and claims.
///
/// It is a cache of the log, so it may lag behind the log, but it is never ahead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionHead {
    pub execution: ExecutionId,
    pub request: RequestId,
    pub plan: PlanId,
    pub state: ExecutionState,
    pub created_at: Timestamp,
    pub seq: Seq,
    pub epoch: Epoch,
    pub owner: Option<WorkerId>,
    /// The time when a worker should claim the execution, if it has no owner. `None` if the
    /// execution has finished, or if only a command can continue it.
    pub due: Option<Timestamp>,
    /// The priority. Executions with a higher priority are claimed first.
    pub priority: i32,
    pub finished_at: Option<Timestamp>,
    pub parent: Option<ExecutionId>,
    /// `true` if the execution [needs a person](Execution::needs_person). The parent of such an
    /// execution does not need a person for this reason.
    pub needs_person: bool,
    /// The time of the first claim at or after the planned start.
    pub started_at: Option<Timestamp>,
    /// The query of the plan, clipped to [`limits::HEAD_QUERY_BYTES`].
    pub query: Arc<str>,
    pub steps_done: u32,
    pub steps_total: u32,
    /// The first error. A later success of the execution does not remove it.
    pub error: Option<HeadError>,
    pub labels: Labels,
    pub is_dry_run: bool,
    /// The bytes of the log and the blobs, if the execution belongs to a token. Approximate.
    pub stored_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadError {
    pub code: ErrorCode,
    /// The tool of the failed step, as `set.name`. `None` if the execution failed as a whole.
    pub tool: Option<ToolName>,
    /// The message, clipped to [`limits::HEAD_MESSAGE_BYTES`]. Encrypted in an encrypted store.
    pub message: Arc<str>,
}

impl ExecutionHead {
    /// Makes the head of an execution.
    ///
    /// A finished execution keeps its owner until its parent has received its message and its
    /// replan has started.
    pub fn from_execution(
        execution: &Execution,
        owner: Option<WorkerId>,
        due: Option<Timestamp>,
    ) -> Self {
        let (state, parent) =
            (execution.state(), execution.parent().map(|parent| parent.execution));
        let count = |steps| u32::try_from(steps).unwrap_or(u32::MAX);
        Self {
            execution: execution.id(),
            request: execution.request(),
            plan: execution.plan().id(),
            state,
            created_at: execution.created_at(),
            seq: execution.seq(),
            epoch: execution.epoch(),
            // If the owner of a finished execution is lost, another worker finds the execution as
            // an orphan.
            owner: owner.filter(|_| !state.is_finished() || execution.has_follow_up()),
            due: due.filter(|_| !state.is_finished()),
            priority: execution.options().priority,
            finished_at: execution.finished_at(),
            parent,
            needs_person: execution.needs_person(),
            started_at: execution.started_at(),
            query: clip_text(&execution.plan().info().query, limits::HEAD_QUERY_BYTES).into(),
            steps_done: count(execution.finished_steps()),
            steps_total: count(execution.steps().len()),
            error: HeadError::of_execution(execution),
            labels: make_labels(execution),
            is_dry_run: execution.options().dry_run,
            stored_bytes: execution.stored_bytes(),
        }
    }

    /// Adds the fields that heads of layouts before version 6 lack. Keeps the other fields, because
    /// the head may be behind the log.
    pub fn add_derived(&mut self, execution: &Execution) {
        let derived = Self::from_execution(execution, self.owner, self.due);
        let needs_person =
            if derived.seq == self.seq { derived.needs_person } else { self.needs_person };
        *self = Self {
            needs_person,
            started_at: derived.started_at,
            query: derived.query,
            steps_done: derived.steps_done,
            steps_total: derived.steps_total,
            error: derived.error,
            is_dry_run: derived.is_dry_run,
            ..self.clone()
        };
    }

    pub fn token(&self) -> Option<&str> {
        labels::find_token(&self.labels)
    }

    pub fn is_claimable(&self) -> bool {
        self.owner.is_none() && self.due.is_some() && !self.state.is_finished()
    }
}

impl HeadError {
    /// Returns the text in which lists search for words.
    ///
    /// An encrypted message is left out.
    pub fn folded_text(&self) -> String {
        if sealed::is_sealed(&self.message) {
            return fold_case(self.code.as_str());
        }
        fold_case(&format!("{}\n{}", self.code, self.message))
    }

    fn of_execution(execution: &Execution) -> Option<Self> {
        let first = execution.history().first_error.as_deref()?;
        Some(Self {
            code: first.error.code.clone(),
            tool: first.step.map(|step| execution.plan().step(step).tool.clone()),
            message: clip_text(&first.error.message, limits::HEAD_MESSAGE_BYTES).into(),
        })
    }
}

/// Returns the labels of an execution, and of a fork also [`labels::FORKED_FROM`].
fn make_labels(execution: &Execution) -> Labels {
    let mut labels = execution.options().labels.clone();
    if let Some(origin) = execution.forked_from() {
        labels.insert(labels::FORKED_FROM.to_owned(), origin.to_string());
    }
    labels
}

/// Returns an empty text instead of an encrypted text, because an encrypted text that is clipped
/// cannot be decrypted. Encrypted texts occur when an encrypted backup is restored without the key.
fn clip_text(text: &str, max_bytes: usize) -> &str {
    if sealed::is_sealed(text) {
        return "";
    }
    &text[..text.floor_char_boundary(max_bytes)]
}
