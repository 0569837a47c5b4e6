//! Assembles the events of a log from its documents, for all stores. Checks that the documents
//! follow each other without a gap, so that damaged files are noticed before any code acts on the
//! events.

use super::{EventDocument, StoreError};
use crate::{
    event::RecordedEvent,
    id::{ExecutionId, Seq},
    limits,
};

/// Bytes of documents after which a read decodes no further document.
const READ_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub struct Assembly {
    id: ExecutionId,
    after: Seq,
    /// The position at which the next document must start. `None` before the first document.
    next: Option<Seq>,
    events: Vec<RecordedEvent>,
    bytes: usize,
    damage: Option<StoreError>,
}

impl Assembly {
    /// Starts after position `after`.
    ///
    /// The first document must contain the next position, or be the last document of the log.
    pub fn new(id: ExecutionId, after: Seq) -> Self {
        Self { id, after, next: None, events: Vec::new(), bytes: 0, damage: None }
    }

    /// Adds the next document. Returns `true` if the caller can add another document.
    pub fn push(&mut self, document: Result<EventDocument, StoreError>) -> bool {
        let pushed = document.and_then(|document| self.add_document(&document));
        self.damage = pushed.err();
        let is_full = self.events.len() >= limits::READ_EVENTS || self.bytes >= READ_BYTES;
        self.damage.is_none() && !is_full
    }

    /// Returns the events. If a document is damaged, returns the events before it, and the next
    /// read reports the damage.
    pub fn finish(self) -> Result<Vec<RecordedEvent>, StoreError> {
        match self.damage {
            Some(damage) if self.events.is_empty() => Err(damage),
            _ => Ok(self.events),
        }
    }

    fn add_document(&mut self, document: &EventDocument) -> Result<(), StoreError> {
        let EventDocument { first, len, json } = document;
        let is_next = match self.next {
            Some(next) => *first == next,
            None => Seq::START < *first && *first <= self.after.next(),
        };
        if !is_next || *len == 0 {
            let why = format!("{len} events at {first}, after a gap");
            return Err(StoreError::corrupt(self.id, why));
        }
        self.next = Some(first.advance_by(*len));
        if document.last() <= self.after {
            return Ok(());
        }
        let mut events = document.decode(self.id)?;
        if *first <= self.after {
            events.retain(|recorded| self.after < recorded.seq);
        }
        self.bytes += json.len();
        if self.events.is_empty() {
            self.events = events;
        } else {
            self.events.append(&mut events);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Timestamp, event::Event, store::Append};

    fn document(first: u64, len: usize) -> EventDocument {
        let command = "cmd_1_aaaaaaaaa".parse().unwrap();
        let event = Event::Paused { command };
        let event =
            |seq| RecordedEvent { seq, at: Timestamp::UNIX_EPOCH, by: None, event: event.clone() };
        let events: Vec<RecordedEvent> =
            (0..len).map(|offset| event(Seq(first).advance_by(offset))).collect();
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        Append::new(id, Seq(first - 1), &events).documents.remove(0)
    }

    fn read(after: u64, documents: Vec<EventDocument>) -> Result<Vec<u64>, StoreError> {
        let mut assembly = Assembly::new("exec_1_aaaaaaaaa".parse().unwrap(), Seq(after));
        for document in documents {
            if !assembly.push(Ok(document)) {
                break;
            }
        }
        Ok(assembly.finish()?.iter().map(|recorded| recorded.seq.0).collect())
    }

    #[test]
    fn events_are_read_from_any_position_in_a_document() {
        let log = || vec![document(1, 2), document(3, 3), document(6, 1)];
        assert_eq!(read(0, log()), Ok(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(read(3, log()), Ok(vec![4, 5, 6]));
        assert_eq!(read(6, log()), Ok(vec![]));
        assert_eq!(read(9, log()), Ok(vec![]));
        assert_eq!(read(0, vec![]), Ok(vec![]));
    }

    #[test]
    fn a_gap_between_documents_is_reported_as_corruption() {
        assert!(read(0, vec![document(2, 1)]).is_err());
        assert!(read(1, vec![document(1, 1), document(3, 1)]).is_err());
        // The events before the gap are valid.
        assert_eq!(read(0, vec![document(1, 1), document(3, 1)]), Ok(vec![1]));
        let broken = EventDocument { first: Seq(1), len: 2, ..document(1, 1) };
        assert!(read(0, vec![broken]).is_err());
        assert!(read(0, vec![EventDocument { len: 0, ..document(1, 1) }]).is_err());
    }
}
