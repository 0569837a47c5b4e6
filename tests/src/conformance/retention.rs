use std::{collections::BTreeSet, sync::Arc};

use futures::future::join_all;
use serde_json::json;
use shared::{
    event::{Settled, Settlement},
    execution::ExecutionState::{self, Cancelled, Completed, Failed, InProgress},
    id::Seq,
    request::TranscriptEntry,
    store::{
        Append, Command, ExecutionFilter, ExecutionHead, FinishedCallId, HeadQuery, PlanFilter,
        Pruned, RecordKind, Removable, RequestFilter, Reservation, SavedPlan, settlement_prefix,
    },
};

use super::{
    StorePair, all, at, execution, head, inbox_command, plan, plan_id, request, request_id,
    some_events, worker,
};

/// Seconds after `at(0)`. This time is in the far future, so that no store's own clock has passed
/// it.
const FAR_FUTURE_SECONDS: i64 = 1_000_000_000;

pub async fn a_cached_output_is_found_until_it_expires(pair: StorePair) {
    let now = |offset: i64| at(FAR_FUTURE_SECONDS + offset);
    assert_eq!(pair.other.find_output("k", now(0)).await.unwrap(), None);
    let output = json!({ "z": [u64::MAX, 0.1, "\u{0}"], "$a.b": null });
    pair.one.cache_output("k", &output, now(10)).await.unwrap();
    pair.one.cache_output("$k\u{0}", &json!(2), now(20)).await.unwrap();
    assert_eq!(pair.other.find_output("k", now(9)).await.unwrap(), Some(Arc::new(output)));
    assert_eq!(pair.other.find_output("k", now(10)).await.unwrap(), None);
    pair.one.cache_output("k", &json!(3), now(30)).await.unwrap();
    assert_eq!(pair.other.find_output("k", now(10)).await.unwrap(), Some(Arc::new(json!(3))));
    assert_eq!(pair.other.find_output("$k\u{0}", now(10)).await.unwrap(), Some(Arc::new(json!(2))));
    pair.one.prune(now(20), 10).await.unwrap();
    assert_eq!(
        pair.other.find_output("$k\u{0}", now(0)).await.unwrap(),
        None,
        "the expired output is removed"
    );
    assert_eq!(pair.other.find_output("k", now(29)).await.unwrap(), Some(Arc::new(json!(3))));
}

pub async fn a_saved_name_means_the_last_plan(pair: StorePair) {
    assert_eq!(pair.other.find_saved_plan("n").await.unwrap(), None);
    let saved = |n: usize, inputs| SavedPlan {
        name: "n.\u{0}$".to_owned(),
        plan: plan_id(n),
        inputs,
        at: at(5),
    };
    let first = saved(1, Some(json!({ "type": "object", "$ref": "#/a" })));
    pair.one.save_plan(&first).await.unwrap();
    assert_eq!(pair.other.find_saved_plan("n.\u{0}$").await.unwrap(), Some(first));
    pair.other.save_plan(&saved(2, None)).await.unwrap();
    assert_eq!(pair.one.find_saved_plan("n.\u{0}$").await.unwrap(), Some(saved(2, None)));
    assert_eq!(pair.one.find_saved_plan("n").await.unwrap(), None);
}

pub async fn saved_plans_are_listed_until_they_are_removed(pair: StorePair) {
    let saved = |name: &str| SavedPlan {
        name: name.to_owned(),
        plan: plan_id(1),
        inputs: Some(json!({ "type": "object" })),
        at: at(5),
    };
    for name in ["b", "a b", "B", "é", "a"] {
        pair.one.save_plan(&saved(name)).await.unwrap();
    }
    let names = async |after, first| {
        let found = pair.other.list_saved_plans(after, first).await.unwrap();
        found.into_iter().map(|record| record.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 9).await, ["B", "a", "a b", "b", "é"]);
    assert_eq!(names(None, 2).await, ["B", "a"]);
    assert_eq!(names(Some("a"), 2).await, ["a b", "b"]);
    assert_eq!(names(Some("aa"), 9).await, ["b", "é"], "the cursor's name may be missing");
    assert_eq!(names(Some("é"), 9).await, Vec::<String>::new());
    assert_eq!(names(None, 0).await, Vec::<String>::new());
    assert_eq!(pair.other.list_saved_plans(None, 1).await.unwrap(), [saved("B")]);
    assert!(pair.other.remove_saved_plan("a").await.unwrap());
    assert!(!pair.one.remove_saved_plan("a").await.unwrap(), "the plan is removed already");
    assert_eq!(pair.one.find_saved_plan("a").await.unwrap(), None);
    assert_eq!(names(None, 2).await, ["B", "a b"]);
}

/// Stores an execution, with a request and a plan that belong only to it and were created at
/// `at(0)`.
async fn put_execution(pair: &StorePair, head: ExecutionHead) {
    let n = (1..100).find(|n| execution(*n) == head.execution).unwrap();
    pair.one.put_request(&request(n, "q", 0)).await.unwrap();
    pair.one.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    let entry = TranscriptEntry { at: at(0), kind: "k".to_owned(), content: json!(n) };
    pair.one.add_transcript(request_id(n), &[entry]).await.unwrap();
    let key = Reservation {
        key: format!("key {n}"),
        execution: execution(n),
        fingerprint: String::new(),
    };
    pair.one.reserve_key(&key).await.unwrap();
    assert_eq!(pair.one.settle_call(&call_id(n), &settlement(), at(0)).await.unwrap(), None);
    let append = Append { head: Some(head), ..some_events(execution(n), 0, 2) };
    pair.one.append(append).await.unwrap();
    pair.one.append(some_events(execution(n), 2, 1)).await.unwrap();
    pair.one.send_command(inbox_command(n, n, Command::Pause)).await.unwrap();
}

fn call_id(n: usize) -> FinishedCallId {
    FinishedCallId { execution: execution(n), step: "s".parse().unwrap(), item: Some(3) }
}

fn settlement() -> Settlement {
    Settlement { outcome: Settled::Succeeded, output: Some(Arc::default()), comment: None }
}

async fn count_settlements(pair: &StorePair, n: usize) -> usize {
    let prefix = settlement_prefix(execution(n));
    pair.other.count_records(RecordKind::Settlement, &prefix, 10).await.unwrap()
}

fn finished_head(n: usize, seconds: i64, state: ExecutionState) -> ExecutionHead {
    ExecutionHead { state, finished_at: Some(at(seconds)), ..head(n, 2) }
}

pub async fn finished_executions_are_listed_by_end_time(pair: StorePair) {
    for (n, seconds) in [(1, 30), (2, 10), (3, 20), (4, 20)] {
        put_execution(&pair, finished_head(n, seconds, Completed)).await;
    }
    put_execution(&pair, head(5, 2)).await;
    let listed = async |after, until, maximum| {
        let found = pair
            .other
            .find_heads(HeadQuery::Finished { after: at(after), until: at(until) }, maximum)
            .await
            .unwrap();
        found.into_iter().map(|head| head.execution).collect::<Vec<_>>()
    };
    assert_eq!(listed(0, 99, 9).await, [2, 3, 4, 1].map(execution));
    assert_eq!(listed(0, 99, 2).await, [2, 3].map(execution));
    assert_eq!(listed(10, 20, 9).await, [3, 4].map(execution));
    assert_eq!(listed(30, 99, 9).await, []);
    assert_eq!(listed(0, 99, 0).await, []);
}

async fn prune(pair: &StorePair, seconds: i64, limit: usize) -> Pruned {
    pair.one.prune(at(seconds), limit).await.unwrap()
}

async fn executions_left(pair: &StorePair) -> BTreeSet<String> {
    let found = pair.other.list_heads(&ExecutionFilter::default(), &all()).await.unwrap();
    found.items.into_iter().map(|(_, head)| head.execution.to_string()).collect()
}

async fn count_all(pair: &StorePair) -> (usize, usize, usize) {
    let requests = pair.other.list_requests(&RequestFilter::default(), &all()).await.unwrap();
    let plans = pair.other.list_plans(&PlanFilter::default(), &all()).await.unwrap();
    (executions_left(pair).await.len(), plans.items.len(), requests.items.len())
}

/// An old finished execution is pruned together with its log, request, plan and other documents.
/// Documents of other executions stay.
pub async fn old_finished_executions_are_pruned_with_their_documents(pair: StorePair) {
    put_execution(&pair, finished_head(1, 10, Completed)).await;
    put_execution(&pair, finished_head(2, 11, Cancelled)).await;
    put_execution(&pair, ExecutionHead { state: InProgress, ..head(3, 2) }).await;
    let pruned = prune(&pair, 11, 10).await;
    assert_eq!(pruned, Pruned { executions: 1, plans: 1, requests: 1, more: false });
    assert_eq!(count_all(&pair).await, (2, 2, 2));
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), None);
    assert_eq!(pair.other.read(execution(1), Seq(0)).await.unwrap(), []);
    assert_eq!(pair.other.read(execution(1), Seq(2)).await.unwrap(), []);
    assert_eq!(pair.other.find_reservation("key 1").await.unwrap(), None);
    assert_eq!(count_settlements(&pair, 1).await, 0);
    assert_eq!(pair.other.list_commands(Some(execution(1))).await.unwrap(), []);
    assert_eq!(pair.other.request(request_id(1)).await.unwrap(), None);
    assert_eq!(pair.other.transcript(request_id(1)).await.unwrap(), []);
    assert_eq!(pair.other.plan_versions(request_id(1)).await.unwrap(), []);
    for n in [2, 3] {
        assert_eq!(pair.log(execution(n), 0).await.len(), 3, "execution {n}");
        assert_eq!(count_settlements(&pair, n).await, 1);
        let failed = Settlement { outcome: Settled::Failed, output: None, comment: None };
        let before = pair.other.settle_call(&call_id(n), &failed, at(1)).await.unwrap();
        assert_eq!(before, Some(settlement()), "the first settlement stays");
        assert!(pair.other.find_reservation(&format!("key {n}")).await.unwrap().is_some());
        assert_eq!(pair.other.list_commands(Some(execution(n))).await.unwrap().len(), 1);
        assert_eq!(pair.other.transcript(request_id(n)).await.unwrap().len(), 1);
        assert!(pair.other.plan(plan_id(n)).await.unwrap().is_some());
    }
    assert_eq!(prune(&pair, 11, 10).await, Pruned::default());
    // The id of a pruned execution can be used again.
    put_execution(&pair, head(1, 2)).await;
    assert_eq!(pair.log(execution(1), 0).await.len(), 3);
}

/// The given objects are removed together with everything that belongs to them, unless another
/// object needs them.
pub async fn given_objects_are_removed_unless_they_are_needed(pair: StorePair) {
    put_execution(&pair, finished_head(1, 10, Completed)).await;
    put_execution(&pair, finished_head(2, 10, Failed)).await;
    put_execution(&pair, ExecutionHead { state: InProgress, ..head(3, 2) }).await;
    let child = ExecutionHead { parent: Some(execution(3)), ..finished_head(4, 1, Completed) };
    put_execution(&pair, child).await;
    let owned = ExecutionHead { owner: Some(worker(1)), ..finished_head(5, 1, Completed) };
    put_execution(&pair, owned).await;
    let remove = async |objects| pair.one.remove_unused(&objects).await.unwrap();
    let (executions, plans, requests) = (
        || [1, 3, 4, 5, 99].map(execution).to_vec(),
        || [1, 2, 99].map(plan_id).to_vec(),
        || [1, 2, 99].map(request_id).to_vec(),
    );
    assert_eq!(remove(Removable::Requests(requests())).await, 0);
    assert_eq!(remove(Removable::Plans(plans())).await, 0);
    assert_eq!(remove(Removable::Executions(executions())).await, 1);
    assert_eq!(remove(Removable::Executions(executions())).await, 0);
    assert_eq!(remove(Removable::Plans(plans())).await, 1);
    assert_eq!(remove(Removable::Requests(requests())).await, 1);
    assert_eq!(count_all(&pair).await, (4, 4, 4));
    assert_eq!(pair.other.read(execution(1), Seq(0)).await.unwrap(), []);
    assert_eq!(pair.other.find_reservation("key 1").await.unwrap(), None);
    assert_eq!(count_settlements(&pair, 1).await, 0);
    assert_eq!(pair.other.transcript(request_id(1)).await.unwrap(), []);
    assert_eq!(pair.log(execution(2), 0).await.len(), 3);
    assert_eq!(remove(Removable::Executions(Vec::new())).await, 0);
}

/// An unfinished execution stays at any age. So does an execution that must still inform its
/// parent, and an execution with an unfinished parent.
pub async fn unfinished_executions_are_never_pruned(pair: StorePair) {
    let states = ExecutionState::ALL.into_iter().filter(|state| !state.is_finished());
    for (state, n) in states.zip(1..) {
        put_execution(&pair, ExecutionHead { state, ..head(n, 2) }).await;
    }
    let child =
        |n, of| ExecutionHead { parent: Some(execution(of)), ..finished_head(n, 1, Completed) };
    put_execution(&pair, child(20, 1)).await;
    put_execution(
        &pair,
        ExecutionHead { owner: Some(worker(1)), ..finished_head(21, 1, Completed) },
    )
    .await;
    let before = count_all(&pair).await;
    assert_eq!(prune(&pair, 1_000, 100).await, Pruned::default());
    assert_eq!(count_all(&pair).await, before);
    let over = ExecutionHead { seq: Seq(3), ..finished_head(1, 999, Completed) };
    pair.one.put_head(over).await.unwrap();
    let pruned = prune(&pair, 500, 100).await;
    assert_eq!(pruned.executions, 1, "the child of the finished parent");
    assert_eq!(pair.other.head(execution(20)).await.unwrap(), None);
    put_execution(&pair, child(30, 99)).await;
    assert_eq!(prune(&pair, 500, 100).await.executions, 1, "the parent was pruned");
}

/// A saved plan, and a plan that an execution uses, stay with their requests.
pub async fn saved_and_used_plans_are_not_pruned(pair: StorePair) {
    for n in 1..=3 {
        pair.one.put_request(&request(n, "q", 0)).await.unwrap();
        pair.one.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    pair.one.put_request(&request(9, "q", 999)).await.unwrap();
    let saved = |n| SavedPlan { name: "n".to_owned(), plan: plan_id(n), inputs: None, at: at(0) };
    pair.one.save_plan(&saved(1)).await.unwrap();
    let of_plan = ExecutionHead { plan: plan_id(2), request: request_id(2), ..head(7, 2) };
    pair.put_head(of_plan).await;
    let pruned = prune(&pair, 500, 10).await;
    assert_eq!(pruned, Pruned { executions: 0, plans: 1, requests: 1, more: false });
    assert!(pair.other.plan(plan_id(1)).await.unwrap().is_some());
    assert!(pair.other.plan(plan_id(2)).await.unwrap().is_some());
    pair.one.save_plan(&saved(2)).await.unwrap();
    let pruned = prune(&pair, 500, 10).await;
    assert_eq!(pruned, Pruned { executions: 0, plans: 1, requests: 1, more: false });
    assert!(pair.other.request(request_id(9)).await.unwrap().is_some(), "the request is too new");
}

pub async fn pruning_removes_the_oldest_in_parts(pair: StorePair) {
    let seconds = |n: usize| i64::try_from(n).unwrap();
    for n in 1..=7 {
        put_execution(&pair, finished_head(n, seconds(n), Completed)).await;
    }
    let pruned = prune(&pair, 100, 3).await;
    assert_eq!(pruned, Pruned { executions: 3, plans: 0, requests: 0, more: true });
    let left: BTreeSet<String> = (4..=7).map(|number| execution(number).to_string()).collect();
    assert_eq!(executions_left(&pair).await, left);
    let mut calls = 1;
    while prune(&pair, 100, 3).await.more {
        calls += 1;
        assert!(calls < 20, "pruning does not end");
    }
    assert_eq!(count_all(&pair).await, (0, 0, 0));
    assert_eq!(prune(&pair, 100, 0).await, Pruned::default());
}

/// Readers that run during a prune get no error.
pub async fn readers_during_pruning_get_no_error(pair: StorePair) {
    for n in 1..=40 {
        put_execution(&pair, finished_head(n, 1, Completed)).await;
        for after in 3..6 {
            pair.append(execution(n), after, 1).await;
        }
    }
    let watch = join_all((1..=40).map(async |n| {
        for after in [0, 2, 5, 0, 4] {
            let events = pair.other.read(execution(n), Seq(after)).await.unwrap();
            let whole = usize::try_from(6 - after).unwrap();
            assert!(events.len() <= whole, "{n}: {}", events.len());
            pair.other.head(execution(n)).await.unwrap();
        }
    }));
    let remove = join_all(
        [&pair.one, &pair.other].map(
            async |store| {
                while store.prune(at(100), 7).await.unwrap().more {}
            },
        ),
    );
    futures::future::join(watch, remove).await;
    assert_eq!(count_all(&pair).await, (0, 0, 0));
    for n in 1..=40 {
        assert_eq!(pair.log(execution(n), 0).await, []);
    }
}
