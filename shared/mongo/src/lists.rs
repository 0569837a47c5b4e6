//! Lists: one pipeline each, over an index that has the order.

use futures::TryStreamExt;
use mongodb::{
    Collection, Cursor as Found,
    bson::{Bson, Document as Row, doc},
    error::Error,
};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    request::PLANNING_FAILURES,
    store::{
        Cursor, ExecutionFilter, ExecutionHead, Listing, Page, PlanFilter, RequestFilter,
        StoreError,
        backend::{search_words, skip_damaged},
    },
};

use super::{connection::failed, rows};

/// Leaves out what is damaged, so that one bad document does not hide the good ones.
pub(super) fn good<T>(
    read: impl Iterator<Item = Result<T, StoreError>>,
) -> Result<Vec<T>, StoreError> {
    read.filter_map(|item| skip_damaged(item).transpose()).collect()
}

/// Reads all documents that a query finds.
pub(super) async fn all_rows(found: Result<Found<Row>, Error>) -> Result<Vec<Row>, StoreError> {
    let found = found.map_err(|err| failed(&err))?;
    found.try_collect().await.map_err(|err| failed(&err))
}

/// Reads heads.
pub(super) async fn heads_of(
    found: Result<Found<Row>, Error>,
) -> Result<Vec<ExecutionHead>, StoreError> {
    good(all_rows(found).await?.iter().map(rows::head))
}

/// Returns a number of documents as the server takes it.
pub(super) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

/// Says which requests.
pub(super) fn requests(filter: &RequestFilter) -> (Row, Vec<Row>) {
    let mut matching = words(filter.search.as_deref());
    between(&mut matching, filter.from, filter.to);
    let state = filter.state.map(|state| {
        let same = doc! { "$eq": ["$requestId", "$$id"] };
        let pipeline = vec![
            doc! { "$match": { "$expr": same, "state": state.as_str() } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 1 } },
        ];
        if state == ExecutionState::Failed {
            return failed_requests(pipeline);
        }
        exists("executions", doc! { "id": "$_id" }, pipeline)
    });
    (matching, state.unwrap_or_default())
}

/// Keeps requests with an execution that failed, and those whose planning did: they have no plan and
/// an entry of their transcript says why.
fn failed_requests(executions: Vec<Row>) -> Vec<Row> {
    let first = |matching: Row| {
        let id = doc! { "$project": { "_id": 1 } };
        vec![doc! { "$match": matching }, doc! { "$limit": 1 }, id]
    };
    let look = |from: &str, variables: Row, pipeline: Vec<Row>, into: &str| {
        doc! { "$lookup": { "from": from, "let": variables, "pipeline": pipeline, "as": into } }
    };
    let plans = first(doc! { "$expr": { "$eq": ["$requestId", "$$id"] } });
    // The places of a request's entries lie between these; kinds have no field of their own, but an
    // entry begins with its time and its kind.
    let entries = [("from", Bson::MinKey), ("to", Bson::MaxKey)];
    let entries = entries.map(|(name, n)| (name.to_owned(), doc! { "r": "$_id", "n": n }.into()));
    let is_within = doc! { "$and": [
        { "$gte": ["$_id", "$$from"] },
        { "$lt": ["$_id", "$$to"] },
    ] };
    let beginning = format!(r#"^\{{"at":-?\d+,"kind":"({})""#, PLANNING_FAILURES.join("|"));
    let failures = first(doc! { "$expr": is_within, "json": { "$regex": beginning } });
    let of_id = || doc! { "id": "$_id" };
    let has_execution = doc! { "executions": { "$ne": [] } };
    vec![
        look("executions", of_id(), executions, "executions"),
        look("plans", of_id(), plans, "plans"),
        doc! { "$match": { "$or": [has_execution.clone(), { "plans": [] }] } },
        look("transcripts", Row::from_iter(entries), failures, "failures"),
        doc! { "$match": { "$or": [has_execution, { "plans": [], "failures": { "$ne": [] } }] } },
    ]
}

/// Selects documents with one of some ids, or without.
pub(super) fn match_ids(matching: &mut Row, wanted: bool, ids: Vec<Bson>) {
    let operator = if wanted { "$in" } else { "$nin" };
    matching.insert("_id", doc! { operator: ids });
}

/// Selects heads that need a person or are `above` one that does, or all others.
pub(super) fn match_needing_person(matching: &mut Row, wanted: bool, above: Vec<Bson>) {
    let either = vec![doc! { "needsPerson": true }, doc! { "_id": { "$in": above } }];
    let operator = if wanted { "$or" } else { "$nor" };
    matching.insert("$and", vec![doc! { operator: either }]);
}

/// Keeps requests that have an execution that needs a person, or that have none.
pub(super) fn join_needing_person(wanted: bool) -> Vec<Row> {
    let same = doc! { "$eq": ["$requestId", "$$id"] };
    let pipeline = vec![
        doc! { "$match": { "$expr": same, "needsPerson": true } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 1 } },
    ];
    let operator = if wanted { "$ne" } else { "$eq" };
    vec![
        doc! { "$lookup": { "from": "executions", "let": { "id": "$_id" }, "pipeline": pipeline,
        "as": "needing" } },
        doc! { "$match": { "needing": { operator: [] } } },
    ]
}

/// Says which plans.
pub(super) fn plans(filter: &PlanFilter) -> (Row, Vec<Row>) {
    let mut matching = words(filter.search.as_deref());
    if let Some(request) = filter.request {
        matching.insert("requestId", request.to_string());
    }
    (matching, vec![doc! { "$project": { "_id": 1, "at": 1, "version": 1 } }])
}

/// Says which heads.
pub(super) fn heads(filter: &ExecutionFilter) -> (Row, Vec<Row>) {
    let mut matching = Row::new();
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|it| it.as_str()).collect();
        matching.insert("state", doc! { "$in": states });
    }
    if let Some(request) = filter.request {
        matching.insert("requestId", request.to_string());
    }
    if let Some(plan) = filter.plan {
        matching.insert("planId", plan.to_string());
    }
    if filter.is_root {
        matching.insert("parent", doc! { "$exists": false });
    }
    between(&mut matching, filter.from, filter.to);
    let tool = filter.tool.as_ref().map(|tool| {
        let same = doc! { "$eq": ["$_id", "$$plan"] };
        let pipeline = vec![
            doc! { "$match": { "$expr": same, "tools": tool.as_str() } },
            doc! { "$project": { "_id": 1 } },
        ];
        exists("plans", doc! { "plan": "$planId" }, pipeline)
    });
    (matching, tool.unwrap_or_default())
}

/// Reads one page, the newest first.
pub(super) async fn page<T>(
    collection: &Collection<Row>,
    (mut matching, stages): (Row, Vec<Row>),
    page: &Page,
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> Result<Listing<T>, StoreError> {
    if let Some(Cursor { at, id }) = &page.after {
        let at = at.timestamp_micros();
        let behind = [doc! { "at": { "$lt": at } }, doc! { "at": at, "_id": { "$lt": id } }];
        matching.insert("$or", behind.to_vec());
    }
    let mut pipeline = vec![doc! { "$match": matching }, doc! { "$sort": { "at": -1, "_id": -1 } }];
    pipeline.extend(stages);
    // One more than asked, to see whether there is more.
    pipeline.push(doc! { "$limit": limit(page.first.saturating_add(1)) });
    let mut rows = all_rows(collection.aggregate(pipeline).await).await?;
    let has_more = rows.len() > page.first;
    rows.truncate(page.first);
    let items = good(rows.iter().map(|row| {
        let id = rows::text(row, "_id", "a list")?;
        let cursor = Cursor { at: rows::time(row, "at", id)?, id: id.to_owned() };
        Ok((cursor, read(row)?))
    }))?;
    Ok(Listing { items, has_more })
}

/// Every word must be somewhere in the query.
fn words(search: Option<&str>) -> Row {
    let has = |word: String| {
        let at = doc! { "$indexOfBytes": ["$folded", { "$literal": word }] };
        Bson::from(doc! { "$gte": [at, 0] })
    };
    let words: Vec<Bson> = search_words(search).into_iter().map(has).collect();
    if words.is_empty() {
        Row::new()
    } else {
        doc! { "$expr": { "$and": words } }
    }
}

fn between(matching: &mut Row, from: Option<Timestamp>, to: Option<Timestamp>) {
    let mut range = Row::new();
    from.map(|it| range.insert("$gte", it.timestamp_micros()));
    to.map(|it| range.insert("$lt", it.timestamp_micros()));
    if !range.is_empty() {
        matching.insert("at", range);
    }
}

/// Keeps what has something in another collection.
fn exists(from: &str, variables: Row, pipeline: Vec<Row>) -> Vec<Row> {
    vec![
        doc! { "$lookup": { "from": from, "let": variables, "pipeline": pipeline, "as": "found" } },
        doc! { "$match": { "found": { "$ne": [] } } },
    ]
}
