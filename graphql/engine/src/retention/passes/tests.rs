use std::sync::Mutex;

use shared::{
    execution::ExecutionState::{self, Completed, Failed, InProgress},
    id::{Epoch, Seq},
    labels::Labels,
    request::Request,
    store::{Append, Documents, EventDocument, ExecutionFilter, LabelFilter, Log, memory::Memory},
};

use super::{super::RetentionAges, *};
use crate::retention::RetentionRule;

const HOUR: Duration = Duration::from_hours(1);

fn at_hours(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + TimeDelta::hours(hours)
}

#[derive(Debug)]
struct SetClock(Mutex<Timestamp>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

struct World {
    store: Memory,
    clock: SetClock,
    passes: RetentionPasses,
}

impl World {
    fn new(policy: impl Into<RetentionPolicy>) -> Self {
        let clock = SetClock(Mutex::new(at_hours(0)));
        Self { store: Memory::new(), clock, passes: RetentionPasses::new(policy.into()) }
    }

    async fn put(&self, n: usize, state: ExecutionState, hour: i64, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        self.put_head(ExecutionHead { labels: labels.collect(), ..head(n, state, hour) }).await;
    }

    async fn put_head(&self, head: ExecutionHead) {
        let document = EventDocument { first: Seq(1), len: 1, json: String::new() };
        let append = Append {
            execution: head.execution,
            after: Seq::START,
            documents: vec![document],
            head: Some(head),
            handled_commands: Vec::new(),
            audit: None,
        };
        self.store.append(append).await.unwrap();
    }

    /// Runs a round at the given hour. Returns the number of pages.
    async fn run_round(&mut self, hour: i64) -> usize {
        *self.clock.0.lock().unwrap() = at_hours(hour);
        self.passes.begin_round(at_hours(hour));
        let mut pages = 0;
        while self.passes.run_page(&self.store, &self.clock).await.unwrap().is_some() {
            pages += 1;
        }
        pages
    }

    async fn left(&self) -> Vec<ExecutionId> {
        let page = Page::first_items(1_000);
        let listing = self.store.list_heads(&ExecutionFilter::default(), &page).await.unwrap();
        let mut left: Vec<_> = listing.items.iter().map(|(_, head)| head.execution).collect();
        left.sort();
        left
    }
}

fn execution(n: usize) -> ExecutionId {
    format!("exec_{n}_aaaaaaaaa").parse().unwrap()
}

fn head(n: usize, state: ExecutionState, hour: i64) -> ExecutionHead {
    let at = at_hours(hour) + TimeDelta::microseconds(i64::try_from(n).unwrap());
    ExecutionHead {
        execution: execution(n),
        request: format!("req_{n}_aaaaaaaaa").parse().unwrap(),
        plan: format!("plan_{n}_aaaaaaaaa").parse().unwrap(),
        state,
        created_at: at,
        seq: Seq(1),
        epoch: Epoch(0),
        owner: None,
        due: None,
        priority: 0,
        finished_at: state.is_finished().then_some(at),
        parent: None,
        needs_person: false,
        started_at: None,
        query: "".into(),
        steps_done: 0,
        steps_total: 0,
        error: None,
        labels: Labels::new(),
        is_dry_run: false,
        stored_bytes: 0,
    }
}

fn only_completed(age: Duration) -> RetentionAges {
    RetentionAges { completed: Some(age), ..RetentionAges::default() }
}

#[tokio::test]
async fn kept_executions_are_read_once_a_day() {
    let mut world = World::new(only_completed(HOUR));
    for n in 1..=500 {
        world.put(n, Failed, 0, &[]).await;
    }
    let first = world.run_round(10).await;
    assert!(first > 500 / PAGE_LEN, "{first} pages");
    let idle = world.run_round(10).await;
    assert!(idle <= 4, "{idle} pages of executions, plans and requests");
    world.put(600, Completed, 11, &[]).await;
    let few = world.run_round(13).await;
    assert!(few <= 6, "{few} pages");
    assert_eq!(world.left().await.len(), 500);
    assert_eq!(world.run_round(10 + 24).await, first, "the full pass of the next day");
}

#[tokio::test]
async fn the_first_rule_with_the_labels_decides() {
    let label = |key: &str, value: Option<&str>| LabelFilter {
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    let rule = |labels: Vec<LabelFilter>, ages| RetentionRule { labels, ages };
    let mut world = World::new(RetentionPolicy {
        ages: RetentionAges::from(HOUR * 10),
        rules: vec![
            rule(vec![label("keep", None)], RetentionAges::default()),
            rule(vec![label("team", Some("batch")), label("env", None)], HOUR.into()),
            rule(vec![label("team", Some("batch"))], only_completed(HOUR * 30)),
        ],
        audit: None,
    });
    let batch = ("team", "batch");
    world.put(1, Failed, 0, &[("keep", ""), batch, ("env", "test")]).await;
    world.put(2, Failed, 0, &[batch, ("env", "test")]).await;
    world.put(3, Completed, 0, &[batch]).await;
    world.put(4, Failed, 0, &[batch]).await;
    world.put(5, Failed, 0, &[("team", "shop"), ("env", "test")]).await;
    world.put(6, InProgress, 0, &[batch, ("env", "test")]).await;
    for (hour, left) in [
        (1, &[1, 2, 3, 4, 5, 6][..]),
        (2, &[1, 3, 4, 5, 6]),
        (9, &[1, 3, 4, 5, 6]),
        (11, &[1, 3, 4, 6]),
        (23, &[1, 3, 4, 6]),
        (31, &[1, 4, 6]),
        (1_000, &[1, 4, 6]),
    ] {
        world.run_round(hour).await;
        assert_eq!(world.left().await, left.iter().map(|n| execution(*n)).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_child_is_removed_after_its_parent_has_finished() {
    let mut world = World::new(only_completed(HOUR));
    world.put(1, InProgress, 0, &[]).await;
    let child = ExecutionHead { parent: Some(execution(1)), ..head(2, Completed, 0) };
    world.put_head(child).await;
    world.run_round(5).await;
    assert_eq!(world.left().await, [1, 2].map(execution));
    world.store.put_head(head(1, Failed, 6)).await.unwrap();
    world.run_round(7).await;
    assert_eq!(world.left().await, [execution(1)]);
}

/// Executions that failed are kept without a limit, so their requests are kept, too. A request
/// without an execution is deleted at the longest age.
#[tokio::test]
async fn requests_and_plans_without_an_execution_follow_the_longest_age() {
    let mut world = World::new(only_completed(HOUR));
    let request =
        |n: usize, hour| Request::new(head(n, Failed, 0).request, "q".to_owned(), at_hours(hour));
    for (n, hour) in [(1, 0), (2, 0), (3, 4)] {
        world.store.put_request(&request(n, hour)).await.unwrap();
    }
    world.put(2, Failed, 0, &[]).await;
    world.run_round(3).await;
    let left = async |world: &World| {
        let page = Page::first_items(10);
        let listing = world.store.list_requests(&RequestFilter::default(), &page).await.unwrap();
        listing.items.into_iter().map(|(_, request)| request).collect::<Vec<_>>()
    };
    assert_eq!(left(&world).await, [request(3, 4), request(2, 0)]);
    world.run_round(6).await;
    assert_eq!(left(&world).await, [request(2, 0)]);
}

#[test]
fn the_next_page_begins_with_the_last_time_of_a_page() {
    let at = |micros| Timestamp::from_timestamp_micros(micros).unwrap();
    assert_eq!(next_position(at(3), at(9)), at(8));
    assert_eq!(next_position(at(8), at(9)), at(9), "otherwise it would stay");
}
