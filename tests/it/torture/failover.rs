//! What a replica set promises when it loses members, one promise at a time.

use std::time::Duration;

use graphql::store::open_store;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    id::ExecutionId,
    store::Reservation,
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    cluster::Cluster,
    home::Home,
    node::{Node, Role},
    scene::Scene,
    wire::{Events, Trouble},
};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_mins(3);
/// The wait before a store is asked again.
const LOOK: Duration = Duration::from_millis(50);

fn reservation(key: &str) -> Reservation {
    let execution = ExecutionId::draw(WallClock.now());
    Reservation { key: key.to_owned(), execution, fingerprint: "f".to_owned() }
}

/// Two clients with one key, or one that asks twice: while no majority has the first reservation,
/// the second must not be told that the key was free.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_no_majority_has_yet_means_one_execution() {
    let cluster = Cluster::borrow().await;
    let store = open_store(&cluster.fresh_url()).await.unwrap();
    let primary = cluster.primary().await;
    let others: Vec<usize> = (0..3).filter(|number| *number != primary).collect();
    let (first, second) = (reservation("k"), reservation("k"));
    assert_eq!(store.reserve_key(&reservation("other")).await, Ok(None));

    for number in &others {
        cluster.freeze(*number);
    }
    let (one, two) = (store.reserve_key(&first), async {
        // It comes while the first is on its way, and gives up or waits until there is a majority.
        let answer = timeout(Duration::from_secs(1), store.reserve_key(&second)).await;
        for number in &others {
            cluster.thaw(*number);
        }
        answer
    });
    let (one, two) = tokio::join!(timeout(PATIENCE, one), two);

    let one = one.expect("it is answered once there is a majority");
    let winners = [one == Ok(None), two == Ok(Ok(None))];
    assert!(winners != [true, true], "both have the key: {one:?}, {two:?}");
    let third = reservation("k");
    let kept = async {
        loop {
            // Members that were frozen for long enough elect another primary.
            if let Ok(found) = store.reserve_key(&third).await {
                return found.unwrap_or_else(|| third.clone());
            }
            sleep(LOOK).await;
        }
    };
    let kept = timeout(PATIENCE, kept).await.expect("there is a primary");
    // With a primary that is none any more goes what nobody was promised.
    let is_lost = winners == [false, false] && kept == third;
    assert!(is_lost || [&first, &second].contains(&&kept), "{kept:?}");
    assert!(winners != [true, false] || kept == first, "{one:?}, and {kept:?} is kept");
    assert!(winners != [false, true] || kept == second, "{two:?}, and {kept:?} is kept");
}

/// A primary that is killed takes nothing with it that was acknowledged, and nobody has to be
/// told where the next one is.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_the_primary() {
    let mut cluster = Cluster::borrow().await;
    let home = Home::new(cluster.fresh_url());
    let node = Node::start(&home, Role::Serve).await.unwrap();
    let scene = Scene::new();
    scene.moved(0, node.address.clone());
    let plan = "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
    let wait = json!({ "input": { "tools": [
        { "id": "before", "name": "flow.effect" },
        { "id": "wait", "name": "flow.wait", "parameters": { "name": "go" }, "dependsOn": "before" },
    ] } });
    let made = scene.insist(plan, &wait).await.unwrap();
    let id = begin(&scene, &made["plan"]["planId"]).await;
    let told = follow(&scene, &id, |event| event["type"] == "step_waiting").await;

    let primary = cluster.primary().await;
    cluster.kill(primary);
    let begun = Instant::now();
    let other = begin(&scene, &made["plan"]["planId"]).await;
    let gap = begun.elapsed();
    for id in [&id, &other] {
        let signal =
            "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"go\") { state } }";
        scene.insist(signal, &json!({ "id": id })).await.unwrap();
    }
    let again = follow(&scene, &id, |event| event["type"] == "finished").await;
    follow(&scene, &other, |event| event["type"] == "finished").await;

    assert_eq!(again[..told.len()], told, "what was told is still what is kept");
    assert_eq!(again.last().unwrap()["data"]["state"], "COMPLETED");
    assert!(scene.wrongs().is_empty(), "{:?}", scene.wrongs());
    eprintln!("the primary was killed; the next acknowledgement came after {gap:.1?}");
}

async fn begin(scene: &Scene, plan: &Value) -> String {
    let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
    let begun = scene.insist(execute, &json!({ "id": plan })).await.unwrap();
    begun["executionId"].as_str().unwrap().to_owned()
}

/// Follows an execution from its beginning until something happens to it.
async fn follow(scene: &Scene, id: &str, is_enough: impl Fn(&Value) -> bool) -> Vec<Value> {
    let query = "subscription ($id: ID!, $after: Int) { executionEvents(executionId: $id, \
                 afterSeq: $after) { seq at type stepId attempt data } }";
    let mut told: Vec<Value> = Vec::new();
    let following = async {
        while !told.last().is_some_and(&is_enough) {
            let variables = json!({ "id": id, "after": told.len() });
            let events = Events::of(&scene.server().await, query, &variables).await;
            let Ok(mut events) = events else { continue };
            loop {
                match events.next().await {
                    Ok(Some(event)) => told.push(event),
                    Ok(None) | Err(Trouble::Gone | Trouble::Refused { .. }) => break,
                }
                if told.last().is_some_and(&is_enough) {
                    break;
                }
            }
        }
    };
    let followed = timeout(PATIENCE, following).await;
    followed.unwrap_or_else(|_| panic!("it does not happen"));
    told
}
