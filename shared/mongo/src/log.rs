//! Logs, claims and inboxes in MongoDB.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use futures::TryStreamExt;
use mongodb::bson::{Bson, Document as Row, Timestamp as Arrival, doc};
use serde_json::Value;
use shared::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    limits,
    store::{
        Append, AppendError, Documents, ExecutionHead, ExecutionLog, Hints, Lease, Permission,
        Permit, PermitAsk, Pruned, SentCommand, StoreError,
        backend::{aged_places, inbox_full_error},
    },
};

use super::{
    Mongo, commands,
    connection::{failed, is_duplicate},
    journal, lists, removal, rows,
};

#[async_trait]
impl ExecutionLog for Mongo {
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

    async fn read_first(&self, id: ExecutionId) -> Result<Option<RecordedEvent>, StoreError> {
        self.logs().read_first(id).await
    }

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
        if heads.len() == most {
            return Ok(heads);
        }
        let taken: BTreeSet<_> = heads.iter().map(|it| it.execution).collect();
        let longest = self.due_after(now, None, most).await?;
        let longest = longest.into_iter().filter(|it| !taken.contains(&it.execution));
        heads.extend(longest.take(most - heads.len()));
        Ok(heads)
    }

    async fn due_after(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, ExecutionId)>,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let now = now.timestamp_micros();
        let mut queue = doc! { "wake": { "$lte": now } };
        if let Some((due, id)) = after.map(|(due, id)| (due.timestamp_micros(), id.to_string())) {
            queue = doc! {
                "wake": { "$gte": due, "$lte": now },
                "$or": [{ "wake": { "$gt": due } }, { "_id": { "$gt": id } }],
            };
        }
        let found = self.caches.find(queue).sort(doc! { "wake": 1, "_id": 1 });
        lists::heads_of(found.limit(lists::limit(most)).await).await
    }

    async fn orphans(&self, now: Timestamp, most: usize) -> Result<Vec<ExecutionHead>, StoreError> {
        let live: BTreeSet<String> =
            self.workers(now).await?.iter().map(ToString::to_string).collect();
        // The index alone answers this, one look for each owner.
        let some = doc! { "owner": { "$gt": "" } };
        let owners = self.caches.distinct("owner", some).await.map_err(|err| failed(&err))?;
        let gone: Vec<String> = names(owners).difference(&live).cloned().collect();
        if gone.is_empty() || most == 0 {
            return Ok(Vec::new());
        }
        let found = self.caches.find(doc! { "owner": { "$in": gone } }).sort(doc! { "_id": 1 });
        lists::heads_of(found.limit(lists::limit(most)).await).await
    }

    async fn owned(&self, worker: WorkerId, most: usize) -> Result<Vec<ExecutionHead>, StoreError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let own = doc! { "owner": worker.to_string() };
        let found = self.caches.find(own).sort(doc! { "_id": 1 });
        lists::heads_of(found.limit(lists::limit(most)).await).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        // What is no time is damage, and must not keep anybody from the rest.
        let from = Timestamp::MIN_UTC.timestamp_micros();
        let some = self.caches.find_one(doc! { "wake": { "$gte": from } });
        let found = some.sort(doc! { "wake": 1 }).await.map_err(|err| failed(&err))?;
        Ok(found.and_then(|it| rows::time(&it, "wake", "a head").ok()))
    }

    async fn heartbeat(&self, lease: Lease) -> Result<(), StoreError> {
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

    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError> {
        let id = doc! { "_id": worker.to_string() };
        self.collection("workers").delete_one(id).await.map_err(|err| failed(&err))?;
        self.evict(worker).await?;
        self.hints.wake_work();
        Ok(())
    }

    async fn workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError> {
        let live = doc! { "until": { "$gt": now.timestamp_micros() } };
        let found = self.collection("workers").find(live).sort(doc! { "_id": 1 }).await;
        let rows: Vec<Row> = match found {
            Ok(found) => found.try_collect().await.map_err(|err| failed(&err))?,
            Err(err) => return Err(failed(&err)),
        };
        lists::good(rows.iter().map(|it| rows::parse(it, "_id", "a worker")))
    }

    async fn acquire(&self, ask: &PermitAsk, now: Timestamp) -> Result<Permission, StoreError> {
        self.take_all(ask, now).await
    }

    async fn release(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.give_back(&permits).await?;
        self.hints.wake_work();
        Ok(())
    }

    async fn cached(&self, key: &str, now: Timestamp) -> Result<Option<Arc<Value>>, StoreError> {
        self.output(key, now).await
    }

    async fn cache(&self, key: &str, output: &Value, until: Timestamp) -> Result<(), StoreError> {
        self.put_output(key, output, until).await
    }

    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.remove_old(before, most).await
    }

    async fn send(&self, envelope: SentCommand) -> Result<(), StoreError> {
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

    async fn inbox(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        let Some(of) = of else { return self.oldest_commands().await };
        let filter = doc! { "executionId": of.to_string() };
        let found = self.collection("inbox").find(filter).sort(doc! { "n": 1 }).await;
        let rows: Vec<Row> = match found {
            Ok(found) => found.try_collect().await.map_err(|err| failed(&err))?,
            Err(err) => return Err(failed(&err)),
        };
        lists::good(rows.iter().map(envelope))
    }

    async fn discard(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        if commands.is_empty() {
            return Ok(());
        }
        let ids = commands.iter().map(ToString::to_string);
        commands::run(&self.database, commands::remove("inbox", ids)).await.map(drop)
    }

    fn commits(&self) -> u64 {
        self.journal.batches()
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }
}

impl Mongo {
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
            waiting.append(&mut lists::good(std::iter::once(envelope(&row)))?);
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

fn names(values: Vec<Bson>) -> BTreeSet<String> {
    let texts = values.into_iter().filter_map(|it| match it {
        Bson::String(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

fn envelope(row: &Row) -> Result<SentCommand, StoreError> {
    let id = row.get_str("_id").unwrap_or("a command");
    let json = rows::text(row, "json", id)?;
    serde_json::from_str(json).map_err(|err| StoreError::corrupt(id, err))
}
