//! Reads and replaces documents that otherwise never change, for a change of the encryption key.

use std::{io, time::Duration};

use futures::{FutureExt, TryStreamExt};
use mongodb::{
    ClientSession,
    bson::{Bson, Document as Row, RawDocumentBuf, doc, rawdoc},
    error::Error,
};
use shared::{
    id::{ExecutionId, PlanId, RequestId},
    plan::Plan,
    store::{
        ExecutionHead, Rewrite, StoreError, StoredContent, StoredDocument, StoredKey, StoredPage,
        StoredPart,
        backend::{fold_case, skip_damaged},
    },
};
use tokio::time::timeout;

use super::{
    Mongo,
    commands::{self, Replacement, Safety},
    connection::to_store_error,
    log,
    plans::{self, StoredPlan},
    removal, rows,
    transcripts::{self, EntryReader},
};

/// Maximum number of documents of one page, which one command replaces.
const PAGE_LEN: usize = 256;
/// Bytes of documents after which a page ends, and the size of one command.
const PAGE_BYTES: usize = 8 << 20;
/// Longest time of a transaction. The server ends a transaction after one minute.
const TRANSACTION_TIMEOUT: Duration = Duration::from_mins(1);

type DocumentPart = (Row, RawDocumentBuf);

impl Mongo {
    pub(super) async fn count_documents_of(&self, part: StoredPart) -> Result<u64, StoreError> {
        let count = self.collection(part.as_str()).estimated_document_count().await;
        count.map_err(|err| to_store_error(&err))
    }

    pub(super) async fn list_documents(
        &self,
        part: StoredPart,
        after: Option<StoredKey>,
    ) -> Result<StoredPage, StoreError> {
        let after = after.map_or(Bson::MinKey, |key| to_id(part, key));
        let documents = self.raw_collection(part.as_str());
        let found = documents.find(doc! { "_id": { "$gt": after } });
        let found = found.sort(doc! { "_id": 1 }).batch_size(100).await;
        let mut found = found.map_err(|err| to_store_error(&err))?;
        let (mut page, mut bytes) = (StoredPage::default(), 0);
        // The documents of an entry that has more of them.
        let mut open: Vec<RawDocumentBuf> = Vec::new();
        while (bytes < PAGE_BYTES && page.documents.len() < PAGE_LEN || !open.is_empty())
            && let Some(row) = found.try_next().await.map_err(|err| to_store_error(&err))?
        {
            bytes += row.as_bytes().len();
            page.next = skip_damaged(read_key(&row, part))?.or(page.next);
            let has_more =
                part == StoredPart::Transcripts && row.get_bool("more").unwrap_or_default();
            open.push(row);
            if has_more {
                continue;
            }
            let group = std::mem::take(&mut open);
            match skip_damaged(self.read_stored(part, &group).await)? {
                Some(document) => page.documents.push(document),
                None => page.damaged += 1,
            }
        }
        // An entry whose last document is missing.
        page.damaged += u64::from(!open.is_empty());
        Ok(page)
    }

    async fn read_stored(
        &self,
        part: StoredPart,
        group: &[RawDocumentBuf],
    ) -> Result<StoredDocument, StoreError> {
        let damaged = |err: &dyn std::fmt::Display| StoreError::corrupt(part.as_str(), err);
        let first = group.first().ok_or_else(|| damaged(&"no document"))?;
        let key = read_key(first, part)?;
        let mut parts = 0;
        let row = || Row::try_from(&**first).map_err(|err| damaged(&err));
        let content = match (part, &key) {
            (StoredPart::Requests, _) => StoredContent::Request(self.read_request(&row()?)?),
            (StoredPart::Transcripts, StoredKey::Position { of, .. }) => {
                let request: RequestId = rows::parse(of)?;
                let mut reader = EntryReader::new(request);
                group.iter().try_for_each(|row| reader.push(row))?;
                let entry = reader.finish().pop().ok_or_else(|| damaged(&"half an entry"))?;
                parts = group.len() - 1;
                StoredContent::Entry { request, entry }
            }
            (StoredPart::Plans, StoredKey::Text(id)) => {
                let id: PlanId = rows::parse(id)?;
                let divided = first.get_i64("parts").ok();
                parts = divided.and_then(|parts| usize::try_from(parts).ok()).unwrap_or_default();
                let json = match divided {
                    Some(_) => self.read_divided_plan(id).await?.unwrap_or_default(),
                    None => plans::plan_text(first, id)?,
                };
                let plan = Plan::from_json(&json).map_err(|err| StoreError::corrupt(id, err))?;
                StoredContent::Plan(plan.into())
            }
            (StoredPart::Events, StoredKey::Position { of, .. }) => {
                let execution: ExecutionId = rows::parse(of)?;
                let document = rows::read_document(first, execution)?;
                StoredContent::Events { execution, document }
            }
            (StoredPart::Executions, _) => StoredContent::Head(Box::new(rows::read_head(&row()?)?)),
            (StoredPart::Inbox, _) => StoredContent::Command(log::read_command(&row()?)?),
            _ => return Err(damaged(&"its `_id` has another form")),
        };
        Ok(StoredDocument { key, parts, content })
    }

    pub(super) async fn replace_documents(
        &self,
        rewrites: Vec<Rewrite>,
    ) -> Result<u64, StoreError> {
        let (mut replacements, mut updates, mut replaced) = (Vec::new(), Vec::new(), 0);
        let mut collection = "";
        for Rewrite { before, after } in rewrites {
            match after {
                StoredContent::Plan(plan) => {
                    let StoredPlan { row, parts, .. } = StoredPlan::new(&plan)?;
                    let id = plan.id().to_string();
                    if !parts.is_empty() || before.parts > 0 {
                        replaced += self.replace_divided_plan(&id, row, &parts).await?;
                        continue;
                    }
                    collection = "plans";
                    replacements.push(Replacement { query: rawdoc! { "_id": id }, document: row });
                }
                StoredContent::Entry { request, entry } => {
                    let StoredKey::Position { n, .. } = before.key else { continue };
                    let of = request.to_string();
                    let rows = transcripts::divide_entry(&of, n, &entry, before.parts + 1)?;
                    if before.parts > 0 {
                        replaced += self.replace_divided_entry(&of, n, rows).await?;
                        continue;
                    }
                    collection = "transcripts";
                    let query = rawdoc! { "_id": { "r": of, "n": n } };
                    let rows = rows.into_iter();
                    replacements.extend(
                        rows.map(|document| Replacement { query: query.clone(), document }),
                    );
                }
                StoredContent::Events { execution, document } => {
                    collection = "events";
                    let id = execution.to_string();
                    let query =
                        rawdoc! { "_id": { "x": &*id, "s": document.first.0.cast_signed() } };
                    let document = rows::event_row(&id, &document, "")?;
                    replacements.push(Replacement { query, document });
                }
                StoredContent::Request(request) => {
                    collection = "requests";
                    let folded = fold_case(&request.query);
                    let set = doc! { "$set": { "query": request.query, "folded": folded } };
                    updates.push(doc! { "q": { "_id": request.id.to_string() }, "u": set });
                }
                StoredContent::Head(after) => {
                    let StoredContent::Head(before) = before.content else { continue };
                    collection = "executions";
                    updates.push(head_update(&before, &after));
                }
                StoredContent::Command(command) => {
                    collection = "inbox";
                    let json = serde_json::to_string(&command).expect("commands are JSON");
                    let set = doc! { "$set": { "json": json } };
                    updates.push(doc! { "q": { "_id": command.id.to_string() }, "u": set });
                }
            }
        }
        for few in commands::split_replacements(replacements, PAGE_BYTES) {
            let command = commands::replace_command(collection, few, Safety::Durable);
            replaced += self.run_rewrite(command).await?;
        }
        if !updates.is_empty() {
            let command = commands::update_command(collection, &updates, Safety::Durable)?;
            replaced += self.run_rewrite(command).await?;
        }
        Ok(replaced)
    }

    async fn run_rewrite(&self, command: RawDocumentBuf) -> Result<u64, StoreError> {
        let found = commands::run_counted_write(&self.database, command).await?;
        Ok(u64::try_from(found).unwrap_or_default())
    }

    /// Replaces a plan and all of its parts. Returns 0 if the plan was removed meanwhile.
    async fn replace_divided_plan(
        &self,
        id: &str,
        row: RawDocumentBuf,
        parts: &[String],
    ) -> Result<u64, StoreError> {
        let new: Vec<Row> = parts
            .iter()
            .zip(0_i64..)
            .map(|(text, n)| doc! { "_id": { "of": id, "n": n }, "text": text })
            .collect();
        let old = removal::plan_parts_range(id);
        let (plans, parts) = (self.raw_collection("plans"), self.collection("parts"));
        let mut session = self.start_session().await?;
        let transaction = session.start_transaction().and_run(
            (id, row, old, new, plans, parts),
            |session, (id, row, old, new, plans, parts)| {
                async move {
                    let query = doc! { "_id": *id };
                    let found = plans.replace_one(query, &*row).session(&mut *session).await?;
                    if found.matched_count == 0 {
                        return Ok(0);
                    }
                    parts.delete_many(old.clone()).session(&mut *session).await?;
                    for part in &*new {
                        parts.insert_one(part).session(&mut *session).await?;
                    }
                    Ok(1)
                }
                .boxed()
            },
        );
        run_within_limit(transaction).await
    }

    async fn replace_divided_entry(
        &self,
        request: &str,
        n: i64,
        rows: Vec<RawDocumentBuf>,
    ) -> Result<u64, StoreError> {
        let with_filter =
            |(row, at): (RawDocumentBuf, i64)| (doc! { "_id": { "r": request, "n": n + at } }, row);
        let rows: Vec<DocumentPart> = rows.into_iter().zip(0_i64..).map(with_filter).collect();
        let transcripts = self.raw_collection("transcripts");
        let mut session = self.start_session().await?;
        let transaction = session.start_transaction().and_run(
            (rows, transcripts),
            |session, (rows, transcripts)| {
                async move {
                    for (query, row) in &*rows {
                        let replace = transcripts.replace_one(query.clone(), row);
                        if replace.session(&mut *session).await?.matched_count == 0 {
                            return Ok(0);
                        }
                    }
                    Ok(1)
                }
                .boxed()
            },
        );
        run_within_limit(transaction).await
    }

    async fn start_session(&self) -> Result<ClientSession, StoreError> {
        self.database.client().start_session().await.map_err(|err| to_store_error(&err))
    }
}

async fn run_within_limit(
    transaction: impl Future<Output = Result<u64, Error>>,
) -> Result<u64, StoreError> {
    let too_long = |_| Error::from(io::Error::from(io::ErrorKind::TimedOut));
    let ended = timeout(TRANSACTION_TIMEOUT, transaction).await.map_err(too_long);
    ended.and_then(|ended| ended).map_err(|err| to_store_error(&err))
}

fn head_update(before: &ExecutionHead, after: &ExecutionHead) -> Row {
    let mut query = doc! { "_id": before.execution.to_string() };
    let mut set = Row::new();
    if before.query != after.query {
        query.insert("query", &*before.query);
        set.insert("query", &*after.query);
    }
    if let (Some(before), Some(after)) = (&before.error, &after.error)
        && before.message != after.message
    {
        query.insert("errorMessage", &*before.message);
        set.extend(doc! { "errorMessage": &*after.message, "errorText": after.folded_text() });
    }
    doc! { "q": query, "u": { "$set": set } }
}

fn read_key(row: &RawDocumentBuf, part: StoredPart) -> Result<StoredKey, StoreError> {
    let damaged = |err: mongodb::bson::error::Error| StoreError::corrupt(part.as_str(), err);
    let (of, n) = match part {
        StoredPart::Transcripts => ("r", "n"),
        StoredPart::Events => ("x", "s"),
        _ => return Ok(StoredKey::Text(row.get_str("_id").map_err(damaged)?.to_owned())),
    };
    let id = row.get_document("_id").map_err(damaged)?;
    let of = id.get_str(of).map_err(damaged)?.to_owned();
    Ok(StoredKey::Position { of, n: id.get_i64(n).map_err(damaged)? })
}

fn to_id(part: StoredPart, key: StoredKey) -> Bson {
    match (part, key) {
        (StoredPart::Events, StoredKey::Position { of, n }) => doc! { "x": of, "s": n }.into(),
        (_, StoredKey::Position { of, n }) => doc! { "r": of, "n": n }.into(),
        (_, StoredKey::Text(id)) => id.into(),
        (_, StoredKey::Row(number)) => number.into(),
    }
}
