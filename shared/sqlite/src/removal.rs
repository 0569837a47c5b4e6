//! Removes old executions that have finished, and plans and requests without references. The writer
//! checks in its transaction that they are still unused.

use rusqlite::{Connection, OptionalExtension, params};
use shared::{clock::Timestamp, store::StoreError};

use super::{audit, change::LogCache, connection::to_store_error, permits, records};

/// Maximum number of objects that one transaction removes. The writer commits other operations
/// between two such transactions.
pub(super) const BATCH_LEN: usize = 32;

/// Selects finished executions without an owner and without an unfinished parent.
const OLD_EXECUTIONS: &str = "SELECT executionId FROM executions INDEXED BY heads_finished
    WHERE finishedAt IS NOT NULL AND finishedAt < ?1 AND owner IS NULL
    AND state IN ('COMPLETED', 'FAILED', 'CANCELLED')
    AND NOT EXISTS (SELECT 1 FROM logs JOIN executions AS above ON above.number = logs.number
        WHERE logs.executionId = executions.parentExecutionId
        AND above.state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))";
/// Selects plans that no execution, no saved name and no other plan refers to.
const OLD_PLANS: &str = "SELECT planId FROM plans WHERE createdAt < ?1
    AND NOT EXISTS (SELECT 1 FROM executions WHERE planId = plans.planId)
    AND NOT EXISTS (SELECT 1 FROM saved WHERE planId = plans.planId)
    AND NOT EXISTS (SELECT 1 FROM plan_parts WHERE subPlanId = plans.planId)";
/// Selects requests without plans and executions.
const OLD_REQUESTS: &str = "SELECT requestId FROM requests WHERE createdAt < ?1
    AND NOT EXISTS (SELECT 1 FROM plans WHERE requestId = requests.requestId)
    AND NOT EXISTS (SELECT 1 FROM executions WHERE requestId = requests.requestId)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnusedKind {
    Executions,
    Plans,
    Requests,
}

#[derive(Debug)]
pub(super) enum Removal {
    /// Removes the objects among `ids` that are still unused.
    Unused {
        kind: UnusedKind,
        before: Timestamp,
        ids: Vec<String>,
    },
    /// Removes unused rates, permits of unknown workers, and expired outputs.
    Expired {
        before: Timestamp,
    },
    /// Removes one batch of calls that were made outside plans.
    Calls {
        before: Timestamp,
    },
    Audit {
        before: Timestamp,
        most: usize,
    },
}

impl UnusedKind {
    fn to_sql(self, condition: &str) -> String {
        let (select, order) = match self {
            Self::Executions => (OLD_EXECUTIONS, "finishedAt, executionId"),
            Self::Plans => (OLD_PLANS, "createdAt, planId"),
            Self::Requests => (OLD_REQUESTS, "createdAt, requestId"),
        };
        format!("{select} {condition} ORDER BY {order}")
    }

    pub(super) fn find_unused(
        self,
        connection: &Connection,
        before: Timestamp,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let find = || -> rusqlite::Result<Vec<String>> {
            let sql = format!("{} LIMIT ?2", self.to_sql(""));
            let mut statement = connection.prepare_cached(&sql)?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let found =
                statement.query_map(params![before.timestamp_micros(), most], |row| row.get(0))?;
            found.collect()
        };
        find().map_err(|err| to_store_error(&err))
    }

    fn is_unused(self, connection: &Connection, before: i64, id: &str) -> rusqlite::Result<bool> {
        let condition = match self {
            Self::Executions => {
                "AND executions.number = (SELECT number FROM logs WHERE executionId = ?2)"
            }
            Self::Plans => "AND planId = ?2",
            Self::Requests => "AND requestId = ?2",
        };
        let sql = self.to_sql(condition).replace("INDEXED BY heads_finished", "");
        connection.prepare_cached(&sql)?.exists(params![before, id])
    }
}

impl Removal {
    pub(super) fn apply(
        &self,
        connection: &Connection,
        logs: &mut LogCache,
    ) -> rusqlite::Result<usize> {
        let (kind, before, ids) = match self {
            Self::Unused { kind, before, ids } => (*kind, before.timestamp_micros(), ids),
            Self::Expired { before } => return remove_expired(connection, *before),
            Self::Calls { before } => return records::remove_old_calls(connection, *before),
            Self::Audit { before, most } => {
                return audit::remove_entries(connection, *before, *most);
            }
        };
        let mut removed = 0;
        for id in ids {
            if !kind.is_unused(connection, before, id)? {
                continue;
            }
            match kind {
                UnusedKind::Executions => remove_execution(connection, logs, id)?,
                UnusedKind::Plans => run_deletes(
                    connection,
                    id,
                    &[
                        "DELETE FROM plans WHERE planId = ?1",
                        "DELETE FROM plan_tools WHERE planId = ?1",
                        "DELETE FROM plan_parts WHERE planId = ?1",
                    ],
                )?,
                UnusedKind::Requests => run_deletes(
                    connection,
                    id,
                    &[
                        "DELETE FROM requests WHERE requestId = ?1",
                        "DELETE FROM transcripts WHERE requestId = ?1",
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
    logs: &mut LogCache,
    id: &str,
) -> rusqlite::Result<()> {
    let sql = "SELECT number FROM logs WHERE executionId = ?1";
    let number: Option<i64> =
        connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
    if let Some(number) = number {
        logs.uncount_execution(connection, number)?;
    }
    for sql in [
        "DELETE FROM events WHERE log = ?1",
        "DELETE FROM executions WHERE number = ?1",
        "DELETE FROM execution_labels WHERE number = ?1",
        "DELETE FROM error_texts WHERE rowid = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([number])?;
    }
    run_deletes(
        connection,
        id,
        &[
            "DELETE FROM logs WHERE executionId = ?1",
            "DELETE FROM inbox WHERE executionId = ?1",
            "DELETE FROM keys WHERE executionId = ?1",
            // Names of settlements begin with the execution's id and `/`. `0` is the first
            // character after `/`, so it ends the range.
            "DELETE FROM records WHERE kind = 'settlement' AND name > ?1 || '/' AND name < ?1 || '0'",
        ],
    )?;
    if let Ok(id) = id.parse() {
        logs.remove_log(id);
    }
    Ok(())
}

fn run_deletes(connection: &Connection, id: &str, deletes: &[&str]) -> rusqlite::Result<()> {
    deletes.iter().try_for_each(|sql| connection.prepare_cached(sql)?.execute([id]).map(drop))
}

fn remove_expired(connection: &Connection, before: Timestamp) -> rusqlite::Result<usize> {
    let before = before.timestamp_micros();
    connection.prepare_cached("DELETE FROM rates WHERE next <= ?1")?.execute([before])?;
    permits::remove_permits_of_unknown_workers(connection)?;
    connection.prepare_cached("DELETE FROM outputs WHERE until <= ?1")?.execute([before])
}

/// Returns `true` if one of the plans has sub-plans. After the removal of the plan, its sub-plans
/// can be unused, too.
pub(super) fn has_sub_plans(connection: &Connection, ids: &[String]) -> Result<bool, StoreError> {
    let find = || -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM plan_parts WHERE planId = ?1";
        let mut statement = connection.prepare_cached(sql)?;
        ids.iter().try_fold(false, |found, id| Ok(found || statement.exists([id])?))
    };
    find().map_err(|err| to_store_error(&err))
}
