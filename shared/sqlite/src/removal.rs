//! Removing what is over and old: found by a reader, checked again and removed by the writer.

use rusqlite::{Connection, OptionalExtension, params};
use shared::{clock::Timestamp, store::StoreError};

use super::{change::Ledger, connection::failed, permits, records};

/// Executions that one transaction removes: others write between two of them.
pub(super) const BATCH: usize = 32;

/// Executions that are over and may go.
const OLD_EXECUTIONS: &str = "SELECT execution FROM heads INDEXED BY heads_finished
    WHERE finished_at IS NOT NULL AND finished_at < ?1 AND owner IS NULL
    AND state IN ('COMPLETED', 'FAILED', 'CANCELLED')
    AND NOT EXISTS (SELECT 1 FROM logs JOIN heads AS above ON above.number = logs.number
        WHERE logs.execution = heads.parent
        AND above.state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))";
/// Plans that nothing refers to.
const OLD_PLANS: &str = "SELECT id FROM plans WHERE created_at < ?1
    AND NOT EXISTS (SELECT 1 FROM heads WHERE plan = plans.id)
    AND NOT EXISTS (SELECT 1 FROM saved WHERE plan = plans.id)
    AND NOT EXISTS (SELECT 1 FROM plan_parts WHERE part = plans.id)";
/// Requests that have nothing.
const OLD_REQUESTS: &str = "SELECT id FROM requests WHERE created_at < ?1
    AND NOT EXISTS (SELECT 1 FROM plans WHERE request = requests.id)
    AND NOT EXISTS (SELECT 1 FROM heads WHERE request = requests.id)";

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Executions,
    Plans,
    Requests,
}

/// Things that a reader found.
#[derive(Debug)]
pub(super) enum Removal {
    /// Those that still may go.
    Old { kind: Kind, before: Timestamp, ids: Vec<String> },
    /// What nobody asks about any more.
    Rest { before: Timestamp },
    /// The first few calls that were made outside plans.
    Calls { before: Timestamp },
}

impl Kind {
    fn sql(self, condition: &str) -> String {
        let (select, order) = match self {
            Self::Executions => (OLD_EXECUTIONS, "finished_at, execution"),
            Self::Plans => (OLD_PLANS, "created_at, id"),
            Self::Requests => (OLD_REQUESTS, "created_at, id"),
        };
        format!("{select} {condition} ORDER BY {order}")
    }

    /// Returns the first few that may go.
    pub(super) fn find(
        self,
        connection: &Connection,
        before: Timestamp,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let find = || -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare_cached(&format!("{} LIMIT ?2", self.sql("")))?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let found =
                statement.query_map(params![before.timestamp_micros(), most], |row| row.get(0))?;
            found.collect()
        };
        find().map_err(|err| failed(&err))
    }

    fn still(self, connection: &Connection, before: i64, id: &str) -> rusqlite::Result<bool> {
        let condition = match self {
            Self::Executions => "AND heads.number = (SELECT number FROM logs WHERE execution = ?2)",
            Self::Plans | Self::Requests => "AND id = ?2",
        };
        let sql = self.sql(condition).replace("INDEXED BY heads_finished", "");
        connection.prepare_cached(&sql)?.exists(params![before, id])
    }
}

impl Removal {
    pub(super) fn apply(
        &self,
        connection: &Connection,
        ledger: &mut Ledger,
    ) -> rusqlite::Result<usize> {
        let (kind, before, ids) = match self {
            Self::Old { kind, before, ids } => (*kind, before.timestamp_micros(), ids),
            Self::Rest { before } => return remove_rest(connection, *before),
            Self::Calls { before } => return records::remove_old_calls(connection, *before),
        };
        let mut removed = 0;
        for id in ids {
            if !kind.still(connection, before, id)? {
                continue;
            }
            match kind {
                Kind::Executions => remove_execution(connection, ledger, id)?,
                Kind::Plans => remove_all(
                    connection,
                    id,
                    &[
                        "DELETE FROM plans WHERE id = ?1",
                        "DELETE FROM plan_tools WHERE plan = ?1",
                        "DELETE FROM plan_parts WHERE plan = ?1",
                    ],
                )?,
                Kind::Requests => remove_all(
                    connection,
                    id,
                    &[
                        "DELETE FROM requests WHERE id = ?1",
                        "DELETE FROM transcripts WHERE request = ?1",
                    ],
                )?,
            }
            removed += 1;
        }
        Ok(removed)
    }
}

fn remove_execution(
    connection: &Connection,
    ledger: &mut Ledger,
    id: &str,
) -> rusqlite::Result<()> {
    let sql = "SELECT number FROM logs WHERE execution = ?1";
    let number: Option<i64> =
        connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
    for sql in ["DELETE FROM events WHERE log = ?1", "DELETE FROM heads WHERE number = ?1"] {
        connection.prepare_cached(sql)?.execute([number])?;
    }
    remove_all(
        connection,
        id,
        &[
            "DELETE FROM logs WHERE execution = ?1",
            "DELETE FROM inbox WHERE execution = ?1",
            "DELETE FROM keys WHERE execution = ?1",
            // The names of an execution's settlements begin with its id and `/`, which is before `0`.
            "DELETE FROM records WHERE kind = 'settlement' AND name > ?1 || '/' AND name < ?1 || '0'",
        ],
    )?;
    if let Ok(id) = id.parse() {
        ledger.forget_log(id);
    }
    Ok(())
}

fn remove_all(connection: &Connection, id: &str, deletes: &[&str]) -> rusqlite::Result<()> {
    deletes.iter().try_for_each(|it| connection.prepare_cached(it)?.execute([id]).map(drop))
}

fn remove_rest(connection: &Connection, before: Timestamp) -> rusqlite::Result<usize> {
    let before = before.timestamp_micros();
    connection.prepare_cached("DELETE FROM rates WHERE next <= ?1")?.execute([before])?;
    permits::sweep(connection)?;
    connection.prepare_cached("DELETE FROM outputs WHERE until <= ?1")?.execute([before])
}

/// Returns whether plans have parts that may go after them.
pub(super) fn have_parts(connection: &Connection, ids: &[String]) -> Result<bool, StoreError> {
    let find = || -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM plan_parts WHERE plan = ?1";
        let mut statement = connection.prepare_cached(sql)?;
        ids.iter().try_fold(false, |found, it| Ok(found || statement.exists([it])?))
    };
    find().map_err(|err| failed(&err))
}
