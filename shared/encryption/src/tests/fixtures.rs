use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    event::{
        CallKey, CallPlace, Claimed, Created, Event, Outcome, RecordedEvent, Settled, SettledCall,
        Settlement, SkipReason, StepStarted, WaitReason,
    },
    execution::{ExecutionOptions, ExecutionState},
    id::{Attempt, CommandId, Epoch, ExecutionId, Part, RequestId, Seq, StepId, WorkerId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        Command, ExecutionHead, HeadError, Record, RecordKind, SentCommand, Store, memory::Memory,
    },
    tool::{ErrorCode, Progress, ToolError},
};

use super::protect_store;
use crate::{Key, Keyring};

pub(super) const SECRET: &str = "xyzzy-secret";

pub(super) fn keyring(ids: &[&str], active: &str) -> Keyring {
    let key = |id: &&str| {
        let mut bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index).unwrap());
        // The id `k1` must give the key that encrypted the golden value.
        bytes[31] = bytes[31].wrapping_add(id.as_bytes()[1].wrapping_sub(b'1'));
        ((*id).to_owned(), Some(Key::parse(&STANDARD.encode(bytes)).unwrap()))
    };
    Keyring::new(ids.iter().map(key).collect(), active, false).unwrap()
}

pub(super) fn other_key() -> Key {
    Key::parse(&STANDARD.encode([7; 32])).unwrap()
}

pub(super) async fn store_with(inner: &Arc<Memory>, keys: &[&str]) -> Arc<dyn Store> {
    protect_store(inner, Some(keyring(keys, keys[0]))).await
}

pub(super) fn execution() -> ExecutionId {
    "exec_1_aaaaaaaaa".parse().unwrap()
}

pub(super) fn request_id() -> RequestId {
    "req_1_aaaaaaaaa".parse().unwrap()
}

pub(super) fn worker() -> WorkerId {
    "work_1_aaaaaaaaa".parse().unwrap()
}

fn command_id() -> CommandId {
    "cmd_1_aaaaaaaaa".parse().unwrap()
}

fn step() -> StepId {
    "order".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_timestamp(seconds, 0).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "the fields are optional")]
fn text() -> Option<String> {
    Some(format!("a {SECRET}"))
}

fn value() -> Arc<Value> {
    Arc::new(json!({ SECRET: [1, SECRET], "b": null }))
}

fn error() -> ToolError {
    ToolError::new(ErrorCode::FAILED, format!("the {SECRET} failed"))
}

pub(super) fn request() -> Request {
    Request::new(request_id(), "a clear query".to_owned(), at(1))
}

pub(super) fn transcript() -> Vec<TranscriptEntry> {
    let entry = |n| TranscriptEntry { at: at(n), kind: "draft".to_owned(), content: json!(SECRET) };
    vec![entry(1), entry(2)]
}

pub(super) fn plan() -> Plan {
    let json = json!({
        "about": {
            "planId": "plan_1_aaaaaaaaa", "requestId": request_id(), "version": 1,
            "query": "a clear query", "planner": "explicit", "createdAt": 1_000_000,
        },
        "steps": [
            {
                "stepId": "order", "toolName": "shop.order",
                "parameters": { "name": SECRET, "n": 7 }, "policy": {},
                "compensate": {
                    "toolName": "shop.cancel",
                    "parameters": { "why": SECRET, "id": "{{order.id}}" }, "policy": {},
                },
                "outputMapping": [["id", "order_id"]],
            },
            {
                "stepId": "sub", "toolName": "report", "plan": "plan_2_aaaaaaaaa",
                "parameters": { "text": format!("{SECRET} {{{{order.name}}}}") },
                "inputs": { "properties": { "text": { "default": SECRET } } },
                "dependsOn": ["order"], "when": format!("order.name == '{SECRET}'"), "policy": {},
            },
            {
                "stepId": "each", "toolName": "shop.noop", "parameters": {},
                "dependsOn": ["order"], "forEach": "{{order.list}}", "policy": {},
            },
        ],
        "diagnostics": [{
            "severity": "WARNING", "code": "plan.order_differs", "path": "tools[0]",
            "message": SECRET, "help": SECRET,
        }],
    });
    Plan::from_json(&json.to_string()).unwrap()
}

fn created() -> Event {
    let place = CallPlace { step: step(), item: None, child: None };
    let options = ExecutionOptions {
        input: value(),
        labels: serde_json::from_value(json!({ "team": "team-blue" })).unwrap(),
        ..ExecutionOptions::default()
    };
    let mut created = Created::new(plan().id(), request_id(), options);
    created.reused = vec![(step(), value()), (step(), value())];
    created.call_keys = vec![CallKey {
        place: place.clone(),
        key: "exec_1_aaaaaaaaa/order".into(),
        parameters: SECRET.to_owned(),
    }];
    created.settled = vec![SettledCall {
        place,
        output: Some(value()),
        parameters: SECRET.to_owned(),
        comment: text(),
    }];
    Event::Created(Box::new(created))
}

fn started() -> Event {
    Event::StepStarted(StepStarted {
        step: step(),
        part: Part::WHOLE,
        attempt: Attempt::FIRST,
        parameters: value(),
        warnings: vec![SECRET.to_owned(), String::new()],
        until: None,
        items: None,
        child: None,
        key: None,
        effect: None,
    })
}

/// Returns events of all types with values. They do not follow from each other.
#[expect(clippy::too_many_lines, reason = "one event of each type")]
pub(super) fn all_events() -> Vec<RecordedEvent> {
    let (step, part, attempt, command) = (step(), Part::WHOLE, Attempt::FIRST, command_id());
    let waiting = |reason| Event::StepWaiting {
        step: step.clone(),
        part,
        reason,
        parameters: value(),
        warnings: vec![SECRET.to_owned()],
    };
    let events = vec![
        created(),
        Event::Claimed(Claimed {
            worker: worker(),
            node: "node".into(),
            epoch: Epoch(1),
            renewed: false,
        }),
        started(),
        Event::StepSucceeded {
            step: step.clone(),
            part,
            attempt,
            output: Some(value()),
            cached: false,
            stderr: text(),
        },
        Event::StepSucceeded {
            step: step.clone(),
            part,
            attempt,
            output: Some(Arc::default()),
            cached: true,
            stderr: None,
        },
        Event::StepProgress {
            step: step.clone(),
            part,
            attempt,
            progress: Progress { progress: 0.5, total: None, message: Some(SECRET.into()) },
        },
        Event::StepChecked {
            step: step.clone(),
            parameters: value(),
            warnings: vec![SECRET.to_owned()],
        },
        Event::StepRetryScheduled {
            step: step.clone(),
            part,
            attempt,
            error: error(),
            until: at(9),
        },
        Event::StepInterrupted { step: step.clone(), part, attempt, error: Some(error()) },
        Event::StepFailed { step: step.clone(), part, attempt, error: error(), command: None },
        Event::StepSkipped { step: step.clone(), part, reason: SkipReason::Condition },
        waiting(WaitReason::Approval),
        waiting(WaitReason::Signal { name: "clear-signal".to_owned(), until: None }),
        waiting(WaitReason::Decision { error: error() }),
        Event::StepApproved { step: step.clone(), part, comment: text(), command },
        Event::StepSettled {
            step,
            part,
            attempt,
            outcome: Settled::Succeeded,
            output: Some(value()),
            comment: text(),
            command: None,
        },
        Event::SignalReceived { name: "clear-signal".to_owned(), payload: value(), command },
        Event::CancelRequested { reason: text() },
        Event::ExecutionFailed { error: error() },
        Event::Paused { command },
        Event::Finished { outcome: Outcome::Failed },
    ];
    let recorded = |(index, event)| RecordedEvent {
        seq: Seq::START.advance_by(index + 1),
        at: at(1),
        by: None,
        event,
    };
    events.into_iter().enumerate().map(recorded).collect()
}

pub(super) fn commands() -> Vec<SentCommand> {
    let settle = Settlement { outcome: Settled::Succeeded, output: Some(value()), comment: text() };
    let commands = [
        Command::Cancel { reason: text() },
        Command::Pause,
        Command::Approve { step: step(), item: None, approved: true, comment: text() },
        Command::Settle { step: step(), item: None, decision: settle },
        Command::Signal { name: "clear-signal".to_owned(), payload: value() },
    ];
    let sent = commands.into_iter().enumerate().map(|(index, command)| SentCommand {
        id: format!("cmd_{}_aaaaaaaaa", index + 1).parse().unwrap(),
        execution: execution(),
        at: at(i64::try_from(index).unwrap()),
        by: None,
        command,
    });
    sent.collect()
}

pub(super) fn records() -> Vec<Record> {
    let records = [
        (RecordKind::Memory, json!({ "text": SECRET })),
        (RecordKind::BlobPart, json!(SECRET)),
        (RecordKind::Output, json!([SECRET])),
        (
            RecordKind::Call,
            json!({
                "tool": "shop.order", "parameters": { "a": SECRET }, "result": SECRET,
                "error": null, "durationMs": 1.5,
            }),
        ),
        (
            RecordKind::Settlement,
            json!({ "outcome": "succeeded", "output": [SECRET], "comment": SECRET }),
        ),
        (RecordKind::Key, json!({ "executionId": execution(), "fingerprint": SECRET })),
        (RecordKind::SavedPlan, json!({ "planId": plan().id(), "inputs": { "default": SECRET } })),
    ];
    let record = |(kind, value): (RecordKind, Value)| Record {
        kind,
        name: "a".to_owned(),
        value: Arc::new(value),
        at: Timestamp::UNIX_EPOCH,
    };
    records.into_iter().map(record).collect()
}

pub(super) fn head() -> ExecutionHead {
    ExecutionHead {
        execution: execution(),
        request: request_id(),
        plan: plan().id(),
        state: ExecutionState::Pending,
        created_at: at(1),
        seq: Seq(all_events().len() as u64),
        epoch: Epoch(1),
        owner: None,
        due: Some(at(1)),
        priority: 0,
        finished_at: None,
        parent: None,
        needs_person: false,
        started_at: None,
        query: "a clear query".into(),
        steps_done: 1,
        steps_total: 3,
        error: Some(HeadError {
            code: ErrorCode::FAILED,
            tool: Some("shop.order".parse().unwrap()),
            message: format!("the {SECRET} failed").into(),
        }),
        labels: serde_json::from_value(json!({ "team": "team-blue" })).unwrap(),
        is_dry_run: false,
        stored_bytes: 0,
    }
}
