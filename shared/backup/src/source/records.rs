use shared::{
    clock::Timestamp,
    store::{Record, RecordKind, RecordPage, StoreError},
};

use super::Source;
use crate::{
    entry::{Entry, backup_kinds},
    error::BackupError,
    report::Stage,
};

/// Number of names in one page. A name has half a kilobyte at most, except names that can be any
/// text.
const NAMES_PER_PAGE: usize = 1_000;
const BLOBS_PER_PAGE: usize = 256;

impl Source<'_> {
    pub(super) async fn write_records(&mut self) -> Result<(), BackupError> {
        for kind in backup_kinds() {
            match kind {
                RecordKind::BlobPart => (),
                RecordKind::Blob => self.write_blobs().await?,
                _ if self.since.is_some() && !is_history(kind) => (),
                RecordKind::Key | RecordKind::Usage => self.write_small_records(kind).await?,
                _ => self.write_large_records(kind).await?,
            }
        }
        Ok(())
    }

    /// Writes records whose values are so small that a page of them fits into memory.
    async fn write_small_records(&mut self, kind: RecordKind) -> Result<(), BackupError> {
        let mut after = None;
        loop {
            let page = RecordPage { after, ..RecordPage::first_records(NAMES_PER_PAGE) };
            let records = self.store.list_records(kind, page).await?;
            let is_last = records.len() < NAMES_PER_PAGE;
            after = records.last().map(|record| record.name.clone());
            for record in records {
                self.write_record(record).await?;
            }
            self.report_records();
            if is_last {
                return Ok(());
            }
        }
    }

    /// Writes records one by one, because a page of large records would need too much memory.
    async fn write_large_records(&mut self, kind: RecordKind) -> Result<(), BackupError> {
        let mut after = None;
        loop {
            let page = RecordPage { after, ..RecordPage::first_records(NAMES_PER_PAGE) };
            let names = self.store.list_records(kind, page.names_only()).await?;
            let is_last = names.len() < NAMES_PER_PAGE;
            after = names.last().map(|record| record.name.clone());
            for Record { name, .. } in names {
                match self.store.find_record(kind, &name).await {
                    Ok(Some(record)) => self.write_record(record).await?,
                    Ok(None) => (),
                    Err(err @ StoreError::Corrupt { .. }) => {
                        self.report.damaged.add(err.to_string());
                    }
                    Err(err) => return Err(err.into()),
                }
            }
            self.report_records();
            if is_last {
                return Ok(());
            }
        }
    }

    async fn write_record(&mut self, record: Record) -> Result<(), BackupError> {
        if !self.should_write(&record).await? {
            return Ok(());
        }
        self.report.counts.records += 1;
        self.write(&Entry::Record(record.clone()))?;
        if record.kind != RecordKind::SavedPlan {
            return Ok(());
        }
        let Some(saved) = self.store.find_saved_plan(&record.name).await? else { return Ok(()) };
        let plan = self.store.plan(saved.plan).await?;
        match plan.filter(|plan| self.is_outside_of_lists(plan.info().created_at)) {
            Some(plan) => self.write_plan_with_needs(plan).await,
            None => Ok(()),
        }
    }

    async fn should_write(&self, record: &Record) -> Result<bool, BackupError> {
        let Some(since) = self.since else {
            return Ok(record.kind != RecordKind::Output || record.at > self.began_at);
        };
        if record.kind != RecordKind::Key {
            return Ok(record.at >= since);
        }
        let Some(key) = self.store.find_reservation(&record.name).await? else { return Ok(false) };
        let head = self.store.head(key.execution).await?;
        Ok(head.is_some_and(|head| head.created_at >= since))
    }

    /// Writes each blob before its parts. If a blob is removed meanwhile, the backup may lack its
    /// last parts. A store treats a blob without all parts as removed.
    async fn write_blobs(&mut self) -> Result<(), BackupError> {
        let mut after = None;
        loop {
            let page = RecordPage { after, ..RecordPage::first_records(BLOBS_PER_PAGE) };
            let blobs = self.store.list_records(RecordKind::Blob, page).await?;
            let is_last = blobs.len() < BLOBS_PER_PAGE;
            after = blobs.last().map(|record| record.name.clone());
            let since = self.since.unwrap_or(Timestamp::MIN_UTC);
            for blob in blobs.into_iter().filter(|blob| blob.at >= since) {
                let prefix = format!("{}/", blob.name);
                self.report.counts.blobs += 1;
                self.write(&Entry::Record(blob))?;
                self.write_parts(&prefix).await?;
            }
            self.report_records();
            if is_last {
                return Ok(());
            }
        }
    }

    async fn write_parts(&mut self, prefix: &str) -> Result<(), BackupError> {
        let mut after = None;
        loop {
            let page = RecordPage { after, ..RecordPage::first_records(1).with_prefix(prefix) };
            let Some(part) = self.store.list_records(RecordKind::BlobPart, page).await?.pop()
            else {
                return Ok(());
            };
            after = Some(part.name.clone());
            self.write(&Entry::Record(part))?;
        }
    }

    fn report_records(&self) {
        let counts = &self.report.counts;
        self.report_progress(Stage::Records, counts.records + counts.blobs, None);
    }
}

/// Returns `true` if an export contains records of this kind. Decides on all kinds but blobs, which
/// an export contains.
fn is_history(kind: RecordKind) -> bool {
    matches!(
        kind,
        RecordKind::Key | RecordKind::SavedPlan | RecordKind::Call | RecordKind::Settlement
    )
}
