//! Permits in MongoDB. Each limit on calls is one small document. Rates use the server's clock, so
//! that nodes with different clocks agree.

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
    connection::{is_duplicate_key, to_store_error},
    lists, rows,
};

const PERMITS: &str = "permits";
/// Number of renewals of leases after which one renewal also removes old workers.
const HEARTBEATS_PER_CLEANUP: u64 = 16;
/// Time for which the entry of a worker outlives its lease, because the clocks of nodes differ.
const WORKER_RETENTION_MICROS: i64 = 60_000_000;
/// Time after which the document of an unused limit is removed.
const UNUSED_LIMIT_RETENTION_MS: i64 = 60_000;

impl Mongo {
    pub(super) async fn take_all_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        let limits = ask.ordered_limits();
        if limits.len() > 1
            && ask.has_holders()
            && let Some(permission) = self.check_holders(ask, now).await?
        {
            return Ok(permission);
        }
        for (n, limit) in limits.iter().enumerate() {
            let permission = self.take_permit(limit, &ask.permit, now).await?;
            if permission != Permission::Granted {
                self.undo_taken_permits(&limits[..n], &ask.permit).await?;
                if limits.len() > 1 {
                    self.release_all(std::slice::from_ref(&ask.permit)).await?;
                }
                return Ok(permission);
            }
        }
        Ok(Permission::Granted)
    }

    /// Answers if the call already has all its permits, or if a limit is full. Otherwise a call
    /// could acquire permits of the first limits and lose them again because the last limit is
    /// full.
    async fn check_holders(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Option<Permission>, StoreError> {
        let permit = &ask.permit;
        let states = self.find_limit_states(&ask.limits).await?;
        let state_of = |limit: &CallLimit| states.get(&limit.key).cloned().unwrap_or_default();
        let limits = ask.ordered_limits();
        let with_places: Vec<_> = limits
            .iter()
            .filter_map(|limit| limit.places().map(|places| (*limit, places)))
            .collect();
        let is_held = |limit: &CallLimit| state_of(limit).holders.contains_key(&permit.holder);
        if with_places.iter().all(|(limit, _)| is_held(limit)) {
            return Ok(Some(Permission::Granted));
        }
        for (limit, places) in with_places {
            if is_held(limit) || state_of(limit).holders.len() < places {
                continue;
            }
            let state = self.remove_dead_holders(&limit.key, now).await?;
            if state.holders.len() >= places {
                self.release_all(std::slice::from_ref(permit)).await?;
                return Ok(Some(Permission::Full));
            }
        }
        Ok(None)
    }

    /// Takes a permit of one limit. If the limit is full, removes dead holders and tries again.
    async fn take_permit(
        &self,
        limit: &CallLimit,
        permit: &Permit,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        let permission = self.try_take_permit(limit, permit).await?;
        if permission != Permission::Full {
            return Ok(permission);
        }
        let state = self.remove_dead_holders(&limit.key, now).await?;
        if limit.places().is_none_or(|places| state.holders.len() >= places) {
            return Ok(Permission::Full);
        }
        self.try_take_permit(limit, permit).await
    }

    async fn try_take_permit(
        &self,
        limit: &CallLimit,
        permit: &Permit,
    ) -> Result<Permission, StoreError> {
        let row = self.update_limit(&limit.key, take_stages(limit, permit)).await?;
        let state = read_limit_state(&row, &limit.key)?;
        let is_held = match limit.places() {
            Some(_) => state.holders.contains_key(&permit.holder),
            None => state.last == permit.holder,
        };
        Ok(match (limit.places(), limit.rate) {
            _ if is_held => Permission::Granted,
            (Some(places), _) if state.holders.len() >= places => Permission::Full,
            (_, Some(rate)) => Permission::NotBefore(state.next_call_at(rate)),
            // A holder released its permit after the update had found the limit full. So the caller
            // tries again.
            (_, None) => Permission::Full,
        })
    }

    /// Removes holders whose workers have no valid lease. Returns the new state of the limit.
    async fn remove_dead_holders(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<LimitState, StoreError> {
        let live: Vec<String> =
            self.list_workers(now).await?.iter().map(ToString::to_string).collect();
        let stages = keep_holders_stages(doc! { "$in": ["$$holder.w", live] });
        let row = self.update_limit(key, stages).await?;
        read_limit_state(&row, key)
    }

    async fn update_limit(&self, key: &str, stages: Vec<Row>) -> Result<Row, StoreError> {
        let permits = self.collection(PERMITS);
        let update = || {
            let id = doc! { "_id": key };
            let update = permits.find_one_and_update(id, stages.clone()).upsert(true);
            update.return_document(ReturnDocument::After)
        };
        let updated = match update().await {
            // Tries again, because another process created the document at the same time.
            Err(err) if is_duplicate_key(&err) => update().await,
            updated => updated,
        };
        Ok(updated.map_err(|err| to_store_error(&err))?.unwrap_or_default())
    }

    /// Undoes [`take_permit`](Self::take_permit) for some limits. Restores the time of the next
    /// call, too, because no call was made.
    async fn undo_taken_permits(
        &self,
        limits: &[&CallLimit],
        permit: &Permit,
    ) -> Result<(), StoreError> {
        let holder = to_literal(&permit.holder);
        let updates: Vec<Row> = limits
            .iter()
            .map(|limit| {
                let interval = limit.rate.map_or(0, shared::store::Rate::call_interval);
                let is_last = doc! { "$eq": ["$last", &holder] };
                let mut stages = keep_holders_stages(doc! { "$ne": ["$$holder.h", &holder] });
                let undo_rate = doc! { "$set": {
                    "next": { "$subtract": ["$next", interval] },
                    "last": { "$cond": [is_last, "", "$last"] },
                } };
                stages.insert(1, undo_rate);
                doc! { "q": { "_id": &limit.key }, "u": stages }
            })
            .collect();
        self.update_limits(&updates).await
    }

    pub(super) async fn release_all(&self, permits: &[Permit]) -> Result<(), StoreError> {
        let updates_of = |permit: &Permit| {
            let holder = to_literal(&permit.holder);
            let stages = keep_holders_stages(doc! { "$ne": ["$$holder.h", holder] });
            let query = |key: &String| doc! { "_id": key, "holders.h": &permit.holder };
            let updates = permit.limits.iter().map(|key| doc! { "q": query(key), "u": &stages });
            updates.collect::<Vec<_>>()
        };
        let updates: Vec<Row> = permits.iter().flat_map(updates_of).collect();
        for updates in updates.chunks(1_000) {
            self.update_limits(updates).await?;
        }
        Ok(())
    }

    pub(super) async fn release_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        let worker = worker.to_string();
        let stages = keep_holders_stages(doc! { "$ne": ["$$holder.w", &worker] });
        let held = doc! { "holders.w": worker };
        let released = self.collection(PERMITS).update_many(held, stages).await;
        released.map_err(|err| to_store_error(&err)).map(drop)
    }

    /// Removes workers whose leases expired long before `until` and that own no execution. Call
    /// this function at each heartbeat. Most calls do nothing.
    pub(super) async fn remove_old_workers(&self, until: Timestamp) -> Result<(), StoreError> {
        let heartbeat = self.cleanup_counters.heartbeats.fetch_add(1, Ordering::Relaxed);
        if !heartbeat.is_multiple_of(HEARTBEATS_PER_CLEANUP) {
            return Ok(());
        }
        let is_old =
            doc! { "$lt": until.timestamp_micros().saturating_sub(WORKER_RETENTION_MICROS) };
        let workers = self.collection("workers");
        let old = workers.distinct("_id", doc! { "until": is_old.clone() }).await;
        let old = old.map_err(|err| to_store_error(&err))?;
        if old.is_empty() {
            return Ok(());
        }
        let owners = self.heads.distinct("owner", doc! { "owner": { "$in": &old } }).await;
        let owners = owners.map_err(|err| to_store_error(&err))?;
        let unused = doc! { "_id": { "$in": old, "$nin": owners }, "until": is_old };
        let removed = workers.delete_many(unused).await.map_err(|err| to_store_error(&err))?;
        if removed.deleted_count > 0 {
            self.remove_permits_of_unknown_workers().await?;
        }
        Ok(())
    }

    pub(super) async fn remove_permits_of_unknown_workers(&self) -> Result<(), StoreError> {
        let known = self.collection("workers").distinct("_id", doc! {}).await;
        let known: Vec<Bson> = known.map_err(|err| to_store_error(&err))?;
        let with_unknown = doc! { "holders": { "$elemMatch": { "w": { "$nin": &known } } } };
        let stages = keep_holders_stages(doc! { "$in": ["$$holder.w", known] });
        let removed = self.collection(PERMITS).update_many(with_unknown, stages).await;
        removed.map_err(|err| to_store_error(&err)).map(drop)
    }

    async fn find_limit_states(&self, limits: &[CallLimit]) -> Result<Tallies, StoreError> {
        let keys: Vec<&str> = limits.iter().map(|limit| limit.key.as_str()).collect();
        let found = self.collection(PERMITS).find(doc! { "_id": { "$in": keys } }).await;
        let rows = lists::read_all(found).await?;
        let read_entry = |row: &Row| {
            let key = rows::read_text(row, "_id", "a limit")?;
            Ok((key.to_owned(), read_limit_state(row, key)?))
        };
        rows.iter().map(read_entry).collect()
    }

    async fn update_limits(&self, updates: &[Row]) -> Result<(), StoreError> {
        if updates.is_empty() {
            return Ok(());
        }
        let command = commands::update_command(PERMITS, updates, Safety::Durable)?;
        commands::run_write(&self.database, command).await.map(drop)
    }
}

/// Returns the stages of an update that takes a permit if the limit allows it.
fn take_stages(limit: &CallLimit, permit: &Permit) -> Vec<Row> {
    let holder = to_literal(&permit.holder);
    let now = server_micros();
    let (holds, has_place) = match limit.places() {
        Some(places) => {
            let places = i64::try_from(places).unwrap_or(i64::MAX);
            let has_place = doc! { "$lt": [{ "$size": "$holders" }, places] };
            (doc! { "$in": [&holder, "$holders.h"] }, has_place)
        }
        None => (doc! { "$eq": ["$last", &holder] }, doc! { "$literal": true }),
    };
    let in_time = limit.rate.map_or(doc! { "$literal": true }, |rate| {
        doc! { "$lte": [{ "$subtract": ["$next", rate.burst_tolerance()] }, &now] }
    });
    let mut changes = Row::new();
    let mut set_if_granted = |field: &str, value: Row| {
        changes.insert(field, doc! { "$cond": ["$granted", value, format!("${field}")] });
    };
    if let Some(rate) = limit.rate {
        let next = doc! { "$add": [{ "$max": ["$next", &now] }, rate.call_interval()] };
        set_if_granted("next", next);
    }
    if limit.places().is_some() {
        let entry = doc! { "h": &holder, "w": permit.worker.to_string() };
        set_if_granted("holders", doc! { "$concatArrays": ["$holders", [entry]] });
    } else {
        set_if_granted("last", doc! { "$concat": [&holder] });
    }
    let mut stages = vec![
        defaults_stage(),
        doc! { "$set": { "granted": { "$and": [{ "$not": [holds] }, has_place, in_time] } } },
    ];
    if !changes.is_empty() {
        stages.push(doc! { "$set": changes });
    }
    stages.push(doc! { "$set": { "expires": { "$cond": [
        { "$gt": [{ "$size": "$holders" }, 0] },
        "$$REMOVE",
        { "$cond": ["$granted", expiry_time(), { "$ifNull": ["$expires", expiry_time()] }] },
    ] } } });
    stages.push(doc! { "$unset": "granted" });
    stages
}

/// Returns the stages of an update that removes all holders for which `condition` is false. The
/// condition refers to a holder by `$$holder`.
fn keep_holders_stages(condition: Row) -> Vec<Row> {
    let kept = doc! { "$filter": { "input": "$holders", "as": "holder", "cond": condition } };
    vec![
        defaults_stage(),
        doc! { "$set": { "holders": kept } },
        doc! { "$set": { "expires": { "$cond": [
            { "$gt": [{ "$size": "$holders" }, 0] },
            "$$REMOVE",
            { "$ifNull": ["$expires", expiry_time()] },
        ] } } },
    ]
}

fn defaults_stage() -> Row {
    doc! { "$set": {
        "holders": { "$ifNull": ["$holders", []] },
        "next": { "$ifNull": ["$next", 0_i64] },
        "last": { "$ifNull": ["$last", ""] },
    } }
}

/// Returns the time at which the server removes the document of a limit without holders.
fn expiry_time() -> Row {
    let micros = doc! { "$max": ["$next", server_micros()] };
    let millis = doc! { "$toLong": { "$divide": [micros, 1_000_i64] } };
    doc! { "$toDate": { "$add": [millis, UNUSED_LIMIT_RETENTION_MS] } }
}

fn server_micros() -> Row {
    doc! { "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] }
}

/// Marks a text as literal. Otherwise the server would read a text that begins with `$` as a field.
fn to_literal(text: &str) -> Row {
    doc! { "$literal": text }
}

fn read_limit_state(row: &Row, key: &str) -> Result<LimitState, StoreError> {
    let mut state = LimitState {
        next: rows::read_integer(row, "next", key)?,
        last: rows::read_text(row, "last", key)?.to_owned(),
        ..LimitState::default()
    };
    let holders = row.get_array("holders").map_err(|err| StoreError::corrupt(key, err))?;
    for holder in holders.iter().filter_map(Bson::as_document) {
        let name = rows::read_text(holder, "h", key)?.to_owned();
        state.holders.insert(name, rows::parse_field(holder, "w", key)?);
    }
    Ok(state)
}
