//! What is written, and how. Everything here runs inside one transaction of the writer.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use shared::{
    clock::Timestamp,
    id::{CommandId, ExecutionId, RequestId, Seq, WorkerId},
    limits,
    store::{
        Append, ExecutionHead, Hints, Lease, Permission, Permit, PermitAsk, RecordKind,
        SentCommand, WriteCondition,
    },
};

use super::{
    permits,
    records::{self, Counts, RecordRow},
    removal::Removal,
    rows,
    vectors::VectorRows,
};

/// Logs whose ends are remembered: more than grow at the same time.
const LOGS: usize = 65_536;
/// What ended stays for so many microseconds. All processes over a file go by the same time.
const LONG: i64 = 60_000_000;

/// One operation.
#[derive(Debug)]
pub(super) enum Change {
    Append(Append),
    Head(ExecutionHead),
    Lease(Lease),
    Retire(Vec<WorkerId>),
    Send(SentCommand),
    Discard(Vec<CommandId>),
    Request { id: String, created_at: i64, query: String, folded: String },
    Plan(PlanRow),
    Transcript { request: RequestId, entries: Vec<String> },
    Acquire { ask: PermitAsk, now: Timestamp },
    Release(Vec<Permit>),
    Record { row: RecordRow, unless: WriteCondition },
    RemoveRecord { kind: RecordKind, name: String },
    Vectors(VectorRows),
    Remove(Removal),
}

/// A plan as it is kept.
#[derive(Debug)]
pub(super) struct PlanRow {
    pub(super) id: String,
    pub(super) request: String,
    pub(super) version: u32,
    pub(super) created_at: i64,
    pub(super) folded: String,
    pub(super) json: String,
    pub(super) tools: Vec<String>,
    pub(super) parts: Vec<String>,
}

/// What became of an operation.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    /// The log does not end where the append begins.
    Conflict,
    /// The identifier, or the name, is taken.
    Taken,
    /// There is nothing to remove.
    Absent,
    /// No further command can wait.
    Full,
    /// What limits say.
    Permission(Permission),
    /// So many things were removed.
    Removed(usize),
}

impl Answer {
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

impl Change {
    /// Returns about how many bytes there are to write.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append(append) => append.bytes(),
            Self::Plan(plan) => plan.json.len(),
            Self::Transcript { entries, .. } => entries.iter().map(String::len).sum(),
            Self::Request { query, .. } => query.len(),
            Self::Record { row, .. } => row.json.len(),
            Self::Vectors(vectors) => vectors.bytes(),
            _ => 0,
        }
    }

    /// Says who should look again now that it is written.
    pub(super) fn wake(&self, hints: &Hints) {
        match self {
            Self::Append(append) => {
                hints.wake_log(append.execution);
                if append.head.as_ref().is_some_and(ExecutionHead::is_claimable) {
                    hints.wake_work();
                }
            }
            Self::Head(head) if head.is_claimable() => hints.wake_work(),
            Self::Retire(_) | Self::Release(_) => hints.wake_work(),
            Self::Send(_) => hints.wake_inbox(),
            Self::Record { row, .. } if row.kind.is_shared_by_nodes() => hints.wake_records(),
            Self::RemoveRecord { kind, .. } if kind.is_shared_by_nodes() => hints.wake_records(),
            _ => (),
        }
    }

    /// Writes it. A refusal ([`Answer::Conflict`], [`Answer::Taken`]) has written nothing.
    pub(super) fn apply(
        &self,
        connection: &Connection,
        ledger: &mut Ledger,
    ) -> rusqlite::Result<Answer> {
        match self {
            Self::Append(append) => return ledger.append(connection, append),
            Self::Head(head) => {
                // Without a log it is of something that was removed.
                if let Some(log) = ledger.find(connection, head.execution)? {
                    rows::put_head(connection, log.number, head)?;
                }
            }
            Self::Lease(lease) => put_lease(connection, lease)?,
            Self::Retire(workers) => retire(connection, workers)?,
            Self::Send(envelope) => return send(connection, envelope),
            Self::Discard(commands) => discard(connection, commands)?,
            Self::Request { id, created_at, query, folded } => {
                return put_request(connection, params![id, created_at, query, folded]);
            }
            Self::Plan(plan) => return put_plan(connection, plan),
            Self::Transcript { request, entries } => {
                add_transcript(connection, *request, entries)?;
            }
            Self::Acquire { ask, now } => return permits::acquire(connection, ask, *now),
            Self::Release(permits) => permits::release(connection, permits)?,
            Self::Record { row, unless } => return ledger.counts.put(connection, row, unless),
            Self::Vectors(vectors) => vectors.put(connection)?,
            Self::RemoveRecord { kind, name } => return records::remove(connection, *kind, name),
            Self::Remove(removal) => {
                return removal.apply(connection, ledger).map(Answer::Removed);
            }
        }
        Ok(Answer::Done)
    }
}

/// Keeps a lease, and forgets what those that ended long ago left.
fn put_lease(connection: &Connection, lease: &Lease) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO workers VALUES (?1, ?2, ?3)";
    let until = lease.until.timestamp_micros();
    let row = params![lease.worker.to_string(), lease.node, until];
    connection.prepare_cached(sql)?.execute(row)?;
    let long_ago = until.saturating_sub(LONG);
    let sql = "DELETE FROM workers WHERE until < ?1
        AND NOT EXISTS (SELECT 1 FROM heads WHERE owner = worker)";
    if connection.prepare_cached(sql)?.execute([long_ago])? > 0 {
        permits::sweep(connection)?;
    }
    let sql = "DELETE FROM outputs WHERE until < ?1";
    connection.prepare_cached(sql)?.execute([long_ago]).map(drop)
}

fn retire(connection: &Connection, workers: &[WorkerId]) -> rusqlite::Result<()> {
    let mut lease = connection.prepare_cached("DELETE FROM workers WHERE worker = ?1")?;
    let mut permits = connection.prepare_cached("DELETE FROM permits WHERE worker = ?1")?;
    for worker in workers.iter().map(ToString::to_string) {
        lease.execute([&worker])?;
        permits.execute([&worker])?;
    }
    Ok(())
}

fn send(connection: &Connection, envelope: &SentCommand) -> rusqlite::Result<Answer> {
    let sql = "INSERT OR IGNORE INTO inbox (id, execution, json) SELECT ?1, ?2, ?3
        WHERE (SELECT count(*) FROM (SELECT 1 FROM inbox WHERE execution = ?2 LIMIT ?4)) < ?4";
    let json = serde_json::to_string(envelope).expect("envelopes are JSON");
    let (id, of) = (envelope.id.to_string(), envelope.execution.to_string());
    let row = params![id, of, json, limits::INBOX.cast_signed()];
    if connection.prepare_cached(sql)?.execute(row)? == 1 {
        return Ok(Answer::Done);
    }
    let is_there = connection.prepare_cached("SELECT 1 FROM inbox WHERE id = ?1")?.exists([id])?;
    Ok(if is_there { Answer::Done } else { Answer::Full })
}

fn put_request(connection: &Connection, row: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<Answer> {
    let sql = "INSERT OR IGNORE INTO requests VALUES (?1, ?2, ?3, ?4)";
    let inserted = connection.prepare_cached(sql)?.execute(row)?;
    Ok(if inserted == 0 { Answer::Taken } else { Answer::Done })
}

fn add_transcript(
    connection: &Connection,
    request: RequestId,
    entries: &[String],
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO transcripts (request, json) VALUES (?1, ?2)";
    let mut insert = connection.prepare_cached(sql)?;
    entries.iter().try_for_each(|it| insert.execute(params![request.to_string(), it]).map(drop))
}

fn discard(connection: &Connection, commands: &[CommandId]) -> rusqlite::Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut delete = connection.prepare_cached("DELETE FROM inbox WHERE id = ?1")?;
    commands.iter().try_for_each(|it| delete.execute([it.to_string()]).map(drop))
}

fn put_plan(connection: &Connection, plan: &PlanRow) -> rusqlite::Result<Answer> {
    let PlanRow { id, request, version, created_at, folded, json, tools, parts } = plan;
    let sql = "INSERT OR IGNORE INTO plans VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let row = params![id, request, version, created_at, folded, json];
    if connection.prepare_cached(sql)?.execute(row)? == 0 {
        return Ok(Answer::Taken);
    }
    let mut insert = connection.prepare_cached("INSERT INTO plan_tools VALUES (?1, ?2)")?;
    tools.iter().try_for_each(|it| insert.execute([id, it]).map(drop))?;
    let mut insert = connection.prepare_cached("INSERT INTO plan_parts VALUES (?1, ?2)")?;
    parts.iter().try_for_each(|it| insert.execute([id, it]).map(drop))?;
    Ok(Answer::Done)
}

/// Where logs end, remembered from one commit to the next as long as nobody else writes.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    logs: BTreeMap<ExecutionId, Log>,
    counts: Counts,
    /// SQLite's number of the state that this is a memory of.
    version: Option<i64>,
}

/// A log that the ledger knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    number: i64,
    end: Seq,
}

impl Ledger {
    /// Returns whether another connection wrote since the last time, and forgets what may be wrong.
    pub(super) fn is_stale(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let sql = "PRAGMA data_version";
        let version = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        let before = self.version.replace(version);
        let is_stale = before.is_some_and(|it| it != version);
        if is_stale {
            self.logs.clear();
        }
        Ok(is_stale)
    }

    /// Forgets everything, as after a transaction that did not happen.
    pub(super) fn forget(&mut self) {
        self.logs.clear();
    }

    /// Forgets a log that is removed.
    pub(super) fn forget_log(&mut self, id: ExecutionId) {
        self.logs.remove(&id);
    }

    fn append(&mut self, connection: &Connection, append: &Append) -> rusqlite::Result<Answer> {
        let log = match append.after {
            Seq::START => self.find_or_make(connection, append.execution)?,
            _ => match self.find(connection, append.execution)? {
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
            rows::put_head(connection, log.number, head)?;
        }
        discard(connection, &append.heard)?;
        self.note(append, log);
        Ok(Answer::Done)
    }

    fn note(&mut self, append: &Append, log: Log) {
        if append.head.as_ref().is_some_and(|it| it.state.is_finished()) {
            self.logs.remove(&append.execution);
            return;
        }
        self.remember(append.execution, Log { end: append.end(), ..log });
    }

    fn remember(&mut self, id: ExecutionId, log: Log) {
        if self.logs.len() >= LOGS {
            self.logs.clear();
        }
        self.logs.insert(id, log);
    }

    fn find(&self, connection: &Connection, id: ExecutionId) -> rusqlite::Result<Option<Log>> {
        if let Some(log) = self.logs.get(&id) {
            return Ok(Some(*log));
        }
        let sql = "SELECT number, COALESCE((SELECT first + len - 1 FROM events WHERE log = number
                   ORDER BY first DESC LIMIT 1), 0) FROM logs WHERE execution = ?1";
        let log = |row: &rusqlite::Row<'_>| {
            let end: i64 = row.get(1)?;
            Ok(Log { number: row.get(0)?, end: Seq(end.cast_unsigned()) })
        };
        connection.prepare_cached(sql)?.query_row([id.to_string()], log).optional()
    }

    fn find_or_make(&mut self, connection: &Connection, id: ExecutionId) -> rusqlite::Result<Log> {
        if let Some(log) = self.find(connection, id)? {
            return Ok(log);
        }
        let sql = "INSERT INTO logs (execution) VALUES (?1)";
        let number = connection.prepare_cached(sql)?.insert([id.to_string()])?;
        let log = Log { number, end: Seq::START };
        self.remember(id, log);
        Ok(log)
    }
}
