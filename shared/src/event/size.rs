//! Estimates the size of events.

use super::{Event, RecordedEvent};
use crate::json;

/// Estimated bytes of an event as JSON, without the values that people supply.
const BASE_EVENT_BYTES: usize = 256;

impl RecordedEvent {
    /// Estimates the event's size as JSON.
    pub fn bytes(&self) -> usize {
        let carried = match &self.event {
            Event::Created(created) => {
                let reused = created.reused.iter().map(|(_, output)| json::json_size(output));
                let settled = created.settled.iter();
                let settled =
                    settled.filter_map(|call| call.output.as_deref()).map(json::json_size);
                // Adds the size of the idempotency key and of the hash of parameters of each call.
                let keys = BASE_EVENT_BYTES * (created.call_keys.len() + created.settled.len());
                json::json_size(&created.options.input)
                    + reused.chain(settled).sum::<usize>()
                    + keys
            }
            Event::StepStarted(started) => json::json_size(&started.parameters),
            Event::StepChecked { parameters, .. } | Event::StepWaiting { parameters, .. } => {
                json::json_size(parameters)
            }
            Event::StepSucceeded { output, stderr, .. } => {
                output.as_deref().map_or(0, json::json_size)
                    + stderr.as_ref().map_or(0, String::len)
            }
            Event::StepSettled { output, comment, .. } => {
                output.as_deref().map_or(0, json::json_size)
                    + comment.as_ref().map_or(0, String::len)
            }
            Event::SignalReceived { payload, .. } => json::json_size(payload),
            Event::StepFailed { error, .. } | Event::StepRetryScheduled { error, .. } => {
                error.message.len()
            }
            _ => 0,
        };
        BASE_EVENT_BYTES + carried + self.by.as_ref().map_or(0, |by| by.bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{clock::Timestamp, id::Seq};

    /// Each event in memory takes as many bytes as the largest variant. So `created` is boxed,
    /// because a log has only one such event.
    #[test]
    fn an_event_is_small() {
        assert!(size_of::<Event>() <= 200, "{}", size_of::<Event>());
    }

    #[test]
    fn the_size_of_an_event_includes_the_payload_of_a_signal() {
        let large = Arc::new(Value::from("x".repeat(10_000)));
        let command = "cmd_1_aaaaaaaaa".parse().unwrap();
        let name = || "s".to_owned();
        let signal = |payload| Event::SignalReceived { name: name(), payload, command };
        let bytes = |event| {
            RecordedEvent { seq: Seq(1), at: Timestamp::UNIX_EPOCH, by: None, event }.bytes()
        };
        assert!((10_000..10_500).contains(&bytes(signal(large))));
        assert!(bytes(signal(Arc::new(json!(null)))) < 500);
        assert!(bytes(Event::Paused { command }) < 500);
    }
}
