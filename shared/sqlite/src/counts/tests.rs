//! Measures counts over many executions. Run it with
//! `FABER_COUNT_ROWS=1000000 cargo test --release -p sqlite counts::tests -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    store::{CountGroup, CountQuery, ExecutionFilter, LabelFilter, backend::LAYOUT},
};

use super::{count_executions, count_heads, prepare_counts};
use crate::schema;

/// Two minutes apart for each ten executions, so that 10⁷ take four years.
const INSERT: &str = "
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

fn fill(connection: &Connection, rows: u64) {
    connection
        .execute_batch(&format!(
            "CREATE TEMP TABLE generate_series AS WITH RECURSIVE n(value) AS
             (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {rows})
             SELECT value FROM n;
             BEGIN; {INSERT} COMMIT; DROP TABLE generate_series;"
        ))
        .unwrap();
}

fn time<T>(title: &str, run: impl Fn() -> T) -> (T, Duration) {
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

#[test]
#[ignore = "takes minutes"]
fn counts_of_many_executions_are_fast() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the number of rows is an option of the measurement"
    )]
    let rows = std::env::var("FABER_COUNT_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("faber.db");
    crate::connection::create_file(&path).unwrap();
    let connection = crate::connection::open_writer(&path).unwrap();
    schema::prepare_schema(&connection, &path, LAYOUT, || false).unwrap();
    fill(&connection, rows);
    let start = Instant::now();
    prepare_counts(&connection).unwrap();
    time(&format!("built the counts of {rows} executions in {:?}", start.elapsed()), || ());
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
        let (found, took) = time(title, || count_executions(&connection, &query).unwrap());
        assert_eq!(found.is_empty(), title.starts_with("nothing"), "{title}");
        assert!(took < limit, "{title}: {took:?}");
    }
    let (total, took) = time("the length of the list", || count_heads(&connection, &none()));
    assert_eq!(total, Ok(rows));
    assert!(took < limit, "{took:?}");
}
