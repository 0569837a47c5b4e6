use async_trait::async_trait;
use shared::{
    clock::Timestamp,
    store::{AuditEntry, AuditFilter, AuditLog, Listing, Page, StoreError},
};

use super::EncryptedStore;

#[async_trait]
impl AuditLog for EncryptedStore {
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError> {
        self.inner.put_audit_entries(entries).await
    }

    async fn list_audit_entries(
        &self,
        filter: &AuditFilter,
        page: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError> {
        self.inner.list_audit_entries(filter, page).await
    }

    async fn count_audit_entries(&self, filter: &AuditFilter) -> Result<u64, StoreError> {
        self.inner.count_audit_entries(filter).await
    }

    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.inner.remove_audit_entries(before, most).await
    }
}
