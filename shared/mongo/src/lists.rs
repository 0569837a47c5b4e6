//! Pages of lists. Each page is one aggregation, which reads an index in the order of the list if
//! the filter allows that.

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
        Cursor, ExecutionFilter, ExecutionHead, LabelFilter, Listing, Page, PlanFilter,
        RequestFilter, StoreError,
        backend::{search_words, skip_damaged},
    },
};

use super::{connection::to_store_error, rows};

pub(super) const CREATED: &str = "createdAtMicros";
pub(super) const REQUEST_TOKEN: &str = "labels.@token";

/// Leaves out damaged items, so that a list with a damaged document still shows all other
/// documents.
pub(super) fn skip_damaged_items<T>(
    items: impl Iterator<Item = Result<T, StoreError>>,
) -> Result<Vec<T>, StoreError> {
    items.filter_map(|item| skip_damaged(item).transpose()).collect()
}

pub(super) async fn read_all(found: Result<Found<Row>, Error>) -> Result<Vec<Row>, StoreError> {
    let found = found.map_err(|err| to_store_error(&err))?;
    found.try_collect().await.map_err(|err| to_store_error(&err))
}

pub(super) async fn read_heads(
    found: Result<Found<Row>, Error>,
) -> Result<Vec<ExecutionHead>, StoreError> {
    skip_damaged_items(read_all(found).await?.iter().map(rows::read_head))
}

pub(super) fn to_limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

pub(super) struct ListQuery {
    /// Stages that find the documents in another collection, before the first `$match`.
    pub(super) sources: Vec<Row>,
    pub(super) matching: Row,
    pub(super) stages: Vec<Row>,
}

pub(super) fn request_selection(filter: &RequestFilter) -> ListQuery {
    let mut matching = words_filter(filter.search.as_deref());
    add_time_range(&mut matching, filter.from, filter.to);
    if let Some(token) = &filter.token {
        matching.insert(REQUEST_TOKEN, token);
    }
    let state = filter.state.map(|state| {
        let same = doc! { "$eq": ["$requestId", "$$id"] };
        let pipeline = vec![
            doc! { "$match": { "$expr": same, "state": state.as_str() } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 1 } },
        ];
        if state == ExecutionState::Failed {
            return failed_request_stages(pipeline);
        }
        join_stages("executions", doc! { "id": "$_id" }, pipeline)
    });
    ListQuery { sources: Vec::new(), matching, stages: state.unwrap_or_default() }
}

/// Keeps requests with a failed execution, and requests whose planning failed. A request whose
/// planning failed has no plan, and its transcript has an entry with the reason.
fn failed_request_stages(executions: Vec<Row>) -> Vec<Row> {
    let find_first = |matching: Row| {
        let id = doc! { "$project": { "_id": 1 } };
        vec![doc! { "$match": matching }, doc! { "$limit": 1 }, id]
    };
    let lookup = |from: &str, variables: Row, pipeline: Vec<Row>, into: &str| {
        doc! { "$lookup": { "from": from, "let": variables, "pipeline": pipeline, "as": into } }
    };
    let plans = find_first(doc! { "$expr": { "$eq": ["$requestId", "$$id"] } });
    let entries = [("from", Bson::MinKey), ("to", Bson::MaxKey)];
    let entries = entries.map(|(name, n)| (name.to_owned(), doc! { "r": "$_id", "n": n }.into()));
    let is_within = doc! { "$and": [
        { "$gte": ["$_id", "$$from"] },
        { "$lt": ["$_id", "$$to"] },
    ] };
    let failures =
        find_first(doc! { "$expr": is_within, "kind": { "$in": PLANNING_FAILURES.to_vec() } });
    let request_id = || doc! { "id": "$_id" };
    let has_execution = doc! { "executions": { "$ne": [] } };
    vec![
        lookup("executions", request_id(), executions, "executions"),
        lookup("plans", request_id(), plans, "plans"),
        doc! { "$match": { "$or": [has_execution.clone(), { "plans": [] }] } },
        lookup("transcripts", Row::from_iter(entries), failures, "failures"),
        doc! { "$match": { "$or": [has_execution, { "plans": [], "failures": { "$ne": [] } }] } },
    ]
}

/// If `wanted` is `true`, selects the documents with these ids. Otherwise selects all other
/// documents.
pub(super) fn match_ids(matching: &mut Row, wanted: bool, ids: Vec<Bson>) {
    let operator = if wanted { "$in" } else { "$nin" };
    matching.insert("_id", doc! { operator: ids });
}

/// If `wanted` is `true`, selects the executions that need a person, and the given `ancestors`.
/// Otherwise selects all other executions.
pub(super) fn match_needing_person(matching: &mut Row, wanted: bool, ancestors: Vec<Bson>) {
    let either = vec![doc! { "needsPerson": true }, doc! { "_id": { "$in": ancestors } }];
    let operator = if wanted { "$or" } else { "$nor" };
    matching.insert("$and", vec![doc! { operator: either }]);
}

/// If `wanted` is `true`, keeps the requests that have an execution that needs a person. Otherwise
/// keeps all other requests.
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

/// The order in which the plans of a token are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanOrder {
    /// Begins with the requests of the token, and sorts all their plans. The plans of other tokens
    /// are not read.
    ByRequest,
    /// Reads plans in the order of the list until a page is full, and leaves out those of other
    /// tokens.
    ByTime,
}

/// Returns the collection in which a query of [`plan_selection`] begins.
pub(super) fn plan_collection(filter: &PlanFilter, order: PlanOrder) -> &'static str {
    if filter.token.is_some() && order == PlanOrder::ByRequest { "requests" } else { "plans" }
}

/// Keeps the plans whose requests belong to a token.
fn own_plan_stages(token: &str) -> Vec<Row> {
    let same = doc! { "$eq": ["$_id", "$$request"] };
    let pipeline = vec![
        doc! { "$match": { "$expr": same, REQUEST_TOKEN: token } },
        doc! { "$project": { "_id": 1 } },
    ];
    join_stages("requests", doc! { "request": "$requestId" }, pipeline)
}

/// Finds the plans of a token through its requests.
fn token_plan_stages(token: &str) -> Vec<Row> {
    vec![
        doc! { "$match": { REQUEST_TOKEN: token } },
        doc! { "$lookup": { "from": "plans", "localField": "_id", "foreignField": "requestId",
        "as": "plan" } },
        doc! { "$unwind": "$plan" },
        doc! { "$replaceRoot": { "newRoot": "$plan" } },
    ]
}

pub(super) fn plan_selection(filter: &PlanFilter, order: PlanOrder) -> ListQuery {
    let mut matching = words_filter(filter.search.as_deref());
    if let Some(request) = filter.request {
        matching.insert("requestId", request.to_string());
    }
    let (mut sources, mut stages) = (Vec::new(), Vec::new());
    match (&filter.token, order) {
        (Some(token), PlanOrder::ByRequest) => sources = token_plan_stages(token),
        (Some(token), PlanOrder::ByTime) => stages = own_plan_stages(token),
        (None, _) => {}
    }
    stages.push(doc! { "$project": { "_id": 1, CREATED: 1, "version": 1 } });
    ListQuery { sources, matching, stages }
}

pub(super) fn head_selection(filter: &ExecutionFilter) -> ListQuery {
    let mut matching = Row::new();
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        matching.insert("state", doc! { "$in": states });
    }
    if let Some(request) = filter.request {
        matching.insert("requestId", request.to_string());
    }
    if let Some(plan) = filter.plan {
        matching.insert("planId", plan.to_string());
    }
    if filter.is_root {
        matching.insert("parentExecutionId", doc! { "$exists": false });
    }
    add_time_range(&mut matching, filter.from, filter.to);
    add_details(&mut matching, filter);
    let tool = filter.tool.as_ref().map(|tool| {
        let same = doc! { "$eq": ["$_id", "$$plan"] };
        let pipeline = vec![
            doc! { "$match": { "$expr": same, "tools": tool.as_str() } },
            doc! { "$project": { "_id": 1 } },
        ];
        join_stages("plans", doc! { "plan": "$planId" }, pipeline)
    });
    ListQuery { sources: Vec::new(), matching, stages: tool.unwrap_or_default() }
}

fn add_details(matching: &mut Row, filter: &ExecutionFilter) {
    if !filter.labels.is_empty() {
        let term = |LabelFilter { key, value }: &LabelFilter| match value {
            Some(value) => rows::label_term(key, value),
            None => key.clone(),
        };
        let terms: Vec<String> = filter.labels.iter().map(term).collect();
        matching.insert("labelTerms", doc! { "$all": terms });
    }
    if let Some(code) = &filter.error_code {
        matching.insert("errorCode", code);
    }
    if let Some(tool) = &filter.failed_tool {
        matching.insert("failedTool", tool.as_str());
    }
    if let Some(words) = words_condition("$errorText", filter.error_text.as_deref()) {
        // Lets the server use the index of failed executions, which contains no other executions.
        if filter.error_code.is_none() {
            matching.insert("errorCode", doc! { "$exists": true });
        }
        matching.insert("$expr", words);
    }
    if let Some(ids) = &filter.ids {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        matching.insert("_id", doc! { "$in": ids });
    }
}

pub(super) async fn read_page<T>(
    collection: &Collection<Row>,
    query: ListQuery,
    page: &Page,
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> Result<Listing<T>, StoreError> {
    let ListQuery { sources: mut pipeline, mut matching, stages } = query;
    if let Some(after) = &page.after {
        matching.insert("$or", match_position("$lt", after));
    }
    pipeline.push(doc! { "$match": matching });
    if let Some(before) = &page.before {
        // The server joins neighbouring stages, so this stage also uses the index.
        pipeline.push(doc! { "$match": { "$or": match_position("$gt", before) } });
    }
    let direction = if page.from_end { 1 } else { -1 };
    pipeline.push(doc! { "$sort": { CREATED: direction, "_id": direction } });
    pipeline.extend(stages);
    // Reads one row more than the page has, to see whether the range has more.
    pipeline.push(doc! { "$limit": to_limit(page.first.saturating_add(1)) });
    let mut rows = read_all(collection.aggregate(pipeline).await).await?;
    let has_more = rows.len() > page.first;
    rows.truncate(page.first);
    if page.from_end {
        rows.reverse();
    }
    let items = skip_damaged_items(rows.iter().map(|row| {
        let id = rows::read_text(row, "_id", "a list")?;
        let cursor = Cursor { at: rows::read_time(row, CREATED, id)?, id: id.to_owned() };
        Ok((cursor, read(row)?))
    }))?;
    Ok(Listing { items, has_more })
}

/// Returns conditions for the rows on one side of a cursor: `$lt` means older rows, and `$gt` newer
/// rows.
fn match_position(operator: &str, Cursor { at, id }: &Cursor) -> Vec<Row> {
    let at = at.timestamp_micros();
    vec![doc! { CREATED: { operator: at } }, doc! { CREATED: at, "_id": { operator: id } }]
}

fn words_filter(search: Option<&str>) -> Row {
    words_condition("$folded", search).map_or(Row::new(), |words| doc! { "$expr": words })
}

fn words_condition(field: &str, search: Option<&str>) -> Option<Row> {
    let contains = |word: String| {
        let index = doc! { "$indexOfBytes": [field, { "$literal": word }] };
        Bson::from(doc! { "$gte": [index, 0] })
    };
    let words: Vec<Bson> = search_words(search).into_iter().map(contains).collect();
    (!words.is_empty()).then(|| doc! { "$and": words })
}

pub(super) fn add_time_range(matching: &mut Row, from: Option<Timestamp>, to: Option<Timestamp>) {
    let mut range = Row::new();
    from.map(|time| range.insert("$gte", time.timestamp_micros()));
    to.map(|time| range.insert("$lt", time.timestamp_micros()));
    if !range.is_empty() {
        matching.insert(CREATED, range);
    }
}

fn join_stages(from: &str, variables: Row, pipeline: Vec<Row>) -> Vec<Row> {
    vec![
        doc! { "$lookup": { "from": from, "let": variables, "pipeline": pipeline, "as": "found" } },
        doc! { "$match": { "found": { "$ne": [] } } },
    ]
}
