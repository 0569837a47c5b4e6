//! Answers counts. Cells or the tallies of plans count finished executions if they can answer the
//! query. All other executions are counted one by one.

use std::time::Duration;

use rusqlite::{Connection, Row, params_from_iter, types::Value};
use shared::store::{
    CountGroup, CountQuery, ExecutionCount, ExecutionFilter, LabelFilter, StoreError,
    backend::{CountFields, CountTable, Tally, bucket_micros},
};

use super::{
    super::{connection::to_store_error, lists},
    DRY_RUN_KIND, LABEL_LEVEL, LEVEL_MICROS, ROOT_KIND, label_term, read_tally,
};

const FINISHED: [&str; 3] = ["COMPLETED", "FAILED", "CANCELLED"];
const UNFINISHED: [&str; 5] = ["PENDING", "IN_PROGRESS", "PAUSED", "WAITING", "COMPENSATING"];
/// The columns that [`add_execution`] reads. The value of a label can follow them.
const EXECUTION_COLUMNS: &str = "state, planId, failedTool, errorCode, executions.createdAt,
    startedAt, finishedAt, executions.executionId";

pub(in super::super) fn count_executions(
    connection: &Connection,
    query: &CountQuery,
) -> Result<Vec<ExecutionCount>, StoreError> {
    let mut table = CountTable::new(query);
    let mut counter = Counter { connection, query, table: &mut table };
    let result = if counter.can_use_plans() {
        counter.add_unfinished().and_then(|()| counter.add_plans())
    } else if let Some(cells) = CellQuery::new(&query.filter, &query.groups) {
        counter.add_unfinished().and_then(|()| counter.add_cells(&cells))
    } else {
        counter.add_executions(&[], None)
    };
    result.map_err(Failure::into_store_error)?;
    Ok(table.finish(query.first))
}

/// Returns the number of executions that a list with this filter has on all its pages.
pub(in super::super) fn count_heads(
    connection: &Connection,
    filter: &ExecutionFilter,
) -> Result<u64, StoreError> {
    let count_rows = |states: &[&str], range| -> Result<u64, StoreError> {
        let mut query = lists::head_query(connection, "count(*)", filter)?;
        add_states(&mut query, states);
        query.add_micros_range(range);
        let mut statement = connection.prepare(&query.sql).map_err(|err| to_store_error(&err))?;
        let count = statement.query_row(params_from_iter(query.values), |row| row.get::<_, i64>(0));
        count.map(i64::unsigned_abs).map_err(|err| to_store_error(&err))
    };
    let Some(cells) = CellQuery::new(filter, &[]) else { return count_rows(&[], None) };
    let mut total = count_rows(&UNFINISHED, None)?;
    for segment in cells.divide_into_segments() {
        total += match segment {
            Segment::Executions { from, to } => count_rows(&FINISHED, Some((from, to)))?,
            Segment::Cells { level, from, to } => {
                let last_kind = if filter.is_root { DRY_RUN_KIND } else { super::CHILD_KIND };
                let (condition, values) = cells.build_condition(level, from, to, last_kind);
                let sql = format!("SELECT total(count) FROM execution_counts WHERE {condition}");
                let count = connection.prepare_cached(&sql).and_then(|mut statement| {
                    statement.query_row(params_from_iter(values), |row| row.get::<_, f64>(0))
                });
                to_count(count.map_err(|err| to_store_error(&err))?)
            }
        };
    }
    Ok(total)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of counts is a whole number"
)]
fn to_count(sum: f64) -> u64 {
    sum as u64
}

/// The query failed, or could not be built.
enum Failure {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl Failure {
    fn into_store_error(self) -> StoreError {
        match self {
            Self::Sqlite(err) => to_store_error(&err),
            Self::Store(err) => err,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(err: rusqlite::Error) -> Self {
        Self::Sqlite(err)
    }
}

impl From<StoreError> for Failure {
    fn from(err: StoreError) -> Self {
        Self::Store(err)
    }
}

struct Counter<'a, 'b> {
    connection: &'a Connection,
    query: &'a CountQuery,
    table: &'b mut CountTable<'a>,
}

impl Counter<'_, '_> {
    /// Returns `true` if the tallies of plans can answer the query.
    fn can_use_plans(&self) -> bool {
        let CountQuery { filter, groups, .. } = self.query;
        let states = filter.states.clone();
        let is_plain = ExecutionFilter { states, ..ExecutionFilter::default() };
        let is_plain = ExecutionFilter { is_root: filter.is_root, ..is_plain } == *filter;
        let is_by_plan = groups.contains(&CountGroup::Plan)
            && groups.iter().all(|group| matches!(group, CountGroup::Plan | CountGroup::State));
        is_plain && is_by_plan && filter.states.len() <= 1
    }

    fn add_unfinished(&mut self) -> Result<(), Failure> {
        self.add_executions(&UNFINISHED, None)
    }

    /// Adds executions one by one. If `states` is not empty, adds only executions in these states.
    /// If `range` is `Some`, adds only executions that were created in this range of time.
    fn add_executions(
        &mut self,
        states: &[&str],
        range: Option<(i64, i64)>,
    ) -> Result<(), Failure> {
        let label = self.query.groups.iter().find_map(|group| match group {
            CountGroup::Label(key) => Some(key.clone()),
            _ => None,
        });
        let columns = match label {
            Some(_) => format!(
                "{EXECUTION_COLUMNS}, (SELECT value FROM execution_labels AS grouped
                 WHERE grouped.number = executions.number AND grouped.key = ?)"
            ),
            None => EXECUTION_COLUMNS.to_owned(),
        };
        let mut query = lists::head_query(self.connection, &columns, &self.query.filter)?;
        if let Some(key) = &label {
            query.values.insert(0, key.clone().into());
        }
        query.sql.push_str(" AND parentExecutionId IS NULL AND NOT dryRun");
        add_states(&mut query, states);
        query.add_micros_range(range);
        let mut statement = self.connection.prepare(&query.sql)?;
        let mut found = statement.query(params_from_iter(query.values))?;
        while let Some(row) = found.next()? {
            add_execution(row, label.is_some(), self.table)?;
        }
        Ok(())
    }

    /// Adds the tallies of the plans with the most executions, and the tallies of plans with
    /// unfinished executions.
    fn add_plans(&mut self) -> Result<(), Failure> {
        let CountQuery { filter, groups, first } = self.query;
        let by_state = groups.contains(&CountGroup::State);
        let states: Vec<&str> = match filter.states.as_slice() {
            [] if by_state => FINISHED.to_vec(),
            // Selects the tally of all states.
            [] => vec![""],
            [one, ..] => FINISHED.into_iter().filter(|state| *state == one.as_str()).collect(),
        };
        let first = i64::try_from(*first).unwrap_or(i64::MAX);
        let plans = self.table.plans();
        for state in states {
            let largest = "SELECT planId, count, firstAt, lastAt, sample, durations
                FROM plan_counts INDEXED BY plan_counts_count
                WHERE kind = ?1 AND state = ?2 ORDER BY count DESC, planId LIMIT ?3";
            let mut statement = self.connection.prepare_cached(largest)?;
            let mut found = statement.query(rusqlite::params![ROOT_KIND, state, first])?;
            let mut added = std::collections::BTreeSet::new();
            while let Some(row) = found.next()? {
                let plan: String = row.get(0)?;
                self.table.add(&plan_fields(&plan, state), &read_tally(row, 1)?);
                added.insert(plan);
            }
            let one = "SELECT planId, count, firstAt, lastAt, sample, durations FROM plan_counts
                WHERE planId = ?1 AND kind = ?2 AND state = ?3";
            let mut statement = self.connection.prepare_cached(one)?;
            for plan in plans.iter().filter(|plan| !added.contains(*plan)) {
                let mut found = statement.query(rusqlite::params![plan, ROOT_KIND, state])?;
                while let Some(row) = found.next()? {
                    self.table.add(&plan_fields(plan, state), &read_tally(row, 1)?);
                }
            }
        }
        Ok(())
    }

    fn add_cells(&mut self, cells: &CellQuery<'_>) -> Result<(), Failure> {
        // The newest segments come first, so that a query for the newest buckets can stop.
        for segment in cells.divide_into_segments() {
            match segment {
                Segment::Executions { from, to } => {
                    self.add_executions(&FINISHED, Some((from, to)))?;
                }
                Segment::Cells { level, from, to } => {
                    let (condition, values) = cells.build_condition(level, from, to, ROOT_KIND);
                    let sql = format!(
                        "SELECT slot, label, state, error, tool, count, firstAt, lastAt, sample,
                         durations FROM execution_counts WHERE {condition} ORDER BY slot DESC"
                    );
                    let mut statement = self.connection.prepare_cached(&sql)?;
                    let mut found = statement.query(params_from_iter(values))?;
                    let mut last_slot = None;
                    while let Some(row) = found.next()? {
                        let slot: i64 = row.get(0)?;
                        let is_new = last_slot.replace(slot) != Some(slot);
                        if is_new && self.table.has_newer_groups(slot, self.query.first) {
                            return Ok(());
                        }
                        add_cell(row, slot, self.table)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn plan_fields<'a>(plan: &'a str, state: &'a str) -> CountFields<'a> {
    CountFields { state, plan, tool: None, error: None, label: None, created_at: 0 }
}

fn add_states(query: &mut lists::Query, states: &[&str]) {
    if !states.is_empty() {
        let words: Vec<String> = states.iter().map(|state| format!("'{state}'")).collect();
        query.sql.extend([" AND state IN (", &words.join(", "), ")"]);
    }
}

fn add_execution(
    row: &Row<'_>,
    has_label: bool,
    table: &mut CountTable<'_>,
) -> rusqlite::Result<()> {
    let (state, plan): (String, String) = (row.get(0)?, row.get(1)?);
    let (tool, error): (Option<String>, Option<String>) = (row.get(2)?, row.get(3)?);
    let label: Option<String> = if has_label { row.get(8)? } else { None };
    let created_at = row.get(4)?;
    let end: Option<i64> = row.get(6)?;
    let end = end.filter(|_| FINISHED.contains(&state.as_str()));
    let tally = Tally::of_one(&row.get::<_, String>(7)?, created_at, row.get(5)?, end);
    let fields = CountFields {
        state: &state,
        plan: &plan,
        tool: tool.as_deref(),
        error: error.as_deref(),
        label: label.as_deref(),
        created_at,
    };
    table.add(&fields, &tally);
    Ok(())
}

fn add_cell(row: &Row<'_>, slot: i64, table: &mut CountTable<'_>) -> rusqlite::Result<()> {
    let text = |index: usize| -> rusqlite::Result<&str> { Ok(row.get_ref(index)?.as_str()?) };
    let given = |text: &'_ str| !text.is_empty();
    let fields = CountFields {
        state: text(2)?,
        plan: "",
        tool: Some(text(4)?).filter(|text| given(text)),
        error: Some(text(3)?).filter(|text| given(text)),
        label: text(1)?.split_once('=').map(|(_, value)| value),
        created_at: slot,
    };
    table.add(&fields, &read_tally(row, 5)?);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Cells { level: usize, from: i64, to: i64 },
    Executions { from: i64, to: i64 },
}

#[derive(Debug)]
struct CellQuery<'a> {
    filter: &'a ExecutionFilter,
    /// The labels of the cells. `None` selects cells without a label.
    label: Option<LabelFilter>,
    /// The levels of cells whose periods fit into the buckets of the query, the longest periods
    /// first.
    levels: Vec<usize>,
}

impl<'a> CellQuery<'a> {
    /// Returns `None` if cells lack data that the filter or a group needs.
    fn new(filter: &'a ExecutionFilter, groups: &[CountGroup]) -> Option<Self> {
        let has_more = filter.request.is_some()
            || filter.plan.is_some()
            || filter.tool.is_some()
            || filter.needs_person.is_some()
            || filter.error_text.is_some()
            || filter.ids.is_some()
            || groups.contains(&CountGroup::Plan);
        if has_more {
            return None;
        }
        let grouped = groups.iter().find_map(|group| match group {
            CountGroup::Label(key) => Some(key),
            _ => None,
        });
        let label = match (filter.labels.as_slice(), grouped) {
            ([], None) => None,
            ([], Some(key)) => Some(LabelFilter { key: key.clone(), value: None }),
            ([one], None) => Some(one.clone()),
            ([one], Some(key)) if one.key == *key => Some(one.clone()),
            _ => return None,
        };
        let bucket = groups.iter().find_map(|group| match group {
            CountGroup::Bucket(length) => Some(*length),
            _ => None,
        });
        let divides = |level: &usize| is_divided(bucket, LEVEL_MICROS[*level]);
        let levels =
            if label.is_some() { LABEL_LEVEL..LABEL_LEVEL + 1 } else { 0..LEVEL_MICROS.len() };
        let levels: Vec<usize> = levels.filter(divides).collect();
        (!levels.is_empty()).then_some(Self { filter, label, levels })
    }

    fn divide_into_segments(&self) -> Vec<Segment> {
        let from = self.filter.from.map_or(i64::MIN, |time| time.timestamp_micros());
        let to = self.filter.to.map_or(i64::MAX, |time| time.timestamp_micros());
        let mut segments = Vec::new();
        add_segments(&mut segments, &self.levels, from, to);
        segments
    }

    /// Returns SQL that selects cells, and the values for its `?`.
    fn build_condition(
        &self,
        level: usize,
        from: i64,
        to: i64,
        last_kind: i64,
    ) -> (String, Vec<Value>) {
        let mut sql = "level = ?".to_owned();
        let mut values: Vec<Value> = vec![i64::try_from(level).unwrap_or_default().into()];
        let mut add = |condition: &str, value: Value| {
            sql.extend([" AND ", condition]);
            values.push(value);
        };
        match &self.label {
            None => add("label = ?", String::new().into()),
            Some(LabelFilter { key, value: Some(value) }) => {
                add("label = ?", label_term(key, value).into());
            }
            Some(LabelFilter { key, value: None }) => {
                add("label >= ?", label_term(key, "").into());
                // Selects all labels with this key, because `>` is the character after `=`.
                add("label < ?", format!("{key}>").into());
            }
        }
        add("slot >= ?", from.into());
        add("slot < ?", to.into());
        add("kind <= ?", last_kind.into());
        if let Some(code) = &self.filter.error_code {
            add("error = ?", code.clone().into());
        }
        if let Some(tool) = &self.filter.failed_tool {
            add("tool = ?", tool.as_str().to_owned().into());
        }
        if !self.filter.states.is_empty() {
            let words = self.filter.states.iter().map(|state| format!("'{}'", state.as_str()));
            sql.extend([" AND state IN (", &words.collect::<Vec<_>>().join(", "), ")"]);
        }
        (sql, values)
    }
}

/// Returns `true` if each bucket consists of whole periods of this length.
fn is_divided(bucket: Option<Duration>, length: i64) -> bool {
    bucket.is_none_or(|bucket| bucket_micros(bucket) % length == 0)
}

/// Covers a range of time with periods of the longest level, and the rest before and after them
/// with shorter periods.
fn add_segments(segments: &mut Vec<Segment>, levels: &[usize], from: i64, to: i64) {
    if from >= to {
        return;
    }
    let [level, finer @ ..] = levels else {
        segments.push(Segment::Executions { from, to });
        return;
    };
    let length = LEVEL_MICROS[*level];
    let is_open = |time: i64| time == i64::MIN || time == i64::MAX;
    let start = if is_open(from) { from } else { from.div_euclid(length) * length };
    let start = if start < from { start + length } else { start };
    let end = if is_open(to) { to } else { to.div_euclid(length) * length };
    if start >= end {
        add_segments(segments, finer, from, to);
        return;
    }
    add_segments(segments, finer, end, to);
    segments.push(Segment::Cells { level: *level, from: start, to: end });
    add_segments(segments, finer, from, start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_time_is_covered_by_the_longest_periods() {
        let [day, hour, minute] = LEVEL_MICROS;
        let cover = |levels: &[usize], from, to| {
            let mut segments = Vec::new();
            add_segments(&mut segments, levels, from, to);
            segments
        };
        let cells = |level, from, to| Segment::Cells { level, from, to };
        assert_eq!(cover(&[0, 1, 2], i64::MIN, i64::MAX), [cells(0, i64::MIN, i64::MAX)]);
        let (from, to) = (day - hour - minute - 1, 3 * day + 1);
        let expected = [
            Segment::Executions { from: 3 * day, to },
            cells(0, day, 3 * day),
            cells(1, day - hour, day),
            cells(2, day - hour - minute, day - hour),
            Segment::Executions { from, to: day - hour - minute },
        ];
        assert_eq!(cover(&[0, 1, 2], from, to), expected);
        assert_eq!(cover(&[2], 5, 7), [Segment::Executions { from: 5, to: 7 }]);
        assert_eq!(cover(&[0], -day, 0), [cells(0, -day, 0)]);
        assert_eq!(cover(&[0, 1, 2], 7, 7), []);
    }
}
