use std::{collections::BTreeMap, fmt::Write as _};

use async_graphql::{ID, SimpleObject};
use chrono::TimeDelta;
use engine::{Engine, EventBudget, find_cause_line};
use serde_json::Value;
use shared::{
    clock::Timestamp,
    event::{Claimed, Event, RecordedEvent, StepStarted, WaitReason},
    id::{ExecutionId, Part, Seq, StepId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    tool::{Progress, ToolError},
};

use super::{
    actor::Actor,
    error::ApiResult,
    event::{event_data, final_state},
    scalar::{DateTime, format_time, milliseconds_between, to_int},
};

const MAX_EXECUTIONS: usize = 1_000;
const MAX_EVENTS: usize = 200_000;

/// Entry of a request's timeline.
#[derive(Clone, Debug, SimpleObject)]
#[graphql(complex)]
pub(super) struct TimelineEntry {
    /// Time of the event, by the clock of the process that recorded it. This clock follows the
    /// store's clock.
    at: DateTime,
    /// Kind of the entry: `request`, `transcript`, `plan_created`, or a type of `ExecutionEvent`.
    pub(super) kind: String,
    /// Id of the execution, `exec_…`. Null unless the entry belongs to an execution.
    execution_id: Option<ID>,
    /// Id of the step. Null if the entry is not about a step.
    step_id: Option<String>,
    /// Number of the attempt, from 1. Null if the entry is not about an attempt.
    attempt: Option<u32>,
    /// Name of the machine whose worker owned the execution at that time. Null if no worker did.
    node: Option<String>,
    /// Actor who gave the command that caused the event. Null if no command caused the event.
    actor: Option<Actor>,
    /// Description of the event, in one line.
    message: String,
    /// Content of the event. Its form depends on the kind.
    detail: Option<Value>,
    /// Duration in milliseconds of the attempt or execution that this event ends. Null for other
    /// events.
    duration_ms: Option<f64>,
    /// Duration in milliseconds of the wait that this event ends: for a person, a signal or the
    /// next attempt. Null for other events.
    waited_ms: Option<f64>,
}

/// Returns the timeline of a request by time. Entries of one execution stay in the order of its
/// log, because clocks of machines differ.
pub(super) async fn load_timeline(
    engine: &Engine,
    request: &Request,
) -> ApiResult<Vec<TimelineEntry>> {
    let mut entries = vec![request_entry(request)];
    let transcript = engine.store().transcript(request.id).await?;
    entries.extend(transcript.into_iter().map(transcript_entry));
    for id in engine.store().plan_versions(request.id).await? {
        entries.extend(engine.plans.library.load(id).await?.map(|plan| plan_entry(&plan)));
    }
    let mut logs = Vec::new();
    let mut budget = EventBudget::new(MAX_EVENTS);
    let reader = &engine.executions.reader;
    let heads = reader.newest_of_request(request.id, false, MAX_EXECUTIONS).await?;
    for head in heads.iter().rev() {
        let events = reader.events(head.execution, Seq::START, &mut budget).await?;
        logs.push(log_entries(head.execution, &events));
        if budget.is_spent() {
            break;
        }
    }
    // The clock of another machine can be behind. Entries with a time before the request are sorted
    // as if they had the time of the request.
    let begin = request.created_at;
    let mut dated: Vec<(Timestamp, TimelineEntry)> =
        entries.into_iter().map(|entry| (entry.at.0.max(begin), entry)).collect();
    for log in logs {
        let mut latest = begin;
        dated.extend(log.into_iter().map(|entry| {
            latest = latest.max(entry.at.0);
            (latest, entry)
        }));
    }
    dated.sort_by_key(|(at, _)| *at);
    Ok(dated.into_iter().map(|(_, entry)| entry).collect())
}

fn make_entry(at: Timestamp, kind: &str, message: String, detail: Option<Value>) -> TimelineEntry {
    TimelineEntry {
        at: at.into(),
        kind: kind.to_owned(),
        execution_id: None,
        step_id: None,
        attempt: None,
        node: None,
        actor: None,
        message,
        detail,
        duration_ms: None,
        waited_ms: None,
    }
}

fn request_entry(request: &Request) -> TimelineEntry {
    make_entry(request.created_at, "request", format!("asked for: {}", request.query), None)
}

fn transcript_entry(written: TranscriptEntry) -> TimelineEntry {
    let message = format!("planning: {}", written.kind);
    make_entry(written.at, "transcript", message, Some(written.content))
}

fn plan_entry(plan: &Plan) -> TimelineEntry {
    let about = plan.info();
    let message = format!(
        "plan `{}`, version {} by {}, with {} steps",
        about.id,
        about.version,
        about.planner,
        plan.steps().len()
    );
    make_entry(about.created_at, "plan_created", message, Some(plan_summary(plan)))
}

pub(super) fn plan_summary(plan: &Plan) -> Value {
    let about = plan.info();
    serde_json::json!({
        "planId": about.id,
        "version": about.version,
        "planner": about.planner,
        "steps": plan.steps().len(),
    })
}

/// Folds a log into entries. Keeps track of the owner, and of attempts and waits that have not
/// ended.
#[derive(Default)]
struct TimelineReader {
    owner: Option<Claimed>,
    /// Last claim of the worker that owned the execution before `owner`.
    previous_claim: Option<Claimed>,
    started_at: Option<Timestamp>,
    last_event_at: Option<Timestamp>,
    open_entries: BTreeMap<(StepId, Part), OpenEntry>,
}

#[derive(Clone, Copy)]
enum OpenEntry {
    Attempt(Timestamp),
    /// A sleep or a child execution, which needs no worker.
    Detached(Timestamp),
    Wait(Timestamp),
}

fn log_entries(id: ExecutionId, events: &[RecordedEvent]) -> Vec<TimelineEntry> {
    let mut reading = TimelineReader::default();
    let entries = events.iter().map(|recorded| reading.add_event(id, recorded));
    entries.collect()
}

impl TimelineReader {
    fn add_event(&mut self, id: ExecutionId, recorded: &RecordedEvent) -> TimelineEntry {
        let RecordedEvent { at, by, event, .. } = recorded;
        if let Event::Claimed(claimed) = event {
            let before = self.owner.replace(claimed.clone());
            if before.as_ref().is_some_and(|before| before.worker != claimed.worker) {
                self.previous_claim = before;
                self.exclude_time_without_worker(*at);
            }
            self.started_at.get_or_insert(*at);
        }
        let (duration_ms, waited_ms) = match self.close_entry(event) {
            Some(OpenEntry::Attempt(from) | OpenEntry::Detached(from)) => {
                (Some(milliseconds_between(from, (*at).max(from))), None)
            }
            Some(OpenEntry::Wait(from)) => (None, Some(milliseconds_between(from, *at))),
            None => (None, None),
        };
        self.open_entry(event, *at);
        self.last_event_at = Some(*at);
        let mut message = self.describe_event(event);
        if let Some(by) = by {
            let _ = write!(message, " by {by}");
        }
        TimelineEntry {
            execution_id: Some(ID(id.to_string())),
            step_id: event.step().map(ToString::to_string),
            attempt: event.attempt().map(shared::id::Attempt::get),
            node: self.owner.as_ref().map(|owner| owner.node.to_string()),
            duration_ms,
            waited_ms,
            actor: by.as_deref().map(Actor::from),
            ..make_entry(*at, event.kind(), message, Some(event_data(event)))
        }
    }

    fn open_entry(&mut self, event: &Event, at: Timestamp) {
        let (step, part, open_entry) = match event {
            Event::StepStarted(StepStarted { step, part, until, child, .. }) => {
                let is_call = until.is_none() && child.is_none();
                let open_entry =
                    if is_call { OpenEntry::Attempt(at) } else { OpenEntry::Detached(at) };
                (step, part, open_entry)
            }
            Event::StepWaiting { step, part, .. }
            | Event::StepRetryScheduled { step, part, .. } => (step, part, OpenEntry::Wait(at)),
            _ => return,
        };
        self.open_entries.insert((step.clone(), *part), open_entry);
    }

    /// After a worker was lost, moves the starts of its running attempts, so that their durations
    /// do not include the time without a worker.
    fn exclude_time_without_worker(&mut self, now: Timestamp) {
        let Some(last_event_at) = self.last_event_at else { return };
        for open_entry in self.open_entries.values_mut() {
            if let OpenEntry::Attempt(from) = open_entry {
                *from = now - (last_event_at - *from).max(TimeDelta::zero());
            }
        }
    }

    fn close_entry(&mut self, event: &Event) -> Option<OpenEntry> {
        match event {
            Event::StepSucceeded { step, part, .. }
            | Event::StepRetryScheduled { step, part, .. }
            | Event::StepInterrupted { step, part, .. }
            | Event::StepFailed { step, part, .. }
            | Event::StepWaiting { step, part, .. }
            | Event::StepApproved { step, part, .. }
            | Event::StepSettled { step, part, .. }
            | Event::StepSkipped { step, part, .. }
            | Event::StepCancelled { step, part }
            | Event::StepStarted(StepStarted { step, part, .. }) => {
                self.open_entries.remove(&(step.clone(), *part))
            }
            Event::Finished { .. } => self.started_at.map(OpenEntry::Attempt),
            _ => None,
        }
    }

    /// Describes an event. If an attempt was interrupted because its worker was lost, names this
    /// worker.
    fn describe_event(&self, event: &Event) -> String {
        match (event, &self.previous_claim) {
            (Event::StepInterrupted { attempt, error: None, .. }, Some(lost)) => {
                let step = describe_subject(event);
                format!(
                    "attempt {attempt} of {step} was interrupted: the worker `{}` on {} was lost",
                    lost.worker, lost.node
                )
            }
            _ => describe_event(event),
        }
    }
}

fn describe_subject(event: &Event) -> String {
    let Some(step) = event.step() else { return String::new() };
    let Part { item, undo } = event.part();
    let item = item.map(|item| format!("[{item}]")).unwrap_or_default();
    let undo = if undo { "the compensation of " } else { "" };
    format!("{undo}`{step}{item}`")
}

#[expect(clippy::too_many_lines, reason = "the function has a sentence for each event")]
fn describe_event(event: &Event) -> String {
    let step = describe_subject(event);
    match event {
        Event::Created(created) => format!("execution of `{}` created", created.plan),
        Event::Claimed(claim) if claim.renewed => {
            format!(
                "claimed again by `{}` on {}, whose lease had expired, claim {}",
                claim.worker,
                claim.node,
                to_int(claim.epoch.0)
            )
        }
        Event::Claimed(claim) => {
            format!(
                "claimed by `{}` on {}, claim {}",
                claim.worker,
                claim.node,
                to_int(claim.epoch.0)
            )
        }
        Event::StepStarted(StepStarted { items: Some(n), .. }) => {
            format!("{step} started, with {n} items")
        }
        Event::StepStarted(StepStarted { attempt, child: Some(child), .. }) => {
            format!("{step} started `{child}`, attempt {attempt}")
        }
        Event::StepStarted(started) => format!("{step} started, attempt {}", started.attempt),
        Event::StepSucceeded { cached: true, .. } => format!("{step} succeeded, from the cache"),
        Event::StepSucceeded { .. } => format!("{step} succeeded"),
        Event::StepProgress { progress, .. } => {
            format!("{step} reports {}", describe_progress(progress))
        }
        Event::StepChecked { .. } => format!("{step} was checked"),
        Event::StepRetryScheduled { attempt, error, until, .. } => {
            let (next, until) = (attempt.next(), format_time(*until));
            let error = describe_error(error);
            format!("attempt {attempt} of {step} failed: {error}; attempt {next} starts at {until}")
        }
        Event::StepInterrupted { attempt, error: Some(error), .. } => {
            format!("attempt {attempt} of {step} ended before its call: {}", describe_error(error))
        }
        Event::StepInterrupted { attempt, .. } => {
            format!("attempt {attempt} of {step} was interrupted: its worker was lost")
        }
        Event::StepFailed { error, .. } => format!("{step} failed: {}", describe_error(error)),
        Event::StepSkipped { .. } => format!("{step} was skipped"),
        Event::StepWaiting { reason, .. } => match reason {
            WaitReason::Approval => format!("{step} waits for approval"),
            WaitReason::Signal { name, .. } => format!("{step} waits for the signal `{name}`"),
            WaitReason::Decision { error } => {
                format!("{step} failed and waits for a decision: {}", describe_error(error))
            }
        },
        Event::StepApproved { .. } => format!("{step} was approved"),
        Event::StepSettled { outcome, .. } => {
            format!("{step} was settled as {}", outcome.as_str())
        }
        Event::StepCancelled { .. } => format!("{step} was cancelled"),
        Event::SignalRefused { name, .. } => {
            format!("the signal `{name}` was refused: too many signals are waiting")
        }
        Event::CommandIgnored { asked: command, .. } => {
            format!("the command to {command} changed nothing")
        }
        Event::CompensationStarted => "compensation started".to_owned(),
        Event::SignalReceived { name, .. } => format!("the signal `{name}` arrived"),
        Event::CancelRequested { reason: Some(reason) } => {
            format!("cancellation requested: {reason}")
        }
        Event::CancelRequested { reason: None } => "cancellation requested".to_owned(),
        Event::ExecutionFailed { error } => {
            format!("the execution fails: {}", find_cause_line(&error.message))
        }
        Event::DeadlinePassed => "the deadline passed".to_owned(),
        Event::WaitsShortened { ahead_ms } => {
            let seconds = ahead_ms / 1_000;
            format!(
                "a clock was {seconds} s ahead, so the waits that it recorded were started again \
                 with their full length"
            )
        }
        Event::Paused { .. } => "paused".to_owned(),
        Event::Resumed { .. } => "resumed".to_owned(),
        Event::Finished { outcome } => format!("finished: {}", final_state(*outcome).as_str()),
    }
}

fn describe_error(error: &ToolError) -> String {
    format!("{}: {}", error.code, find_cause_line(&error.message))
}

fn describe_progress(Progress { progress, total, message }: &Progress) -> String {
    let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
    let message = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{progress}{total}{message}")
}
