//! Rows and what they mean.

use std::{fmt::Display, str::FromStr};

use rusqlite::{Connection, Params, Row, params, types::FromSql};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{Epoch, Seq},
    store::{ExecutionHead, StoreError, backend::skip_damaged},
};

use super::connection::failed;

/// The columns that [`head`] reads, in its order.
pub(super) const HEAD: &str = "execution, request, plan, state, created_at, heads.seq, epoch, owner, due, priority, finished_at, parent,
    EXISTS (SELECT 1 FROM needs_person AS need WHERE need.number = heads.number AND need.seq = heads.seq)";

/// The heads that a worker may take, now or later; the partial indexes have the same condition.
pub(super) const FREE: &str = "owner IS NULL AND due IS NOT NULL
    AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')";

/// Writes a head unless a newer one is there. What an execution *is* never changes, so only what
/// it *does* is written over.
pub(super) fn put_head(
    connection: &Connection,
    log: i64,
    head: &ExecutionHead,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO heads VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
        ON CONFLICT (number) DO UPDATE SET state = excluded.state, seq = excluded.seq,
        epoch = excluded.epoch, owner = excluded.owner, due = excluded.due,
        priority = excluded.priority, finished_at = excluded.finished_at WHERE seq <= excluded.seq";
    let row = params![
        log,
        head.execution.to_string(),
        head.request.to_string(),
        head.plan.to_string(),
        head.state.as_str(),
        head.created_at.timestamp_micros(),
        head.seq.0.cast_signed(),
        head.epoch.0.cast_signed(),
        head.owner.map(|it| it.to_string()),
        head.due.map(|it| it.timestamp_micros()),
        head.priority,
        head.finished_at.map(|it| it.timestamp_micros()),
        head.parent.map(|it| it.to_string()),
    ];
    if connection.prepare_cached(sql)?.execute(row)? == 0 {
        return Ok(());
    }
    if head.needs_person {
        let sql = "INSERT OR REPLACE INTO needs_person VALUES (?1, ?2)";
        return connection.prepare_cached(sql)?.execute([log, head.seq.0.cast_signed()]).map(drop);
    }
    let sql = "DELETE FROM needs_person WHERE number = ?1";
    connection.prepare_cached(sql)?.execute([log]).map(drop)
}

/// Reads a head.
pub(super) fn head(row: &Row<'_>) -> Result<ExecutionHead, StoreError> {
    let name: String = column(row, 0, "a head")?;
    let owner: Option<String> = column(row, 7, &name)?;
    let due: Option<i64> = column(row, 8, &name)?;
    let finished_at: Option<i64> = column(row, 10, &name)?;
    let parent: Option<String> = column(row, 11, &name)?;
    let count = |at| Ok(u64::try_from(column::<i64>(row, at, &name)?).unwrap_or_default());
    Ok(ExecutionHead {
        execution: parse(&name, &name)?,
        request: parse(&text(row, 1, &name)?, &name)?,
        plan: parse(&text(row, 2, &name)?, &name)?,
        state: state(&text(row, 3, &name)?, &name)?,
        created_at: time(column(row, 4, &name)?, &name)?,
        seq: Seq(count(5)?),
        epoch: Epoch(count(6)?),
        owner: owner.map(|it| parse(&it, &name)).transpose()?,
        due: due.map(|it| time(it, &name)).transpose()?,
        priority: column(row, 9, &name)?,
        finished_at: finished_at.map(|it| time(it, &name)).transpose()?,
        parent: parent.map(|it| parse(&it, &name)).transpose()?,
        needs_person: column(row, 12, &name)?,
    })
}

/// Reads the rows that a query finds, without the damaged ones.
pub(super) fn list_rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query(values).map_err(|err| failed(&err))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().map_err(|err| failed(&err))? {
        rows.extend(skip_damaged(read(row))?);
    }
    Ok(rows)
}

/// Reads the one row that a query finds, if it finds one.
pub(super) fn find_row<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query(values).map_err(|err| failed(&err))?;
    found.next().map_err(|err| failed(&err))?.map(read).transpose()
}

/// Reads a column of the row that has `what`.
pub(super) fn column<T: FromSql>(row: &Row<'_>, at: usize, what: &str) -> Result<T, StoreError> {
    row.get(at).map_err(|err| match failed(&err) {
        StoreError::Corrupt { why, .. } => StoreError::corrupt(what, why),
        other => other,
    })
}

fn text(row: &Row<'_>, at: usize, what: &str) -> Result<String, StoreError> {
    column(row, at, what)
}

/// Reads an identifier.
pub(super) fn parse<T: FromStr<Err: Display>>(text: &str, what: &str) -> Result<T, StoreError> {
    text.parse().map_err(|err| StoreError::corrupt(what, err))
}

/// Reads a time.
pub(super) fn time(micros: i64, what: &str) -> Result<Timestamp, StoreError> {
    Timestamp::from_timestamp_micros(micros)
        .ok_or_else(|| StoreError::corrupt(what, format!("{micros} µs is no time")))
}

fn state(word: &str, what: &str) -> Result<ExecutionState, StoreError> {
    let found = ExecutionState::ALL.into_iter().find(|it| it.as_str() == word);
    found.ok_or_else(|| StoreError::corrupt(what, format!("`{word}` is no state")))
}
