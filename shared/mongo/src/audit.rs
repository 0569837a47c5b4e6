use async_trait::async_trait;
use mongodb::{
    Database,
    bson::{Bson, Document as Row, RawArrayBuf, RawDocumentBuf, doc},
};
use serde_json::{Map, Value as Json, json};
use shared::{
    actor::ActorKind,
    clock::Timestamp,
    store::{AuditEntry, AuditFilter, AuditLog, AuditTarget, Listing, Page, StoreError},
};

use super::{
    Mongo, commands, counts,
    json::{self, Times},
    lists::{self, CREATED, ListQuery},
    rows,
};

const AUDIT: &str = "audit";

/// Inserts entries. Skips entries that are already stored, and returns the number of new entries.
pub(super) async fn put_entries<'a>(
    database: &Database,
    entries: impl IntoIterator<Item = &'a AuditEntry>,
) -> Result<usize, StoreError> {
    let (mut rows, mut len) = (RawArrayBuf::new(), 0);
    for entry in entries {
        rows.push(entry_row(entry)?);
        len += 1;
    }
    if len == 0 {
        return Ok(0);
    }
    let insert = commands::insert_command(AUDIT, rows);
    Ok(len - commands::run_write(database, insert).await?.len())
}

fn entry_row(entry: &AuditEntry) -> Result<RawDocumentBuf, StoreError> {
    let AuditEntry { id, at, actor, action, target, detail } = entry;
    let mut actor_row = doc! { "kind": actor.kind.as_str() };
    insert_text(&mut actor_row, "name", actor.name.as_ref());
    insert_text(&mut actor_row, "client", actor.client.as_ref());
    let mut row = doc! {
        "_id": id.to_string(),
        "createdAt": rows::to_date(*at),
        CREATED: at.timestamp_micros(),
        "actor": actor_row,
        "action": action.as_str(),
    };
    let AuditTarget { request, plan, execution, step, name } = target;
    insert_text(&mut row, "requestId", request.as_ref());
    insert_text(&mut row, "planId", plan.as_ref());
    insert_text(&mut row, "executionId", execution.as_ref());
    insert_text(&mut row, "stepId", step.as_ref());
    insert_text(&mut row, "name", name.as_ref());
    if !detail.is_empty() {
        let text = serde_json::to_string(detail).expect("details are JSON");
        row.insert("detail", json::Value::from_json(&text, Times::None)?.into_bson()?);
    }
    RawDocumentBuf::try_from(&row).map_err(|err| StoreError::Unavailable(err.to_string()))
}

fn insert_text(row: &mut Row, field: &str, value: Option<&impl ToString>) {
    if let Some(value) = value {
        row.insert(field, value.to_string());
    }
}

fn read_entry(row: &Row) -> Result<AuditEntry, StoreError> {
    let id = rows::read_text(row, "_id", "an audit entry")?;
    let corrupt = |err: serde_json::Error| StoreError::corrupt(id, err);
    let actor = row.get_document("actor").map_err(|err| StoreError::corrupt(id, err))?;
    let texts = |row: &Row, fields: &[&str]| -> Map<String, Json> {
        let found = fields.iter().filter_map(|name| Some((name, row.get_str(name).ok()?)));
        found.map(|(name, text)| ((*name).to_owned(), json!(text))).collect()
    };
    let mut fields =
        texts(row, &["action", "requestId", "planId", "executionId", "stepId", "name"]);
    fields.insert("id".to_owned(), json!(id));
    fields.insert("at".to_owned(), json!(rows::read_integer(row, CREATED, id)?));
    fields.insert("actor".to_owned(), Json::Object(texts(actor, &["kind", "name", "client"])));
    if let Some(detail) = row.get("detail") {
        let detail = serde_json::from_str(&json::bson_to_text(detail, id)?).map_err(corrupt)?;
        fields.insert("detail".to_owned(), detail);
    }
    serde_json::from_value(Json::Object(fields)).map_err(corrupt)
}

fn select_entries(filter: &AuditFilter) -> ListQuery {
    let AuditFilter { actor_kind, actor_name, action, execution, from, to } = filter;
    let mut matching = Row::new();
    insert_text(&mut matching, "actor.kind", actor_kind.map(ActorKind::as_str).as_ref());
    insert_text(&mut matching, "actor.name", actor_name.as_ref());
    insert_text(&mut matching, "action", action.as_ref());
    insert_text(&mut matching, "executionId", execution.as_ref());
    lists::add_time_range(&mut matching, *from, *to);
    ListQuery { sources: Vec::new(), matching, stages: Vec::new() }
}

#[async_trait]
impl AuditLog for Mongo {
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError> {
        put_entries(&self.database, entries).await
    }

    async fn list_audit_entries(
        &self,
        filter: &AuditFilter,
        page: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError> {
        lists::read_page(&self.collection(AUDIT), select_entries(filter), page, read_entry).await
    }

    async fn count_audit_entries(&self, filter: &AuditFilter) -> Result<u64, StoreError> {
        counts::count_rows(&self.collection(AUDIT), select_entries(filter)).await
    }

    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        if most == 0 {
            return Ok(0);
        }
        let old = doc! { CREATED: { "$lt": before.timestamp_micros() } };
        let audit = self.collection(AUDIT);
        let old = audit.find(old).sort(doc! { CREATED: 1, "_id": 1 }).limit(lists::to_limit(most));
        let old = lists::read_all(old.projection(doc! { "_id": 1 }).await).await?;
        if old.is_empty() {
            return Ok(0);
        }
        let ids = old.iter().filter_map(|row| row.get("_id").and_then(Bson::as_str));
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        let removed = commands::remove_command(AUDIT, ids);
        let removed = commands::run_counted_write(&self.database, removed).await?;
        Ok(usize::try_from(removed).unwrap_or_default())
    }
}
