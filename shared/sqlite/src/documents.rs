//! Requests, plans, transcripts, heads and keys in the file.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::{
    clock::{Clock as _, Timestamp},
    id::{ExecutionId, PlanId, RequestId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        Documents, ExecutionFilter, ExecutionHead, Listing, Page, PlanFilter, RequestFilter,
        Reservation, SavedPlan, StoreError,
        backend::{Cached, fold_case, searched_tools},
        sub_plans,
    },
};

use super::{
    Answer, Change, Sqlite,
    change::PlanRow,
    connection::failed,
    lists, log,
    rows::{self, good},
};

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
                one(connection, sql, &id.to_string(), lists::request)
            })
            .await
    }

    async fn requests(
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

    async fn plans_of(&self, id: RequestId) -> Result<Vec<PlanId>, StoreError> {
        self.readers.read(move |connection| plans_of(connection, &id.to_string())).await
    }

    async fn plans(&self, filter: &PlanFilter, page: &Page) -> Result<Listing<PlanId>, StoreError> {
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
                one(connection, &sql, &id.to_string(), rows::head)
            })
            .await
    }

    async fn heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        self.readers.read(move |connection| lists::heads(connection, &filter, &page)).await
    }

    async fn ended(
        &self,
        after: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        self.readers.read(move |connection| log::ended(connection, after, until, most)).await
    }

    async fn reserve(&self, key: &Reservation) -> Result<Option<Reservation>, StoreError> {
        match self.write(Change::Reserve(key.clone())).await? {
            Answer::There(there) => Ok(Some(there)),
            _ => Ok(None),
        }
    }

    async fn reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError> {
        let key = key.to_owned();
        self.readers
            .read(move |connection| rows::reservation(connection, &key).map_err(|err| failed(&err)))
            .await
    }

    async fn save_plan(&self, saved: &SavedPlan) -> Result<(), StoreError> {
        let change = Change::Save {
            name: saved.name.clone(),
            plan: saved.plan.to_string(),
            inputs: saved.inputs.as_ref().map(ToString::to_string),
            at: saved.at.timestamp_micros(),
        };
        self.write(change).await.map(drop)
    }

    async fn saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, StoreError> {
        let name = name.to_owned();
        self.readers
            .read(move |connection| {
                let sql = "SELECT name, plan, inputs, at FROM saved WHERE name = ?1";
                one(connection, sql, &name, saved_plan)
            })
            .await
    }

    async fn saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, StoreError> {
        let after = after.map(str::to_owned);
        self.readers
            .read(move |connection| {
                let sql = "SELECT name, plan, inputs, at FROM saved \
                     WHERE ?1 IS NULL OR name > ?1 ORDER BY name";
                let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
                let mut found = statement.query(params![after]).map_err(|err| failed(&err))?;
                let mut saved = Vec::new();
                // Until there are enough good ones: fewer say that there are no more.
                while saved.len() < first
                    && let Some(row) = found.next().map_err(|err| failed(&err))?
                {
                    saved.extend(good(saved_plan(row))?);
                }
                Ok(saved)
            })
            .await
    }

    async fn remove_saved_plan(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.write(Change::Unsave { name: name.to_owned() }).await?.is_done())
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        Ok(self.time.now())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.write(Change::Check).await.map(drop)
    }
}

fn not_taken(answer: &Answer) -> Result<(), StoreError> {
    if matches!(answer, Answer::Taken) { Err(StoreError::Taken) } else { Ok(()) }
}

/// Reads the one row that a query finds, if it finds one.
fn one<T>(
    connection: &Connection,
    sql: &str,
    id: &str,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query([id]).map_err(|err| failed(&err))?;
    found.next().map_err(|err| failed(&err))?.map(read).transpose()
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

fn plans_of(connection: &Connection, request: &str) -> Result<Vec<PlanId>, StoreError> {
    let sql = "SELECT id FROM plans WHERE request = ?1 ORDER BY version";
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query([request]).map_err(|err| failed(&err))?;
    let mut plans = Vec::new();
    while let Some(row) = found.next().map_err(|err| failed(&err))? {
        plans.extend(good(lists::plan_id(row))?);
    }
    Ok(plans)
}

fn saved_plan(row: &Row<'_>) -> Result<SavedPlan, StoreError> {
    let name: String = rows::column(row, 0, "a saved plan")?;
    let (plan, inputs): (String, Option<String>) =
        (rows::column(row, 1, &name)?, rows::column(row, 2, &name)?);
    let inputs = inputs.map(|it| serde_json::from_str(&it)).transpose();
    Ok(SavedPlan {
        plan: rows::parse(&plan, &name)?,
        inputs: inputs.map_err(|err| StoreError::corrupt(&name, err))?,
        at: rows::time(rows::column(row, 3, &name)?, &name)?,
        name,
    })
}
