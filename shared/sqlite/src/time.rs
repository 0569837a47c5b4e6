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
    if let Some(offset) = known(connection, boot)?
        && (offset.abs_diff(own) <= SAME.unsigned_abs() || others_live())
    {
        return Ok(offset);
    }
    let sql = "INSERT INTO meta VALUES ('clock', ?1)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(sql, params![format!("{boot} {own}")])?;
    Ok(own)
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
        let connection = Connection::open_in_memory().unwrap();
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)", []).unwrap();
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
}
