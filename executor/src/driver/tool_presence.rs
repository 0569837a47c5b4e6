//! Watches whether this node has all tools that an execution still needs, because tools can
//! disappear during a run.

use shared::id::Seq;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Driver, WorkerContext};

#[derive(Debug, Default)]
pub(super) struct ToolPresence {
    /// The checked revision of the toolbox. `None` if a check is due.
    revision: Option<u64>,
    missing: Option<MissingTools>,
}

#[derive(Debug)]
struct MissingTools {
    /// The checked position of the log. A finished step no longer needs its tool.
    seq: Seq,
    changes: watch::Receiver<()>,
}

impl ToolPresence {
    pub(super) fn has_missing_tools(&self) -> bool {
        self.missing.is_some()
    }

    pub(super) fn invalidate(&mut self) {
        self.revision = None;
    }

    pub(super) async fn wait_for_change(&mut self) {
        let is_open = match &mut self.missing {
            Some(lacking) => lacking.changes.changed().await.is_ok(),
            None => false,
        };
        if !is_open {
            std::future::pending::<()>().await;
        }
    }
}

impl Driver {
    pub(super) fn refresh_tool_presence(&mut self) {
        let toolbox = &self.context.toolbox;
        let (revision, seq) = (toolbox.revision(), self.execution.seq());
        let is_known = self.tool_presence.revision == Some(revision)
            && self.tool_presence.missing.as_ref().is_none_or(|missing| missing.seq == seq);
        if is_known {
            return;
        }
        if toolbox.has_all(self.execution.required_tools()) {
            // Decides again, because tasks that the last decision could not start can start now.
            self.claim.needs_decision |= self.tool_presence.has_missing_tools();
            self.tool_presence = ToolPresence { revision: Some(revision), missing: None };
            return;
        }
        if !self.tool_presence.has_missing_tools() {
            self.log_missing_tool();
        }
        let mut changes = toolbox.subscribe_changes();
        if toolbox.revision() != revision {
            // Marks the subscription, because a change between the check and the subscription must
            // not be lost.
            changes.mark_changed();
        }
        self.tool_presence =
            ToolPresence { revision: Some(revision), missing: Some(MissingTools { seq, changes }) };
    }

    fn log_missing_tool(&self) {
        let WorkerContext { toolbox, is_alone, .. } = &*self.context;
        let execution = self.execution.id();
        let Some(tool) = self.execution.required_tools().find(|tool| !toolbox.has_all([*tool]))
        else {
            return;
        };
        if *is_alone {
            // Uses the target that commands of `faber` hide, because they show the missing tool
            // themselves.
            warn!(target: toolbox::LOG_TARGET, %execution, %tool, "the execution waits: this process lacks a tool that it needs");
        } else {
            info!(%execution, %tool, "released the execution to other nodes: this node lacks a tool that it needs");
        }
    }
}
