use std::time::Duration;

use async_graphql::{Enum, ID, SimpleObject};
use shared::{
    labels,
    store::{CountGroup, CountQuery, ExecutionCount as StoreCount},
};

use super::{
    connection::check_count,
    error::{ApiResult, invalid_argument},
    input::ExecutionFilter,
    scalar::{DateTime, to_int},
};

const MAX_GROUPS: usize = 1_000;
const MAX_KEYS: usize = 2;

/// Key by which executions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum ExecutionGroup {
    /// State of the execution.
    State,
    /// Tool of the step that had the first error, as `set.name`. Executions without an error of a
    /// step are left out.
    Tool,
    /// Code of the first error. Executions without an error are left out.
    Error,
    /// Id of the plan, `plan_…`.
    Plan,
    /// Value of the label that the argument `label` names. Executions without this label are left
    /// out.
    Label,
    /// Interval of the time of creation. Its length is the argument `bucketMs`, and the intervals
    /// are counted from 1970-01-01 in UTC.
    Bucket,
}

/// Number of executions with the same keys. Child executions and dry runs are not counted.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct ExecutionCount {
    /// Values of the keys, in the order of `groupBy`. The value for `BUCKET` is the time at which
    /// the interval begins, in the format of RFC 3339.
    keys: Vec<String>,
    /// Number of executions.
    count: i64,
    /// Time of creation of the oldest execution.
    first_at: DateTime,
    /// Time of creation of the newest execution.
    last_at: DateTime,
    /// Id of the newest execution, `exec_…`.
    sample_execution_id: ID,
    /// Median of the durations of finished executions, in milliseconds, accurate to 10 %. Null if
    /// no execution has finished.
    p50_ms: Option<f64>,
    /// 95th percentile of the durations of finished executions, in milliseconds, accurate to 10 %.
    /// Null if no execution has finished.
    p95_ms: Option<f64>,
}

impl From<StoreCount> for ExecutionCount {
    fn from(found: StoreCount) -> Self {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1_000.0;
        Self {
            keys: found.keys,
            count: to_int(found.count),
            first_at: found.first_at.into(),
            last_at: found.last_at.into(),
            sample_execution_id: ID(found.sample.to_string()),
            p50_ms: found.p50.map(milliseconds),
            p95_ms: found.p95.map(milliseconds),
        }
    }
}

pub(super) struct CountArguments {
    pub(super) filter: Option<ExecutionFilter>,
    pub(super) group_by: Vec<ExecutionGroup>,
    pub(super) bucket_ms: Option<i64>,
    pub(super) label: Option<String>,
    pub(super) first: i32,
}

impl CountArguments {
    /// Returns the query, or `None` if no execution can match.
    pub(super) fn into_query(self) -> ApiResult<Option<CountQuery>> {
        let Self { filter, group_by, bucket_ms, label, first } = self;
        let has = |group: ExecutionGroup| group_by.contains(&group);
        let is_repeated = group_by.first() == group_by.get(1);
        if group_by.is_empty() || group_by.len() > MAX_KEYS || is_repeated {
            return Err(invalid_argument("`groupBy` must name one or two different keys"));
        }
        let bucket = match (has(ExecutionGroup::Bucket), bucket_ms) {
            (true, Some(ms)) if ms >= 1 => Duration::from_millis(ms.unsigned_abs()),
            (true, Some(ms)) => {
                return Err(invalid_argument(format!("`bucketMs` is {ms}; it must be at least 1")));
            }
            (true, None) => return Err(invalid_argument("`BUCKET` needs the argument `bucketMs`")),
            (false, Some(_)) => {
                return Err(invalid_argument("`bucketMs` needs `BUCKET` in `groupBy`"));
            }
            (false, None) => Duration::ZERO,
        };
        let label = match (has(ExecutionGroup::Label), label) {
            (true, Some(key)) => {
                labels::check_key(&key).map_err(invalid_argument)?;
                key
            }
            (true, None) => return Err(invalid_argument("`LABEL` needs the argument `label`")),
            (false, Some(_)) => return Err(invalid_argument("`label` needs `LABEL` in `groupBy`")),
            (false, None) => String::new(),
        };
        let first = check_count("first", first, MAX_GROUPS)?;
        let Some(filter) = filter.unwrap_or_default().into_store_filter()? else {
            return Ok(None);
        };
        let groups = group_by.into_iter().map(|group| match group {
            ExecutionGroup::State => CountGroup::State,
            ExecutionGroup::Tool => CountGroup::Tool,
            ExecutionGroup::Error => CountGroup::Error,
            ExecutionGroup::Plan => CountGroup::Plan,
            ExecutionGroup::Label => CountGroup::Label(label.clone()),
            ExecutionGroup::Bucket => CountGroup::Bucket(bucket),
        });
        Ok(Some(CountQuery { filter, groups: groups.collect(), first }))
    }
}
