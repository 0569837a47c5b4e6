//! The time that all processes over one file go by.
//!
//! They share a machine, and so its time since boot. The file says what is added to that. While some
//! worker lives, a process that joins takes the number that is there, even if the machine's clock says
//! something else by now. So leases, retries and sleeps mean the same to all of them.

use std::fs;

use rusqlite::{Connection, OptionalExtension, params};
use shared::clock::{Clock, SteadyClock, WallClock};

/// A file whose time differs by no more microseconds than this is left as it is.
const SAME: i64 = 1_000_000;

/// Returns the clock of a file. `others_live` tells whether a worker of another process lives.
pub(super) fn agree(connection: &Connection, others_live: impl Fn() -> bool) -> SteadyClock {
    let own = SteadyClock::starting_at(WallClock.now());
    try_agree(connection, others_live, own.offset()).map_or_else(
        |err| {
            tracing::warn!(%err, "the file does not tell its time: the machine's clock must do");
            own
        },
        SteadyClock::with_offset,
    )
}

fn try_agree(
    connection: &Connection,
    others_live: impl Fn() -> bool,
    own: i64,
) -> rusqlite::Result<i64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    let known = known(connection, boot)?;
    let is_same = |offset: i64| offset.abs_diff(own) <= SAME.unsigned_abs();
    if let Some(offset) = known.filter(|offset| is_same(*offset) || others_live()) {
        return Ok(offset);
    }
    if known.is_none_or(|offset| offset > own) {
        wake_early(connection, SteadyClock::with_offset(own).now().timestamp_micros())?;
    }
    let sql = "INSERT INTO meta VALUES ('clock', ?1)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(sql, params![format!("{boot} {own}")])?;
    Ok(own)
}

/// Makes executions due whose waits began after `now`, by a clock that was ahead. They may wait for
/// a year otherwise. The worker that claims one shortens its waits.
///
/// Nobody works, so nobody writes these heads meanwhile.
fn wake_early(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    let has_future = "SELECT 1 FROM (SELECT json FROM events ORDER BY id DESC LIMIT 1)
        WHERE CASE WHEN json_valid(json) THEN json ->> '$[#-1].at' END > ?1";
    if !connection.prepare(has_future)?.exists([now + SAME])? {
        return Ok(());
    }
    let free = super::rows::FREE;
    let last_event = "SELECT CASE WHEN json_valid(json) THEN json ->> '$[#-1].at' END FROM events
        WHERE log = number ORDER BY first DESC LIMIT 1";
    let sql =
        format!("UPDATE heads SET due = ?1 WHERE {free} AND due > ?1 AND ({last_event}) > ?2");
    let executions = connection.execute(&sql, [now, now + SAME])?;
    // A rate would refuse all calls until that time.
    connection.execute("DELETE FROM rates WHERE next > ?1", [now])?;
    tracing::warn!(
        executions,
        "the clock was ahead when this store was used last: waits that began then are shortened, \
         and `startAt` stays as it was given"
    );
    Ok(())
}

/// Returns what the file says, unless the machine was started again since.
fn known(connection: &Connection, boot: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT value FROM meta WHERE name = 'clock'";
    let value = connection.query_row(sql, [], |row| row.get::<_, String>(0)).optional()?;
    Ok(value.as_deref().and_then(|value| {
        let (of, offset) = value.split_once(' ')?;
        offset.parse().ok().filter(|_| of == boot)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_joins_goes_by_the_time_of_those_that_work() {
        let connection = store();
        let year = 365 * 24 * 3_600 * 1_000_000_i64;
        let agree = |others_live, own| try_agree(&connection, || others_live, own).unwrap();
        assert_eq!(agree(false, 5 * year), 5 * year);
        assert_eq!(agree(true, 6 * year), 5 * year, "its clock is a year ahead of the others");
        assert_eq!(agree(true, 4 * year), 5 * year);
        assert_eq!(agree(false, 5 * year + SAME), 5 * year, "nobody writes for a second");
        assert_eq!(agree(false, 6 * year), 6 * year, "nobody else works: the clock was corrected");
        connection.execute("UPDATE meta SET value = 'another-boot 7'", []).unwrap();
        assert_eq!(agree(true, year), year);
    }

    fn store() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        super::super::schema::prepare(&connection, "a file".as_ref(), |_| false).unwrap();
        connection
    }

    #[test]
    fn what_began_by_a_clock_that_was_ahead_becomes_due() {
        let (hour, now) = (3_600_000_000_i64, 1_700_000_000_000_000_i64);
        let connection = store();
        let put = |number: i64, state: &str, began: i64, due: Option<i64>, owner: Option<&str>| {
            let event = format!(r#"[{{"at":1,"type":"x"}},{{"at":{began},"type":"x"}}]"#);
            connection.execute("INSERT INTO logs VALUES (?1, ?1)", [number]).unwrap();
            let sql = "INSERT INTO events (log, first, len, json) VALUES (?1, 1, 2, ?2)";
            connection.execute(sql, params![number, event]).unwrap();
            let sql =
                "INSERT INTO heads VALUES (?1, ?1, '', '', ?2, 0, 2, 0, ?3, ?4, 0, NULL, NULL)";
            connection.execute(sql, params![number, state, owner, due]).unwrap();
        };
        let (later, ahead) = (now + hour, now + 10 * hour);
        put(1, "IN_PROGRESS", now - hour, Some(later), None);
        put(2, "IN_PROGRESS", ahead, Some(ahead + hour), None);
        put(3, "PENDING", ahead, Some(ahead), None);
        put(4, "WAITING", ahead, None, None);
        put(5, "IN_PROGRESS", ahead, None, Some("work"));
        put(6, "COMPLETED", ahead, None, None);
        connection.execute("INSERT INTO rates VALUES ('a', ?1, '')", [ahead]).unwrap();
        let due = || {
            let mut heads = connection.prepare("SELECT due FROM heads ORDER BY number").unwrap();
            let due = heads.query_map([], |row| row.get::<_, Option<i64>>(0)).unwrap();
            due.collect::<Result<Vec<_>, _>>().unwrap()
        };
        let before = due();
        wake_early(&connection, ahead).unwrap();
        assert_eq!(due(), before, "nothing began after that");
        wake_early(&connection, now).unwrap();
        assert_eq!(due(), [Some(later), Some(now), Some(now), None, None, None]);
        let rates = "SELECT count(*) FROM rates";
        assert_eq!(connection.query_row(rates, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }
}
