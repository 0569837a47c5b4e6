//! Reports the durable events of an execution: as log lines, metrics and spans.
//!
//! All reports are made from events that are in the store, so they never tell more than the event
//! log.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::TimeDelta;
use shared::{
    clock::Timestamp,
    event::{Claimed, Event, RecordedEvent},
    execution::{AttemptTracker, EndedAttempt, Execution},
    id::{Attempt, Epoch, Seq, Task, WorkerId},
    metrics::{ActiveExecution, process_metrics},
    store::{Store, StoreError},
    trace::{Scope, SpanNotes, SpanSink, attempt_context, attempt_span, root_span},
};
use tracing::{debug, field, info};

use super::WorkerContext;

/// The target of log lines about executions, by which `FABER_LOG` can select them.
const LOG_TARGET: &str = "faber::execution";

#[derive(Debug)]
pub(super) struct Telemetry {
    tracker: AttemptTracker,
    spans: Option<SampledSink>,
    notes: BTreeMap<(Task, Attempt), SpanNotes>,
    /// The last claim before this worker's claim.
    previous_claim: Option<Claimed>,
    lost_worker: Option<WorkerId>,
    _active: ActiveExecution,
}

#[derive(Clone, Debug)]
struct SampledSink(Arc<dyn SpanSink>);

impl SampledSink {
    fn for_execution(context: &WorkerContext, execution: &Execution) -> Option<Self> {
        let sink = context.span_sink.get()?;
        let parent = execution.trace().map(|caller| caller.is_sampled);
        let is_sampled = sink.is_sampled(execution.trace_id(), parent);
        is_sampled.then(|| Self(Arc::clone(sink)))
    }

    fn send_attempt(&self, execution: &Execution, ended: &EndedAttempt, notes: &SpanNotes) {
        if let Some(mut span) = attempt_span(execution, ended, true) {
            span.attributes.extend(notes.take());
            self.0.send_span(span);
        }
    }

    fn send_root(&self, execution: &Execution) {
        self.0.send_span(root_span(execution, true));
    }
}

impl Telemetry {
    pub(super) fn new(context: &WorkerContext, execution: &Execution) -> Self {
        Self {
            tracker: AttemptTracker::from_execution(execution),
            spans: SampledSink::for_execution(context, execution),
            notes: BTreeMap::new(),
            previous_claim: execution.owner().cloned(),
            lost_worker: None,
            _active: process_metrics().count_active(),
        }
    }

    pub(super) fn note_lost_worker(&mut self, lost: Option<WorkerId>) {
        self.lost_worker = lost;
    }

    pub(super) fn report_events(&mut self, execution: &Execution, events: &[RecordedEvent]) {
        for recorded in events {
            if let Some(ended) = self.tracker.follow_event(execution.plan(), recorded) {
                self.report_attempt(execution, &ended);
            }
            match &recorded.event {
                Event::Created(_) => process_metrics().count_start(),
                Event::Claimed(claim) if !claim.renewed => {
                    report_claim(execution, recorded, claim);
                    self.report_takeover(execution, recorded, claim);
                }
                Event::Finished { .. } => self.report_end(execution, recorded.at),
                _ => (),
            }
        }
    }

    fn report_attempt(&mut self, execution: &Execution, ended: &EndedAttempt) {
        let plan = execution.plan();
        let step = plan.step(ended.task.step);
        let tool = step.call_of_part(ended.task.part).tool;
        let duration = ended.duration();
        if !ended.is_list(plan) {
            process_metrics().count_attempt(tool, ended.outcome, duration);
        }
        if let Some(spans) = &self.spans {
            let notes = self.notes.remove(&(ended.task, ended.attempt)).unwrap_or_default();
            spans.send_attempt(execution, ended, &notes);
        }
        debug!(
            target: LOG_TARGET,
            execution = %execution.id(),
            request = %execution.request(),
            step = %step.id,
            item = ended.task.part.item,
            attempt = %ended.attempt,
            %tool,
            outcome = ended.outcome.as_str(),
            error = ended.error.as_ref().map(|error| error.code.as_str()),
            duration_ms = duration.map(as_milliseconds),
            trace_id = %execution.trace_id(),
            "step attempt ended"
        );
    }

    fn report_end(&self, execution: &Execution, at: Timestamp) {
        let (state, steps) = (execution.state(), execution.count_steps());
        let duration = time_between(execution.created_at(), at);
        process_metrics().count_end(state.as_str(), duration);
        if let Some(spans) = &self.spans {
            spans.send_root(execution);
        }
        let failure =
            execution.first_error().filter(|_| steps.failed > 0 || !is_success(execution));
        let step = failure.and_then(|(step, _)| step).map(|step| execution.plan().step(step));
        info!(
            target: LOG_TARGET,
            execution = %execution.id(),
            request = %execution.request(),
            plan = %execution.plan().id(),
            state = state.as_str(),
            duration_ms = as_milliseconds(duration),
            steps = steps.total,
            successful = steps.successful,
            failed = steps.failed,
            step = step.map(|step| step.id.as_str()),
            tool = step.map(|step| step.tool.as_str()),
            error = failure.map(|(_, error)| error.code.as_str()),
            cancelled_by = execution.history().cancelled_by.as_deref().map(field::display),
            trace_id = %execution.trace_id(),
            "execution ended"
        );
    }

    /// Reports a claim after the loss of a worker. The log shows the loss only if calls were running.
    fn report_takeover(&mut self, execution: &Execution, recorded: &RecordedEvent, new: &Claimed) {
        let mut takeovers = execution.history().takeovers.iter();
        let found = takeovers.find(|takeover| takeover.claim.seq == recorded.seq);
        let previous = self.previous_claim.replace(new.clone());
        let lost_worker = self.lost_worker.take();
        let lost = match found {
            Some(takeover) => Some(takeover.lost.clone()),
            None => previous.filter(|previous| Some(previous.worker) == lost_worker),
        };
        let Some(lost) = lost else { return };
        process_metrics().count_takeover();
        info!(
            target: LOG_TARGET,
            execution = %execution.id(),
            request = %execution.request(),
            node = &*new.node,
            lost_node = &*lost.node,
            lost_worker = %lost.worker,
            interrupted = found.map_or(0, |takeover| takeover.interrupted.len()),
            trace_id = %execution.trace_id(),
            "execution taken over"
        );
    }

    /// Returns the scope of a call. Without a sink, the call passes on the context of the caller.
    pub(super) fn call_scope(
        &mut self,
        execution: &Execution,
        task: Task,
        attempt: Attempt,
    ) -> Option<Scope> {
        match &self.spans {
            Some(SampledSink(sink)) => {
                let span = attempt_context(execution, task, attempt, true);
                let notes = self.notes.entry((task, attempt)).or_default().clone();
                let (origin, sink) = (Some(span.clone()), Some(Arc::clone(sink)));
                Some(Scope { span, origin, sink, notes })
            }
            None => execution.trace().map(|caller| Scope::of_caller(caller.clone(), None)),
        }
    }
}

fn is_success(execution: &Execution) -> bool {
    execution.state() == shared::execution::ExecutionState::Completed
}

fn report_claim(execution: &Execution, recorded: &RecordedEvent, claim: &Claimed) {
    let is_first = claim.epoch == Epoch::default().next();
    let due = execution.options().start_at.unwrap_or(execution.created_at());
    process_metrics().count_claim(is_first.then(|| time_between(due, recorded.at)));
    if is_first {
        info!(
            target: LOG_TARGET,
            execution = %execution.id(),
            request = %execution.request(),
            plan = %execution.plan().id(),
            steps = execution.plan().steps().len(),
            trace_id = %execution.trace_id(),
            "execution started"
        );
    }
}

/// Sends the spans of all earlier events of an execution that another worker owned before, because
/// that worker may have crashed before it sent them.
pub(crate) async fn resend_spans(context: &WorkerContext, execution: &Execution) {
    let is_own = execution.worker().is_none_or(|worker| worker == context.worker);
    let Some(spans) = SampledSink::for_execution(context, execution).filter(|_| !is_own) else {
        return;
    };
    if let Err(err) = resend_logged_spans(context, execution, &spans).await {
        debug!(execution = %execution.id(), %err, "the earlier spans cannot be sent again");
    }
}

async fn resend_logged_spans(
    context: &WorkerContext,
    execution: &Execution,
    spans: &SampledSink,
) -> Result<(), StoreError> {
    let mut send = |ended: EndedAttempt| {
        spans.send_attempt(execution, &ended, &SpanNotes::default());
    };
    for_each_attempt(&*context.store, execution, &mut send).await?;
    if execution.state().is_finished() {
        spans.send_root(execution);
    }
    Ok(())
}

/// Calls `handle` for each attempt that ended in the log of an execution, up to the position of its
/// state.
pub async fn for_each_attempt(
    store: &dyn Store,
    execution: &Execution,
    handle: &mut (dyn FnMut(EndedAttempt) + Send),
) -> Result<(), StoreError> {
    let (mut tracker, mut after) = (AttemptTracker::default(), Seq::START);
    while after < execution.seq() {
        let events = store.read(execution.id(), after).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        // Leaves out later events, which another worker can append during the read.
        for recorded in events.iter().take_while(|recorded| recorded.seq <= execution.seq()) {
            if let Some(ended) = tracker.follow_event(execution.plan(), recorded) {
                handle(ended);
            }
        }
    }
    Ok(())
}

/// Returns the time between two events. It is zero if the clock of another machine was ahead.
fn time_between(from: Timestamp, to: Timestamp) -> Duration {
    (to - from).max(TimeDelta::zero()).to_std().unwrap_or_default()
}

fn as_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
