//! A clock that all processes with the same file share: the time since boot plus an offset in the
//! file. So leases, retries and sleeps mean the same for all processes.

use std::fs;

use rusqlite::{Connection, OptionalExtension, params};
use shared::clock::{Clock, SteadyClock, WallClock};

/// A stored offset that differs from the machine's clock by at most this time stays in use, which
/// saves a write at each start.
const TOLERANCE_MICROS: i64 = 1_000_000;

/// Returns the clock of a file. `has_live_worker` returns `true` if a worker of another process is
/// alive.
pub(super) fn open_clock(
    connection: &Connection,
    has_live_worker: impl Fn() -> bool,
) -> SteadyClock {
    let machine_clock = SteadyClock::starting_at(WallClock.now());
    choose_offset(connection, has_live_worker, machine_clock.offset()).map_or_else(
        |err| {
            tracing::warn!(%err, "cannot read the time of the file: using the machine's clock");
            machine_clock
        },
        SteadyClock::with_offset,
    )
}

fn choose_offset(
    connection: &Connection,
    has_live_worker: impl Fn() -> bool,
    machine_offset: i64,
) -> rusqlite::Result<i64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    let stored = find_offset(connection, boot)?;
    let is_same = |offset: i64| offset.abs_diff(machine_offset) <= TOLERANCE_MICROS.unsigned_abs();
    if let Some(offset) = stored.filter(|offset| is_same(*offset) || has_live_worker()) {
        return Ok(offset);
    }
    if stored.is_none_or(|offset| offset > machine_offset) {
        shorten_future_waits(
            connection,
            SteadyClock::with_offset(machine_offset).now().timestamp_micros(),
        )?;
    }
    let sql = "INSERT INTO meta VALUES ('clock', ?1)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(sql, params![format!("{boot} {machine_offset}")])?;
    Ok(machine_offset)
}

/// Makes executions due whose last event has a time after `now`, because the clock was ahead when
/// they began to wait. No worker lives, so no other process changes these heads.
fn shorten_future_waits(connection: &Connection, now: i64) -> rusqlite::Result<()> {
    let has_future = "SELECT 1 FROM (SELECT json FROM events ORDER BY id DESC LIMIT 1)
        WHERE CASE WHEN json_valid(json) THEN json ->> '$[#-1].at' END > ?1";
    if !connection.prepare(has_future)?.exists([now + TOLERANCE_MICROS])? {
        return Ok(());
    }
    let free = super::rows::IS_CLAIMABLE;
    let last_event = "SELECT CASE WHEN json_valid(json) THEN json ->> '$[#-1].at' END FROM events
        WHERE log = number ORDER BY first DESC LIMIT 1";
    let sql = format!(
        "UPDATE executions SET dueAt = ?1 WHERE {free} AND dueAt > ?1 AND ({last_event}) > ?2"
    );
    let executions = connection.execute(&sql, [now, now + TOLERANCE_MICROS])?;
    // Removes rates whose next call is in the future, because they would allow no call until then.
    connection.execute("DELETE FROM rates WHERE next > ?1", [now])?;
    tracing::warn!(
        executions,
        "the clock was ahead when this store was used last: waits that began then are shortened, \
         and `startAt` stays as it was given"
    );
    Ok(())
}

fn find_offset(connection: &Connection, boot: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT value FROM meta WHERE name = 'clock'";
    let value = connection.query_row(sql, [], |row| row.get::<_, String>(0)).optional()?;
    Ok(value.as_deref().and_then(|value| {
        let (stored_boot, offset) = value.split_once(' ')?;
        offset.parse().ok().filter(|_| stored_boot == boot)
    }))
}

#[cfg(test)]
mod tests {
    use shared::store::backend::LAYOUT;

    use super::*;

    #[test]
    fn a_new_process_uses_the_stored_offset_while_another_worker_lives() {
        let connection = open_in_memory();
        let year = 365 * 24 * 3_600 * 1_000_000_i64;
        let choose = |has_live_worker, machine_offset| {
            choose_offset(&connection, || has_live_worker, machine_offset).unwrap()
        };
        assert_eq!(choose(false, 5 * year), 5 * year);
        assert_eq!(choose(true, 6 * year), 5 * year, "its clock is a year ahead of the others");
        assert_eq!(choose(true, 4 * year), 5 * year);
        let nearly_same = 5 * year + TOLERANCE_MICROS;
        assert_eq!(choose(false, nearly_same), 5 * year, "the difference is small");
        assert_eq!(choose(false, 6 * year), 6 * year, "no other worker lives");
        connection.execute("UPDATE meta SET value = 'another-boot 7'", []).unwrap();
        assert_eq!(choose(true, year), year, "the machine was restarted");
    }

    fn open_in_memory() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        super::super::schema::prepare_schema(&connection, "a file".as_ref(), LAYOUT, || false)
            .unwrap();
        connection
    }

    #[test]
    fn executions_whose_waits_began_in_the_future_become_due() {
        let (hour, now) = (3_600_000_000_i64, 1_700_000_000_000_000_i64);
        let connection = open_in_memory();
        let put = |number: i64, state: &str, began: i64, due: Option<i64>, owner: Option<&str>| {
            let event = format!(r#"[{{"at":1,"type":"x"}},{{"at":{began},"type":"x"}}]"#);
            connection.execute("INSERT INTO logs VALUES (?1, ?1)", [number]).unwrap();
            let sql = "INSERT INTO events (log, first, len, json) VALUES (?1, 1, 2, ?2)";
            connection.execute(sql, params![number, event]).unwrap();
            let sql =
                "INSERT INTO executions (number, executionId, requestId, planId, state, createdAt,
                 seq, epoch, owner, dueAt, priority)
                 VALUES (?1, ?1, '', '', ?2, 0, 2, 0, ?3, ?4, 0)";
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
            let mut heads =
                connection.prepare("SELECT dueAt FROM executions ORDER BY number").unwrap();
            let due = heads.query_map([], |row| row.get::<_, Option<i64>>(0)).unwrap();
            due.collect::<Result<Vec<_>, _>>().unwrap()
        };
        let before = due();
        shorten_future_waits(&connection, ahead).unwrap();
        assert_eq!(due(), before, "no wait began after that");
        shorten_future_waits(&connection, now).unwrap();
        assert_eq!(due(), [Some(later), Some(now), Some(now), None, None, None]);
        let rates = "SELECT count(*) FROM rates";
        assert_eq!(connection.query_row(rates, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }
}
