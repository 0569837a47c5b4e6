use async_graphql::{ID, Object};
use serde_json::{Map, Value, json};
use shared::{
    event::{
        CallKey, CallPlace, Claimed, Created, Event, Outcome, RecordedEvent, SettledCall,
        SkipReason, StepStarted, WaitReason,
    },
    execution::ExecutionState,
    id::ExecutionId,
    json,
    tool::ToolError,
};

use super::{
    actor::Actor,
    event_detail::{DetailWriter, EventDetail},
    scalar::{DateTime, format_time, to_int},
    text_enums::EventType,
};

pub(super) struct ExecutionEvent {
    execution: ExecutionId,
    recorded: RecordedEvent,
}

impl ExecutionEvent {
    pub(super) fn new(execution: ExecutionId, recorded: RecordedEvent) -> Self {
        Self { execution, recorded }
    }
}

/// Event of an execution. Events never change.
#[Object]
impl ExecutionEvent {
    /// Sequence number of the event in its execution: 1, 2, 3, …
    async fn seq(&self) -> i64 {
        to_int(self.recorded.seq.0)
    }

    /// Time of the event, by the clock of the process that recorded it. This clock follows the
    /// store's clock.
    async fn at(&self) -> DateTime {
        self.recorded.at.into()
    }

    /// Actor who gave the command that caused the event. Null if no command caused the event, such
    /// as the start of the next step, and for events that an earlier version of Faber recorded.
    async fn actor(&self) -> Option<Actor> {
        self.recorded.by.as_deref().map(Actor::from)
    }

    /// Id of the execution, `exec_…`.
    async fn execution_id(&self) -> ID {
        ID(self.execution.to_string())
    }

    /// Type of the event, such as `created`, `claimed`, `step_started`, `step_succeeded` or
    /// `finished`.
    #[graphql(name = "type")]
    async fn kind(&self) -> &'static str {
        self.recorded.event.kind()
    }

    /// `type` as an enum.
    async fn type_enum(&self) -> EventType {
        EventType::of(&self.recorded.event)
    }

    /// Id of the step. Null if the event is not about a step.
    async fn step_id(&self) -> Option<&str> {
        self.recorded.event.step().map(shared::id::StepId::as_str)
    }

    /// Number of the attempt, from 1. Null if the event is not about an attempt.
    async fn attempt(&self) -> Option<u32> {
        self.recorded.event.attempt().map(shared::id::Attempt::get)
    }

    /// Content of the event, such as parameters, output or error. Its form depends on the type.
    async fn data(
        &self,
        #[graphql(
            desc = "Replaces each input, output, payload and set of parameters above this number \
                    of bytes by `{\"$omitted\": bytes}`. Default: no limit."
        )]
        max_bytes: Option<i32>,
    ) -> Value {
        let mut data = event_data(&self.recorded.event);
        if let Some(maximum) = max_bytes {
            omit_large_values(&mut data, usize::try_from(maximum).unwrap_or(0));
        }
        data
    }

    /// Content of the event, with one type for each type of event.
    async fn detail(
        &self,
        #[graphql(
            desc = "Replaces each input, output, payload and set of parameters above this number \
                    of bytes by `{\"$omitted\": bytes}`. Default: no limit."
        )]
        max_bytes: Option<i32>,
    ) -> EventDetail {
        let max_bytes = max_bytes.map(|maximum| usize::try_from(maximum).unwrap_or(0));
        DetailWriter { max_bytes }.describe_event(&self.recorded.event)
    }
}

/// Replaces large inputs, outputs, payloads and parameters by their size, so that a client that
/// shows many events does not have to load all of them.
fn omit_large_values(data: &mut Value, maximum: usize) {
    let Value::Object(fields) = data else { return };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("reused", Value::Object(outputs)) => {
                outputs.values_mut().for_each(|output| omit_if_large(output, maximum));
            }
            ("input" | "output" | "parameters" | "payload", value) => omit_if_large(value, maximum),
            _ => {}
        }
    }
}

pub(super) fn omit_if_large(value: &mut Value, maximum: usize) {
    let bytes = json::json_size(value);
    if bytes > maximum {
        *value = json!({ "$omitted": bytes });
    }
}

pub(super) fn event_data(event: &Event) -> Value {
    let mut data = event_details(event);
    if let (Value::Object(fields), Some(index)) = (&mut data, event.part().item) {
        fields.insert("index".to_owned(), json!(index));
    }
    data
}

fn event_details(event: &Event) -> Value {
    match event {
        Event::Created(created) => created_details(created),
        Event::Claimed(Claimed { worker, node, epoch, renewed: true }) => {
            json!({ "worker": worker, "node": node, "epoch": epoch, "renewed": true })
        }
        Event::Claimed(Claimed { worker, node, epoch, .. }) => {
            json!({ "worker": worker, "node": node, "epoch": epoch })
        }
        Event::StepStarted(StepStarted { items: Some(n), .. }) => json!({ "items": n }),
        Event::StepStarted(StepStarted {
            parameters, warnings, until, child, key, effect, ..
        }) => {
            let mut data = rendered_parameters(parameters, warnings);
            data.extend(until.map(|until| ("until".to_owned(), json!(format_time(until)))));
            data.extend(child.map(|child| ("childExecutionId".to_owned(), json!(child))));
            data.extend(key.as_ref().map(|key| ("idempotencyKey".to_owned(), json!(key))));
            data.extend(effect.map(|effect| ("effect".to_owned(), json!(effect))));
            Value::Object(data)
        }
        Event::StepSucceeded { output, cached, stderr, .. } => {
            let mut data = Map::new();
            data.extend(output.as_ref().map(|output| ("output".to_owned(), (**output).clone())));
            data.extend(cached.then(|| ("cached".to_owned(), json!(true))));
            data.extend(stderr.as_ref().map(|stderr| ("stderr".to_owned(), json!(stderr))));
            Value::Object(data)
        }
        Event::StepProgress { progress, .. } => json!(progress),
        Event::StepChecked { parameters, warnings, .. } => {
            Value::Object(rendered_parameters(parameters, warnings))
        }
        Event::StepRetryScheduled { error, until, .. } => {
            json!({ "error": error_details(error), "until": format_time(*until) })
        }
        Event::StepFailed { error, .. }
        | Event::StepInterrupted { error: Some(error), .. }
        | Event::ExecutionFailed { error } => {
            json!({ "error": error_details(error) })
        }
        Event::StepSkipped { reason, .. } => json!({ "reason": skip_reason_name(*reason) }),
        Event::StepWaiting { reason, parameters, warnings, .. } => {
            let mut data = wait_details(reason);
            data.extend(rendered_parameters(parameters, warnings));
            Value::Object(data)
        }
        Event::StepApproved { comment, .. } => json!({ "comment": comment }),
        Event::StepSettled { outcome, output, comment, .. } => {
            let mut data = Map::new();
            data.insert("outcome".to_owned(), json!(outcome.as_str()));
            data.extend(output.as_ref().map(|output| ("output".to_owned(), (**output).clone())));
            data.extend(comment.as_ref().map(|comment| ("comment".to_owned(), json!(comment))));
            Value::Object(data)
        }
        Event::SignalReceived { name, payload, .. } => json!({ "name": name, "payload": payload }),
        Event::SignalRefused { name, .. } => json!({ "name": name }),
        Event::CommandIgnored { asked: command, .. } => json!({ "asked": command }),
        Event::CancelRequested { reason } => json!({ "reason": reason }),
        Event::WaitsShortened { ahead_ms } => json!({ "aheadMs": ahead_ms }),
        Event::Finished { outcome } => json!({ "state": final_state(*outcome).as_str() }),
        Event::StepInterrupted { .. }
        | Event::StepCancelled { .. }
        | Event::DeadlinePassed
        | Event::CompensationStarted
        | Event::Paused { .. }
        | Event::Resumed { .. } => json!({}),
    }
}

fn created_details(created: &Created) -> Value {
    let Created {
        plan,
        request,
        options,
        parent,
        retry_of,
        is_replan: _,
        forked_from,
        reused,
        call_keys,
        settled,
        trace: _,
    } = created;
    let reused: Map<String, Value> =
        reused.iter().map(|(step, output)| (step.to_string(), (**output).clone())).collect();
    let mut data = json!({
        "parent": parent.as_ref().map(|parent| json!({
            "executionId": parent.execution,
            "stepId": parent.step,
            "index": parent.part.item,
            "attempt": parent.attempt,
        })),
        "retryOf": retry_of,
        "reused": reused,
        "input": options.input,
        "compensateOnFailure": options.compensate_on_failure,
        "dryRun": options.dry_run,
        "planId": plan,
        "requestId": request,
        "mode": options.mode,
        "maxParallel": options.max_parallel,
        "deadlineMs": options.deadline_ms,
        "strictTemplates": options.strict_templates,
        "startAt": options.start_at.map(format_time),
        "priority": options.priority,
    });
    if let Some(origin) = forked_from {
        data["forkedFrom"] = json!(origin);
    }
    if !call_keys.is_empty() {
        data["callKeys"] = call_keys.iter().map(call_key_details).collect();
    }
    if !settled.is_empty() {
        data["settled"] = settled.iter().map(settled_details).collect();
    }
    data
}

fn call_key_details(CallKey { place, key, .. }: &CallKey) -> Value {
    let mut data = call_place_details(place);
    data.insert("key".to_owned(), json!(key));
    Value::Object(data)
}

fn settled_details(SettledCall { place, comment, .. }: &SettledCall) -> Value {
    let mut data = call_place_details(place);
    data.extend(comment.as_ref().map(|comment| ("comment".to_owned(), json!(comment))));
    Value::Object(data)
}

fn call_place_details(CallPlace { step, item, child }: &CallPlace) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("stepId".to_owned(), json!(step));
    data.extend(item.map(|item| ("index".to_owned(), json!(item))));
    data.extend(child.as_ref().map(|child| ("child".to_owned(), call_place_details(child).into())));
    data
}

fn rendered_parameters(parameters: &Value, warnings: &[String]) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("parameters".to_owned(), parameters.clone());
    if !warnings.is_empty() {
        data.insert("warnings".to_owned(), json!(warnings));
    }
    data
}

fn wait_details(reason: &WaitReason) -> Map<String, Value> {
    let mut data = Map::new();
    let (awaited, more) = match reason {
        WaitReason::Approval => ("approval", None),
        WaitReason::Signal { name, until } => {
            let until = until.map(|until| ("until".to_owned(), json!(format_time(until))));
            data.extend(until);
            ("signal", Some(("name", json!(name))))
        }
        WaitReason::Decision { error } => ("decision", Some(("error", error_details(error)))),
    };
    data.insert("for".to_owned(), json!(awaited));
    data.extend(more.map(|(key, value)| (key.to_owned(), value)));
    data
}

fn error_details(ToolError { code, message, retryable, .. }: &ToolError) -> Value {
    json!({ "code": code, "message": message, "retryable": retryable })
}

pub(super) fn skip_reason_name(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Dependency => "dependency",
        SkipReason::ExecutionFailed => "execution_failed",
        SkipReason::Condition => "condition",
        SkipReason::DryRun => "dry_run",
    }
}

pub(super) fn final_state(outcome: Outcome) -> ExecutionState {
    match outcome {
        Outcome::Completed => ExecutionState::Completed,
        Outcome::Failed => ExecutionState::Failed,
        Outcome::Cancelled => ExecutionState::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stderr_of_an_old_event_appears_beside_its_output() {
        let event = json!({
            "type": "step_succeeded", "step": "a", "attempt": 1, "output": 2, "stderr": "old",
        });
        let event: Event = serde_json::from_value(event).unwrap();
        assert_eq!(event_data(&event), json!({ "output": 2, "stderr": "old" }));
    }

    #[test]
    fn large_event_data_is_replaced_by_its_size() {
        let long = "x".repeat(100);
        let mut data = json!({
            "output": { "text": long, "n": 1 },
            "parameters": { "a": 1 },
            "error": { "message": long },
            "reused": { "one": long, "two": 2 },
        });
        omit_large_values(&mut data, 50);
        let expected = json!({
            "output": { "$omitted": 117 },
            "parameters": { "a": 1 },
            "error": { "message": long },
            "reused": { "one": { "$omitted": 102 }, "two": 2 },
        });
        assert_eq!(data, expected);
        omit_large_values(&mut data, 0);
        assert!(data["parameters"].get("$omitted").is_some(), "{data}");
    }
}
