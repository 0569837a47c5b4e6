//! The identity of spans, in the form of the W3C Trace Context recommendation.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{hex::Hex, id::ExecutionId};

/// Longest `tracestate` that is passed on. The recommendation asks for at least this length.
const MAX_STATE_BYTES: usize = 512;
const SAMPLED: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

/// The part of a span that other processes get: its ids, and whether the trace is exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenContext", into = "WrittenContext")]
pub struct SpanContext {
    pub trace: TraceId,
    pub span: SpanId,
    pub is_sampled: bool,
    /// The header `tracestate`, which Faber passes on without reading it.
    pub state: Option<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
struct WrittenContext {
    parent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<Arc<str>>,
}

impl TraceId {
    pub fn of_execution(id: ExecutionId) -> Self {
        Self(hash_prefix(&format!("trace/{id}")))
    }

    pub fn random() -> Self {
        Self(random_bytes())
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// Derives the id from a text. The same text gives the same id on every worker.
    pub fn from_seed(seed: &str) -> Self {
        Self(hash_prefix(seed))
    }

    pub fn random() -> Self {
        Self(random_bytes())
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }

    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

impl SpanContext {
    /// Reads the headers `traceparent` and `tracestate`. An invalid `traceparent` counts as
    /// missing, as the recommendation says.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut parts = parent.trim().split('-');
        let [version] = parse_hex::<1>(parts.next()?)?;
        let trace = TraceId::from_hex(parts.next()?)?;
        let span = SpanId::from_hex(parts.next()?)?;
        let [flags] = parse_hex::<1>(parts.next()?)?;
        let is_too_long = version == 0 && parts.next().is_some();
        let has_zeros = trace.0 == [0; 16] || span.0 == [0; 8];
        if version == u8::MAX || is_too_long || has_zeros {
            return None;
        }
        let is_valid = |state: &&str| {
            !state.is_empty()
                && state.len() <= MAX_STATE_BYTES
                && state.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        let state = state.map(str::trim).filter(is_valid).map(Into::into);
        Some(Self { trace, span, is_sampled: flags & SAMPLED != 0, state })
    }

    pub fn traceparent(&self) -> String {
        let flags = u8::from(self.is_sampled);
        format!("00-{}-{}-{flags:02x}", self.trace, self.span)
    }

    #[must_use]
    pub fn with_span(&self, span: SpanId) -> Self {
        Self { span, ..self.clone() }
    }
}

impl From<SpanContext> for WrittenContext {
    fn from(context: SpanContext) -> Self {
        Self { parent: context.traceparent(), state: context.state }
    }
}

impl TryFrom<WrittenContext> for SpanContext {
    type Error = String;

    fn try_from(written: WrittenContext) -> Result<Self, Self::Error> {
        Self::parse(&written.parent, written.state.as_deref())
            .ok_or_else(|| format!("`{}` is not a traceparent", written.parent))
    }
}

macro_rules! hex_format {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&Hex(&self.0), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hex_format!(TraceId);
hex_format!(SpanId);

fn hash_prefix<const N: usize>(seed: &str) -> [u8; N] {
    let hash = Sha256::digest(seed);
    std::array::from_fn(|at| hash[at])
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let letters = nanoid::nanoid!(24);
    hash_prefix(&letters)
}

/// Parses lower-case hexadecimal digits. The recommendation forbids upper case.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(is_hex) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let context = SpanContext::parse(VALID, Some("vendor=1")).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.traceparent(), VALID);
        let stored = serde_json::to_value(&context).unwrap();
        assert_eq!(stored, serde_json::json!({ "parent": VALID, "state": "vendor=1" }));
        assert_eq!(serde_json::from_value::<SpanContext>(stored).unwrap(), context);
        let next = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more";
        assert!(SpanContext::parse(next, None).is_some_and(|context| !context.is_sampled));
    }

    #[test]
    fn an_invalid_traceparent_counts_as_missing() {
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-000f067aa0ba902b7-01",
        ] {
            assert_eq!(SpanContext::parse(text, None), None, "{text}");
        }
        for state in ["", "a\nb=1", &"x".repeat(MAX_STATE_BYTES + 1)] {
            let context = SpanContext::parse(VALID, Some(state)).unwrap();
            assert_eq!(context.state, None, "{state}");
        }
    }

    #[test]
    fn ids_of_an_execution_follow_from_its_id() {
        let id: ExecutionId = "exec_1704123456_abc123def".parse().unwrap();
        let other: ExecutionId = "exec_1704123456_abc123deg".parse().unwrap();
        assert_eq!(TraceId::of_execution(id), TraceId::of_execution(id));
        assert_ne!(TraceId::of_execution(id), TraceId::of_execution(other));
        assert_ne!(SpanId::random(), SpanId::random());
    }
}
