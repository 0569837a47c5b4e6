//! Logs, claims and inboxes in MongoDB.

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
        Append, AppendError, Documents, ExecutionHead, HeadQuery, Hints, Inbox, Lease, Log,
        Permission, Permit, PermitAsk, Permits, Pruned, QueuePosition, SentCommand, Store,
        StoreError,
        backend::{add_longest_due, aged_places, inbox_full_error, skip_damaged},
    },
};

use super::{
    Mongo, commands,
    connection::{failed, is_duplicate},
    journal, lists, removal, rows,
};

#[async_trait]
impl Log for Mongo {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        append.check()?;
        let (id, after, end) = (append.execution, append.after, append.end());
        if !self.ends.knows(id, after)
            && self.logs().last_before(id, after.next()).await? != Some(after)
        {
            return Err(AppendError::Conflict);
        }
        let is_over = append.head.as_ref().is_some_and(|it| it.state.is_finished());
        self.journal.append(append).await?;
        if is_over {
            self.ends.forget(id);
        } else {
            self.ends.note(id, end);
        }
        Ok(())
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        if !journal::put_head(&self.database, &head).await? && self.has_lost_head(&head).await? {
            journal::put_heads(&self.database, vec![&head], "").await?;
        }
        if head.is_claimable() {
            self.hints.wake_work();
        }
        Ok(())
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.logs().read(id, after).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let (which, order) = match query {
            HeadQuery::Due { now } => return self.due(now, most).await,
            HeadQuery::DueAfter { now, after } => (queue(now, after), doc! { "wake": 1, "_id": 1 }),
            HeadQuery::Orphans { now } => {
                let gone = self.gone_owners(now).await?;
                if gone.is_empty() {
                    return Ok(Vec::new());
                }
                (doc! { "owner": { "$in": gone } }, doc! { "_id": 1 })
            }
            HeadQuery::OwnedBy(worker) => (doc! { "owner": worker.to_string() }, doc! { "_id": 1 }),
            HeadQuery::Finished { after, until } => {
                let (after, until) = (after.timestamp_micros(), until.timestamp_micros());
                let between = doc! { "finishedAt": { "$gt": after, "$lte": until } };
                (between, doc! { "finishedAt": 1, "_id": 1 })
            }
        };
        let found = self.caches.find(which).sort(order).limit(lists::limit(most));
        lists::heads_of(found.await).await
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.plans.evict_idle();
        let id = doc! { "_id": lease.worker.to_string() };
        let row = doc! {
            "_id": lease.worker.to_string(),
            "node": lease.node,
            "until": lease.until.timestamp_micros(),
        };
        let workers = self.collection("workers");
        let put = workers.replace_one(id, row).upsert(true);
        put.await.map_err(|err| failed(&err))?;
        self.bury(lease.until).await
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        let id = doc! { "_id": worker.to_string() };
        self.collection("workers").delete_one(id).await.map_err(|err| failed(&err))?;
        self.evict(worker).await?;
        self.hints.wake_work();
        Ok(())
    }

    async fn list_workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError> {
        let live = doc! { "until": { "$gt": now.timestamp_micros() } };
        let found = self.collection("workers").find(live).sort(doc! { "_id": 1 }).await;
        let rows = lists::all_rows(found).await?;
        lists::good(rows.iter().map(|it| rows::parse(it, "_id", "a worker")))
    }
}

#[async_trait]
impl Permits for Mongo {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        self.take_all(ask, now).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.give_back(&permits).await?;
        self.hints.wake_work();
        Ok(())
    }
}

#[async_trait]
impl Store for Mongo {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.remove_old(before, most).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        let hello = self.database.run_command(doc! { "hello": 1 }).await;
        let hello = hello.map_err(|err| failed(&err))?;
        let time = hello.get_datetime("localTime").ok().map(|time| time.timestamp_millis());
        let time = time.and_then(Timestamp::from_timestamp_millis);
        time.ok_or_else(|| StoreError::Unavailable("the server does not tell its time".to_owned()))
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }
}

#[async_trait]
impl Inbox for Mongo {
    async fn send_command(&self, envelope: SentCommand) -> Result<(), StoreError> {
        let row = doc! {
            "_id": envelope.id.to_string(),
            "executionId": envelope.execution.to_string(),
            // The server fills it in: it counts up, so it is the order of arrival.
            "n": Arrival { time: 0, increment: 0 },
            "json": serde_json::to_string(&envelope).expect("envelopes are JSON"),
        };
        self.check_room(&envelope).await?;
        match self.collection("inbox").insert_one(row).await {
            Err(err) if !is_duplicate(&err) => return Err(failed(&err)),
            _ => (),
        }
        self.hints.wake_inbox();
        Ok(())
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        let Some(of) = of else { return self.oldest_commands().await };
        let filter = doc! { "executionId": of.to_string() };
        let found = self.collection("inbox").find(filter).sort(doc! { "n": 1 }).await;
        let rows = lists::all_rows(found).await?;
        lists::good(rows.iter().map(envelope))
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        if commands.is_empty() {
            return Ok(());
        }
        let ids = commands.iter().map(ToString::to_string);
        commands::run(&self.database, commands::remove("inbox", ids)).await.map(drop)
    }
}

impl Mongo {
    /// Takes one priority after another, then the longest due.
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<ExecutionHead>, StoreError> {
        let first = most - aged_places(most);
        let (mut heads, mut looks, mut last) = (Vec::new(), 0, None);
        while heads.len() < first && looks < limits::PRIORITIES {
            let Some(priority) = self.next_priority(last).await? else { return Ok(heads) };
            let wake = doc! { "$lte": now.timestamp_micros() };
            let found = self.caches.find(doc! { "priority": priority.clone(), "wake": wake });
            let found = found.sort(doc! { "wake": 1, "_id": 1 });
            let found = found.limit(lists::limit(first - heads.len())).await;
            heads.append(&mut lists::heads_of(found).await?);
            (looks, last) = (looks + 1, Some(priority));
        }
        if heads.len() < most {
            let longest = self.find_heads(HeadQuery::DueAfter { now, after: None }, most).await?;
            add_longest_due(&mut heads, longest, most);
        }
        Ok(heads)
    }

    /// Returns the owners of executions that have no lease.
    async fn gone_owners(&self, now: Timestamp) -> Result<Vec<Bson>, StoreError> {
        let live: BTreeSet<String> =
            self.list_workers(now).await?.iter().map(ToString::to_string).collect();
        // The index alone answers this, one look for each owner.
        let some = doc! { "owner": { "$gt": "" } };
        let owners = self.caches.distinct("owner", some).await.map_err(|err| failed(&err))?;
        let is_gone = |owner: &Bson| owner.as_str().is_some_and(|owner| !live.contains(owner));
        Ok(owners.into_iter().filter(is_gone).collect())
    }

    /// Returns whether a log is there and its head is not, as a crash between the two leaves it. A
    /// removal takes the head first and the log last, and is noted from before to after: asked for
    /// in this order, what is being removed is never taken for what lost its head.
    async fn has_lost_head(&self, head: &ExecutionHead) -> Result<bool, StoreError> {
        let id = head.execution;
        if self.head(id).await?.is_some() || removal::is_going(&self.database, id).await? {
            return Ok(false);
        }
        Ok(self.logs().last_before(id, Seq::START.advance_by(2)).await?.is_some())
    }

    /// Refuses a command for an inbox that is full, unless it waits there already.
    async fn check_room(&self, envelope: &SentCommand) -> Result<(), StoreError> {
        let inbox = self.collection("inbox");
        let of = doc! { "executionId": envelope.execution.to_string() };
        let waiting = inbox.count_documents(of).limit(limits::INBOX as u64).await;
        if waiting.map_err(|err| failed(&err))? < limits::INBOX as u64 {
            return Ok(());
        }
        let there = inbox.find_one(doc! { "_id": envelope.id.to_string() }).await;
        match there.map_err(|err| failed(&err))? {
            Some(_) => Ok(()),
            None => Err(inbox_full_error(envelope.execution)),
        }
    }

    /// Returns the commands that have waited the longest, as many as one look may have.
    async fn oldest_commands(&self) -> Result<Vec<SentCommand>, StoreError> {
        let inbox = self.collection("inbox");
        let found = inbox.find(doc! {}).sort(doc! { "n": 1 });
        let found = found.limit(lists::limit(limits::INBOX_LOOK)).batch_size(256).await;
        let mut found = found.map_err(|err| failed(&err))?;
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        while bytes < limits::INBOX_BYTES
            && let Some(row) = found.try_next().await.map_err(|err| failed(&err))?
        {
            bytes += row.get_str("json").map_or(0, str::len);
            waiting.extend(skip_damaged(envelope(&row))?);
        }
        Ok(waiting)
    }

    /// Returns the highest priority that something free has, below the last one: one look into the
    /// index. Only numbers are found; a head with anything else is damaged, and is said to be
    /// where it is read.
    async fn next_priority(&self, last: Option<Bson>) -> Result<Option<Bson>, StoreError> {
        let below = last.map_or(doc! { "$lte": f64::INFINITY }, |it| doc! { "$lt": it });
        let next = doc! { "priority": below, "wake": { "$exists": true } };
        let found = self.caches.find_one(next).sort(doc! { "priority": -1, "wake": 1 });
        let found = found.projection(doc! { "priority": 1 }).await.map_err(|err| failed(&err))?;
        Ok(found.and_then(|mut it| it.remove("priority")))
    }
}

/// Selects due executions after a position, by due time.
fn queue(now: Timestamp, after: Option<QueuePosition>) -> Row {
    let now = now.timestamp_micros();
    let Some(QueuePosition { due, execution }) = after else {
        return doc! { "wake": { "$lte": now } };
    };
    let due = due.timestamp_micros();
    doc! {
        "wake": { "$gte": due, "$lte": now },
        "$or": [{ "wake": { "$gt": due } }, { "_id": { "$gt": execution.to_string() } }],
    }
}

fn envelope(row: &Row) -> Result<SentCommand, StoreError> {
    let id = row.get_str("_id").unwrap_or("a command");
    let json = rows::text(row, "json", id)?;
    serde_json::from_str(json).map_err(|err| StoreError::corrupt(id, err))
}
