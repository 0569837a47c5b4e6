//! Permits: one small document a limit, changed by one atomic update each.
//!
//! An update that grants nothing changes nothing, so the server writes nothing: whoever waits may
//! ask often. Rates go by the server's clock: nodes whose clocks differ agree.

use std::sync::atomic::Ordering;

use mongodb::{
    bson::{Bson, Document as Row, doc},
    options::ReturnDocument,
};
use shared::{
    clock::Timestamp,
    id::WorkerId,
    store::{
        CallLimit, Log, Permission, Permit, PermitAsk, StoreError,
        backend::{LimitState, Tallies},
    },
};

use super::{
    Mongo,
    commands::{self, Safety},
    connection::{failed, is_duplicate},
    lists, rows,
};

/// Where permits are.
const PERMITS: &str = "permits";
/// Every so many heartbeats of a process it buries the dead.
const BURY_EVERY: u64 = 16;
/// The row of a worker stays for so many microseconds after its lease: nodes' clocks differ a little.
const LONG: i64 = 60_000_000;
/// A limit that counts nothing is forgotten after so many milliseconds.
const FORGET: i64 = 60_000;

impl Mongo {
    /// Takes all limits of a call or none, as [`take_all`](shared::store::backend::take_all) does.
    pub(super) async fn take_all(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        let limits = ask.ordered_limits();
        if limits.len() > 1
            && ask.has_holders()
            && let Some(answer) = self.look_first(ask, now).await?
        {
            return Ok(answer);
        }
        for (n, limit) in limits.iter().enumerate() {
            let taken = self.take(limit, &ask.permit, now).await?;
            if taken != Permission::Granted {
                self.undo(&limits[..n], &ask.permit).await?;
                if limits.len() > 1 {
                    self.give_back(std::slice::from_ref(&ask.permit)).await?;
                }
                return Ok(taken);
            }
        }
        Ok(Permission::Granted)
    }

    /// Looks whether everything is held already, or something has no place.
    async fn look_first(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Option<Permission>, StoreError> {
        let permit = &ask.permit;
        let tallies = self.tallies(&ask.limits).await?;
        let tally = |limit: &CallLimit| tallies.get(&limit.key).cloned().unwrap_or_default();
        let limits = ask.ordered_limits();
        let with_places: Vec<_> =
            limits.iter().filter_map(|it| it.places().map(|places| (*it, places))).collect();
        let holds = |it: &CallLimit| tally(it).holders.contains_key(&permit.holder);
        if with_places.iter().all(|(it, _)| holds(it)) {
            return Ok(Some(Permission::Granted));
        }
        for (limit, places) in with_places {
            if holds(limit) || tally(limit).holders.len() < places {
                continue;
            }
            let left = self.evict_dead(&limit.key, now).await?;
            if left.holders.len() >= places {
                self.give_back(std::slice::from_ref(permit)).await?;
                return Ok(Some(Permission::Full));
            }
        }
        Ok(None)
    }

    /// Takes one limit; where it is full, looks whether its holders live.
    async fn take(
        &self,
        limit: &CallLimit,
        permit: &Permit,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        let taken = self.try_take(limit, permit).await?;
        if taken != Permission::Full {
            return Ok(taken);
        }
        let left = self.evict_dead(&limit.key, now).await?;
        if limit.places().is_none_or(|it| left.holders.len() >= it) {
            return Ok(Permission::Full);
        }
        self.try_take(limit, permit).await
    }

    async fn try_take(&self, limit: &CallLimit, permit: &Permit) -> Result<Permission, StoreError> {
        let row = self.change(&limit.key, taking(limit, permit)).await?;
        let tally = tally(&row, &limit.key)?;
        let is_held = match limit.places() {
            Some(_) => tally.holders.contains_key(&permit.holder),
            None => tally.last == permit.holder,
        };
        Ok(match (limit.places(), limit.rate) {
            _ if is_held => Permission::Granted,
            (Some(places), _) if tally.holders.len() >= places => Permission::Full,
            (_, Some(rate)) => Permission::NotBefore(tally.not_before(rate)),
            // Somebody let go between the update and now.
            (_, None) => Permission::Full,
        })
    }

    /// Removes the holders whose workers are gone, and returns what is left.
    async fn evict_dead(&self, key: &str, now: Timestamp) -> Result<LimitState, StoreError> {
        let live: Vec<String> =
            self.list_workers(now).await?.iter().map(ToString::to_string).collect();
        let row = self.change(key, keeping(doc! { "$in": ["$$it.w", live] })).await?;
        tally(&row, key)
    }

    /// Changes the document of a limit, which is made if there is none.
    async fn change(&self, key: &str, stages: Vec<Row>) -> Result<Row, StoreError> {
        let permits = self.collection(PERMITS);
        let change = || {
            let id = doc! { "_id": key };
            let change = permits.find_one_and_update(id, stages.clone()).upsert(true);
            change.return_document(ReturnDocument::After)
        };
        let changed = match change().await {
            // Another made it at the same time.
            Err(err) if is_duplicate(&err) => change().await,
            changed => changed,
        };
        Ok(changed.map_err(|err| failed(&err))?.unwrap_or_default())
    }

    /// Takes back what limits have counted for a holder.
    async fn undo(&self, limits: &[&CallLimit], permit: &Permit) -> Result<(), StoreError> {
        let holder = literal(&permit.holder);
        let updates: Vec<Row> = limits
            .iter()
            .map(|limit| {
                let interval = limit.rate.map_or(0, shared::store::Rate::call_interval);
                let is_last = doc! { "$eq": ["$last", &holder] };
                let mut stages = keeping(doc! { "$ne": ["$$it.h", &holder] });
                let counted = doc! { "$set": {
                    "next": { "$subtract": ["$next", interval] },
                    "last": { "$cond": [is_last, "", "$last"] },
                } };
                stages.insert(1, counted);
                doc! { "q": { "_id": &limit.key }, "u": stages }
            })
            .collect();
        self.update(&updates).await
    }

    /// Lets holders go.
    pub(super) async fn give_back(&self, permits: &[Permit]) -> Result<(), StoreError> {
        let of_one = |permit: &Permit| {
            let stages = keeping(doc! { "$ne": ["$$it.h", literal(&permit.holder)] });
            let query = |key: &String| doc! { "_id": key, "holders.h": &permit.holder };
            let updates = permit.limits.iter().map(|it| doc! { "q": query(it), "u": &stages });
            updates.collect::<Vec<_>>()
        };
        let updates: Vec<Row> = permits.iter().flat_map(of_one).collect();
        for updates in updates.chunks(1_000) {
            self.update(updates).await?;
        }
        Ok(())
    }

    /// Lets go whatever a worker holds.
    pub(super) async fn evict(&self, worker: WorkerId) -> Result<(), StoreError> {
        let worker = worker.to_string();
        let stages = keeping(doc! { "$ne": ["$$it.w", &worker] });
        let those = doc! { "holders.w": worker };
        let evicted = self.collection(PERMITS).update_many(those, stages).await;
        evicted.map_err(|err| failed(&err)).map(drop)
    }

    /// Once in a while forgets workers whose leases ended and to which no execution belongs any more.
    pub(super) async fn bury(&self, until: Timestamp) -> Result<(), StoreError> {
        if !self.rounds.heartbeats.fetch_add(1, Ordering::Relaxed).is_multiple_of(BURY_EVERY) {
            return Ok(());
        }
        let is_gone = doc! { "$lt": until.timestamp_micros().saturating_sub(LONG) };
        let workers = self.collection("workers");
        let gone = workers.distinct("_id", doc! { "until": is_gone.clone() }).await;
        let gone = gone.map_err(|err| failed(&err))?;
        if gone.is_empty() {
            return Ok(());
        }
        let owners = self.caches.distinct("owner", doc! { "owner": { "$in": &gone } }).await;
        let owners = owners.map_err(|err| failed(&err))?;
        let those = doc! { "_id": { "$in": gone, "$nin": owners }, "until": is_gone };
        let removed = workers.delete_many(those).await.map_err(|err| failed(&err))?;
        if removed.deleted_count > 0 {
            self.sweep().await?;
        }
        Ok(())
    }

    /// Lets go what workers hold that nobody has heard of.
    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        let known = self.collection("workers").distinct("_id", doc! {}).await;
        let known: Vec<Bson> = known.map_err(|err| failed(&err))?;
        let those = doc! { "holders": { "$elemMatch": { "w": { "$nin": &known } } } };
        let stages = keeping(doc! { "$in": ["$$it.w", known] });
        let swept = self.collection(PERMITS).update_many(those, stages).await;
        swept.map_err(|err| failed(&err)).map(drop)
    }

    async fn tallies(&self, limits: &[CallLimit]) -> Result<Tallies, StoreError> {
        let keys: Vec<&str> = limits.iter().map(|it| it.key.as_str()).collect();
        let found = self.collection(PERMITS).find(doc! { "_id": { "$in": keys } }).await;
        let rows = lists::all_rows(found).await?;
        let read = |row: &Row| {
            let key = rows::text(row, "_id", "a limit")?;
            Ok((key.to_owned(), tally(row, key)?))
        };
        rows.iter().map(read).collect()
    }

    async fn update(&self, updates: &[Row]) -> Result<(), StoreError> {
        if updates.is_empty() {
            return Ok(());
        }
        let command = commands::update(PERMITS, updates, Safety::Durable)?;
        commands::run(&self.database, command).await.map(drop)
    }
}

/// Returns the stages that take a limit, if it allows that.
fn taking(limit: &CallLimit, permit: &Permit) -> Vec<Row> {
    let holder = literal(&permit.holder);
    let now = now();
    let (holds, has_place) = match limit.places() {
        Some(places) => {
            let places = i64::try_from(places).unwrap_or(i64::MAX);
            let has_place = doc! { "$lt": [{ "$size": "$holders" }, places] };
            (doc! { "$in": [&holder, "$holders.h"] }, has_place)
        }
        None => (doc! { "$eq": ["$last", &holder] }, doc! { "$literal": true }),
    };
    let in_time = limit.rate.map_or(doc! { "$literal": true }, |it| {
        doc! { "$lte": [{ "$subtract": ["$next", it.burst_tolerance()] }, &now] }
    });
    let mut taken = Row::new();
    let mut take = |field: &str, value: Row| {
        taken.insert(field, doc! { "$cond": ["$granted", value, format!("${field}")] });
    };
    if let Some(rate) = limit.rate {
        take("next", doc! { "$add": [{ "$max": ["$next", &now] }, rate.call_interval()] });
    }
    if limit.places().is_some() {
        let place = doc! { "h": &holder, "w": permit.worker.to_string() };
        take("holders", doc! { "$concatArrays": ["$holders", [place]] });
    } else {
        take("last", doc! { "$concat": [&holder] });
    }
    let mut stages = vec![
        begin(),
        doc! { "$set": { "granted": { "$and": [{ "$not": [holds] }, has_place, in_time] } } },
    ];
    if !taken.is_empty() {
        stages.push(doc! { "$set": taken });
    }
    stages.push(doc! { "$set": { "expires": { "$cond": [
        { "$gt": [{ "$size": "$holders" }, 0] },
        "$$REMOVE",
        { "$cond": ["$granted", expiry(), { "$ifNull": ["$expires", expiry()] }] },
    ] } } });
    stages.push(doc! { "$unset": "granted" });
    stages
}

/// Returns the stages that keep some holders, each of which is `$$it`.
fn keeping(condition: Row) -> Vec<Row> {
    let kept = doc! { "$filter": { "input": "$holders", "as": "it", "cond": condition } };
    vec![
        begin(),
        doc! { "$set": { "holders": kept } },
        doc! { "$set": { "expires": { "$cond": [
            { "$gt": [{ "$size": "$holders" }, 0] },
            "$$REMOVE",
            { "$ifNull": ["$expires", expiry()] },
        ] } } },
    ]
}

/// Returns the stage that makes a document whole.
fn begin() -> Row {
    doc! { "$set": {
        "holders": { "$ifNull": ["$holders", []] },
        "next": { "$ifNull": ["$next", 0_i64] },
        "last": { "$ifNull": ["$last", ""] },
    } }
}

/// Returns when a limit without holders counts nothing any more.
fn expiry() -> Row {
    let micros = doc! { "$max": ["$next", now()] };
    let millis = doc! { "$toLong": { "$divide": [micros, 1_000_i64] } };
    doc! { "$toDate": { "$add": [millis, FORGET] } }
}

/// Returns the server's time in microseconds.
fn now() -> Row {
    doc! { "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] }
}

/// Returns a text that is no expression, whatever it begins with.
fn literal(text: &str) -> Row {
    doc! { "$literal": text }
}

fn tally(row: &Row, key: &str) -> Result<LimitState, StoreError> {
    let mut tally = LimitState {
        next: rows::integer(row, "next", key)?,
        last: rows::text(row, "last", key)?.to_owned(),
        ..LimitState::default()
    };
    let holders = row.get_array("holders").map_err(|err| StoreError::corrupt(key, err))?;
    for holder in holders.iter().filter_map(Bson::as_document) {
        tally
            .holders
            .insert(rows::text(holder, "h", key)?.to_owned(), rows::parse(holder, "w", key)?);
    }
    Ok(tally)
}
