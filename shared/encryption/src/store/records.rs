use std::fmt;

use async_trait::async_trait;
use shared::store::{
    KeyValue, Record, RecordKind, RecordPage, SecretParts, StoreError, WriteCondition,
    backend::skip_damaged,
};

use super::EncryptedStore;
use crate::{edit::Task, leaves::edit_record};

pub(super) const RECORDS: &str = "records";

pub(super) struct RecordPlace<'a> {
    pub(super) kind: RecordKind,
    pub(super) name: &'a str,
}

impl fmt::Display for RecordPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.name)
    }
}

impl EncryptedStore {
    fn convert_record(&self, task: Task, record: &Record) -> Result<Record, StoreError> {
        let mut edited = record.clone();
        let place = RecordPlace { kind: record.kind, name: &record.name };
        let task = match (task, record.kind.secret_parts()) {
            // Readers of these records cannot parse the value that is shown for a missing key, so
            // the read fails instead.
            (Task::Show, SecretParts::Whole | SecretParts::Queries) => Task::Open,
            (task, _) => task,
        };
        edit_record(&self.edit(task, RECORDS, &place), &mut edited)?;
        Ok(edited)
    }

    /// Decrypts a record. A cached output whose key is missing counts as missing, so that its step
    /// is executed again.
    fn open_record(&self, record: &Record) -> Result<Option<Record>, StoreError> {
        match self.convert_record(self.read_task(), record) {
            Err(StoreError::Locked { .. }) if record.kind == RecordKind::Output => Ok(None),
            opened => opened.map(Some),
        }
    }
}

#[async_trait]
impl KeyValue for EncryptedStore {
    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        let found = self.inner.find_record(kind, name).await?;
        Ok(found.map(|record| self.open_record(&record)).transpose()?.flatten())
    }

    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        if record.kind.secret_parts() == SecretParts::None {
            return self.inner.put_record(record, unless).await;
        }
        // Checks the limits of the clear record, because its encrypted form is larger.
        record.encode()?;
        let sealed = self.convert_record(self.write_task(), record)?;
        self.inner.put_record(&sealed, unless).await
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        let records = self.inner.list_records(kind, page).await?;
        if kind.secret_parts() == SecretParts::None {
            return Ok(records);
        }
        let mut opened = Vec::with_capacity(records.len());
        for record in &records {
            opened.extend(skip_damaged(self.open_record(record))?.flatten());
        }
        Ok(opened)
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.inner.remove_record(kind, name).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.inner.records_revision().await
    }
}
