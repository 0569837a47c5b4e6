use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use shared::{
    clock::Timestamp,
    id::{CommandId, ExecutionId, RequestId, Seq, WorkerId},
    limits,
    store::{
        Append, AuditEntry, ExecutionHead, Hints, Lease, Permission, Permit, PermitAsk, RecordKind,
        SentCommand, WriteCondition,
    },
};

use super::{
    audit,
    counts::{self, CountChanges, StoredExecution},
    permits,
    records::{self, RecordRow, WriteCounts},
    removal::Removal,
    rewrite::{self, RowRewrite},
    rows,
    vectors::VectorRows,
};

/// Maximum number of cached logs. It exceeds the number of logs that grow at the same time.
const MAX_CACHED_LOGS: usize = 65_536;
/// Time for which expired leases and cached outputs are kept.
const EXPIRED_ROW_RETENTION_MICROS: i64 = 60_000_000;

#[derive(Debug)]
pub(super) enum Change {
    Append(Append),
    PutHead(ExecutionHead),
    /// A lease, and the layout that its worker writes.
    PutLease(Lease, u32),
    RemoveWorkers(Vec<WorkerId>),
    SendCommand(SentCommand),
    RemoveCommands(Vec<CommandId>),
    PutRequest(RequestRow),
    PutPlan(PlanRow),
    AddTranscript {
        request: RequestId,
        entries: Vec<String>,
    },
    AcquirePermits {
        ask: PermitAsk,
        now: Timestamp,
    },
    ReleasePermits(Vec<Permit>),
    PutRecord {
        row: RecordRow,
        unless: WriteCondition,
    },
    RemoveRecord {
        kind: RecordKind,
        name: String,
    },
    PutVectors(VectorRows),
    PutAudit(Vec<AuditEntry>),
    Prune(Removal),
    Rewrite(Vec<RowRewrite>),
}

#[derive(Debug)]
pub(super) struct RequestRow {
    pub(super) id: String,
    pub(super) created_at: i64,
    pub(super) query: String,
    pub(super) folded_query: String,
    /// JSON, or `None` if there are no labels.
    pub(super) labels: Option<String>,
}

#[derive(Debug)]
pub(super) struct PlanRow {
    pub(super) id: String,
    pub(super) request: String,
    pub(super) version: u32,
    pub(super) created_at: i64,
    pub(super) folded_query: String,
    pub(super) json: String,
    pub(super) tools: Vec<String>,
    pub(super) sub_plans: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Answer {
    Done,
    /// The log does not end where the append begins.
    Conflict,
    /// The id or the name exists, or the condition of a write does not hold.
    Taken,
    /// There is no record to remove.
    Absent,
    Full,
    Permission(Permission),
    Removed(usize),
    Added(usize),
    Replaced(usize),
}

impl Answer {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

impl Change {
    /// The approximate size of the written data, or 0 for kinds of changes that are usually small.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append(append) => append.bytes(),
            Self::PutPlan(plan) => plan.json.len(),
            Self::AddTranscript { entries, .. } => entries.iter().map(String::len).sum(),
            Self::PutRequest(request) => request.query.len(),
            Self::PutRecord { row, .. } => row.json.len(),
            Self::PutVectors(vectors) => vectors.bytes(),
            Self::Rewrite(rewrites) => rewrites.iter().map(RowRewrite::bytes).sum(),
            _ => 0,
        }
    }

    /// Wakes the tasks that wait for this kind of change. Call it after the commit, because the
    /// tasks then read the store.
    pub(super) fn send_hints(&self, hints: &Hints) {
        match self {
            Self::Append(append) => {
                hints.wake_log(append.execution);
                if append.head.as_ref().is_some_and(ExecutionHead::is_claimable) {
                    hints.wake_work();
                }
            }
            Self::PutHead(head) if head.is_claimable() => hints.wake_work(),
            Self::RemoveWorkers(_) | Self::ReleasePermits(_) => hints.wake_work(),
            Self::SendCommand(_) => hints.wake_inbox(),
            Self::PutRecord { row, .. } if row.kind.is_shared_by_nodes() => hints.wake_records(),
            Self::RemoveRecord { kind, .. } if kind.is_shared_by_nodes() => hints.wake_records(),
            _ => (),
        }
    }

    /// Writes the change. [`Answer::Conflict`], [`Answer::Taken`] and [`Answer::Full`] mean that
    /// nothing was written.
    pub(super) fn apply(
        &self,
        connection: &Connection,
        logs: &mut LogCache,
    ) -> rusqlite::Result<Answer> {
        match self {
            Self::Append(append) => return logs.append(connection, append),
            Self::PutHead(head) => {
                // Does nothing if there is no log, because the execution was then removed.
                if let Some(log) = logs.find_log(connection, head.execution)? {
                    let before = counts::find_counted(connection, log.number)?;
                    logs.put_head(connection, log.number, head, before)?;
                    if head.state.is_finished() {
                        logs.remove_log(head.execution);
                    }
                }
            }
            Self::PutLease(lease, layout) => put_lease(connection, lease, *layout)?,
            Self::RemoveWorkers(workers) => remove_workers(connection, workers)?,
            Self::SendCommand(command) => return send_command(connection, command),
            Self::RemoveCommands(commands) => remove_commands(connection, commands)?,
            Self::PutRequest(request) => return put_request(connection, request),
            Self::PutPlan(plan) => return put_plan(connection, plan),
            Self::AddTranscript { request, entries } => {
                add_transcript(connection, *request, entries)?;
            }
            Self::AcquirePermits { ask, now } => {
                return permits::acquire_permits(connection, ask, *now);
            }
            Self::ReleasePermits(permits) => permits::release_permits(connection, permits)?,
            Self::PutRecord { row, unless } => {
                return logs.record_counts.put_record(connection, row, unless);
            }
            Self::PutVectors(vectors) => vectors.put(connection)?,
            Self::PutAudit(entries) => {
                return audit::put_entries(connection, entries).map(Answer::Added);
            }
            Self::RemoveRecord { kind, name } => {
                return records::remove_record(connection, *kind, name);
            }
            Self::Prune(removal) => {
                return removal.apply(connection, logs).map(Answer::Removed);
            }
            Self::Rewrite(rewrites) => {
                return rewrite::apply_all(connection, rewrites).map(Answer::Replaced);
            }
        }
        Ok(Answer::Done)
    }
}

/// Writes a lease. Also removes cached outputs, and leases of workers that own no execution, if
/// they expired long ago.
fn put_lease(connection: &Connection, lease: &Lease, layout: u32) -> rusqlite::Result<()> {
    let sql =
        "INSERT OR REPLACE INTO workers (worker, node, until, layout) VALUES (?1, ?2, ?3, ?4)";
    let until = lease.until.timestamp_micros();
    let row = params![lease.worker.to_string(), lease.node, until, layout];
    connection.prepare_cached(sql)?.execute(row)?;
    let long_ago = until.saturating_sub(EXPIRED_ROW_RETENTION_MICROS);
    let sql = "DELETE FROM workers WHERE until < ?1
        AND NOT EXISTS (SELECT 1 FROM executions WHERE owner = worker)";
    if connection.prepare_cached(sql)?.execute([long_ago])? > 0 {
        permits::remove_permits_of_unknown_workers(connection)?;
    }
    let sql = "DELETE FROM outputs WHERE until < ?1";
    connection.prepare_cached(sql)?.execute([long_ago]).map(drop)
}

fn remove_workers(connection: &Connection, workers: &[WorkerId]) -> rusqlite::Result<()> {
    let mut lease = connection.prepare_cached("DELETE FROM workers WHERE worker = ?1")?;
    let mut permits = connection.prepare_cached("DELETE FROM permits WHERE worker = ?1")?;
    for worker in workers.iter().map(ToString::to_string) {
        lease.execute([&worker])?;
        permits.execute([&worker])?;
    }
    Ok(())
}

fn send_command(connection: &Connection, command: &SentCommand) -> rusqlite::Result<Answer> {
    let sql = "INSERT OR IGNORE INTO inbox (id, executionId, json) SELECT ?1, ?2, ?3
        WHERE (SELECT count(*) FROM (SELECT 1 FROM inbox WHERE executionId = ?2 LIMIT ?4)) < ?4";
    let json = serde_json::to_string(command).expect("commands are JSON");
    let (id, execution) = (command.id.to_string(), command.execution.to_string());
    let row = params![id, execution, json, limits::INBOX_COMMANDS.cast_signed()];
    if connection.prepare_cached(sql)?.execute(row)? == 1 {
        if let Some(entry) = AuditEntry::of_command(command) {
            audit::put_entry(connection, &entry)?;
        }
        return Ok(Answer::Done);
    }
    let exists = connection.prepare_cached("SELECT 1 FROM inbox WHERE id = ?1")?.exists([id])?;
    Ok(if exists { Answer::Done } else { Answer::Full })
}

fn put_request(connection: &Connection, request: &RequestRow) -> rusqlite::Result<Answer> {
    let RequestRow { id, created_at, query, folded_query, labels } = request;
    let inserted = if let Some(labels) = labels {
        let sql = "INSERT OR IGNORE INTO requests (requestId, createdAt, query, folded, labels)
            VALUES (?1, ?2, ?3, ?4, ?5)";
        let row = params![id, created_at, query, folded_query, labels];
        connection.prepare_cached(sql)?.execute(row)?
    } else {
        let sql = "INSERT OR IGNORE INTO requests (requestId, createdAt, query, folded)
            VALUES (?1, ?2, ?3, ?4)";
        connection.prepare_cached(sql)?.execute(params![id, created_at, query, folded_query])?
    };
    Ok(if inserted == 0 { Answer::Taken } else { Answer::Done })
}

fn add_transcript(
    connection: &Connection,
    request: RequestId,
    entries: &[String],
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO transcripts (requestId, json) VALUES (?1, ?2)";
    let mut insert = connection.prepare_cached(sql)?;
    let request = request.to_string();
    entries.iter().try_for_each(|json| insert.execute(params![request, json]).map(drop))
}

fn remove_commands(connection: &Connection, commands: &[CommandId]) -> rusqlite::Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut delete = connection.prepare_cached("DELETE FROM inbox WHERE id = ?1")?;
    commands.iter().try_for_each(|id| delete.execute([id.to_string()]).map(drop))
}

fn put_plan(connection: &Connection, plan: &PlanRow) -> rusqlite::Result<Answer> {
    let PlanRow { id, request, version, created_at, folded_query, json, tools, sub_plans } = plan;
    let sql = "INSERT OR IGNORE INTO plans (planId, requestId, version, createdAt, folded, json)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let row = params![id, request, version, created_at, folded_query, json];
    if connection.prepare_cached(sql)?.execute(row)? == 0 {
        return Ok(Answer::Taken);
    }
    let mut insert = connection.prepare_cached("INSERT INTO plan_tools VALUES (?1, ?2)")?;
    tools.iter().try_for_each(|tool| insert.execute([id, tool]).map(drop))?;
    let mut insert = connection.prepare_cached("INSERT INTO plan_parts VALUES (?1, ?2)")?;
    sub_plans.iter().try_for_each(|sub_plan| insert.execute([id, sub_plan]).map(drop))?;
    Ok(Answer::Done)
}

/// Remembers the ends of logs between commits, until another process writes. Remembers only logs of
/// unfinished executions, so an append to a remembered log finds no count to replace.
#[derive(Debug, Default)]
pub(super) struct LogCache {
    logs: BTreeMap<ExecutionId, LogEnd>,
    record_counts: WriteCounts,
    counts: CountChanges,
    /// SQLite's `data_version` for which the cache is correct.
    data_version: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct LogEnd {
    number: i64,
    end: Seq,
}

impl LogCache {
    /// Clears the cache and returns `true` if another connection wrote since the last call.
    pub(super) fn clear_if_stale(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let sql = "PRAGMA data_version";
        let version = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        let before = self.data_version.replace(version);
        let is_stale = before.is_some_and(|before| before != version);
        if is_stale {
            self.clear();
        }
        Ok(is_stale)
    }

    /// Clears the cache. Call it after a transaction was rolled back, and before the first change
    /// of the next transaction if another process has written.
    pub(super) fn clear(&mut self) {
        self.logs.clear();
        self.counts.clear();
    }

    pub(super) fn remove_log(&mut self, id: ExecutionId) {
        self.logs.remove(&id);
    }

    /// Writes the changes of counts. Call it at the end of each transaction.
    pub(super) fn write_counts(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.counts.write(connection)
    }

    /// Removes an execution from the counts. Call it before its head is removed, because the head
    /// says which cells count the execution.
    pub(super) fn uncount_execution(
        &mut self,
        connection: &Connection,
        log: i64,
    ) -> rusqlite::Result<()> {
        self.counts.remove_execution(counts::find_counted(connection, log)?);
        Ok(())
    }

    fn put_head(
        &mut self,
        connection: &Connection,
        log: i64,
        head: &ExecutionHead,
        before: Option<StoredExecution>,
    ) -> rusqlite::Result<()> {
        if rows::put_head(connection, log, head)? {
            self.counts.replace_execution(before, head);
        }
        Ok(())
    }

    fn append(&mut self, connection: &Connection, append: &Append) -> rusqlite::Result<Answer> {
        let log = match append.after {
            Seq::START => self.find_or_create_log(connection, append.execution)?,
            _ => match self.find_log(connection, append.execution)? {
                Some(log) => log,
                None => return Ok(Answer::Conflict),
            },
        };
        if log.end != append.after {
            return Ok(Answer::Conflict);
        }
        let sql = "INSERT INTO events (log, first, len, json) VALUES (?1, ?2, ?3, ?4)";
        let mut insert = connection.prepare_cached(sql)?;
        for document in &append.documents {
            let first = document.first.0.cast_signed();
            insert.execute(params![
                log.number,
                first,
                document.len.cast_signed(),
                document.json
            ])?;
        }
        if let Some(head) = &append.head {
            let is_unfinished = self.logs.contains_key(&append.execution);
            let before =
                if is_unfinished { None } else { counts::find_counted(connection, log.number)? };
            self.put_head(connection, log.number, head, before)?;
        }
        remove_commands(connection, &append.handled_commands)?;
        if let Some(entry) = &append.audit {
            audit::put_entry(connection, entry)?;
        }
        if append.head.as_ref().is_some_and(|head| head.state.is_finished()) {
            self.logs.remove(&append.execution);
        } else {
            self.insert_log(append.execution, LogEnd { end: append.end(), ..log });
        }
        Ok(Answer::Done)
    }

    fn insert_log(&mut self, id: ExecutionId, log: LogEnd) {
        if self.logs.len() >= MAX_CACHED_LOGS {
            self.logs.clear();
        }
        self.logs.insert(id, log);
    }

    fn find_log(
        &self,
        connection: &Connection,
        id: ExecutionId,
    ) -> rusqlite::Result<Option<LogEnd>> {
        if let Some(log) = self.logs.get(&id) {
            return Ok(Some(*log));
        }
        let sql = "SELECT number, COALESCE((SELECT first + len - 1 FROM events WHERE log = number
                   ORDER BY first DESC LIMIT 1), 0) FROM logs WHERE executionId = ?1";
        let log = |row: &rusqlite::Row<'_>| {
            let end: i64 = row.get(1)?;
            Ok(LogEnd { number: row.get(0)?, end: Seq(end.cast_unsigned()) })
        };
        connection.prepare_cached(sql)?.query_row([id.to_string()], log).optional()
    }

    fn find_or_create_log(
        &mut self,
        connection: &Connection,
        id: ExecutionId,
    ) -> rusqlite::Result<LogEnd> {
        if let Some(log) = self.find_log(connection, id)? {
            return Ok(log);
        }
        let sql = "INSERT INTO logs (executionId) VALUES (?1)";
        let number = connection.prepare_cached(sql)?.insert([id.to_string()])?;
        let log = LogEnd { number, end: Seq::START };
        self.insert_log(id, log);
        Ok(log)
    }
}
