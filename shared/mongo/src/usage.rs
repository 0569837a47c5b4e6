//! How often tools were called, in MongoDB: one document a tool, which every node adds to.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use mongodb::bson::{Document as Row, doc};
use shared::store::{StoreError, Usage};

use super::{
    Mongo,
    commands::{self, Safety},
    connection::failed,
    lists, rows,
};

/// The collection.
const USAGE: &str = "usage";

impl Mongo {
    /// Adds calls to those that are counted.
    pub(super) async fn count_usage(&self, usage: &[Usage]) -> Result<(), StoreError> {
        if usage.is_empty() {
            return Ok(());
        }
        let updates: Vec<Row> = usage.iter().map(addition).collect();
        let command = commands::update(USAGE, &updates, Safety::Durable)?;
        commands::run(&self.database, command).await.map(drop)
    }

    /// Returns how often each tool was called.
    pub(super) async fn counted_usage(&self) -> Result<Vec<Usage>, StoreError> {
        let found = self.collection(USAGE).find(doc! {}).sort(doc! { "_id": 1 }).await;
        let found = found.map_err(|err| failed(&err))?;
        let found: Vec<Row> = found.try_collect().await.map_err(|err| failed(&err))?;
        lists::good(found.iter().map(read))
    }
}

fn addition(usage: &Usage) -> Row {
    let mut more = doc! {
        "calls": usage.calls.cast_signed(),
        "failures": usage.failures.cast_signed(),
    };
    for (bucket, calls) in &usage.times {
        more.insert(format!("times.{bucket}"), calls.cast_signed());
    }
    let change = doc! { "$inc": more, "$max": { "last": usage.last.timestamp_micros() } };
    doc! { "q": { "_id": usage.tool.as_str() }, "u": change, "upsert": true }
}

fn read(row: &Row) -> Result<Usage, StoreError> {
    let name = rows::text(row, "_id", "usage")?;
    let count = |field| Ok::<_, StoreError>(rows::integer(row, field, name)?.cast_unsigned());
    let times = row.get_document("times").map_err(|err| StoreError::corrupt(name, err))?;
    let times = times.iter().filter_map(|(bucket, calls)| {
        Some((bucket.parse().ok()?, calls.as_i64()?.cast_unsigned()))
    });
    Ok(Usage {
        tool: rows::parse(row, "_id", "usage")?,
        calls: count("calls")?,
        failures: count("failures")?,
        last: rows::time(row, "last", name)?,
        times: times.collect::<BTreeMap<_, _>>(),
    })
}
