//! What calls returned, kept for those that ask the same.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use shared::{clock::Timestamp, limits, store::StoreError};

use super::connection::failed;

/// So many are written between one count and the next: counting costs as much as a hundred writes.
const COUNT_EVERY: usize = 256;

/// Sees to it that there are not too many.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// How many were written since the last count.
    written: Option<usize>,
}

impl Outputs {
    pub(super) fn put(
        &mut self,
        connection: &Connection,
        key: &str,
        until: i64,
        json: &str,
    ) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO outputs VALUES (?1, ?2, ?3)";
        connection.prepare_cached(sql)?.execute(params![key, until, json])?;
        let written = self.written.map_or(COUNT_EVERY, |it| it + 1);
        self.written = Some(written);
        if written >= COUNT_EVERY {
            make_room(connection)?;
            self.written = Some(0);
        }
        Ok(())
    }
}

/// Removes what expires the soonest, so that there is room until the next count.
fn make_room(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM outputs";
    let count: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    let most = (limits::CACHE_ENTRIES - COUNT_EVERY).cast_signed();
    let too_many = count - most as i64;
    if too_many > 0 {
        let sql = "DELETE FROM outputs WHERE key IN
            (SELECT key FROM outputs ORDER BY until, key LIMIT ?1)";
        connection.prepare_cached(sql)?.execute([too_many])?;
    }
    Ok(())
}

pub(super) fn cached(
    connection: &Connection,
    key: &str,
    now: Timestamp,
) -> Result<Option<Arc<Value>>, StoreError> {
    let sql = "SELECT json FROM outputs WHERE key = ?1 AND until > ?2";
    let find = || -> rusqlite::Result<Option<String>> {
        let row = params![key, now.timestamp_micros()];
        connection.prepare_cached(sql)?.query_row(row, |row| row.get(0)).optional()
    };
    let found = find().map_err(|err| failed(&err))?;
    let read = |it: String| serde_json::from_str(&it);
    found.map(read).transpose().map_err(|err| StoreError::corrupt(key, err))
}
