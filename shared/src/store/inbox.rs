//! What outsiders ask of executions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoreError;
use crate::{
    clock::Timestamp,
    id::{CommandId, ExecutionId, StepId},
};

/// Something an outsider asks of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Makes it count once.
    pub id: CommandId,
    /// Which execution.
    pub execution: ExecutionId,
    /// When it was asked.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
    /// What.
    pub command: Command,
}

/// Says that no further command can wait.
pub fn full_inbox(of: ExecutionId) -> StoreError {
    StoreError::Full { what: format!("the inbox of `{of}`") }
}

/// What an outsider asks of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// Stop.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// Start nothing further.
    Pause,
    /// Go on.
    Resume,
    /// Let a step that waits for a person go on, or not.
    Approve {
        /// The step.
        step: StepId,
        /// Which item of its list; all that wait, if nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<u32>,
        /// Whether it may go on.
        approved: bool,
        /// What the person said.
        comment: Option<String>,
    },
    /// Tell a step that waits for it.
    Signal {
        /// The signal's name.
        name: String,
        /// What it brings.
        payload: Arc<Value>,
    },
    /// An execution that a step of this one began is over: look what came of it.
    ChildEnded {
        /// Which.
        child: ExecutionId,
    },
}
