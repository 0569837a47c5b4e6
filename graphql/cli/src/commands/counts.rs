//! `faber counts`: numbers of executions by state, tool, error, plan, label or time.

use client::{
    failure::Failure,
    types::ExecutionCount,
    view::{
        format::{format_duration, format_second},
        paint::Paint,
    },
};
use engine::age;
use serde_json::{Value, json};

use super::{failed_tool::find_failed_tool, list::label_filter, time_range};
use crate::{
    ExitStatus,
    args::{CountKey, CountsArgs, DetailFilters, api_name},
    session::Session,
};

const DEFAULT_BUCKET: &str = "1h";

pub(crate) async fn count_executions(
    session: &Session<'_>,
    args: CountsArgs,
) -> Result<ExitStatus, Failure> {
    let CountsArgs { by, since, until, state, tool, label_key, bucket, details, first } = args;
    let DetailFilters { labels, error, failed_tool, error_text } = details;
    let failed_tool = find_failed_tool(session, failed_tool).await?;
    let states: Vec<String> = state.iter().map(api_name).collect();
    let filter = client::remove_nulls(json!({
        "state": (!states.is_empty()).then_some(states), "toolName": tool,
        "from": time_range::parse_option("--since", since.as_deref())?,
        "to": time_range::parse_option("--until", until.as_deref())?,
        "labels": (!labels.is_empty()).then(|| label_filter(&labels)),
        "errorCode": error, "failedTool": failed_tool, "errorText": error_text,
    }));
    let keys: Vec<String> = by.iter().map(api_name).collect();
    let arguments = [
        ("filter: ExecutionFilter", filter),
        ("groupBy: [ExecutionGroup!]!", json!(keys)),
        ("bucketMs: Int", bucket_ms(&by, bucket.as_deref())?),
        ("label: String", json!(label_key)),
        ("first: Int", json!(first)),
    ];
    let counts: Value =
        session.client.query("executionCounts", &arguments, ExecutionCount::FIELDS).await?;
    let headings: Vec<&str> = ["COUNT"]
        .into_iter()
        .chain(keys.iter().map(String::as_str))
        .chain(["P50", "P95", "LAST", "EXAMPLE"])
        .collect();
    session.screen.print_list(&counts, &headings, count_row)
}

/// Returns the length of the buckets, or null if executions are not counted by time.
fn bucket_ms(by: &[CountKey], bucket: Option<&str>) -> Result<Value, Failure> {
    let bucket = match (by.contains(&CountKey::Bucket), bucket) {
        (false, None) => return Ok(Value::Null),
        (false, Some(_)) => return Err(Failure::usage("`--bucket` needs `--by bucket`")),
        (true, bucket) => bucket.unwrap_or(DEFAULT_BUCKET),
    };
    let length = age::parse(bucket).map_err(Failure::usage)?;
    Ok(json!(length.as_millis()))
}

fn count_row(count: &ExecutionCount, _: Paint) -> Vec<String> {
    let duration = |ms: Option<f64>| ms.map(format_duration).unwrap_or_default();
    let mut row = vec![count.count.to_string()];
    row.extend(count.keys.iter().map(ToString::to_string));
    row.extend([
        duration(count.p50_ms),
        duration(count.p95_ms),
        format_second(&count.last_at),
        count.sample_execution_id.to_string(),
    ]);
    row
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::screen::draw_table;

    #[test]
    fn a_row_has_the_keys_and_an_example() {
        let counts = json!([
            { "keys": ["shop.charge", "tool.failed"], "count": 18, "p50Ms": 310.0, "p95Ms": null,
              "firstAt": "2026-01-01T00:00:00.000001Z", "lastAt": "2026-01-01T00:00:00.000001Z", "sampleExecutionId": "exec_1_aaaaaaaaa" },
        ]);
        let counts: Vec<ExecutionCount> = serde_json::from_value(counts).unwrap();
        let paint = Paint::new(false);
        let rows: Vec<_> = counts.iter().map(|count| count_row(count, paint)).collect();
        let headings = ["COUNT", "TOOL", "ERROR", "P50", "P95", "LAST", "EXAMPLE"];
        expect![[r"
            COUNT  TOOL         ERROR        P50     P95  LAST                 EXAMPLE
            18     shop.charge  tool.failed  310 ms       2026-01-01 00:00:00  exec_1_aaaaaaaaa"]]
        .assert_eq(&draw_table(&headings, &rows, Some(120), paint));
    }

    #[test]
    fn a_bucket_needs_its_key() {
        let hour = json!(3_600_000);
        assert_eq!(bucket_ms(&[CountKey::Bucket], None).unwrap(), hour);
        assert_eq!(bucket_ms(&[CountKey::Bucket], Some("1h")).unwrap(), hour);
        assert_eq!(bucket_ms(&[CountKey::Tool], None).unwrap(), Value::Null);
        assert_eq!(bucket_ms(&[CountKey::Tool], Some("1h")).unwrap_err().status(), 2);
        assert_eq!(bucket_ms(&[CountKey::Bucket], Some("x")).unwrap_err().status(), 2);
    }
}
