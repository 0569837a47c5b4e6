//! Whether all tools are here that an execution may yet call.
//!
//! They come and go: a condition on a context stops holding, a set is removed, a server has other
//! tools. Where one is gone nothing begins; what runs ends, and the execution is let go, to go on
//! wherever its tools are.

use shared::id::Seq;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Context, Driver};

/// What a driver knows of the tools that its execution may yet call.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The revision of the toolbox for which this holds; nothing before the first look.
    revision: Option<u64>,
    lacking: Option<Lacking>,
}

/// At least one is not here.
#[derive(Debug)]
struct Lacking {
    /// The position in the log for which that holds: what is over needs its tool no more.
    seq: Seq,
    /// Hints that the tools have changed since.
    changes: watch::Receiver<()>,
}

impl Tools {
    /// Returns whether at least one is not here.
    pub(super) fn are_lacking(&self) -> bool {
        self.lacking.is_some()
    }

    /// Has the next look taken whatever the toolbox says about itself.
    pub(super) fn forget(&mut self) {
        self.revision = None;
    }

    /// Waits until those that are lacking may be here.
    pub(super) async fn changed(&mut self) {
        let is_open = match &mut self.lacking {
            Some(lacking) => lacking.changes.changed().await.is_ok(),
            None => false,
        };
        if !is_open {
            std::future::pending::<()>().await;
        }
    }
}

impl Driver {
    /// Looks whether the tools are here, if that may have changed.
    pub(super) fn look_at_tools(&mut self) {
        let toolbox = &self.context.toolbox;
        let (revision, seq) = (toolbox.revision(), self.execution.seq());
        let is_known = self.tools.revision == Some(revision)
            && self.tools.lacking.as_ref().is_none_or(|it| it.seq == seq);
        if is_known {
            return;
        }
        if toolbox.has_all(self.execution.required_tools()) {
            // What the last decision could not begin may begin now.
            self.claim.must_decide_again |= self.tools.are_lacking();
            self.tools = Tools { revision: Some(revision), lacking: None };
            return;
        }
        if !self.tools.are_lacking() {
            self.say_what_is_lacking();
        }
        let mut changes = toolbox.changes();
        if toolbox.revision() != revision {
            // What was heard before must not be missed.
            changes.mark_changed();
        }
        self.tools = Tools { revision: Some(revision), lacking: Some(Lacking { seq, changes }) };
    }

    fn say_what_is_lacking(&self) {
        let Context { toolbox, is_alone, .. } = &*self.context;
        let execution = self.execution.id();
        let Some(tool) = self.execution.required_tools().find(|it| !toolbox.has_all([*it])) else {
            return;
        };
        if *is_alone {
            warn!(%execution, %tool, "it waits: there is no such tool here now");
        } else {
            info!(%execution, %tool, "left to others until there is such a tool here");
        }
    }
}
