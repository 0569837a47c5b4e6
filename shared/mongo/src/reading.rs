//! Logs that are read.
//!
//! A read that has begun ends whether or not somebody polls for its answer. Whoever follows many
//! logs polls some of them at a time, and a client that does not read on has nothing polled: were
//! connections held by such futures, nobody else would ever get one.

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

use super::{Mongo, connection::failed, ends::Ends, removal, rows};

/// The logs of a store.
#[derive(Clone, Debug)]
pub(super) struct Logs {
    database: Database,
    ends: Arc<Ends>,
}

impl Mongo {
    pub(super) fn logs(&self) -> Logs {
        Logs { database: self.database.clone(), ends: Arc::clone(&self.ends) }
    }
}

impl Logs {
    /// Returns events of a log behind a position, as many as one read may have.
    pub(super) async fn read(
        self,
        id: ExecutionId,
        after: Seq,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut reading = JoinSet::new();
        reading.spawn(async move { self.read_whole(id, after).await });
        match reading.join_next().await {
            Some(Ok(read)) => read,
            Some(Err(err)) if err.is_panic() => resume_unwind(err.into_panic()),
            _ => Err(StoreError::Unavailable("the process is about to end".to_owned())),
        }
    }

    async fn read_whole(
        &self,
        id: ExecutionId,
        after: Seq,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        match self.read_documents(id, after).await {
            // Somebody may be removing it.
            Err(StoreError::Corrupt { .. }) if removal::is_going(&self.database, id).await? => {
                Ok(Vec::new())
            }
            Err(StoreError::Corrupt { .. }) => self.read_documents(id, after).await,
            read => read,
        }
    }

    async fn read_documents(
        &self,
        id: ExecutionId,
        after: Seq,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut assembly = Assembly::new(id, after);
        let mut found = self.documents_from(id, after.next()).await?;
        let mut next = next_document(&mut found, id).await?;
        let is_there = matches!(&next, Some(Ok(it)) if it.first == after.next());
        if !is_there && !self.ends.knows(id, after) {
            // The position is in the middle of a document, or at the end, or behind it.
            if let Some(before) = self.document_before(id, after.next()).await? {
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
            self.ends.note(id, last.seq);
        }
        Ok(events)
    }

    /// Finds the documents of a log whose first position is not before `first`.
    async fn documents_from(
        &self,
        id: ExecutionId,
        first: Seq,
    ) -> Result<Cursor<RawDocumentBuf>, StoreError> {
        let range = rows::log_range(id, first.0.cast_signed(), Bson::MaxKey);
        let events = self.database.collection::<RawDocumentBuf>("events");
        let found = events.find(range).sort(doc! { "_id": 1 });
        found.await.map_err(|err| failed(&err))
    }

    /// Finds the document of a log that begins before `first`, the last such.
    async fn document_before(
        &self,
        id: ExecutionId,
        first: Seq,
    ) -> Result<Option<Result<EventDocument, StoreError>>, StoreError> {
        let range = rows::log_range(id, Bson::MinKey, first.0.cast_signed());
        let events = self.database.collection::<RawDocumentBuf>("events");
        let found = events.find_one(range).sort(doc! { "_id": -1 });
        let found = found.await.map_err(|err| failed(&err))?;
        Ok(found.map(|it| rows::document(&it, id)))
    }

    /// Returns where the last document that begins before `first` ends.
    pub(super) async fn last_before(
        &self,
        id: ExecutionId,
        first: Seq,
    ) -> Result<Option<Seq>, StoreError> {
        let before = self.document_before(id, first).await?.transpose()?;
        Ok(before.map(|it| it.last()))
    }
}

async fn next_document(
    found: &mut Cursor<RawDocumentBuf>,
    id: ExecutionId,
) -> Result<Option<Result<EventDocument, StoreError>>, StoreError> {
    if !found.advance().await.map_err(|err| failed(&err))? {
        return Ok(None);
    }
    Ok(Some(rows::document(found.current(), id)))
}
