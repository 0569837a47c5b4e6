use async_graphql::{
    EmptyMutation, EmptySubscription, Object, Schema, Value as GraphValue,
    parser::types::{TypeKind, TypeSystemDefinition},
    resolver_utils::EnumType as _,
};
use serde_json::{Value, json};
use shared::{event::Event, id::Seq};

use super::super::{event::ExecutionEvent, schema_text, text_enums::EventType};

struct OneEvent(Value);

#[Object]
impl OneEvent {
    async fn event(&self) -> ExecutionEvent {
        let recorded = shared::event::RecordedEvent {
            seq: Seq(1),
            at: shared::clock::Timestamp::UNIX_EPOCH,
            by: None,
            event: read_event(&self.0),
        };
        ExecutionEvent::new("exec_1_aaaaaaaaa".parse().unwrap(), recorded)
    }
}

fn read_event(stored: &Value) -> Event {
    serde_json::from_value(stored.clone()).unwrap()
}

async fn select_fields(stored: &Value, selection: &str) -> Value {
    let schema = Schema::build(OneEvent(stored.clone()), EmptyMutation, EmptySubscription).finish();
    let answer = schema.execute(format!("{{ event {{ {selection} }} }}")).await;
    assert!(answer.errors.is_empty(), "{stored} {:?}", answer.errors);
    let GraphValue::Object(data) = answer.data else { panic!("the answer has data") };
    data["event"].clone().into_json().unwrap()
}

/// One event of each type of the log, as stores keep it.
fn stored_events() -> Vec<Value> {
    let step = |kind: &str, more: Value| {
        let mut event = json!({ "type": kind, "stepId": "a", "attempt": 1 });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let error = || json!({ "code": "tool.failed", "message": "m", "retryable": true });
    let command = || "cmd_1_aaaaaaaaa";
    let progress = || json!({ "progress": { "progress": 1.0 } });
    let undo = |mut event: Value| {
        event["part"] = json!({ "undo": true });
        event
    };
    let retry = || step("step_retry_scheduled", json!({ "error": error(), "until": 5 }));
    let start = || step("step_started", json!({ "parameters": { "x": 1 } }));
    let failed = || step("step_failed", json!({ "error": error() }));
    vec![
        json!({ "type": "created", "planId": "plan_1_aaaaaaaaa", "requestId": "req_1_aaaaaaaaa",
            "options": { "input": { "n": 1 } } }),
        json!({ "type": "claimed", "worker": "work_1_aaaaaaaaa", "node": "n", "epoch": 1 }),
        start(),
        step("step_succeeded", json!({ "output": { "y": 2 } })),
        step("step_progress", progress()),
        json!({ "type": "step_checked", "stepId": "a", "parameters": {} }),
        retry(),
        step("step_interrupted", json!({})),
        failed(),
        json!({ "type": "step_skipped", "stepId": "a", "reason": "dry_run" }),
        json!({ "type": "step_waiting", "stepId": "a", "reason": { "for": "approval" },
            "parameters": {} }),
        json!({ "type": "step_approved", "stepId": "a", "command": command() }),
        step("step_settled", json!({ "outcome": "succeeded", "output": null })),
        json!({ "type": "step_cancelled", "stepId": "a" }),
        undo(start()),
        undo(step("step_succeeded", json!({ "output": null }))),
        undo(step("step_progress", progress())),
        undo(retry()),
        undo(step("step_interrupted", json!({}))),
        undo(failed()),
        json!({ "type": "signal_received", "name": "s", "payload": 1, "command": command() }),
        json!({ "type": "signal_refused", "name": "s", "command": command() }),
        json!({ "type": "command_ignored", "asked": "pause", "command": command() }),
        json!({ "type": "cancel_requested", "reason": "r" }),
        json!({ "type": "execution_failed", "error": error() }),
        json!({ "type": "deadline_passed" }),
        json!({ "type": "waits_shortened", "aheadMs": 7 }),
        json!({ "type": "paused", "command": command() }),
        json!({ "type": "resumed", "command": command() }),
        json!({ "type": "compensation_started" }),
        json!({ "type": "finished", "outcome": "completed" }),
    ]
}

fn type_name(kind: &str) -> String {
    let words = kind.split('_').map(|word| {
        let (head, tail) = word.split_at(1);
        format!("{}{tail}", head.to_uppercase())
    });
    format!("{}Event", words.collect::<String>())
}

/// Each type of event is an object that is named after the type, and all objects have the type.
#[tokio::test]
async fn each_type_of_event_has_an_object() {
    let stored = stored_events();
    let kinds: Vec<&str> = stored.iter().map(|stored| read_event(stored).kind()).collect();
    let values: Vec<&str> = EventType::items().iter().map(|item| item.name).collect();
    assert_eq!(values, [&kinds[..], &["request", "transcript", "plan_created"]].concat());
    for (stored, kind) in stored.iter().zip(kinds) {
        let name = type_name(kind);
        let selection =
            format!("type typeEnum detail {{ __typename ... on {name} {{ kind: type }} }}");
        let detail = json!({ "__typename": name, "kind": kind });
        let expected = json!({ "type": kind, "typeEnum": kind, "detail": detail });
        assert_eq!(select_fields(stored, &selection).await, expected);
    }
}

/// Every object of the union can be read completely: no field fails.
#[tokio::test]
async fn every_field_of_every_object_can_be_read() {
    let schema = async_graphql::parser::parse_schema(schema_text()).unwrap();
    for stored in stored_events() {
        let name = type_name(read_event(&stored).kind());
        let object = schema.definitions.iter().find_map(|definition| match definition {
            TypeSystemDefinition::Type(ty) if ty.node.name.node == name => match &ty.node.kind {
                TypeKind::Object(object) => Some(object),
                _ => None,
            },
            _ => None,
        });
        let fields = object.unwrap().fields.iter().map(|field| {
            let field = &field.node;
            match field.ty.node.to_string().trim_matches(['[', ']', '!']) {
                "EventError" => format!("{} {{ code message retryable }}", field.name.node),
                "Progress" => "progress { progress total message }".to_owned(),
                "EventParent" => "parent { executionId stepId index attempt }".to_owned(),
                "EventReusedOutput" => "reused { stepId output }".to_owned(),
                "EventCall" => format!("{} {{ stepId child {{ index }} key }}", field.name.node),
                _ => field.name.node.to_string(),
            }
        });
        let fields = fields.collect::<Vec<_>>().join(" ");
        let selection = format!("detail {{ ... on {name} {{ {fields} }} }}");
        let found = select_fields(&stored, &selection).await;
        assert!(found["detail"]["type"].is_string(), "{stored}");
    }
}

#[tokio::test]
async fn details_of_calls_of_earlier_executions_are_nested() {
    let place = json!({ "stepId": "outer", "child": { "stepId": "inner", "index": 3 } });
    let mut call_key = place.clone();
    call_key["key"] = json!("k");
    call_key["parameters"] = json!("hash");
    let mut settled = place;
    settled["comment"] = json!("I looked");
    let created = json!({ "type": "created", "planId": "plan_1_aaaaaaaaa",
        "requestId": "req_1_aaaaaaaaa", "options": { "input": null },
        "callKeys": [call_key], "settled": [settled], "reused": [["b", { "long": "text" }]],
        "parent": { "executionId": "exec_2_aaaaaaaaa", "stepId": "p", "part": { "index": 4 },
            "attempt": 2, "depth": 1 } });
    let call = "{ stepId index key comment child { stepId index } }";
    let selection = format!(
        "detail(maxBytes: 5) {{ ... on CreatedEvent {{ callKeys {call} settled {call} \
         reused {{ stepId output }} parent {{ executionId stepId index attempt }} }} }}"
    );
    let child = json!({ "stepId": "inner", "index": 3 });
    let call = |key: Value, comment: Value| {
        json!({ "stepId": "outer", "index": null, "key": key,
        "comment": comment, "child": child })
    };
    let expected = json!({ "detail": {
        "callKeys": [call(json!("k"), Value::Null)],
        "settled": [call(Value::Null, json!("I looked"))],
        "reused": [{ "stepId": "b", "output": { "$omitted": 15 } }],
        "parent": { "executionId": "exec_2_aaaaaaaaa", "stepId": "p", "index": 4, "attempt": 2 },
    } });
    assert_eq!(select_fields(&created, &selection).await, expected);
}

#[tokio::test]
async fn a_wait_has_the_fields_of_its_reason() {
    let until = 1_000_000;
    let error = json!({ "code": "tool.failed", "message": "m", "retryable": false });
    for (reason, expected) in [
        (json!({ "for": "approval" }), json!(["approval", null, null, null])),
        (
            json!({ "for": "signal", "name": "s", "until": until }),
            json!(["signal", "s", "1970-01-01T00:00:01.000000Z", null]),
        ),
        (json!({ "for": "decision", "error": error }), json!(["decision", null, null, "m"])),
    ] {
        let stored = json!({ "type": "step_waiting", "stepId": "a", "part": { "index": 2 },
            "reason": reason, "parameters": {} });
        let selection = "detail { ... on StepWaitingEvent { stepId index waitsFor name until \
                         error { message } } }";
        let detail = &select_fields(&stored, selection).await["detail"];
        assert_eq!((&detail["stepId"], &detail["index"]), (&json!("a"), &json!(2)));
        let found = json!([
            detail["waitsFor"],
            detail["name"],
            detail["until"],
            detail["error"]["message"]
        ]);
        assert_eq!(found, expected);
    }
}
