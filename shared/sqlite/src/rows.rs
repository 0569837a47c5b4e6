use std::{fmt::Display, str::FromStr};

use rusqlite::{Connection, Params, Row, params, types::FromSql};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{Epoch, ExecutionId, Seq, ToolName},
    labels::Labels,
    store::{EventDocument, ExecutionHead, HeadError, StoreError, backend::skip_damaged},
    tool::ErrorCode,
};

use super::{connection::to_store_error, due};

/// The columns that [`read_head`] expects, in the order in which it reads them.
pub(super) const HEAD_COLUMNS: &str = "executions.executionId, requestId, planId, state,
    executions.createdAt, seq, epoch, owner, dueAt, priority, finishedAt, parentExecutionId,
    needsPerson, startedAt, query, stepsDone, stepsTotal, errorCode, failedTool, errorMessage,
    dryRun, labels, CASE WHEN labels IS NULL THEN 0 ELSE COALESCE((SELECT bytes FROM stored_bytes
        WHERE stored_bytes.number = executions.number), 0) END";

/// Selects heads that a worker can claim, now or later. The partial indexes have the same
/// condition.
pub(super) const IS_CLAIMABLE: &str = "owner IS NULL AND dueAt IS NOT NULL
    AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')";

/// Inserts or updates a head. Keeps a stored head that is newer. Columns that never change, such as
/// the plan, are not updated.
const PUT_HEAD: &str = "INSERT INTO executions (number, executionId, requestId, planId, state,
        createdAt, seq, epoch, owner, dueAt, priority, finishedAt, parentExecutionId, needsPerson,
        startedAt, query, stepsDone, stepsTotal, errorCode, failedTool, errorMessage, dryRun, labels)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
        ?20, ?21, ?22, ?23)
    ON CONFLICT (number) DO UPDATE SET state = excluded.state, seq = excluded.seq,
        epoch = excluded.epoch, owner = excluded.owner, dueAt = excluded.dueAt,
        priority = excluded.priority, finishedAt = excluded.finishedAt,
        needsPerson = excluded.needsPerson, startedAt = excluded.startedAt,
        stepsDone = excluded.stepsDone, errorCode = excluded.errorCode,
        failedTool = excluded.failedTool, errorMessage = excluded.errorMessage
    WHERE seq <= excluded.seq";

/// Writes a head. Returns `false` if the stored head is newer.
pub(super) fn put_head(
    connection: &Connection,
    log: i64,
    head: &ExecutionHead,
) -> rusqlite::Result<bool> {
    let error = head.error.as_ref();
    let row = params![
        log,
        head.execution.to_string(),
        head.request.to_string(),
        head.plan.to_string(),
        head.state.as_str(),
        head.created_at.timestamp_micros(),
        head.seq.0.cast_signed(),
        head.epoch.0.cast_signed(),
        head.owner.map(|owner| owner.to_string()),
        head.due.map(|due| due.timestamp_micros()),
        head.priority,
        head.finished_at.map(|time| time.timestamp_micros()),
        head.parent.map(|parent| parent.to_string()),
        head.needs_person,
        head.started_at.map(|time| time.timestamp_micros()),
        &*head.query,
        head.steps_done,
        head.steps_total,
        error.map(|error| error.code.as_str()),
        error.and_then(|error| error.tool.as_ref()).map(ToolName::as_str),
        error.map(|error| &*error.message),
        head.is_dry_run,
        encode_labels(&head.labels),
    ];
    if connection.prepare_cached(PUT_HEAD)?.execute(row)? == 0 {
        return Ok(false);
    }
    if let Some(error) = error {
        put_error_text(connection, log, error)?;
    }
    if !head.labels.is_empty() {
        put_labels(connection, log, head)?;
        due::put_stored_bytes(connection, log, head)?;
    }
    Ok(true)
}

/// Adds the first error of an execution to the index for searches, unless the index has this error
/// already.
pub(super) fn put_error_text(
    connection: &Connection,
    log: i64,
    error: &HeadError,
) -> rusqlite::Result<()> {
    let text = error.folded_text();
    let sql = "SELECT 1 FROM executions WHERE number = ?1 AND errorText = ?2";
    if connection.prepare_cached(sql)?.exists(params![log, text])? {
        return Ok(());
    }
    let sql = "INSERT OR REPLACE INTO error_texts (rowid, text) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![log, text])?;
    let sql = "UPDATE executions SET errorText = ?2 WHERE number = ?1";
    connection.prepare_cached(sql)?.execute(params![log, text]).map(drop)
}

fn put_labels(connection: &Connection, log: i64, head: &ExecutionHead) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO execution_labels VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = connection.prepare_cached(sql)?;
    let (at, id) = (head.created_at.timestamp_micros(), head.execution.to_string());
    head.labels
        .iter()
        .try_for_each(|(key, value)| insert.execute(params![key, value, at, id, log]).map(drop))
}

pub(super) fn read_head(row: &Row<'_>) -> Result<ExecutionHead, StoreError> {
    let id: String = read_column(row, 0, "a head")?;
    let owner: Option<String> = read_column(row, 7, &id)?;
    let due: Option<i64> = read_column(row, 8, &id)?;
    let finished_at: Option<i64> = read_column(row, 10, &id)?;
    let parent: Option<String> = read_column(row, 11, &id)?;
    let started_at: Option<i64> = read_column(row, 13, &id)?;
    let read_count =
        |index| Ok(u64::try_from(read_column::<i64>(row, index, &id)?).unwrap_or_default());
    Ok(ExecutionHead {
        execution: parse(&id, &id)?,
        request: parse(&read_text(row, 1, &id)?, &id)?,
        plan: parse(&read_text(row, 2, &id)?, &id)?,
        state: parse_state(&read_text(row, 3, &id)?, &id)?,
        created_at: to_time(read_column(row, 4, &id)?, &id)?,
        seq: Seq(read_count(5)?),
        epoch: Epoch(read_count(6)?),
        owner: owner.map(|owner| parse(&owner, &id)).transpose()?,
        due: due.map(|due| to_time(due, &id)).transpose()?,
        priority: read_column(row, 9, &id)?,
        finished_at: finished_at.map(|time| to_time(time, &id)).transpose()?,
        parent: parent.map(|parent| parse(&parent, &id)).transpose()?,
        needs_person: read_column(row, 12, &id)?,
        started_at: started_at.map(|time| to_time(time, &id)).transpose()?,
        query: read_text(row, 14, &id)?.into(),
        steps_done: read_column(row, 15, &id)?,
        steps_total: read_column(row, 16, &id)?,
        error: read_error(row, &id)?,
        labels: read_labels(row, 21, &id)?,
        is_dry_run: read_column(row, 20, &id)?,
        stored_bytes: read_count(22)?,
    })
}

/// Returns the value of the column `labels`, which is `NULL` if there are no labels.
pub(super) fn encode_labels(labels: &Labels) -> Option<String> {
    (!labels.is_empty()).then(|| serde_json::to_string(labels).expect("labels are JSON"))
}

pub(super) fn read_labels(row: &Row<'_>, column: usize, id: &str) -> Result<Labels, StoreError> {
    let labels: Option<String> = read_column(row, column, id)?;
    let labels = labels.map_or(Ok(Labels::new()), |labels| serde_json::from_str(&labels));
    labels.map_err(|err| StoreError::corrupt(id, err))
}

fn read_error(row: &Row<'_>, id: &str) -> Result<Option<HeadError>, StoreError> {
    let Some(code) = read_column::<Option<String>>(row, 17, id)? else { return Ok(None) };
    let tool: Option<String> = read_column(row, 18, id)?;
    let message: Option<String> = read_column(row, 19, id)?;
    Ok(Some(HeadError {
        code: ErrorCode::custom(code),
        tool: tool.map(|tool| parse(&tool, id)).transpose()?,
        message: message.unwrap_or_default().into(),
    }))
}

pub(super) fn read_document(row: &Row<'_>, id: ExecutionId) -> Result<EventDocument, StoreError> {
    let id = id.to_string();
    let first: i64 = read_column(row, 0, &id)?;
    let len: isize = read_column(row, 1, &id)?;
    Ok(EventDocument {
        first: Seq(u64::try_from(first).map_err(|err| StoreError::corrupt(&id, err))?),
        len: usize::try_from(len).map_err(|err| StoreError::corrupt(&id, err))?,
        json: read_column(row, 2, &id)?,
    })
}

pub(super) fn list_rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let mut found = statement.query(values).map_err(|err| to_store_error(&err))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().map_err(|err| to_store_error(&err))? {
        rows.extend(skip_damaged(read(row))?);
    }
    Ok(rows)
}

pub(super) fn find_row<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let mut found = statement.query(values).map_err(|err| to_store_error(&err))?;
    found.next().map_err(|err| to_store_error(&err))?.map(read).transpose()
}

/// Reads the column at `index`. `what` names the row in the error.
pub(super) fn read_column<T: FromSql>(
    row: &Row<'_>,
    index: usize,
    what: &str,
) -> Result<T, StoreError> {
    row.get(index).map_err(|err| match to_store_error(&err) {
        StoreError::Corrupt { why, .. } => StoreError::corrupt(what, why),
        other => other,
    })
}

fn read_text(row: &Row<'_>, index: usize, what: &str) -> Result<String, StoreError> {
    read_column(row, index, what)
}

pub(super) fn parse<T: FromStr<Err: Display>>(text: &str, what: &str) -> Result<T, StoreError> {
    text.parse().map_err(|err| StoreError::corrupt(what, err))
}

pub(super) fn to_time(micros: i64, what: &str) -> Result<Timestamp, StoreError> {
    Timestamp::from_timestamp_micros(micros)
        .ok_or_else(|| StoreError::corrupt(what, format!("{micros} µs is not a time")))
}

fn parse_state(word: &str, what: &str) -> Result<ExecutionState, StoreError> {
    let found = ExecutionState::ALL.into_iter().find(|state| state.as_str() == word);
    found.ok_or_else(|| StoreError::corrupt(what, format!("`{word}` is not a state")))
}
