//! Removing what is over and old.
//!
//! What is going is written down before it goes, so that what a crash leaves is found again. The
//! document that lists show goes first: nobody finds the half of anything. Whoever reads a log
//! just then is told that it is not there, and not that it is damaged.

use std::collections::BTreeSet;

use futures::TryStreamExt;
use mongodb::{
    Cursor, Database,
    bson::{Bson, Document as Row, doc},
};
use shared::{
    clock::Timestamp,
    id::ExecutionId,
    store::{Pruned, StoreError},
};

use super::{
    Mongo,
    commands::{self, Safety},
    connection::failed,
    documents::of_request,
    lists, records, rows,
};

/// What is removed or looked at together.
const BATCH: usize = 64;
/// What was left behind is finished by others after so many milliseconds.
const LEFT: i64 = 60_000;
/// So much that was left behind one call finishes.
const MOST_LEFT: i64 = 1_024;

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Executions,
    Plans,
    Requests,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Executions, Self::Plans, Self::Requests];

    /// Returns the collection that lists show.
    fn collection(self) -> &'static str {
        match self {
            Self::Executions => "executions",
            Self::Plans => "plans",
            Self::Requests => "requests",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Executions => "exec_",
            Self::Plans => "plan_",
            Self::Requests => "req_",
        }
    }
}

/// Returns whether a log is being removed.
pub(super) async fn is_going(database: &Database, id: ExecutionId) -> Result<bool, StoreError> {
    let going = database.collection::<Row>("going");
    let found = going.find_one(doc! { "_id": id.to_string() }).await;
    Ok(found.map_err(|err| failed(&err))?.is_some())
}

impl Mongo {
    /// Removes what is older than `before`, at most `most` of a kind.
    pub(super) async fn remove_old(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<Pruned, StoreError> {
        self.finish_what_was_left().await?;
        self.remove_old_records(before).await?;
        self.sweep().await?;
        let mut pruned = Pruned::default();
        for kind in Kind::ALL {
            let mut old = self.find_old(kind, before, most.saturating_add(1)).await?;
            let more = old.len() > most;
            old.truncate(most);
            let has_parts = old.iter().any(|it| it.contains_key("subPlans"));
            let ids: Vec<String> = old.iter().map(id).collect();
            for ids in ids.chunks(BATCH) {
                self.remove(kind, ids).await?;
            }
            match kind {
                Kind::Executions => pruned.executions = ids.len(),
                Kind::Plans => pruned.plans = ids.len(),
                Kind::Requests => pruned.requests = ids.len(),
            }
            pruned.more |= more || has_parts;
            if more {
                break;
            }
        }
        Ok(pruned)
    }

    /// Finds the first few that may go.
    async fn find_old(
        &self,
        kind: Kind,
        before: Timestamp,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let before = doc! { "$lt": before.timestamp_micros() };
        let (heads, fields) = (&self.caches, doc! { "_id": 1, "parent": 1, "subPlans": 1 });
        let found = match kind {
            Kind::Executions => {
                let over = doc! {
                    "finishedAt": before, "owner": { "$exists": false }, "state": { "$in": OVER.to_vec() },
                };
                heads.find(over).sort(doc! { "finishedAt": 1, "_id": 1 }).projection(fields).await
            }
            Kind::Plans | Kind::Requests => {
                let all = self.collection(kind.collection());
                let old = all.find(doc! { "at": before }).sort(doc! { "at": 1, "_id": 1 });
                old.projection(fields).await
            }
        };
        let mut found = found.map_err(|err| failed(&err))?;
        let mut old = Vec::new();
        loop {
            let some = next_rows(&mut found).await?;
            let is_last = some.len() < BATCH;
            let kept = self.still_needed(kind, &some).await?;
            old.extend(some.into_iter().filter(|it| !kept.contains(&needed_by(kind, it))));
            if is_last || old.len() >= most {
                old.truncate(most);
                return Ok(old);
            }
        }
    }

    /// Returns what keeps some of these: parents that are not over, plans and requests in use.
    async fn still_needed(&self, kind: Kind, some: &[Row]) -> Result<BTreeSet<String>, StoreError> {
        let ids: Vec<String> = some.iter().map(|it| needed_by(kind, it)).collect();
        let those = doc! { "$in": ids };
        let over = OVER.to_vec();
        let lookups = match kind {
            Kind::Executions => {
                vec![("executions", "_id", doc! { "_id": those, "state": { "$nin": over } })]
            }
            Kind::Plans => vec![
                ("executions", "planId", doc! { "planId": &those }),
                ("saved", "planId", doc! { "planId": &those }),
                ("plans", "subPlans", doc! { "subPlans": those }),
            ],
            Kind::Requests => vec![
                ("executions", "requestId", doc! { "requestId": &those }),
                ("plans", "requestId", doc! { "requestId": those }),
            ],
        };
        let mut needed = BTreeSet::new();
        for (collection, field, query) in lookups {
            let found = match collection {
                "executions" => self.caches.distinct(field, query).await,
                other => self.collection(other).distinct(field, query).await,
            };
            needed.append(&mut texts(&found.map_err(|err| failed(&err))?));
        }
        Ok(needed)
    }

    async fn remove(&self, kind: Kind, ids: &[String]) -> Result<(), StoreError> {
        let updates: Vec<Row> = ids
            .iter()
            .map(|id| {
                let going = doc! { "$currentDate": { "at": true } };
                doc! { "q": { "_id": id }, "u": going, "upsert": true }
            })
            .collect();
        self.run(commands::update("going", &updates, Safety::Durable)).await?;
        if kind == Kind::Executions {
            // Before the head: a key must not stand for what is not there.
            self.delete("keys", vec![doc! { "execution": { "$in": ids } }]).await?;
        }
        self.delete(kind.collection(), vec![doc! { "_id": { "$in": ids } }]).await?;
        self.finish(kind, ids).await
    }

    /// Removes what belongs to things that are gone.
    async fn finish(&self, kind: Kind, ids: &[String]) -> Result<(), StoreError> {
        match kind {
            Kind::Executions => {
                self.delete("inbox", vec![doc! { "executionId": { "$in": ids } }]).await?;
                let logs = ids.iter().map(|it| rows::log_range(it, Bson::MinKey, Bson::MaxKey));
                self.delete("events", logs.collect()).await?;
                let settlements = ids.iter().map(|id| records::settlements_of(id));
                self.delete("records", settlements.collect()).await?;
            }
            Kind::Plans => {
                let parts = ids.iter().map(|it| of_plan(it));
                self.delete("parts", parts.collect()).await?;
            }
            Kind::Requests => {
                let entries = ids.iter().map(|it| of_request(it));
                self.delete("transcripts", entries.collect()).await?;
            }
        }
        for id in ids.iter().filter_map(|it| it.parse().ok()) {
            self.ends.forget(id);
        }
        self.delete("going", vec![doc! { "_id": { "$in": ids } }]).await
    }

    /// Finishes what crashes left. What was not begun is left alone: somebody may need it again.
    async fn finish_what_was_left(&self) -> Result<(), StoreError> {
        let age = doc! { "$subtract": ["$$NOW", LEFT] };
        let left = doc! { "$expr": { "$lt": ["$at", age] } };
        let left = self.collection("going").find(left).limit(MOST_LEFT).await;
        let left: Vec<String> = lists::all_rows(left).await?.iter().map(id).collect();
        for kind in Kind::ALL {
            let of_kind = left.iter().filter(|it| it.starts_with(kind.prefix()));
            let ids: Vec<String> = of_kind.cloned().collect();
            if ids.is_empty() {
                continue;
            }
            let all = self.collection(kind.collection());
            let there = all.find(doc! { "_id": { "$in": &ids } });
            let there = lists::all_rows(there.projection(doc! { "_id": 1 }).await).await?;
            let there: BTreeSet<String> = there.iter().map(id).collect();
            let (there, gone): (Vec<_>, Vec<_>) =
                ids.into_iter().partition(|it| there.contains(it));
            self.delete("going", vec![doc! { "_id": { "$in": there } }]).await?;
            self.finish(kind, &gone).await?;
        }
        Ok(())
    }

    async fn delete(&self, collection: &str, queries: Vec<Row>) -> Result<(), StoreError> {
        if queries.is_empty() {
            return Ok(());
        }
        self.run(commands::remove_where(collection, queries)).await
    }

    async fn run(
        &self,
        command: Result<mongodb::bson::RawDocumentBuf, StoreError>,
    ) -> Result<(), StoreError> {
        commands::run(&self.database, command?).await.map(drop)
    }
}

/// The states that nothing follows.
const OVER: [&str; 3] = ["COMPLETED", "FAILED", "CANCELLED"];

/// Returns what something is kept for, if that is still needed.
fn needed_by(kind: Kind, row: &Row) -> String {
    let field = if kind == Kind::Executions { "parent" } else { "_id" };
    row.get_str(field).unwrap_or_default().to_owned()
}

fn id(row: &Row) -> String {
    row.get_str("_id").unwrap_or_default().to_owned()
}

fn of_plan(id: &str) -> Row {
    doc! { "_id": {
        "$gte": { "of": id, "n": Bson::MinKey },
        "$lt": { "of": id, "n": Bson::MaxKey },
    } }
}

fn texts(values: &[Bson]) -> BTreeSet<String> {
    values.iter().filter_map(Bson::as_str).map(str::to_owned).collect()
}

async fn next_rows(found: &mut Cursor<Row>) -> Result<Vec<Row>, StoreError> {
    let mut rows = Vec::with_capacity(BATCH);
    while rows.len() < BATCH
        && let Some(row) = found.try_next().await.map_err(|err| failed(&err))?
    {
        rows.push(row);
    }
    Ok(rows)
}
