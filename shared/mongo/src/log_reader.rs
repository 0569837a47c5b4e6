//! Reads event logs. Each read runs in a task of its own, because reads of callers that do not poll
//! would otherwise keep their connections.

use std::{panic::resume_unwind, sync::Arc};

use mongodb::{
    Cursor, Database,
    bson::{Bson, RawDocumentBuf, doc},
};
use shared::{
    event::RecordedEvent,
    id::{ExecutionId, Seq},
    store::{EventDocument, StoreError, backend::Assembly},
};
use tokio::task::JoinSet;

use super::{Mongo, connection::to_store_error, known_ends::KnownEnds, removal, rows};

#[derive(Clone, Debug)]
pub(super) struct LogReader {
    database: Database,
    known_ends: Arc<KnownEnds>,
}

impl Mongo {
    pub(super) fn log_reader(&self) -> LogReader {
        LogReader { database: self.database.clone(), known_ends: Arc::clone(&self.known_ends) }
    }
}

impl LogReader {
    pub(super) async fn read_events(
        self,
        id: ExecutionId,
        after: Seq,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { self.read_unless_removed(id, after).await });
        match tasks.join_next().await {
            Some(Ok(read)) => read,
            Some(Err(err)) if err.is_panic() => resume_unwind(err.into_panic()),
            _ => Err(StoreError::Unavailable("the process is about to end".to_owned())),
        }
    }

    /// Returns no events if the log looks damaged only because another process is removing it.
    async fn read_unless_removed(
        &self,
        id: ExecutionId,
        after: Seq,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        match self.read_documents(id, after).await {
            Err(StoreError::Corrupt { .. })
                if removal::is_being_removed(&self.database, id).await? =>
            {
                Ok(Vec::new())
            }
            // Reads again, because the removal may have ended between the two queries.
            Err(StoreError::Corrupt { .. }) => self.read_documents(id, after).await,
            result => result,
        }
    }

    async fn read_documents(
        &self,
        id: ExecutionId,
        after: Seq,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut assembly = Assembly::new(id, after);
        let mut found = self.find_documents_from(id, after.next()).await?;
        let mut next = next_document(&mut found, id).await?;
        let starts_there = matches!(&next, Some(Ok(document)) if document.first == after.next());
        if !starts_there && !self.known_ends.contains(id, after) {
            // Also reads the previous document, because `after` may be a position inside that
            // document.
            if let Some(before) = self.find_document_before(id, after.next()).await? {
                assembly.push(before);
            }
        }
        while let Some(document) = next {
            if !assembly.push(document) {
                break;
            }
            next = next_document(&mut found, id).await?;
        }
        let events = assembly.finish()?;
        if let Some(last) = events.last() {
            self.known_ends.insert(id, last.seq);
        }
        Ok(events)
    }

    async fn find_documents_from(
        &self,
        id: ExecutionId,
        first: Seq,
    ) -> Result<Cursor<RawDocumentBuf>, StoreError> {
        let range = rows::log_range(id, first.0.cast_signed(), Bson::MaxKey);
        let events = self.database.collection::<RawDocumentBuf>("events");
        let found = events.find(range).sort(doc! { "_id": 1 });
        found.await.map_err(|err| to_store_error(&err))
    }

    async fn find_document_before(
        &self,
        id: ExecutionId,
        first: Seq,
    ) -> Result<Option<Result<EventDocument, StoreError>>, StoreError> {
        let range = rows::log_range(id, Bson::MinKey, first.0.cast_signed());
        let events = self.database.collection::<RawDocumentBuf>("events");
        let found = events.find_one(range).sort(doc! { "_id": -1 });
        let found = found.await.map_err(|err| to_store_error(&err))?;
        Ok(found.map(|row| rows::read_document(&row, id)))
    }

    /// Returns the end of the last document that begins before `first`.
    pub(super) async fn find_end_before(
        &self,
        id: ExecutionId,
        first: Seq,
    ) -> Result<Option<Seq>, StoreError> {
        let before = self.find_document_before(id, first).await?.transpose()?;
        Ok(before.map(|document| document.last()))
    }
}

async fn next_document(
    found: &mut Cursor<RawDocumentBuf>,
    id: ExecutionId,
) -> Result<Option<Result<EventDocument, StoreError>>, StoreError> {
    if !found.advance().await.map_err(|err| to_store_error(&err))? {
        return Ok(None);
    }
    Ok(Some(rows::read_document(found.current(), id)))
}
