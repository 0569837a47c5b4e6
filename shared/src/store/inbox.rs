use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoreError;
use crate::{
    actor::Actor,
    clock::Timestamp,
    event::Settlement,
    id::{CommandId, ExecutionId, StepId},
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentCommand {
    /// The command's id. It prevents a second effect of the same command.
    pub id: CommandId,
    #[serde(rename = "executionId", alias = "execution")]
    pub execution: ExecutionId,
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
    /// The actor that gave the command. `None` for commands that an execution sends to its parent
    /// or child, and for commands of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<Actor>>,
    pub command: Command,
}

pub fn inbox_full_error(of: ExecutionId) -> StoreError {
    StoreError::Full { what: format!("the inbox of `{of}`") }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    Cancel {
        reason: Option<String>,
    },
    Pause,
    Resume,
    Approve {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        /// The item of the step's list. `None` means the step itself, or all its waiting items.
        #[serde(
            default,
            rename = "index",
            alias = "item",
            skip_serializing_if = "Option::is_none"
        )]
        item: Option<u32>,
        /// `true` approves the step, and `false` rejects it.
        approved: bool,
        comment: Option<String>,
    },
    Settle {
        #[serde(rename = "stepId", alias = "step")]
        step: StepId,
        /// The item of the step's list. `None` means the step itself.
        #[serde(
            default,
            rename = "index",
            alias = "item",
            skip_serializing_if = "Option::is_none"
        )]
        item: Option<u32>,
        #[serde(flatten)]
        decision: Settlement,
    },
    Signal {
        name: String,
        payload: Arc<Value>,
    },
    /// A child execution has finished, so the parent should read its result.
    ChildEnded {
        #[serde(rename = "childExecutionId", alias = "child")]
        child: ExecutionId,
    },
}
