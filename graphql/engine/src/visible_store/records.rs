//! Records of one token: blobs, and calls outside plans. Records that all callers share, such as
//! saved plans, are visible, too.

use async_trait::async_trait;
use shared::{
    blob::{BlobId, is_call_blob_of},
    store::{KeyValue, Record, RecordKind, RecordPage, StoreError, WriteCondition},
};

use super::VisibleStore;
use crate::tools::history::token_in_record_name;

impl VisibleStore {
    async fn can_see_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        match kind {
            RecordKind::Call => Ok(token_in_record_name(name).as_deref() == Some(&*self.token)),
            RecordKind::Blob | RecordKind::BlobPart => self.can_see_blob(name).await,
            // Only control reads keys, through the store behind this one.
            RecordKind::Key => Ok(false),
            _ => Ok(true),
        }
    }

    /// `name` is the id of a blob, perhaps followed by `/` and the number of a part.
    async fn can_see_blob(&self, name: &str) -> Result<bool, StoreError> {
        let without_part = name.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
        let Ok(id) = without_part.parse::<BlobId>() else { return Ok(false) };
        match id.execution() {
            Some(execution) => self.can_see_execution(execution).await,
            None => is_call_blob_of(&*self.inner, &id, &self.token).await,
        }
    }
}

#[async_trait]
impl KeyValue for VisibleStore {
    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        if !self.can_see_record(kind, name).await? {
            return Ok(None);
        }
        self.inner.find_record(kind, name).await
    }

    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        self.inner.put_record(record, unless).await
    }

    /// Reads further records in place of those that it leaves out, because only the last page of a
    /// list may be short.
    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        let (mut shown, mut after) = (Vec::new(), page.after.clone());
        while shown.len() < page.first {
            let found = self.inner.list_records(kind, RecordPage { after, ..page.clone() }).await?;
            let is_last = found.len() < page.first;
            after = found.last().map(|record| record.name.clone());
            for record in found {
                if shown.len() < page.first && self.can_see_record(kind, &record.name).await? {
                    shown.push(record);
                }
            }
            if is_last {
                break;
            }
        }
        Ok(shown)
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.inner.remove_record(kind, name).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.inner.records_revision().await
    }
}
