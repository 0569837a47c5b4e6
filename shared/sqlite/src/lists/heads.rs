//! Selects executions by a filter. The filter decides which index a list reads, because SQLite does
//! not know how many rows a condition selects.

use rusqlite::{Connection, params};
use shared::{
    id::PlanId,
    store::{ExecutionFilter, LabelFilter, StoreError, backend::search_words},
};

use super::{super::connection::to_store_error, Query};

const NEEDING_PERSON_OR_ANCESTOR: &str = "WITH RECURSIVE above (number) AS (
    SELECT number FROM executions WHERE needsPerson
    UNION SELECT logs.number FROM above CROSS JOIN executions ON executions.number = above.number
        CROSS JOIN logs ON logs.executionId = executions.parentExecutionId
    ) SELECT number FROM above";

/// The column with the time of creation in lists that read the index of labels.
pub(super) const LABEL_CREATED: &str = "label.createdAt";
/// Maximum number of rows for which a search uses the index of errors. If the index has more, the
/// list reads all failed executions in the order of the list instead.
const MAX_ERROR_MATCHES: usize = 2_000;
/// Maximum number of executions of a plan that a list with a label sorts.
const MAX_PLAN_EXECUTIONS: i64 = 2_000;
/// Length of the parts of words in the index of errors, in characters.
const WORD_PART_CHARS: usize = 3;

pub(in super::super) fn head_query(
    connection: &Connection,
    columns: &str,
    filter: &ExecutionFilter,
) -> Result<Query, StoreError> {
    let has_few = match filter.plan {
        Some(plan) if !filter.labels.is_empty() => has_few_executions(connection, plan)?,
        _ => false,
    };
    let mut query = start_query(columns, filter, has_few);
    add_needs_person(&mut query, filter);
    add_details(&mut query, filter);
    add_words(&mut query, connection, filter)?;
    query.add_condition("requestId = ?", filter.request.map(|id| id.to_string()));
    query.add_condition("planId = ?", filter.plan.map(|id| id.to_string()));
    if filter.is_root {
        query.sql.push_str(" AND parentExecutionId IS NULL");
    }
    query.add_time_range(filter.from, filter.to);
    add_states(&mut query, filter);
    let uses = "EXISTS (SELECT 1 FROM plan_tools
        WHERE plan_tools.planId = executions.planId AND toolName = ?)";
    query.add_condition(uses, filter.tool.as_ref().map(|tool| tool.as_str().to_owned()));
    Ok(query)
}

/// Returns whether a plan has so few executions that a list should read and sort all of them,
/// instead of all executions with a label.
fn has_few_executions(connection: &Connection, plan: PlanId) -> Result<bool, StoreError> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM executions WHERE planId = ?1 LIMIT ?2)";
    let count = connection.prepare_cached(sql).and_then(|mut found| {
        let values = params![plan.to_string(), MAX_PLAN_EXECUTIONS + 1];
        found.query_row(values, |row| row.get::<_, i64>(0))
    });
    Ok(count.map_err(|err| to_store_error(&err))? <= MAX_PLAN_EXECUTIONS)
}

/// Selects from an index that has the rows in the order of the list, so that SQLite need not sort
/// many of them.
fn start_query(columns: &str, filter: &ExecutionFilter, has_few: bool) -> Query {
    let mut query = match (filter.needs_person, &filter.labels[..]) {
        // Few executions need a person, so the search begins with them.
        (Some(true), _) if filter.is_root => Query::new(&format!(
            "SELECT {columns} FROM ({NEEDING_PERSON_OR_ANCESTOR}) AS needing
             CROSS JOIN executions USING (number)"
        )),
        (Some(true), _) | (_, []) => Query::new(&format!("SELECT {columns} FROM executions")),
        // A request has few executions, whatever the number of executions with the label.
        _ if filter.request.is_some() || filter.ids.is_some() || has_few => {
            Query::new(&format!("SELECT {columns} FROM executions"))
        }
        (_, [first, ..]) => {
            let index = match first.value {
                Some(_) => "NOT INDEXED",
                None => "INDEXED BY execution_labels_key",
            };
            let mut query = Query::new(&format!(
                "SELECT {columns} FROM execution_labels AS label {index}
                 CROSS JOIN executions ON executions.number = label.number"
            ));
            query.created_at = LABEL_CREATED;
            query
        }
    };
    if query.created_at != LABEL_CREATED {
        query.created_at = "executions.createdAt";
    }
    query
}

fn add_needs_person(query: &mut Query, filter: &ExecutionFilter) {
    match filter.needs_person {
        Some(true) if !filter.is_root => query.sql.push_str(" AND needsPerson"),
        Some(false) if filter.is_root => {
            query.sql.extend([" AND executions.number NOT IN (", NEEDING_PERSON_OR_ANCESTOR, ")"]);
        }
        Some(false) => query.sql.push_str(" AND NOT needsPerson"),
        _ => (),
    }
}

fn add_details(query: &mut Query, filter: &ExecutionFilter) {
    let mut labels = &filter.labels[..];
    if query.created_at == LABEL_CREATED
        && let [LabelFilter { key, value }, others @ ..] = labels
    {
        query.add_condition("label.key = ?", Some(key.clone()));
        query.add_condition("label.value = ?", value.clone());
        labels = others;
    }
    for LabelFilter { key, value } in labels {
        let equals = if value.is_some() { " AND other.value = ?" } else { "" };
        let has = format!(
            "EXISTS (SELECT 1 FROM execution_labels AS other
             WHERE other.number = executions.number AND other.key = ?{equals})"
        );
        query.add_condition(&has, Some(key.clone()));
        query.values.extend(value.clone().map(Into::into));
    }
    query.add_condition("errorCode = ?", filter.error_code.clone());
    let tool = filter.failed_tool.as_ref();
    query.add_condition("failedTool = ?", tool.map(|tool| tool.as_str().to_owned()));
    if let Some(ids) = &filter.ids {
        let places = vec!["?"; ids.len()].join(", ");
        query.sql.extend([
            " AND executions.number IN (SELECT number FROM logs WHERE executionId IN (",
            &places,
            "))",
        ]);
        query.values.extend(ids.iter().map(|id| id.to_string().into()));
    }
}

fn add_states(query: &mut Query, filter: &ExecutionFilter) {
    let ExecutionFilter { labels, error_code, failed_tool, ids, states, .. } = filter;
    let is_narrow =
        !labels.is_empty() || error_code.is_some() || failed_tool.is_some() || ids.is_some();
    match states.as_slice() {
        [] => (),
        [one] if !is_narrow => query.add_condition("state = ?", Some(one.as_str().to_owned())),
        // `+state` makes SQLite use another index, which has the order of the list. Without `+`,
        // SQLite would use the index by state and sort the rows of all states.
        many => {
            let words: Vec<_> = many.iter().map(|state| format!("'{}'", state.as_str())).collect();
            query.sql.extend([" AND +state IN (", &words.join(", "), ")"]);
        }
    }
}

fn add_words(
    query: &mut Query,
    connection: &Connection,
    filter: &ExecutionFilter,
) -> Result<(), StoreError> {
    let words = search_words(filter.error_text.as_deref());
    if words.is_empty() {
        return Ok(());
    }
    query.sql.push_str(" AND errorCode IS NOT NULL");
    if let Some(parts) = parts_of_words(&words) {
        let found =
            "SELECT count(*) FROM (SELECT 1 FROM error_texts WHERE error_texts MATCH ?1 LIMIT ?2)";
        let most = MAX_ERROR_MATCHES.cast_signed() + 1;
        let found = connection
            .prepare_cached(found)
            .and_then(|mut found| found.query_row(params![parts, most], |row| row.get(0)));
        let found: i64 = found.map_err(|err| to_store_error(&err))?;
        if found < most as i64 {
            let few =
                "executions.number IN (SELECT rowid FROM error_texts WHERE error_texts MATCH ?)";
            query.add_condition(few, Some(parts));
        }
    }
    for word in words {
        query.add_condition("instr(errorText, ?) > 0", Some(word));
    }
    Ok(())
}

/// Returns a query for the index of errors that contains all parts of the words, or `None` if each
/// word is shorter than a part.
fn parts_of_words(words: &[String]) -> Option<String> {
    let mut parts = Vec::new();
    for word in words {
        let characters: Vec<char> = word.chars().filter(|letter| *letter != '\0').collect();
        for part in characters.windows(WORD_PART_CHARS) {
            let part: String = part.iter().collect();
            parts.push(format!("\"{}\"", part.replace('"', "\"\"")));
        }
    }
    (!parts.is_empty()).then(|| parts.join(" AND "))
}
