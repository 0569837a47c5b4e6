//! What is kept for a while: outputs for later calls, and whatever is over and old.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::join_all;
use serde_json::json;
use shared::{
    event::{Settled, Settlement},
    execution::ExecutionState::{self, Cancelled, Completed, InProgress},
    id::Seq,
    request::TranscriptEntry,
    store::{
        Append, Command, ExecutionFilter, ExecutionHead, FinishedCallId, HeadQuery, PlanFilter,
        Pruned, RecordKind, RequestFilter, Reservation, SavedPlan, settlement_prefix,
    },
};

use super::{
    World, all, at, envelope, execution, head, plan, plan_id, request, request_id, some_events,
    worker,
};

/// In the far future, so that no store's own clock has passed it.
const LATER: i64 = 1_000_000_000;

/// An output is there until its time, and no longer.
pub async fn an_output_is_kept_until_its_time(world: World) {
    let now = |offset: i64| at(LATER + offset);
    assert_eq!(world.other.find_output("k", now(0)).await.unwrap(), None);
    let output = json!({ "z": [u64::MAX, 0.1, "\u{0}"], "$a.b": null });
    world.one.cache_output("k", &output, now(10)).await.unwrap();
    world.one.cache_output("$k\u{0}", &json!(2), now(20)).await.unwrap();
    assert_eq!(world.other.find_output("k", now(9)).await.unwrap(), Some(Arc::new(output)));
    assert_eq!(world.other.find_output("k", now(10)).await.unwrap(), None);
    world.one.cache_output("k", &json!(3), now(30)).await.unwrap();
    assert_eq!(world.other.find_output("k", now(10)).await.unwrap(), Some(Arc::new(json!(3))));
    assert_eq!(
        world.other.find_output("$k\u{0}", now(10)).await.unwrap(),
        Some(Arc::new(json!(2)))
    );
    world.one.prune(now(20), 10).await.unwrap();
    assert_eq!(world.other.find_output("$k\u{0}", now(0)).await.unwrap(), None, "it is removed");
    assert_eq!(world.other.find_output("k", now(29)).await.unwrap(), Some(Arc::new(json!(3))));
}

/// A name stands for the plan that was saved under it last.
pub async fn a_name_means_the_last_plan(world: World) {
    assert_eq!(world.other.find_saved_plan("n").await.unwrap(), None);
    let saved = |n: usize, inputs| SavedPlan {
        name: "n.\u{0}$".to_owned(),
        plan: plan_id(n),
        inputs,
        at: at(5),
    };
    let first = saved(1, Some(json!({ "type": "object", "$ref": "#/a" })));
    world.one.save_plan(&first).await.unwrap();
    assert_eq!(world.other.find_saved_plan("n.\u{0}$").await.unwrap(), Some(first));
    world.other.save_plan(&saved(2, None)).await.unwrap();
    assert_eq!(world.one.find_saved_plan("n.\u{0}$").await.unwrap(), Some(saved(2, None)));
    assert_eq!(world.one.find_saved_plan("n").await.unwrap(), None);
}

/// Saved plans are listed by name, part by part, until their name is taken away.
pub async fn names_of_plans_are_listed_and_taken_away(world: World) {
    let saved = |name: &str| SavedPlan {
        name: name.to_owned(),
        plan: plan_id(1),
        inputs: Some(json!({ "type": "object" })),
        at: at(5),
    };
    for name in ["b", "a b", "B", "é", "a"] {
        world.one.save_plan(&saved(name)).await.unwrap();
    }
    let names = async |after, first| {
        let found = world.other.list_saved_plans(after, first).await.unwrap();
        found.into_iter().map(|record| record.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 9).await, ["B", "a", "a b", "b", "é"]);
    assert_eq!(names(None, 2).await, ["B", "a"]);
    assert_eq!(names(Some("a"), 2).await, ["a b", "b"]);
    assert_eq!(names(Some("aa"), 9).await, ["b", "é"], "the name need not be there");
    assert_eq!(names(Some("é"), 9).await, Vec::<String>::new());
    assert_eq!(names(None, 0).await, Vec::<String>::new());
    assert_eq!(world.other.list_saved_plans(None, 1).await.unwrap(), [saved("B")]);
    assert!(world.other.remove_saved_plan("a").await.unwrap());
    assert!(!world.one.remove_saved_plan("a").await.unwrap(), "it is gone already");
    assert_eq!(world.one.find_saved_plan("a").await.unwrap(), None);
    assert_eq!(names(None, 2).await, ["B", "a b"]);
}

/// An execution of its own request and plan, created at 0.
async fn put_execution(world: &World, head: ExecutionHead) {
    let n = (1..100).find(|n| execution(*n) == head.execution).unwrap();
    world.one.put_request(&request(n, "q", 0)).await.unwrap();
    world.one.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    let entry = TranscriptEntry { at: at(0), kind: "k".to_owned(), content: json!(n) };
    world.one.add_transcript(request_id(n), &[entry]).await.unwrap();
    let key = Reservation {
        key: format!("key {n}"),
        execution: execution(n),
        fingerprint: String::new(),
    };
    world.one.reserve_key(&key).await.unwrap();
    assert_eq!(world.one.settle_call(&call(n), &settlement(), at(0)).await.unwrap(), None);
    let append = Append { head: Some(head), ..some_events(execution(n), 0, 2) };
    world.one.append(append).await.unwrap();
    world.one.append(some_events(execution(n), 2, 1)).await.unwrap();
    world.one.send_command(envelope(n, n, Command::Pause)).await.unwrap();
}

fn call(n: usize) -> FinishedCallId {
    FinishedCallId { execution: execution(n), step: "s".parse().unwrap(), item: Some(3) }
}

fn settlement() -> Settlement {
    Settlement { outcome: Settled::Succeeded, output: Some(Arc::default()), comment: None }
}

async fn settlements(world: &World, n: usize) -> usize {
    let prefix = settlement_prefix(execution(n));
    world.other.count_records(RecordKind::Settlement, &prefix, 10).await.unwrap()
}

fn ended(n: usize, seconds: i64, state: ExecutionState) -> ExecutionHead {
    ExecutionHead { state, finished_at: Some(at(seconds)), ..head(n, 2) }
}

/// What has ended is listed in the order of its ends, a part at a time.
pub async fn what_has_ended_is_listed_in_that_order(world: World) {
    for (n, seconds) in [(1, 30), (2, 10), (3, 20), (4, 20)] {
        put_execution(&world, ended(n, seconds, Completed)).await;
    }
    put_execution(&world, head(5, 2)).await;
    let listed = async |after, until, most| {
        let found = world
            .other
            .find_heads(HeadQuery::Finished { after: at(after), until: at(until) }, most)
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

async fn prune(world: &World, seconds: i64, most: usize) -> Pruned {
    world.one.prune(at(seconds), most).await.unwrap()
}

async fn executions_left(world: &World) -> BTreeSet<String> {
    let found = world.other.list_heads(&ExecutionFilter::default(), &all()).await.unwrap();
    found.items.into_iter().map(|(_, head)| head.execution.to_string()).collect()
}

async fn counts(world: &World) -> (usize, usize, usize) {
    let requests = world.other.list_requests(&RequestFilter::default(), &all()).await.unwrap();
    let plans = world.other.list_plans(&PlanFilter::default(), &all()).await.unwrap();
    (executions_left(world).await.len(), plans.items.len(), requests.items.len())
}

/// What is over and old goes with everything that belongs to it; what is not stays whole.
pub async fn what_is_over_and_old_is_removed(world: World) {
    put_execution(&world, ended(1, 10, Completed)).await;
    put_execution(&world, ended(2, 11, Cancelled)).await;
    put_execution(&world, ExecutionHead { state: InProgress, ..head(3, 2) }).await;
    let pruned = prune(&world, 11, 10).await;
    assert_eq!(pruned, Pruned { executions: 1, plans: 1, requests: 1, more: false });
    assert_eq!(counts(&world).await, (2, 2, 2));
    assert_eq!(world.other.head(execution(1)).await.unwrap(), None);
    assert_eq!(world.other.read(execution(1), Seq(0)).await.unwrap(), []);
    assert_eq!(world.other.read(execution(1), Seq(2)).await.unwrap(), []);
    assert_eq!(world.other.find_reservation("key 1").await.unwrap(), None);
    assert_eq!(settlements(&world, 1).await, 0);
    assert_eq!(world.other.list_commands(Some(execution(1))).await.unwrap(), []);
    assert_eq!(world.other.request(request_id(1)).await.unwrap(), None);
    assert_eq!(world.other.transcript(request_id(1)).await.unwrap(), []);
    assert_eq!(world.other.plan_versions(request_id(1)).await.unwrap(), []);
    for n in [2, 3] {
        assert_eq!(world.log(execution(n), 0).await.len(), 3, "execution {n}");
        assert_eq!(settlements(&world, n).await, 1);
        let failed = Settlement { outcome: Settled::Failed, output: None, comment: None };
        let before = world.other.settle_call(&call(n), &failed, at(1)).await.unwrap();
        assert_eq!(before, Some(settlement()), "the first decision stays");
        assert!(world.other.find_reservation(&format!("key {n}")).await.unwrap().is_some());
        assert_eq!(world.other.list_commands(Some(execution(n))).await.unwrap().len(), 1);
        assert_eq!(world.other.transcript(request_id(n)).await.unwrap().len(), 1);
        assert!(world.other.plan(plan_id(n)).await.unwrap().is_some());
    }
    assert_eq!(prune(&world, 11, 10).await, Pruned::default());
    // What was removed can be begun anew.
    put_execution(&world, head(1, 2)).await;
    assert_eq!(world.log(execution(1), 0).await.len(), 3);
}

/// What is not over stays, however old; so does what has something to tell a parent, and what has
/// a parent that is not over.
pub async fn what_still_runs_is_never_removed(world: World) {
    let states = ExecutionState::ALL.into_iter().filter(|state| !state.is_finished());
    for (state, n) in states.zip(1..) {
        put_execution(&world, ExecutionHead { state, ..head(n, 2) }).await;
    }
    let child = |n, of| ExecutionHead { parent: Some(execution(of)), ..ended(n, 1, Completed) };
    put_execution(&world, child(20, 1)).await;
    put_execution(&world, ExecutionHead { owner: Some(worker(1)), ..ended(21, 1, Completed) })
        .await;
    let before = counts(&world).await;
    assert_eq!(prune(&world, 1_000, 100).await, Pruned::default());
    assert_eq!(counts(&world).await, before);
    let over = ExecutionHead { seq: Seq(3), ..ended(1, 999, Completed) };
    world.one.put_head(over).await.unwrap();
    let pruned = prune(&world, 500, 100).await;
    assert_eq!(pruned.executions, 1, "the child of what is over now");
    assert_eq!(world.other.head(execution(20)).await.unwrap(), None);
    put_execution(&world, child(30, 99)).await;
    assert_eq!(prune(&world, 500, 100).await.executions, 1, "the parent is not there any more");
}

/// A plan that has a name stays, and so does its request.
pub async fn a_plan_in_use_is_kept(world: World) {
    for n in 1..=3 {
        world.one.put_request(&request(n, "q", 0)).await.unwrap();
        world.one.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    world.one.put_request(&request(9, "q", 999)).await.unwrap();
    let saved = |n| SavedPlan { name: "n".to_owned(), plan: plan_id(n), inputs: None, at: at(0) };
    world.one.save_plan(&saved(1)).await.unwrap();
    let of_plan = ExecutionHead { plan: plan_id(2), request: request_id(2), ..head(7, 2) };
    world.put_head(of_plan).await;
    let pruned = prune(&world, 500, 10).await;
    assert_eq!(pruned, Pruned { executions: 0, plans: 1, requests: 1, more: false });
    assert!(world.other.plan(plan_id(1)).await.unwrap().is_some());
    assert!(world.other.plan(plan_id(2)).await.unwrap().is_some());
    world.one.save_plan(&saved(2)).await.unwrap();
    let pruned = prune(&world, 500, 10).await;
    assert_eq!(pruned, Pruned { executions: 0, plans: 1, requests: 1, more: false });
    assert!(world.other.request(request_id(9)).await.unwrap().is_some(), "it is new");
}

/// Much is removed in parts, the oldest first.
pub async fn much_is_removed_in_parts(world: World) {
    let seconds = |n: usize| i64::try_from(n).unwrap();
    for n in 1..=7 {
        put_execution(&world, ended(n, seconds(n), Completed)).await;
    }
    let pruned = prune(&world, 100, 3).await;
    assert_eq!(pruned, Pruned { executions: 3, plans: 0, requests: 0, more: true });
    let left: BTreeSet<String> = (4..=7).map(|number| execution(number).to_string()).collect();
    assert_eq!(executions_left(&world).await, left);
    let mut calls = 1;
    while prune(&world, 100, 3).await.more {
        calls += 1;
        assert!(calls < 20, "it never ends");
    }
    assert_eq!(counts(&world).await, (0, 0, 0));
    assert_eq!(prune(&world, 100, 0).await, Pruned::default());
}

/// Whoever reads or removes at the same time finds things or does not, and nothing breaks.
pub async fn removal_may_be_watched(world: World) {
    for n in 1..=40 {
        put_execution(&world, ended(n, 1, Completed)).await;
        for after in 3..6 {
            world.append(execution(n), after, 1).await;
        }
    }
    let watch = join_all((1..=40).map(async |n| {
        for after in [0, 2, 5, 0, 4] {
            let events = world.other.read(execution(n), Seq(after)).await.unwrap();
            let whole = usize::try_from(6 - after).unwrap();
            assert!(events.len() <= whole, "{n}: {}", events.len());
            world.other.head(execution(n)).await.unwrap();
        }
    }));
    let remove = join_all(
        [&world.one, &world.other].map(
            async |store| {
                while store.prune(at(100), 7).await.unwrap().more {}
            },
        ),
    );
    futures::future::join(watch, remove).await;
    assert_eq!(counts(&world).await, (0, 0, 0));
    for n in 1..=40 {
        assert_eq!(world.log(execution(n), 0).await, []);
    }
}
