//! Followers of a log: events that are written between two polls, and a log that is removed.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt;
use shared::{
    event::{Event, Outcome, RecordedEvent},
    execution::ExecutionState,
    id::Seq,
    store::{Append, ExecutionHead, Log, Store, follow_log, memory::Memory},
};
use tests::{
    conformance::{at, execution, head, signal, some_events},
    faulty::{Dice, FaultRates, FaultyStore},
};
use tokio::time::sleep;

/// A follower that has reached the end of a log receives the events that are written later, even if
/// the execution finishes between two polls.
#[tokio::test(start_paused = true)]
async fn a_follower_receives_events_that_are_written_between_two_polls() {
    for seed in 0..200 {
        let (memory, dice) = (Arc::new(Memory::new()), Dice::new(seed));
        let id = execution(1);
        memory.append(some_events(id, 0, 3)).await.unwrap();
        let max_stall = Duration::from_millis(20);
        let rates = FaultRates {
            failures_before: 0,
            failures_after: 0,
            failures_before_inbox: 0,
            stalls: 900,
            max_stall,
        };
        let slow = FaultyStore::new(Arc::clone(&memory) as _, dice.clone(), rates);
        let received = follow_log(Arc::new(slow), id, Seq(3), Duration::from_millis(10));
        let rest = async {
            sleep(Duration::from_millis(dice.draw_below(60))).await;
            let event = Event::Finished { outcome: Outcome::Completed };
            let events =
                [signal(4, 1.into()), RecordedEvent { seq: Seq(5), at: at(5), by: None, event }];
            let over = ExecutionHead { state: ExecutionState::Completed, ..head(1, 5) };
            let append = Append { head: Some(over), ..Append::new(id, Seq(3), &events) };
            memory.append(append).await.unwrap();
        };
        let (received, ()) = tokio::join!(received.try_collect::<Vec<_>>(), rest);
        let received: Vec<_> = received.unwrap().iter().map(|recorded| recorded.seq.0).collect();
        assert_eq!(received, [4, 5], "seed {seed}");
    }
}

/// A follower of a log that is removed must not wait forever.
#[tokio::test(start_paused = true)]
async fn a_follower_of_a_removed_log_ends() {
    let store = Arc::new(Memory::new());
    let over =
        ExecutionHead { state: ExecutionState::Completed, finished_at: Some(at(1)), ..head(1, 3) };
    let append = Append { head: Some(over), ..some_events(execution(1), 0, 3) };
    store.append(append).await.unwrap();
    let received =
        follow_log(Arc::clone(&store) as _, execution(1), Seq(1), Duration::from_millis(10));
    let mut received = Box::pin(received);
    assert_eq!(received.try_next().await.unwrap().unwrap().seq, Seq(2));
    assert_eq!(store.prune(at(2), 10).await.unwrap().executions, 1);
    let rest = tokio::time::timeout(Duration::from_mins(1), received.try_collect::<Vec<_>>());
    let rest = rest.await.expect("the stream ends").unwrap();
    assert!(rest.len() <= 1, "at most the event that was read before: {rest:?}");
}
