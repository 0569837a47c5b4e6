//! Commands to executions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoreError;
use crate::{
    clock::Timestamp,
    event::Settlement,
    id::{CommandId, ExecutionId, StepId},
};

/// A command to an execution, as its inbox keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentCommand {
    /// The command's id. It prevents a second effect of the same command.
    pub id: CommandId,
    /// The execution.
    pub execution: ExecutionId,
    /// The time when the command was sent.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
    /// The command.
    pub command: Command,
}

/// Makes the error for a full inbox.
pub fn inbox_full_error(of: ExecutionId) -> StoreError {
    StoreError::Full { what: format!("the inbox of `{of}`") }
}

/// A command to an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// Cancel the execution.
    Cancel {
        /// The reason.
        reason: Option<String>,
    },
    /// Start no further step.
    Pause,
    /// Start steps again.
    Resume,
    /// Approve or reject steps that wait for a person.
    Approve {
        /// The step.
        step: StepId,
        /// The item of the step's list. `None` means all waiting items.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<u32>,
        /// Set to approve, clear to reject.
        approved: bool,
        /// The person's comment.
        comment: Option<String>,
    },
    /// Settle a waiting step whose call has an unknown outcome.
    Settle {
        /// The step.
        step: StepId,
        /// The item of the step's list. `None` means the step itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<u32>,
        /// The decision.
        #[serde(flatten)]
        decision: Settlement,
    },
    /// Send a signal to a waiting step.
    Signal {
        /// The signal's name.
        name: String,
        /// The signal's payload.
        payload: Arc<Value>,
    },
    /// A child execution has finished, so the parent should read its result.
    ChildEnded {
        /// The child.
        child: ExecutionId,
    },
}
