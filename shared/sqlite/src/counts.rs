//! Numbers of finished executions, kept beside the executions so that a count of ten million takes
//! milliseconds. `docs/design/counts.md` describes them.

mod build;
mod cells;
mod query;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row};
use shared::{
    labels::{self, Labels},
    store::{
        ExecutionHead,
        backend::{Durations, Tally},
    },
};

pub(super) use self::{
    build::prepare_counts,
    query::{count_executions, count_heads},
};

/// Lengths of the periods of cells, in microseconds: one day, one hour and one minute.
const LEVEL_MICROS: [i64; 3] = [86_400_000_000, 3_600_000_000, 60_000_000];
/// The index in [`LEVEL_MICROS`] of the only period that has cells for labels. Hours and minutes
/// have no such cells, because there can be many labels.
const LABEL_LEVEL: usize = 0;

/// Values of the column `kind`. Counts by group select only roots that are no dry runs.
const ROOT_KIND: i64 = 0;
const DRY_RUN_KIND: i64 = 1;
const CHILD_KIND: i64 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
struct CountedExecution {
    id: String,
    plan: String,
    kind: i64,
    state: String,
    /// Empty if there is no error.
    error: String,
    tool: String,
    /// Labels as `key=value`.
    labels: Vec<String>,
    created_at: i64,
    started_at: Option<i64>,
    finished_at: Option<i64>,
}

const COUNTED_COLUMNS: &str = "executionId, planId, parentExecutionId IS NOT NULL, dryRun, state,
    errorCode, failedTool, labels, createdAt, startedAt, finishedAt";
const IS_FINISHED: &str = "state IN ('COMPLETED', 'FAILED', 'CANCELLED')";

impl CountedExecution {
    fn from_head(head: &ExecutionHead) -> Self {
        let error = head.error.as_ref();
        let tool = error.and_then(|error| error.tool.as_ref());
        Self {
            id: head.execution.to_string(),
            plan: head.plan.to_string(),
            kind: kind_of(head.parent.is_some(), head.is_dry_run),
            state: head.state.as_str().to_owned(),
            error: error.map_or_else(String::new, |error| error.code.as_str().to_owned()),
            tool: tool.map_or_else(String::new, |tool| tool.as_str().to_owned()),
            labels: list_counted_labels(&head.labels),
            created_at: head.created_at.timestamp_micros(),
            started_at: head.started_at.map(|time| time.timestamp_micros()),
            finished_at: head.finished_at.map(|time| time.timestamp_micros()),
        }
    }

    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let labels: Option<String> = row.get(7)?;
        let labels: BTreeMap<String, String> =
            labels.and_then(|labels| serde_json::from_str(&labels).ok()).unwrap_or_default();
        Ok(Self {
            id: row.get(0)?,
            plan: row.get(1)?,
            kind: kind_of(row.get(2)?, row.get(3)?),
            state: row.get(4)?,
            error: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
            tool: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            labels: list_counted_labels(&labels),
            created_at: row.get(8)?,
            started_at: row.get(9)?,
            finished_at: row.get(10)?,
        })
    }

    fn to_tally(&self) -> Tally {
        Tally::of_one(&self.id, self.created_at, self.started_at, self.finished_at)
    }

    fn cell_keys(&self) -> impl Iterator<Item = CellKey> {
        let plain = (0..LEVEL_MICROS.len()).map(|level| (level, String::new()));
        let labels = self.labels.iter().map(|label| (LABEL_LEVEL, label.clone()));
        plain.chain(labels).map(|(level, label)| CellKey {
            level,
            label,
            slot: self.created_at.div_euclid(LEVEL_MICROS[level]) * LEVEL_MICROS[level],
            kind: self.kind,
            state: self.state.clone(),
            error: self.error.clone(),
            tool: self.tool.clone(),
        })
    }

    /// A plan has one tally for each state, and one tally for all states.
    fn plan_keys(&self) -> [PlanKey; 2] {
        let key = |state: &str| PlanKey {
            plan: self.plan.clone(),
            kind: self.kind,
            state: state.to_owned(),
        };
        [key(&self.state), key("")]
    }
}

fn kind_of(is_child: bool, is_dry_run: bool) -> i64 {
    match (is_child, is_dry_run) {
        (true, _) => CHILD_KIND,
        (false, true) => DRY_RUN_KIND,
        (false, false) => ROOT_KIND,
    }
}

/// Returns the labels that have cells. Nobody counts the forks of an execution, and each origin
/// would have a cell of its own.
fn list_counted_labels(labels: &Labels) -> Vec<String> {
    let counted = labels.iter().filter(|(key, _)| *key != labels::FORKED_FROM);
    counted.map(|(key, value)| label_term(key, value)).collect()
}

/// Returns the value of the column `label`. A key of a label never contains `=`, so the first `=`
/// ends the key.
fn label_term(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CellKey {
    level: usize,
    label: String,
    slot: i64,
    kind: i64,
    state: String,
    error: String,
    tool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlanKey {
    plan: String,
    kind: i64,
    state: String,
}

#[derive(Clone, Debug, Default)]
struct CellChange {
    added: Option<Tally>,
    removed: Option<Tally>,
}

#[derive(Debug, Default)]
pub(super) struct CountChanges {
    cells: BTreeMap<CellKey, CellChange>,
    plans: BTreeMap<PlanKey, CellChange>,
    written: WrittenTallies,
}

/// The tallies that the last transactions wrote. Most transactions change the cells of the current
/// minute, hour and day again, so they need not read them.
#[derive(Debug, Default)]
struct WrittenTallies {
    cells: BTreeMap<CellKey, Tally>,
    plans: BTreeMap<PlanKey, Tally>,
}

impl WrittenTallies {
    /// Maximum number of tallies in each map. Executions that finish at about the same time usually
    /// change fewer tallies.
    const MAX_TALLIES: usize = 64;

    fn clear_if_large(&mut self) {
        if self.cells.len() > Self::MAX_TALLIES {
            self.cells.clear();
        }
        if self.plans.len() > Self::MAX_TALLIES {
            self.plans.clear();
        }
    }
}

impl CountChanges {
    /// Drops all changes and tallies. Call it after a rollback, and after another process has
    /// written, because the tallies then differ from the file.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Counts the change of a head. `before` is the stored head from [`find_counted`].
    pub(super) fn replace_execution(
        &mut self,
        before: Option<StoredExecution>,
        head: &ExecutionHead,
    ) {
        let after = head.state.is_finished().then(|| CountedExecution::from_head(head));
        let before = before.map(|StoredExecution(counted)| counted);
        if before == after {
            return;
        }
        self.add_change(before, |change| &mut change.removed);
        self.add_change(after, |change| &mut change.added);
    }

    pub(super) fn remove_execution(&mut self, before: Option<StoredExecution>) {
        self.add_change(before.map(|StoredExecution(counted)| counted), |change| {
            &mut change.removed
        });
    }

    fn add_change(
        &mut self,
        counted: Option<CountedExecution>,
        part: impl Fn(&mut CellChange) -> &mut Option<Tally>,
    ) {
        let Some(counted) = counted else { return };
        let tally = counted.to_tally();
        let merge = |change: &mut CellChange| match part(change) {
            Some(there) => there.merge(&tally),
            empty => *empty = Some(tally.clone()),
        };
        counted.cell_keys().for_each(|key| merge(self.cells.entry(key).or_default()));
        counted.plan_keys().into_iter().for_each(|key| merge(self.plans.entry(key).or_default()));
    }

    /// Writes all changes. Call it at the end of the transaction.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // Minutes come before hours, because the bounds of an hour are read from its minutes.
        for (key, change) in std::mem::take(&mut self.cells).into_iter().rev() {
            let before = self.written.cells.remove(&key);
            if let Some(after) = cells::write_cell(connection, &key, before, &change)? {
                self.written.cells.insert(key, after);
            }
        }
        for (key, change) in std::mem::take(&mut self.plans) {
            let before = self.written.plans.remove(&key);
            if let Some(after) = cells::write_plan(connection, &key, before, &change)? {
                self.written.plans.insert(key, after);
            }
        }
        self.written.clear_if_large();
        Ok(())
    }
}

/// A finished execution as it is stored, so that cells count it.
#[derive(Debug)]
pub(super) struct StoredExecution(CountedExecution);

/// Returns the stored head of a log if the execution is finished, which means that cells count it.
pub(super) fn find_counted(
    connection: &Connection,
    log: i64,
) -> rusqlite::Result<Option<StoredExecution>> {
    let sql =
        format!("SELECT {COUNTED_COLUMNS} FROM executions WHERE number = ?1 AND {IS_FINISHED}");
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_row([log], |row| CountedExecution::from_row(row).map(StoredExecution))
        .optional()
}

/// Reads the columns `count`, `firstAt`, `lastAt`, `sample` and `durations`, which begin at index
/// `at`.
fn read_tally(row: &Row<'_>, at: usize) -> rusqlite::Result<Tally> {
    let mut durations = Durations::default();
    durations.merge_encoded(row.get_ref(at + 4)?.as_blob()?);
    Ok(Tally {
        count: row.get::<_, i64>(at)?.unsigned_abs(),
        first_at: row.get(at + 1)?,
        last_at: row.get(at + 2)?,
        sample: row.get(at + 3)?,
        durations,
    })
}
