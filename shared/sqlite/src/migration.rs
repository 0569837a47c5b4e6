//! Converts the rows of an earlier layout. `docs/design/store-layout.md` describes the steps.

use std::{collections::BTreeMap, sync::Arc};

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use shared::{
    event,
    execution::Execution,
    id::{ExecutionId, PlanId, Seq},
    plan::Plan,
    store::{ExecutionHead, SentCommand, StoreError, backend::MigrationReport},
};

use super::{connection::to_store_error, documents, log, rows};

/// Name of the row of `meta` with the progress. The row exists until all rows of all tables are
/// converted.
pub(super) const PROGRESS_KEY: &str = "migration";
/// The progress of a migration that has not converted a row.
pub(super) const START_PROGRESS: &str = r#"{"part":"plans","after":0}"#;

/// Maximum number of rows that one transaction converts.
const BATCH_LEN: i64 = 256;
/// Bytes of text after which a transaction reads no more rows.
const BATCH_BYTES: usize = 16 << 20;
/// Maximum number of plans that one transaction caches, because many executions have the same plan.
const MAX_CACHED_PLANS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    part: Part,
    /// The last converted row.
    after: i64,
}

/// A table to convert. The tables are converted in this order, because a head is made from its plan
/// and its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Plans,
    Events,
    Inbox,
    Executions,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Plans => "plans",
            Self::Events => "events",
            Self::Inbox => "inbox",
            Self::Executions => "executions",
        }
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::Plans => Some(Self::Events),
            Self::Events => Some(Self::Inbox),
            Self::Inbox => Some(Self::Executions),
            Self::Executions => None,
        }
    }
}

pub(super) fn migrate(connection: &Connection) -> Result<(), StoreError> {
    let mut report: Option<(Part, MigrationReport)> = None;
    while let Some(batch) = convert_batch(connection)? {
        if report.as_ref().is_none_or(|(part, _)| *part != batch.part) {
            let rows = format!("SELECT count(*) FROM {}", batch.part.name());
            let total = connection.query_row(&rows, [], |row| row.get::<_, i64>(0));
            let total = total.map_err(|err| to_store_error(&err))?.unsigned_abs();
            let done = u64::try_from(batch.len).unwrap_or_default();
            report = Some((batch.part, MigrationReport::start(batch.part.name(), done, total)));
        } else if let Some((_, report)) = &mut report {
            report.add(batch.len);
        }
    }
    Ok(())
}

struct Batch {
    part: Part,
    len: usize,
}

/// Converts the next rows in one transaction. Returns `None` if no rows are left.
fn convert_batch(connection: &Connection) -> Result<Option<Batch>, StoreError> {
    let run = |sql: &str| connection.execute_batch(sql).map_err(|err| to_store_error(&err));
    if find_progress(connection)?.is_none() {
        return Ok(None);
    }
    run("BEGIN IMMEDIATE")?;
    let converted = convert_next(connection);
    let ended = run(if converted.is_ok() { "COMMIT" } else { "ROLLBACK" });
    let converted = converted?;
    ended?;
    Ok(converted)
}

fn find_progress(connection: &Connection) -> Result<Option<Progress>, StoreError> {
    let sql = "SELECT value FROM meta WHERE name = ?1";
    let found = connection.query_row(sql, [PROGRESS_KEY], |row| row.get::<_, String>(0)).optional();
    let found = found.map_err(|err| to_store_error(&err))?;
    let parse = |text: String| serde_json::from_str(&text);
    found.map(parse).transpose().map_err(|err| StoreError::corrupt("the migration", err))
}

fn convert_next(connection: &Connection) -> Result<Option<Batch>, StoreError> {
    // Reads the progress again, because another process may have converted rows since the last
    // transaction.
    let Some(Progress { part, after }) = find_progress(connection)? else { return Ok(None) };
    let numbers = match part {
        Part::Plans => convert_plans(connection, after)?,
        Part::Events => convert_events(connection, after)?,
        Part::Inbox => convert_commands(connection, after)?,
        Part::Executions => convert_heads(connection, after)?,
    };
    let next = match (numbers.last(), part.next()) {
        (Some(last), _) => Some(Progress { part, after: *last }),
        (None, Some(next)) => Some(Progress { part: next, after: 0 }),
        (None, None) => None,
    };
    let saved = match next {
        Some(progress) => {
            let text = serde_json::to_string(&progress).expect("progress is JSON");
            connection.execute("UPDATE meta SET value = ?2 WHERE name = ?1", [PROGRESS_KEY, &text])
        }
        None => connection.execute("DELETE FROM meta WHERE name = ?1", [PROGRESS_KEY]),
    };
    saved.map_err(|err| to_store_error(&err))?;
    Ok(Some(Batch { part, len: numbers.len() }))
}

struct TextRow {
    number: i64,
    text: String,
}

fn read_rows(connection: &Connection, sql: &str, after: i64) -> Result<Vec<TextRow>, StoreError> {
    let read = || -> rusqlite::Result<Vec<TextRow>> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut found = statement.query(params![after, BATCH_LEN])?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(row) = found.next()?
        {
            // Reads a damaged text as empty, so that it is not converted.
            let text: String = row.get(1).unwrap_or_default();
            bytes += text.len();
            rows.push(TextRow { number: row.get(0)?, text });
        }
        Ok(rows)
    };
    read().map_err(|err| to_store_error(&err))
}

/// Replaces the texts of rows. Rows whose text cannot be read stay as they are.
fn convert_texts<E: std::fmt::Display>(
    connection: &Connection,
    rows: Vec<TextRow>,
    update: &str,
    convert: impl Fn(&str) -> Result<String, E>,
) -> Result<Vec<i64>, StoreError> {
    let mut numbers = Vec::with_capacity(rows.len());
    for TextRow { number, text } in rows {
        numbers.push(number);
        match convert(&text) {
            Ok(converted) if converted != text => {
                let updated = connection
                    .prepare_cached(update)
                    .and_then(|mut statement| statement.execute(params![number, converted]));
                updated.map_err(|err| to_store_error(&err))?;
            }
            Ok(_) => (),
            Err(err) => tracing::warn!(%err, number, "a damaged row was not converted"),
        }
    }
    Ok(numbers)
}

fn convert_plans(connection: &Connection, after: i64) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT rowid, json FROM plans WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";
    let rows = read_rows(connection, sql, after)?;
    let update = "UPDATE plans SET json = ?2 WHERE rowid = ?1";
    convert_texts(connection, rows, update, |text| Plan::from_json(text).map(|plan| plan.to_json()))
}

fn convert_events(connection: &Connection, after: i64) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT id, json FROM events WHERE id > ?1 ORDER BY id LIMIT ?2";
    let rows = read_rows(connection, sql, after)?;
    let update = "UPDATE events SET json = ?2 WHERE id = ?1";
    convert_texts(connection, rows, update, |text| {
        event::decode_events(Seq::START, text).map(|events| event::encode_events(&events))
    })
}

fn convert_commands(connection: &Connection, after: i64) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT arrival, json FROM inbox WHERE arrival > ?1 ORDER BY arrival LIMIT ?2";
    let rows = read_rows(connection, sql, after)?;
    let update = "UPDATE inbox SET json = ?2 WHERE arrival = ?1";
    convert_texts(connection, rows, update, |text| {
        serde_json::to_string(&serde_json::from_str::<SentCommand>(text)?)
    })
}

fn convert_heads(connection: &Connection, after: i64) -> Result<Vec<i64>, StoreError> {
    let sql =
        "SELECT number, executionId FROM executions WHERE number > ?1 ORDER BY number LIMIT ?2";
    let mut plans = PlanCopies::default();
    let mut numbers = Vec::new();
    for TextRow { number, text } in read_rows(connection, sql, after)? {
        numbers.push(number);
        match add_derived_fields(connection, &mut plans, number) {
            Ok(()) => (),
            Err(err) if err.is_permanent() => {
                tracing::warn!(execution = text, %err, "a head is incomplete");
            }
            Err(err) => return Err(err),
        }
    }
    Ok(numbers)
}

fn add_derived_fields(
    connection: &Connection,
    plans: &mut PlanCopies,
    number: i64,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {} FROM executions WHERE number = ?1", rows::HEAD_COLUMNS);
    let Some(mut head) = rows::find_row(connection, &sql, [number], rows::read_head)? else {
        return Ok(());
    };
    let Some(execution) = load_execution(connection, plans, head.execution, head.plan)? else {
        return Ok(());
    };
    head.add_derived(&execution);
    update_derived_columns(connection, number, &head).map_err(|err| to_store_error(&err))
}

/// Updates a head, with columns that a usual update leaves out because they never change.
fn update_derived_columns(
    connection: &Connection,
    number: i64,
    head: &ExecutionHead,
) -> rusqlite::Result<()> {
    rows::put_head(connection, number, head)?;
    let sql = "UPDATE executions SET query = ?2, stepsTotal = ?3, dryRun = ?4 WHERE number = ?1";
    let row = params![number, &*head.query, head.steps_total, head.is_dry_run];
    connection.prepare_cached(sql)?.execute(row).map(drop)
}

#[derive(Default)]
struct PlanCopies(BTreeMap<PlanId, Arc<Plan>>);

impl PlanCopies {
    fn load(
        &mut self,
        connection: &Connection,
        id: PlanId,
    ) -> Result<Option<Arc<Plan>>, StoreError> {
        if let Some(plan) = self.0.get(&id) {
            return Ok(Some(Arc::clone(plan)));
        }
        let Some((plan, _)) = documents::find_plan(connection, &id.to_string())? else {
            return Ok(None);
        };
        if self.0.len() >= MAX_CACHED_PLANS {
            self.0.clear();
        }
        self.0.insert(id, Arc::clone(&plan));
        Ok(Some(plan))
    }
}

/// Loads an execution as [`shared::store::load_execution`] does, in a transaction of the writer.
fn load_execution(
    connection: &Connection,
    plans: &mut PlanCopies,
    id: ExecutionId,
    plan: PlanId,
) -> Result<Option<Execution>, StoreError> {
    let corrupt = |err| StoreError::corrupt(id, err);
    let mut events = log::read_events(connection, id, Seq::START)?;
    if events.is_empty() {
        return Ok(None);
    }
    let Some(plan) = plans.load(connection, plan)? else { return Ok(None) };
    let mut execution = Execution::replay(id, plan, &events).map_err(corrupt)?;
    loop {
        events = log::read_events(connection, id, execution.seq())?;
        if events.is_empty() {
            return Ok(Some(execution));
        }
        for recorded in &events {
            execution.apply(recorded).map_err(corrupt)?;
        }
    }
}
