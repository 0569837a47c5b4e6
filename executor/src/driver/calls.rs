use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use futures::FutureExt;
use serde_json::Value;
use sha2::{Digest, Sha256};
use shared::{
    clock::Timestamp,
    event::StepStarted,
    hex::to_hex,
    id::{Part, Seq, Task, ToolName},
    limits,
    plan::{Callee, StepKind},
    tool::{Effect, Progress},
    trace::with_scope,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbox::{StepCall, ToolContext, ToolLookup, Toolbox, blobs::Blobs};
use tracing::warn;

use super::{Driver, JobResult, WorkerContext, children::ChildStatus};
use crate::{
    call::{AttemptKey, Call, FinishedCall},
    machine::{CallOutput, CurrentEffects, Input},
};

/// A start that waits until its event is durable.
#[derive(Debug)]
pub(super) enum HeldStart {
    Call(Box<Call>),
    Child(Task),
}

impl CurrentEffects for Toolbox {
    fn current_effect(&self, tool: &ToolName) -> Option<Effect> {
        self.planned_effect(tool)
    }
}

impl HeldStart {
    fn task(&self) -> Task {
        match self {
            Self::Call(call) => call.task,
            Self::Child(task) => *task,
        }
    }
}

impl Driver {
    /// Handles the start of a task. Only a call that only reads starts before its `step_started`
    /// event is durable.
    pub(super) fn prepare_start(&mut self, seq: Seq, started: &StepStarted) {
        let plan = Arc::clone(self.execution.plan());
        let step = plan.step_number(&started.step).expect("the machine starts steps of the plan");
        let task = Task { step, part: started.part };
        let callee = plan.step(step).call_of_part(started.part);
        match callee.kind {
            _ if started.items.is_some() => (),
            StepKind::Sleep | StepKind::Wait => (),
            StepKind::Plan(_) => self.held_starts.push_back((seq, HeldStart::Child(task))),
            StepKind::Call => {
                let call = self.build_call(task, callee, started);
                if started.effect.unwrap_or(callee.policy.effect) == Effect::Read {
                    self.launch_call(call, callee.policy.cache_ttl_ms);
                } else {
                    // The lease may not have been checked before, because all tools of the plan
                    // were `READ` when the plan was compiled.
                    self.claim.needs_safe_lease = true;
                    self.held_starts.push_back((seq, HeldStart::Call(Box::new(call))));
                }
            }
        }
    }

    fn build_call(&self, task: Task, callee: Callee<'_>, started: &StepStarted) -> Call {
        let call = StepCall {
            execution: self.execution.id(),
            step: started.step.clone(),
            part: started.part,
            attempt: started.attempt,
            key: started.key.clone(),
        };
        Call {
            task,
            attempt: started.attempt,
            tool: callee.tool.clone(),
            known_tool: None,
            parameters: Arc::clone(&started.parameters),
            timeout: callee.policy.timeout(),
            idle_timeout: callee.policy.idle_timeout_ms.map(Duration::from_millis),
            progress: self.reports.sink((task, started.attempt)),
            cx: ToolContext {
                call: Some(call),
                cancel: self.cancel_token(started.part),
                blobs: Some(self.blob_store()),
                ..ToolContext::detached()
            },
        }
    }

    fn blob_store(&self) -> Blobs {
        let WorkerContext { store, clock, .. } = &*self.context;
        Blobs::new(Arc::clone(store), Arc::clone(clock))
    }

    /// Returns the cancellation token of a call. Compensations run because the execution stops, so
    /// nothing cancels them.
    fn cancel_token(&self, part: Part) -> CancellationToken {
        if part.undo { CancellationToken::new() } else { self.cancel.child_token() }
    }

    /// Starts a call. A call that ends in its first poll needs no task of its own.
    fn launch_call(&mut self, call: Call, ttl_ms: Option<u64>) {
        let context = Arc::clone(&self.context);
        let scope = self.telemetry.call_scope(&self.execution, call.task, call.attempt);
        let work = match ttl_ms {
            None => {
                let WorkerContext { toolbox, options, .. } = &*context;
                call.run_call(toolbox.clone(), Arc::clone(options)).boxed()
            }
            Some(ttl_ms) => call_with_cache(context, call, ttl_ms).boxed(),
        };
        let work = with_scope(scope, work);
        let mut work = work.map(JobResult::Ended).boxed();
        match work.as_mut().now_or_never() {
            Some(done) => self.results.push_back(done),
            None => drop(self.jobs.spawn(work)),
        }
    }

    pub(super) fn start_held_tasks(&mut self) {
        let durable = self.pending.durable_seq();
        while let Some((seq, _)) = self.held_starts.front()
            && *seq <= durable
            && !self.is_lease_doubtful()
        {
            match self.held_starts.pop_front().expect("the queue is not empty").1 {
                HeldStart::Call(call) => self.launch_call(*call, None),
                HeldStart::Child(task) => self.watch_child(task),
            }
        }
    }

    pub(super) fn is_held(&self, task: Task) -> bool {
        self.held_starts.iter().any(|(_, start)| start.task() == task)
    }

    /// Records a progress report. After many reports, a call's report is dropped if it follows too
    /// soon.
    pub(super) fn record_progress(&mut self, (task, attempt): AttemptKey, progress: Progress) {
        let now = Instant::now();
        let (n, last) = self.progress_counts.entry(task).or_insert((0, now));
        if *n >= limits::FULL_RATE_PROGRESS_EVENTS && now - *last < limits::LATE_PROGRESS_INTERVAL {
            return;
        }
        (*n, *last) = (n.saturating_add(1), now);
        self.decide(Input::Progressed { task, attempt, progress });
    }

    pub(super) fn apply_result(&mut self, done: JobResult) {
        match done {
            JobResult::Ended(ended) => self.finish_attempt(ended),
            JobResult::Permitted(task, number, permit) => self.accept_permit(task, number, permit),
            JobResult::ChildChecked(task, number, seen) => {
                for word in self.children.finish_watch(task, number, &seen) {
                    self.pending.mark_handled(word);
                }
                if let ChildStatus::Finished(ended) = seen {
                    self.finish_attempt(ended);
                }
            }
            JobResult::Cancelled => (),
        }
    }

    fn finish_attempt(
        &mut self,
        FinishedCall { task, attempt, result, bytes, is_tool_missing }: FinishedCall,
    ) {
        self.pending.add_bytes(bytes);
        self.progress_counts.remove(&task);
        match result {
            Err(error) if is_tool_missing => {
                // Checks the tools before the decision, because the decision may start the task
                // again.
                self.tool_presence.invalidate();
                self.decide(Input::NotCalled { task, attempt, error });
            }
            result => self.decide(Input::Ended { task, attempt, result }),
        }
    }
}

async fn call_with_cache(context: Arc<WorkerContext>, call: Call, ttl_ms: u64) -> FinishedCall {
    if matches!(context.toolbox.find_planned(&call.tool), ToolLookup::Inactive(_)) {
        // Skips the cache, because a call of an inactive tool must fail even if the cache has an
        // output.
        return call.run_call(context.toolbox.clone(), Arc::clone(&context.options)).await;
    }
    let key = cache_key(&call.tool, &call.parameters);
    match context.store.find_output(&key, context.clock.now()).await {
        Ok(Some(output)) => {
            let output = Arc::unwrap_or_clone(output);
            let bytes = shared::json::json_size(&output);
            let result = Ok(CallOutput { cached: true, ..CallOutput::from(output) });
            let (task, attempt) = (call.task, call.attempt);
            return FinishedCall { task, attempt, result, bytes, is_tool_missing: false };
        }
        Ok(None) => (),
        Err(err) => warn!(%err, "cannot read the cache"),
    }
    let ended = call.run_call(context.toolbox.clone(), Arc::clone(&context.options)).await;
    if let Ok(CallOutput { output, .. }) = &ended.result {
        let until = expires_at(context.clock.now(), Duration::from_millis(ttl_ms));
        if let Err(err) = context.store.cache_output(&key, output, until).await {
            warn!(%err, "cannot write to the cache");
        }
    }
    ended
}

fn expires_at(now: Timestamp, ttl: Duration) -> Timestamp {
    TimeDelta::from_std(ttl)
        .ok()
        .and_then(|ttl| now.checked_add_signed(ttl))
        .unwrap_or(Timestamp::MAX_UTC)
}

fn cache_key(tool: &ToolName, parameters: &Value) -> String {
    let mut hash = Sha256::new();
    hash.update(tool.as_str());
    // Separates the parts by a zero byte, which no name contains, to make the text of each call
    // unique.
    hash.update([0]);
    hash.update(parameters.to_string());
    to_hex(hash.finalize())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cache_key_differs_for_each_tool_and_parameters() {
        let (one, other): (ToolName, ToolName) = ("a.b".parse().unwrap(), "a.c".parse().unwrap());
        let keys = [
            cache_key(&one, &json!({ "x": 1 })),
            cache_key(&one, &json!({ "x": 1.0 })),
            cache_key(&one, &json!({ "x": "1" })),
            cache_key(&one, &json!({})),
            cache_key(&other, &json!({ "x": 1 })),
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(cache_key(&one, &json!({ "x": 1 })), keys[0]);
        assert_eq!(keys[0].len(), 64);
    }
}
