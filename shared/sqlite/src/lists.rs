//! Pages of lists. Each page is one query, which reads an index in the order of the list if the
//! filter allows that.

use rusqlite::{Connection, Row, types::Value};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    limits,
    request::{PLANNING_FAILURES, Request},
    store::{
        AuditEntry, AuditFilter, Cursor, ExecutionFilter, ExecutionHead, Listing, Page, PlanFilter,
        PlanVersion, RequestFilter, StoreError,
        backend::{REQUEST_LABELS_LAYOUT, search_words, skip_damaged},
    },
};

use super::{connection::to_store_error, rows};

pub(super) use self::heads::head_query;

mod heads;

/// The token to which a request belongs. A damaged text has no token, because a write must not fail
/// when it is indexed.
const REQUEST_TOKEN: &str = r#"CASE WHEN json_valid(labels) THEN labels ->> '$."@token"' END"#;
const TOKEN_INDEX: &str = "requests_token";

/// Selects the requests of a token. Without `IS NOT NULL`, SQLite would not use the index
/// [`TOKEN_INDEX`], which contains only requests with labels.
fn has_token() -> String {
    format!("labels IS NOT NULL AND {REQUEST_TOKEN} = ?")
}

/// Creates the index of requests by token. A file that an earlier version wrote lacks it. Nodes of
/// layouts without labels can use the file, because the index needs nothing of them.
pub(super) fn prepare_token_index(connection: &Connection, layout: u32) -> Result<(), StoreError> {
    if layout < REQUEST_LABELS_LAYOUT {
        return Ok(());
    }
    let sql = format!(
        "CREATE INDEX IF NOT EXISTS {TOKEN_INDEX} ON requests
         ({REQUEST_TOKEN}, createdAt, requestId) WHERE labels IS NOT NULL"
    );
    connection.execute_batch(&sql).map_err(|err| to_store_error(&err))
}

pub(super) struct Query {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
    /// The column with the time by which the list is sorted.
    created_at: &'static str,
}

impl Query {
    fn new(select: &str) -> Self {
        Self { sql: format!("{select} WHERE TRUE"), values: Vec::new(), created_at: "createdAt" }
    }

    /// Adds a condition whose first `?` is `value`. Does nothing if `value` is `None`.
    fn add_condition(&mut self, condition: &str, value: Option<impl Into<Value>>) {
        let Some(value) = value else { return };
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(value.into());
    }

    fn add_time_range(&mut self, from: Option<Timestamp>, to: Option<Timestamp>) {
        let created_at = self.created_at;
        let from = from.map(|time| time.timestamp_micros());
        self.add_condition(&format!("{created_at} >= ?"), from);
        let to = to.map(|time| time.timestamp_micros());
        self.add_condition(&format!("{created_at} < ?"), to);
    }

    /// Selects rows that were created in a range of time. The range has microseconds since 1970 and
    /// excludes its end.
    pub(super) fn add_micros_range(&mut self, range: Option<(i64, i64)>) {
        let created_at = self.created_at;
        self.add_condition(&format!("{created_at} >= ?"), range.map(|(from, _)| from));
        self.add_condition(&format!("{created_at} < ?"), range.map(|(_, to)| to));
    }

    /// Counts the selected rows. The query must select `count(*)`.
    fn count(self, connection: &Connection) -> Result<u64, StoreError> {
        let mut statement = connection.prepare(&self.sql).map_err(|err| to_store_error(&err))?;
        let values = rusqlite::params_from_iter(self.values);
        let count = statement.query_row(values, |row| row.get::<_, i64>(0));
        count.map(i64::unsigned_abs).map_err(|err| to_store_error(&err))
    }

    /// Selects rows whose query contains every word of the search.
    fn add_words(&mut self, search: Option<&str>) {
        for word in search_words(search) {
            self.add_condition("instr(folded, ?) > 0", Some(word));
        }
    }

    /// Reads one page, whose newest item comes first. `id` is the name of the id's column.
    fn read_page<T>(
        mut self,
        connection: &Connection,
        id: &str,
        page: &Page,
        read: impl Fn(&Row<'_>) -> Result<(Cursor, T), StoreError>,
    ) -> Result<Listing<T>, StoreError> {
        for (cursor, operator) in [(&page.after, "<"), (&page.before, ">")] {
            let Some(Cursor { at, id: limit }) = cursor else { continue };
            self.sql.extend([" AND (", self.created_at, ", ", id, ") ", operator, " (?, ?)"]);
            self.values.extend([at.timestamp_micros().into(), limit.clone().into()]);
        }
        let order = if page.from_end { " ASC" } else { " DESC" };
        let created_at = self.created_at;
        self.sql.extend([" ORDER BY ", created_at, order, ", ", id, order, " LIMIT ?"]);
        // Reads one row more than the page has, to see whether the range has more.
        let most = i64::try_from(page.first).unwrap_or(i64::MAX).saturating_add(1);
        self.values.push(most.into());
        let mut statement = connection.prepare(&self.sql).map_err(|err| to_store_error(&err))?;
        let values = rusqlite::params_from_iter(self.values);
        let mut found = statement.query(values).map_err(|err| to_store_error(&err))?;
        let (mut items, mut has_more) = (Vec::new(), false);
        for count in 0..=page.first {
            let Some(row) = found.next().map_err(|err| to_store_error(&err))? else { break };
            has_more = count == page.first;
            if !has_more {
                items.extend(skip_damaged(read(row))?);
            }
        }
        if page.from_end {
            items.reverse();
        }
        Ok(Listing { items, has_more })
    }
}

pub(super) fn list_requests(
    connection: &Connection,
    filter: &RequestFilter,
    page: &Page,
    layout: u32,
) -> Result<Listing<Request>, StoreError> {
    let query = request_query(request_columns(layout), filter);
    query.read_page(connection, "requestId", page, |row| {
        let request = read_request(row)?;
        Ok((Cursor { at: request.created_at, id: request.id.to_string() }, request))
    })
}

pub(super) fn count_requests(
    connection: &Connection,
    filter: &RequestFilter,
) -> Result<u64, StoreError> {
    request_query("count(*)", filter).count(connection)
}

fn request_query(columns: &str, filter: &RequestFilter) -> Query {
    let mut query = Query::new(&format!("SELECT {columns} FROM requests"));
    query.add_condition(&has_token(), filter.token.clone());
    query.add_words(filter.search.as_deref());
    query.add_time_range(filter.from, filter.to);
    let has_state = "EXISTS (SELECT 1 FROM executions AS run
        WHERE run.requestId = requests.requestId AND run.state = ?)";
    let condition = match filter.state {
        Some(ExecutionState::Failed) => format!("({has_state} OR {})", planning_failed_condition()),
        _ => has_state.to_owned(),
    };
    query.add_condition(&condition, filter.state.map(|state| state.as_str().to_owned()));
    if let Some(wanted) = filter.needs_person {
        let needing = "SELECT run.requestId FROM executions AS run WHERE run.needsPerson";
        let operator = if wanted { "IN" } else { "NOT IN" };
        query.sql.extend([" AND requestId ", operator, " (", needing, ")"]);
    }
    query
}

fn planning_failed_condition() -> String {
    let kinds = PLANNING_FAILURES.map(|kind| format!("'{kind}'")).join(", ");
    // Checks the text first, because a damaged entry must not make the whole list fail.
    let kind = "CASE WHEN json_valid(json) THEN json ->> '$.kind' END";
    format!(
        "NOT EXISTS (SELECT 1 FROM plans WHERE plans.requestId = requests.requestId) AND EXISTS \
         (SELECT 1 FROM transcripts WHERE transcripts.requestId = requests.requestId \
         AND {kind} IN ({kinds}))"
    )
}

pub(super) fn list_plans(
    connection: &Connection,
    filter: &PlanFilter,
    page: &Page,
) -> Result<Listing<PlanVersion>, StoreError> {
    let query = plan_query("planId, createdAt, version", filter, choose_order(connection, filter)?);
    query.read_page(connection, "planId", page, |row| {
        let id: String = rows::read_column(row, 0, "a plan")?;
        let at = rows::to_time(rows::read_column(row, 1, &id)?, &id)?;
        let plan =
            PlanVersion { id: rows::parse(&id, &id)?, version: rows::read_column(row, 2, &id)? };
        Ok((Cursor { at, id }, plan))
    })
}

pub(super) fn count_plans(connection: &Connection, filter: &PlanFilter) -> Result<u64, StoreError> {
    plan_query("count(*)", filter, PlanOrder::ByRequest).count(connection)
}

/// The order in which the plans of a token are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanOrder {
    /// Begins with the requests of the token, and sorts all their plans. The plans of other tokens
    /// are not read.
    ByRequest,
    /// Reads plans in the order of the list until a page is full, and leaves out those of other
    /// tokens.
    ByTime,
}

/// Chooses the order for a page. Without this choice, each page of a token would sort all its
/// plans.
fn choose_order(connection: &Connection, filter: &PlanFilter) -> Result<PlanOrder, StoreError> {
    let (Some(token), None) = (&filter.token, filter.request) else {
        return Ok(PlanOrder::ByRequest);
    };
    let sql = format!(
        "SELECT 1 FROM requests WHERE {} LIMIT 1 OFFSET {}",
        has_token(),
        limits::SORTED_REQUESTS
    );
    let has_more = connection.prepare_cached(&sql).and_then(|mut found| found.exists([token]));
    let has_more = has_more.map_err(|err| to_store_error(&err))?;
    Ok(if has_more { PlanOrder::ByTime } else { PlanOrder::ByRequest })
}

fn plan_query(columns: &str, filter: &PlanFilter, order: PlanOrder) -> Query {
    // A plan belongs to the token of its request.
    let mut query = match &filter.token {
        None => Query::new(&format!("SELECT {columns} FROM plans")),
        Some(token) if order == PlanOrder::ByTime => {
            let mut query = Query::new(&format!("SELECT {columns} FROM plans"));
            let is_owned = format!(
                "EXISTS (SELECT 1 FROM requests
                 WHERE requests.requestId = plans.requestId AND {})",
                has_token()
            );
            query.add_condition(&is_owned, Some(token.clone()));
            query
        }
        // `CROSS JOIN` makes SQLite begin with the requests.
        Some(token) => {
            let mut query = Query::new(&format!(
                "SELECT {columns} FROM (SELECT requestId AS ownedId FROM requests
                 WHERE {}) AS owned CROSS JOIN plans ON requestId = ownedId",
                has_token()
            ));
            query.values.push(token.clone().into());
            query
        }
    };
    query.add_condition("requestId = ?", filter.request.map(|id| id.to_string()));
    query.add_words(filter.search.as_deref());
    query
}

pub(super) fn list_heads(
    connection: &Connection,
    filter: &ExecutionFilter,
    page: &Page,
) -> Result<Listing<ExecutionHead>, StoreError> {
    let query = head_query(connection, rows::HEAD_COLUMNS, filter)?;
    // If the query reads the index of labels, the page is sorted by columns of that index, so that
    // SQLite need not sort the rows.
    let is_by_label = query.created_at == heads::LABEL_CREATED;
    let id = if is_by_label { "label.executionId" } else { "executions.executionId" };
    query.read_page(connection, id, page, |row| {
        let head = rows::read_head(row)?;
        Ok((Cursor { at: head.created_at, id: head.execution.to_string() }, head))
    })
}

pub(super) fn list_audit(
    connection: &Connection,
    filter: &AuditFilter,
    page: &Page,
) -> Result<Listing<AuditEntry>, StoreError> {
    audit_query("json", filter).read_page(connection, "auditId", page, |row| {
        let json: String = rows::read_column(row, 0, "an audit entry")?;
        let entry: AuditEntry = serde_json::from_str(&json)
            .map_err(|err| StoreError::corrupt("an audit entry", err))?;
        Ok((Cursor { at: entry.at, id: entry.id.to_string() }, entry))
    })
}

pub(super) fn count_audit(
    connection: &Connection,
    filter: &AuditFilter,
) -> Result<u64, StoreError> {
    audit_query("count(*)", filter).count(connection)
}

fn audit_query(columns: &str, filter: &AuditFilter) -> Query {
    let mut query = Query::new(&format!("SELECT {columns} FROM audit"));
    if let Some(kind) = filter.actor_kind {
        // A literal lets SQLite use the partial index of Faber's own actions.
        query.sql.extend([" AND actorKind = '", kind.as_str(), "'"]);
    }
    query.add_condition("actorName = ?", filter.actor_name.clone());
    let action = filter.action.as_ref().map(|action| action.as_str().to_owned());
    query.add_condition("action = ?", action);
    query.add_condition("executionId = ?", filter.execution.map(|id| id.to_string()));
    query.add_time_range(filter.from, filter.to);
    query
}

pub(super) fn request_columns(layout: u32) -> &'static str {
    if layout < REQUEST_LABELS_LAYOUT {
        "requestId, createdAt, query, NULL"
    } else {
        "requestId, createdAt, query, labels"
    }
}

pub(super) fn read_request(row: &Row<'_>) -> Result<Request, StoreError> {
    let id: String = rows::read_column(row, 0, "a request")?;
    let created_at = rows::to_time(rows::read_column(row, 1, &id)?, &id)?;
    Ok(Request {
        id: rows::parse(&id, &id)?,
        created_at,
        query: rows::read_column(row, 2, &id)?,
        labels: rows::read_labels(row, 3, &id)?,
    })
}

#[cfg(test)]
mod tests {
    use shared::store::backend::LAYOUT;

    use super::*;

    fn explain(connection: &Connection, query: &Query) -> String {
        let sql = format!(
            "EXPLAIN QUERY PLAN {} ORDER BY createdAt DESC, planId DESC LIMIT 21",
            query.sql
        );
        let mut statement = connection.prepare(&sql).unwrap();
        let values = rusqlite::params_from_iter(query.values.clone());
        let plan = statement.query_map(values, |row| row.get::<_, String>(3)).unwrap();
        plan.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    /// A page of the plans of a token with many requests reads an index in the order of the list, so
    /// its cost does not grow with the number of these plans.
    #[test]
    fn the_plans_of_a_token_with_many_requests_are_not_sorted() {
        let connection = Connection::open_in_memory().unwrap();
        super::super::schema::prepare_schema(&connection, "a file".as_ref(), LAYOUT, || false)
            .unwrap();
        prepare_token_index(&connection, LAYOUT).unwrap();
        let add_requests = |from: usize, to: usize| {
            let sql = format!(
                r#"WITH RECURSIVE n(value) AS
                   (SELECT {from} UNION ALL SELECT value + 1 FROM n WHERE value < {to})
                   INSERT INTO requests (requestId, createdAt, query, folded, labels)
                   SELECT 'req_' || value, value, '', '', '{{"@token":"ann"}}' FROM n"#
            );
            connection.execute(&sql, []).unwrap();
        };
        let filter = PlanFilter { token: Some("ann".to_owned()), ..PlanFilter::default() };
        let read = || {
            let order = choose_order(&connection, &filter).unwrap();
            (order, explain(&connection, &plan_query("planId", &filter, order)))
        };
        add_requests(1, limits::SORTED_REQUESTS);
        let (order, plan) = read();
        assert_eq!(order, PlanOrder::ByRequest);
        assert!(plan.starts_with("SEARCH requests USING"), "{plan}");
        add_requests(limits::SORTED_REQUESTS + 1, limits::SORTED_REQUESTS + 1);
        let (order, plan) = read();
        assert_eq!(order, PlanOrder::ByTime);
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        assert!(plan.contains("(requestId=?)"), "the id finds the request: {plan}");
    }
}
