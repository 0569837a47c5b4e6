//! Requests, plans, transcripts and heads in MongoDB.

use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document as Row, doc};
use shared::{
    id::{ExecutionId, PlanId, RequestId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        Documents, ExecutionFilter, ExecutionHead, Listing, Page, PlanFilter, PlanVersion,
        RequestFilter, StoreError,
        backend::{Cached, fold_case, searched_tools},
        sub_plans,
    },
};

use super::{
    Mongo,
    connection::{failed, is_duplicate},
    lists, rows, texts,
};

/// How often a place at the end of a transcript is looked for while others take it.
const TRANSCRIPT_TRIES: usize = 32;

#[async_trait]
impl Documents for Mongo {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        let row = doc! {
            "_id": request.id.to_string(),
            "createdAt": DateTime::from_millis(request.created_at.timestamp_millis()),
            "at": request.created_at.timestamp_micros(),
            "query": &request.query,
            "folded": fold_case(&request.query),
        };
        self.put_new("requests", row).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.find("requests", &id.to_string()).await?.as_ref().map(request).transpose()
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        let (mut matching, mut stages) = lists::requests(filter);
        if let Some(wanted) = filter.needs_person {
            match self.requests_needing_person().await? {
                Some(ids) => lists::match_ids(&mut matching, wanted, ids),
                None => stages.extend(lists::join_needing_person(wanted)),
            }
        }
        lists::page(&self.collection("requests"), (matching, stages), page, request).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        for entry in entries {
            let json = serde_json::to_string(entry).expect("entries are JSON");
            self.add_entry(&id.to_string(), &json).await?;
        }
        Ok(())
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        let Some(of) = self.entries_after(&id.to_string(), known).await? else {
            return Ok(Vec::new());
        };
        let found = self.collection("transcripts").find(of).sort(doc! { "_id": 1 }).await;
        let mut found = found.map_err(|err| failed(&err))?;
        let (mut entries, mut json) = (Vec::new(), String::new());
        while let Some(row) = found.try_next().await.map_err(|err| failed(&err))? {
            json.push_str(rows::text(&row, "json", &id.to_string())?);
            if !row.get_bool("more").unwrap_or_default() {
                let entry = serde_json::from_str(&json);
                entries.push(entry.map_err(|err| StoreError::corrupt(id, err))?);
                json.clear();
            }
        }
        Ok(entries)
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        let about = plan.info();
        let json = plan.to_json();
        let parts = texts::parts(&json);
        let tools: Vec<&str> = searched_tools(plan).into_iter().collect();
        let mut row = doc! {
            "_id": about.id.to_string(),
            "requestId": about.request.to_string(),
            "version": i64::from(about.version),
            "createdAt": DateTime::from_millis(about.created_at.timestamp_millis()),
            "at": about.created_at.timestamp_micros(),
            "folded": fold_case(&about.query),
            "tools": tools,
        };
        let sub_plans: Vec<String> = sub_plans(plan).iter().map(ToString::to_string).collect();
        if !sub_plans.is_empty() {
            row.insert("subPlans", sub_plans);
        }
        if let [json] = parts[..] {
            row.insert("json", json);
        } else {
            row.insert("parts", i64::try_from(parts.len()).unwrap_or(i64::MAX));
            self.put_parts(&about.id.to_string(), &parts).await?;
        }
        // The plan comes last: where it is, its parts are.
        self.put_new("plans", row).await?;
        self.plans.insert(&Arc::new(plan.clone()), json.len());
        Ok(())
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        match self.plans.get(id) {
            Cached::Fresh(plan) => return Ok(Some(plan)),
            Cached::Old(plan) => {
                let plans = self.collection("plans");
                let found = plans.find_one(doc! { "_id": id.to_string() });
                let found =
                    found.projection(doc! { "_id": 1 }).await.map_err(|err| failed(&err))?;
                return Ok(self.plans.confirm(plan, found.is_some()));
            }
            Cached::Unknown => (),
        }
        let Some(row) = self.find("plans", &id.to_string()).await? else { return Ok(None) };
        let json = match row.get_i64("parts") {
            Ok(parts) => self.parts(&id.to_string(), parts).await?,
            Err(_) => rows::text(&row, "json", &id.to_string())?.to_owned(),
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
            let id: PlanId = rows::parse(row, "_id", "a plan")?;
            let version = u32::try_from(rows::integer(row, "version", "a plan")?);
            Ok(PlanVersion { id, version: version.map_err(|err| StoreError::corrupt(id, err))? })
        };
        lists::page(&self.collection("plans"), lists::plans(filter), page, read).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        let found = self.caches.find_one(doc! { "_id": id.to_string() }).await;
        found.map_err(|err| failed(&err))?.as_ref().map(rows::head).transpose()
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        let (mut matching, stages) = lists::heads(filter);
        if let Some(wanted) = filter.needs_person {
            let above =
                if filter.is_root { self.ancestors_needing_person().await? } else { Vec::new() };
            lists::match_needing_person(&mut matching, wanted, above);
        }
        lists::page(&self.caches, (matching, stages), page, rows::head).await
    }
}

impl Mongo {
    pub(super) async fn find(&self, collection: &str, id: &str) -> Result<Option<Row>, StoreError> {
        let found = self.collection(collection).find_one(doc! { "_id": id }).await;
        found.map_err(|err| failed(&err))
    }

    /// Inserts a document, or says that a key of it is taken.
    async fn put_new(&self, collection: &str, row: Row) -> Result<(), StoreError> {
        match self.collection(collection).insert_one(row).await {
            Ok(_) => Ok(()),
            Err(err) if is_duplicate(&err) => Err(StoreError::Taken),
            Err(err) => Err(failed(&err)),
        }
    }

    async fn put_parts(&self, of: &str, parts: &[&str]) -> Result<(), StoreError> {
        for (part, n) in parts.iter().zip(0_i64..) {
            self.put_new("parts", doc! { "_id": { "of": of, "n": n }, "text": *part }).await?;
        }
        Ok(())
    }

    async fn parts(&self, of: &str, parts: i64) -> Result<String, StoreError> {
        let mut whole = String::new();
        for n in 0..parts {
            let id = doc! { "_id": { "of": of, "n": n } };
            let part = self.collection("parts").find_one(id).await.map_err(|err| failed(&err))?;
            let part = part.ok_or_else(|| StoreError::corrupt(of, format!("part {n} is gone")))?;
            whole.push_str(rows::text(&part, "text", of)?);
        }
        Ok(whole)
    }

    /// Adds an entry behind the last of a transcript; where another takes the place, behind that.
    /// Returns what finds the entries of a transcript behind the first ones, if there are any. Of
    /// those only the places are read.
    async fn entries_after(&self, request: &str, known: usize) -> Result<Option<Row>, StoreError> {
        if known == 0 {
            return Ok(Some(of_request(request)));
        }
        let transcripts = self.collection("transcripts");
        let parts = transcripts.find(of_request(request)).sort(doc! { "_id": 1 });
        let parts = parts.projection(doc! { "_id": 1, "more": 1 }).await;
        let mut parts = parts.map_err(|err| failed(&err))?;
        let mut left = known;
        while let Some(row) = parts.try_next().await.map_err(|err| failed(&err))? {
            if left == 0 {
                let id = row.get_document("_id").cloned().unwrap_or_default();
                let end = doc! { "r": request, "n": Bson::MaxKey };
                return Ok(Some(doc! { "_id": { "$gte": id, "$lt": end } }));
            }
            if !row.get_bool("more").unwrap_or_default() {
                left -= 1;
            }
        }
        Ok(None)
    }

    async fn add_entry(&self, request: &str, json: &str) -> Result<(), StoreError> {
        for _ in 0..TRANSCRIPT_TRIES {
            let transcripts = self.collection("transcripts");
            let last = transcripts.find_one(of_request(request)).sort(doc! { "_id": -1 });
            let last = last.await.map_err(|err| failed(&err))?;
            let last = last.and_then(|it| it.get_document("_id").ok()?.get_i64("n").ok());
            let parts = texts::parts(json);
            let row = |(at, part): (usize, &&str)| {
                let n = last.unwrap_or_default() + 1 + i64::try_from(at).unwrap_or(i64::MAX);
                let more = at + 1 < parts.len();
                doc! { "_id": { "r": request, "n": n }, "more": more, "json": *part }
            };
            let rows: Vec<Row> = parts.iter().enumerate().map(row).collect();
            match transcripts.insert_many(rows).await {
                Ok(_) => return Ok(()),
                Err(err) if is_duplicate(&err) => (),
                Err(err) => return Err(failed(&err)),
            }
        }
        Err(StoreError::Unavailable("too many add to one transcript: try again".to_owned()))
    }
}

pub(super) fn of_request(id: &str) -> Row {
    doc! { "_id": {
        "$gte": { "r": id, "n": Bson::MinKey },
        "$lt": { "r": id, "n": Bson::MaxKey },
    } }
}

fn request(row: &Row) -> Result<Request, StoreError> {
    let id = row.get_str("_id").unwrap_or("a request");
    Ok(Request {
        id: rows::parse(row, "_id", id)?,
        query: rows::text(row, "query", id)?.to_owned(),
        created_at: rows::time(row, "at", id)?,
    })
}
