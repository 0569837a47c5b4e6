//! Logs, claims and inboxes in the file.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, ToSql, params};
use shared::{
    clock::{Clock as _, Timestamp},
    event::RecordedEvent,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    limits,
    store::{
        Append, AppendError, EventDocument, ExecutionHead, HeadQuery, Hints, Inbox, Lease, Log,
        Permission, Permit, PermitAsk, Permits, Pruned, SentCommand, Store, StoreError,
        backend::{Assembly, add_longest_due, aged_places, inbox_full_error, skip_damaged},
    },
};

use super::{
    Answer, Change, Sqlite,
    connection::failed,
    lives::Lives,
    permits,
    removal::{self, BATCH, Kind, Removal},
    rows,
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
        self.write(Change::Head(head)).await.map(drop)
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.readers.read(move |connection| read(connection, id, after)).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        let HeadQuery::Orphans { now } = query else {
            return self.readers.read(move |connection| find(connection, query, most)).await;
        };
        let lives = Arc::clone(&self.lives);
        let find = move |connection: &Connection| orphans(connection, now, most, &lives);
        let (dead, heads) = self.readers.read(find).await?;
        if !dead.is_empty() {
            self.write(Change::Retire(dead)).await?;
        }
        Ok(heads)
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.lives.hold(lease.worker);
        self.plans.evict_idle();
        self.readers.free_caches();
        self.write(Change::Lease(lease)).await.map(drop)
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.write(Change::Retire(vec![worker])).await?;
        self.lives.release(worker);
        Ok(())
    }

    async fn list_workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError> {
        let leases = self.readers.read(|it| leases(it).map_err(|err| failed(&err))).await?;
        let live = leases.into_iter().filter(|(_, until)| *until > now.timestamp_micros());
        let live: Result<Vec<WorkerId>, _> = live.map(|(it, _)| rows::parse(&it, &it)).collect();
        let mut live = live?;
        let dead = self.bury(live.iter().copied()).await?;
        live.retain(|it| !dead.contains(it));
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
        let permission = self.take(ask, now).await?;
        if permission != Permission::Full {
            return Ok(permission);
        }
        let keys = ask.limits.iter().map(|it| it.key.clone()).collect::<Vec<_>>();
        let holders = self.readers.read(move |it| permits::holders(it, &keys)).await?;
        if self.bury(holders).await?.is_empty() {
            return Ok(permission);
        }
        self.take(ask, now).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.write(Change::Release(permits)).await.map(drop)
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.write(Change::Remove(Removal::Rest { before })).await?;
        self.remove_all_old_calls(before).await?;
        let (executions, more) = self.remove(Kind::Executions, before, most).await?;
        let mut pruned = Pruned { executions, more, ..Pruned::default() };
        if more {
            return Ok(pruned);
        }
        let plans = self.readers.read(move |it| Kind::Plans.find(it, before, most)).await?;
        let have_parts = self.readers.read(move |it| removal::have_parts(it, &plans)).await?;
        let (plans, more) = self.remove(Kind::Plans, before, most).await?;
        (pruned.plans, pruned.more) = (plans, more || have_parts);
        if more {
            return Ok(pruned);
        }
        let (requests, more) = self.remove(Kind::Requests, before, most).await?;
        (pruned.requests, pruned.more) = (requests, more || have_parts);
        Ok(pruned)
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        Ok(self.time.now())
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }
}

#[async_trait]
impl Inbox for Sqlite {
    async fn send_command(&self, command: SentCommand) -> Result<(), StoreError> {
        let of = command.execution;
        match self.write(Change::Send(command)).await? {
            Answer::Full => Err(inbox_full_error(of)),
            _ => Ok(()),
        }
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        self.readers.read(move |connection| inbox(connection, of)).await
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.write(Change::Discard(commands)).await.map(drop)
    }
}

impl Sqlite {
    async fn take(&self, ask: &PermitAsk, now: Timestamp) -> Result<Permission, StoreError> {
        match self.write(Change::Acquire { ask: ask.clone(), now }).await? {
            Answer::Permission(permission) => Ok(permission),
            other => unreachable!("{other:?} answers no ask for permits"),
        }
    }

    /// Retires those workers whose processes have ended, and returns them.
    async fn bury(
        &self,
        workers: impl IntoIterator<Item = WorkerId>,
    ) -> Result<Vec<WorkerId>, StoreError> {
        let dead: Vec<_> = workers.into_iter().filter(|it| self.lives.is_dead(*it)).collect();
        if !dead.is_empty() {
            self.write(Change::Retire(dead.clone())).await?;
        }
        Ok(dead)
    }

    /// Removes the first few of what may go, and returns how many and whether there are more.
    async fn remove(
        &self,
        kind: Kind,
        before: Timestamp,
        most: usize,
    ) -> Result<(usize, bool), StoreError> {
        let find = move |it: &Connection| kind.find(it, before, most.saturating_add(1));
        let mut found = self.readers.read(find).await?;
        let more = found.len() > most;
        found.truncate(most);
        let mut removed = 0;
        for ids in found.chunks(BATCH) {
            let removal = Removal::Old { kind, before, ids: ids.to_vec() };
            if let Answer::Removed(n) = self.write(Change::Remove(removal)).await? {
                removed += n;
            }
        }
        Ok((removed, more))
    }
}

fn read(
    connection: &Connection,
    id: ExecutionId,
    after: Seq,
) -> Result<Vec<RecordedEvent>, StoreError> {
    // From the document that has the next position, or the last one.
    let sql = "SELECT first, len, json FROM logs JOIN events ON log = number
        WHERE execution = ?1 AND first >= COALESCE((SELECT max(first) FROM events
        WHERE log = number AND first <= ?2), 0) ORDER BY first";
    let mut assembly = Assembly::new(id, after);
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let next = after.next().0.cast_signed();
    let mut found = statement.query(params![id.to_string(), next]).map_err(|err| failed(&err))?;
    while let Some(row) = found.next().map_err(|err| failed(&err))? {
        if !assembly.push(document(row, id)) {
            break;
        }
    }
    assembly.finish()
}

fn document(row: &rusqlite::Row<'_>, id: ExecutionId) -> Result<EventDocument, StoreError> {
    let what = id.to_string();
    let (first, len): (i64, isize) = (rows::column(row, 0, &what)?, rows::column(row, 1, &what)?);
    Ok(EventDocument {
        first: Seq(u64::try_from(first).map_err(|err| StoreError::corrupt(&what, err))?),
        len: usize::try_from(len).map_err(|err| StoreError::corrupt(&what, err))?,
        json: rows::column(row, 2, &what)?,
    })
}

/// Reads the heads that a query selects. Orphans need more than one query.
fn find(
    connection: &Connection,
    query: HeadQuery,
    most: usize,
) -> Result<Vec<ExecutionHead>, StoreError> {
    match query {
        HeadQuery::Due { now } => due(connection, now, most),
        HeadQuery::DueAfter { now, after } => {
            let (due, id) = match after {
                Some(after) => (after.due.timestamp_micros(), after.execution.to_string()),
                None => (i64::MIN, String::new()),
            };
            let condition = format!(
                "INDEXED BY heads_queue WHERE {} AND (due, execution) > (?1, ?2) AND due <= ?3
                 ORDER BY due, execution LIMIT ?4",
                rows::FREE
            );
            let values = params![due, id, now.timestamp_micros(), limit(most)];
            heads_where(connection, &condition, values)
        }
        HeadQuery::OwnedBy(worker) => owned(connection, &worker.to_string(), most),
        HeadQuery::Finished { after, until } => {
            let condition = "INDEXED BY heads_finished WHERE finished_at IS NOT NULL
                 AND finished_at > ?1 AND finished_at <= ?2
                 ORDER BY finished_at, execution LIMIT ?3";
            let values = params![after.timestamp_micros(), until.timestamp_micros(), limit(most)];
            heads_where(connection, condition, values)
        }
        HeadQuery::Orphans { .. } => Ok(Vec::new()),
    }
}

/// Takes one priority after another, so that sleepers of a high priority are never searched for
/// those that are due; then the longest due.
fn due(
    connection: &Connection,
    now: Timestamp,
    most: usize,
) -> Result<Vec<ExecutionHead>, StoreError> {
    let by_priority = format!(
        "INDEXED BY heads_due WHERE {} AND priority = ?1 AND due <= ?2
         ORDER BY due, execution LIMIT ?3",
        rows::FREE
    );
    let first = most - aged_places(most);
    let (mut heads, mut looks, mut last) = (Vec::new(), 0, i64::MAX);
    while heads.len() < first && looks < limits::PRIORITIES {
        let next = next_priority(connection, last).map_err(|err| failed(&err))?;
        let Some(priority) = next else { return Ok(heads) };
        let values = params![priority, now.timestamp_micros(), limit(first - heads.len())];
        heads.append(&mut heads_where(connection, &by_priority, values)?);
        (looks, last) = (looks + 1, priority);
    }
    if heads.len() < most {
        let longest = find(connection, HeadQuery::DueAfter { now, after: None }, most)?;
        add_longest_due(&mut heads, longest, most);
    }
    Ok(heads)
}

/// Reads the heads that a condition selects.
fn heads_where(
    connection: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<ExecutionHead>, StoreError> {
    let sql = format!("SELECT {} FROM heads {condition}", rows::HEAD);
    rows::list_rows(connection, &sql, values, rows::head)
}

/// Returns the highest priority below `last` that something free has: one look into the index.
fn next_priority(connection: &Connection, last: i64) -> rusqlite::Result<Option<i64>> {
    let sql = format!(
        "SELECT priority FROM heads INDEXED BY heads_due WHERE {} AND priority < ?1
         ORDER BY priority DESC LIMIT 1",
        rows::FREE
    );
    connection.prepare_cached(&sql)?.query_row([last], |row| row.get(0)).optional()
}

/// Returns the workers that turn out to be dead, and the heads of all that are gone.
fn orphans(
    connection: &Connection,
    now: Timestamp,
    most: usize,
    lives: &Lives,
) -> Result<(Vec<WorkerId>, Vec<ExecutionHead>), StoreError> {
    let leases = leases(connection).map_err(|err| failed(&err))?;
    let (mut dead, mut heads) = (Vec::new(), Vec::new());
    for owner in owners(connection).map_err(|err| failed(&err))? {
        let worker = skip_damaged(rows::parse::<WorkerId>(&owner, &owner))?;
        match (leases.get(&owner), worker) {
            (Some(until), Some(worker)) if *until > now.timestamp_micros() => {
                if !lives.is_dead(worker) {
                    continue;
                }
                dead.push(worker);
            }
            _ => (),
        }
        heads.extend(owned(connection, &owner, most.saturating_sub(heads.len()))?);
    }
    Ok((dead, heads))
}

fn owned(
    connection: &Connection,
    owner: &str,
    most: usize,
) -> Result<Vec<ExecutionHead>, StoreError> {
    let condition = "INDEXED BY heads_owner WHERE owner = ?1 ORDER BY execution LIMIT ?2";
    heads_where(connection, condition, params![owner, limit(most)])
}

fn leases(connection: &Connection) -> rusqlite::Result<BTreeMap<String, i64>> {
    let mut statement = connection.prepare_cached("SELECT worker, until FROM workers")?;
    let leases = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    leases.collect()
}

/// Returns whoever has something: one look into the index for each.
fn owners(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT owner FROM heads INDEXED BY heads_owner
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

fn inbox(connection: &Connection, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
    let (sql, of) = match of {
        Some(of) => {
            ("SELECT id, json FROM inbox WHERE execution = ?1 ORDER BY arrival", of.to_string())
        }
        None => ("SELECT id, json FROM inbox WHERE ?1 = '' ORDER BY arrival", String::new()),
    };
    let (most, most_bytes) = match of.as_str() {
        "" => (limits::INBOX_LOOK, limits::INBOX_BYTES),
        _ => (usize::MAX, usize::MAX),
    };
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query([of]).map_err(|err| failed(&err))?;
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    while waiting.len() < most
        && bytes < most_bytes
        && let Some(row) = found.next().map_err(|err| failed(&err))?
    {
        let Some((envelope, len)) = skip_damaged(envelope(row))? else { continue };
        waiting.push(envelope);
        bytes += len;
    }
    Ok(waiting)
}

fn envelope(row: &rusqlite::Row<'_>) -> Result<(SentCommand, usize), StoreError> {
    let id: String = rows::column(row, 0, "a command")?;
    let json: String = rows::column(row, 1, &id)?;
    let envelope = serde_json::from_str(&json).map_err(|err| StoreError::corrupt(id, err))?;
    Ok((envelope, json.len()))
}

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
