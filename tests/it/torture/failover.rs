use std::time::Duration;

use engine::store::open_store;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    id::ExecutionId,
    store::Reservation,
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    cluster::Cluster,
    node::{Node, Role},
    shared_run::SharedRun,
    workspace::Workspace,
};
use crate::harness::api_client::{EventSubscription, RequestFailure};

const MAX_WAIT: Duration = Duration::from_mins(3);
/// Delay between two questions to a store.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn make_reservation(key: &str) -> Reservation {
    let execution = ExecutionId::draw(WallClock.now());
    Reservation { key: key.to_owned(), execution, fingerprint: "f".to_owned() }
}

/// Two requests have the same key. While the first reservation has no majority, the second request
/// must not get the answer that the key was free.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_reserved_twice_without_a_majority_has_one_winner() {
    let cluster = Cluster::lock_shared().await;
    let store = open_store(&cluster.new_database_url()).await.unwrap();
    let primary = cluster.wait_for_primary().await;
    let others: Vec<usize> = (0..3).filter(|number| *number != primary).collect();
    let (first, second) = (make_reservation("k"), make_reservation("k"));
    assert_eq!(store.reserve_key(&make_reservation("other")).await, Ok(None));

    for number in &others {
        cluster.freeze(*number);
    }
    let (one, two) = (store.reserve_key(&first), async {
        // The second request arrives while the first request waits. The second request waits for a
        // majority, too, or fails.
        let answer = timeout(Duration::from_secs(1), store.reserve_key(&second)).await;
        for number in &others {
            cluster.thaw(*number);
        }
        answer
    });
    let (one, two) = tokio::join!(timeout(MAX_WAIT, one), two);

    let one = one.expect("the store answers once there is a majority");
    let winners = [one == Ok(None), two == Ok(Ok(None))];
    assert!(winners != [true, true], "both hold the key: {one:?}, {two:?}");
    let third = make_reservation("k");
    let kept = async {
        loop {
            // After some time, the other members elect another primary.
            if let Ok(found) = store.reserve_key(&third).await {
                return found.unwrap_or_else(|| third.clone());
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    let kept = timeout(MAX_WAIT, kept).await.expect("the set has a primary");
    // A primary that is replaced loses reservations that it never acknowledged. Then the third
    // reservation wins.
    let is_lost = winners == [false, false] && kept == third;
    assert!(is_lost || [&first, &second].contains(&&kept), "{kept:?}");
    assert!(winners != [true, false] || kept == first, "{one:?}, and {kept:?} is kept");
    assert!(winners != [false, true] || kept == second, "{two:?}, and {kept:?} is kept");
}

/// A killed primary loses nothing that was acknowledged. Clients find the next primary by
/// themselves.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_events_survive_a_killed_primary() {
    let mut cluster = Cluster::lock_shared().await;
    let workspace = Workspace::new(cluster.new_database_url());
    let node = Node::start(&workspace, Role::Serve).await.unwrap();
    let run = SharedRun::new();
    run.set_address(0, node.address.clone());
    let plan = "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
    let wait = json!({ "input": { "tools": [
        { "id": "before", "name": "flow.effect" },
        { "id": "wait", "name": "flow.wait", "parameters": { "name": "go" }, "dependsOn": "before" },
    ] } });
    let made = run.ask_until_answered(plan, &wait).await.unwrap();
    let id = start_execution(&run, &made["plan"]["planId"]).await;
    let received = follow_until(&run, &id, |event| event["type"] == "step_waiting").await;

    let primary = cluster.wait_for_primary().await;
    cluster.kill(primary);
    let started_at = Instant::now();
    let other = start_execution(&run, &made["plan"]["planId"]).await;
    let gap = started_at.elapsed();
    for id in [&id, &other] {
        let signal =
            "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"go\") { state } }";
        run.ask_until_answered(signal, &json!({ "id": id })).await.unwrap();
    }
    let again = follow_until(&run, &id, |event| event["type"] == "finished").await;
    follow_until(&run, &other, |event| event["type"] == "finished").await;

    assert_eq!(
        again[..received.len()],
        received,
        "the log still begins with the events that were received"
    );
    assert_eq!(again.last().unwrap()["data"]["state"], "COMPLETED");
    assert!(run.violations().is_empty(), "{:?}", run.violations());
    eprintln!("the primary was killed; the next acknowledgement came after {gap:.1?}");
}

async fn start_execution(run: &SharedRun, plan: &Value) -> String {
    let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
    let started = run.ask_until_answered(execute, &json!({ "id": plan })).await.unwrap();
    started["executionId"].as_str().unwrap().to_owned()
}

async fn follow_until(run: &SharedRun, id: &str, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let query = "subscription ($id: ID!, $after: Int) { executionEvents(executionId: $id, \
                 afterSeq: $after) { seq at type stepId attempt data } }";
    let mut received: Vec<Value> = Vec::new();
    let for_follow_up = async {
        while !received.last().is_some_and(&is_last) {
            let variables = json!({ "id": id, "after": received.len() });
            let events =
                EventSubscription::subscribe(&run.next_address().await, query, &variables).await;
            let Ok(mut events) = events else { continue };
            loop {
                match events.next().await {
                    Ok(Some(event)) => received.push(event),
                    Ok(None) | Err(RequestFailure::ServerGone | RequestFailure::Refused { .. }) => {
                        break;
                    }
                }
                if received.last().is_some_and(&is_last) {
                    break;
                }
            }
        }
    };
    let followed = timeout(MAX_WAIT, for_follow_up).await;
    followed.unwrap_or_else(|_| panic!("no such event comes"));
    received
}
