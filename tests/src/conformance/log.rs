use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use shared::{
    id::Seq,
    limits,
    store::{Append, AppendError, Command, StoreError},
};
use tokio::{task::JoinSet, time::timeout};

use super::{StorePair, execution, head, inbox_command, signal, some_events};

/// Longest time that a hint needs from one process to another.
pub(super) const MAX_HINT_DELAY: Duration = Duration::from_secs(10);

pub async fn an_append_succeeds_only_at_the_end_of_the_log(pair: StorePair) {
    let id = execution(1);
    assert_eq!(pair.log(id, 0).await, []);
    pair.append(id, 0, 2).await;
    pair.append(id, 2, 1).await;
    for after in [0, 1, 2, 4, 9] {
        let refused = pair.one.append(some_events(id, after, 1)).await;
        assert_eq!(refused, Err(AppendError::Conflict), "after {after}");
        let refused = pair.other.append(some_events(id, after, 1)).await;
        assert_eq!(refused, Err(AppendError::Conflict), "after {after}, by another");
    }
    assert_eq!(pair.log(id, 0).await.len(), 3);
    pair.other.append(some_events(id, 3, 2)).await.unwrap();
    pair.append(id, 5, 1).await;
    assert_eq!(pair.log(id, 0).await.len(), 6);
}

pub async fn the_first_append_must_start_a_log(pair: StorePair) {
    let refused = pair.one.append(some_events(execution(1), 3, 1)).await;
    assert_eq!(refused, Err(AppendError::Conflict));
    assert_eq!(pair.log(execution(1), 0).await, []);
    assert_eq!(pair.log(execution(1), 3).await, []);
}

/// A read can start at any position, even in the middle of an append.
pub async fn a_read_can_start_at_any_position(pair: StorePair) {
    let id = execution(1);
    for (after, events) in [(0, 1), (1, 3), (4, 2), (6, 1)] {
        pair.append(id, after, events).await;
    }
    for after in 0..=9_u64 {
        let found: Vec<u64> = pair.log(id, after).await.iter().map(|event| event.seq.0).collect();
        assert_eq!(found, (after + 1..=7).collect::<Vec<_>>(), "after {after}");
    }
}

pub async fn a_rejected_append_does_not_affect_others_of_its_batch(pair: StorePair) {
    join_all((0..60).map(|n| pair.append(execution(n), 0, 1))).await;
    let stale = |n: usize| n.is_multiple_of(3);
    let appends =
        (0..60).map(|n| pair.one.append(some_events(execution(n), u64::from(!stale(n)), 2)));
    let answers = join_all(appends).await;
    for (n, answer) in answers.into_iter().enumerate() {
        let expected = if stale(n) { Err(AppendError::Conflict) } else { Ok(()) };
        assert_eq!(answer, expected, "execution {n}");
        let len = if stale(n) { 1 } else { 3 };
        assert_eq!(pair.log(execution(n), 0).await.len(), len, "execution {n}");
    }
}

/// Also checks that the events of the one successful writer are stored.
pub async fn exactly_one_writer_gets_each_position(pair: StorePair) {
    const APPENDS_PER_WRITER: u64 = 25;
    let id = execution(1);
    let mut writers = JoinSet::new();
    for n in 0..6_u64 {
        let store = Arc::clone(if n.is_multiple_of(2) { &pair.one } else { &pair.other });
        writers.spawn(async move {
            let (mut won, mut end) = (Vec::new(), 0);
            while won.len() < usize::try_from(APPENDS_PER_WRITER).unwrap() {
                let event = signal(end + 1, json!(n));
                match store.append(Append::new(id, Seq(end), &[event])).await {
                    Ok(()) => {
                        end += 1;
                        won.push(end);
                    }
                    Err(AppendError::Conflict) => {
                        let more = store.read(id, Seq(end)).await.unwrap();
                        end = more.last().expect("another writer won").seq.0;
                    }
                    Err(err) => panic!("{err}"),
                }
            }
            (n, won)
        });
    }
    let won = writers.join_all().await;
    let log = pair.log(id, 0).await;
    assert_eq!(log.len(), usize::try_from(6 * APPENDS_PER_WRITER).unwrap());
    for (n, positions) in won {
        for position in positions {
            assert_eq!(log[usize::try_from(position - 1).unwrap()], signal(position, json!(n)));
        }
    }
}

pub async fn simultaneous_appends_to_many_logs_are_independent(pair: StorePair) {
    join_all((0..200).map(async |n| {
        for after in 0..5 {
            pair.append(execution(n), after, 1).await;
        }
    }))
    .await;
    for n in 0..200 {
        assert_eq!(pair.log(execution(n), 0).await.len(), 5, "execution {n}");
    }
}

pub async fn an_append_larger_than_a_document_is_stored_whole(pair: StorePair) {
    let id = execution(1);
    let events: Vec<_> = (1..=20).map(|n| signal(n, json!("ö".repeat(1 << 19)))).collect();
    let append = Append::new(id, Seq(0), &events);
    assert!(append.documents.len() > 1);
    pair.one.append(append).await.unwrap();
    assert!(pair.log(id, 0).await == events);
    assert!(pair.log(id, 13).await == events[13..]);
    pair.append(id, 20, 1).await;
}

/// The error has its own kind, so that no worker retries forever.
pub async fn an_event_larger_than_a_document_is_refused(pair: StorePair) {
    let too_large = json!("x".repeat(limits::DOCUMENT_BYTES));
    let append = Append::new(execution(1), Seq(0), &[signal(1, too_large)]);
    let refused = pair.one.append(append).await;
    let is_refused = matches!(refused, Err(AppendError::Store(StoreError::TooLarge { .. })));
    assert!(is_refused, "{refused:?}");
    assert_eq!(pair.log(execution(1), 0).await, []);
    // The largest allowed event can be written, even in one batch with other appends.
    let mut bytes = limits::DOCUMENT_BYTES - 1_024;
    if pair.is_encrypted().await {
        bytes = bytes / 4 * 3 - 1_024;
    }
    let largest = json!("x".repeat(bytes));
    let large = Append::new(execution(1), Seq(0), &[signal(1, largest)]);
    let others = join_all((2..20).map(|n| pair.append(execution(n), 0, 1)));
    let (written, _) = futures::future::join(pair.one.append(large), others).await;
    written.unwrap();
    assert_eq!(pair.log(execution(1), 0).await.len(), 1);
}

/// A long log is read in parts. Each part may exceed the promised size only a little.
pub async fn a_long_log_is_read_in_bounded_parts(pair: StorePair) {
    let id = execution(1);
    for n in 0..10 {
        pair.append(id, n * 1_000, 1_000).await;
    }
    let part = pair.other.read(id, Seq(0)).await.unwrap();
    assert!((limits::READ_EVENTS..limits::READ_EVENTS + 1_000).contains(&part.len()));
    assert_eq!(pair.log(id, 0).await.len(), 10_000);
}

/// JSON values are stored unchanged: keys keep their sequence, numbers keep every bit, and texts
/// keep every character.
pub async fn json_values_are_stored_unchanged(pair: StorePair) {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let values = [
        json!({ "z": 1, "a": { "y": 2, "b": 3 }, "": null, "$set": { "a.b": 1 }, "_id": 5 }),
        json!([u64::MAX, i64::MIN, i64::MAX, 9_007_199_254_740_993_u64, 0, -1]),
        json!([0.1, 1.0, -0.0, 5e-324, f64::MAX, f64::MIN_POSITIVE, 1e23, 0.1 + 0.2]),
        json!({ "nul\u{0}key": "nul\u{0}value", "\u{0}": "\u{0}", "emoji 👩‍👩‍👧": "\u{ffff}\u{10ffff}\u{7f}" }),
        json!(["{{a.b}}", "\"\\\n\t'; DROP TABLE events; --", "\u{2028}"]),
        deep,
    ];
    let events: Vec<_> =
        values.iter().zip(1..).map(|(value, n)| signal(n, value.clone())).collect();
    pair.one.append(Append::new(execution(1), Seq(0), &events)).await.unwrap();
    let text = |commands: &[_]| format!("{commands:?}");
    assert_eq!(text(&pair.log(execution(1), 0).await), text(&events));
    for (value, n) in values.iter().zip(1..) {
        let command =
            Command::Signal { name: "n\u{0}".to_owned(), payload: Arc::new(value.clone()) };
        pair.one.send_command(inbox_command(n, 1, command)).await.unwrap();
    }
    let waiting = pair.other.list_commands(None).await.unwrap();
    let payload = |command: &Command| match command {
        Command::Signal { payload, .. } => payload.to_string(),
        other => panic!("{other:?}"),
    };
    let found: Vec<String> = waiting.iter().map(|waiting| payload(&waiting.command)).collect();
    assert_eq!(found, values.iter().map(Value::to_string).collect::<Vec<_>>());
}

pub async fn head_and_inbox_change_atomically_with_the_log(pair: StorePair) {
    for n in 1..=3 {
        pair.one.send_command(inbox_command(n, 1, Command::Pause)).await.unwrap();
    }
    let mut append = some_events(execution(1), 0, 2);
    append.head = Some(head(1, 2));
    append.handled_commands =
        vec![inbox_command(1, 1, Command::Pause).id, inbox_command(3, 1, Command::Pause).id];
    pair.one.append(append.clone()).await.unwrap();
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(head(1, 2)));
    let waiting = pair.other.list_commands(None).await.unwrap();
    assert_eq!(waiting, [inbox_command(2, 1, Command::Pause)]);

    append.head = Some(head(1, 99));
    append.handled_commands = vec![inbox_command(2, 1, Command::Pause).id];
    assert_eq!(pair.one.append(append).await, Err(AppendError::Conflict));
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(head(1, 2)));
    assert_eq!(pair.other.list_commands(Some(execution(1))).await.unwrap().len(), 1);
}

pub async fn changes_send_hints_to_subscribers(pair: StorePair) {
    let hints = pair.other.hints();
    let (mut log, mut work, mut inbox) =
        (hints.subscribe_log(execution(1)), hints.subscribe_work(), hints.subscribe_inbox());
    let mut append = some_events(execution(1), 0, 1);
    append.head = Some(super::ExecutionHead { due: Some(super::at(0)), ..head(1, 1) });
    pair.one.append(append).await.unwrap();
    timeout(MAX_HINT_DELAY, log.changed()).await.expect("a hint about the log").unwrap();
    timeout(MAX_HINT_DELAY, work.changed()).await.expect("a hint about work").unwrap();
    assert_eq!(pair.other.read(execution(1), Seq(0)).await.unwrap().len(), 1);
    inbox.mark_unchanged();
    pair.one.send_command(inbox_command(1, 1, Command::Pause)).await.unwrap();
    timeout(MAX_HINT_DELAY, inbox.changed()).await.expect("a hint about the inbox").unwrap();
    assert_eq!(pair.other.list_commands(None).await.unwrap().len(), 1);
}
