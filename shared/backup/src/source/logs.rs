//! Reads and writes the logs of executions. Each log is folded before it is written, so a backup
//! contains no log that a worker could not load.

use std::{collections::BTreeSet, path::Path, pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use shared::{
    event::{Event, RecordedEvent},
    execution::Execution,
    id::{ExecutionId, PlanId, Seq},
    plan::Plan,
    store::{ExecutionHead, SentCommand, Store, StoreError},
};
use tokio::time;

use super::{CONCURRENT_READS, Source};
use crate::{
    entry::{Entry, LogEnd},
    error::BackupError,
    report::Stage,
    spool::{SpoolReader, SpooledExecution},
};

/// Number of executions that are read together. Of these, the children are written last.
const CHUNK_LEN: usize = 64;
/// Bytes of events after which an entry takes no further event.
const EVENT_BYTES: usize = 4 << 20;
/// A replicated store may show a head before it shows the events that the head describes, so the
/// log is read again after this pause.
const LAG_PAUSE: Duration = Duration::from_millis(50);
const MAX_LAG_READS: usize = 100;
/// Maximum number of ancestors that are read before a child. The engine allows fewer.
const MAX_ANCESTORS: usize = 64;

/// The state of an execution, and the first part of its log.
struct LogStart {
    execution: SpooledExecution,
    /// `None` if the execution is over, because its head then contains nothing that is not in the
    /// log.
    head: Option<ExecutionHead>,
    commands: Vec<SentCommand>,
    events: Vec<RecordedEvent>,
}

struct FoldedLog {
    execution: Execution,
    is_short: bool,
}

impl Source<'_> {
    pub(super) async fn write_logs(
        &mut self,
        mut executions: SpoolReader,
        spool: &Path,
    ) -> Result<(), BackupError> {
        let store = self.store;
        let total = executions.rows_left() as u64;
        // Parents whose logs are already written although they come later in the list, because a
        // child came first.
        let mut early = BTreeSet::new();
        loop {
            let rows = executions
                .next_rows(CHUNK_LEN)
                .map_err(|err| BackupError::file(spool, "read", err))?;
            if rows.is_empty() {
                return Ok(());
            }
            let roots = rows.iter().filter(|row| !row.is_child && !early.remove(&row.id));
            let roots: Vec<_> = roots.copied().collect();
            let written: BTreeSet<_> = roots.iter().map(|row| row.id).collect();
            let starts = stream::iter(roots).map(|row| read_start(store, row));
            let mut starts = pin!(starts.buffered(CONCURRENT_READS));
            while let Some((row, start)) = starts.next().await {
                self.write_log(row, start).await?;
            }
            for row in rows.into_iter().filter(|row| row.is_child) {
                if !early.remove(&row.id) {
                    self.write_child(row, &written, &mut early).await?;
                }
            }
            let done = total - executions.rows_left() as u64;
            self.report_progress(Stage::Executions, done, Some(total));
        }
    }

    /// Writes the log of a child, after the logs of its ancestors. An ancestor can come later in
    /// the list, because clocks of nodes differ.
    async fn write_child(
        &mut self,
        row: SpooledExecution,
        written: &BTreeSet<ExecutionId>,
        early: &mut BTreeSet<ExecutionId>,
    ) -> Result<(), BackupError> {
        let mut waiting = vec![row];
        let mut head = self.store.head(row.id).await?;
        while let Some(child) = head
            && let Some(parent) = child.parent
            && waiting.len() < MAX_ANCESTORS
        {
            head = self.store.head(parent).await?;
            let place = |head: &ExecutionHead| (head.created_at, head.execution.to_string());
            let Some(above) = head.as_ref().filter(|above| place(above) > place(&child)) else {
                break;
            };
            if written.contains(&parent) || !early.insert(parent) {
                break;
            }
            waiting.push(SpooledExecution::from(above));
        }
        while let Some(row) = waiting.pop() {
            let (row, start) = read_start(self.store, row).await;
            self.write_log(row, start).await?;
        }
        Ok(())
    }

    /// Writes a log, unless it is damaged or retention removed it.
    async fn write_log(
        &mut self,
        row: SpooledExecution,
        start: Result<LogStart, StoreError>,
    ) -> Result<(), BackupError> {
        let folded = match start {
            Ok(start) => self.fold_log(&start).await.map(|log| log.map(|log| (start, log))),
            Err(err) => Err(err),
        };
        match folded {
            Ok(Some((start, log))) => self.write_folded_log(start, log).await,
            Ok(None) => Ok(()),
            Err(err @ StoreError::Corrupt { .. }) => {
                self.report.damaged.add(format!("`{}`: {err}", row.id));
                Ok(())
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Reads the log to its end. Returns `None` if the execution no longer exists.
    async fn fold_log(&self, start: &LogStart) -> Result<Option<FoldedLog>, StoreError> {
        let id = start.execution.id;
        let corrupt = |why| StoreError::corrupt(id, why);
        let plan = match start.events.first().map(|first| &first.event) {
            Some(Event::Created(created)) => created.plan,
            Some(other) => return Err(corrupt(format!("it begins with `{}`", other.kind()))),
            None => {
                let is_removed = self.store.head(id).await?.is_none();
                let damage = || corrupt("it has no events".to_owned());
                return if is_removed { Ok(None) } else { Err(damage()) };
            }
        };
        let Some(plan) = self.find_plan(plan).await? else {
            return Err(corrupt(format!("its plan `{plan}` is not in the store")));
        };
        let execution = Execution::replay(id, plan, &start.events);
        let mut log = FoldedLog {
            execution: execution.map_err(|err| corrupt(err.to_string()))?,
            is_short: true,
        };
        let mut lag_reads = 0;
        while !log.execution.state().is_finished() {
            let events = self.store.read(id, log.execution.seq()).await?;
            log.is_short &= events.is_empty();
            for event in &events {
                log.execution.apply(event).map_err(|err| corrupt(err.to_string()))?;
            }
            if !events.is_empty() {
                continue;
            }
            if !start.is_behind_head(&log.execution) {
                break;
            }
            lag_reads += 1;
            if self.store.head(id).await?.is_none() {
                return Ok(None);
            }
            if lag_reads > MAX_LAG_READS {
                return Err(corrupt("its head is ahead of its log".to_owned()));
            }
            time::sleep(LAG_PAUSE).await;
        }
        Ok(Some(log))
    }

    async fn find_plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        match self.plans.find(id) {
            Some(plan) => Ok(Some(Arc::clone(plan))),
            None => self.store.plan(id).await,
        }
    }

    async fn write_folded_log(
        &mut self,
        start: LogStart,
        log: FoldedLog,
    ) -> Result<(), BackupError> {
        let FoldedLog { execution, is_short } = log;
        if self.plans.find(execution.plan().id()).is_none() {
            if self.since.is_some() {
                self.write_plan_with_needs(Arc::clone(execution.plan())).await?;
            } else {
                self.write_plan(execution.plan())?;
            }
        }
        let (id, end) = (execution.id(), execution.seq());
        if is_short {
            self.write_events(id, &start.events)?;
        } else {
            self.copy_events(id, end).await?;
        }
        let log_end = describe_end(&execution, start.head.as_ref(), start.commands);
        self.report.counts.executions += 1;
        self.report.counts.events += end.0;
        self.report.counts.commands += log_end.commands.len() as u64;
        self.write(&Entry::Execution(Box::new(log_end))).map(drop)
    }

    /// Writes the events of a long log. Reads them again, because all of them together need too
    /// much memory.
    async fn copy_events(&mut self, id: ExecutionId, end: Seq) -> Result<(), BackupError> {
        let mut after = Seq::START;
        while after < end {
            let mut events = self.store.read(id, after).await?;
            events.retain(|event| event.seq <= end);
            let Some(last) = events.last() else {
                let why = "retention removed it during the backup: start the backup again";
                return Err(StoreError::corrupt(id, why).into());
            };
            after = last.seq;
            self.write_events(id, &events)?;
        }
        Ok(())
    }

    fn write_events(
        &mut self,
        execution: ExecutionId,
        mut events: &[RecordedEvent],
    ) -> Result<(), BackupError> {
        while !events.is_empty() {
            let (mut len, mut bytes) = (0, 0);
            while len < events.len() && (len == 0 || bytes < EVENT_BYTES) {
                bytes += events[len].bytes();
                len += 1;
            }
            let (part, rest) = events.split_at(len);
            self.write(&Entry::Events { execution, events: part.to_vec() })?;
            events = rest;
        }
        Ok(())
    }
}

impl LogStart {
    fn is_behind_head(&self, execution: &Execution) -> bool {
        self.execution.is_over || self.head.as_ref().is_some_and(|head| execution.seq() < head.seq)
    }
}

async fn read_start(
    store: &dyn Store,
    execution: SpooledExecution,
) -> (SpooledExecution, Result<LogStart, StoreError>) {
    let id = execution.id;
    let read = async {
        let (head, commands) = if execution.is_over {
            (None, Vec::new())
        } else {
            (store.head(id).await?, store.list_commands(Some(id)).await?)
        };
        let events = store.read(id, Seq::START).await?;
        Ok(LogStart { execution, head, commands, events })
    };
    (execution, read.await)
}

/// Returns the part of a head that does not follow from its log.
fn describe_end(
    execution: &Execution,
    head: Option<&ExecutionHead>,
    commands: Vec<SentCommand>,
) -> LogEnd {
    let is_over = execution.state().is_finished();
    let (owner, due) = match head {
        Some(head) if head.seq == execution.seq() => (head.owner, head.due),
        // The log has grown since the head was read, so the log names the owner, and the due time
        // is unknown.
        Some(_) => (execution.worker(), None),
        None => (None, None),
    };
    // Without an owner and a due time, only a command would wake the execution. The backup may lack
    // a command that a child sent after the inbox was read, so the execution becomes due.
    let needs_look = !is_over && owner.is_none() && !execution.agenda().in_children().is_empty();
    let due = due.or_else(|| needs_look.then(|| execution.created_at()));
    let is_unheard = |command: &SentCommand| !execution.has_command(command.id);
    let head = ExecutionHead::from_execution(execution, owner, due);
    LogEnd {
        execution: execution.id(),
        plan: execution.plan().id(),
        request: execution.request(),
        state: execution.state(),
        seq: execution.seq(),
        owner: head.owner,
        due: head.due,
        commands: commands.into_iter().filter(is_unheard).collect(),
    }
}
