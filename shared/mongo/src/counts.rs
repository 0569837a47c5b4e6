//! Counts executions by group. The server counts the executions of each group and of each bucket of
//! durations. This process then merges the buckets.

use mongodb::{
    Collection,
    bson::{Bson, Document as Row, doc},
};
use shared::store::{
    CountGroup, CountQuery, ExecutionCount, ExecutionFilter, StoreError,
    backend::{CountFields, CountTable, Durations, Tally, bucket_micros},
};

use super::{
    Mongo,
    connection::to_store_error,
    lists::{self, CREATED, ListQuery},
    rows::FINISHED_STATES,
};

pub(super) async fn count_rows(
    collection: &Collection<Row>,
    query: ListQuery,
) -> Result<u64, StoreError> {
    let ListQuery { sources: mut pipeline, matching, stages } = query;
    if pipeline.is_empty()
        && matching.is_empty()
        && !stages.iter().any(|stage| stage.contains_key("$lookup"))
    {
        let count = collection.estimated_document_count().await;
        return count.map_err(|err| to_store_error(&err));
    }
    pipeline.push(doc! { "$match": matching });
    pipeline.extend(stages);
    pipeline.push(doc! { "$count": "count" });
    let rows = lists::read_all(collection.aggregate(pipeline).await).await?;
    let count = rows.first().and_then(|row| as_integer(row.get("count")?));
    Ok(count.unwrap_or_default().unsigned_abs())
}

fn as_integer(value: &Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}

impl Mongo {
    pub(super) async fn count_groups(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        let roots = ExecutionFilter { is_root: true, ..query.filter.clone() };
        let ListQuery { mut matching, stages, .. } = if query.filter.is_root {
            self.select_heads(&roots).await?
        } else {
            // Keeps the filter as it is, because in a list of roots `needsPerson` would also select
            // ancestors.
            self.select_heads(&query.filter).await?
        };
        matching.insert("parentExecutionId", doc! { "$exists": false });
        matching.insert("dryRun", doc! { "$ne": true });
        let mut pipeline = vec![doc! { "$match": matching }];
        pipeline.extend(stages);
        pipeline.push(group_stage(&query.groups));
        let found = self.heads.aggregate(pipeline).allow_disk_use(true).await;
        let mut table = CountTable::new(query);
        for row in lists::read_all(found).await? {
            add_row(&mut table, &row, &query.groups);
        }
        Ok(table.finish(query.first))
    }
}

fn group_stage(groups: &[CountGroup]) -> Row {
    let mut id = Row::new();
    for (n, group) in groups.iter().enumerate() {
        let key: Bson = match group {
            CountGroup::State => "$state".into(),
            CountGroup::Tool => "$failedTool".into(),
            CountGroup::Error => "$errorCode".into(),
            CountGroup::Plan => "$planId".into(),
            CountGroup::Label(key) => {
                doc! { "$getField": { "field": { "$literal": key }, "input": "$labels" } }.into()
            }
            CountGroup::Bucket(length) => {
                let created = format!("${CREATED}");
                let rest = doc! { "$mod": [&created, bucket_micros(*length)] };
                doc! { "$subtract": [created, rest] }.into()
            }
        };
        id.insert(format!("k{n}"), key);
    }
    id.insert("duration", duration_bucket());
    let created = format!("${CREATED}");
    doc! { "$group": {
        "_id": id,
        "count": { "$sum": 1_i64 },
        "first": { "$min": &created },
        "last": { "$max": { "at": created, "id": "$_id" } },
    } }
}

/// The bucket of the time from start to end, as [`shared::store::Usage::bucket`] computes it. Null
/// if the execution is not finished.
fn duration_bucket() -> Row {
    let created = format!("${CREATED}");
    let start = doc! { "$ifNull": ["$startedAtMicros", created] };
    let micros = doc! { "$max": [1, { "$subtract": ["$finishedAtMicros", start] }] };
    let bucket = doc! { "$floor": { "$multiply": [{ "$log": [micros, 2] }, 8] } };
    let is_finished = doc! { "$and": [
        { "$in": ["$state", FINISHED_STATES.to_vec()] },
        { "$gt": ["$finishedAtMicros", Bson::Null] },
    ] };
    doc! { "$cond": [is_finished, { "$toInt": { "$min": [bucket, 320] } }, Bson::Null] }
}

/// Adds a group to the table, unless the group is damaged.
fn add_row(table: &mut CountTable<'_>, row: &Row, groups: &[CountGroup]) {
    let Ok(id) = row.get_document("_id") else { return };
    let mut fields =
        CountFields { state: "", plan: "", tool: None, error: None, label: None, created_at: 0 };
    for (n, group) in groups.iter().enumerate() {
        let key = id.get(format!("k{n}"));
        let text = key.and_then(Bson::as_str);
        match group {
            CountGroup::State => fields.state = text.unwrap_or_default(),
            CountGroup::Tool => fields.tool = text,
            CountGroup::Error => fields.error = text,
            CountGroup::Plan => fields.plan = text.unwrap_or_default(),
            CountGroup::Label(_) => fields.label = text,
            CountGroup::Bucket(_) => {
                fields.created_at = key.and_then(as_integer).unwrap_or_default();
            }
        }
    }
    if let Some(tally) = read_tally(row, id) {
        table.add(&fields, &tally);
    }
}

fn read_tally(row: &Row, id: &Row) -> Option<Tally> {
    let count = as_integer(row.get("count")?)?.unsigned_abs();
    let last = row.get_document("last").ok()?;
    let bucket = id.get("duration").and_then(as_integer);
    let bucket = bucket.and_then(|bucket| u16::try_from(bucket).ok());
    Some(Tally {
        count,
        first_at: as_integer(row.get("first")?)?,
        last_at: as_integer(last.get("at")?)?,
        sample: last.get_str("id").ok()?.to_owned(),
        durations: bucket
            .map_or_else(Durations::default, |bucket| Durations::of_bucket(bucket, count)),
    })
}
