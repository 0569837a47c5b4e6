//! Reads what the store knows of toolsets.

use std::collections::BTreeMap;

use serde_json::Value;
use shared::{
    json,
    store::{Record, RecordKind, RecordPage, Store, StoreError},
};

use super::merge::Known;
use crate::sources::documents::FIELD;

/// Records that are read at a time.
const PAGE: usize = 500;

/// Reads everything that says which sets there are; contexts begin with what is configured.
pub(super) async fn read(
    store: &dyn Store,
    configured: &BTreeMap<String, Value>,
) -> Result<Known, StoreError> {
    let sets = oldest_first(all(store, RecordKind::ToolSet).await?);
    let tools = oldest_first(all(store, RecordKind::Tool).await?);
    let switches = all(store, RecordKind::Switch).await?;
    let mut contexts = configured.clone();
    for Record { name, value, .. } in all(store, RecordKind::Context).await? {
        json::merge(contexts.entry(name).or_default(), &value);
    }
    let mut documents = BTreeMap::new();
    for (name, data) in &mut contexts {
        if let Some(written) = data.as_object_mut().and_then(|it| it.shift_remove(FIELD)) {
            documents.insert(name.clone(), written);
        }
    }
    Ok(Known {
        sets: sets.into_iter().map(|it| (it.name, it.value.as_ref().clone())).collect(),
        tools: tools.into_iter().filter_map(|it| tool(&it.value)).collect(),
        switches: switches
            .into_iter()
            .filter_map(|it| Some((it.name, it.value.as_bool()?)))
            .collect(),
        contexts,
        documents,
    })
}

fn tool(value: &Value) -> Option<(String, Value)> {
    Some((value.get("set")?.as_str()?.to_owned(), value.get("tool")?.clone()))
}

fn oldest_first(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| a.name.cmp(&b.name)));
    records
}

async fn all(store: &dyn Store, kind: RecordKind) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map(|it| it.name.clone());
        let page = RecordPage { after, ..RecordPage::first(PAGE) };
        let found = store.records(kind, page).await?;
        let is_last = found.len() < PAGE;
        records.extend(found);
        if is_last {
            return Ok(records);
        }
    }
}
