//! Logs, claims and inboxes in the file.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    Answer, Change, Sqlite,
    connection::failed,
    rows::{self, good},
};
use crate::{
    clock::Timestamp,
    event::Recorded,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    store::{
        Append, AppendError, Document, Envelope, ExecutionLog, Head, Hints, Lease, StoreError,
        assembly::Assembly,
    },
};

#[async_trait]
impl ExecutionLog for Sqlite {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        match self.write(Change::Append(append)).await? {
            Answer::Conflict => Err(AppendError::Conflict),
            _ => Ok(()),
        }
    }

    async fn put_head(&self, head: Head) -> Result<(), StoreError> {
        self.write(Change::Head(head)).await.map(drop)
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<Recorded>, StoreError> {
        self.readers.read(move |connection| read(connection, id, after)).await
    }

    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError> {
        self.readers.read(move |connection| due(connection, now, most)).await
    }

    async fn orphans(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError> {
        let lives = std::sync::Arc::clone(&self.lives);
        let (dead, heads) = self
            .readers
            .read(move |connection| {
                let dead = |it: WorkerId| lives.is_dead(it);
                orphans(connection, now, most, dead)
            })
            .await?;
        if !dead.is_empty() {
            self.write(Change::Retire(dead)).await?;
        }
        Ok(heads)
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read(next_due).await
    }

    async fn heartbeat(&self, lease: Lease) -> Result<(), StoreError> {
        self.lives.hold(lease.worker);
        self.write(Change::Lease(lease)).await.map(drop)
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.write(Change::Retire(vec![worker])).await?;
        self.lives.release(worker);
        Ok(())
    }

    async fn send(&self, envelope: Envelope) -> Result<(), StoreError> {
        self.write(Change::Send(envelope)).await.map(drop)
    }

    async fn inbox(&self, of: Option<ExecutionId>) -> Result<Vec<Envelope>, StoreError> {
        self.readers.read(move |connection| inbox(connection, of)).await
    }

    async fn discard(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.write(Change::Discard(commands)).await.map(drop)
    }

    fn commits(&self) -> u64 {
        self.writer.commits().load(std::sync::atomic::Ordering::Relaxed)
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }
}

fn read(connection: &Connection, id: ExecutionId, after: Seq) -> Result<Vec<Recorded>, StoreError> {
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

fn document(row: &rusqlite::Row<'_>, id: ExecutionId) -> Result<Document, StoreError> {
    let what = id.to_string();
    let (first, len): (i64, isize) = (rows::column(row, 0, &what)?, rows::column(row, 1, &what)?);
    Ok(Document {
        first: Seq(u64::try_from(first).map_err(|err| StoreError::corrupt(&what, err))?),
        len: usize::try_from(len).map_err(|err| StoreError::corrupt(&what, err))?,
        json: rows::column(row, 2, &what)?,
    })
}

/// Takes one priority after another, so that sleepers of a high priority are never searched for
/// those that are due.
fn due(connection: &Connection, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError> {
    let sql = format!(
        "SELECT {} FROM heads INDEXED BY heads_due WHERE owner IS NULL AND due IS NOT NULL
         AND priority = ?1 AND due <= ?2 ORDER BY due, execution LIMIT ?3",
        rows::HEAD
    );
    let mut statement = connection.prepare_cached(&sql).map_err(|err| failed(&err))?;
    let mut heads = Vec::new();
    for priority in priorities(connection).map_err(|err| failed(&err))? {
        let left = limit(most.saturating_sub(heads.len()));
        let range = params![priority, now.timestamp_micros(), left];
        let mut found = statement.query(range).map_err(|err| failed(&err))?;
        while let Some(row) = found.next().map_err(|err| failed(&err))? {
            heads.extend(good(rows::head(row))?);
        }
        if heads.len() >= most {
            break;
        }
    }
    Ok(heads)
}

fn next_due(connection: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT due FROM heads INDEXED BY heads_due WHERE owner IS NULL AND due IS NOT NULL
        AND priority = ?1 ORDER BY due LIMIT 1";
    let first = || -> rusqlite::Result<Option<i64>> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut first: Option<i64> = None;
        for priority in priorities(connection)? {
            let due = statement.query_row([priority], |row| row.get(0)).optional()?;
            first = first.into_iter().chain(due).min();
        }
        Ok(first)
    };
    let first = first().map_err(|err| failed(&err))?;
    first.map(|it| rows::time(it, "a head")).transpose()
}

/// Returns every priority that something free has, the highest first: one look into the index for
/// each.
fn priorities(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let sql = "SELECT priority FROM heads INDEXED BY heads_due WHERE owner IS NULL
        AND due IS NOT NULL AND priority < ?1 ORDER BY priority DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut priorities = Vec::new();
    let mut last = i64::MAX;
    while let Some(next) = statement.query_row([last], |row| row.get(0)).optional()? {
        priorities.push(next);
        last = next;
    }
    Ok(priorities)
}

/// Returns the workers that turn out to be dead, and the heads of all that are gone.
fn orphans(
    connection: &Connection,
    now: Timestamp,
    most: usize,
    is_dead: impl Fn(WorkerId) -> bool,
) -> Result<(Vec<WorkerId>, Vec<Head>), StoreError> {
    let leases = leases(connection).map_err(|err| failed(&err))?;
    let sql = format!(
        "SELECT {} FROM heads INDEXED BY heads_owner WHERE owner = ?1 ORDER BY execution LIMIT ?2",
        rows::HEAD
    );
    let mut statement = connection.prepare_cached(&sql).map_err(|err| failed(&err))?;
    let (mut dead, mut heads) = (Vec::new(), Vec::new());
    for owner in owners(connection).map_err(|err| failed(&err))? {
        let worker = good(rows::parse::<WorkerId>(&owner, &owner))?;
        match (leases.get(&owner), worker) {
            (Some(until), Some(worker)) if *until > now.timestamp_micros() => {
                if !is_dead(worker) {
                    continue;
                }
                dead.push(worker);
            }
            _ => (),
        }
        let left = limit(most.saturating_sub(heads.len()));
        let mut found = statement.query(params![owner, left]).map_err(|err| failed(&err))?;
        while let Some(row) = found.next().map_err(|err| failed(&err))? {
            heads.extend(good(rows::head(row))?);
        }
    }
    Ok((dead, heads))
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

fn inbox(connection: &Connection, of: Option<ExecutionId>) -> Result<Vec<Envelope>, StoreError> {
    let (sql, of) = match of {
        Some(of) => {
            ("SELECT id, json FROM inbox WHERE execution = ?1 ORDER BY arrival", of.to_string())
        }
        None => ("SELECT id, json FROM inbox WHERE ?1 = '' ORDER BY arrival", String::new()),
    };
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query([of]).map_err(|err| failed(&err))?;
    let mut waiting = Vec::new();
    while let Some(row) = found.next().map_err(|err| failed(&err))? {
        waiting.extend(good(envelope(row))?);
    }
    Ok(waiting)
}

fn envelope(row: &rusqlite::Row<'_>) -> Result<Envelope, StoreError> {
    let id: String = rows::column(row, 0, "a command")?;
    let json: String = rows::column(row, 1, &id)?;
    serde_json::from_str(&json).map_err(|err| StoreError::corrupt(id, err))
}

fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
