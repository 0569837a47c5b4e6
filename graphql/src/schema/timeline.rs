//! Everything that happened under a request, in order of time.

use std::{collections::BTreeMap, sync::Arc};

use async_graphql::{ID, SimpleObject};
use serde_json::Value;
use shared::{
    clock::Timestamp,
    event::{Claimed, Event, Recorded, StepStarted, WaitReason},
    id::{ExecutionId, Seq, StepId},
    plan::Plan,
    request::{Request, TranscriptEntry},
};

use super::{
    error::ApiResult,
    event::{data, ended},
    scalar::{DateTime, int, milliseconds},
};
use crate::engine::Engine;

/// The executions of a request that a timeline tells of, the newest.
const EXECUTIONS: usize = 1_000;
/// The events that it tells of, those of the newest executions.
const EVENTS: usize = 200_000;

/// Something that happened under a request.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct TimelineEntry {
    /// When, by the clock of the machine that recorded it.
    at: DateTime,
    /// What kind of thing: `request`, `transcript`, `plan_created`, or the type of an event.
    kind: String,
    /// The execution that it happened to.
    execution_id: Option<ID>,
    /// The step that it is about.
    step_id: Option<String>,
    /// Which try of the step.
    attempt: Option<u32>,
    /// The machine that had the execution then.
    node: Option<String>,
    /// What happened, in words.
    message: String,
    /// All that is recorded of it.
    detail: Option<Value>,
    /// How long what ends here took, in milliseconds: an attempt, or the execution.
    duration_ms: Option<f64>,
}

/// Returns everything that happened under a request, in order of time.
///
/// Clocks of machines differ, so within one execution the log's own order always holds.
pub(super) async fn of(engine: &Engine, request: &Request) -> ApiResult<Vec<TimelineEntry>> {
    let mut entries = vec![of_request(request)];
    let transcript = engine.store().transcript(request.id).await?;
    entries.extend(transcript.into_iter().map(of_transcript));
    for id in engine.store().plans_of(request.id).await? {
        entries.extend(engine.plan(id).await?.map(|it| of_plan(&it)));
    }
    let mut logs = Vec::new();
    let mut room = EVENTS;
    for head in engine.executions_of(request.id, EXECUTIONS).await?.iter().rev() {
        let events = engine.events(head.execution, Seq::START, room).await?;
        room -= events.len();
        logs.push(of_log(head.execution, &events));
        if room == 0 {
            break;
        }
    }
    let mut dated: Vec<(Timestamp, TimelineEntry)> =
        entries.into_iter().map(|it| (it.at.0, it)).collect();
    for log in logs {
        let mut latest = Timestamp::MIN_UTC;
        dated.extend(log.into_iter().map(|entry| {
            latest = latest.max(entry.at.0);
            (latest, entry)
        }));
    }
    dated.sort_by_key(|(at, _)| *at);
    Ok(dated.into_iter().map(|(_, entry)| entry).collect())
}

fn entry(at: Timestamp, kind: &str, message: String, detail: Option<Value>) -> TimelineEntry {
    TimelineEntry {
        at: at.into(),
        kind: kind.to_owned(),
        execution_id: None,
        step_id: None,
        attempt: None,
        node: None,
        message,
        detail,
        duration_ms: None,
    }
}

fn of_request(request: &Request) -> TimelineEntry {
    entry(request.created_at, "request", format!("asked for: {}", request.query), None)
}

fn of_transcript(it: TranscriptEntry) -> TimelineEntry {
    let message = format!("planning: {}", it.kind);
    entry(it.at, "transcript", message, Some(it.content))
}

fn of_plan(plan: &Plan) -> TimelineEntry {
    let about = plan.about();
    let message = format!(
        "plan `{}`, version {} by {}, with {} steps",
        about.id,
        about.version,
        about.planner,
        plan.steps().len()
    );
    entry(about.created_at, "plan_created", message, Some(about_json(plan)))
}

/// Returns what there is to say of a plan without its steps.
pub(super) fn about_json(plan: &Plan) -> Value {
    let about = plan.about();
    serde_json::json!({
        "planId": about.id,
        "version": about.version,
        "planner": about.planner,
        "steps": plan.steps().len(),
    })
}

/// Reads a log as people do: with the machine that had the execution, and how long things took.
#[derive(Default)]
struct Reading {
    node: Option<Arc<str>>,
    started: Option<Timestamp>,
    attempts: BTreeMap<StepId, Timestamp>,
}

fn of_log(id: ExecutionId, events: &[Recorded]) -> Vec<TimelineEntry> {
    let mut reading = Reading::default();
    let entries = events.iter().map(|it| reading.entry(id, it));
    entries.collect()
}

impl Reading {
    fn entry(&mut self, id: ExecutionId, Recorded { at, event, .. }: &Recorded) -> TimelineEntry {
        match event {
            Event::Claimed(Claimed { node, .. }) => {
                self.node = Some(Arc::clone(node));
                self.started.get_or_insert(*at);
            }
            Event::StepStarted(StepStarted { step, .. }) | Event::StepWaiting { step, .. } => {
                self.attempts.insert(step.clone(), *at);
            }
            _ => (),
        }
        TimelineEntry {
            execution_id: Some(ID(id.to_string())),
            step_id: event.step().map(ToString::to_string),
            attempt: event.attempt().map(shared::id::Attempt::get),
            node: self.node.as_deref().map(str::to_owned),
            duration_ms: self.began(event).map(|began| milliseconds(began, *at)),
            ..entry(*at, event.kind(), message(event), Some(data(event)))
        }
    }

    /// Returns when that began which the event ends.
    fn began(&mut self, event: &Event) -> Option<Timestamp> {
        match event {
            Event::StepSucceeded { step, .. }
            | Event::StepRetryScheduled { step, .. }
            | Event::StepInterrupted { step, .. }
            | Event::StepFailed { step, .. }
            | Event::StepApproved { step, .. }
            | Event::StepCancelled { step } => self.attempts.remove(step),
            Event::Finished { .. } => self.started,
            _ => None,
        }
    }
}

fn message(event: &Event) -> String {
    match event {
        Event::Created(it) => format!("execution of `{}` asked for", it.plan),
        Event::Claimed(it) => {
            format!("taken by `{}` on {}, claim {}", it.worker, it.node, int(it.epoch.0))
        }
        Event::StepStarted(it) => format!("`{}` started, attempt {}", it.step, it.attempt),
        Event::StepSucceeded { step, .. } => format!("`{step}` succeeded"),
        Event::StepRetryScheduled { step, attempt, error, .. } => {
            format!("attempt {attempt} of `{step}` failed and there will be another: {error}")
        }
        Event::StepInterrupted { step, attempt } => {
            format!("attempt {attempt} of `{step}` was interrupted: its worker was lost")
        }
        Event::StepFailed { step, error, .. } => format!("`{step}` failed: {error}"),
        Event::StepSkipped { step, .. } => format!("`{step}` was skipped"),
        Event::StepWaiting { step, reason, .. } => match reason {
            WaitReason::Approval => format!("`{step}` waits for somebody's consent"),
            WaitReason::Signal { name } => format!("`{step}` waits for the signal `{name}`"),
            WaitReason::Decision { error } => {
                format!("`{step}` failed and waits for somebody's decision: {error}")
            }
        },
        Event::StepApproved { step, .. } => format!("somebody let `{step}` go on"),
        Event::StepCancelled { step } => format!("`{step}` was cancelled"),
        Event::SignalReceived { name, .. } => format!("the signal `{name}` came"),
        Event::CancelRequested { reason: Some(reason) } => {
            format!("somebody asked it to stop: {reason}")
        }
        Event::CancelRequested { reason: None } => "somebody asked it to stop".to_owned(),
        Event::DeadlinePassed => "its time was up".to_owned(),
        Event::Paused { .. } => "paused".to_owned(),
        Event::Resumed { .. } => "resumed".to_owned(),
        Event::Finished { outcome } => format!("ended: {}", ended(*outcome).as_str()),
    }
}
