//! Permits in the file: loaded, taken and written inside one transaction.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use shared::{
    clock::Timestamp,
    id::WorkerId,
    store::{
        Permit, PermitAsk, StoreError,
        backend::{LimitState, Tallies, take_all},
    },
};

use super::{change::Answer, connection::failed, rows};

/// Every ask forgets at most so many rates that count nothing any more: more than it adds.
const SWEEP: i64 = 8;

pub(super) fn acquire(
    connection: &Connection,
    ask: &PermitAsk,
    now: Timestamp,
) -> rusqlite::Result<Answer> {
    let keys: BTreeSet<&str> = ask.limits.iter().map(|it| it.key.as_str()).collect();
    let before = load(connection, &keys)?;
    let mut after = before.clone();
    let live = live(connection, now)?;
    let is_gone = |it: WorkerId| !live.contains(&it.to_string());
    let permission = take_all(&mut after, ask, now, is_gone);
    for (key, tally) in &after {
        write(connection, key, before.get(key).unwrap_or(&LimitState::default()), tally)?;
    }
    let sql = "DELETE FROM rates WHERE key IN
        (SELECT key FROM rates WHERE next <= ?1 ORDER BY next LIMIT ?2)";
    let limit = SWEEP.max(2 * i64::try_from(keys.len()).unwrap_or(i64::MAX / 2));
    connection.prepare_cached(sql)?.execute(params![now.timestamp_micros(), limit])?;
    Ok(Answer::Permission(permission))
}

pub(super) fn release(connection: &Connection, permits: &[Permit]) -> rusqlite::Result<()> {
    let sql = "DELETE FROM permits WHERE key = ?1 AND holder = ?2";
    let mut delete = connection.prepare_cached(sql)?;
    for permit in permits {
        permit.limits.iter().try_for_each(|it| delete.execute([it, &permit.holder]).map(drop))?;
    }
    Ok(())
}

/// Forgets what workers hold that nobody has heard of.
pub(super) fn sweep(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM permits WHERE worker NOT IN (SELECT worker FROM workers)";
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Returns the workers that hold limits.
pub(super) fn holders(
    connection: &Connection,
    keys: &[String],
) -> Result<BTreeSet<WorkerId>, StoreError> {
    let find = || -> rusqlite::Result<Vec<String>> {
        let mut statement =
            connection.prepare_cached("SELECT DISTINCT worker FROM permits WHERE key = ?1")?;
        let mut workers = Vec::new();
        for key in keys {
            for worker in statement.query_map([key], |row| row.get(0))? {
                workers.push(worker?);
            }
        }
        Ok(workers)
    };
    let found = find().map_err(|err| failed(&err))?;
    found.iter().map(|it| rows::parse(it, it)).collect()
}

fn load(connection: &Connection, keys: &BTreeSet<&str>) -> rusqlite::Result<Tallies> {
    let mut holders =
        connection.prepare_cached("SELECT holder, worker FROM permits WHERE key = ?1")?;
    let mut rate = connection.prepare_cached("SELECT next, last FROM rates WHERE key = ?1")?;
    let mut tallies = Tallies::new();
    for key in keys {
        let counted = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (next, last) = rate.query_row([key], counted).optional()?.unwrap_or_default();
        let mut tally = LimitState { next, last, ..LimitState::default() };
        let mut found = holders.query([key])?;
        while let Some(row) = found.next()? {
            let worker: String = row.get(1)?;
            // What cannot be read nobody holds.
            if let Ok(worker) = worker.parse() {
                tally.holders.insert(row.get(0)?, worker);
            }
        }
        tallies.insert((*key).to_owned(), tally);
    }
    Ok(tallies)
}

fn write(
    connection: &Connection,
    key: &str,
    before: &LimitState,
    after: &LimitState,
) -> rusqlite::Result<()> {
    let mut delete =
        connection.prepare_cached("DELETE FROM permits WHERE key = ?1 AND holder = ?2")?;
    for gone in before.holders.keys().filter(|it| !after.holders.contains_key(*it)) {
        delete.execute([key, gone])?;
    }
    let mut insert = connection.prepare_cached("INSERT INTO permits VALUES (?1, ?2, ?3)")?;
    for (holder, worker) in &after.holders {
        if !before.holders.contains_key(holder) {
            insert.execute(params![key, holder, worker.to_string()])?;
        }
    }
    if (before.next, &before.last) != (after.next, &after.last) {
        let sql = "INSERT OR REPLACE INTO rates VALUES (?1, ?2, ?3)";
        connection.prepare_cached(sql)?.execute(params![key, after.next, after.last])?;
    }
    Ok(())
}

fn live(connection: &Connection, now: Timestamp) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare_cached("SELECT worker FROM workers WHERE until > ?1")?;
    let live = statement.query_map([now.timestamp_micros()], |row| row.get(0))?;
    live.collect()
}
