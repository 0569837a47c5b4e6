//! Tests that counts are built in batches, and measures counts over many executions. Measure with
//! `FABER_COUNT_ROWS=1000000 cargo test --release -p sqlite counts -- --ignored --nocapture`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    store::{CountGroup, CountQuery, ExecutionFilter, LabelFilter, backend::LAYOUT},
};

use super::{build::count_batch, count_executions, count_heads, prepare_counts};
use crate::schema;

/// Inserts executions. The value of `createdAt` grows by a quarter of a second with each execution,
/// so that ten million executions are spread over a month.
const INSERT_EXECUTIONS: &str = "
INSERT INTO logs SELECT value, printf('exec_1704067200_%09d', value)
    FROM generate_series;
INSERT INTO executions (number, executionId, requestId, planId, state, createdAt, seq, epoch,
    priority, finishedAt, startedAt, stepsDone, stepsTotal, errorCode, failedTool, errorMessage)
SELECT value, printf('exec_1704067200_%09d', value), printf('req_1_%09d', value),
    printf('plan_1704067200_%09d', CASE WHEN value % 10 THEN 1 ELSE value END),
    CASE WHEN value % 10 THEN 'COMPLETED' WHEN value % 100 THEN 'FAILED' ELSE 'CANCELLED' END,
    1704067200000000 + value * 250000, 5, 1, 0,
    1704067200000000 + value * 250000 + 1000 * (value % 977),
    1704067200000000 + value * 250000, 3, 3,
    CASE WHEN value % 10 = 0 THEN 'tool.code' || (value % 7) END,
    CASE WHEN value % 10 = 0 THEN 'set.tool' || (value % 13) END, 'failed'
FROM generate_series;
";

fn insert_executions(connection: &Connection, rows: u64) {
    connection
        .execute_batch(&format!(
            "CREATE TEMP TABLE generate_series AS WITH RECURSIVE n(value) AS
             (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {rows})
             SELECT value FROM n;
             BEGIN; {INSERT_EXECUTIONS} COMMIT; DROP TABLE generate_series;"
        ))
        .unwrap();
}

fn measure_time<T>(title: &str, run: impl Fn() -> T) -> (T, Duration) {
    let (mut best, mut result) = (Duration::MAX, None);
    for _ in 0..5 {
        let start = Instant::now();
        result = Some(run());
        best = best.min(start.elapsed());
    }
    #[expect(clippy::print_stdout, reason = "a measurement is read by people")]
    let () = println!("{title}: {best:?}");
    (result.unwrap(), best)
}

fn open(folder: &Path) -> Connection {
    let path = folder.join("faber.db");
    crate::connection::create_file(&path).unwrap();
    let connection = crate::connection::open_writer(&path).unwrap();
    schema::prepare_schema(&connection, &path, LAYOUT, || false).unwrap();
    connection
}

fn read_cells(connection: &Connection) -> Vec<String> {
    let mut cells = Vec::new();
    for sql in [
        "SELECT concat_ws('|', level, label, slot, kind, state, error, tool, count, firstAt, lastAt,
             sample, hex(durations)) FROM execution_counts ORDER BY 1",
        "SELECT concat_ws('|', planId, kind, state, count, firstAt, lastAt, sample, hex(durations))
             FROM plan_counts ORDER BY 1",
    ] {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        cells.extend(rows.map(Result::unwrap));
    }
    cells
}

/// A process is killed after two batches, in the middle of the third batch.
#[test]
fn counting_goes_on_where_a_killed_process_stopped() {
    const ROWS: u64 = 1_000;
    let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let whole = open(whole.path());
    insert_executions(&whole, ROWS);
    prepare_counts(&whole).unwrap();
    let killed = open(parts.path());
    insert_executions(&killed, ROWS);
    for _ in 0..2 {
        assert_eq!(count_batch(&killed, 300), Ok(Some(300)));
    }
    killed.execute_batch("BEGIN IMMEDIATE; DELETE FROM execution_counts;").unwrap();
    drop(killed);
    let next = open(parts.path());
    assert_eq!(count_batch(&next, 300), Ok(Some(300)));
    prepare_counts(&next).unwrap();
    assert_eq!(count_batch(&next, 300), Ok(None));
    assert_eq!(count_heads(&next, &ExecutionFilter::default()), Ok(ROWS));
    assert_eq!(read_cells(&next), read_cells(&whole));
    let cursor = "SELECT count(*) FROM meta WHERE name = 'counts_after'";
    assert_eq!(next.query_row(cursor, [], |row| row.get::<_, i64>(0)), Ok(0));
}

#[test]
#[ignore = "takes minutes"]
fn counts_of_many_executions_are_fast() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the number of rows is an option of the measurement"
    )]
    let rows = std::env::var("FABER_COUNT_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let connection = open(folder.path());
    insert_executions(&connection, rows);
    let start = Instant::now();
    prepare_counts(&connection).unwrap();
    measure_time(&format!("built the counts of {rows} executions in {:?}", start.elapsed()), || ());
    let none = ExecutionFilter::default;
    let day = CountGroup::Bucket(Duration::from_hours(24));
    let minute = CountGroup::Bucket(Duration::from_mins(1));
    let at = |seconds: i64| Timestamp::from_timestamp(1_704_067_200 + seconds, 7);
    let nothing = LabelFilter { key: "team".to_owned(), value: None };
    let cases = [
        ("by state", vec![CountGroup::State], none()),
        ("by error", vec![CountGroup::Error], none()),
        ("by tool and error", vec![CountGroup::Tool, CountGroup::Error], none()),
        ("by plan", vec![CountGroup::Plan], none()),
        ("by plan and state", vec![CountGroup::Plan, CountGroup::State], none()),
        ("by day and state", vec![day, CountGroup::State], none()),
        ("by minute", vec![minute], none()),
        (
            "by state in a range",
            vec![CountGroup::State],
            ExecutionFilter { from: at(1_000), to: at(200_000), ..none() },
        ),
        (
            "by error of failed ones",
            vec![CountGroup::Error],
            ExecutionFilter { states: vec![ExecutionState::Failed], ..none() },
        ),
        (
            "nothing, by code",
            vec![CountGroup::State],
            ExecutionFilter { error_code: Some("none".to_owned()), ..none() },
        ),
        (
            "nothing, by label",
            vec![CountGroup::State],
            ExecutionFilter { labels: vec![nothing], ..none() },
        ),
        (
            "nothing, by text",
            vec![CountGroup::State],
            ExecutionFilter { error_text: Some("nowhere".to_owned()), ..none() },
        ),
    ];
    let limit = Duration::from_millis(if rows > 2_000_000 { 300 } else { 50 });
    for (title, groups, filter) in cases {
        let query = CountQuery { filter, groups, first: 100 };
        let (found, took) = measure_time(title, || count_executions(&connection, &query).unwrap());
        assert_eq!(found.is_empty(), title.starts_with("nothing"), "{title}");
        assert!(took < limit, "{title}: {took:?}");
    }
    let (total, took) =
        measure_time("the length of the list", || count_heads(&connection, &none()));
    assert_eq!(total, Ok(rows));
    assert!(took < limit, "{took:?}");
}
