//! Logs and inboxes in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::Memory;
use crate::{
    clock::Timestamp,
    event::Recorded,
    id::{CommandId, ExecutionId, Seq, WorkerId},
    store::{
        Append, AppendError, Document, Envelope, ExecutionLog, Head, Hints, Lease, StoreError,
        assembly::Assembly,
    },
};

/// Every log, and what outsiders ask.
#[derive(Debug, Default)]
pub(super) struct Logs {
    documents: BTreeMap<ExecutionId, Vec<Document>>,
    /// By arrival.
    inbox: BTreeMap<u64, (CommandId, ExecutionId, String)>,
    known: BTreeMap<CommandId, u64>,
    arrived: u64,
    /// How many appends there were.
    pub(super) appends: u64,
}

impl Logs {
    fn end(&self, id: ExecutionId) -> Seq {
        let documents = self.documents.get(&id);
        documents.and_then(|it| it.last()).map_or(Seq::START, Document::last)
    }

    fn append(&mut self, append: &mut Append) -> Result<(), AppendError> {
        if self.end(append.execution) != append.after {
            return Err(AppendError::Conflict);
        }
        let documents = self.documents.entry(append.execution).or_default();
        documents.append(&mut append.documents);
        self.appends += 1;
        self.discard(&append.heard);
        Ok(())
    }

    fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<Recorded>, StoreError> {
        let mut assembly = Assembly::new(id, after);
        let documents = self.documents.get(&id).map_or(&[][..], Vec::as_slice);
        let next = documents.partition_point(|it| it.first <= after.next());
        for document in &documents[next.saturating_sub(1)..] {
            if !assembly.push(Ok(document.clone())) {
                break;
            }
        }
        assembly.finish()
    }

    fn send(&mut self, envelope: &Envelope) {
        if self.known.contains_key(&envelope.id) {
            return;
        }
        self.arrived += 1;
        let json = serde_json::to_string(envelope).expect("envelopes are JSON");
        self.known.insert(envelope.id, self.arrived);
        self.inbox.insert(self.arrived, (envelope.id, envelope.execution, json));
    }

    fn inbox(&self, of: Option<ExecutionId>) -> Result<Vec<Envelope>, StoreError> {
        let waiting = self.inbox.values().filter(|(_, it, _)| of.is_none_or(|of| of == *it));
        let read = |(id, _, json): &(CommandId, ExecutionId, String)| {
            serde_json::from_str(json).map_err(|err| StoreError::corrupt(id, err))
        };
        waiting.map(read).collect()
    }

    fn discard(&mut self, commands: &[CommandId]) {
        for command in commands {
            if let Some(arrived) = self.known.remove(command) {
                self.inbox.remove(&arrived);
            }
        }
    }
}

#[async_trait]
impl ExecutionLog for Memory {
    async fn append(&self, mut append: Append) -> Result<(), AppendError> {
        let is_work = append.head.as_ref().is_some_and(Head::is_free);
        let mut state = self.state();
        state.logs.append(&mut append)?;
        append.head.into_iter().for_each(|it| state.work.put_head(it));
        drop(state);
        self.hints.poke_log(append.execution);
        if is_work {
            self.hints.poke_work();
        }
        Ok(())
    }

    async fn put_head(&self, head: Head) -> Result<(), StoreError> {
        let is_work = head.is_free();
        self.state().work.put_head(head);
        if is_work {
            self.hints.poke_work();
        }
        Ok(())
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<Recorded>, StoreError> {
        self.state().logs.read(id, after)
    }

    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError> {
        Ok(self.state().work.due(now, most))
    }

    async fn orphans(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError> {
        Ok(self.state().work.orphans(now, most))
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.state().work.next_due())
    }

    async fn heartbeat(&self, lease: Lease) -> Result<(), StoreError> {
        self.state().work.heartbeat(lease);
        Ok(())
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.state().work.retire(worker);
        self.hints.poke_work();
        Ok(())
    }

    async fn send(&self, envelope: Envelope) -> Result<(), StoreError> {
        self.state().logs.send(&envelope);
        self.hints.poke_inbox();
        Ok(())
    }

    async fn inbox(&self, of: Option<ExecutionId>) -> Result<Vec<Envelope>, StoreError> {
        self.state().logs.inbox(of)
    }

    async fn discard(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.state().logs.discard(&commands);
        Ok(())
    }

    fn commits(&self) -> u64 {
        self.state().logs.appends
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }
}
