//! Event logs, leases, permits and inboxes in MongoDB. If the process dies between the writes of
//! the events and the head, the log has an old head or no head.

use std::collections::BTreeSet;

use async_trait::async_trait;
use futures::TryStreamExt;
use mongodb::bson::{Bson, Document as Row, Timestamp as Arrival, doc};
use shared::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    limits,
    store::{
        Append, AppendError, AuditEntry, Documents, ExecutionHead, HeadQuery, Hints, Inbox, Lease,
        Log, Permission, Permit, PermitAsk, Permits, Pruned, QueuePosition, Removable, Rewrite,
        SentCommand, Store, StoreError, StoredKey, StoredPage, StoredPart,
        backend::{inbox_full_error, skip_damaged},
    },
};

use super::{
    Mongo, audit, commands,
    connection::{is_duplicate_key, to_store_error},
    journal, lists, removal, rows,
};

/// The field that claims search for.
pub(super) const WAKE: &str = "wakeMicros";

#[async_trait]
impl Log for Mongo {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        append.check()?;
        let (id, after, end) = (append.execution, append.after, append.end());
        if !self.known_ends.contains(id, after)
            && self.log_reader().find_end_before(id, after.next()).await? != Some(after)
        {
            return Err(AppendError::Conflict);
        }
        let is_finished = append.head.as_ref().is_some_and(|head| head.state.is_finished());
        self.journal.append(append).await?;
        if is_finished {
            self.known_ends.remove(id);
        } else {
            self.known_ends.insert(id, end);
        }
        Ok(())
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        if !journal::replace_head(&self.database, &head).await? && self.has_lost_head(&head).await?
        {
            journal::put_heads(&self.database, vec![&head], "").await?;
        }
        if head.is_claimable() {
            self.hints.wake_work();
        }
        Ok(())
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.log_reader().read_events(id, after).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let (filter, order) = match query {
            HeadQuery::Due { now, turn } => return self.find_due(now, turn, most).await,
            HeadQuery::DueAfter { now, after } => {
                (due_after_filter(now, after), doc! { WAKE: 1, "_id": 1 })
            }
            HeadQuery::Orphans { now } => {
                let lost = self.find_owners_without_lease(now).await?;
                if lost.is_empty() {
                    return Ok(Vec::new());
                }
                (doc! { "owner": { "$in": lost } }, doc! { "_id": 1 })
            }
            HeadQuery::OwnedBy(worker) => (doc! { "owner": worker.to_string() }, doc! { "_id": 1 }),
            HeadQuery::Finished { after, until } => {
                let (after, until) = (after.timestamp_micros(), until.timestamp_micros());
                let between = doc! { "finishedAtMicros": { "$gt": after, "$lte": until } };
                (between, doc! { "finishedAtMicros": 1, "_id": 1 })
            }
        };
        let found = self.heads.find(filter).sort(order).limit(lists::to_limit(most));
        lists::read_heads(found.await).await
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.plans.evict_idle();
        let id = doc! { "_id": lease.worker.to_string() };
        let row = doc! {
            "_id": lease.worker.to_string(),
            "node": lease.node,
            "until": lease.until.timestamp_micros(),
            // Records the layout of this node, because a later layout must write only data that all
            // nodes can read.
            "layout": self.layout.cast_signed(),
        };
        let workers = self.collection("workers");
        let put = workers.replace_one(id, row).upsert(true);
        put.await.map_err(|err| to_store_error(&err))?;
        self.remove_old_workers(lease.until).await
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        let id = doc! { "_id": worker.to_string() };
        self.collection("workers").delete_one(id).await.map_err(|err| to_store_error(&err))?;
        self.release_worker(worker).await?;
        self.hints.wake_work();
        Ok(())
    }

    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        let live = doc! { "until": { "$gt": now.timestamp_micros() } };
        let found = self.collection("workers").find(live).sort(doc! { "_id": 1 }).await;
        let rows = lists::read_all(found).await?;
        lists::skip_damaged_items(rows.iter().map(read_lease))
    }
}

fn read_lease(row: &Row) -> Result<Lease, StoreError> {
    const WHAT: &str = "a worker";
    Ok(Lease {
        worker: rows::parse_field(row, "_id", WHAT)?,
        node: rows::read_text(row, "node", WHAT)?.to_owned(),
        until: rows::read_time(row, "until", WHAT)?,
    })
}

#[async_trait]
impl Permits for Mongo {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        self.take_all_permits(ask, now).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.release_all(&permits).await?;
        self.hints.wake_work();
        Ok(())
    }
}

#[async_trait]
impl Store for Mongo {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.remove_old_documents(before, most).await
    }

    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError> {
        self.remove_objects(objects).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        let hello = self.database.run_command(doc! { "hello": 1 }).await;
        let hello = hello.map_err(|err| to_store_error(&err))?;
        let time = hello.get_datetime("localTime").ok().map(|time| time.timestamp_millis());
        let time = time.and_then(Timestamp::from_timestamp_millis);
        time.ok_or_else(|| StoreError::Unavailable("the reply of MongoDB has no time".to_owned()))
    }

    async fn stored_bytes(&self) -> Result<Option<u64>, StoreError> {
        let sizes = self.database.run_command(doc! { "dbStats": 1 }).await;
        let sizes = sizes.map_err(|err| to_store_error(&err))?;
        Ok(add_sizes(&sizes))
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    async fn count_stored(&self, part: StoredPart) -> Result<u64, StoreError> {
        self.count_documents_of(part).await
    }

    async fn list_stored(
        &self,
        part: StoredPart,
        after: Option<StoredKey>,
    ) -> Result<StoredPage, StoreError> {
        self.list_documents(part, after).await
    }

    async fn replace_stored(&self, rewrites: Vec<Rewrite>) -> Result<u64, StoreError> {
        self.replace_documents(rewrites).await
    }
}

fn add_sizes(reply: &Row) -> Option<u64> {
    let sizes = ["storageSize", "indexSize"].map(|name| match reply.get(name)? {
        Bson::Int32(bytes) => u64::try_from(*bytes).ok(),
        Bson::Int64(bytes) => u64::try_from(*bytes).ok(),
        // The server writes these numbers as doubles. They are whole numbers.
        Bson::Double(bytes) => format!("{bytes:.0}").parse().ok(),
        _ => None,
    });
    let [data, indexes] = sizes;
    data?.checked_add(indexes?)
}

#[async_trait]
impl Inbox for Mongo {
    async fn send_command(&self, envelope: SentCommand) -> Result<(), StoreError> {
        let row = doc! {
            "_id": envelope.id.to_string(),
            "executionId": envelope.execution.to_string(),
            // The server replaces this value by a time that only increases, which gives the order
            // of arrival.
            "n": Arrival { time: 0, increment: 0 },
            "json": serde_json::to_string(&envelope).expect("envelopes are JSON"),
        };
        self.check_inbox_room(&envelope).await?;
        match self.collection("inbox").insert_one(row).await {
            Err(err) if !is_duplicate_key(&err) => return Err(to_store_error(&err)),
            _ => (),
        }
        // A crash before this write loses the entry, but the log of the execution has the actor.
        audit::put_entries(&self.database, &AuditEntry::of_command(&envelope)).await?;
        self.hints.wake_inbox();
        Ok(())
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        let Some(of) = of else { return self.find_oldest_commands().await };
        let filter = doc! { "executionId": of.to_string() };
        let found = self.collection("inbox").find(filter).sort(doc! { "n": 1 }).await;
        let rows = lists::read_all(found).await?;
        lists::skip_damaged_items(rows.iter().map(read_command))
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        if commands.is_empty() {
            return Ok(());
        }
        let ids = commands.iter().map(ToString::to_string);
        commands::run_write(&self.database, commands::remove_command("inbox", ids)).await.map(drop)
    }
}

impl Mongo {
    async fn find_owners_without_lease(&self, now: Timestamp) -> Result<Vec<Bson>, StoreError> {
        let live: BTreeSet<String> =
            self.list_workers(now).await?.iter().map(ToString::to_string).collect();
        // The server answers from the index alone, with one access for each owner.
        let has_owner = doc! { "owner": { "$gt": "" } };
        let owners = self.heads.distinct("owner", has_owner).await;
        let owners = owners.map_err(|err| to_store_error(&err))?;
        let is_lost = |owner: &Bson| owner.as_str().is_some_and(|owner| !live.contains(owner));
        Ok(owners.into_iter().filter(is_lost).collect())
    }

    /// Returns `true` if a log has no head because a process died between the writes of the log and
    /// the head. The order of the queries matters, so that a log that is being removed is never
    /// reported.
    async fn has_lost_head(&self, head: &ExecutionHead) -> Result<bool, StoreError> {
        let id = head.execution;
        if self.head(id).await?.is_some() || removal::is_being_removed(&self.database, id).await? {
            return Ok(false);
        }
        Ok(self.log_reader().find_end_before(id, Seq::START.advance_by(2)).await?.is_some())
    }

    /// Fails if the inbox is full, unless the inbox already has this command.
    async fn check_inbox_room(&self, envelope: &SentCommand) -> Result<(), StoreError> {
        let inbox = self.collection("inbox");
        let of = doc! { "executionId": envelope.execution.to_string() };
        let waiting = inbox.count_documents(of).limit(limits::INBOX_COMMANDS as u64).await;
        if waiting.map_err(|err| to_store_error(&err))? < limits::INBOX_COMMANDS as u64 {
            return Ok(());
        }
        let existing = inbox.find_one(doc! { "_id": envelope.id.to_string() }).await;
        match existing.map_err(|err| to_store_error(&err))? {
            Some(_) => Ok(()),
            None => Err(inbox_full_error(envelope.execution)),
        }
    }

    async fn find_oldest_commands(&self) -> Result<Vec<SentCommand>, StoreError> {
        let inbox = self.collection("inbox");
        let found = inbox.find(doc! {}).sort(doc! { "n": 1 });
        let found = found.limit(lists::to_limit(limits::INBOX_POLL_COMMANDS)).batch_size(256).await;
        let mut found = found.map_err(|err| to_store_error(&err))?;
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        while bytes < limits::INBOX_POLL_BYTES
            && let Some(row) = found.try_next().await.map_err(|err| to_store_error(&err))?
        {
            bytes += row.get_str("json").map_or(0, str::len);
            waiting.extend(skip_damaged(read_command(&row))?);
        }
        Ok(waiting)
    }
}

fn due_after_filter(now: Timestamp, after: Option<QueuePosition>) -> Row {
    let now = now.timestamp_micros();
    let Some(QueuePosition { due, execution }) = after else {
        return doc! { WAKE: { "$lte": now } };
    };
    let due = due.timestamp_micros();
    doc! {
        WAKE: { "$gte": due, "$lte": now },
        "$or": [{ WAKE: { "$gt": due } }, { "_id": { "$gt": execution.to_string() } }],
    }
}

pub(super) fn read_command(row: &Row) -> Result<SentCommand, StoreError> {
    let id = row.get_str("_id").unwrap_or("a command");
    let json = rows::read_text(row, "json", id)?;
    serde_json::from_str(json).map_err(|err| StoreError::corrupt(id, err))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_any_number_type_are_added() {
        let reply = |data: Bson, indexes: Bson| doc! { "storageSize": data, "indexSize": indexes };
        assert_eq!(add_sizes(&reply(Bson::Double(4096.0), Bson::Int32(1))), Some(4097));
        assert_eq!(add_sizes(&reply(Bson::Int64(1 << 40), Bson::Double(0.0))), Some(1 << 40));
        assert_eq!(add_sizes(&reply(Bson::Double(-1.0), Bson::Double(1.0))), None);
        assert_eq!(add_sizes(&reply(Bson::Null, Bson::Double(1.0))), None);
        assert_eq!(add_sizes(&doc! {}), None);
    }
}
