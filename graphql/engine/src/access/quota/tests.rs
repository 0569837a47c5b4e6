use expect_test::expect;
use shared::{
    event::{Event, RecordedEvent},
    execution::ExecutionState,
    id::{Epoch, ExecutionId, Seq},
    labels::{self, Labels},
    store::{Append, ExecutionHead, Log as _, memory::Memory},
};

use super::*;

fn time_at(seconds: i64) -> Timestamp {
    Timestamp::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
}

fn meter(quotas: Quotas) -> QuotaMeter {
    QuotaMeter::new("ci".to_owned(), quotas)
}

async fn store_execution(store: &Memory, n: usize, token: &str, stored_bytes: u64) {
    let execution: ExecutionId = format!("exec_1700000000_{n:09}").parse().unwrap();
    let mut labels = Labels::new();
    labels::set_token(&mut labels, Some(token));
    let head = ExecutionHead {
        execution,
        request: format!("req_1700000000_{n:09}").parse().unwrap(),
        plan: format!("plan_1700000000_{n:09}").parse().unwrap(),
        state: ExecutionState::InProgress,
        created_at: time_at(0),
        seq: Seq(1),
        epoch: Epoch(0),
        owner: None,
        due: None,
        priority: 0,
        finished_at: None,
        parent: None,
        needs_person: false,
        started_at: None,
        query: "".into(),
        steps_done: 0,
        steps_total: 0,
        error: None,
        labels,
        is_dry_run: false,
        stored_bytes,
    };
    let event = Event::Paused { command: CommandId::draw(time_at(0)) };
    let event = RecordedEvent { seq: Seq(1), at: time_at(0), by: None, event };
    let append = Append::new(execution, Seq::START, &[event]);
    store.append(Append { head: Some(head), ..append }).await.unwrap();
}

#[tokio::test]
async fn all_nodes_count_the_starts_of_a_token() {
    let starts = Some(Rate { calls: 2, per_ms: 3_600_000 });
    let (store, quotas) = (Memory::new(), Quotas { starts, ..Quotas::default() });
    let nodes = [meter(quotas), meter(quotas)];
    for node in &nodes {
        node.admit_start(&store, Some("ci"), time_at(0)).await.unwrap();
    }
    let refused = nodes[0].admit_start(&store, Some("ci"), time_at(0)).await.unwrap_err();
    expect!["the token `ci` has used up its limit `starts` of 2/h; try again in 1800 s"]
        .assert_eq(&refused.to_string());
    assert!(nodes[0].check_remembered(Instant::now()).is_err(), "no query is needed to refuse");
    assert!(nodes[1].check_remembered(Instant::now()).is_ok());
    nodes[1].admit_start(&store, Some("ci"), time_at(1_800)).await.unwrap();
    let other = QuotaMeter::new("other".to_owned(), quotas);
    other.admit_start(&store, Some("other"), time_at(0)).await.unwrap();
}

#[tokio::test]
async fn active_executions_of_a_token_are_limited() {
    let (store, quotas) = (Memory::new(), Quotas { executions: Some(2), ..Quotas::default() });
    let meter = meter(quotas);
    store_execution(&store, 1, "ci", 0).await;
    store_execution(&store, 2, "other", 0).await;
    let first = meter.admit_start(&store, Some("ci"), time_at(0)).await.unwrap();
    let mut next = Box::pin(meter.admit_start(&store, Some("ci"), time_at(0)));
    let is_waiting = futures::poll!(next.as_mut()).is_pending();
    assert!(is_waiting, "the first start is not stored yet");
    store_execution(&store, 3, "ci", 0).await;
    drop(first);
    expect!["the token `ci` has 2 active executions, and its limit `executions` is 2: wait until one of them has finished; try again in 1 s"]
        .assert_eq(&next.await.unwrap_err().to_string());
    meter.admit_start(&store, Some("other"), time_at(0)).await.unwrap();
}

#[tokio::test]
async fn a_check_counts_no_start_and_waits_for_none() {
    let starts = Some(Rate { calls: 1, per_ms: 3_600_000 });
    let quotas = Quotas { starts, executions: Some(1), ..Quotas::default() };
    let (store, meter) = (Memory::new(), meter(quotas));
    for _ in 0..2 {
        meter.check_start(&store, Some("ci")).await.unwrap();
    }
    let _first = meter.admit_start(&store, Some("ci"), time_at(0)).await.unwrap();
    meter.check_start(&store, Some("ci")).await.unwrap();
    store_execution(&store, 1, "ci", 0).await;
    assert!(meter.check_start(&store, Some("ci")).await.is_err());
    meter.check_start(&store, Some("other")).await.unwrap();
}

#[tokio::test]
async fn stored_bytes_of_a_token_are_limited() {
    let quotas = Quotas { stored_bytes: Some(1_000), ..Quotas::default() };
    let store = Memory::new();
    store_execution(&store, 1, "ci", 600).await;
    store_execution(&store, 2, "other", 5_000).await;
    meter(quotas).admit_start(&store, Some("ci"), time_at(0)).await.unwrap();
    store_execution(&store, 3, "ci", 400).await;
    let meter = meter(quotas);
    let refused = meter.admit_start(&store, Some("ci"), time_at(0)).await.unwrap_err();
    expect!["the token `ci` has 1000 stored bytes, and its limit `stored_bytes` is 1000: remove finished executions with `faber prune`, or wait until `retention` removes them; try again in 600 s"]
        .assert_eq(&refused.to_string());
    assert!(meter.check_remembered(Instant::now()).is_err());
    let later = Instant::now() + EXCESS_MAX_AGE;
    assert!(meter.check_remembered(later).is_ok(), "the bytes are read again after a second");
}
