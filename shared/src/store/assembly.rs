//! Puts the documents of a log together again, for every store the same way.
//!
//! A log is only a log if its documents follow each other without a gap. The fence makes sure of
//! that when they are written; this makes sure of it when they are read, so that a damaged file
//! or a store that broke its word is noticed before anybody acts on it.

use super::{Document, StoreError};
use crate::{
    event::Recorded,
    id::{ExecutionId, Seq},
    limits,
};

/// The most bytes of documents that one read decodes; a single document may have more.
const READ_BYTES: usize = 16 << 20;

/// Events of one log as its documents come in.
#[derive(Debug)]
pub struct Assembly {
    id: ExecutionId,
    after: Seq,
    /// Where the next document must begin; unknown before the first.
    next: Option<Seq>,
    events: Vec<Recorded>,
    bytes: usize,
    damage: Option<StoreError>,
}

impl Assembly {
    /// Begins with what comes after position `after`. The first document must be the one that
    /// has the next position, or the last one.
    pub fn new(id: ExecutionId, after: Seq) -> Self {
        Self { id, after, next: None, events: Vec::new(), bytes: 0, damage: None }
    }

    /// Takes the next document and returns whether there is room for more.
    pub fn push(&mut self, document: Result<Document, StoreError>) -> bool {
        let pushed = document.and_then(|it| self.add(&it));
        self.damage = pushed.err();
        let is_full = self.events.len() >= limits::READ_EVENTS || self.bytes >= READ_BYTES;
        self.damage.is_none() && !is_full
    }

    /// Returns the events. Those before a damaged document are worth having; the next read says
    /// that there is damage behind them.
    pub fn finish(self) -> Result<Vec<Recorded>, StoreError> {
        match self.damage {
            Some(damage) if self.events.is_empty() => Err(damage),
            _ => Ok(self.events),
        }
    }

    fn add(&mut self, document: &Document) -> Result<(), StoreError> {
        let Document { first, len, json } = document;
        let is_next = match self.next {
            Some(next) => *first == next,
            None => Seq::START < *first && *first <= self.after.next(),
        };
        if !is_next || *len == 0 {
            let why = format!("{len} events at {first}, after a gap");
            return Err(StoreError::corrupt(self.id, why));
        }
        self.next = Some(first.plus(*len));
        if document.last() <= self.after {
            return Ok(());
        }
        let mut events = document.decode(self.id)?;
        if *first <= self.after {
            events.retain(|it| self.after < it.seq);
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

    fn document(first: u64, len: usize) -> Document {
        let command = "cmd_1_aaaaaaaaa".parse().unwrap();
        let event = Event::Paused { command };
        let event = |seq| Recorded { seq, at: Timestamp::UNIX_EPOCH, event: event.clone() };
        let events: Vec<Recorded> = (0..len).map(|it| event(Seq(first).plus(it))).collect();
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        Append::new(id, Seq(first - 1), &events).documents.remove(0)
    }

    fn read(after: u64, documents: Vec<Document>) -> Result<Vec<u64>, StoreError> {
        let mut assembly = Assembly::new("exec_1_aaaaaaaaa".parse().unwrap(), Seq(after));
        for document in documents {
            if !assembly.push(Ok(document)) {
                break;
            }
        }
        Ok(assembly.finish()?.iter().map(|it| it.seq.0).collect())
    }

    #[test]
    fn documents_become_events_from_any_position() {
        let log = || vec![document(1, 2), document(3, 3), document(6, 1)];
        assert_eq!(read(0, log()), Ok(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(read(3, log()), Ok(vec![4, 5, 6]));
        assert_eq!(read(6, log()), Ok(vec![]));
        assert_eq!(read(9, log()), Ok(vec![]));
        assert_eq!(read(0, vec![]), Ok(vec![]));
    }

    #[test]
    fn a_gap_is_damage() {
        assert!(read(0, vec![document(2, 1)]).is_err());
        assert!(read(1, vec![document(1, 1), document(3, 1)]).is_err());
        // What comes before the gap is good.
        assert_eq!(read(0, vec![document(1, 1), document(3, 1)]), Ok(vec![1]));
        let broken = Document { first: Seq(1), len: 2, ..document(1, 1) };
        assert!(read(0, vec![broken]).is_err());
        assert!(read(0, vec![Document { len: 0, ..document(1, 1) }]).is_err());
    }
}
