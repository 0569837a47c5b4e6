//! Events with types, beside `ExecutionEvent.data`. Each type of event is an object of its own.

mod objects;

use std::sync::Arc;

use async_graphql::{ID, Union};
use serde_json::Value;
use shared::event::{Claimed, Created, Event, StepStarted, WaitReason};

use self::objects::{
    AttemptFields, CancelRequestedEvent, ClaimedEvent, CommandIgnoredEvent,
    CompensationStartedEvent, CreatedEvent, DeadlinePassedEvent, EventCall, EventError,
    EventParent, EventReusedOutput, ExecutionFailedEvent, FinishedEvent, PausedEvent, ResumedEvent,
    SignalReceivedEvent, SignalRefusedEvent, StepApprovedEvent, StepCancelledEvent,
    StepCheckedEvent, StepCompensatedEvent, StepCompensationFailedEvent,
    StepCompensationInterruptedEvent, StepCompensationProgressEvent,
    StepCompensationRetryScheduledEvent, StepCompensationStartedEvent, StepFailedEvent, StepFields,
    StepInterruptedEvent, StepProgressEvent, StepRetryScheduledEvent, StepSettledEvent,
    StepSkippedEvent, StepStartedEvent, StepSucceededEvent, StepWaitingEvent, WaitsShortenedEvent,
};
use super::{
    event::{final_state, omit_if_large},
    scalar::to_int,
    text_enums::EventType,
};

/// Content of an event of an execution, with one type for each type of event.
#[derive(Union)]
pub(super) enum EventDetail {
    Created(CreatedEvent),
    Claimed(ClaimedEvent),
    StepStarted(StepStartedEvent),
    StepSucceeded(StepSucceededEvent),
    StepProgress(StepProgressEvent),
    StepChecked(StepCheckedEvent),
    StepRetryScheduled(StepRetryScheduledEvent),
    StepInterrupted(StepInterruptedEvent),
    StepFailed(StepFailedEvent),
    StepSkipped(StepSkippedEvent),
    StepWaiting(StepWaitingEvent),
    StepApproved(StepApprovedEvent),
    StepSettled(StepSettledEvent),
    StepCancelled(StepCancelledEvent),
    StepCompensationStarted(StepCompensationStartedEvent),
    StepCompensated(StepCompensatedEvent),
    StepCompensationProgress(StepCompensationProgressEvent),
    StepCompensationRetryScheduled(StepCompensationRetryScheduledEvent),
    StepCompensationInterrupted(StepCompensationInterruptedEvent),
    StepCompensationFailed(StepCompensationFailedEvent),
    SignalReceived(SignalReceivedEvent),
    SignalRefused(SignalRefusedEvent),
    CommandIgnored(CommandIgnoredEvent),
    CancelRequested(CancelRequestedEvent),
    ExecutionFailed(ExecutionFailedEvent),
    DeadlinePassed(DeadlinePassedEvent),
    WaitsShortened(WaitsShortenedEvent),
    Paused(PausedEvent),
    Resumed(ResumedEvent),
    CompensationStarted(CompensationStartedEvent),
    Finished(FinishedEvent),
}

/// Makes the details of events. Replaces inputs, outputs, payloads and parameters above `max_bytes`
/// by their size, as `ExecutionEvent.data` does.
pub(super) struct DetailWriter {
    pub(super) max_bytes: Option<usize>,
}

impl DetailWriter {
    #[expect(clippy::too_many_lines, reason = "one arm for each type of event")]
    pub(super) fn describe_event(&self, event: &Event) -> EventDetail {
        if event.part().undo {
            return self.describe_compensation(event);
        }
        let kind = EventType::of(event);
        let (step, fields) = (|| StepFields::of(event), || AttemptFields::of(event));
        match event {
            Event::Created(created) => self.describe_created(created).into(),
            Event::Claimed(claimed) => describe_claim(claimed).into(),
            Event::StepStarted(started) => self.describe_start(fields(), started).into(),
            Event::StepSucceeded { output, cached, stderr, .. } => {
                let (output, stderr) = (self.shorten_output(output.as_ref()), stderr.clone());
                StepSucceededEvent { fields: fields(), output, cached: *cached, stderr }.into()
            }
            Event::StepProgress { progress, .. } => {
                StepProgressEvent { fields: fields(), progress: progress.into() }.into()
            }
            Event::StepChecked { parameters, warnings, .. } => {
                let (parameters, warnings) = (self.shorten_value(parameters), warnings.clone());
                StepCheckedEvent { fields: step(), parameters, warnings }.into()
            }
            Event::StepRetryScheduled { error, until, .. } => {
                let (error, until) = (error.into(), (*until).into());
                StepRetryScheduledEvent { fields: fields(), error, until }.into()
            }
            Event::StepInterrupted { error, .. } => {
                let error = error.as_ref().map(EventError::from);
                StepInterruptedEvent { fields: fields(), error }.into()
            }
            Event::StepFailed { error, .. } => {
                StepFailedEvent { fields: fields(), error: error.into() }.into()
            }
            Event::StepSkipped { reason, .. } => {
                StepSkippedEvent { fields: step(), reason: (*reason).into() }.into()
            }
            Event::StepWaiting { reason, parameters, warnings, .. } => {
                let (parameters, warnings) = (self.shorten_value(parameters), warnings.clone());
                describe_wait(step(), reason, parameters, warnings).into()
            }
            Event::StepApproved { comment, .. } => {
                StepApprovedEvent { fields: step(), comment: comment.clone() }.into()
            }
            Event::StepSettled { outcome, output, comment, .. } => {
                let (outcome, comment) = ((*outcome).into(), comment.clone());
                let output = self.shorten_output(output.as_ref());
                StepSettledEvent { fields: fields(), outcome, output, comment }.into()
            }
            Event::StepCancelled { .. } => StepCancelledEvent { fields: step() }.into(),
            Event::SignalReceived { name, payload, .. } => {
                let (name, payload) = (name.clone(), self.shorten_value(payload));
                SignalReceivedEvent { kind, name, payload }.into()
            }
            Event::SignalRefused { name, .. } => {
                SignalRefusedEvent { kind, name: name.clone() }.into()
            }
            Event::CommandIgnored { asked, .. } => {
                CommandIgnoredEvent { kind, asked: asked.clone() }.into()
            }
            Event::CancelRequested { reason } => {
                CancelRequestedEvent { kind, reason: reason.clone() }.into()
            }
            Event::ExecutionFailed { error } => {
                ExecutionFailedEvent { kind, error: error.into() }.into()
            }
            Event::DeadlinePassed => DeadlinePassedEvent { kind }.into(),
            Event::WaitsShortened { ahead_ms } => {
                WaitsShortenedEvent { kind, ahead_ms: to_int(*ahead_ms) }.into()
            }
            Event::Paused { .. } => PausedEvent { kind }.into(),
            Event::Resumed { .. } => ResumedEvent { kind }.into(),
            Event::CompensationStarted => CompensationStartedEvent { kind }.into(),
            Event::Finished { outcome } => {
                FinishedEvent { kind, state: final_state(*outcome).into() }.into()
            }
        }
    }

    /// Describes an event of a call that undoes a step. The types differ from those of the step's own
    /// calls, as the names of the events do.
    fn describe_compensation(&self, event: &Event) -> EventDetail {
        let fields = AttemptFields::of(event);
        match event {
            Event::StepStarted(started) => {
                let event = self.describe_start(fields, started);
                StepCompensationStartedEvent { event }.into()
            }
            Event::StepSucceeded { output, cached, stderr, .. } => {
                let (output, stderr) = (self.shorten_output(output.as_ref()), stderr.clone());
                let event = StepSucceededEvent { fields, output, cached: *cached, stderr };
                StepCompensatedEvent { event }.into()
            }
            Event::StepRetryScheduled { error, until, .. } => {
                let (error, until) = (error.into(), (*until).into());
                let event = StepRetryScheduledEvent { fields, error, until };
                StepCompensationRetryScheduledEvent { event }.into()
            }
            Event::StepInterrupted { error, .. } => {
                let error = error.as_ref().map(EventError::from);
                let event = StepInterruptedEvent { fields, error };
                StepCompensationInterruptedEvent { event }.into()
            }
            Event::StepProgress { progress, .. } => {
                let event = StepProgressEvent { fields, progress: progress.into() };
                StepCompensationProgressEvent { event }.into()
            }
            Event::StepFailed { error, .. } => {
                StepCompensationFailedEvent { fields, error: Some(error.into()) }.into()
            }
            _ => StepCompensationFailedEvent { fields, error: None }.into(),
        }
    }

    fn describe_created(&self, created: &Created) -> CreatedEvent {
        let options = &created.options;
        let reused = created.reused.iter().map(|(step, output)| EventReusedOutput {
            step_id: step.to_string(),
            output: self.shorten_value(output),
        });
        let keys = created.call_keys.iter();
        let settled = created.settled.iter();
        CreatedEvent {
            kind: EventType::Created,
            plan_id: ID(created.plan.to_string()),
            request_id: ID(created.request.to_string()),
            input: self.shorten_value(&options.input),
            mode: options.mode.into(),
            priority: options.priority,
            max_parallel: options.max_parallel,
            deadline_ms: options.deadline_ms.map(to_int),
            strict_templates: options.strict_templates,
            start_at: options.start_at.map(Into::into),
            compensate_on_failure: options.compensate_on_failure,
            dry_run: options.dry_run,
            parent: created.parent.as_ref().map(EventParent::from),
            retry_of: created.retry_of.map(|id| ID(id.to_string())),
            forked_from: created.forked_from.map(|id| ID(id.to_string())),
            reused: reused.collect(),
            call_keys: keys
                .map(|call| EventCall::new(&call.place, Some(&*call.key), None))
                .collect(),
            settled: settled
                .map(|call| EventCall::new(&call.place, None, call.comment.as_deref()))
                .collect(),
        }
    }

    fn describe_start(&self, fields: AttemptFields, started: &StepStarted) -> StepStartedEvent {
        let is_list = started.items.is_some();
        StepStartedEvent {
            fields,
            parameters: (!is_list).then(|| self.shorten_value(&started.parameters)),
            warnings: started.warnings.clone(),
            until: started.until.map(Into::into),
            items: started.items,
            child_execution_id: started.child.map(|id| ID(id.to_string())),
            idempotency_key: started.key.as_deref().map(str::to_owned),
            effect: started.effect.map(Into::into),
        }
    }

    fn shorten_output(&self, output: Option<&Arc<Value>>) -> Option<Arc<Value>> {
        output.map(|output| self.shorten_value(output))
    }

    fn shorten_value(&self, value: &Arc<Value>) -> Arc<Value> {
        let Some(maximum) = self.max_bytes else { return Arc::clone(value) };
        let mut shortened = Value::clone(value);
        omit_if_large(&mut shortened, maximum);
        Arc::new(shortened)
    }
}

fn describe_claim(Claimed { worker, node, epoch, renewed }: &Claimed) -> ClaimedEvent {
    ClaimedEvent {
        kind: EventType::Claimed,
        worker: worker.to_string(),
        node: node.to_string(),
        epoch: to_int(epoch.0),
        renewed: *renewed,
    }
}

fn describe_wait(
    fields: StepFields,
    reason: &WaitReason,
    parameters: Arc<Value>,
    warnings: Vec<String>,
) -> StepWaitingEvent {
    let (name, until, error) = match reason {
        WaitReason::Approval => (None, None, None),
        WaitReason::Signal { name, until } => (Some(name.clone()), until.map(Into::into), None),
        WaitReason::Decision { error } => (None, None, Some(error.into())),
    };
    let waits_for = reason.into();
    StepWaitingEvent { fields, waits_for, name, until, error, parameters, warnings }
}

#[cfg(test)]
mod tests;
