//! Requests, plans, transcripts and heads in the file.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
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

use super::{Answer, Change, Sqlite, change::PlanRow, connection::failed, lists, rows};

#[async_trait]
impl Documents for Sqlite {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        let change = Change::Request {
            id: request.id.to_string(),
            created_at: request.created_at.timestamp_micros(),
            query: request.query.clone(),
            folded: fold_case(&request.query),
        };
        not_taken(&self.write(change).await?)
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.readers
            .read(move |connection| {
                let sql = "SELECT id, created_at, query FROM requests WHERE id = ?1";
                rows::find_row(connection, sql, [id.to_string()], lists::request)
            })
            .await
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        self.readers.read(move |connection| lists::requests(connection, &filter, &page)).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        let json = entries.iter().map(|it| serde_json::to_string(it).expect("entries are JSON"));
        let change = Change::Transcript { request: id, entries: json.collect() };
        self.write(change).await.map(drop)
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        let known = i64::try_from(known).unwrap_or(i64::MAX);
        let read = move |connection: &Connection| transcript(connection, &id.to_string(), known);
        self.readers.read(read).await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        let about = plan.info();
        let change = Change::Plan(PlanRow {
            id: about.id.to_string(),
            request: about.request.to_string(),
            version: about.version,
            created_at: about.created_at.timestamp_micros(),
            folded: fold_case(&about.query),
            json: plan.to_json(),
            tools: searched_tools(plan).into_iter().map(str::to_owned).collect(),
            parts: sub_plans(plan).iter().map(ToString::to_string).collect(),
        });
        let bytes = change.bytes();
        not_taken(&self.write(change).await?)?;
        self.plans.insert(&Arc::new(plan.clone()), bytes);
        Ok(())
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        match self.plans.get(id) {
            Cached::Fresh(plan) => return Ok(Some(plan)),
            Cached::Old(plan) => {
                let is_there = self.readers.read(move |it| has_plan(it, &id.to_string())).await?;
                return Ok(self.plans.confirm(plan, is_there));
            }
            Cached::Unknown => (),
        }
        let read = self.readers.read(move |connection| plan(connection, &id.to_string())).await?;
        let Some((plan, bytes)) = read else { return Ok(None) };
        self.plans.insert(&plan, bytes);
        Ok(Some(plan))
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        self.readers.read(move |connection| lists::plans(connection, &filter, &page)).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        self.readers
            .read(move |connection| {
                let sql = format!(
                    "SELECT {} FROM heads WHERE number =
                     (SELECT number FROM logs WHERE execution = ?1)",
                    rows::HEAD
                );
                rows::find_row(connection, &sql, [id.to_string()], rows::head)
            })
            .await
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        self.readers.read(move |connection| lists::heads(connection, &filter, &page)).await
    }
}

fn not_taken(answer: &Answer) -> Result<(), StoreError> {
    if matches!(answer, Answer::Taken) { Err(StoreError::Taken) } else { Ok(()) }
}

fn transcript(
    connection: &Connection,
    id: &str,
    known: i64,
) -> Result<Vec<TranscriptEntry>, StoreError> {
    // Those that are known are counted in the index alone.
    let sql = "SELECT json FROM transcripts WHERE n IN (SELECT n FROM transcripts \
               WHERE request = ?1 ORDER BY n LIMIT -1 OFFSET ?2) ORDER BY n";
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query(params![id, known]).map_err(|err| failed(&err))?;
    let mut entries = Vec::new();
    while let Some(row) = found.next().map_err(|err| failed(&err))? {
        let json: String = rows::column(row, 0, id)?;
        entries.push(serde_json::from_str(&json).map_err(|err| StoreError::corrupt(id, err))?);
    }
    Ok(entries)
}

fn plan(connection: &Connection, id: &str) -> Result<Option<(Arc<Plan>, usize)>, StoreError> {
    let sql = "SELECT json FROM plans WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let json = statement.query_row([id], |row| row.get::<_, String>(0)).optional();
    let json = json.map_err(|err| match failed(&err) {
        StoreError::Corrupt { why, .. } => StoreError::corrupt(id, why),
        other => other,
    })?;
    let Some(json) = json else { return Ok(None) };
    let plan = Plan::from_json(&json).map_err(|err| StoreError::corrupt(id, err))?;
    Ok(Some((Arc::new(plan), json.len())))
}

fn has_plan(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    let found = connection.prepare_cached("SELECT 1 FROM plans WHERE id = ?1");
    found.and_then(|mut it| it.exists([id])).map_err(|err| failed(&err))
}
