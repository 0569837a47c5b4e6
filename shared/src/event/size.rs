//! How large an event is, for whoever keeps many of them.

use super::{Event, Recorded};
use crate::json;

/// What every event has besides what people put into it.
const PLAIN: usize = 256;

impl Recorded {
    /// Returns about how many bytes of JSON it is.
    pub fn bytes(&self) -> usize {
        let carried = match &self.event {
            Event::Created(it) => {
                let reused = it.reused.iter().map(|(_, output)| json::bytes(output));
                json::bytes(&it.options.input) + reused.sum::<usize>()
            }
            Event::StepStarted(it) => json::bytes(&it.parameters),
            Event::StepChecked { parameters, .. } | Event::StepWaiting { parameters, .. } => {
                json::bytes(parameters)
            }
            Event::StepSucceeded { output, stderr, .. } => {
                output.as_deref().map_or(0, json::bytes) + stderr.as_ref().map_or(0, String::len)
            }
            Event::SignalReceived { payload, .. } => json::bytes(payload),
            Event::StepFailed { error, .. } | Event::StepRetryScheduled { error, .. } => {
                error.message.len()
            }
            _ => 0,
        };
        PLAIN + carried
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{clock::Timestamp, id::Seq};

    #[test]
    fn what_people_put_into_an_event_counts() {
        let large = Arc::new(Value::from("x".repeat(10_000)));
        let command = "cmd_1_aaaaaaaaa".parse().unwrap();
        let name = || "s".to_owned();
        let signal = |payload| Event::SignalReceived { name: name(), payload, command };
        let bytes = |event| Recorded { seq: Seq(1), at: Timestamp::UNIX_EPOCH, event }.bytes();
        assert!((10_000..10_500).contains(&bytes(signal(large))));
        assert!(bytes(signal(Arc::new(json!(null)))) < 500);
        assert!(bytes(Event::Paused { command }) < 500);
    }
}
