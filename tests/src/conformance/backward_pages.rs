use shared::{
    execution::ExecutionState,
    id::{ExecutionId, PlanId, RequestId},
    store::{
        Cursor, ExecutionFilter, ExecutionHead, LabelFilter, Listing, Page, PlanFilter,
        RequestFilter,
    },
};

use super::{StorePair, at, execution, head, plan, plan_id, request, request_id};

const COUNT: usize = 11;

/// Reads all pages of a list from its end. Checks that each page continues at the page before.
async fn read_backwards<T>(read: impl AsyncFn(&Page) -> Listing<T>) -> Vec<T> {
    let (mut all, mut page) = (Vec::new(), Page::last_items(3));
    loop {
        let Listing { items, has_more } = read(&page).await;
        assert!(items.len() == 3 || !has_more, "only the last page is short");
        page.before = items.first().map(|(cursor, _)| cursor.clone());
        all.splice(0..0, items.into_iter().map(|(_, item)| item));
        if !has_more {
            return all;
        }
    }
}

async fn put_items(pair: &StorePair) {
    for n in 0..COUNT {
        // Several items have the same time, so the order also depends on their ids.
        let seconds = i64::try_from(n / 4).unwrap();
        pair.one.put_request(&request(n, "q", seconds)).await.unwrap();
        pair.one.put_plan(&plan(n, n, 1, &["set.tool"])).await.unwrap();
        // The last head is unfinished, because a store can notice heads of finished executions late.
        let state = if n % 2 == 0 { ExecutionState::Pending } else { ExecutionState::Failed };
        let labels = [("team".to_owned(), "red".to_owned())].into_iter().collect();
        let created_at = at(seconds);
        pair.put_head(ExecutionHead { created_at, state, labels, ..head(n, 1) }).await;
    }
}

async fn list_heads(pair: &StorePair, filter: &ExecutionFilter, page: &Page) -> Listing<usize> {
    let Listing { items, has_more } = pair.other.list_heads(filter, page).await.unwrap();
    let number = |id: ExecutionId| (0..COUNT).find(|n| execution(*n) == id).unwrap();
    let items = items.into_iter().map(|(cursor, head)| (cursor, number(head.execution)));
    Listing { items: items.collect(), has_more }
}

async fn list_requests(pair: &StorePair, page: &Page) -> Listing<RequestId> {
    let listing = pair.other.list_requests(&RequestFilter::default(), page).await.unwrap();
    let items = listing.items.into_iter().map(|(cursor, request)| (cursor, request.id));
    Listing { items: items.collect(), has_more: listing.has_more }
}

async fn list_plans(pair: &StorePair, page: &Page) -> Listing<PlanId> {
    let listing = pair.other.list_plans(&PlanFilter::default(), page).await.unwrap();
    let items = listing.items.into_iter().map(|(cursor, plan)| (cursor, plan.id));
    Listing { items: items.collect(), has_more: listing.has_more }
}

/// Pages from the end of a list have no gaps and no repeats, and keep the order of the list.
pub async fn pages_from_the_end_have_no_gaps_and_no_repeats(pair: StorePair) {
    put_items(&pair).await;
    let newest_first = || (0..COUNT).rev();
    let requests = read_backwards(async |page| list_requests(&pair, page).await).await;
    assert_eq!(requests, newest_first().map(request_id).collect::<Vec<_>>());
    let plans = read_backwards(async |page| list_plans(&pair, page).await).await;
    assert_eq!(plans, newest_first().map(plan_id).collect::<Vec<_>>());
    let failed = vec![ExecutionState::Failed];
    let label = LabelFilter { key: "team".to_owned(), value: Some("red".to_owned()) };
    let all = ExecutionFilter::default;
    for (filter, expected) in [
        (all(), newest_first().collect::<Vec<_>>()),
        (ExecutionFilter { states: failed, ..all() }, vec![9, 7, 5, 3, 1]),
        (ExecutionFilter { labels: vec![label], ..all() }, newest_first().collect()),
        (ExecutionFilter { to: Some(at(1)), ..all() }, vec![3, 2, 1, 0]),
    ] {
        let found = read_backwards(async |page| list_heads(&pair, &filter, page).await).await;
        assert_eq!(found, expected, "{filter:?}");
    }
}

/// Both cursors limit a page, from whichever end it is taken.
pub async fn a_page_stays_between_its_cursors(pair: StorePair) {
    put_items(&pair).await;
    let cursor = |n: usize| {
        Some(Cursor { at: at(i64::try_from(n / 4).unwrap()), id: execution(n).to_string() })
    };
    let between = |newer, older, page| Page { after: cursor(newer), before: cursor(older), ..page };
    for (page, expected, has_more) in [
        (between(9, 4, Page::first_items(9)), vec![8, 7, 6, 5], false),
        (between(9, 4, Page::first_items(2)), vec![8, 7], true),
        (between(9, 4, Page::last_items(3)), vec![7, 6, 5], true),
        (between(4, 9, Page::last_items(3)), vec![], false),
        (Page { before: cursor(8), ..Page::last_items(9) }, vec![10, 9], false),
        (Page { after: cursor(4), ..Page::last_items(2) }, vec![1, 0], true),
        (Page { after: cursor(4), ..Page::last_items(4) }, vec![3, 2, 1, 0], false),
        (Page::last_items(0), vec![], true),
    ] {
        let listing = list_heads(&pair, &ExecutionFilter::default(), &page).await;
        let found: Vec<usize> = listing.items.into_iter().map(|(_, number)| number).collect();
        assert_eq!((found, listing.has_more), (expected, has_more), "{page:?}");
    }
}
