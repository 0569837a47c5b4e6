//! The transition table, all of it: every state of a step against every kind of event.

use std::fmt::Write as _;

use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::{
    event::{SkipReason, StepStarted},
    id::{Attempt, CommandId, PlanId},
    tool::ToolError,
};

const SECOND: Attempt = Attempt::after(1);

fn command() -> CommandId {
    "cmd_1_aaaaaaaaa".parse().unwrap()
}

fn error() -> ToolError {
    ToolError::failed("no")
}

/// One of each state; those that have an attempt are in their second.
fn states() -> Vec<(&'static str, StepState)> {
    let until = Timestamp::UNIX_EPOCH;
    let signal = WaitReason::Signal { name: "go".to_owned() };
    let decision = WaitReason::Decision { error: error() };
    vec![
        ("pending", StepState::Pending),
        ("running", StepState::Running { attempt: SECOND, until: None }),
        ("sleeping", StepState::Running { attempt: SECOND, until: Some(until) }),
        ("retrying", StepState::Retrying { attempt: SECOND, until, error: Some(error()) }),
        ("waiting: approval", StepState::Waiting(WaitReason::Approval)),
        ("waiting: signal", StepState::Waiting(signal)),
        ("waiting: decision", StepState::Waiting(decision)),
        ("succeeded", StepState::Succeeded(Arc::new(json!(1)))),
        ("failed", StepState::Failed(error())),
        ("skipped", StepState::Skipped(SkipReason::Dependency)),
        ("cancelled", StepState::Cancelled),
    ]
}

fn started(attempt: Attempt) -> Event {
    let (step, parameters) = ("s".parse().unwrap(), Arc::new(Value::Null));
    Event::StepStarted(StepStarted { step, attempt, parameters, warnings: Vec::new(), until: None })
}

fn waiting(reason: WaitReason) -> Event {
    let (step, parameters) = ("s".parse().unwrap(), Arc::new(Value::Null));
    Event::StepWaiting { step, reason, parameters, warnings: Vec::new() }
}

/// One of each event about a step, and those of another attempt where that makes a difference.
fn events() -> Vec<(&'static str, Event)> {
    let step = || "s".parse().unwrap();
    let until = Timestamp::UNIX_EPOCH;
    let output = Arc::new(json!(2));
    let mut events = vec![
        ("started #2", started(SECOND)),
        ("started #3", started(SECOND.next())),
        ("waiting: approval", waiting(WaitReason::Approval)),
        ("waiting: signal", waiting(WaitReason::Signal { name: "go".to_owned() })),
        ("waiting: decision", waiting(WaitReason::Decision { error: error() })),
        ("approved", Event::StepApproved { step: step(), comment: None, command: command() }),
        ("skipped", Event::StepSkipped { step: step(), reason: SkipReason::ExecutionFailed }),
        ("cancelled", Event::StepCancelled { step: step() }),
    ];
    for (names, attempt) in [
        (["succeeded #1", "failed #1", "retry #1", "interrupted #1"], Attempt::FIRST),
        (["succeeded #2", "failed #2", "retry #2", "interrupted #2"], SECOND),
    ] {
        let output = Arc::clone(&output);
        events.extend(names.into_iter().zip([
            Event::StepSucceeded { step: step(), attempt, output },
            Event::StepFailed { step: step(), attempt, error: error() },
            Event::StepRetryScheduled { step: step(), attempt, error: error(), until },
            Event::StepInterrupted { step: step(), attempt },
        ]));
    }
    events
}

#[test]
fn every_state_meets_every_event() {
    let mut table = String::new();
    for (name, state) in states() {
        writeln!(table, "{name}").unwrap();
        for (event_name, event) in events() {
            let Some(next) = state.next(&event) else { continue };
            let next = match &next {
                StepState::Waiting(WaitReason::Approval) => "waiting: approval",
                StepState::Waiting(WaitReason::Signal { .. }) => "waiting: signal",
                StepState::Waiting(WaitReason::Decision { .. }) => "waiting: decision",
                other => other.name(),
            };
            writeln!(table, "  {event_name:<18} -> {next}").unwrap();
        }
    }
    expect![[r"
        pending
          started #2         -> running
          started #3         -> running
          waiting: approval  -> waiting: approval
          waiting: signal    -> waiting: signal
          skipped            -> skipped
          cancelled          -> cancelled
          failed #1          -> failed
          failed #2          -> failed
        running
          waiting: decision  -> waiting: decision
          cancelled          -> cancelled
          succeeded #2       -> succeeded
          failed #2          -> failed
          retry #2           -> retrying
          interrupted #2     -> retrying
        sleeping
          waiting: decision  -> waiting: decision
          cancelled          -> cancelled
          succeeded #2       -> succeeded
          failed #2          -> failed
          retry #2           -> retrying
          interrupted #2     -> retrying
        retrying
          started #3         -> running
          cancelled          -> cancelled
          failed #2          -> failed
        waiting: approval
          approved           -> pending
          skipped            -> skipped
          cancelled          -> cancelled
          failed #1          -> failed
          failed #2          -> failed
        waiting: signal
          skipped            -> skipped
          cancelled          -> cancelled
          succeeded #1       -> succeeded
          failed #1          -> failed
          succeeded #2       -> succeeded
          failed #2          -> failed
        waiting: decision
          approved           -> pending
          skipped            -> skipped
          cancelled          -> cancelled
          failed #1          -> failed
          failed #2          -> failed
        succeeded
        failed
        skipped
        cancelled
    "]]
    .assert_eq(&table);
}

#[test]
fn what_is_over_stays_as_it_is() {
    for (name, state) in states().into_iter().filter(|(_, it)| it.is_over()) {
        for (event_name, event) in events() {
            assert_eq!(state.next(&event), None, "{name}, {event_name}");
        }
    }
}

#[test]
fn events_about_no_step_change_no_step() {
    let plan = PlanId::draw(Timestamp::UNIX_EPOCH);
    let request = RequestId::draw(Timestamp::UNIX_EPOCH);
    let created = Created { plan, request, options: ExecutionOptions::default() };
    let worker = WorkerId::draw(Timestamp::UNIX_EPOCH);
    let claimed = Claimed { worker, node: "n".into(), epoch: Epoch(1) };
    let payload = Arc::new(Value::Null);
    let signal = Event::SignalReceived { name: "go".to_owned(), payload, command: command() };
    let others = [
        Event::Created(created),
        Event::Claimed(claimed),
        signal,
        Event::CancelRequested { reason: None },
        Event::DeadlinePassed,
        Event::Paused { command: command() },
        Event::Resumed { command: command() },
        Event::Finished { outcome: Outcome::Completed },
    ];
    for (name, state) in states() {
        for event in &others {
            assert_eq!(state.next(event), None, "{name}, {}", event.kind());
        }
    }
}
