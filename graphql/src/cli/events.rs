//! What the events of an execution mean to somebody who watches.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shared::clock::Timestamp;

/// What somebody who watches is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    /// A step runs.
    Started {
        /// The step.
        step: String,
        /// Which try this is.
        attempt: u64,
    },
    /// A step is over, for now or for good.
    Ended {
        /// The step.
        step: String,
        /// How.
        how: How,
        /// How long it ran, if it did.
        took_ms: Option<f64>,
        /// What is worth knowing.
        detail: Option<String>,
    },
    /// Something happened to the execution as a whole.
    Note(String),
}

/// How a step stands that does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It returned.
    Succeeded,
    /// It failed for good.
    Failed,
    /// It failed and is tried again.
    Retrying,
    /// It will not run.
    Skipped,
    /// It was stopped.
    Cancelled,
    /// It waits for somebody.
    Waiting,
}

/// An execution as somebody who watches sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    /// The position of the last event.
    pub(super) seq: u64,
    /// How many steps are over.
    pub(super) n_over: usize,
    running: BTreeMap<String, Option<Timestamp>>,
    retrying: BTreeSet<String>,
    /// The steps that wait for a person.
    persons: BTreeSet<String>,
    is_over: bool,
}

impl Board {
    /// Moves past an event. Returns what to tell, if that is anything.
    pub(super) fn apply(&mut self, event: &Value) -> Option<News> {
        self.seq = event["seq"].as_u64().unwrap_or(self.seq);
        let kind = event["type"].as_str().unwrap_or_default();
        match event["stepId"].as_str() {
            Some(step) => self.step(step, kind, event),
            None => self.whole(kind, &event["data"]),
        }
    }

    /// Returns whether nothing can happen any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether some step waits for a person and no other can go on by itself.
    pub(super) fn waits_for_a_person(&self) -> bool {
        !self.persons.is_empty() && self.running.is_empty() && self.retrying.is_empty()
    }

    /// Returns the steps that wait for a person.
    pub(super) fn persons(&self) -> impl Iterator<Item = &str> {
        self.persons.iter().map(String::as_str)
    }

    fn step(&mut self, step: &str, kind: &str, event: &Value) -> Option<News> {
        let data = &event["data"];
        if kind == "step_started" {
            self.leave(step);
            self.running.insert(step.to_owned(), moment(event));
            let attempt = event["attempt"].as_u64().unwrap_or(1);
            return Some(News::Started { step: step.to_owned(), attempt });
        }
        let (how, detail) = match kind {
            "step_succeeded" => (How::Succeeded, None),
            "step_failed" => (How::Failed, error(data)),
            "step_retry_scheduled" => (How::Retrying, error(data)),
            "step_interrupted" => (How::Retrying, Some("its worker was lost".to_owned())),
            "step_skipped" => (How::Skipped, skipped(data)),
            "step_cancelled" => (How::Cancelled, None),
            "step_waiting" => (How::Waiting, Some(waits(data))),
            _ => {
                // Approved, or something that a newer server knows.
                self.persons.remove(step);
                return None;
            }
        };
        let took_ms = self.took(step, moment(event));
        self.leave(step);
        match how {
            How::Retrying => drop(self.retrying.insert(step.to_owned())),
            How::Waiting if data["for"] != "signal" => drop(self.persons.insert(step.to_owned())),
            How::Waiting => (),
            _ => self.n_over += 1,
        }
        Some(News::Ended { step: step.to_owned(), how, took_ms, detail })
    }

    fn whole(&mut self, kind: &str, data: &Value) -> Option<News> {
        let note = match kind {
            "finished" => {
                self.is_over = true;
                return None;
            }
            "claimed" if data["epoch"].as_u64().is_some_and(|it| it > 1) => {
                format!("carried on by {}", data["node"].as_str().unwrap_or("a worker"))
            }
            "signal_received" => format!("signal {}", data["name"].as_str().unwrap_or("received")),
            "cancel_requested" => "cancelling".to_owned(),
            "deadline_passed" => "its time is up".to_owned(),
            "paused" | "resumed" => kind.to_owned(),
            _ => return None,
        };
        Some(News::Note(note))
    }

    fn leave(&mut self, step: &str) {
        self.running.remove(step);
        self.retrying.remove(step);
        self.persons.remove(step);
    }

    fn took(&self, step: &str, until: Option<Timestamp>) -> Option<f64> {
        let from = (*self.running.get(step)?)?;
        let micros = u32::try_from((until? - from).num_microseconds()?.max(0)).ok()?;
        Some(f64::from(micros) / 1_000.0)
    }
}

fn moment(event: &Value) -> Option<Timestamp> {
    event["at"].as_str()?.parse().ok()
}

fn error(data: &Value) -> Option<String> {
    let error = &data["error"];
    let message = error["message"].as_str()?;
    Some(match error["code"].as_str() {
        Some(code) => format!("{code}: {message}"),
        None => message.to_owned(),
    })
}

fn skipped(data: &Value) -> Option<String> {
    match data["reason"].as_str()? {
        "dependency" => Some("what it depends on did not succeed".to_owned()),
        "execution_failed" => None,
        other => Some(other.replace('_', " ")),
    }
}

fn waits(data: &Value) -> String {
    match data["for"].as_str() {
        Some("approval") => "waits for approval".to_owned(),
        Some("signal") => format!("waits for signal {}", data["name"].as_str().unwrap_or_default()),
        Some("decision") => match error(data) {
            Some(error) => format!("waits for a decision: {error}"),
            None => "waits for a decision".to_owned(),
        },
        _ => "waits".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(seq: u64, kind: &str, step: Option<&str>, data: &Value) -> Value {
        let at = format!("2026-01-01T00:00:00.{seq:06}Z");
        json!({ "seq": seq, "type": kind, "at": at, "stepId": step, "attempt": 1, "data": data })
    }

    #[test]
    fn durations_are_those_of_the_log() {
        let mut board = Board::default();
        board.apply(&event(1000, "step_started", Some("a"), &json!({})));
        let news = board.apply(&event(3500, "step_succeeded", Some("a"), &json!({})));
        let Some(News::Ended { how: How::Succeeded, took_ms, .. }) = news else { panic!("ended") };
        assert_eq!(took_ms, Some(2.5));
        assert_eq!((board.n_over, board.seq), (1, 3500));
    }

    #[test]
    fn a_person_is_waited_for_once_nothing_else_can_go_on() {
        let mut board = Board::default();
        board.apply(&event(1, "step_started", Some("a"), &json!({})));
        board.apply(&event(2, "step_waiting", Some("b"), &json!({ "for": "approval" })));
        assert!(!board.waits_for_a_person());
        board.apply(&event(3, "step_succeeded", Some("a"), &json!({})));
        assert!(board.waits_for_a_person());
        board.apply(&event(4, "step_approved", Some("b"), &json!({})));
        assert!(!board.waits_for_a_person());
    }

    #[test]
    fn a_signal_is_no_person() {
        let mut board = Board::default();
        let data = json!({ "for": "signal", "name": "go" });
        let news = board.apply(&event(1, "step_waiting", Some("a"), &data));
        let Some(News::Ended { detail, .. }) = news else { panic!("waits") };
        assert_eq!(detail.as_deref(), Some("waits for signal go"));
        assert!(!board.waits_for_a_person());
    }
}
