use std::sync::Arc;

use planner::Note;
use serde_json::Value;
use shared::{
    clock::{Clock, Timestamp, next_moment},
    request::TranscriptEntry,
};

/// Entries that are not stored yet. Each has a later time than the entry before it.
#[derive(Debug)]
pub(crate) struct Transcript {
    clock: Arc<dyn Clock>,
    entries: Vec<TranscriptEntry>,
    newest: Option<Timestamp>,
    asked_at: Timestamp,
}

impl Transcript {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        let asked_at = clock.now();
        Self { clock: Arc::clone(clock), entries: Vec::new(), newest: None, asked_at }
    }

    pub(crate) fn add(&mut self, kind: &str, content: Value) {
        self.add_at(self.clock.now(), kind, content);
    }

    /// Records the time at which the planner starts. The times of the planner's notes are relative
    /// to this time.
    pub(crate) fn start_planner_request(&mut self) {
        self.asked_at = self.clock.now();
    }

    pub(crate) fn add_notes(&mut self, notes: Vec<Note>) {
        for note in notes {
            let at = self.asked_at.checked_add_signed(note_time(&note)).unwrap_or(self.asked_at);
            self.add_at(at, note.kind, note.content);
        }
    }

    pub(crate) fn take_entries(&mut self) -> Vec<TranscriptEntry> {
        std::mem::take(&mut self.entries)
    }

    fn add_at(&mut self, at: Timestamp, kind: &str, content: Value) {
        let at = self.newest.map_or(at, |newest| at.max(next_moment(newest)));
        self.newest = Some(at);
        self.entries.push(TranscriptEntry { at, kind: kind.to_owned(), content });
    }
}

fn note_time(note: &Note) -> chrono::TimeDelta {
    let microseconds = i64::try_from(note.after.as_micros()).unwrap_or(i64::MAX);
    chrono::TimeDelta::microseconds(microseconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct FixedClock;

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
    }

    #[test]
    fn each_transcript_entry_has_its_own_time() {
        let clock: Arc<dyn Clock> = Arc::new(FixedClock);
        let mut transcript = Transcript::new(&clock);
        transcript.add("selection", json!(null));
        transcript.start_planner_request();
        let note = |kind, seconds| {
            let after = Duration::from_secs(seconds);
            Note { kind, content: json!(null), after }
        };
        let mut stored = transcript.take_entries();
        transcript.add_notes(vec![note("prompt", 0), note("reply", 2), note("repair", 2)]);
        transcript.add("draft", json!(null));
        stored.extend(transcript.take_entries());
        let moments: Vec<_> =
            stored.iter().map(|entry| (entry.kind.as_str(), entry.at.timestamp_micros())).collect();
        let expected = [
            ("selection", 0),
            ("prompt", 1),
            ("reply", 2_000_000),
            ("repair", 2_000_001),
            ("draft", 2_000_002),
        ];
        assert_eq!(moments, expected);
        assert!(transcript.take_entries().is_empty());
    }
}
