//! Event logs, leases, permits and inboxes in the file. Methods read in the [pool](super::readers),
//! and write by sending a [`Change`] to the writer.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, ToSql, params};
use shared::{
    clock::{Clock as _, Timestamp},
    event::RecordedEvent,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    limits,
    store::{
        Append, AppendError, ExecutionHead, HeadQuery, Hints, Inbox, Lease, Log, Permission,
        Permit, PermitAsk, Permits, Pruned, Removable, Rewrite, SentCommand, Store, StoreError,
        StoredKey, StoredPage, StoredPart,
        backend::{Assembly, inbox_full_error, skip_damaged},
    },
};

use super::{
    Answer, Change, Sqlite,
    connection::to_store_error,
    due, permits,
    removal::{self, BATCH_LEN, Removal, UnusedKind},
    rewrite::{self, RowRewrite},
    rows,
    worker_locks::WorkerLocks,
};

#[async_trait]
impl Log for Sqlite {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        append.check()?;
        match self.write(Change::Append(append)).await? {
            Answer::Conflict => Err(AppendError::Conflict),
            _ => Ok(()),
        }
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        self.write(Change::PutHead(head)).await.map(drop)
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.readers.read(move |connection| read_events(connection, id, after)).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        let HeadQuery::Orphans { now } = query else {
            return self.readers.read(move |connection| find_heads(connection, query, most)).await;
        };
        let locks = Arc::clone(&self.locks);
        let find = move |connection: &Connection| find_orphans(connection, now, most, &locks);
        let (dead, heads) = self.readers.read(find).await?;
        if !dead.is_empty() {
            self.write(Change::RemoveWorkers(dead)).await?;
        }
        Ok(heads)
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.locks.acquire(lease.worker);
        self.plans.evict_idle();
        self.readers.free_caches();
        self.write(Change::PutLease(lease, self.layout)).await.map(drop)
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.write(Change::RemoveWorkers(vec![worker])).await?;
        self.locks.release(worker);
        Ok(())
    }

    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        let mut live = self.readers.read(move |connection| read_leases(connection, now)).await?;
        let dead = self.remove_dead_workers(live.iter().map(|lease| lease.worker)).await?;
        live.retain(|lease| !dead.contains(&lease.worker));
        Ok(live)
    }
}

#[async_trait]
impl Permits for Sqlite {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        let permission = self.take_permits(ask, now).await?;
        if permission != Permission::Full {
            return Ok(permission);
        }
        let keys = ask.limits.iter().map(|limit| limit.key.clone()).collect::<Vec<_>>();
        let find = move |connection: &Connection| permits::find_holders(connection, &keys);
        let holders = self.readers.read(find).await?;
        if self.remove_dead_workers(holders).await?.is_empty() {
            return Ok(permission);
        }
        self.take_permits(ask, now).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.write(Change::ReleasePermits(permits)).await.map(drop)
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.write(Change::Prune(Removal::Expired { before })).await?;
        self.remove_all_old_calls(before).await?;
        if most == 0 {
            return Ok(Pruned::default());
        }
        let (executions, more) = self.remove_unused(UnusedKind::Executions, before, most).await?;
        let mut pruned = Pruned { executions, more, ..Pruned::default() };
        if more {
            return Ok(pruned);
        }
        let has_sub_plans = self
            .readers
            .read(move |connection| {
                let plans = UnusedKind::Plans.find_unused(connection, before, most)?;
                removal::has_sub_plans(connection, &plans)
            })
            .await?;
        let (plans, more) = self.remove_unused(UnusedKind::Plans, before, most).await?;
        (pruned.plans, pruned.more) = (plans, more || has_sub_plans);
        if more {
            return Ok(pruned);
        }
        let (requests, more) = self.remove_unused(UnusedKind::Requests, before, most).await?;
        (pruned.requests, pruned.more) = (requests, more || has_sub_plans);
        Ok(pruned)
    }

    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError> {
        self.remove_objects(objects).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        Ok(self.time.now())
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    async fn count_stored(&self, part: StoredPart) -> Result<u64, StoreError> {
        self.readers.read(move |connection| rewrite::count_rows(connection, part)).await
    }

    async fn list_stored(
        &self,
        part: StoredPart,
        after: Option<StoredKey>,
    ) -> Result<StoredPage, StoreError> {
        let layout = self.layout;
        self.readers
            .read(move |connection| rewrite::list_stored(connection, part, after.as_ref(), layout))
            .await
    }

    async fn replace_stored(&self, rewrites: Vec<Rewrite>) -> Result<u64, StoreError> {
        let rewrites = rewrites.into_iter().filter_map(RowRewrite::new).collect();
        match self.write(Change::Rewrite(rewrites)).await? {
            Answer::Replaced(rows) => Ok(rows as u64),
            _ => Ok(0),
        }
    }
}

#[async_trait]
impl Inbox for Sqlite {
    async fn send_command(&self, command: SentCommand) -> Result<(), StoreError> {
        let execution = command.execution;
        match self.write(Change::SendCommand(command)).await? {
            Answer::Full => Err(inbox_full_error(execution)),
            _ => Ok(()),
        }
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        self.readers.read(move |connection| read_commands(connection, of)).await
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.write(Change::RemoveCommands(commands)).await.map(drop)
    }
}

impl Sqlite {
    async fn take_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        match self.write(Change::AcquirePermits { ask: ask.clone(), now }).await? {
            Answer::Permission(permission) => Ok(permission),
            other => unreachable!("{other:?} is no answer to `AcquirePermits`"),
        }
    }

    async fn remove_dead_workers(
        &self,
        workers: impl IntoIterator<Item = WorkerId>,
    ) -> Result<Vec<WorkerId>, StoreError> {
        let dead: Vec<_> =
            workers.into_iter().filter(|worker| self.locks.remove_if_dead(*worker)).collect();
        if !dead.is_empty() {
            self.write(Change::RemoveWorkers(dead.clone())).await?;
        }
        Ok(dead)
    }

    /// Removes the oldest unused executions, plans or requests. Returns the number of removed
    /// items, and `true` if more are left.
    async fn remove_unused(
        &self,
        kind: UnusedKind,
        before: Timestamp,
        most: usize,
    ) -> Result<(usize, bool), StoreError> {
        let mut found = self
            .readers
            .read(move |connection| kind.find_unused(connection, before, most.saturating_add(1)))
            .await?;
        let more = found.len() > most;
        found.truncate(most);
        let mut removed = 0;
        for ids in found.chunks(BATCH_LEN) {
            let removal = Removal::Unused { kind, before, ids: ids.to_vec() };
            if let Answer::Removed(n) = self.write(Change::Prune(removal)).await? {
                removed += n;
            }
        }
        Ok((removed, more))
    }
}

pub(super) fn read_events(
    connection: &Connection,
    id: ExecutionId,
    after: Seq,
) -> Result<Vec<RecordedEvent>, StoreError> {
    // Starts at the last document that begins at or before the next position.
    let sql = "SELECT first, len, json FROM logs JOIN events ON log = number
        WHERE executionId = ?1 AND first >= COALESCE((SELECT max(first) FROM events
        WHERE log = number AND first <= ?2), 0) ORDER BY first";
    let mut assembly = Assembly::new(id, after);
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let next = after.next().0.cast_signed();
    let mut found =
        statement.query(params![id.to_string(), next]).map_err(|err| to_store_error(&err))?;
    while let Some(row) = found.next().map_err(|err| to_store_error(&err))? {
        if !assembly.push(rows::read_document(row, id)) {
            break;
        }
    }
    assembly.finish()
}

/// Answers every query but [`HeadQuery::Orphans`]. [`find_orphans`] answers that query, because it
/// needs the lock files.
pub(super) fn find_heads(
    connection: &Connection,
    query: HeadQuery,
    most: usize,
) -> Result<Vec<ExecutionHead>, StoreError> {
    match query {
        HeadQuery::Due { now, turn } => due::find_due(connection, now, turn, most),
        HeadQuery::DueAfter { now, after } => {
            let (due, id) = match after {
                Some(after) => (after.due.timestamp_micros(), after.execution.to_string()),
                None => (i64::MIN, String::new()),
            };
            let condition = format!(
                "INDEXED BY heads_queue WHERE {} AND (dueAt, executionId) > (?1, ?2) AND dueAt <= ?3
                 ORDER BY dueAt, executionId LIMIT ?4",
                rows::IS_CLAIMABLE
            );
            let values = params![due, id, now.timestamp_micros(), to_limit(most)];
            list_heads_where(connection, &condition, values)
        }
        HeadQuery::OwnedBy(worker) => find_owned(connection, &worker.to_string(), most),
        HeadQuery::Finished { after, until } => {
            let condition = "INDEXED BY heads_finished WHERE finishedAt IS NOT NULL
                 AND finishedAt > ?1 AND finishedAt <= ?2
                 ORDER BY finishedAt, executionId LIMIT ?3";
            let (after, until) = (after.timestamp_micros(), until.timestamp_micros());
            list_heads_where(connection, condition, params![after, until, to_limit(most)])
        }
        HeadQuery::Orphans { .. } => Ok(Vec::new()),
    }
}

pub(super) fn list_heads_where(
    connection: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<ExecutionHead>, StoreError> {
    let sql = format!("SELECT {} FROM executions {condition}", rows::HEAD_COLUMNS);
    rows::list_rows(connection, &sql, values, rows::read_head)
}

/// Returns the dead workers that still have a lease, and the heads of at most `most` orphans. An
/// orphan is an execution whose owner is dead or has no valid lease.
fn find_orphans(
    connection: &Connection,
    now: Timestamp,
    most: usize,
    locks: &WorkerLocks,
) -> Result<(Vec<WorkerId>, Vec<ExecutionHead>), StoreError> {
    let leases = find_leases(connection).map_err(|err| to_store_error(&err))?;
    let (mut dead, mut heads) = (Vec::new(), Vec::new());
    for owner in find_owners(connection).map_err(|err| to_store_error(&err))? {
        let worker = skip_damaged(rows::parse::<WorkerId>(&owner, &owner))?;
        match (leases.get(&owner), worker) {
            (Some(until), Some(worker)) if *until > now.timestamp_micros() => {
                if !locks.remove_if_dead(worker) {
                    continue;
                }
                dead.push(worker);
            }
            _ => (),
        }
        heads.extend(find_owned(connection, &owner, most.saturating_sub(heads.len()))?);
    }
    Ok((dead, heads))
}

fn find_owned(
    connection: &Connection,
    owner: &str,
    most: usize,
) -> Result<Vec<ExecutionHead>, StoreError> {
    let condition = "INDEXED BY heads_owner WHERE owner = ?1 ORDER BY executionId LIMIT ?2";
    list_heads_where(connection, condition, params![owner, to_limit(most)])
}

fn find_leases(connection: &Connection) -> rusqlite::Result<BTreeMap<String, i64>> {
    let mut statement = connection.prepare_cached("SELECT worker, until FROM workers")?;
    let leases = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    leases.collect()
}

fn read_leases(connection: &Connection, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
    let sql = "SELECT worker, node, until FROM workers WHERE until > ?1 ORDER BY worker";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows: Vec<(String, String, i64)> = connection
        .prepare_cached(sql)
        .and_then(|mut found| found.query_map([now.timestamp_micros()], read)?.collect())
        .map_err(|err| to_store_error(&err))?;
    let leases = rows.into_iter().map(|(worker, node, until)| {
        let until = rows::to_time(until, &worker)?;
        Ok(Lease { worker: rows::parse(&worker, &worker)?, node, until })
    });
    leases.collect()
}

/// Returns the owners of executions, with one access to the index for each owner.
fn find_owners(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT owner FROM executions INDEXED BY heads_owner
        WHERE owner IS NOT NULL AND owner > ?1 ORDER BY owner LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut owners: Vec<String> = Vec::new();
    loop {
        let last = owners.last().map_or("", String::as_str);
        let next = statement.query_row([last], |row| row.get(0)).optional()?;
        match next {
            Some(next) => owners.push(next),
            None => return Ok(owners),
        }
    }
}

fn read_commands(
    connection: &Connection,
    of: Option<ExecutionId>,
) -> Result<Vec<SentCommand>, StoreError> {
    let (sql, of) = match of {
        Some(of) => {
            ("SELECT id, json FROM inbox WHERE executionId = ?1 ORDER BY arrival", of.to_string())
        }
        None => ("SELECT id, json FROM inbox WHERE ?1 = '' ORDER BY arrival", String::new()),
    };
    let (most, most_bytes) = match of.as_str() {
        "" => (limits::INBOX_POLL_COMMANDS, limits::INBOX_POLL_BYTES),
        _ => (usize::MAX, usize::MAX),
    };
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let mut found = statement.query([of]).map_err(|err| to_store_error(&err))?;
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    while waiting.len() < most
        && bytes < most_bytes
        && let Some(row) = found.next().map_err(|err| to_store_error(&err))?
    {
        let Some((command, len)) = skip_damaged(read_command(row))? else { continue };
        waiting.push(command);
        bytes += len;
    }
    Ok(waiting)
}

fn read_command(row: &rusqlite::Row<'_>) -> Result<(SentCommand, usize), StoreError> {
    let id: String = rows::read_column(row, 0, "a command")?;
    let json: String = rows::read_column(row, 1, &id)?;
    let command = serde_json::from_str(&json).map_err(|err| StoreError::corrupt(id, err))?;
    Ok((command, json.len()))
}

pub(super) fn to_limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
