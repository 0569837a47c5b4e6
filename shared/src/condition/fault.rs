//! Evaluation errors. They are only formatted for a message.

use std::{borrow::Cow, fmt};

use super::{
    expr::{Expr, Operator},
    value::Kind,
};
use crate::limits;

#[derive(Clone, Debug)]
pub(super) enum Fault<'a> {
    /// The operations are used up. Unlike other faults, `&&` and `||` never hide this one.
    Exhausted,
    NotFilled(&'a Expr),
    /// An object without the field.
    Missing {
        of: &'a Expr,
        key: Cow<'a, str>,
        dotted: bool,
    },
    /// A value that is not an object, so it has no fields.
    NoFields {
        of: &'a Expr,
        is: Kind,
        key: Cow<'a, str>,
    },
    /// A list that is shorter than the index.
    TooShort {
        of: &'a Expr,
        index: i128,
        length: usize,
    },
    Kind {
        of: &'a Expr,
        is: Kind,
        needs: &'static str,
    },
    /// Operands that the operator does not take.
    Operands {
        left: (&'a Expr, Kind),
        operator: Operator,
        right: (&'a Expr, Kind),
    },
    Arithmetic {
        operator: Operator,
        why: &'static str,
    },
    Call {
        name: &'static str,
        of: Option<&'a Expr>,
        why: String,
    },
    /// A map with a duplicate key, or with a key of a wrong kind.
    Key {
        is: Kind,
        twice: bool,
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
            Self::Missing { of, key, dotted: true } => {
                write!(f, "`{of}` has no `{key}`; check `has({of}.{key})` first")
            }
            Self::Missing { of, key, dotted: false } => {
                write!(f, "`{of}` has no `{key}`; check `{key:?} in {of}` first")
            }
            Self::NoFields { of, is: Kind::Null, key } => {
                write!(
                    f,
                    "`{of}` is null, as is the output of a skipped step, and has no `{key}`; "
                )?;
                write!(f, "check `{of} != null` first")
            }
            Self::NoFields { of, is, key } => write!(f, "`{of}` is {is} and has no `{key}`"),
            Self::TooShort { of, index, length } => {
                write!(f, "`{of}` has no item {index}: there are {length}, counted from 0; ")?;
                write!(f, "check `size({of})` first")
            }
            Self::Kind { of, is, needs } => write!(f, "`{of}` is {is}, not {needs}"),
            Self::Operands { left: (left, is), operator, right: (right, other) } => {
                let operator = operator.as_str();
                write!(f, "`{operator}` takes no {}", Pair(*is, *other))?;
                write!(f, " (`{left}` {operator} `{right}`)")?;
                if operator == "in" && *other == Kind::Text {
                    write!(f, "; write `text.contains(part)`")?;
                }
                Ok(())
            }
            Self::Arithmetic { operator, why } => write!(f, "`{}`: {why}", operator.as_str()),
            Self::Call { name, of: Some(of), why } => write!(f, "`{name}` of `{of}`: {why}"),
            Self::Call { name, of: None, why } => write!(f, "`{name}`: {why}"),
            Self::Key { is: _, twice: true } => f.write_str("a map has one key twice"),
            Self::Key { is, twice: false } => write!(f, "{is} cannot be the key of a map"),
        }
    }
}

struct Pair(Kind, Kind);

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (self.0.to_string(), self.1.to_string());
        let bare = |kind: &str| kind.rsplit(' ').next().unwrap_or_default().to_owned();
        write!(f, "{} and {}", bare(&left), bare(&right))
    }
}
