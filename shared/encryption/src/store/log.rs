use async_trait::async_trait;
use shared::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    store::{
        Append, AppendError, ExecutionHead, HeadQuery, Inbox, Lease, Log, SentCommand, StoreError,
    },
};

use super::EncryptedStore;
use crate::{
    edit::Task,
    leaves::{edit_command, edit_event, edit_head},
};

pub(super) const EVENTS: &str = "events";
pub(super) const HEADS: &str = "executions";
pub(super) const INBOX: &str = "inbox";

impl EncryptedStore {
    /// Encrypts the events and the head of an append. Encrypted events are larger, so they may need
    /// more documents.
    fn seal_append(&self, append: Append) -> Result<Append, StoreError> {
        append.check()?;
        let Append { execution, after, documents, head, handled_commands, audit } = append;
        let mut events = Vec::new();
        for document in documents {
            events.extend(document.decode(execution)?);
        }
        for recorded in &mut events {
            self.edit_recorded(self.write_task(), execution, recorded)?;
        }
        let head = head.map(|head| self.convert_head(self.write_task(), head));
        Ok(Append { head, handled_commands, audit, ..Append::new(execution, after, &events) })
    }

    fn edit_recorded(
        &self,
        task: Task,
        execution: ExecutionId,
        recorded: &mut RecordedEvent,
    ) -> Result<(), StoreError> {
        let RecordedEvent { seq, at: _, by: _, event } = recorded;
        let place = EventPlace { execution, seq: *seq };
        edit_event(&self.edit(task, EVENTS, &place), event)
    }

    pub(super) fn convert_head(&self, task: Task, mut head: ExecutionHead) -> ExecutionHead {
        let execution = head.execution;
        edit_head(&self.edit(task, HEADS, &execution), &mut head);
        head
    }

    fn convert_command(
        &self,
        task: Task,
        mut command: SentCommand,
    ) -> Result<SentCommand, StoreError> {
        let place = CommandPlace { execution: command.execution, command: command.id };
        edit_command(&self.edit(task, INBOX, &place), &mut command.command)?;
        Ok(command)
    }
}

pub(super) struct EventPlace {
    pub(super) execution: ExecutionId,
    pub(super) seq: Seq,
}

impl std::fmt::Display for EventPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.execution, self.seq)
    }
}

pub(super) struct CommandPlace {
    pub(super) execution: ExecutionId,
    pub(super) command: CommandId,
}

impl std::fmt::Display for CommandPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.execution, self.command)
    }
}

#[async_trait]
impl Log for EncryptedStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        self.check_writable()?;
        self.inner.append(self.seal_append(append)?).await
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut events = self.inner.read(id, after).await?;
        let task = self.read_task();
        for recorded in &mut events {
            self.edit_recorded(task, id, recorded)?;
        }
        Ok(events)
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        self.inner.put_head(self.convert_head(self.write_task(), head)).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        let is_for_work = match query {
            HeadQuery::Due { .. }
            | HeadQuery::DueAfter { .. }
            | HeadQuery::Orphans { .. }
            | HeadQuery::OwnedBy(_) => true,
            HeadQuery::Finished { .. } => false,
        };
        if is_for_work && !self.can_work() {
            // A worker could not write its next event, so it must not find executions to claim.
            return Ok(Vec::new());
        }
        let heads = self.inner.find_heads(query, most).await?;
        let task = self.read_task();
        Ok(heads.into_iter().map(|head| self.convert_head(task, head)).collect())
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.plans.evict_idle();
        self.inner.renew_lease(lease).await
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.inner.remove_worker(worker).await
    }

    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.inner.list_leases(now).await
    }
}

#[async_trait]
impl Inbox for EncryptedStore {
    async fn send_command(&self, command: SentCommand) -> Result<(), StoreError> {
        self.inner.send_command(self.convert_command(self.write_task(), command)?).await
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        let commands = self.inner.list_commands(of).await?;
        let task = self.read_task();
        let opened = commands.into_iter().map(|command| self.convert_command(task, command));
        if of.is_some() {
            return opened.collect();
        }
        if !self.can_work() {
            return Ok(Vec::new());
        }
        // Leaves out a command whose key is missing, so that the commands of other executions can
        // still be read.
        let readable = opened.filter(|command| !command.as_ref().is_err_and(StoreError::is_locked));
        readable.collect()
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.inner.remove_commands(commands).await
    }
}
