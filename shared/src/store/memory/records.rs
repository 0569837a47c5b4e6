//! Records in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::Memory;
use crate::{
    clock::Timestamp,
    id::ToolName,
    limits,
    store::{Record, RecordKind, RecordPage, Records, StoreError, Usage, WriteCondition},
};

#[derive(Debug, Default)]
pub(super) struct StoredRecords {
    /// The time and value of each record.
    kinds: BTreeMap<RecordKind, BTreeMap<String, (Timestamp, String)>>,
    /// Calls, oldest first.
    calls: BTreeSet<(Timestamp, String)>,
    revision: u64,
    usage: BTreeMap<ToolName, Usage>,
}

impl StoredRecords {
    fn put_record(&mut self, record: &Record, unless: &WriteCondition) -> Result<bool, StoreError> {
        let (json, kind, name) = (record.encode()?, record.kind, &record.name);
        let of_kind = self.kinds.entry(kind).or_default();
        let there = of_kind.get(name);
        let may_write = match unless {
            WriteCondition::Never => true,
            WriteCondition::Exists => there.is_none(),
            WriteCondition::ChangedSince(at) => there.is_some_and(|(written, _)| written == at),
        };
        if !may_write {
            return Ok(false);
        }
        let before = of_kind.insert(name.clone(), (record.at, json));
        self.revision += u64::from(kind.is_shared_by_nodes());
        if kind == RecordKind::Call {
            if let Some((at, _)) = before {
                self.calls.remove(&(at, name.clone()));
            }
            self.calls.insert((record.at, name.clone()));
            while self.calls.len() > limits::CALL_HISTORY {
                self.drop_oldest_call();
            }
        }
        Ok(true)
    }

    fn drop_oldest_call(&mut self) {
        if let Some((_, name)) = self.calls.pop_first()
            && let Some(calls) = self.kinds.get_mut(&RecordKind::Call)
        {
            calls.remove(&name);
        }
    }

    pub(super) fn drop_old_calls(&mut self, before: Timestamp) {
        while self.calls.first().is_some_and(|(at, _)| *at < before) {
            self.drop_oldest_call();
        }
    }

    fn get(&self, kind: RecordKind, name: &str) -> Result<Option<Record>, StoreError> {
        let found = self.kinds.get(&kind).and_then(|records| records.get(name));
        found.map(|(at, json)| Record::decode(kind, name, *at, json)).transpose()
    }

    fn list_records(&self, kind: RecordKind, page: &RecordPage) -> Result<Vec<Record>, StoreError> {
        let (Some(of_kind), Some(span)) = (self.kinds.get(&kind), page.span()) else {
            return Ok(Vec::new());
        };
        let read = |(name, (at, json)): (&String, &(Timestamp, String))| {
            Record::decode(kind, name, *at, json)
        };
        let found = of_kind.range(span);
        if page.newest {
            found.rev().take(page.first).map(read).collect()
        } else {
            found.take(page.first).map(read).collect()
        }
    }

    fn list_names(&self, kind: RecordKind, page: &RecordPage) -> Vec<String> {
        let (Some(of_kind), Some(span)) = (self.kinds.get(&kind), page.span()) else {
            return Vec::new();
        };
        let found = of_kind.range(span).map(|(name, _)| name.clone());
        if page.newest {
            found.rev().take(page.first).collect()
        } else {
            found.take(page.first).collect()
        }
    }

    fn count_records(&self, kind: RecordKind, page: &RecordPage) -> usize {
        let (Some(of_kind), Some(span)) = (self.kinds.get(&kind), page.span()) else { return 0 };
        of_kind.range(span).take(page.first).count()
    }

    fn remove(&mut self, kind: RecordKind, name: &str) -> bool {
        let removed = self.kinds.get_mut(&kind).and_then(|records| records.remove(name));
        let Some((at, _)) = removed else { return false };
        if kind == RecordKind::Call {
            self.calls.remove(&(at, name.to_owned()));
        }
        self.revision += u64::from(kind.is_shared_by_nodes());
        true
    }
}

#[async_trait]
impl Records for Memory {
    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let put = self.lock_state().records.put_record(record, &unless)?;
        if put && record.kind.is_shared_by_nodes() {
            self.hints.wake_records();
        }
        Ok(put)
    }

    async fn record(&self, kind: RecordKind, name: &str) -> Result<Option<Record>, StoreError> {
        self.lock_state().records.get(kind, name)
    }

    async fn records(&self, kind: RecordKind, page: RecordPage) -> Result<Vec<Record>, StoreError> {
        self.lock_state().records.list_records(kind, &page)
    }

    async fn record_names(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<String>, StoreError> {
        Ok(self.lock_state().records.list_names(kind, &page))
    }

    async fn count_records(
        &self,
        kind: RecordKind,
        prefix: &str,
        most: usize,
    ) -> Result<usize, StoreError> {
        Ok(self
            .lock_state()
            .records
            .count_records(kind, &RecordPage::first_records(most).with_prefix(prefix)))
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        let removed = self.lock_state().records.remove(kind, name);
        if removed && kind.is_shared_by_nodes() {
            self.hints.wake_records();
        }
        Ok(removed)
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        Ok(self.lock_state().records.revision)
    }

    async fn add_usage(&self, usage: Vec<Usage>) -> Result<(), StoreError> {
        let all = &mut self.lock_state().records.usage;
        for more in usage {
            match all.get_mut(&more.tool) {
                Some(there) => there.add(&more),
                None => drop(all.insert(more.tool.clone(), more)),
            }
        }
        Ok(())
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        Ok(self.lock_state().records.usage.values().cloned().collect())
    }
}
