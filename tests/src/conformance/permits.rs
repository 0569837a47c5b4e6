//! Limits on calls: nobody calls more often than they allow, and nobody is kept out for nothing.

use std::sync::Arc;

use futures::future::join_all;
use shared::store::{CallLimit, Lease, Permission, Permit, PermitAsk, Rate};
use tokio::time::timeout;

use super::{World, at, log::HINT, worker};

/// So long a period that no test sees its end.
const FOR_EVER: u64 = 1_000_000_000_000;

/// Returns a limit on calls at the same time.
pub fn at_once(key: &str, most: u32) -> CallLimit {
    CallLimit { key: key.to_owned(), concurrency: Some(most), rate: None }
}

/// Returns a limit on calls for as long as a test runs.
pub fn in_all(key: &str, calls: u32) -> CallLimit {
    let rate = Rate { calls, per_ms: FOR_EVER };
    CallLimit { key: key.to_owned(), concurrency: None, rate: Some(rate) }
}

/// Returns the ask of a holder.
pub fn ask(holder: &str, by: usize, limits: &[CallLimit]) -> PermitAsk {
    let keys = limits.iter().map(|limit| limit.key.clone()).collect();
    let permit = Permit { holder: holder.to_owned(), worker: worker(by), limits: keys };
    PermitAsk { permit, limits: limits.to_vec() }
}

async fn live(world: &World, workers: &[usize]) {
    for n in workers {
        let lease = Lease { worker: worker(*n), node: "n".to_owned(), until: at(10) };
        world.one.renew_lease(lease).await.unwrap();
    }
}

async fn acquire(world: &World, holder: &str, by: usize, limits: &[CallLimit]) -> Permission {
    world.one.acquire_permits(&ask(holder, by, limits), at(0)).await.unwrap()
}

async fn release(world: &World, holder: &str, limits: &[CallLimit]) {
    world.other.release_permits(vec![ask(holder, 1, limits).permit]).await.unwrap();
}

/// Of many who ask at the same time, at any node, as many get a place as there are.
pub async fn a_limit_holds_everywhere(world: World) {
    live(&world, &[1, 2]).await;
    let limit = [at_once("$tool.\u{0}a", 3)];
    let answers = join_all((0..12).map(async |n| {
        let store = Arc::clone(if n % 2 == 0 { &world.one } else { &world.other });
        let ask = ask(&format!("$holder {n}"), 1 + n % 2, &limit);
        (ask.clone(), store.acquire_permits(&ask, at(0)).await.unwrap())
    }))
    .await;
    let granted: Vec<_> =
        answers.iter().filter(|(_, answer)| *answer == Permission::Granted).collect();
    assert_eq!(granted.len(), 3, "{answers:?}");
    assert!(
        answers.iter().all(|(_, answer)| matches!(answer, Permission::Granted | Permission::Full))
    );
    world.other.release_permits(vec![granted[0].0.permit.clone()]).await.unwrap();
    assert_eq!(acquire(&world, "next", 1, &limit).await, Permission::Granted);
    assert_eq!(acquire(&world, "late", 1, &limit).await, Permission::Full);
    // To give back what is given back changes nothing.
    world.other.release_permits(vec![granted[0].0.permit.clone()]).await.unwrap();
    assert_eq!(acquire(&world, "late", 1, &limit).await, Permission::Full);
    assert_eq!(acquire(&world, "late", 1, &[at_once("another", 1)]).await, Permission::Granted);
}

/// An answer that was lost is asked for again, and counts once.
pub async fn a_holder_is_counted_once(world: World) {
    live(&world, &[1]).await;
    let both = CallLimit { concurrency: Some(2), ..in_all("both", 2) };
    let limits = [both, at_once("places", 2), in_all("rate", 2)];
    for holder in ["a", "a", "b", "a", "b"] {
        assert_eq!(acquire(&world, holder, 1, &limits).await, Permission::Granted, "{holder}");
    }
    assert_eq!(acquire(&world, "c", 1, &limits).await, Permission::Full);
    release(&world, "a", &limits).await;
    let refused = acquire(&world, "c", 1, &limits).await;
    assert!(matches!(refused, Permission::NotBefore(_)), "what was counted stays: {refused:?}");
    assert_eq!(acquire(&world, "d", 1, &limits[1..2]).await, Permission::Granted);
}

/// Who does not get all limits gets none, and takes no place from others.
pub async fn all_limits_or_none(world: World) {
    live(&world, &[1]).await;
    let (narrow, wide, rate) = (at_once("b", 1), at_once("a", 1), in_all("c", 1));
    assert_eq!(acquire(&world, "x", 1, std::slice::from_ref(&narrow)).await, Permission::Granted);
    let all = [wide.clone(), narrow.clone(), rate.clone()];
    assert_eq!(acquire(&world, "y", 1, &all).await, Permission::Full);
    // Neither the place nor the call was taken.
    assert_eq!(acquire(&world, "z", 1, &[wide.clone(), rate]).await, Permission::Granted);
    release(&world, "x", &all).await;
    release(&world, "z", &all).await;
    let refused = acquire(&world, "y", 1, &all).await;
    assert!(matches!(refused, Permission::NotBefore(_)), "{refused:?}");
    assert_eq!(acquire(&world, "w", 1, &[wide, narrow]).await, Permission::Granted);
}

/// What a worker that is gone held is free, and not before it is gone.
pub async fn the_places_of_a_lost_worker_are_free(world: World) {
    live(&world, &[1, 2]).await;
    let limits = [at_once("k", 1), at_once("l", 5)];
    assert_eq!(acquire(&world, "a", 1, &limits).await, Permission::Granted);
    let later = async |seconds| {
        world.other.acquire_permits(&ask("b", 2, &limits), at(seconds)).await.unwrap()
    };
    assert_eq!(later(9).await, Permission::Full);
    let lease = Lease { worker: worker(2), node: "n".to_owned(), until: at(90) };
    world.one.renew_lease(lease).await.unwrap();
    assert_eq!(later(10).await, Permission::Granted);
    world.one.remove_worker(worker(2)).await.unwrap();
    live(&world, &[3]).await;
    assert_eq!(acquire(&world, "c", 3, &limits).await, Permission::Granted);
}

/// A rate holds for all together; it says when to ask again.
pub async fn a_rate_says_when(world: World) {
    live(&world, &[1]).await;
    let limit = [in_all("k", 2)];
    assert_eq!(acquire(&world, "a", 1, &limit).await, Permission::Granted);
    assert_eq!(acquire(&world, "a", 1, &limit).await, Permission::Granted, "asked again");
    let other = world.other.acquire_permits(&ask("b", 1, &limit), at(0)).await.unwrap();
    assert_eq!(other, Permission::Granted);
    let Permission::NotBefore(when) = acquire(&world, "c", 1, &limit).await else {
        panic!("two calls were allowed")
    };
    // Half a period from the first call, whichever clock the store goes by.
    assert!(when > at(0) + chrono::Duration::days(365 * 10), "{when}");
    release(&world, "a", &limit).await;
    assert_eq!(acquire(&world, "c", 1, &limit).await, Permission::NotBefore(when));
    // A short period is over at once.
    let often =
        CallLimit { rate: Some(Rate { calls: 1_000_000, per_ms: 1 }), ..at_once("often", 1_000) };
    for n in 0..20 {
        let granted = acquire(&world, &n.to_string(), 1, std::slice::from_ref(&often)).await;
        assert_eq!(granted, Permission::Granted);
    }
}

/// Whoever waits for a place is told that one is free.
pub async fn a_free_place_is_pointed_out(world: World) {
    live(&world, &[1]).await;
    let limit = [at_once("k", 1)];
    assert_eq!(acquire(&world, "a", 1, &limit).await, Permission::Granted);
    let mut work = world.other.hints().subscribe_work();
    work.mark_unchanged();
    release(&world, "a", &limit).await;
    timeout(HINT, work.changed()).await.expect("the place is pointed out").unwrap();
}

/// Workers that live are those whose lease has not run out.
pub async fn workers_live_by_their_leases(world: World) {
    assert_eq!(world.other.list_workers(at(0)).await.unwrap(), []);
    live(&world, &[3, 1]).await;
    let lease = Lease { worker: worker(2), node: "n".to_owned(), until: at(20) };
    world.one.renew_lease(lease).await.unwrap();
    assert_eq!(world.other.list_workers(at(9)).await.unwrap(), [1, 2, 3].map(worker));
    assert_eq!(world.other.list_workers(at(10)).await.unwrap(), [worker(2)]);
    world.one.remove_worker(worker(2)).await.unwrap();
    assert_eq!(world.other.list_workers(at(9)).await.unwrap(), [1, 3].map(worker));
}
