//! Limits on calls hold for all nodes, and no permit is lost. Workers are listed until their lease
//! expires.

use std::sync::Arc;

use futures::future::join_all;
use shared::store::{CallLimit, Lease, Permission, Permit, PermitAsk, Rate};
use tokio::time::timeout;

use super::{StorePair, at, log::MAX_HINT_DELAY, worker};

/// A period that outlasts every test, in milliseconds.
const ENDLESS_MS: u64 = 1_000_000_000_000;

pub fn concurrency_limit(key: &str, limit: u32) -> CallLimit {
    CallLimit { key: key.to_owned(), concurrency: Some(limit), rate: None }
}

pub fn total_limit(key: &str, calls: u32) -> CallLimit {
    let rate = Rate { calls, per_ms: ENDLESS_MS };
    CallLimit { key: key.to_owned(), concurrency: None, rate: Some(rate) }
}

pub fn permit_request(holder: &str, by: usize, limits: &[CallLimit]) -> PermitAsk {
    let keys = limits.iter().map(|limit| limit.key.clone()).collect();
    let permit = Permit { holder: holder.to_owned(), worker: worker(by), limits: keys };
    PermitAsk { permit, limits: limits.to_vec() }
}

async fn renew_leases(pair: &StorePair, workers: &[usize]) {
    for n in workers {
        let lease = Lease { worker: worker(*n), node: "n".to_owned(), until: at(10) };
        pair.one.renew_lease(lease).await.unwrap();
    }
}

async fn acquire_permits(
    pair: &StorePair,
    holder: &str,
    by: usize,
    limits: &[CallLimit],
) -> Permission {
    pair.one.acquire_permits(&permit_request(holder, by, limits), at(0)).await.unwrap()
}

async fn release_permits(pair: &StorePair, holder: &str, limits: &[CallLimit]) {
    pair.other.release_permits(vec![permit_request(holder, 1, limits).permit]).await.unwrap();
}

/// Many requests on all nodes ask at the same time. Exactly as many get a permit as the limit
/// allows.
pub async fn a_concurrency_limit_holds_for_all_nodes(pair: StorePair) {
    renew_leases(&pair, &[1, 2]).await;
    let limit = [concurrency_limit("$tool.\u{0}a", 3)];
    let answers = join_all((0..12).map(async |n| {
        let store = Arc::clone(if n % 2 == 0 { &pair.one } else { &pair.other });
        let ask = permit_request(&format!("$holder {n}"), 1 + n % 2, &limit);
        (ask.clone(), store.acquire_permits(&ask, at(0)).await.unwrap())
    }))
    .await;
    let granted: Vec<_> =
        answers.iter().filter(|(_, answer)| *answer == Permission::Granted).collect();
    assert_eq!(granted.len(), 3, "{answers:?}");
    assert!(
        answers.iter().all(|(_, answer)| matches!(answer, Permission::Granted | Permission::Full))
    );
    pair.other.release_permits(vec![granted[0].0.permit.clone()]).await.unwrap();
    assert_eq!(acquire_permits(&pair, "next", 1, &limit).await, Permission::Granted);
    assert_eq!(acquire_permits(&pair, "late", 1, &limit).await, Permission::Full);
    // A permit that is released twice must not make room for two calls.
    pair.other.release_permits(vec![granted[0].0.permit.clone()]).await.unwrap();
    assert_eq!(acquire_permits(&pair, "late", 1, &limit).await, Permission::Full);
    assert_eq!(
        acquire_permits(&pair, "late", 1, &[concurrency_limit("another", 1)]).await,
        Permission::Granted
    );
}

/// A holder that asks again, because the answer was lost, is counted once.
pub async fn a_holder_that_asks_again_is_counted_once(pair: StorePair) {
    renew_leases(&pair, &[1]).await;
    let both = CallLimit { concurrency: Some(2), ..total_limit("both", 2) };
    let limits = [both, concurrency_limit("places", 2), total_limit("rate", 2)];
    for holder in ["a", "a", "b", "a", "b"] {
        assert_eq!(
            acquire_permits(&pair, holder, 1, &limits).await,
            Permission::Granted,
            "{holder}"
        );
    }
    assert_eq!(acquire_permits(&pair, "c", 1, &limits).await, Permission::Full);
    release_permits(&pair, "a", &limits).await;
    let refused = acquire_permits(&pair, "c", 1, &limits).await;
    assert!(
        matches!(refused, Permission::NotBefore(_)),
        "the calls of the period stay counted: {refused:?}"
    );
    assert_eq!(acquire_permits(&pair, "d", 1, &limits[1..2]).await, Permission::Granted);
}

pub async fn a_holder_gets_all_its_limits_or_none(pair: StorePair) {
    renew_leases(&pair, &[1]).await;
    let (narrow, wide, rate) =
        (concurrency_limit("b", 1), concurrency_limit("a", 1), total_limit("c", 1));
    assert_eq!(
        acquire_permits(&pair, "x", 1, std::slice::from_ref(&narrow)).await,
        Permission::Granted
    );
    let all = [wide.clone(), narrow.clone(), rate.clone()];
    assert_eq!(acquire_permits(&pair, "y", 1, &all).await, Permission::Full);
    // The refused holder got none of its permits, so another holder can still get them.
    assert_eq!(acquire_permits(&pair, "z", 1, &[wide.clone(), rate]).await, Permission::Granted);
    release_permits(&pair, "x", &all).await;
    release_permits(&pair, "z", &all).await;
    let refused = acquire_permits(&pair, "y", 1, &all).await;
    assert!(matches!(refused, Permission::NotBefore(_)), "{refused:?}");
    assert_eq!(acquire_permits(&pair, "w", 1, &[wide, narrow]).await, Permission::Granted);
}

/// The permits of a lost worker stay in use until its lease expires.
pub async fn permits_of_a_lost_worker_are_free_after_its_lease(pair: StorePair) {
    renew_leases(&pair, &[1, 2]).await;
    let limits = [concurrency_limit("k", 1), concurrency_limit("l", 5)];
    assert_eq!(acquire_permits(&pair, "a", 1, &limits).await, Permission::Granted);
    let later = async |seconds| {
        pair.other.acquire_permits(&permit_request("b", 2, &limits), at(seconds)).await.unwrap()
    };
    assert_eq!(later(9).await, Permission::Full);
    let lease = Lease { worker: worker(2), node: "n".to_owned(), until: at(90) };
    pair.one.renew_lease(lease).await.unwrap();
    assert_eq!(later(10).await, Permission::Granted);
    pair.one.remove_worker(worker(2)).await.unwrap();
    renew_leases(&pair, &[3]).await;
    assert_eq!(acquire_permits(&pair, "c", 3, &limits).await, Permission::Granted);
}

/// A rate counts the calls of all nodes. The refusal contains the time to ask again.
pub async fn an_exhausted_rate_says_when_to_ask_again(pair: StorePair) {
    renew_leases(&pair, &[1]).await;
    let limit = [total_limit("k", 2)];
    assert_eq!(acquire_permits(&pair, "a", 1, &limit).await, Permission::Granted);
    assert_eq!(
        acquire_permits(&pair, "a", 1, &limit).await,
        Permission::Granted,
        "the same holder asks again"
    );
    let other = pair.other.acquire_permits(&permit_request("b", 1, &limit), at(0)).await.unwrap();
    assert_eq!(other, Permission::Granted);
    let Permission::NotBefore(when) = acquire_permits(&pair, "c", 1, &limit).await else {
        panic!("only two calls are allowed")
    };
    // The refusal names a time half a period after the first call, whichever clock the store uses.
    assert!(when > at(0) + chrono::Duration::days(365 * 10), "{when}");
    release_permits(&pair, "a", &limit).await;
    assert_eq!(acquire_permits(&pair, "c", 1, &limit).await, Permission::NotBefore(when));
    // A period of a millisecond passes so fast that the rate refuses no call.
    let often = CallLimit {
        rate: Some(Rate { calls: 1_000_000, per_ms: 1 }),
        ..concurrency_limit("often", 1_000)
    };
    for n in 0..20 {
        let granted = acquire_permits(&pair, &n.to_string(), 1, std::slice::from_ref(&often)).await;
        assert_eq!(granted, Permission::Granted);
    }
}

pub async fn a_released_permit_sends_a_hint(pair: StorePair) {
    renew_leases(&pair, &[1]).await;
    let limit = [concurrency_limit("k", 1)];
    assert_eq!(acquire_permits(&pair, "a", 1, &limit).await, Permission::Granted);
    let mut work = pair.other.hints().subscribe_work();
    work.mark_unchanged();
    release_permits(&pair, "a", &limit).await;
    timeout(MAX_HINT_DELAY, work.changed()).await.expect("a hint about work").unwrap();
}

pub async fn workers_are_listed_until_their_lease_expires(pair: StorePair) {
    assert_eq!(pair.other.list_workers(at(0)).await.unwrap(), []);
    renew_leases(&pair, &[3, 1]).await;
    let lease = Lease { worker: worker(2), node: "n".to_owned(), until: at(20) };
    pair.one.renew_lease(lease).await.unwrap();
    assert_eq!(pair.other.list_workers(at(9)).await.unwrap(), [1, 2, 3].map(worker));
    assert_eq!(pair.other.list_workers(at(10)).await.unwrap(), [worker(2)]);
    let lease = Lease { worker: worker(2), node: "n".to_owned(), until: at(20) };
    assert_eq!(pair.other.list_leases(at(10)).await.unwrap(), [lease]);
    pair.one.remove_worker(worker(2)).await.unwrap();
    assert_eq!(pair.other.list_workers(at(9)).await.unwrap(), [1, 3].map(worker));
}
