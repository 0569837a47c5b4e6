//! Ids, with one type for each kind of thing.

use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// A text that is not an id of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {expected}")]
pub struct ParseIdError {
    value: String,
    expected: &'static str,
}

const ALPHABET: [char; 36] = [
    'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's',
    't', 'u', 'v', 'w', 'x', 'y', 'z', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9',
];
/// Number of characters of the random part of an id. With 36 different characters, 10¹⁴ ids are
/// possible in each second.
const RANDOM_LEN: usize = 9;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct IdStamp {
    seconds: u64,
    random: [u8; RANDOM_LEN],
}

impl IdStamp {
    fn draw(now: Timestamp) -> Self {
        let random = nanoid::nanoid!(RANDOM_LEN, &ALPHABET);
        let random = random.as_bytes().try_into().expect("nanoid draws the requested number");
        Self { seconds: u64::try_from(now.timestamp()).unwrap_or(0), random }
    }

    fn parse(text: &str) -> Option<Self> {
        let (seconds, random) = text.split_once('_')?;
        let is_canonical = seconds.bytes().all(|byte| byte.is_ascii_digit())
            && (seconds == "0" || !seconds.starts_with('0'));
        let is_drawn =
            random.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !is_canonical || !is_drawn {
            return None;
        }
        Some(Self { seconds: seconds.parse().ok()?, random: random.as_bytes().try_into().ok()? })
    }

    fn random(&self) -> &str {
        str::from_utf8(&self.random).expect("the random part is ASCII")
    }
}

macro_rules! prefixed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(IdStamp);

        impl $name {
            /// Draws a new random id. If the store already has this id, the write fails and the
            /// caller must draw another id.
            pub fn draw(now: Timestamp) -> Self {
                Self(IdStamp::draw(now))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}_{}"), self.0.seconds, self.0.random())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(value: &str) -> Result<Self, Self::Err> {
                value
                    .strip_prefix(concat!($prefix, "_"))
                    .and_then(IdStamp::parse)
                    .map(Self)
                    .ok_or_else(|| ParseIdError {
                        value: value.chars().take(64).collect(),
                        expected: concat!("an id like `", $prefix, "_1704123456_abc123def`"),
                    })
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(value: String) -> Result<Self, Self::Error> {
                value.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

prefixed_id!(/// Identifies a request.
    RequestId, "req");
prefixed_id!(/// Identifies a compiled plan.
    PlanId, "plan");
prefixed_id!(/// Identifies an execution.
    ExecutionId, "exec");
impl ExecutionId {
    /// Derives the id of a child execution. The same second and seed give the same id, so that a
    /// child starts only once.
    pub fn derive_child(now: Timestamp, seed: &str) -> Self {
        let mut left = fnv1a(seed.bytes());
        let random = std::array::from_fn(|index| {
            // Mixes the bits after each character, so that the last characters are as random as the
            // first.
            let letter = ALPHABET[usize::try_from(left % 36).unwrap_or(0)];
            left = (left / 36).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index as u64);
            letter as u8
        });
        Self(IdStamp { seconds: u64::try_from(now.timestamp()).unwrap_or(0), random })
    }
}

/// Returns the FNV-1a hash, which is the same on every machine.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

prefixed_id!(/// Identifies a worker from its start to its end.
    WorkerId, "work");
prefixed_id!(/// Identifies a command to an execution.
    CommandId, "cmd");
prefixed_id!(/// Identifies a call outside any plan.
    CallId, "call");
prefixed_id!(/// Identifies an audit entry.
    AuditId, "audit");
impl AuditId {
    /// Returns the id of the entry about the start of an execution. The id is derived from the
    /// execution's id, so that a repeated start or a restore writes no second entry.
    pub fn of_start(execution: ExecutionId) -> Self {
        Self(execution.0)
    }

    /// Returns the id of the entry about a command.
    pub fn of_command(command: CommandId) -> Self {
        Self(command.0)
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $is_valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name as a string.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(value: &str) -> Result<Self, Self::Err> {
                if !$is_valid(value) {
                    let value = value.chars().take(200).collect();
                    return Err(ParseIdError { value, expected: $expected });
                }
                Ok(Self(value.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(value: String) -> Result<Self, Self::Error> {
                value.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                (*name.0).to_owned()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(/// Names a step within its plan.
    StepId,
    "a step id: letters, digits, `_`, `-` and `.`, at most 128, and none of `item`, `index`, `vars`, `input`",
    is_step_id);
name!(/// Names a tool: `set.name` in a plan, or the plain name from its source.
    ToolName,
    "a tool name: 1 to 256 bytes without control characters",
    is_tool_name);
name!(/// Names an action or a tool in the toolkit graph.
    NodeName,
    "the name of an action or a tool: 1 to 256 bytes without control characters",
    is_tool_name);
name!(/// Names a toolset.
    ToolSetName,
    "a toolset name: letters, digits, `_`, `-`, at most 64",
    is_set_name);

/// Names that cannot be step ids, because they have another meaning in templates.
pub const RESERVED_STEP_IDS: [&str; 4] = ["item", "index", "vars", "input"];
/// The maximum number of characters of a step id.
pub const STEP_ID_LEN: usize = 128;

/// Returns `true` if a step id can contain `c`.
pub fn is_step_id_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_step_id(value: &str) -> bool {
    !value.is_empty()
        && value.chars().count() <= STEP_ID_LEN
        && value.chars().all(is_step_id_char)
        && !RESERVED_STEP_IDS.contains(&value)
}

fn is_tool_name(value: &str) -> bool {
    (1..=256).contains(&value.len()) && !value.chars().any(char::is_control)
}

fn is_set_name(value: &str) -> bool {
    (1..=64).contains(&value.len())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// A position in the log of an execution. Zero is the position before the first event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

#[expect(missing_docs, reason = "the other names need no comment")]
impl Seq {
    /// The position before the first event.
    pub const START: Self = Self(0);

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    #[must_use]
    pub const fn advance_by(self, n: usize) -> Self {
        Self(self.0 + n as u64)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of a claim on an execution. Appends of a worker with an older epoch fail.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the epoch of the next claim.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The number of an attempt, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(NonZeroU32);

#[expect(missing_docs, reason = "the other names need no comment")]
impl Attempt {
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// Returns the attempt after `n` attempts.
    pub const fn nth_after(n: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(n))
    }

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of a step: its index in the plan's topological order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepNumber(u32);

impl StepNumber {
    /// Numbers the step at `position`.
    ///
    /// # Panics
    ///
    /// If `position` does not fit into 32 bits. Plans are far smaller
    /// ([`crate::limits::PLAN_STEPS`]).
    pub fn new(position: usize) -> Self {
        Self(u32::try_from(position).expect("plans have far fewer steps than 2³²"))
    }

    /// Returns the position of the step.
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// Returns the next number. The plan may not have such a step.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A part of a step: the whole step, the call for one item, or a compensation of either.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(default)]
pub struct Part {
    /// The item's index in the list of a `forEach`.
    #[serde(rename = "index", alias = "item", skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// `true` for the compensation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undo: bool,
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Part {
    pub const WHOLE: Self = Self { item: None, undo: false };

    pub const fn for_item(index: u32) -> Self {
        Self { item: Some(index), undo: false }
    }

    #[must_use]
    pub const fn compensation(self) -> Self {
        Self { undo: true, ..self }
    }

    pub fn is_whole(&self) -> bool {
        *self == Self::WHOLE
    }
}

/// A unit of work: a step, or a part of a step.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    pub step: StepNumber,
    pub part: Part,
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Task {
    #[must_use]
    pub const fn for_item(self, index: u32) -> Self {
        Self { part: Part::for_item(index), ..self }
    }

    #[must_use]
    pub const fn compensation(self) -> Self {
        Self { part: self.part.compensation(), ..self }
    }
}

impl From<StepNumber> for Task {
    fn from(step: StepNumber) -> Self {
        Self { step, part: Part::WHOLE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_are_the_same_for_the_same_seed() {
        let now = Timestamp::from_timestamp(1_704_123_456, 0).unwrap();
        let id = ExecutionId::derive_child(now, "a/b/1");
        assert_eq!(id, ExecutionId::derive_child(now, "a/b/1"));
        assert_eq!(id.to_string().parse(), Ok(id));
        let many: std::collections::BTreeSet<_> =
            (0..10_000).map(|n| ExecutionId::derive_child(now, &format!("a/b/{n}"))).collect();
        assert_eq!(many.len(), 10_000);
    }

    #[test]
    fn a_printed_id_is_parsed_to_the_same_id() {
        let now = Timestamp::from_timestamp(1_704_123_456, 0).unwrap();
        let id = RequestId::draw(now);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(id.to_string().starts_with("req_1704123456_"), "{id}");
        assert_eq!(id.to_string().len(), "req_1704123456_abc123def".len());
    }

    #[test]
    fn malformed_ids_are_rejected() {
        for text in [
            "",
            "req_",
            "req_1_",
            "plan_1704123456_abc123def",
            "req_1704123456_abc123de",
            "req_1704123456_abc123defg",
            "req_1704123456_ABC123DEF",
            "req_x_abc123def",
            "req_01_abc123def",
            "req_99999999999999999999999_abc123def",
            "req_1_äbc123de",
        ] {
            assert!(text.parse::<RequestId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_step_id_with_forbidden_characters_is_rejected() {
        for good in ["a", "createAuthor", "flow.echo", "a-b_c.1", "größe"] {
            assert!(good.parse::<StepId>().is_ok(), "{good}");
        }
        for bad in ["", "a b", "item", "index", "vars", "input", "a/b", "a[0]"] {
            assert!(bad.parse::<StepId>().is_err(), "{bad}");
        }
        assert!("x".repeat(128).parse::<StepId>().is_ok());
        assert!("x".repeat(129).parse::<StepId>().is_err());
    }
}
