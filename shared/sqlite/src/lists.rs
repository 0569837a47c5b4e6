//! Lists: one query each, over an index that has the order.

use rusqlite::{Connection, Row, types::Value};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    request::{PLANNING_FAILURES, Request},
    store::{
        Cursor, ExecutionFilter, ExecutionHead, Listing, Page, PlanFilter, PlanVersion,
        RequestFilter, StoreError,
        backend::{search_words, skip_damaged},
    },
};

use super::{connection::failed, rows};

/// The heads that need a person.
const NEEDING: &str = "SELECT heads.number FROM needs_person AS need CROSS JOIN heads
    ON heads.number = need.number AND heads.seq = need.seq";

/// The same heads, and those of all executions above them.
const NEEDING_ROOTS: &str = "WITH RECURSIVE above (number) AS (
    SELECT heads.number FROM needs_person AS need CROSS JOIN heads
        ON heads.number = need.number AND heads.seq = need.seq
    UNION SELECT logs.number FROM above CROSS JOIN heads ON heads.number = above.number
        CROSS JOIN logs ON logs.execution = heads.parent
    ) SELECT number FROM above";

/// A query that conditions are added to.
struct Query {
    sql: String,
    values: Vec<Value>,
}

impl Query {
    fn new(select: &str) -> Self {
        Self { sql: format!("{select} WHERE TRUE"), values: Vec::new() }
    }

    /// Adds a condition with one `?`, if there is a value for it.
    fn and(&mut self, condition: &str, value: Option<impl Into<Value>>) {
        let Some(value) = value else { return };
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(value.into());
    }

    fn between(&mut self, from: Option<Timestamp>, to: Option<Timestamp>) {
        self.and("created_at >= ?", from.map(|it| it.timestamp_micros()));
        self.and("created_at < ?", to.map(|it| it.timestamp_micros()));
    }

    /// Every word must be somewhere in the query.
    fn has_words(&mut self, search: Option<&str>) {
        for word in search_words(search) {
            self.and("instr(folded, ?) > 0", Some(word));
        }
    }

    /// Reads one page, the newest first; `id` is the column of the identifier.
    fn page<T>(
        mut self,
        connection: &Connection,
        id: &str,
        page: &Page,
        read: impl Fn(&Row<'_>) -> Result<(Cursor, T), StoreError>,
    ) -> Result<Listing<T>, StoreError> {
        if let Some(Cursor { at, id: last }) = &page.after {
            self.sql.extend([" AND (created_at, ", id, ") < (?, ?)"]);
            self.values.extend([at.timestamp_micros().into(), last.clone().into()]);
        }
        self.sql.extend([" ORDER BY created_at DESC, ", id, " DESC LIMIT ?"]);
        // One more than asked, to see whether there is more.
        let most = i64::try_from(page.first).unwrap_or(i64::MAX).saturating_add(1);
        self.values.push(most.into());
        let mut statement = connection.prepare(&self.sql).map_err(|err| failed(&err))?;
        let values = rusqlite::params_from_iter(self.values);
        let mut found = statement.query(values).map_err(|err| failed(&err))?;
        let mut items = Vec::new();
        for _ in 0..page.first {
            match found.next().map_err(|err| failed(&err))? {
                Some(row) => items.extend(skip_damaged(read(row))?),
                None => return Ok(Listing { items, has_more: false }),
            }
        }
        let has_more = found.next().map_err(|err| failed(&err))?.is_some();
        Ok(Listing { items, has_more })
    }
}

/// Lists requests.
pub(super) fn requests(
    connection: &Connection,
    filter: &RequestFilter,
    page: &Page,
) -> Result<Listing<Request>, StoreError> {
    let mut query = Query::new("SELECT id, created_at, query FROM requests");
    query.has_words(filter.search.as_deref());
    query.between(filter.from, filter.to);
    let has_state =
        "EXISTS (SELECT 1 FROM heads WHERE heads.request = requests.id AND heads.state = ?)";
    let condition = match filter.state {
        Some(ExecutionState::Failed) => format!("({has_state} OR {})", has_no_plan()),
        _ => has_state.to_owned(),
    };
    query.and(&condition, filter.state.map(|state| state.as_str().to_owned()));
    if let Some(wanted) = filter.needs_person {
        let of = "SELECT heads.request FROM needs_person AS need CROSS JOIN heads
            ON heads.number = need.number AND heads.seq = need.seq";
        let operator = if wanted { "IN" } else { "NOT IN" };
        query.sql.extend([" AND id ", operator, " (", of, ")"]);
    }
    query.page(connection, "id", page, |row| {
        let request = request(row)?;
        Ok((Cursor { at: request.created_at, id: request.id.to_string() }, request))
    })
}

/// Returns the condition that the planning of a request failed.
fn has_no_plan() -> String {
    let kinds = PLANNING_FAILURES.map(|kind| format!("'{kind}'")).join(", ");
    // A damaged entry must not fail the list.
    let kind = "CASE WHEN json_valid(json) THEN json ->> '$.kind' END";
    format!(
        "NOT EXISTS (SELECT 1 FROM plans WHERE plans.request = requests.id) AND EXISTS \
         (SELECT 1 FROM transcripts WHERE transcripts.request = requests.id AND {kind} IN ({kinds}))"
    )
}

/// Lists plans.
pub(super) fn plans(
    connection: &Connection,
    filter: &PlanFilter,
    page: &Page,
) -> Result<Listing<PlanVersion>, StoreError> {
    let mut query = Query::new("SELECT id, created_at, version FROM plans");
    query.and("request = ?", filter.request.map(|it| it.to_string()));
    query.has_words(filter.search.as_deref());
    query.page(connection, "id", page, |row| {
        let id: String = rows::column(row, 0, "a plan")?;
        let at = rows::time(rows::column(row, 1, &id)?, &id)?;
        let plan = PlanVersion { id: rows::parse(&id, &id)?, version: rows::column(row, 2, &id)? };
        Ok((Cursor { at, id }, plan))
    })
}

/// Lists heads.
pub(super) fn heads(
    connection: &Connection,
    filter: &ExecutionFilter,
    page: &Page,
) -> Result<Listing<ExecutionHead>, StoreError> {
    let needing = if filter.is_root { NEEDING_ROOTS } else { NEEDING };
    let from = match filter.needs_person {
        // They are few among all that there are, so the search begins with them.
        Some(true) => format!("({needing}) AS needing CROSS JOIN heads USING (number)"),
        _ => "heads".to_owned(),
    };
    let mut query = Query::new(&format!("SELECT {} FROM {from}", rows::HEAD));
    if filter.needs_person == Some(false) {
        query.sql.extend([" AND number NOT IN (", needing, ")"]);
    }
    query.and("request = ?", filter.request.map(|it| it.to_string()));
    query.and("plan = ?", filter.plan.map(|it| it.to_string()));
    if filter.is_root {
        query.sql.push_str(" AND parent IS NULL");
    }
    query.between(filter.from, filter.to);
    match filter.states.as_slice() {
        [] => (),
        [one] => query.and("state = ?", Some(one.as_str().to_owned())),
        // The index by time has the order; the `+` keeps SQLite from sorting what each state has.
        many => {
            let words: Vec<_> = many.iter().map(|it| format!("'{}'", it.as_str())).collect();
            query.sql.extend([" AND +state IN (", &words.join(", "), ")"]);
        }
    }
    let uses = "EXISTS (SELECT 1 FROM plan_tools WHERE plan_tools.plan = heads.plan AND tool = ?)";
    query.and(uses, filter.tool.as_ref().map(|it| it.as_str().to_owned()));
    query.page(connection, "execution", page, |row| {
        let head = rows::head(row)?;
        Ok((Cursor { at: head.created_at, id: head.execution.to_string() }, head))
    })
}

/// Reads a request: its identifier, its time, its query.
pub(super) fn request(row: &Row<'_>) -> Result<Request, StoreError> {
    let id: String = rows::column(row, 0, "a request")?;
    let created_at = rows::time(rows::column(row, 1, &id)?, &id)?;
    Ok(Request { id: rows::parse(&id, &id)?, created_at, query: rows::column(row, 2, &id)? })
}
