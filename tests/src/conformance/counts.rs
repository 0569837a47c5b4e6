//! Counts. Each store must return the same counts of executions as the memory store.

use std::time::Duration;

use chrono::TimeDelta;
use shared::{
    execution::ExecutionState::{self, Cancelled, Completed, Failed, InProgress, Waiting},
    labels::Labels,
    store::{
        CountGroup, CountQuery, ExecutionCount, ExecutionFilter, ExecutionHead, HeadError,
        LabelFilter, PlanFilter, RequestFilter, memory::Memory,
    },
    tool::ErrorCode,
};

use super::{StorePair, at, execution, head, plan, plan_id, request, request_id};

const HOUR_SECONDS: i64 = 3_600;
/// Seconds from `at(0)` to the end of that day (UTC).
const SECONDS_TO_MIDNIGHT: i64 = 8 * HOUR_SECONDS + 22 * 60 + 24;

/// Returns executions over three days, with many combinations of states, errors, labels and kinds.
fn make_heads() -> Vec<ExecutionHead> {
    let states = [Completed, Failed, Failed, Cancelled, Completed, InProgress, Waiting];
    let make = |n: usize| {
        let state = states[n % states.len()];
        let seconds = i64::try_from(n * n * 53 % 250_000).unwrap();
        let created_at = at(seconds) + TimeDelta::microseconds(17);
        let has_error = state == Failed || n.is_multiple_of(10);
        let error = has_error.then(|| HeadError {
            code: ErrorCode::custom(["tool.failed", "tool.timeout"][n % 2].to_owned()),
            tool: (!n.is_multiple_of(3)).then(|| "set.tool".parse().unwrap()),
            message: format!("order {n} failed").into(),
        });
        let mut labels = Labels::new();
        if !n.is_multiple_of(4) {
            labels.insert("team".to_owned(), ["red", "blue=1", ""][n % 3].to_owned());
        }
        let started_at = (!n.is_multiple_of(5)).then(|| created_at + TimeDelta::milliseconds(3));
        let took = TimeDelta::milliseconds(i64::try_from(n * 7 % 900).unwrap());
        let finished_at = state.is_finished().then(|| started_at.unwrap_or(created_at) + took);
        ExecutionHead {
            state,
            created_at,
            started_at,
            finished_at,
            error,
            labels,
            plan: plan_id(n % 4),
            request: request_id(n % 6),
            parent: n.is_multiple_of(9).then(|| execution(1)),
            is_dry_run: n.is_multiple_of(11),
            ..head(n, 2)
        }
    };
    (1..=80).map(make).collect()
}

fn make_queries() -> Vec<CountQuery> {
    use CountGroup::{Bucket, Error, Label, Plan, State, Tool};
    let hours = |n: u64| Bucket(Duration::from_hours(n));
    let team = || Label("team".to_owned());
    let groups = vec![
        vec![State],
        vec![Tool],
        vec![Error],
        vec![Plan],
        vec![team()],
        vec![Label("none".to_owned())],
        vec![hours(24)],
        vec![hours(1)],
        vec![Bucket(Duration::from_mins(30))],
        vec![Bucket(Duration::from_millis(1_500))],
        vec![State, Plan],
        vec![Plan, Error],
        vec![Error, Tool],
        vec![hours(24), State],
        vec![team(), State],
        vec![team(), hours(24)],
        vec![hours(7), Error],
    ];
    let none = ExecutionFilter::default;
    let label = |value: Option<&str>| {
        vec![LabelFilter { key: "team".to_owned(), value: value.map(str::to_owned) }]
    };
    let filters = vec![
        none(),
        ExecutionFilter { states: vec![Failed], ..none() },
        ExecutionFilter { states: vec![Failed, Waiting], is_root: true, ..none() },
        ExecutionFilter { from: Some(at(90 * 60)), ..none() },
        ExecutionFilter { from: Some(at(100)), to: Some(at(200_000)), ..none() },
        ExecutionFilter { from: Some(at(SECONDS_TO_MIDNIGHT)), ..none() },
        ExecutionFilter { from: Some(at(9)), to: Some(at(9)), ..none() },
        ExecutionFilter { labels: label(Some("red")), ..none() },
        ExecutionFilter { labels: label(None), from: Some(at(5_000)), ..none() },
        ExecutionFilter { labels: label(Some("green")), ..none() },
        ExecutionFilter { error_code: Some("tool.failed".to_owned()), ..none() },
        ExecutionFilter { error_code: Some("none".to_owned()), ..none() },
        ExecutionFilter { failed_tool: Some("set.tool".parse().unwrap()), ..none() },
        ExecutionFilter { error_text: Some("order 7".to_owned()), ..none() },
        ExecutionFilter { plan: Some(plan_id(2)), ..none() },
        ExecutionFilter { ids: Some(vec![execution(2), execution(5)]), ..none() },
        ExecutionFilter { needs_person: Some(false), ..none() },
    ];
    let mut queries = Vec::new();
    for filter in &filters {
        for groups in &groups {
            for first in [100, 3] {
                let (filter, groups) = (filter.clone(), groups.clone());
                queries.push(CountQuery { filter, groups, first });
            }
        }
    }
    queries
}

/// Compares counts. Durations need to be only about equal, because stores compute the bucket of a
/// duration with different logarithms.
fn assert_same_counts(query: &CountQuery, found: &[ExecutionCount], expected: &[ExecutionCount]) {
    let without_times = |counts: &[ExecutionCount]| {
        let plain =
            |count: &ExecutionCount| ExecutionCount { p50: None, p95: None, ..count.clone() };
        counts.iter().map(plain).collect::<Vec<_>>()
    };
    assert_eq!(without_times(found), without_times(expected), "{query:?}");
    let is_near = |one: Option<Duration>, other: Option<Duration>| match (one, other) {
        (Some(one), Some(other)) => {
            (0.9..1.11).contains(&(one.as_secs_f64() / other.as_secs_f64()))
        }
        (one, other) => one == other,
    };
    for (found, expected) in found.iter().zip(expected) {
        let same = is_near(found.p50, expected.p50) && is_near(found.p95, expected.p95);
        assert!(same, "{query:?}: {found:?} {expected:?}");
    }
}

pub async fn counts_follow_the_executions(pair: StorePair) {
    let copy = StorePair::new(std::sync::Arc::new(Memory::new()), ());
    compare_with(&pair, &copy).await;
    for head in make_heads() {
        // Each execution is unfinished at first, so its final head must move it from one count to
        // another.
        let begun = ExecutionHead {
            state: ExecutionState::Pending,
            finished_at: None,
            started_at: None,
            error: None,
            seq: shared::id::Seq(1),
            ..head.clone()
        };
        for pair in [&pair, &copy] {
            pair.put_head(begun.clone()).await;
            pair.put_head(head.clone()).await;
            // A head that is written twice must count once.
            pair.put_head(head.clone()).await;
        }
    }
    compare_with(&pair, &copy).await;
    let counted = CountQuery {
        filter: ExecutionFilter::default(),
        groups: vec![CountGroup::State],
        first: 9,
    };
    let counts = pair.other.count_executions(&counted).await.unwrap();
    let total = counts.iter().map(|count| count.count).sum::<u64>();
    let roots =
        make_heads().iter().filter(|head| head.parent.is_none() && !head.is_dry_run).count();
    assert_eq!(total, roots as u64);
    assert!(counts[0].count >= counts[1].count, "the largest group comes first: {counts:?}");
    for seconds in [20_000, 120_000] {
        for pair in [&pair, &copy] {
            while pair.one.prune(at(seconds), 7).await.unwrap().more {}
        }
        compare_with(&pair, &copy).await;
    }
}

async fn compare_with(pair: &StorePair, copy: &StorePair) {
    let is_encrypted = pair.is_encrypted().await;
    let can_answer = |query: &CountQuery| !is_encrypted || query.filter.error_text.is_none();
    for query in make_queries().into_iter().filter(can_answer) {
        let found = pair.other.count_executions(&query).await.unwrap();
        let expected = copy.other.count_executions(&query).await.unwrap();
        assert_same_counts(&query, &found, &expected);
        let total = pair.other.count_heads(&query.filter).await.unwrap();
        let expected = copy.other.count_heads(&query.filter).await.unwrap();
        assert_eq!(total, expected, "{:?}", query.filter);
    }
}

pub async fn the_count_of_a_list_is_its_length(pair: StorePair) {
    for n in 1..=5 {
        let query = if n == 3 { "another" } else { "the same" };
        pair.one.put_request(&request(n, query, 0)).await.unwrap();
        pair.one.put_plan(&plan(n, n % 2, u32::try_from(n).unwrap(), &["a.b"])).await.unwrap();
    }
    let search = |text: &str| Some(text.to_owned());
    for (search, expected) in [(None, 5), (search("same"), 4), (search("nothing"), 0)] {
        let filter = RequestFilter { search, ..RequestFilter::default() };
        assert_eq!(pair.other.count_requests(&filter).await.unwrap(), expected, "{filter:?}");
    }
    let of_one = PlanFilter { request: Some(request_id(1)), ..PlanFilter::default() };
    assert_eq!(pair.other.count_plans(&of_one).await.unwrap(), 3);
    assert_eq!(pair.other.count_plans(&PlanFilter::default()).await.unwrap(), 5);
}
