//! Tests the transition table: every state of a step with every kind of event.

use std::fmt::Write as _;

use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::{
    event::{Created, Settled, SkipReason, StepStarted},
    id::{Attempt, CommandId, Epoch, Part, PlanId, WorkerId},
    tool::{Progress, ToolError},
};

const SECOND_ATTEMPT: Attempt = Attempt::nth_after(1);

fn command_id() -> CommandId {
    "cmd_1_aaaaaaaaa".parse().unwrap()
}

fn error() -> ToolError {
    ToolError::failed("no")
}

fn states() -> Vec<(&'static str, StepState)> {
    let until = Timestamp::UNIX_EPOCH;
    let child = ExecutionId::draw(until);
    let signal = WaitReason::Signal { name: "go".to_owned(), until: None };
    let decision = WaitReason::Decision { error: error() };
    let unknown = WaitReason::Decision { error: ToolError::outcome_unknown("no answer") };
    vec![
        ("pending", StepState::Pending),
        ("running", StepState::Running { attempt: SECOND_ATTEMPT, how: AttemptKind::Calling }),
        (
            "sleeping",
            StepState::Running { attempt: SECOND_ATTEMPT, how: AttemptKind::Sleeping { until } },
        ),
        (
            "delegated",
            StepState::Running { attempt: SECOND_ATTEMPT, how: AttemptKind::Executing { child } },
        ),
        ("gathering", StepState::Gathering { attempt: SECOND_ATTEMPT }),
        ("retrying", StepState::Retrying { attempt: SECOND_ATTEMPT, until, error: Some(error()) }),
        ("waiting: approval", StepState::Waiting(WaitReason::Approval)),
        ("waiting: signal", StepState::Waiting(signal)),
        ("waiting: decision", StepState::Waiting(decision)),
        ("waiting: unknown outcome", StepState::Waiting(unknown)),
        ("succeeded", StepState::Succeeded(Arc::new(json!(1)))),
        ("failed", StepState::Failed(error())),
        ("skipped", StepState::Skipped(SkipReason::Dependency)),
        ("cancelled", StepState::Cancelled),
    ]
}

fn started(attempt: Attempt, items: Option<u32>) -> Event {
    Event::StepStarted(StepStarted {
        step: "s".parse().unwrap(),
        part: Part::WHOLE,
        attempt,
        parameters: Arc::new(Value::Null),
        warnings: Vec::new(),
        until: None,
        items,
        child: None,
        key: None,
        effect: None,
    })
}

fn waiting(reason: WaitReason) -> Event {
    let (step, parameters) = ("s".parse().unwrap(), Arc::new(Value::Null));
    let (part, warnings) = (Part::WHOLE, Vec::new());
    Event::StepWaiting { step, part, reason, parameters, warnings }
}

fn settled_event(outcome: Settled, command: Option<CommandId>) -> Event {
    let (step, part, comment) = ("s".parse().unwrap(), Part::WHOLE, None);
    let output = (outcome == Settled::Succeeded).then(|| Arc::new(json!(2)));
    Event::StepSettled { step, part, attempt: SECOND_ATTEMPT, outcome, output, comment, command }
}

/// One event of each kind, and events of another attempt if that makes a difference.
fn events() -> Vec<(&'static str, Event)> {
    let step = || "s".parse().unwrap();
    let until = Timestamp::UNIX_EPOCH;
    let (part, parameters) = (Part::WHOLE, Arc::new(Value::Null));
    let (output, cached) = (Some(Arc::new(json!(2))), false);
    let reason = SkipReason::ExecutionFailed;
    let mut events = vec![
        ("started #2", started(SECOND_ATTEMPT, None)),
        ("started #3", started(SECOND_ATTEMPT.next(), None)),
        ("started, a list", started(SECOND_ATTEMPT, Some(3))),
        ("checked", Event::StepChecked { step: step(), parameters, warnings: Vec::new() }),
        ("waiting: approval", waiting(WaitReason::Approval)),
        ("waiting: signal", waiting(WaitReason::Signal { name: "go".to_owned(), until: None })),
        ("waiting: decision", waiting(WaitReason::Decision { error: error() })),
        (
            "approved",
            Event::StepApproved { step: step(), part, comment: None, command: command_id() },
        ),
        ("settled: succeeded", settled_event(Settled::Succeeded, Some(command_id()))),
        ("settled: failed", settled_event(Settled::Failed, Some(command_id()))),
        ("settled before", settled_event(Settled::Succeeded, None)),
        ("skipped", Event::StepSkipped { step: step(), part, reason }),
        ("cancelled", Event::StepCancelled { step: step(), part }),
    ];
    for (names, attempt) in [
        (
            [
                "succeeded #1",
                "gathered #1",
                "failed #1",
                "retry #1",
                "interrupted #1",
                "progress #1",
            ],
            Attempt::FIRST,
        ),
        (
            [
                "succeeded #2",
                "gathered #2",
                "failed #2",
                "retry #2",
                "interrupted #2",
                "progress #2",
            ],
            SECOND_ATTEMPT,
        ),
    ] {
        let output = output.clone();
        let progress = Progress { progress: 1.0, total: None, message: None };
        events.extend(names.into_iter().zip([
            Event::StepSucceeded { step: step(), part, attempt, output, cached, stderr: None },
            Event::StepSucceeded {
                step: step(),
                part,
                attempt,
                output: None,
                cached,
                stderr: None,
            },
            Event::StepFailed { step: step(), part, attempt, error: error(), command: None },
            Event::StepRetryScheduled { step: step(), part, attempt, error: error(), until },
            Event::StepInterrupted { step: step(), part, attempt, error: None },
            Event::StepProgress { step: step(), part, attempt, progress },
        ]));
    }
    events
}

fn table(outputs: Option<&Arc<Value>>) -> String {
    let mut table = String::new();
    for (name, state) in states() {
        writeln!(table, "{name}").unwrap();
        for (event_name, event) in events() {
            let Some(next) = state.next(&event, || outputs.cloned()) else { continue };
            let next = match &next {
                StepState::Gathering { .. } => "gathering",
                StepState::Waiting(WaitReason::Approval) => "waiting: approval",
                StepState::Waiting(WaitReason::Signal { .. }) => "waiting: signal",
                StepState::Waiting(WaitReason::Decision { .. }) => "waiting: decision",
                other => other.name(),
            };
            writeln!(table, "  {event_name:<18} -> {next}").unwrap();
        }
    }
    table
}

#[test]
#[expect(clippy::too_many_lines, reason = "the function is a table")]
fn each_step_state_applies_each_event_as_in_the_table() {
    let list = Arc::new(json!([]));
    expect![[r"
        pending
          started #2         -> running
          started #3         -> running
          started, a list    -> gathering
          checked            -> pending
          waiting: approval  -> waiting: approval
          waiting: signal    -> waiting: signal
          settled before     -> succeeded
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
          progress #2        -> running
        sleeping
          waiting: decision  -> waiting: decision
          cancelled          -> cancelled
          succeeded #2       -> succeeded
          failed #2          -> failed
          retry #2           -> retrying
          interrupted #2     -> retrying
          progress #2        -> running
        delegated
          waiting: decision  -> waiting: decision
          cancelled          -> cancelled
          succeeded #2       -> succeeded
          failed #2          -> failed
          retry #2           -> retrying
          interrupted #2     -> retrying
          progress #2        -> running
        gathering
          cancelled          -> cancelled
          gathered #2        -> succeeded
          failed #2          -> failed
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
        waiting: unknown outcome
          approved           -> pending
          settled: succeeded -> succeeded
          settled: failed    -> failed
          settled before     -> succeeded
          skipped            -> skipped
          cancelled          -> cancelled
          failed #1          -> failed
          failed #2          -> failed
        succeeded
        failed
        skipped
        cancelled
    "]]
    .assert_eq(&table(Some(&list)));
}

#[test]
fn a_loop_finishes_only_after_its_last_item() {
    let table = table(None);
    let (_, gathering) = table.split_once("\ngathering\n").unwrap();
    assert!(gathering.starts_with("retrying\n"), "{gathering}");
}

#[test]
fn finished_states_never_change() {
    for (name, state) in states().into_iter().filter(|(_, state)| state.is_finished()) {
        for (event_name, event) in events() {
            assert_eq!(state.next(&event, || None), None, "{name}, {event_name}");
        }
    }
}

#[test]
fn events_without_a_step_change_no_step() {
    let plan = PlanId::draw(Timestamp::UNIX_EPOCH);
    let request = RequestId::draw(Timestamp::UNIX_EPOCH);
    let created = Created::new(plan, request, ExecutionOptions::default());
    let worker = WorkerId::draw(Timestamp::UNIX_EPOCH);
    let claimed = Claimed { worker, node: "n".into(), epoch: Epoch(1), renewed: false };
    let payload = Arc::new(Value::Null);
    let signal = Event::SignalReceived { name: "go".to_owned(), payload, command: command_id() };
    let others = [
        Event::Created(Box::new(created)),
        Event::Claimed(claimed),
        signal,
        Event::CancelRequested { reason: None },
        Event::ExecutionFailed { error: error() },
        Event::DeadlinePassed,
        Event::Paused { command: command_id() },
        Event::Resumed { command: command_id() },
        Event::CompensationStarted,
        Event::Finished { outcome: Outcome::Completed },
    ];
    for (name, state) in states() {
        for event in &others {
            assert_eq!(state.next(event, || None), None, "{name}, {}", event.kind());
        }
    }
}

/// Returns the seconds that a task worked, and the seconds that it waited. Each item of `states` is
/// a second and the state that begins at that second.
fn time_spent(states: &[(i64, StepState)]) -> (i64, i64) {
    let mut spent = TimeSpent::default();
    for (second, state) in states {
        spent.record_state(Timestamp::from_timestamp(*second, 0).unwrap(), state, None);
    }
    (spent.worked.num_seconds(), spent.waited.num_seconds())
}

#[test]
fn running_time_and_waiting_time_are_counted_separately() {
    let running = || StepState::Running { attempt: SECOND_ATTEMPT, how: AttemptKind::Calling };
    let retrying = || {
        let until = Timestamp::UNIX_EPOCH;
        StepState::Retrying { attempt: SECOND_ATTEMPT, until, error: Some(error()) }
    };
    let approval = || StepState::Waiting(WaitReason::Approval);
    let until = Timestamp::UNIX_EPOCH;
    let sleeping =
        || StepState::Running { attempt: SECOND_ATTEMPT, how: AttemptKind::Sleeping { until } };
    let done = || StepState::Succeeded(Arc::new(json!(1)));
    let approved = [(0, approval()), (500, StepState::Pending), (501, running()), (503, done())];
    assert_eq!(time_spent(&approved), (2, 500));
    // A delay before a retry counts neither as work nor as waiting.
    let again = [(0, running()), (3, retrying()), (60, running()), (61, done())];
    assert_eq!(time_spent(&again), (4, 0));
    let refused = [(0, approval()), (9, StepState::Failed(error()))];
    assert_eq!(time_spent(&refused), (0, 9));
    // A sleep needs no worker, so its whole time counts as waiting.
    assert_eq!(time_spent(&[(0, sleeping()), (8, StepState::Cancelled)]), (0, 8));
    // A progress report does not end an attempt.
    assert_eq!(time_spent(&[(0, running()), (4, running()), (6, done())]), (6, 0));
    // Another machine's clock may be slow, so a time may seem to be negative.
    assert_eq!(
        time_spent(&[(60, running()), (50, retrying()), (60, running()), (61, done())]),
        (1, 0)
    );
}

#[test]
fn a_loop_counts_as_waiting_only_if_all_unfinished_items_wait() {
    let mut items = Items::new(2);
    let gathering = StepState::Gathering { attempt: SECOND_ATTEMPT };
    let waiting = StepState::Waiting(WaitReason::Approval);
    let mut spent = TimeSpent::default();
    let at = |second| Timestamp::from_timestamp(second, 0).unwrap();
    spent.record_state(at(0), &gathering, Some(&items));
    items.count_waiting(&StepState::Pending, &waiting);
    spent.record_state(at(1), &gathering, Some(&items));
    items.count_waiting(&StepState::Pending, &waiting);
    spent.record_state(at(3), &gathering, Some(&items));
    items.count_waiting(&waiting, &StepState::Pending);
    spent.record_state(at(13), &gathering, Some(&items));
    spent.record_state(at(14), &StepState::Failed(error()), Some(&items));
    assert_eq!((spent.worked.num_seconds(), spent.waited.num_seconds()), (4, 10));
}
