//! Following a log of a store that takes its time.

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
    faulty::{Dice, Faulty, Malice},
};
use tokio::time::sleep;

/// Whoever comes back to the end of a log just as the rest is written is told the rest, also where
/// the log was over between one look and the next.
#[tokio::test(start_paused = true)]
async fn the_last_events_are_told_to_whoever_comes_back() {
    for seed in 0..200 {
        let (truth, dice) = (Arc::new(Memory::new()), Dice::new(seed));
        let id = execution(1);
        truth.append(some_events(id, 0, 3)).await.unwrap();
        let stall = Duration::from_millis(20);
        let malice = Malice { fails_before: 0, fails_after: 0, forgets: 0, stalls: 900, stall };
        let slow = Faulty::new(Arc::clone(&truth) as _, dice.clone(), malice);
        let told = follow_log(Arc::new(slow), id, Seq(3), Duration::from_millis(10));
        let rest = async {
            sleep(Duration::from_millis(dice.below(60))).await;
            let event = Event::Finished { outcome: Outcome::Completed };
            let events = [signal(4, 1.into()), RecordedEvent { seq: Seq(5), at: at(5), event }];
            let over = ExecutionHead { state: ExecutionState::Completed, ..head(1, 5) };
            let append = Append { head: Some(over), ..Append::new(id, Seq(3), &events) };
            truth.append(append).await.unwrap();
        };
        let (told, ()) = tokio::join!(told.try_collect::<Vec<_>>(), rest);
        let told: Vec<_> = told.unwrap().iter().map(|recorded| recorded.seq.0).collect();
        assert_eq!(told, [4, 5], "seed {seed}");
    }
}

/// Whoever follows a log that is removed meanwhile is not kept waiting for ever.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_removed_ends() {
    let store = Arc::new(Memory::new());
    let over =
        ExecutionHead { state: ExecutionState::Completed, finished_at: Some(at(1)), ..head(1, 3) };
    let append = Append { head: Some(over), ..some_events(execution(1), 0, 3) };
    store.append(append).await.unwrap();
    let told = follow_log(Arc::clone(&store) as _, execution(1), Seq(1), Duration::from_millis(10));
    let mut told = Box::pin(told);
    assert_eq!(told.try_next().await.unwrap().unwrap().seq, Seq(2));
    assert_eq!(store.prune(at(2), 10).await.unwrap().executions, 1);
    let rest = tokio::time::timeout(Duration::from_mins(1), told.try_collect::<Vec<_>>());
    let rest = rest.await.expect("it ends").unwrap();
    assert!(rest.len() <= 1, "what was read before: {rest:?}");
}
