use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use shared::{
    id::{ExecutionId, PlanId, RequestId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        CountQuery, Documents, ExecutionCount, ExecutionFilter, ExecutionHead, Listing, Page,
        PlanFilter, PlanVersion, RequestFilter, StoreError,
        backend::{Cached, REQUEST_LABELS_LAYOUT, fold_case, searched_tools},
        sub_plans,
    },
};

use super::{
    Answer, Change, Sqlite,
    change::{PlanRow, RequestRow},
    connection::to_store_error,
    counts, due, lists, rows,
};

#[async_trait]
impl Documents for Sqlite {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        let change = Change::PutRequest(RequestRow {
            id: request.id.to_string(),
            created_at: request.created_at.timestamp_micros(),
            query: request.query.clone(),
            folded_query: fold_case(&request.query),
            labels: rows::encode_labels(&request.labels)
                .filter(|_| self.layout >= REQUEST_LABELS_LAYOUT),
        });
        check_not_taken(&self.write(change).await?)
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        let columns = lists::request_columns(self.layout);
        self.readers
            .read(move |connection| {
                let sql = format!("SELECT {columns} FROM requests WHERE requestId = ?1");
                rows::find_row(connection, &sql, [id.to_string()], lists::read_request)
            })
            .await
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        let (filter, page, layout) = (filter.clone(), page.clone(), self.layout);
        let list =
            move |connection: &Connection| lists::list_requests(connection, &filter, &page, layout);
        self.readers.read(list).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        let to_json =
            |entry: &TranscriptEntry| serde_json::to_string(entry).expect("entries are JSON");
        let entries = entries.iter().map(to_json).collect();
        let change = Change::AddTranscript { request: id, entries };
        self.write(change).await.map(drop)
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        let known = i64::try_from(known).unwrap_or(i64::MAX);
        self.readers
            .read(move |connection| read_transcript(connection, &id.to_string(), known))
            .await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        let info = plan.info();
        let change = Change::PutPlan(PlanRow {
            id: info.id.to_string(),
            request: info.request.to_string(),
            version: info.version,
            created_at: info.created_at.timestamp_micros(),
            folded_query: fold_case(&info.query),
            json: plan.to_json(),
            tools: searched_tools(plan).into_iter().map(str::to_owned).collect(),
            sub_plans: sub_plans(plan).iter().map(ToString::to_string).collect(),
        });
        let bytes = change.bytes();
        check_not_taken(&self.write(change).await?)?;
        self.plans.insert(&Arc::new(plan.clone()), bytes);
        Ok(())
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        match self.plans.get(id) {
            Cached::Fresh(plan) => return Ok(Some(plan)),
            Cached::Old(plan) => {
                let exists = self
                    .readers
                    .read(move |connection| has_plan(connection, &id.to_string()))
                    .await?;
                return Ok(self.plans.confirm(plan, exists));
            }
            Cached::Unknown => (),
        }
        let found =
            self.readers.read(move |connection| find_plan(connection, &id.to_string())).await?;
        let Some((plan, bytes)) = found else { return Ok(None) };
        self.plans.insert(&plan, bytes);
        Ok(Some(plan))
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        self.readers.read(move |connection| lists::list_plans(connection, &filter, &page)).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        self.readers
            .read(move |connection| {
                let sql = format!(
                    "SELECT {} FROM executions WHERE number =
                     (SELECT number FROM logs WHERE executionId = ?1)",
                    rows::HEAD_COLUMNS
                );
                rows::find_row(connection, &sql, [id.to_string()], rows::read_head)
            })
            .await
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        self.readers.read(move |connection| lists::list_heads(connection, &filter, &page)).await
    }

    async fn count_executions(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        let query = query.clone();
        self.readers.read(move |connection| counts::count_executions(connection, &query)).await
    }

    async fn count_active(&self, token: &str) -> Result<u64, StoreError> {
        let token = token.to_owned();
        self.readers.read(move |connection| due::count_active(connection, &token)).await
    }

    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError> {
        let token = token.to_owned();
        self.readers.read(move |connection| due::sum_stored_bytes(connection, &token)).await
    }

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.readers.read(move |connection| counts::count_heads(connection, &filter)).await
    }

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.readers.read(move |connection| lists::count_requests(connection, &filter)).await
    }

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.readers.read(move |connection| lists::count_plans(connection, &filter)).await
    }
}

fn check_not_taken(answer: &Answer) -> Result<(), StoreError> {
    if matches!(answer, Answer::Taken) { Err(StoreError::Taken) } else { Ok(()) }
}

fn read_transcript(
    connection: &Connection,
    id: &str,
    known: i64,
) -> Result<Vec<TranscriptEntry>, StoreError> {
    // The inner query skips the entries that the caller already has. It reads only the index, not
    // the JSON of these entries.
    let sql = "SELECT json FROM transcripts WHERE n IN (SELECT n FROM transcripts \
               WHERE requestId = ?1 ORDER BY n LIMIT -1 OFFSET ?2) ORDER BY n";
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let mut found = statement.query(params![id, known]).map_err(|err| to_store_error(&err))?;
    let mut entries = Vec::new();
    while let Some(row) = found.next().map_err(|err| to_store_error(&err))? {
        let json: String = rows::read_column(row, 0, id)?;
        entries.push(serde_json::from_str(&json).map_err(|err| StoreError::corrupt(id, err))?);
    }
    Ok(entries)
}

pub(super) fn find_plan(
    connection: &Connection,
    id: &str,
) -> Result<Option<(Arc<Plan>, usize)>, StoreError> {
    let sql = "SELECT json FROM plans WHERE planId = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let json = statement.query_row([id], |row| row.get::<_, String>(0)).optional();
    let json = json.map_err(|err| match to_store_error(&err) {
        StoreError::Corrupt { why, .. } => StoreError::corrupt(id, why),
        other => other,
    })?;
    let Some(json) = json else { return Ok(None) };
    let plan = Plan::from_json(&json).map_err(|err| StoreError::corrupt(id, err))?;
    Ok(Some((Arc::new(plan), json.len())))
}

fn has_plan(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    let found = connection.prepare_cached("SELECT 1 FROM plans WHERE planId = ?1");
    found.and_then(|mut statement| statement.exists([id])).map_err(|err| to_store_error(&err))
}
