//! Logs: order, durability, and who is refused.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use shared::{
    id::Seq,
    limits,
    store::{Append, AppendError, Command, StoreError},
};
use tokio::{task::JoinSet, time::timeout};

use super::{World, envelope, execution, head, signal, some_events};

/// How long a hint may be under way between processes.
pub(super) const HINT: Duration = Duration::from_secs(10);

/// An append succeeds at the end of the log, and nowhere else.
pub async fn an_append_continues_its_log(world: World) {
    let id = execution(1);
    assert_eq!(world.log(id, 0).await, []);
    world.append(id, 0, 2).await;
    world.append(id, 2, 1).await;
    for after in [0, 1, 2, 4, 9] {
        let refused = world.one.append(some_events(id, after, 1)).await;
        assert_eq!(refused, Err(AppendError::Conflict), "after {after}");
        let refused = world.other.append(some_events(id, after, 1)).await;
        assert_eq!(refused, Err(AppendError::Conflict), "after {after}, by another");
    }
    assert_eq!(world.log(id, 0).await.len(), 3);
    world.other.append(some_events(id, 3, 2)).await.unwrap();
    world.append(id, 5, 1).await;
    assert_eq!(world.log(id, 0).await.len(), 6);
}

/// A log begins at its beginning.
pub async fn a_log_that_is_not_there_does_not_go_on(world: World) {
    let refused = world.one.append(some_events(execution(1), 3, 1)).await;
    assert_eq!(refused, Err(AppendError::Conflict));
    assert_eq!(world.log(execution(1), 0).await, []);
    assert_eq!(world.log(execution(1), 3).await, []);
}

/// A read begins at any position, the middle of an append included.
pub async fn a_read_begins_anywhere(world: World) {
    let id = execution(1);
    for (after, events) in [(0, 1), (1, 3), (4, 2), (6, 1)] {
        world.append(id, after, events).await;
    }
    for after in 0..=9_u64 {
        let found: Vec<u64> = world.log(id, after).await.iter().map(|event| event.seq.0).collect();
        assert_eq!(found, (after + 1..=7).collect::<Vec<_>>(), "after {after}");
    }
}

/// Appends that are written together are refused one by one.
pub async fn a_refused_append_leaves_its_neighbours_alone(world: World) {
    join_all((0..60).map(|n| world.append(execution(n), 0, 1))).await;
    let stale = |n: usize| n.is_multiple_of(3);
    let appends =
        (0..60).map(|n| world.one.append(some_events(execution(n), u64::from(!stale(n)), 2)));
    let answers = join_all(appends).await;
    for (n, answer) in answers.into_iter().enumerate() {
        let expected = if stale(n) { Err(AppendError::Conflict) } else { Ok(()) };
        assert_eq!(answer, expected, "execution {n}");
        let len = if stale(n) { 1 } else { 3 };
        assert_eq!(world.log(execution(n), 0).await.len(), len, "execution {n}");
    }
}

/// Of those that want the same position exactly one gets it, and what it wrote is there.
pub async fn exactly_one_wins_each_position(world: World) {
    const EACH: u64 = 25;
    let id = execution(1);
    let mut writers = JoinSet::new();
    for n in 0..6_u64 {
        let store = Arc::clone(if n.is_multiple_of(2) { &world.one } else { &world.other });
        writers.spawn(async move {
            let (mut won, mut end) = (Vec::new(), 0);
            while won.len() < usize::try_from(EACH).unwrap() {
                let event = signal(end + 1, json!(n));
                match store.append(Append::new(id, Seq(end), &[event])).await {
                    Ok(()) => {
                        end += 1;
                        won.push(end);
                    }
                    Err(AppendError::Conflict) => {
                        let more = store.read(id, Seq(end)).await.unwrap();
                        end = more.last().expect("somebody else won").seq.0;
                    }
                    Err(err) => panic!("{err}"),
                }
            }
            (n, won)
        });
    }
    let won = writers.join_all().await;
    let log = world.log(id, 0).await;
    assert_eq!(log.len(), usize::try_from(6 * EACH).unwrap());
    for (n, positions) in won {
        for at in positions {
            assert_eq!(log[usize::try_from(at - 1).unwrap()], signal(at, json!(n)));
        }
    }
}

/// Many executions append at the same time, each to its own log.
pub async fn executions_do_not_disturb_each_other(world: World) {
    join_all((0..200).map(async |n| {
        for after in 0..5 {
            world.append(execution(n), after, 1).await;
        }
    }))
    .await;
    for n in 0..200 {
        assert_eq!(world.log(execution(n), 0).await.len(), 5, "execution {n}");
    }
}

/// An append that no document can hold is written as several, and read as one.
pub async fn a_large_append_is_whole(world: World) {
    let id = execution(1);
    let events: Vec<_> = (1..=20).map(|n| signal(n, json!("ö".repeat(1 << 19)))).collect();
    let append = Append::new(id, Seq(0), &events);
    assert!(append.documents.len() > 1);
    world.one.append(append).await.unwrap();
    assert!(world.log(id, 0).await == events);
    assert!(world.log(id, 13).await == events[13..]);
    world.append(id, 20, 1).await;
}

/// What no document can hold is refused as that, so that nobody tries for ever.
pub async fn an_append_that_cannot_be_written_is_refused(world: World) {
    let too_large = json!("x".repeat(limits::DOCUMENT_BYTES));
    let append = Append::new(execution(1), Seq(0), &[signal(1, too_large)]);
    let refused = world.one.append(append).await;
    let is_refused = matches!(refused, Err(AppendError::Store(StoreError::TooLarge { .. })));
    assert!(is_refused, "{refused:?}");
    assert_eq!(world.log(execution(1), 0).await, []);
    // The largest that is allowed can be written, among others.
    let largest = json!("x".repeat(limits::DOCUMENT_BYTES - 1_024));
    let large = Append::new(execution(1), Seq(0), &[signal(1, largest)]);
    let others = join_all((2..20).map(|n| world.append(execution(n), 0, 1)));
    let (written, _) = futures::future::join(world.one.append(large), others).await;
    written.unwrap();
    assert_eq!(world.log(execution(1), 0).await.len(), 1);
}

/// A long log is read in parts, none of them much longer than promised.
pub async fn a_long_log_is_read_in_parts(world: World) {
    let id = execution(1);
    for n in 0..10 {
        world.append(id, n * 1_000, 1_000).await;
    }
    let part = world.other.read(id, Seq(0)).await.unwrap();
    assert!((limits::READ_EVENTS..limits::READ_EVENTS + 1_000).contains(&part.len()));
    assert_eq!(world.log(id, 0).await.len(), 10_000);
}

/// Values come back as they went in: order, numbers to the last bit, any character.
pub async fn json_survives(world: World) {
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
    world.one.append(Append::new(execution(1), Seq(0), &events)).await.unwrap();
    let text = |commands: &[_]| format!("{commands:?}");
    assert_eq!(text(&world.log(execution(1), 0).await), text(&events));
    for (value, n) in values.iter().zip(1..) {
        let command =
            Command::Signal { name: "n\u{0}".to_owned(), payload: Arc::new(value.clone()) };
        world.one.send_command(envelope(n, 1, command)).await.unwrap();
    }
    let waiting = world.other.list_commands(None).await.unwrap();
    let payload = |command: &Command| match command {
        Command::Signal { payload, .. } => payload.to_string(),
        other => panic!("{other:?}"),
    };
    let found: Vec<String> = waiting.iter().map(|waiting| payload(&waiting.command)).collect();
    assert_eq!(found, values.iter().map(Value::to_string).collect::<Vec<_>>());
}

/// The head and the inbox change with the log, or not at all.
pub async fn head_and_inbox_change_with_the_log(world: World) {
    for n in 1..=3 {
        world.one.send_command(envelope(n, 1, Command::Pause)).await.unwrap();
    }
    let mut append = some_events(execution(1), 0, 2);
    append.head = Some(head(1, 2));
    append.heard = vec![envelope(1, 1, Command::Pause).id, envelope(3, 1, Command::Pause).id];
    world.one.append(append.clone()).await.unwrap();
    assert_eq!(world.other.head(execution(1)).await.unwrap(), Some(head(1, 2)));
    let waiting = world.other.list_commands(None).await.unwrap();
    assert_eq!(waiting, [envelope(2, 1, Command::Pause)]);

    append.head = Some(head(1, 99));
    append.heard = vec![envelope(2, 1, Command::Pause).id];
    assert_eq!(world.one.append(append).await, Err(AppendError::Conflict));
    assert_eq!(world.other.head(execution(1)).await.unwrap(), Some(head(1, 2)));
    assert_eq!(world.other.list_commands(Some(execution(1))).await.unwrap().len(), 1);
}

/// Whoever waits for a log, for work or for commands is told to look again.
pub async fn hints_wake_whoever_waits(world: World) {
    let hints = world.other.hints();
    let (mut log, mut work, mut inbox) =
        (hints.subscribe_log(execution(1)), hints.subscribe_work(), hints.subscribe_inbox());
    let mut append = some_events(execution(1), 0, 1);
    append.head = Some(super::ExecutionHead { due: Some(super::at(0)), ..head(1, 1) });
    world.one.append(append).await.unwrap();
    timeout(HINT, log.changed()).await.expect("the log is pointed out").unwrap();
    timeout(HINT, work.changed()).await.expect("the work is pointed out").unwrap();
    assert_eq!(world.other.read(execution(1), Seq(0)).await.unwrap().len(), 1);
    inbox.mark_unchanged();
    world.one.send_command(envelope(1, 1, Command::Pause)).await.unwrap();
    timeout(HINT, inbox.changed()).await.expect("the command is pointed out").unwrap();
    assert_eq!(world.other.list_commands(None).await.unwrap().len(), 1);
}
