//! Permits in the file. One transaction loads the state of the limits, takes the permits and writes
//! the changes.

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

use super::{change::Answer, connection::to_store_error, rows};

/// Number of rows of unused rates that a call removes if it asks for few limits, so that a call
/// removes more rows than it adds.
const MIN_REMOVED_RATES: i64 = 8;

pub(super) fn acquire_permits(
    connection: &Connection,
    ask: &PermitAsk,
    now: Timestamp,
) -> rusqlite::Result<Answer> {
    let keys: BTreeSet<&str> = ask.limits.iter().map(|limit| limit.key.as_str()).collect();
    let before = load_states(connection, &keys)?;
    let mut after = before.clone();
    let live = find_live_workers(connection, now)?;
    let is_gone = |worker: WorkerId| !live.contains(&worker.to_string());
    let permission = take_all(&mut after, ask, now, is_gone);
    for (key, state) in &after {
        save_state(connection, key, before.get(key).unwrap_or(&LimitState::default()), state)?;
    }
    let sql = "DELETE FROM rates WHERE key IN
        (SELECT key FROM rates WHERE next <= ?1 ORDER BY next LIMIT ?2)";
    let limit = MIN_REMOVED_RATES.max(2 * i64::try_from(keys.len()).unwrap_or(i64::MAX / 2));
    connection.prepare_cached(sql)?.execute(params![now.timestamp_micros(), limit])?;
    Ok(Answer::Permission(permission))
}

pub(super) fn release_permits(connection: &Connection, permits: &[Permit]) -> rusqlite::Result<()> {
    let sql = "DELETE FROM permits WHERE key = ?1 AND holder = ?2";
    let mut delete = connection.prepare_cached(sql)?;
    for permit in permits {
        permit.limits.iter().try_for_each(|key| delete.execute([key, &permit.holder]).map(drop))?;
    }
    Ok(())
}

pub(super) fn remove_permits_of_unknown_workers(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM permits WHERE worker NOT IN (SELECT worker FROM workers)";
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

pub(super) fn find_holders(
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
    let found = find().map_err(|err| to_store_error(&err))?;
    found.iter().map(|worker| rows::parse(worker, worker)).collect()
}

fn load_states(connection: &Connection, keys: &BTreeSet<&str>) -> rusqlite::Result<Tallies> {
    let mut holders =
        connection.prepare_cached("SELECT holder, worker FROM permits WHERE key = ?1")?;
    let mut rate = connection.prepare_cached("SELECT next, last FROM rates WHERE key = ?1")?;
    let mut states = Tallies::new();
    for key in keys {
        let read_rate = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (next, last) = rate.query_row([key], read_rate).optional()?.unwrap_or_default();
        let mut state = LimitState { next, last, ..LimitState::default() };
        let mut found = holders.query([key])?;
        while let Some(row) = found.next()? {
            let worker: String = row.get(1)?;
            // A damaged permit counts as free, because otherwise no worker could release it.
            if let Ok(worker) = worker.parse() {
                state.holders.insert(row.get(0)?, worker);
            }
        }
        states.insert((*key).to_owned(), state);
    }
    Ok(states)
}

fn save_state(
    connection: &Connection,
    key: &str,
    before: &LimitState,
    after: &LimitState,
) -> rusqlite::Result<()> {
    let mut delete =
        connection.prepare_cached("DELETE FROM permits WHERE key = ?1 AND holder = ?2")?;
    for holder in before.holders.keys().filter(|holder| !after.holders.contains_key(*holder)) {
        delete.execute([key, holder])?;
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

fn find_live_workers(
    connection: &Connection,
    now: Timestamp,
) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare_cached("SELECT worker FROM workers WHERE until > ?1")?;
    let live = statement.query_map([now.timestamp_micros()], |row| row.get(0))?;
    live.collect()
}
