//! Group commit: while one batch is on its way to the majority the next one gathers.
//!
//! No batch has two documents of one execution, and no two batches on their way have: a log never
//! has two appends under way. With two, the first could be refused and the second land in the
//! middle of somebody else's.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use mongodb::{
    Database,
    bson::{RawArrayBuf, RawDocumentBuf, rawdoc},
};
use shared::{
    id::ExecutionId,
    limits,
    store::{Append, AppendError, ExecutionHead, Hints, StoreError, journal::COMMIT_OPERATIONS},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    commands::{self, Safety},
    rows,
};

/// Appends that may wait; then callers do.
const QUEUE: usize = 8_192;
/// Batches on their way at the same time: one that the server works on, one that travels.
const FLIGHTS: usize = 2;
/// A batch of so many bytes is on its way.
const BATCH_BYTES: usize = 4 << 20;
/// The most bytes of one batch: the command stays below the 16 MiB of a document.
const COMMAND_BYTES: usize = limits::DOCUMENT_BYTES;

type Answer = Result<(), AppendError>;

/// Where appends go.
#[derive(Debug)]
pub(super) struct Journal {
    queue: mpsc::Sender<Entry>,
}

/// An append, and who waits for it.
#[derive(Debug)]
struct Entry {
    append: Append,
    reply: oneshot::Sender<Answer>,
}

impl Journal {
    /// Starts the task that writes; it ends with the journal.
    pub(super) fn start(
        tasks: &mut JoinSet<()>,
        database: Database,
        hints: Arc<Hints>,
        by: &str,
    ) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        let pen = Pen { database, hints, by: by.to_owned() };
        tasks.spawn(run(entries, Arc::new(pen)));
        Self { queue }
    }

    /// Writes an append durably.
    pub(super) async fn append(&self, append: Append) -> Answer {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError::Unavailable("the store is closed".to_owned());
        self.queue.send(Entry { append, reply }).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

/// What has become of a batch, or of the heads that follow it.
struct Landed {
    /// The logs that have no append under way any more.
    free: BTreeSet<ExecutionId>,
    /// Appends that are written, but whose heads are not.
    rest: Vec<Entry>,
}

async fn run(mut entries: mpsc::Receiver<Entry>, pen: Arc<Pen>) {
    let (mut waiting, mut busy) = (VecDeque::new(), BTreeSet::new());
    let mut flights: JoinSet<Landed> = JoinSet::new();
    let mut followers: JoinSet<Landed> = JoinSet::new();
    loop {
        let landed = tokio::select! {
            entry = entries.recv(), if waiting.len() < QUEUE => match entry {
                Some(entry) => {
                    waiting.push_back(entry);
                    None
                }
                None => return,
            },
            Some(landed) = flights.join_next() => Some(landed),
            Some(landed) = followers.join_next() => Some(landed),
        };
        match landed {
            Some(Ok(Landed { free, rest })) => {
                busy.retain(|it| !free.contains(it));
                if !rest.is_empty() {
                    let pen = Arc::clone(&pen);
                    followers.spawn(async move { pen.follow(rest).await });
                }
            }
            Some(Err(err)) => {
                tracing::error!(%err, "a batch was lost");
                return;
            }
            None => (),
        }
        while waiting.len() < QUEUE
            && let Ok(entry) = entries.try_recv()
        {
            waiting.push_back(entry);
        }
        while flights.len() < FLIGHTS {
            let batch = gather(&mut waiting, &mut busy);
            if batch.is_empty() {
                break;
            }
            let pen = Arc::clone(&pen);
            flights.spawn(async move { pen.commit(batch).await });
        }
    }
}

/// Takes what may be written now, oldest first, and says that its logs are busy.
fn gather(waiting: &mut VecDeque<Entry>, busy: &mut BTreeSet<ExecutionId>) -> Vec<Entry> {
    let (mut batch, mut left, mut bytes) = (Vec::new(), VecDeque::new(), 0);
    while let Some(entry) = waiting.pop_front() {
        let len = entry.append.documents.first().map_or(0, |it| it.json.len());
        if !batch.is_empty() && bytes + len > COMMAND_BYTES {
            left.push_back(entry);
            break;
        }
        if !busy.insert(entry.append.execution) {
            left.push_back(entry);
            continue;
        }
        bytes += len;
        batch.push(entry);
        if batch.len() >= COMMIT_OPERATIONS || bytes >= BATCH_BYTES {
            break;
        }
    }
    left.append(waiting);
    *waiting = left;
    batch
}

/// What a batch is written with.
#[derive(Debug)]
struct Pen {
    database: Database,
    hints: Arc<Hints>,
    by: String,
}

impl Pen {
    /// Writes a batch and answers those that have nothing but events. The others wait for their
    /// heads, which the next batch need not.
    async fn commit(&self, batch: Vec<Entry>) -> Landed {
        let appends: Vec<&Append> = batch.iter().map(|it| &it.append).collect();
        let mut answers = match self.put_events(&appends).await {
            Ok(answers) => answers,
            Err(err) => appends.iter().map(|_| Err(err.clone().into())).collect(),
        };
        self.hints.count_commit();
        for (append, answer) in appends.iter().zip(&mut answers) {
            if answer.is_ok() {
                *answer = self.put_more_events(append).await;
            }
        }
        let (mut free, mut rest) = (BTreeSet::new(), Vec::new());
        for (entry, answer) in batch.into_iter().zip(answers) {
            let has_more = entry.append.head.is_some() || !entry.append.heard.is_empty();
            if answer.is_ok() && has_more {
                rest.push(entry);
            } else {
                free.insert(entry.append.execution);
                self.answer(entry, answer);
            }
        }
        Landed { free, rest }
    }

    /// Writes what follows from events that are written, and answers. A head never runs ahead of
    /// its log, not even when the process dies in between.
    async fn follow(&self, rest: Vec<Entry>) -> Landed {
        let appends: Vec<&Append> = rest.iter().map(|it| &it.append).collect();
        let put = self.put_caches(&appends).await;
        let free = appends.iter().map(|it| it.execution).collect();
        for entry in rest {
            self.answer(entry, put.clone().map_err(AppendError::from));
        }
        Landed { free, rest: Vec::new() }
    }

    fn answer(&self, Entry { append, reply }: Entry, answer: Answer) {
        let is_written = answer.is_ok();
        // Whoever went away reads again when he comes back.
        let _ = reply.send(answer);
        if is_written {
            self.hints.wake_log(append.execution);
            if append.head.as_ref().is_some_and(ExecutionHead::is_claimable) {
                self.hints.wake_work();
            }
        }
    }

    /// Writes the first document of each append: the server refuses those that are there.
    async fn put_events(&self, appends: &[&Append]) -> Result<Vec<Answer>, StoreError> {
        let mut rows = RawArrayBuf::new();
        let mut owners = Vec::with_capacity(appends.len());
        for (n, append) in appends.iter().enumerate() {
            if let Some(document) = append.documents.first() {
                rows.push(rows::event(&append.execution.to_string(), document, &self.by));
                owners.push(n);
            }
        }
        let mut answers = vec![Ok(()); appends.len()];
        if owners.is_empty() {
            return Ok(answers);
        }
        for refused in commands::run(&self.database, commands::insert("events", rows)).await? {
            if let Some(answer) = owners.get(refused).and_then(|it| answers.get_mut(*it)) {
                *answer = Err(AppendError::Conflict);
            }
        }
        Ok(answers)
    }

    /// Writes the other documents of a large append, one after another.
    async fn put_more_events(&self, append: &Append) -> Answer {
        let id = append.execution.to_string();
        for document in append.documents.iter().skip(1) {
            let mut rows = RawArrayBuf::new();
            rows.push(rows::event(&id, document, &self.by));
            let refused = commands::run(&self.database, commands::insert("events", rows)).await?;
            if !refused.is_empty() {
                return Err(AppendError::Conflict);
            }
        }
        Ok(())
    }

    /// Writes the heads of new logs, and returns those that were there.
    async fn put_first_heads(
        &self,
        appends: &[&Append],
    ) -> Result<BTreeSet<ExecutionId>, StoreError> {
        let mut rows = RawArrayBuf::new();
        let mut new = Vec::new();
        for append in appends.iter().filter(|it| is_first(it)) {
            if let Some(head) = &append.head {
                rows.push(rows::put_head(head, &self.by));
                new.push(append.execution);
            }
        }
        if new.is_empty() {
            return Ok(BTreeSet::new());
        }
        let there = commands::run(&self.database, commands::insert("executions", rows)).await?;
        Ok(there.into_iter().filter_map(|it| new.get(it).copied()).collect())
    }

    /// Writes what follows from events that are written: heads, and the inbox.
    async fn put_caches(&self, appends: &[&Append]) -> Result<(), StoreError> {
        let heard = appends.iter().flat_map(|it| &it.heard).map(ToString::to_string);
        let heard: Vec<String> = heard.collect();
        let discard = async {
            if heard.is_empty() {
                return Ok(());
            }
            commands::run(&self.database, commands::remove("inbox", heard)).await.map(drop)
        };
        let (put, discarded) = tokio::join!(self.put_all_heads(appends), discard);
        put.and(discarded)
    }

    async fn put_all_heads(&self, appends: &[&Append]) -> Result<(), StoreError> {
        let others = |it: &&&Append| !is_first(it);
        let others = appends.iter().filter(others).filter_map(|it| it.head.as_ref()).collect();
        let (there, put) = tokio::join!(
            self.put_first_heads(appends),
            put_heads(&self.database, others, &self.by)
        );
        let there = there?;
        // Somebody knew of the log before this was told that it is written.
        let late = appends.iter().filter(|it| is_first(it) && there.contains(&it.execution));
        put.and(
            put_heads(&self.database, late.filter_map(|it| it.head.as_ref()).collect(), &self.by)
                .await,
        )
    }
}

fn is_first(append: &Append) -> bool {
    append.after == shared::id::Seq::START
}

/// Writes heads, each unless a newer one is there, also those of which there is none.
pub(super) async fn put_heads(
    database: &Database,
    heads: Vec<&ExecutionHead>,
    by: &str,
) -> Result<(), StoreError> {
    if heads.is_empty() {
        return Ok(());
    }
    let safety = safety(&heads);
    let rows = heads.into_iter().map(|it| row(it, by));
    commands::run(database, commands::replace("executions", rows, safety)).await.map(drop)
}

/// Writes a head over one that is there and not newer. Returns whether there was one.
pub(super) async fn put_head(
    database: &Database,
    head: &ExecutionHead,
) -> Result<bool, StoreError> {
    let command = commands::overwrite("executions", [row(head, "")], safety(&[head]));
    commands::run_counting(database, command).await.map(|it| it > 0)
}

/// That an execution is over may be lost with the primary: the log says it. Whatever else is lost
/// would leave an execution that nobody looks for.
fn safety(heads: &[&ExecutionHead]) -> Safety {
    let is_over = heads.iter().all(|it| it.state.is_finished());
    if is_over { Safety::Cached } else { Safety::Durable }
}

fn row(head: &ExecutionHead, by: &str) -> (RawDocumentBuf, RawDocumentBuf) {
    let (id, seq) = (head.execution.to_string(), head.seq.0.cast_signed());
    // Where a newer one is there, this finds nothing and then cannot insert.
    (rawdoc! { "_id": id, "seq": { "$lte": seq } }, rows::put_head(head, by))
}
