//! Calls that begin before the steps that ask for them: while the plan is still being written.
//!
//! Only what reads is called so early. Whoever begins such a call writes it down; a step that
//! calls the same takes its result, and the log says that it did. One that no step takes is told to
//! stop, and nobody misses it: after a crash the step calls for itself.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use shared::{
    event::StepStarted,
    id::{Attempt, Part, StepId, StepIx, Task, ToolName},
    plan::Callee,
};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    blobs::Blobs,
    call::{Call, Ended},
    options::Options,
    tool::{ToolContext, progress::Reports},
    toolbox::Toolbox,
};

/// A call that has begun. Dropping it stops it.
#[derive(Debug)]
pub struct CallAhead {
    tool: ToolName,
    parameters: Arc<Value>,
    work: JoinHandle<Ended>,
    stop: CancellationToken,
    _left: DropGuard,
}

/// Calls that have begun, by the step that is to take what comes of each.
#[derive(Debug, Default)]
pub struct Ahead(BTreeMap<StepId, CallAhead>);

impl CallAhead {
    /// Calls what a step will call, as it would.
    pub fn begin(
        callee: Callee<'_>,
        parameters: Arc<Value>,
        blobs: Blobs,
        toolbox: &Toolbox,
        options: &Arc<Options>,
    ) -> Self {
        let (task, attempt) =
            (Task { step: StepIx::new(0), part: Part::default() }, Attempt::FIRST);
        let (tool, stop) = (callee.tool.clone(), CancellationToken::new());
        let call = Call {
            task,
            attempt,
            tool: tool.clone(),
            pinned: None,
            parameters: Arc::clone(&parameters),
            timeout: callee.policy.timeout(),
            idle_timeout: callee.policy.idle_timeout_ms.map(Duration::from_millis),
            progress: Reports::default().sink((task, attempt)),
            cx: ToolContext { cancel: stop.clone(), blobs: Some(blobs), ..ToolContext::detached() },
        };
        let work = tokio::spawn(call.carry_out(toolbox.clone(), Arc::clone(options)));
        Self { tool, parameters, work, _left: stop.clone().drop_guard(), stop }
    }

    /// Returns whether it calls this.
    pub fn is_of(&self, tool: &ToolName, parameters: &Value) -> bool {
        self.tool == *tool && *self.parameters == *parameters
    }

    /// Returns what came of it, as what came of an attempt; nothing if it was lost.
    pub(crate) async fn end(
        mut self,
        task: Task,
        attempt: Attempt,
        cancel: CancellationToken,
    ) -> Option<Ended> {
        let ended = tokio::select! {
            biased;
            ended = &mut self.work => ended,
            () = cancel.cancelled() => {
                self.stop.cancel();
                (&mut self.work).await
            }
        };
        let mut ended = ended.ok()?;
        (ended.task, ended.attempt) = (task, attempt);
        if let Ok(answer) = &mut ended.result {
            answer.cached = true;
        }
        Some(ended)
    }
}

impl Ahead {
    /// Adds the call that a step is to take the result of.
    pub fn add(&mut self, step: StepId, call: CallAhead) {
        self.0.insert(step, call);
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the call of what begins, if it is the same.
    pub(crate) fn take(&mut self, tool: &ToolName, started: &StepStarted) -> Option<CallAhead> {
        if self.0.is_empty() || !started.part.is_whole() {
            return None;
        }
        let call = self.0.remove(&started.step)?;
        (started.attempt == Attempt::FIRST && call.is_of(tool, &started.parameters)).then_some(call)
    }
}
