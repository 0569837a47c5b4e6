use std::sync::Arc;

use async_trait::async_trait;
use futures::{FutureExt, TryStreamExt};
use mongodb::bson::{Bson, Document as Row, RawDocumentBuf, doc};
use shared::{
    id::{ExecutionId, PlanId, RequestId},
    labels::Labels,
    limits,
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        CountQuery, Documents, ExecutionCount, ExecutionFilter, ExecutionHead, Listing, Page,
        PlanFilter, PlanVersion, RequestFilter, StoreError,
        backend::{Cached, REQUEST_LABELS_LAYOUT, fold_case},
    },
};

use super::{
    Mongo,
    connection::{is_duplicate_key, to_store_error},
    counts,
    lists::{self, CREATED, ListQuery, PlanOrder, REQUEST_TOKEN},
    plans::{self, StoredPlan},
    rows, text_parts, transcripts,
};

/// Maximum number of attempts to add an entry to a transcript while other processes add entries to
/// it.
const MAX_TRANSCRIPT_ATTEMPTS: usize = 32;

#[async_trait]
impl Documents for Mongo {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        let mut row = doc! {
            "_id": request.id.to_string(),
            "createdAt": rows::to_date(request.created_at),
            CREATED: request.created_at.timestamp_micros(),
            "query": &request.query,
            "folded": fold_case(&request.query),
        };
        if !request.labels.is_empty() && self.layout >= REQUEST_LABELS_LAYOUT {
            let labels = request.labels.iter();
            let labels = labels.map(|(key, value)| (key.clone(), Bson::from(value.as_str())));
            row.insert("labels", labels.collect::<Row>());
        }
        self.insert_new("requests", row).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        let found = self.find("requests", &id.to_string()).await?;
        found.map(|row| self.read_request(&row)).transpose()
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        let query = self.select_requests(filter).await?;
        let read = |row: &Row| self.read_request(row);
        lists::read_page(&self.collection("requests"), query, page, read).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        for entry in entries {
            self.add_entry(&id.to_string(), entry).await?;
        }
        Ok(())
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        let Some(range) = self.find_entries_after(&id.to_string(), known).await? else {
            return Ok(Vec::new());
        };
        let first = self.read_entries(id, &range).await?;
        if !first.has_divided {
            return Ok(first.entries);
        }
        let read = || async { Ok(self.read_entries(id, &range).await?.entries) }.boxed();
        text_parts::read_stable(read).await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        let StoredPlan { row, parts, bytes } = StoredPlan::new(plan)?;
        self.put_parts(&plan.id().to_string(), &parts).await?;
        // The plan is written after its parts, so that every plan that exists is complete.
        self.insert_new_raw("plans", &row).await?;
        self.plans.insert(&Arc::new(plan.clone()), bytes);
        Ok(())
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        match self.plans.get(id) {
            Cached::Fresh(plan) => return Ok(Some(plan)),
            Cached::Old(plan) => {
                let plans = self.collection("plans");
                let found = plans.find_one(doc! { "_id": id.to_string() });
                let found = found
                    .projection(doc! { "_id": 1 })
                    .await
                    .map_err(|err| to_store_error(&err))?;
                return Ok(self.plans.confirm(plan, found.is_some()));
            }
            Cached::Unknown => (),
        }
        let found = self.raw_collection("plans").find_one(doc! { "_id": id.to_string() }).await;
        let Some(row) = found.map_err(|err| to_store_error(&err))? else { return Ok(None) };
        let json = if row.get_i64("parts").is_ok() {
            let Some(json) = self.read_divided_plan(id).await? else { return Ok(None) };
            json
        } else {
            plans::plan_text(&row, id)?
        };
        let plan = Plan::from_json(&json).map_err(|err| StoreError::corrupt(id, err))?;
        let plan = Arc::new(plan);
        self.plans.insert(&plan, json.len());
        Ok(Some(plan))
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        let read = |row: &Row| {
            let id: PlanId = rows::parse_field(row, "_id", "a plan")?;
            let version = u32::try_from(rows::read_integer(row, "version", "a plan")?);
            Ok(PlanVersion { id, version: version.map_err(|err| StoreError::corrupt(id, err))? })
        };
        let order = self.choose_plan_order(filter).await?;
        let plans = self.collection(lists::plan_collection(filter, order));
        lists::read_page(&plans, lists::plan_selection(filter, order), page, read).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        let found = self.heads.find_one(doc! { "_id": id.to_string() }).await;
        found.map_err(|err| to_store_error(&err))?.as_ref().map(rows::read_head).transpose()
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        let query = self.select_heads(filter).await?;
        lists::read_page(&self.heads, query, page, rows::read_head).await
    }

    async fn count_executions(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        self.count_groups(query).await
    }

    async fn count_active(&self, token: &str) -> Result<u64, StoreError> {
        self.count_active_of(token).await
    }

    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError> {
        self.sum_stored_bytes_of(token).await
    }

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError> {
        counts::count_rows(&self.heads, self.select_heads(filter).await?).await
    }

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        counts::count_rows(&self.collection("requests"), self.select_requests(filter).await?).await
    }

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError> {
        let plans = self.collection(lists::plan_collection(filter, PlanOrder::ByRequest));
        counts::count_rows(&plans, lists::plan_selection(filter, PlanOrder::ByRequest)).await
    }
}

struct EntriesRead {
    entries: Vec<TranscriptEntry>,
    /// `true` if an entry has several documents.
    has_divided: bool,
}

impl Mongo {
    async fn select_requests(&self, filter: &RequestFilter) -> Result<ListQuery, StoreError> {
        let mut query = lists::request_selection(filter);
        if let Some(wanted) = filter.needs_person {
            match self.find_requests_needing_person().await? {
                Some(ids) => lists::match_ids(&mut query.matching, wanted, ids),
                None => query.stages.extend(lists::join_needing_person(wanted)),
            }
        }
        Ok(query)
    }

    /// Chooses the order for a page. Without this choice, each page of a token would sort all its
    /// plans.
    async fn choose_plan_order(&self, filter: &PlanFilter) -> Result<PlanOrder, StoreError> {
        let (Some(token), None) = (&filter.token, filter.request) else {
            return Ok(PlanOrder::ByRequest);
        };
        let most = limits::SORTED_REQUESTS as u64;
        let of_token = doc! { REQUEST_TOKEN: token };
        let count = self.collection("requests").count_documents(of_token).limit(most + 1).await;
        let count = count.map_err(|err| to_store_error(&err))?;
        Ok(if count > most { PlanOrder::ByTime } else { PlanOrder::ByRequest })
    }

    pub(super) async fn select_heads(
        &self,
        filter: &ExecutionFilter,
    ) -> Result<ListQuery, StoreError> {
        let mut query = lists::head_selection(filter);
        if let Some(wanted) = filter.needs_person {
            let above = if filter.is_root {
                self.find_ancestors_needing_person().await?
            } else {
                Vec::new()
            };
            lists::match_needing_person(&mut query.matching, wanted, above);
        }
        Ok(query)
    }

    pub(super) async fn find(&self, collection: &str, id: &str) -> Result<Option<Row>, StoreError> {
        let found = self.collection(collection).find_one(doc! { "_id": id }).await;
        found.map_err(|err| to_store_error(&err))
    }

    /// Fails with [`StoreError::Taken`] if the id or another unique key exists.
    async fn insert_new(&self, collection: &str, row: Row) -> Result<(), StoreError> {
        match self.collection(collection).insert_one(row).await {
            Ok(_) => Ok(()),
            Err(err) if is_duplicate_key(&err) => Err(StoreError::Taken),
            Err(err) => Err(to_store_error(&err)),
        }
    }

    async fn insert_new_raw(
        &self,
        collection: &str,
        row: &RawDocumentBuf,
    ) -> Result<(), StoreError> {
        match self.raw_collection(collection).insert_one(row).await {
            Ok(_) => Ok(()),
            Err(err) if is_duplicate_key(&err) => Err(StoreError::Taken),
            Err(err) => Err(to_store_error(&err)),
        }
    }

    async fn put_parts(&self, of: &str, parts: &[String]) -> Result<(), StoreError> {
        for (part, n) in parts.iter().zip(0_i64..) {
            self.insert_new("parts", doc! { "_id": { "of": of, "n": n }, "text": part }).await?;
        }
        Ok(())
    }

    async fn read_entries(&self, id: RequestId, range: &Row) -> Result<EntriesRead, StoreError> {
        let transcripts = self.raw_collection("transcripts");
        let found = transcripts.find(range.clone()).sort(doc! { "_id": 1 }).await;
        let mut found = found.map_err(|err| to_store_error(&err))?;
        let (mut entries, mut has_divided) = (transcripts::EntryReader::new(id), false);
        while let Some(row) = found.try_next().await.map_err(|err| to_store_error(&err))? {
            has_divided |= row.get_bool("more").unwrap_or_default();
            entries.push(&row)?;
        }
        Ok(EntriesRead { entries: entries.finish(), has_divided })
    }

    /// Returns the JSON of a plan that is stored in parts, or `None` if the plan was removed.
    pub(super) async fn read_divided_plan(&self, id: PlanId) -> Result<Option<String>, StoreError> {
        let id = id.to_string();
        let read = || async {
            let Some(row) = self.find("plans", &id).await? else { return Ok(None) };
            self.join_parts(&id, row.get_i64("parts").unwrap_or_default()).await.map(Some)
        };
        text_parts::read_stable(|| read().boxed()).await
    }

    pub(super) async fn join_parts(&self, of: &str, parts: i64) -> Result<String, StoreError> {
        let mut text = String::new();
        for n in 0..parts {
            let id = doc! { "_id": { "of": of, "n": n } };
            let part =
                self.collection("parts").find_one(id).await.map_err(|err| to_store_error(&err))?;
            let part =
                part.ok_or_else(|| StoreError::corrupt(of, format!("part {n} is missing")))?;
            text.push_str(rows::read_text(&part, "text", of)?);
        }
        Ok(text)
    }

    /// Returns a query for the entries after the first `known` entries, or `None` if there are no
    /// more entries. Reads only the ids of the known entries.
    async fn find_entries_after(
        &self,
        request: &str,
        known: usize,
    ) -> Result<Option<Row>, StoreError> {
        if known == 0 {
            return Ok(Some(transcript_range(request)));
        }
        let transcripts = self.collection("transcripts");
        let parts = transcripts.find(transcript_range(request)).sort(doc! { "_id": 1 });
        let parts = parts.projection(doc! { "_id": 1, "more": 1 }).await;
        let mut parts = parts.map_err(|err| to_store_error(&err))?;
        let mut left = known;
        while let Some(row) = parts.try_next().await.map_err(|err| to_store_error(&err))? {
            if left == 0 {
                let id = row.get_document("_id").cloned().unwrap_or_default();
                return Ok(Some(transcript_range_from(request, id)));
            }
            if !row.get_bool("more").unwrap_or_default() {
                left -= 1;
            }
        }
        Ok(None)
    }

    /// Adds an entry after the last entry. If another process adds an entry at the same position,
    /// tries again at the next position.
    async fn add_entry(&self, request: &str, entry: &TranscriptEntry) -> Result<(), StoreError> {
        for _ in 0..MAX_TRANSCRIPT_ATTEMPTS {
            let transcripts = self.collection("transcripts");
            let last = transcripts.find_one(transcript_range(request)).sort(doc! { "_id": -1 });
            let last = last.await.map_err(|err| to_store_error(&err))?;
            let last = last.and_then(|row| row.get_document("_id").ok()?.get_i64("n").ok());
            let rows = transcripts::entry_rows(request, last.unwrap_or_default() + 1, entry)?;
            match self.raw_collection("transcripts").insert_many(rows).await {
                Ok(_) => return Ok(()),
                Err(err) if is_duplicate_key(&err) => (),
                Err(err) => return Err(to_store_error(&err)),
            }
        }
        Err(StoreError::Unavailable(
            "too many processes add to one transcript: try again".to_owned(),
        ))
    }
}

pub(super) fn transcript_range(id: &str) -> Row {
    transcript_range_from(id, doc! { "r": id, "n": Bson::MinKey })
}

/// Selects the documents of a transcript from the document with the id `first` on. If `transcripts`
/// is sharded, the server finds the shard by `_id.r`, because a range of `_id` names no shard.
fn transcript_range_from(id: &str, first: Row) -> Row {
    doc! { "_id": { "$gte": first, "$lt": { "r": id, "n": Bson::MaxKey } }, "_id.r": id }
}

impl Mongo {
    pub(super) fn read_request(&self, row: &Row) -> Result<Request, StoreError> {
        let id = row.get_str("_id").unwrap_or("a request");
        let has_labels = self.layout >= REQUEST_LABELS_LAYOUT;
        Ok(Request {
            id: rows::parse_field(row, "_id", id)?,
            query: rows::read_text(row, "query", id)?.to_owned(),
            created_at: rows::read_time(row, CREATED, id)?,
            labels: if has_labels { rows::read_labels(row, id)? } else { Labels::new() },
        })
    }
}
