//! What calls returned, kept for those that ask the same.

use std::sync::{Arc, atomic::Ordering};

use futures::TryStreamExt;
use mongodb::{
    bson::{DateTime, Document as Row, doc},
    options::WriteConcern,
};
use serde_json::Value;
use shared::{clock::Timestamp, limits, store::StoreError};

use super::{Mongo, connection::failed, rows};

/// So many are written between one count and the next.
const COUNT_EVERY: u64 = 256;

impl Mongo {
    pub(super) async fn output(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Value>>, StoreError> {
        let fresh = doc! { "_id": key, "until": { "$gt": now.timestamp_micros() } };
        let found = self.outputs.find_one(fresh).await.map_err(|err| failed(&err))?;
        let Some(row) = found else { return Ok(None) };
        let json = serde_json::from_str(rows::text(&row, "json", key)?);
        json.map(Some).map_err(|err| StoreError::corrupt(key, err))
    }

    /// Keeps an output; it is a cache, so the majority need not confirm it.
    pub(super) async fn put_output(
        &self,
        key: &str,
        output: &Value,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let row = doc! {
            "_id": key,
            "until": until.timestamp_micros(),
            "expires": DateTime::from_millis(until.timestamp_millis()),
            "json": output.to_string(),
        };
        let put = self.outputs.replace_one(doc! { "_id": key }, row).upsert(true);
        put.write_concern(WriteConcern::nodes(1)).await.map_err(|err| failed(&err))?;
        if self.rounds.outputs.fetch_add(1, Ordering::Relaxed).is_multiple_of(COUNT_EVERY) {
            self.make_room().await?;
        }
        Ok(())
    }

    /// Removes what expires the soonest, so that there is room until the next count.
    async fn make_room(&self) -> Result<(), StoreError> {
        let outputs = &self.outputs;
        let count = outputs.estimated_document_count().await.map_err(|err| failed(&err))?;
        let too_many = (count + COUNT_EVERY).saturating_sub(limits::CACHE_ENTRIES as u64);
        if too_many == 0 {
            return Ok(());
        }
        let first = outputs.find(doc! {}).sort(doc! { "until": 1 }).projection(doc! { "_id": 1 });
        let first = first.limit(i64::try_from(too_many).unwrap_or(i64::MAX)).await;
        let rows: Vec<Row> = match first {
            Ok(first) => first.try_collect().await.map_err(|err| failed(&err))?,
            Err(err) => return Err(failed(&err)),
        };
        let ids: Vec<_> = rows.into_iter().filter_map(|mut it| it.remove("_id")).collect();
        for ids in ids.chunks(10_000) {
            let those = doc! { "_id": { "$in": ids } };
            outputs.delete_many(those).await.map_err(|err| failed(&err))?;
        }
        Ok(())
    }
}
