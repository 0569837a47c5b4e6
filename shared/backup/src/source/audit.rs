use shared::store::{AuditFilter, Page};

use super::{PAGE_LEN, Source};
use crate::{entry::Entry, error::BackupError, report::Stage};

impl Source<'_> {
    pub(super) async fn write_audit(&mut self) -> Result<(), BackupError> {
        let filter = AuditFilter { from: self.since, ..AuditFilter::default() };
        let mut after = None;
        loop {
            let page = Page { after, ..Page::first_items(PAGE_LEN) };
            let listing = self.store.list_audit_entries(&filter, &page).await?;
            after = listing.items.last().map(|(cursor, _)| cursor.clone());
            for (_, entry) in listing.items {
                self.report.counts.audit_entries += 1;
                self.write(&Entry::Audit(Box::new(entry)))?;
            }
            self.report_progress(Stage::Audit, self.report.counts.audit_entries, None);
            if !listing.has_more || after.is_none() {
                return Ok(());
            }
        }
    }
}
