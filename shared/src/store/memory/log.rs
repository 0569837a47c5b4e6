use std::collections::BTreeMap;

use async_trait::async_trait;

use super::Memory;
use crate::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    limits,
    store::{
        Append, AppendError, AuditEntry, EventDocument, ExecutionHead, HeadQuery, Inbox, Lease,
        Log, Permission, Permit, PermitAsk, Permits, SentCommand, StoreError,
        backend::{Assembly, inbox_full_error},
    },
};

#[derive(Debug, Default)]
pub(super) struct Logs {
    documents: BTreeMap<ExecutionId, Vec<EventDocument>>,
    inbox: BTreeMap<u64, WaitingCommand>,
    arrival_numbers: BTreeMap<CommandId, u64>,
    last_arrival_number: u64,
}

#[derive(Debug)]
struct WaitingCommand {
    id: CommandId,
    execution: ExecutionId,
    json: String,
}

impl Logs {
    fn end_position(&self, id: ExecutionId) -> Seq {
        let documents = self.documents.get(&id);
        documents.and_then(|documents| documents.last()).map_or(Seq::START, EventDocument::last)
    }

    fn append(&mut self, append: &mut Append) -> Result<(), AppendError> {
        append.check()?;
        if self.end_position(append.execution) != append.after {
            return Err(AppendError::Conflict);
        }
        let documents = self.documents.entry(append.execution).or_default();
        documents.append(&mut append.documents);
        self.discard_commands(&append.handled_commands);
        Ok(())
    }

    fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut assembly = Assembly::new(id, after);
        let documents = self.documents.get(&id).map_or(&[][..], Vec::as_slice);
        let next = documents.partition_point(|document| document.first <= after.next());
        for document in &documents[next.saturating_sub(1)..] {
            if !assembly.push(Ok(document.clone())) {
                break;
            }
        }
        assembly.finish()
    }

    fn add_command(&mut self, envelope: &SentCommand) -> Result<(), StoreError> {
        if self.arrival_numbers.contains_key(&envelope.id) {
            return Ok(());
        }
        let of = envelope.execution;
        if self.inbox.values().filter(|waiting| waiting.execution == of).count()
            >= limits::INBOX_COMMANDS
        {
            return Err(inbox_full_error(of));
        }
        self.last_arrival_number += 1;
        let json = serde_json::to_string(envelope).expect("envelopes are JSON");
        self.arrival_numbers.insert(envelope.id, self.last_arrival_number);
        let waiting = WaitingCommand { id: envelope.id, execution: of, json };
        self.inbox.insert(self.last_arrival_number, waiting);
        Ok(())
    }

    fn list_commands_of(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        let waiting =
            self.inbox.values().filter(|waiting| of.is_none_or(|of| of == waiting.execution));
        let read = |WaitingCommand { id, json, .. }: &WaitingCommand| {
            serde_json::from_str(json).map_err(|err| StoreError::corrupt(id, err))
        };
        let most = if of.is_some() { usize::MAX } else { limits::INBOX_POLL_COMMANDS };
        let mut bytes = 0;
        let fits = |waiting: &&WaitingCommand| {
            let fits = of.is_some() || bytes < limits::INBOX_POLL_BYTES;
            bytes += waiting.json.len();
            fits
        };
        waiting.take_while(fits).take(most).map(read).collect()
    }

    pub(super) fn remove_log(&mut self, id: ExecutionId) {
        self.documents.remove(&id);
        self.inbox.retain(|_, waiting| waiting.execution != id);
        let Self { inbox, arrival_numbers, .. } = self;
        arrival_numbers.retain(|_, number| inbox.contains_key(number));
    }

    fn discard_commands(&mut self, commands: &[CommandId]) {
        for command in commands {
            if let Some(number) = self.arrival_numbers.remove(command) {
                self.inbox.remove(&number);
            }
        }
    }
}

#[async_trait]
impl Log for Memory {
    async fn append(&self, mut append: Append) -> Result<(), AppendError> {
        let is_work = append.head.as_ref().is_some_and(ExecutionHead::is_claimable);
        let mut state = self.lock_state();
        state.logs.append(&mut append)?;
        append.head.into_iter().for_each(|head| state.work.put_head(head));
        if let Some(entry) = &append.audit {
            state.audit.put(entry);
        }
        drop(state);
        self.hints.count_commit();
        self.hints.wake_log(append.execution);
        if is_work {
            self.hints.wake_work();
        }
        Ok(())
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        let is_work = head.is_claimable();
        let mut state = self.lock_state();
        if state.logs.end_position(head.execution) == Seq::START {
            return Ok(());
        }
        state.work.put_head(head);
        drop(state);
        if is_work {
            self.hints.wake_work();
        }
        Ok(())
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.lock_state().logs.read(id, after)
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        Ok(self.lock_state().work.find_heads(query, most))
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.lock_state().work.renew_lease(lease);
        Ok(())
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        let mut state = self.lock_state();
        state.work.remove_worker(worker);
        state.permits.remove_worker(worker);
        drop(state);
        self.hints.wake_work();
        Ok(())
    }

    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        Ok(self.lock_state().work.list_leases(now).cloned().collect())
    }
}

#[async_trait]
impl Permits for Memory {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        let mut state = self.lock_state();
        let live: Vec<WorkerId> = state.work.list_leases(now).map(|lease| lease.worker).collect();
        Ok(state.permits.acquire(ask, now, |worker| !live.contains(&worker)))
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.lock_state().permits.release(&permits);
        self.hints.wake_work();
        Ok(())
    }
}

#[async_trait]
impl Inbox for Memory {
    async fn send_command(&self, command: SentCommand) -> Result<(), StoreError> {
        let mut state = self.lock_state();
        state.logs.add_command(&command)?;
        if let Some(entry) = AuditEntry::of_command(&command) {
            state.audit.put(&entry);
        }
        drop(state);
        self.hints.wake_inbox();
        Ok(())
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        self.lock_state().logs.list_commands_of(of)
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.lock_state().logs.discard_commands(&commands);
        Ok(())
    }
}
