//! The setting `limits`: one table defines the key, range, default and description of each limit
//! that is a number.

use std::{sync::Arc, time::Duration};

use executor::{call_limits::CallLimits, options::Options};
use graphql::{schema, server::ServerOptions};
use planner::suggest::did_you_mean;
use serde_json::{Map, Value};
use shared::limits;
use toolsets::sources;

use super::{
    Origin, Setting, calls,
    schema::builder::{integer_schema, object_schema},
};

struct Limit {
    key: &'static str,
    about: &'static str,
    default: fn() -> u64,
    minimum: u64,
    maximum: u64,
}

/// The upper bound of limits that are times: a day in milliseconds.
const DAY_MS: u64 = 86_400_000;

const LIMITS: [Limit; 12] = [
    Limit {
        key: "lease_ms",
        about: "Silence after which others take a worker's executions.",
        default: || to_ms(limits::LEASE_TIME),
        minimum: 100,
        maximum: DAY_MS,
    },
    Limit {
        key: "poll_ms",
        about: "Interval at which a worker looks for work.",
        default: || to_ms(limits::POLL_INTERVAL),
        minimum: 1,
        maximum: DAY_MS,
    },
    Limit {
        key: "park_after_ms",
        about: "Wait after which an execution leaves the memory.",
        default: || to_ms(limits::PARK_AFTER),
        minimum: 0,
        maximum: DAY_MS,
    },
    Limit {
        key: "cancel_grace_ms",
        about: "Time for a stopped tool to end.",
        default: || to_ms(limits::CANCEL_GRACE),
        minimum: 0,
        maximum: DAY_MS,
    },
    Limit {
        key: "connect_timeout_ms",
        about: "Time for a toolset to connect.",
        default: || to_ms(sources::CONNECT_TIMEOUT),
        minimum: 1,
        maximum: DAY_MS,
    },
    Limit {
        key: "drain_ms",
        about: "Time for running steps when the process stops.",
        default: || to_ms(Options::default().drain),
        minimum: 0,
        maximum: DAY_MS,
    },
    Limit {
        key: "executions",
        about: "Executions in memory.",
        default: || limits::EXECUTIONS as u64,
        minimum: 1,
        // More drivers than this maximum would need more memory than machines have.
        maximum: 10_000_000,
    },
    Limit {
        key: "output_bytes",
        about: "Bytes of one output as JSON.",
        default: || limits::OUTPUT_BYTES as u64,
        minimum: 1,
        // An event is never split, so it must fit into one document of a store.
        maximum: limits::APPEND_BYTES as u64,
    },
    Limit {
        key: "request_bytes",
        about: "Bytes of one request to the server.",
        default: || 16 << 20,
        minimum: 1_024,
        maximum: 1 << 30,
    },
    Limit {
        key: "answer_bytes",
        about: "Bytes of one answer, approximately.",
        default: || schema::Limits::default().answer_bytes as u64,
        minimum: 1 << 20,
        maximum: 1 << 32,
    },
    Limit {
        key: "connections",
        about: "Connections to the server.",
        default: || ServerOptions::default().max_connections as u64,
        minimum: 16,
        maximum: 1_000_000,
    },
    Limit {
        key: "new_connections_per_address",
        about: "Connections of one address without a whole request.",
        default: || ServerOptions::default().max_new_connections as u64,
        minimum: 1,
        maximum: 1_000_000,
    },
];

#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    numbers: Vec<(&'static str, Setting<u64>)>,
    calls: (Arc<CallLimits>, Value),
}

const CALLS_KEY: &str = "calls";

impl Default for Limits {
    fn default() -> Self {
        let defaults = LIMITS.iter().map(|limit| {
            (limit.key, Setting { value: (limit.default)(), origin: Origin::Default })
        });
        let none = (Arc::default(), Value::Array(Vec::new()));
        Self { numbers: defaults.collect(), calls: none }
    }
}

impl Limits {
    pub(super) fn read(fields: &Map<String, Value>) -> Result<Self, String> {
        let mut limits = Self::default();
        for (key, value) in fields {
            if key == CALLS_KEY {
                limits.calls = (Arc::new(calls::read(value)?), value.clone());
                continue;
            }
            let Some(index) = LIMITS.iter().position(|limit| limit.key == key) else {
                return Err(describe_unknown_key(key));
            };
            let Limit { minimum, maximum, .. } = LIMITS[index];
            let number = value.as_u64().filter(|number| (minimum..=maximum).contains(number));
            let Some(value) = number else {
                return Err(format!(
                    "`limits.{key}` is {value}; write a whole number from {minimum} to {maximum}"
                ));
            };
            limits.numbers[index].1 = Setting { value, origin: Origin::File };
        }
        Ok(limits)
    }

    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Setting<u64>)> {
        self.numbers.iter().map(|(key, setting)| (*key, setting))
    }

    pub fn call_limits(&self) -> &Arc<CallLimits> {
        &self.calls.0
    }

    pub fn take_calls_from(&mut self, other: Self) {
        self.calls = other.calls;
    }

    pub(super) fn written_call_limits(&self) -> Setting<&Value> {
        let origin = if self.calls.0.is_empty() { Origin::Default } else { Origin::File };
        Setting { value: &self.calls.1, origin }
    }

    pub fn options(&self) -> Options {
        Options {
            lease: self.duration_of("lease_ms"),
            poll: self.duration_of("poll_ms"),
            park_after: self.duration_of("park_after_ms"),
            executions: self.size_of("executions"),
            cancel_grace: self.duration_of("cancel_grace_ms"),
            connect: self.duration_of("connect_timeout_ms"),
            output_bytes: self.size_of("output_bytes"),
            drain: self.duration_of("drain_ms"),
            calls: Arc::clone(self.call_limits()).into(),
            ..Options::default()
        }
    }

    pub fn request_bytes(&self) -> usize {
        self.size_of("request_bytes")
    }

    pub fn answer_bytes(&self) -> usize {
        self.size_of("answer_bytes")
    }

    pub fn max_connections(&self) -> usize {
        self.size_of("connections")
    }

    /// Returns the maximum number of connections of one address that have not yet sent a complete
    /// request.
    pub fn new_connections_per_address(&self) -> usize {
        self.size_of("new_connections_per_address")
    }

    pub fn connect_timeout(&self) -> Duration {
        self.duration_of("connect_timeout_ms")
    }

    pub fn drain_time(&self) -> Duration {
        self.duration_of("drain_ms")
    }

    fn number_of(&self, key: &str) -> u64 {
        let found = self.numbers.iter().find(|(known, _)| *known == key);
        found.expect("only keys of the table are asked for").1.value
    }

    fn duration_of(&self, key: &str) -> Duration {
        Duration::from_millis(self.number_of(key))
    }

    fn size_of(&self, key: &str) -> usize {
        usize::try_from(self.number_of(key)).unwrap_or(usize::MAX)
    }
}

pub(super) fn limits_schema(calls: Value) -> Value {
    let fields = LIMITS.iter().map(|limit| {
        let Limit { key, about, default, minimum, maximum } = limit;
        let about = format!("{about} Default: {}.", default());
        ((*key).to_owned(), integer_schema(*minimum, *maximum, &about))
    });
    let mut fields: Map<String, Value> = fields.collect();
    fields.insert(CALLS_KEY.to_owned(), calls);
    object_schema("Limits of this process, and of calls.", &[], Value::Object(fields))
}

fn describe_unknown_key(key: &str) -> String {
    let keys = || LIMITS.iter().map(|limit| limit.key).chain([CALLS_KEY]);
    let help = did_you_mean(key, keys());
    let list_keys = || {
        let keys: Vec<_> = keys().map(|key| format!("`{key}`")).collect();
        format!("there are {}", keys.join(", "))
    };
    format!("`limits.{key}` is unknown: {}", help.unwrap_or_else(list_keys))
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
