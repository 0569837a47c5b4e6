use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde_json::Value;

use super::Memory;
use crate::{
    clock::Timestamp,
    store::{KeyValue, Record, RecordKind, RecordPage, StoreError, WriteCondition},
};

#[derive(Debug, Default)]
pub(super) struct StoredRecords {
    kinds: BTreeMap<RecordKind, BTreeMap<String, (Timestamp, String)>>,
    /// Names of kinds with a limit, earliest time first.
    by_time: BTreeMap<RecordKind, BTreeSet<(Timestamp, String)>>,
    revision: u64,
}

impl StoredRecords {
    fn put(&mut self, record: &Record, unless: &WriteCondition) -> Result<bool, StoreError> {
        let (json, kind, name) = (record.encode()?, record.kind, &record.name);
        let of_kind = self.kinds.entry(kind).or_default();
        let there = of_kind.get(name);
        let may_write = match unless {
            WriteCondition::Never => true,
            WriteCondition::Exists => there.is_none(),
            WriteCondition::ChangedSince(at) => there.is_some_and(|(written, _)| written == at),
            WriteCondition::ValueDiffers(value) => {
                there.is_some_and(|(_, json)| *json == value.to_string())
            }
        };
        if !may_write {
            return Ok(false);
        }
        self.remove(kind, name);
        self.kinds.entry(kind).or_default().insert(name.clone(), (record.at, json));
        self.revision += u64::from(kind.is_shared_by_nodes());
        if let Some(most) = kind.max_records() {
            let by_time = self.by_time.entry(kind).or_default();
            by_time.insert((record.at, name.clone()));
            let excess = by_time.len().saturating_sub(most);
            let earliest = by_time.iter().take(excess).map(|(_, name)| name.clone());
            for name in earliest.collect::<Vec<_>>() {
                self.remove(kind, &name);
            }
        }
        Ok(true)
    }

    /// Removes the oldest records of a kind with a limit, as long as `is_old` returns `true` for
    /// their times.
    pub(super) fn drop_old_records(
        &mut self,
        kind: RecordKind,
        is_old: impl Fn(Timestamp) -> bool,
    ) {
        let by_time = self.by_time.entry(kind).or_default().iter();
        let old = by_time.take_while(|(at, _)| is_old(*at)).map(|(_, name)| name.clone());
        for name in old.collect::<Vec<_>>() {
            self.remove(kind, &name);
        }
    }

    pub(super) fn values(&self, kind: RecordKind) -> impl Iterator<Item = (&String, Value)> {
        let records = self.kinds.get(&kind).into_iter().flatten();
        records.filter_map(|(name, (_, json))| Some((name, serde_json::from_str(json).ok()?)))
    }

    pub(super) fn remove(&mut self, kind: RecordKind, name: &str) -> bool {
        let removed = self.kinds.get_mut(&kind).and_then(|records| records.remove(name));
        let Some((at, _)) = removed else { return false };
        if let Some(by_time) = self.by_time.get_mut(&kind) {
            by_time.remove(&(at, name.to_owned()));
        }
        true
    }

    fn list(&self, kind: RecordKind, page: &RecordPage) -> Result<Vec<Record>, StoreError> {
        let (Some(of_kind), Some(span)) = (self.kinds.get(&kind), page.span()) else {
            return Ok(Vec::new());
        };
        let read = |(name, (at, json)): (&String, &(Timestamp, String))| {
            Record::decode(kind, name, *at, if page.names_only { "null" } else { json })
        };
        let found = of_kind.range(span);
        if page.newest {
            found.rev().take(page.first).map(read).collect()
        } else {
            found.take(page.first).map(read).collect()
        }
    }
}

#[async_trait]
impl KeyValue for Memory {
    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        let state = self.lock_state();
        let found = state.records.kinds.get(&kind).and_then(|records| records.get(name));
        found.map(|(at, json)| Record::decode(kind, name, *at, json)).transpose()
    }

    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let put = self.lock_state().records.put(record, &unless)?;
        if put && record.kind.is_shared_by_nodes() {
            self.hints.wake_records();
        }
        Ok(put)
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        self.lock_state().records.list(kind, &page)
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        let mut state = self.lock_state();
        let removed = state.records.remove(kind, name);
        if removed && kind.is_shared_by_nodes() {
            state.records.revision += 1;
            self.hints.wake_records();
        }
        Ok(removed)
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        Ok(self.lock_state().records.revision)
    }
}
