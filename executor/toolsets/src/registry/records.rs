use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::{
    id::ToolSetName,
    json,
    store::{Record, RecordKind, RecordPage, Store, StoreError},
};

use super::merge::{AddedSet, KnownRecords, RegisteredTool};
use crate::sources::{SetConfig, documents::DOCUMENTS_FIELD};

const PAGE_SIZE: usize = 500;

/// Reads all records. Applies the stored changes of contexts to the `configured` contexts.
pub(super) async fn read_records(
    store: &dyn Store,
    configured: &BTreeMap<String, Value>,
) -> Result<KnownRecords, StoreError> {
    let sets = sort_by_age(list_all(store, RecordKind::ToolSet).await?);
    let tools = sort_by_age(list_all(store, RecordKind::Tool).await?);
    let switches = list_all(store, RecordKind::Switch).await?;
    let mut contexts = configured.clone();
    for Record { name, value, .. } in list_all(store, RecordKind::Context).await? {
        json::apply_merge_patch(contexts.entry(name).or_default(), &value);
    }
    let mut documents = BTreeMap::new();
    for (name, data) in &mut contexts {
        if let Some(settings) =
            data.as_object_mut().and_then(|data| data.shift_remove(DOCUMENTS_FIELD))
        {
            documents.insert(name.clone(), settings);
        }
    }
    Ok(KnownRecords {
        sets: sets.into_iter().map(parse_added_set).collect(),
        tools: tools.into_iter().filter_map(parse_registered_tool).collect(),
        switches: switches
            .into_iter()
            .filter_map(|record| Some((record.name, record.value.as_bool()?)))
            .collect(),
        contexts,
        documents,
    })
}

pub async fn find_added_set(
    store: &dyn Store,
    name: &ToolSetName,
) -> Result<Option<SetConfig>, StoreError> {
    let record = store.find_record(RecordKind::ToolSet, name.as_str()).await?;
    Ok(record.and_then(|record| serde_json::from_value(Arc::unwrap_or_clone(record.value)).ok()))
}

fn parse_added_set(Record { name, value, at, .. }: Record) -> AddedSet {
    AddedSet { name, settings: Arc::unwrap_or_clone(value), at }
}

fn parse_registered_tool(Record { name, value, at, .. }: Record) -> Option<RegisteredTool> {
    let set = value.get("set")?.as_str()?.to_owned();
    let since = value.get("since").and_then(|since| serde_json::from_value(since.clone()).ok());
    Some(RegisteredTool { record: name, set, settings: value.get("tool")?.clone(), at, since })
}

fn sort_by_age(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| a.name.cmp(&b.name)));
    records
}

async fn list_all(store: &dyn Store, kind: RecordKind) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map(|record| record.name.clone());
        let page = RecordPage { after, ..RecordPage::first_records(PAGE_SIZE) };
        let found = store.list_records(kind, page).await?;
        let is_last = found.len() < PAGE_SIZE;
        records.extend(found);
        if is_last {
            return Ok(records);
        }
    }
}
