//! Errors of an evaluation. They borrow from the expression and become text only when a message is
//! needed.

use std::{borrow::Cow, fmt};

use super::{
    expr::{Expr, Operator},
    value::ValueKind,
};
use crate::limits;

#[derive(Clone, Debug)]
pub(super) enum Fault<'a> {
    /// The evaluation used up its operations. `&&` and `||` can hide all other faults, but not this
    /// fault.
    Exhausted,
    NotFilled(&'a Expr),
    Missing {
        operand: &'a Expr,
        key: Cow<'a, str>,
        is_dotted: bool,
    },
    NoFields {
        operand: &'a Expr,
        found_kind: ValueKind,
        key: Cow<'a, str>,
    },
    TooShort {
        operand: &'a Expr,
        index: i128,
        length: usize,
    },
    Kind {
        operand: &'a Expr,
        found_kind: ValueKind,
        needs: &'static str,
    },
    Operands {
        left: (&'a Expr, ValueKind),
        operator: Operator,
        right: (&'a Expr, ValueKind),
    },
    Arithmetic {
        operator: Operator,
        reason: &'static str,
    },
    Call {
        name: &'static str,
        operand: Option<&'a Expr>,
        reason: String,
    },
    /// The map has a duplicate key, or a key of a wrong kind.
    Key {
        found_kind: ValueKind,
        is_duplicate: bool,
    },
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted => write!(
                f,
                "it takes too many operations, more than {}; use fewer items, or let a step \
                 prepare them",
                limits::CONDITION_WORK
            ),
            Self::NotFilled(name) => {
                write!(f, "`{name}` has no value; check `has({name})` first")
            }
            Self::Missing { operand, key, is_dotted: true } => {
                write!(f, "`{operand}` has no `{key}`; check `has({operand}.{key})` first")
            }
            Self::Missing { operand, key, is_dotted: false } => {
                write!(f, "`{operand}` has no `{key}`; check `{key:?} in {operand}` first")
            }
            Self::NoFields { operand, found_kind: ValueKind::Null, key } => {
                write!(
                    f,
                    "`{operand}` is null, as is the output of a skipped step, and has no `{key}`; "
                )?;
                write!(f, "check `{operand} != null` first")
            }
            Self::NoFields { operand, found_kind, key } => {
                write!(f, "`{operand}` is {found_kind} and has no `{key}`")
            }
            Self::TooShort { operand, index, length } => {
                write!(f, "`{operand}` has no item {index}: there are {length}, counted from 0; ")?;
                write!(f, "check `size({operand})` first")
            }
            Self::Kind { operand, found_kind, needs } => {
                write!(f, "`{operand}` is {found_kind}, not {needs}")
            }
            Self::Operands { left: (left, found_kind), operator, right: (right, other) } => {
                let operator = operator.as_str();
                write!(f, "`{operator}` takes no {}", KindPair(*found_kind, *other))?;
                write!(f, " (`{left}` {operator} `{right}`)")?;
                if operator == "in" && *other == ValueKind::Text {
                    write!(f, "; write `text.contains(part)`")?;
                }
                Ok(())
            }
            Self::Arithmetic { operator, reason } => write!(f, "`{}`: {reason}", operator.as_str()),
            Self::Call { name, operand: Some(operand), reason } => {
                write!(f, "`{name}` of `{operand}`: {reason}")
            }
            Self::Call { name, operand: None, reason } => write!(f, "`{name}`: {reason}"),
            Self::Key { found_kind: _, is_duplicate: true } => {
                f.write_str("a map has one key twice")
            }
            Self::Key { found_kind, is_duplicate: false } => {
                write!(f, "{found_kind} cannot be the key of a map")
            }
        }
    }
}

struct KindPair(ValueKind, ValueKind);

impl fmt::Display for KindPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (self.0.to_string(), self.1.to_string());
        let bare = |kind: &str| kind.rsplit(' ').next().unwrap_or_default().to_owned();
        write!(f, "{} and {}", bare(&left), bare(&right))
    }
}
