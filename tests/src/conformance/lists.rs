use futures::future::join_all;
use serde_json::json;
use shared::{
    execution::ExecutionState::{self, Completed, Failed, Pending},
    id::{ExecutionId, PlanId, RequestId, Seq},
    labels::{self, Labels},
    limits,
    request::{Request, TranscriptEntry},
    store::{
        Cursor, ExecutionFilter, ExecutionHead, HeadError, LabelFilter, Listing, Page, PlanFilter,
        PlanVersion, RequestFilter,
    },
    tool::ErrorCode,
};

use super::{StorePair, all, at, execution, head, plan, plan_id, request, request_id};

fn plan_ids_of(listing: &Listing<PlanVersion>) -> Vec<PlanId> {
    listing.items.iter().map(|(_, plan)| plan.id).collect()
}

async fn request_numbers(pair: &StorePair, filter: RequestFilter) -> Vec<RequestId> {
    let found = pair.other.list_requests(&filter, &all()).await.unwrap();
    assert!(!found.has_more);
    found.items.into_iter().map(|(_, request)| request.id).collect()
}

async fn plan_ids(pair: &StorePair, filter: PlanFilter) -> Vec<PlanId> {
    plan_ids_of(&pair.other.list_plans(&filter, &all()).await.unwrap())
}

async fn head_ids(pair: &StorePair, filter: ExecutionFilter) -> Vec<ExecutionId> {
    let found = pair.other.list_heads(&filter, &all()).await.unwrap();
    found.items.into_iter().map(|(_, head)| head.execution).collect()
}

/// Pages have no gaps and no repeats, even if items are added at the front and many have the same
/// time.
pub async fn pages_have_no_gaps_and_no_repeats(pair: StorePair) {
    let created = |n: usize| at(i64::try_from(n / 5).unwrap());
    for n in 0..23 {
        let head = ExecutionHead { created_at: created(n), ..head(n, 1) };
        pair.put_head(head).await;
    }
    let (mut found, mut page) = (Vec::new(), Page::first_items(4));
    for round in 0.. {
        let part = pair.other.list_heads(&ExecutionFilter::default(), &page).await.unwrap();
        let newer = ExecutionHead { created_at: at(100), ..head(100 + round, 1) };
        pair.put_head(newer).await;
        found.extend(part.items.iter().map(|(_, head)| head.execution));
        page.after = part.items.last().map(|(cursor, _)| cursor.clone());
        if !part.has_more {
            break;
        }
        assert_eq!(part.items.len(), 4);
    }
    assert_eq!(found, (0..23).rev().map(execution).collect::<Vec<_>>());
    let text = page.after.expect("the page has a last item").to_string();
    let cursor: Cursor = text.parse().expect("a cursor can be parsed from its text");
    assert_eq!(cursor, Cursor { at: created(0), id: execution(0).to_string() });
}

pub async fn an_empty_page_says_whether_there_are_items(pair: StorePair) {
    let nothing = Page::first_items(0);
    let ask = async || pair.other.list_requests(&RequestFilter::default(), &nothing).await.unwrap();
    assert_eq!(ask().await, Listing { items: Vec::new(), has_more: false });
    pair.one.put_request(&request(1, "q", 0)).await.unwrap();
    assert_eq!(ask().await, Listing { items: Vec::new(), has_more: true });
}

pub async fn requests_are_found_by_words_time_and_state(pair: StorePair) {
    for (n, query) in
        ["Create author Alice", "create BLÖG\u{0}$x by alice", "50% a_b"].iter().enumerate()
    {
        let seconds = i64::try_from(n).unwrap();
        pair.one.put_request(&request(n, query, seconds)).await.unwrap();
    }
    let failed =
        ExecutionHead { state: ExecutionState::Failed, request: request_id(1), ..head(1, 1) };
    pair.put_head(failed).await;
    pair.put_head(head(2, 1)).await;
    let none = RequestFilter::default;
    let [zero, one, two] = [0, 1, 2].map(request_id);
    let search = |text: &str| RequestFilter { search: Some(text.to_owned()), ..none() };
    let state = |wanted| RequestFilter { state: Some(wanted), ..none() };
    let cases = [
        (none(), vec![two, one, zero]),
        (search("ALICE"), vec![one, zero]),
        (search(" alice  create "), vec![one, zero]),
        (search("blög"), vec![one]),
        (search("\u{0}$X"), vec![one]),
        (search("%"), vec![two]),
        (search("a_b"), vec![two]),
        (search("."), vec![]),
        (search("alice bob"), vec![]),
        (search(""), vec![two, one, zero]),
        (RequestFilter { from: Some(at(1)), ..none() }, vec![two, one]),
        (RequestFilter { to: Some(at(1)), ..none() }, vec![zero]),
        (state(ExecutionState::Failed), vec![one]),
        (state(ExecutionState::Pending), vec![two]),
        (state(ExecutionState::Paused), vec![]),
    ];
    for (filter, expected) in cases {
        assert_eq!(request_numbers(&pair, filter.clone()).await, expected, "{filter:?}");
    }
}

/// Requests whose planning ended without a plan are found among the failed requests.
pub async fn requests_without_a_plan_are_found_as_failed(pair: StorePair) {
    let entry = |kind: &str, content: serde_json::Value| TranscriptEntry {
        at: at(1),
        kind: kind.to_owned(),
        content,
    };
    let error = || entry("error", json!({ "code": "NO_PLAN_FOUND", "message": "no tool fits" }));
    let sly = || entry("reply", json!(r#"{"at":1,"kind":"error","content":{}}"#));
    let transcripts = [
        vec![],
        vec![entry("selection", json!({}))],
        vec![entry("selection", json!({})), error()],
        vec![entry("draft", json!({})), entry("diagnostics", json!([]))],
        vec![error()],
        vec![sly()],
    ];
    for (n, transcript) in transcripts.iter().enumerate() {
        pair.one.put_request(&request(n, "plan it", i64::try_from(n).unwrap())).await.unwrap();
        pair.one.add_transcript(request_id(n), transcript).await.unwrap();
    }
    // The planning of request 4 failed, but then the request got an explicit plan, so it has not
    // failed.
    pair.one.put_plan(&plan(1, 4, 1, &["set.tool"])).await.unwrap();
    let failed = RequestFilter { state: Some(Failed), ..RequestFilter::default() };
    assert_eq!(request_numbers(&pair, failed.clone()).await, [3, 2].map(request_id));
    pair.put_head(ExecutionHead { state: Failed, ..head(0, 1) }).await;
    // A store is allowed to notice the head of a finished execution late, but not later than a new
    // head of an unfinished execution.
    pair.put_head(head(8, 1)).await;
    assert_eq!(request_numbers(&pair, failed).await, [3, 2, 0].map(request_id));
    let pending = RequestFilter { state: Some(Pending), ..RequestFilter::default() };
    assert_eq!(request_numbers(&pair, pending).await, []);
}

/// Executions that need a person are found, with their requests. If children are left out, the root
/// above a waiting child is found instead of the child.
pub async fn executions_that_need_a_person_are_found_with_their_requests(pair: StorePair) {
    let with = |n: usize, of: usize, parent: Option<usize>, needs_person| ExecutionHead {
        request: request_id(of),
        parent: parent.map(execution),
        created_at: at(i64::try_from(n).unwrap()),
        state: if needs_person { ExecutionState::Waiting } else { ExecutionState::InProgress },
        needs_person,
        ..head(n, 1)
    };
    for n in 1..=4 {
        pair.one.put_request(&request(n, "q", i64::try_from(n).unwrap())).await.unwrap();
    }
    // Execution 1 has a grandchild that waits for a person. Execution 4 itself waits for a person,
    // 5 does not wait, and 6 waits no longer.
    let heads = [
        with(1, 1, None, false),
        with(2, 1, Some(1), false),
        with(3, 1, Some(2), true),
        with(4, 2, None, true),
        with(5, 2, None, false),
        with(6, 3, None, true),
    ];
    for head in heads {
        pair.put_head(head).await;
    }
    pair.put_head(ExecutionHead { seq: Seq(2), ..with(6, 3, None, false) }).await;
    // A head with an earlier position in the log changes nothing.
    pair.one.put_head(with(6, 3, None, true)).await.unwrap();
    let executions = |needs, is_root| ExecutionFilter {
        needs_person: Some(needs),
        is_root,
        ..ExecutionFilter::default()
    };
    let waiting =
        ExecutionFilter { states: vec![ExecutionState::Waiting], ..executions(true, false) };
    let cases = [
        (executions(true, false), vec![4, 3]),
        (executions(false, false), vec![6, 5, 2, 1]),
        (executions(true, true), vec![4, 1]),
        (executions(false, true), vec![6, 5]),
        (ExecutionFilter { request: Some(request_id(1)), ..executions(true, false) }, vec![3]),
        (ExecutionFilter { from: Some(at(4)), ..executions(true, true) }, vec![4]),
        (waiting, vec![4, 3]),
    ];
    for (filter, expected) in cases {
        let expected: Vec<_> = expected.into_iter().map(execution).collect();
        assert_eq!(head_ids(&pair, filter.clone()).await, expected, "{filter:?}");
    }
    let page = Page::first_items(1);
    let first = pair.other.list_heads(&executions(true, false), &page).await.unwrap();
    assert!(first.has_more);
    assert!(first.items[0].1.needs_person, "the head has the mark, too");
    let rest = Page { after: Some(first.items[0].0.clone()), ..Page::first_items(5) };
    let rest = pair.other.list_heads(&executions(true, false), &rest).await.unwrap();
    assert_eq!(
        rest.items.iter().map(|(_, head)| head.execution).collect::<Vec<_>>(),
        [execution(3)]
    );
    let needs = |wanted| RequestFilter { needs_person: Some(wanted), ..RequestFilter::default() };
    assert_eq!(request_numbers(&pair, needs(true)).await, [2, 1].map(request_id));
    assert_eq!(request_numbers(&pair, needs(false)).await, [4, 3].map(request_id));
    let pending = Some(ExecutionState::InProgress);
    let both = RequestFilter { state: pending, from: Some(at(2)), ..needs(true) };
    assert_eq!(request_numbers(&pair, both).await, [request_id(2)]);
}

pub async fn plans_are_found_by_request_and_words(pair: StorePair) {
    for (n, of) in [(1, 1), (2, 1), (3, 2)] {
        let version = u32::try_from(n).unwrap();
        pair.one.put_plan(&plan(n, of, version, &["set.tool"])).await.unwrap();
    }
    let none = PlanFilter::default;
    assert_eq!(plan_ids(&pair, none()).await, [3, 2, 1].map(plan_id));
    let of_one = PlanFilter { request: Some(request_id(1)), ..none() };
    assert_eq!(plan_ids(&pair, of_one).await, [2, 1].map(plan_id));
    let search = PlanFilter { search: Some("number 3".to_owned()), ..none() };
    assert_eq!(plan_ids(&pair, search).await, [plan_id(3)]);
    let page = Page::first_items(2);
    let first = pair.other.list_plans(&none(), &page).await.unwrap();
    assert!(first.has_more);
    let rest = Page {
        after: first.items.last().map(|(cursor, _)| cursor.clone()),
        ..Page::first_items(2)
    };
    let rest = pair.other.list_plans(&none(), &rest).await.unwrap();
    assert_eq!((plan_ids_of(&rest), rest.has_more), (vec![plan_id(1)], false));
}

/// Requests, plans and executions are found by the token to which they belong. A plan belongs to the
/// token of its request.
pub async fn a_token_finds_its_own(pair: StorePair) {
    let labels = |token: Option<&str>| {
        let mut labels = Labels::from([("team".to_owned(), "red".to_owned())]);
        labels::set_token(&mut labels, token);
        labels
    };
    for (n, token) in [(1, Some("ann")), (2, Some("bob")), (3, None), (4, Some("ann"))] {
        let seconds = i64::try_from(n).unwrap();
        let owned = Request { labels: labels(token), ..request(n, "a query", seconds) };
        pair.one.put_request(&owned).await.unwrap();
        pair.one.put_plan(&plan(n, n, 1, &["set.tool"])).await.unwrap();
        let state = if n == 4 { Completed } else { Pending };
        let created_at = at(seconds);
        let head = ExecutionHead { labels: labels(token), state, created_at, ..head(n, 1) };
        pair.put_head(head).await;
    }
    pair.one.put_plan(&plan(5, 1, 2, &["set.tool"])).await.unwrap();
    for (token, requests, plans) in
        [("ann", vec![4, 1], vec![5, 4, 1]), ("bob", vec![2], vec![2]), ("team", vec![], vec![])]
    {
        let filter = RequestFilter { token: Some(token.to_owned()), ..RequestFilter::default() };
        assert_eq!(pair.other.count_requests(&filter).await.unwrap(), requests.len() as u64);
        let ids: Vec<_> = requests.iter().copied().map(request_id).collect();
        assert_eq!(request_numbers(&pair, filter).await, ids, "{token}");
        let filter = PlanFilter { token: Some(token.to_owned()), ..PlanFilter::default() };
        assert_eq!(pair.other.count_plans(&filter).await.unwrap(), plans.len() as u64);
        let ids: Vec<_> = plans.iter().copied().map(plan_id).collect();
        assert_eq!(plan_ids(&pair, filter).await, ids, "{token}");
        let filter =
            ExecutionFilter { labels: vec![LabelFilter::of_token(token)], ..Default::default() };
        assert_eq!(pair.other.count_heads(&filter).await.unwrap(), requests.len() as u64);
        let ids: Vec<_> = requests.iter().copied().map(execution).collect();
        assert_eq!(head_ids(&pair, filter).await, ids, "{token}");
    }
    let filter = PlanFilter { token: Some("ann".to_owned()), ..PlanFilter::default() };
    let page = Page::first_items(2);
    let first = pair.other.list_plans(&filter, &page).await.unwrap();
    let rest = Page {
        after: first.items.last().map(|(cursor, _)| cursor.clone()),
        ..Page::first_items(2)
    };
    let rest = pair.other.list_plans(&filter, &rest).await.unwrap();
    assert_eq!((plan_ids_of(&rest), rest.has_more), (vec![plan_id(1)], false));
    let of_one = PlanFilter { request: Some(request_id(1)), ..filter };
    assert_eq!(plan_ids(&pair, of_one).await, [5, 1].map(plan_id));
    let label = LabelFilter { key: "team".to_owned(), value: Some("red".to_owned()) };
    let labels = vec![LabelFilter::of_token("ann"), label];
    let request = Some(request_id(4));
    for filter in [
        ExecutionFilter { labels: labels.clone(), request, ..Default::default() },
        ExecutionFilter {
            labels: labels.clone(),
            ids: Some(vec![execution(4)]),
            ..Default::default()
        },
        ExecutionFilter { labels, states: vec![Completed], ..Default::default() },
    ] {
        assert_eq!(head_ids(&pair, filter.clone()).await, [execution(4)], "{filter:?}");
    }
}

/// The label of a head with the origin of a fork stays when the head is replaced.
pub async fn the_forks_of_an_execution_are_found(pair: StorePair) {
    let origin = |n| (labels::FORKED_FROM.to_owned(), execution(n).to_string());
    for (n, forked_from) in [(2, 1), (3, 1), (4, 9)] {
        let (created_at, labels) = (at(i64::try_from(n).unwrap()), [origin(forked_from)].into());
        pair.put_head(ExecutionHead { labels, created_at, ..head(n, 1) }).await;
    }
    let (state, finished_at) = (Completed, Some(at(5)));
    let labels = [origin(1)].into();
    let ended = ExecutionHead { labels, state, finished_at, created_at: at(3), ..head(3, 2) };
    pair.put_head(ended).await;
    for (n, forks) in [(1, vec![3, 2]), (9, vec![4]), (2, vec![])] {
        let labels = vec![LabelFilter::of_forks(execution(n))];
        let filter = ExecutionFilter { labels, ..ExecutionFilter::default() };
        let ids: Vec<_> = forks.into_iter().map(execution).collect();
        assert_eq!(head_ids(&pair, filter).await, ids, "{n}");
    }
}

/// A token with so many requests that a page does not sort all their plans gets the same pages.
pub async fn a_token_with_many_requests_finds_its_plans(pair: StorePair) {
    let put_owned = async |n: usize, token: &str| {
        let mut labels = Labels::new();
        labels::set_token(&mut labels, Some(token));
        let owned = Request { labels, ..request(n, "a query", 1) };
        pair.one.put_request(&owned).await.unwrap();
    };
    let count = limits::SORTED_REQUESTS + 1;
    for first in (1..=count).step_by(64) {
        let last = count.min(first + 63);
        join_all((first..=last).map(|n| put_owned(n, "ann"))).await;
    }
    put_owned(count + 1, "bob").await;
    for (n, of, version) in [(1, 1, 1), (2, count + 1, 1), (3, 7, 1), (4, 8, 1), (5, 1, 2)] {
        pair.one.put_plan(&plan(n, of, version, &["set.tool"])).await.unwrap();
    }
    for (token, expected) in [("ann", vec![5, 4, 3, 1]), ("bob", vec![2])] {
        let filter = PlanFilter { token: Some(token.to_owned()), ..PlanFilter::default() };
        assert_eq!(pair.other.count_plans(&filter).await.unwrap(), expected.len() as u64);
        let expected: Vec<_> = expected.into_iter().map(plan_id).collect();
        assert_eq!(plan_ids(&pair, filter).await, expected, "{token}");
    }
    let filter = PlanFilter { token: Some("ann".to_owned()), ..PlanFilter::default() };
    let first = pair.other.list_plans(&filter, &Page::first_items(2)).await.unwrap();
    assert_eq!((plan_ids_of(&first), first.has_more), ([5, 4].map(plan_id).to_vec(), true));
    let rest = Page {
        after: first.items.last().map(|(cursor, _)| cursor.clone()),
        ..Page::first_items(2)
    };
    let rest = pair.other.list_plans(&filter, &rest).await.unwrap();
    assert_eq!((plan_ids_of(&rest), rest.has_more), ([3, 1].map(plan_id).to_vec(), false));
    let of_one = PlanFilter { request: Some(request_id(1)), ..filter.clone() };
    assert_eq!(plan_ids(&pair, of_one).await, [5, 1].map(plan_id));
    let of_bob = PlanFilter { request: Some(request_id(count + 1)), ..filter };
    assert_eq!(plan_ids(&pair, of_bob).await, []);
}

/// Executions are found by state, request, plan, time, the tools of their plan, and whether they
/// are children.
pub async fn executions_are_found_by_each_filter(pair: StorePair) {
    pair.one.put_plan(&plan(1, 1, 1, &["blog.createAuthor", "blog.createAuthor"])).await.unwrap();
    pair.one.put_plan(&plan(2, 1, 2, &["flow.echo", "a.b.c"])).await.unwrap();
    for (n, of, state) in [(1, 1, Completed), (2, 2, Failed), (3, 2, Pending), (4, 9, Failed)] {
        let made = at(i64::try_from(n).unwrap());
        let parent = (n == 3).then(|| execution(2));
        let head =
            ExecutionHead { plan: plan_id(of), state, created_at: made, parent, ..head(n, 1) };
        pair.put_head(head).await;
    }
    let none = ExecutionFilter::default;
    let states = |wanted: &[_]| ExecutionFilter { states: wanted.to_vec(), ..none() };
    let tool = |name: &str| ExecutionFilter { tool: Some(name.parse().unwrap()), ..none() };
    let cases = [
        (none(), vec![4, 3, 2, 1]),
        (states(&[Failed]), vec![4, 2]),
        (states(&[Failed, Completed]), vec![4, 2, 1]),
        (ExecutionFilter { request: Some(request_id(2)), ..none() }, vec![2]),
        (ExecutionFilter { plan: Some(plan_id(2)), ..none() }, vec![3, 2]),
        (ExecutionFilter { plan: Some(plan_id(2)), ..states(&[Failed]) }, vec![2]),
        (ExecutionFilter { from: Some(at(2)), to: Some(at(4)), ..none() }, vec![3, 2]),
        (ExecutionFilter { is_root: true, ..none() }, vec![4, 2, 1]),
        (ExecutionFilter { is_root: true, plan: Some(plan_id(2)), ..none() }, vec![2]),
        (tool("blog.createAuthor"), vec![1]),
        (tool("createAuthor"), vec![1]),
        (tool("echo"), vec![3, 2]),
        (tool("b.c"), vec![3, 2]),
        (tool("c"), vec![]),
        (tool("createauthor"), vec![]),
    ];
    for (filter, expected) in cases {
        let expected: Vec<_> = expected.into_iter().map(execution).collect();
        assert_eq!(head_ids(&pair, filter.clone()).await, expected, "{filter:?}");
    }
}

/// Stores nine executions with labels and errors, numbered from 1. Executions with odd numbers
/// belong to the team `red`, and every third execution failed.
async fn put_labelled(pair: &StorePair) {
    for n in 1..=9 {
        let team = if n % 2 == 1 { "red" } else { "blue" };
        let mut labels = Labels::from([("app.io/team".to_owned(), team.to_owned())]);
        if n % 4 == 0 {
            labels.insert("zone".to_owned(), "a=b".to_owned());
        }
        let error = (n % 3 == 0).then(|| HeadError {
            code: ErrorCode::custom(if n == 9 { "golden.no" } else { "tool.failed" }.to_owned()),
            tool: (n != 9).then(|| format!("set.tool{n}").parse().unwrap()),
            message: format!("Cannot find ORDER-{n} at 50%_ \"ÄÖ\"").into(),
        });
        let state = if error.is_some() { Failed } else { Completed };
        let created_at = at(i64::try_from(n).unwrap());
        pair.put_head(ExecutionHead { labels, error, state, created_at, ..head(n, 1) }).await;
    }
}

/// Executions are found by labels, by their first error and by their ids, and all parts of a filter
/// must match.
pub async fn executions_are_found_by_labels_errors_and_ids(pair: StorePair) {
    put_labelled(&pair).await;
    let none = ExecutionFilter::default;
    let labels = |pairs: &[(&str, Option<&str>)]| {
        let label = |(key, value): &(&str, Option<&str>)| LabelFilter {
            key: (*key).to_owned(),
            value: value.map(str::to_owned),
        };
        ExecutionFilter { labels: pairs.iter().map(label).collect(), ..none() }
    };
    let code = |code: &str| ExecutionFilter { error_code: Some(code.to_owned()), ..none() };
    let tool = |tool: &str| ExecutionFilter { failed_tool: Some(tool.parse().unwrap()), ..none() };
    let text = |text: &str| ExecutionFilter { error_text: Some(text.to_owned()), ..none() };
    let ids = |ids: &[usize]| {
        let ids = ids.iter().map(|n| execution(*n)).collect();
        ExecutionFilter { ids: Some(ids), ..none() }
    };
    let (team, red) = ("app.io/team", Some("red"));
    let failed = vec![Failed];
    let cases = [
        (labels(&[(team, red)]), vec![9, 7, 5, 3, 1]),
        (labels(&[(team, None)]), vec![9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (labels(&[("zone", None)]), vec![8, 4]),
        (labels(&[("zone", Some("a=b"))]), vec![8, 4]),
        (labels(&[("zone", Some("a"))]), vec![]),
        (labels(&[("zone", None), (team, red)]), vec![]),
        (labels(&[(team, Some("blue")), ("zone", None)]), vec![8, 4]),
        (labels(&[("team", None)]), vec![]),
        (labels(&[("zone=a", None)]), vec![]),
        (ExecutionFilter { states: failed.clone(), ..labels(&[(team, red)]) }, vec![9, 3]),
        (ExecutionFilter { from: Some(at(4)), ..labels(&[(team, red)]) }, vec![9, 7, 5]),
        (code("tool.failed"), vec![6, 3]),
        (code("golden.no"), vec![9]),
        (code("tool"), vec![]),
        (ExecutionFilter { states: failed, ..code("tool.failed") }, vec![6, 3]),
        (tool("set.tool3"), vec![3]),
        (tool("tool3"), vec![]),
        (text("order-"), vec![9, 6, 3]),
        (text("ORDER-6"), vec![6]),
        (text("find äö cannot"), vec![9, 6, 3]),
        (text("50%_"), vec![9, 6, 3]),
        (text("\"äö\""), vec![9, 6, 3]),
        (text("golden.no"), vec![9]),
        (text("6"), vec![6]),
        (text("order-7"), vec![]),
        (text("find nothing"), vec![]),
        (text(" "), vec![9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (ExecutionFilter { failed_tool: tool("set.tool6").failed_tool, ..text("order") }, vec![6]),
        (ExecutionFilter { labels: labels(&[(team, red)]).labels, ..text("order") }, vec![9, 3]),
        (ids(&[2, 9, 77]), vec![9, 2]),
        (ids(&[]), vec![]),
        (ExecutionFilter { ids: ids(&[2, 3]).ids, ..code("tool.failed") }, vec![3]),
        (ExecutionFilter { ids: ids(&[2, 3]).ids, ..labels(&[(team, red)]) }, vec![3]),
    ];
    let is_encrypted = pair.is_encrypted().await;
    let can_answer = |filter: &ExecutionFilter| !is_encrypted || filter.error_text.is_none();
    for (filter, expected) in cases.into_iter().filter(|(filter, _)| can_answer(filter)) {
        let expected: Vec<_> = expected.into_iter().map(execution).collect();
        assert_eq!(head_ids(&pair, filter.clone()).await, expected, "{filter:?}");
    }
    let first = Page::first_items(2);
    let red = labels(&[(team, red)]);
    let part = pair.other.list_heads(&red, &first).await.unwrap();
    assert!(part.has_more);
    let rest =
        Page { after: part.items.last().map(|(cursor, _)| cursor.clone()), ..Page::first_items(9) };
    let rest = pair.other.list_heads(&red, &rest).await.unwrap();
    let rest: Vec<_> = rest.items.into_iter().map(|(_, head)| head.execution).collect();
    assert_eq!(rest, [5, 3, 1].map(execution));
}
