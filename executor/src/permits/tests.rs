use shared::store::{Lease, Log, Rate, memory::Memory};
use tokio::{task::JoinSet, time::Instant};

use super::*;

#[derive(Debug)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.0.elapsed()
    }
}

struct PermitTest {
    permits: Arc<Permits>,
    started_at: Instant,
    tasks: JoinSet<()>,
    /// The calls that got the permit, in their sequence, each with the time since the start of the
    /// test.
    turns: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl PermitTest {
    async fn new() -> Self {
        Self::with_poll_interval(Duration::from_millis(100)).await
    }

    async fn with_poll_interval(poll: Duration) -> Self {
        let started_at = Instant::now();
        let (store, clock) = (Arc::new(Memory::new()), Arc::new(PausedClock(started_at)));
        let worker = WorkerId::draw(clock.now());
        let until = Timestamp::MAX_UTC;
        store.renew_lease(Lease { worker, node: "a".to_owned(), until }).await.unwrap();
        let permits = Permits::new(worker, store, clock, poll);
        let mut tasks = JoinSet::new();
        let returning = Arc::clone(&permits);
        tasks.spawn(async move { returning.release_returned().await });
        Self { permits, started_at, tasks, turns: Arc::default() }
    }

    /// Waits for the permit, holds it for `ms` milliseconds, and releases it.
    async fn queue_holder(&mut self, who: &str, priority: i32, ms: u64) {
        let limit = CallLimit { key: "tool:a.b".to_owned(), concurrency: Some(1), rate: None };
        let (permits, turns) = (Arc::clone(&self.permits), Arc::clone(&self.turns));
        let (who, started) = (who.to_owned(), self.started_at);
        // The part before `/` names the token.
        let token = who.split_once('/').map(|(token, _)| Arc::from(token));
        self.tasks.spawn(async move {
            let permit = permits.acquire_permit(who.clone(), vec![limit], priority, token).await;
            lock_mutex(&turns).push((who, started.elapsed()));
            time::sleep(Duration::from_millis(ms)).await;
            drop(permit);
        });
        // Waits until the request is sent, so that the requests arrive in the sequence of the
        // calls.
        time::sleep(Duration::from_millis(10)).await;
    }

    async fn wait_for_turn(&self, who: &str) -> Duration {
        let mut look = time::interval(Duration::from_millis(1));
        let looking = async {
            loop {
                look.tick().await;
                let found =
                    lock_mutex(&self.turns).iter().find(|turn| turn.0 == who).map(|turn| turn.1);
                if let Some(at) = found {
                    return at;
                }
            }
        };
        time::timeout(Duration::from_mins(5), looking).await.expect("everybody has a turn")
    }
}

/// Regression: a worker with a long poll interval waited too long between two requests.
#[tokio::test(start_paused = true)]
async fn a_worker_with_a_long_poll_interval_gets_its_permit_in_time() {
    let test = PermitTest::with_poll_interval(Duration::from_mins(1)).await;
    let rate = Some(Rate { calls: 1, per_ms: 600_000 });
    let limit = CallLimit { key: "tool:a.b".to_owned(), concurrency: None, rate };
    for _ in 0..2 {
        drop(test.permits.acquire_permit("a".to_owned(), vec![limit.clone()], 0, None).await);
    }
    let waited = test.started_at.elapsed();
    assert!(waited >= Duration::from_mins(10) && waited < Duration::from_mins(11), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_higher_priority_overtakes_the_first() {
    let mut test = PermitTest::new().await;
    let coming = [("holder", 0), ("a", 0), ("b", 0), ("urgent", 2), ("soon", 1), ("sooner", 2)];
    for (who, priority) in coming {
        test.queue_holder(who, priority, 1_000).await;
    }
    test.wait_for_turn("b").await;
    let turns: Vec<String> = lock_mutex(&test.turns).iter().map(|turn| turn.0.clone()).collect();
    assert_eq!(turns, ["holder", "urgent", "sooner", "soon", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn many_calls_of_a_token_delay_another_token_by_one_call() {
    let mut test = PermitTest::new().await;
    for n in 0..50 {
        test.queue_holder(&format!("many/{n}"), 5, 1_000).await;
    }
    test.queue_holder("one/0", 0, 1_000).await;
    let at = test.wait_for_turn("one/0").await.as_millis();
    assert!((1_000..3_000).contains(&at), "{at}");
    test.wait_for_turn("many/49").await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_urgent_requests_starves_no_other() {
    let mut test = PermitTest::new().await;
    test.queue_holder("holder", 0, 100).await;
    test.queue_holder("patient", 0, 100).await;
    // More calls arrive than the limit allows, and all of them have a higher priority.
    for n in 0..300 {
        test.queue_holder(&format!("urgent {n}"), 1, 150).await;
        time::sleep(Duration::from_millis(90)).await;
    }
    let at = test.wait_for_turn("patient").await.as_millis();
    // Only the hundred calls of the first ten seconds overtake the call with the low priority.
    assert!((10_000..17_000).contains(&at), "{at}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_blocks_no_other() {
    let mut test = PermitTest::new().await;
    test.queue_holder("holder", 0, 1_000).await;
    let limit = CallLimit { key: "tool:a.b".to_owned(), concurrency: Some(1), rate: None };
    for n in 0..3 {
        let waiting =
            test.permits.acquire_permit(format!("hasty {n}"), vec![limit.clone()], 1, None);
        let waited = time::timeout(Duration::from_millis(50), waiting).await;
        assert!(waited.is_err(), "another call holds the permit");
    }
    test.queue_holder("patient", 0, 0).await;
    let at = test.wait_for_turn("patient").await.as_millis();
    assert!((1_000..1_200).contains(&at), "{at}");
    assert_eq!(lock_mutex(&test.permits.queues).len(), 0, "no line is left behind");
}

/// Regression: a call was cancelled while its request was in flight, and its permit was never
/// released.
#[tokio::test(start_paused = true)]
async fn a_permit_that_arrives_after_its_request_was_cancelled_is_released() {
    let mut test = PermitTest::new().await;
    let limit = CallLimit { key: "tool:a.b".to_owned(), concurrency: Some(1), rate: None };
    let worker = test.permits.worker;
    let permit = Permit { holder: "gone".to_owned(), worker, limits: vec![limit.key.clone()] };
    let ask = PermitAsk { permit: permit.clone(), limits: vec![limit] };
    let (store, now) = (Arc::clone(&test.permits.store), test.permits.clock.now());
    let is_answered = Arc::new(AtomicU64::new(0));
    let answered = Arc::clone(&is_answered);
    let slow = async move {
        time::sleep(Duration::from_secs(1)).await;
        answered.store(1, Ordering::Relaxed);
        store.acquire_permits(&ask, now).await
    };
    let request = Some(slow.boxed());
    drop(HeldPermit { permits: Arc::clone(&test.permits), permit: Some(permit), request });
    time::sleep(Duration::from_secs(2)).await;
    assert_eq!(is_answered.load(Ordering::Relaxed), 1, "a request that was sent is answered");
    test.queue_holder("next", 0, 0).await;
    let at = test.wait_for_turn("next").await;
    assert!(at < Duration::from_secs(3), "{at:?}");
}

#[derive(Debug)]
struct CountingClock(PausedClock, AtomicU64);

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_sleeps_until_its_rate_allows_a_call() {
    let clock = Arc::new(CountingClock(PausedClock(Instant::now()), AtomicU64::new(0)));
    let worker = WorkerId::draw(Timestamp::UNIX_EPOCH);
    let store = Arc::new(Memory::new());
    let poll = Duration::from_millis(100);
    let permits = Permits::new(worker, store, Arc::<CountingClock>::clone(&clock), poll);
    let rate = shared::store::Rate { calls: 1, per_ms: 4_000 };
    let limit = CallLimit { key: "tool:a.b".to_owned(), concurrency: None, rate: Some(rate) };
    let started_at = Instant::now();
    for n in 0..2 {
        drop(permits.acquire_permit(n.to_string(), vec![limit.clone()], 0, None).await);
    }
    let took = started_at.elapsed();
    assert!((4_000..4_100).contains(&took.as_millis()), "{took:?}");
    let looks = clock.1.load(Ordering::Relaxed);
    assert!(looks < 12, "{looks}");
}
