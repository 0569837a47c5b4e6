//! The setting `limits`: one table defines how to read, show and use each limit.

use std::{sync::Arc, time::Duration};

use executor::{call_limits::CallLimits, options::Options};
use graphql::{schema, server::ServerOptions};
use planner::suggest::did_you_mean;
use serde_json::{Map, Value};
use shared::limits;
use toolsets::sources;

use super::{ConfigError, Origin, Setting, calls};

struct Limit {
    key: &'static str,
    default: fn() -> u64,
    least: u64,
    most: u64,
}

/// The longest time of a limit: a day.
const DAY_MS: u64 = 86_400_000;

const TABLE: [Limit; 12] = [
    Limit { key: "lease_ms", default: || to_ms(limits::LEASE_TIME), least: 100, most: DAY_MS },
    Limit { key: "poll_ms", default: || to_ms(limits::POLL_INTERVAL), least: 1, most: DAY_MS },
    Limit { key: "park_after_ms", default: || to_ms(limits::PARK_AFTER), least: 0, most: DAY_MS },
    Limit {
        key: "cancel_grace_ms",
        default: || to_ms(limits::CANCEL_GRACE),
        least: 0,
        most: DAY_MS,
    },
    Limit {
        key: "connect_timeout_ms",
        default: || to_ms(sources::CONNECT_TIMEOUT),
        least: 1,
        most: DAY_MS,
    },
    Limit { key: "drain_ms", default: || to_ms(Options::default().drain), least: 0, most: DAY_MS },
    Limit {
        key: "executions",
        default: || limits::EXECUTIONS as u64,
        least: 1,
        // More drivers fit into no memory.
        most: 10_000_000,
    },
    Limit {
        key: "output_bytes",
        default: || limits::OUTPUT_BYTES as u64,
        least: 1,
        // An event is never split, so it must fit into one document of a store.
        most: limits::APPEND_BYTES as u64,
    },
    Limit { key: "request_bytes", default: || 16 << 20, least: 1_024, most: 1 << 30 },
    Limit {
        key: "answer_bytes",
        default: || schema::Limits::default().answer_bytes as u64,
        least: 1 << 20,
        most: 1 << 32,
    },
    Limit {
        key: "connections",
        default: || ServerOptions::default().max_connections as u64,
        least: 16,
        most: 1_000_000,
    },
    Limit {
        key: "new_connections_per_address",
        default: || ServerOptions::default().max_new_connections as u64,
        least: 1,
        most: 1_000_000,
    },
];

#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    numbers: Vec<(&'static str, Setting<u64>)>,
    /// The limits on calls, and their text in the file.
    calls: (Arc<CallLimits>, Value),
}

const CALLS: &str = "calls";

impl Default for Limits {
    fn default() -> Self {
        let defaults = TABLE.iter().map(|limit| {
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
            if key == CALLS {
                limits.calls = (Arc::new(calls::read(value)?), value.clone());
                continue;
            }
            let Some(at) = TABLE.iter().position(|limit| limit.key == key) else {
                return Err(unknown_key(key));
            };
            let Limit { least, most, .. } = TABLE[at];
            let number = value.as_u64().filter(|number| (least..=most).contains(number));
            let Some(value) = number else {
                return Err(format!(
                    "`limits.{key}` is {value}; write a whole number from {least} to {most}"
                ));
            };
            limits.numbers[at].1 = Setting { value, origin: Origin::File };
        }
        Ok(limits)
    }

    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Setting<u64>)> {
        self.numbers.iter().map(|(key, setting)| (*key, setting))
    }

    pub fn calls(&self) -> &Arc<CallLimits> {
        &self.calls.0
    }

    pub(super) fn written_calls(&self) -> Setting<&Value> {
        let origin = if self.calls.0.is_empty() { Origin::Default } else { Origin::File };
        Setting { value: &self.calls.1, origin }
    }

    pub fn options(&self) -> Options {
        Options {
            lease: self.wait("lease_ms"),
            poll: self.wait("poll_ms"),
            park_after: self.wait("park_after_ms"),
            executions: self.size("executions"),
            cancel_grace: self.wait("cancel_grace_ms"),
            connect: self.wait("connect_timeout_ms"),
            output_bytes: self.size("output_bytes"),
            drain: self.wait("drain_ms"),
            calls: Arc::clone(self.calls()),
            ..Options::default()
        }
    }

    pub fn request_bytes(&self) -> usize {
        self.size("request_bytes")
    }

    /// Returns the approximate size limit of a response of the API.
    pub fn answer_bytes(&self) -> usize {
        self.size("answer_bytes")
    }

    pub fn connections(&self) -> usize {
        self.size("connections")
    }

    /// Returns the most connections of one address that have not sent a whole request.
    pub fn new_connections_per_address(&self) -> usize {
        self.size("new_connections_per_address")
    }

    pub fn connect(&self) -> Duration {
        self.wait("connect_timeout_ms")
    }

    /// Returns the time that running steps have to finish at shutdown.
    pub fn drain(&self) -> Duration {
        self.wait("drain_ms")
    }

    fn value(&self, key: &str) -> u64 {
        let found = self.numbers.iter().find(|(known, _)| *known == key);
        found.expect("only keys of the table are asked for").1.value
    }

    fn wait(&self, key: &str) -> Duration {
        Duration::from_millis(self.value(key))
    }

    fn size(&self, key: &str) -> usize {
        usize::try_from(self.value(key)).unwrap_or(usize::MAX)
    }
}

fn unknown_key(key: &str) -> String {
    let keys = || TABLE.iter().map(|limit| limit.key).chain([CALLS]);
    let help = did_you_mean(key, keys());
    let known = || {
        let keys: Vec<_> = keys().map(|key| format!("`{key}`")).collect();
        format!("there are {}", keys.join(", "))
    };
    format!("`limits.{key}` is unknown: {}", help.unwrap_or_else(known))
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<String> for ConfigError {
    fn from(why: String) -> Self {
        Self(why)
    }
}
