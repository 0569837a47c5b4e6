use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{Memory, list_page};
use crate::{
    clock::Timestamp,
    store::{AuditEntry, AuditFilter, AuditLog, Cursor, Listing, Page, StoreError},
};

/// Entries as JSON, by time and id.
#[derive(Debug, Default)]
pub(super) struct StoredAudit(BTreeMap<(Timestamp, String), String>);

impl StoredAudit {
    /// Returns `false`, and changes nothing, if the entry is already stored.
    pub(super) fn put(&mut self, entry: &AuditEntry) -> bool {
        let key = (entry.at, entry.id.to_string());
        if self.0.contains_key(&key) {
            return false;
        }
        self.0.insert(key, serde_json::to_string(entry).expect("entries are JSON"));
        true
    }

    fn find(&self, filter: &AuditFilter) -> Result<Vec<(Cursor, AuditEntry)>, StoreError> {
        let mut found = Vec::new();
        for ((at, id), json) in &self.0 {
            let entry = serde_json::from_str(json).map_err(|err| StoreError::corrupt(id, err))?;
            if filter.matches(&entry) {
                found.push((Cursor { at: *at, id: id.clone() }, entry));
            }
        }
        Ok(found)
    }

    fn remove_before(&mut self, before: Timestamp, most: usize) -> usize {
        let old = self.0.keys().take_while(|(at, _)| *at < before).take(most);
        let old: Vec<_> = old.cloned().collect();
        for key in &old {
            self.0.remove(key);
        }
        old.len()
    }
}

#[async_trait]
impl AuditLog for Memory {
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError> {
        let mut state = self.lock_state();
        Ok(entries.iter().filter(|entry| state.audit.put(entry)).count())
    }

    async fn list_audit_entries(
        &self,
        filter: &AuditFilter,
        page: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError> {
        Ok(list_page(self.lock_state().audit.find(filter)?.into_iter(), page))
    }

    async fn count_audit_entries(&self, filter: &AuditFilter) -> Result<u64, StoreError> {
        Ok(self.lock_state().audit.find(filter)?.len() as u64)
    }

    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        Ok(self.lock_state().audit.remove_before(before, most))
    }
}
