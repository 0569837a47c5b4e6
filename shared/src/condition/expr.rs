//! Compiled conditions: names are resolved, and macros and functions are recognized.

use std::{fmt, sync::Arc};

use super::{function::Function, value::ValueKind};

#[derive(Clone, Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Integer(i128),
    Double(f64),
    Text(String),
    /// The name of a type, such as `int` or `string`. `type(…)` returns such a name.
    Type(ValueKind),
    /// The value of a step or variable: an index into the condition's targets, and the name as
    /// written.
    Target(usize, Arc<str>),
    HasTarget(usize),
    Input,
    /// A macro's variable: its index among the variables of the enclosing macros, and its name.
    Local(usize, Arc<str>),
    Field(Box<Expr>, Key),
    Has(Box<Expr>, Key),
    Index(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Choice(Box<[Expr; 3]>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// A call: `function(…)` or `of.function(…)`. The receiver `of` is the first argument.
    Call(Function, Vec<Expr>),
    /// A match, `of.matches("pattern")`: an index into the condition's patterns.
    Matches(Box<Expr>, usize),
    List(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Loop(Box<Loop>),
}

/// A field's name. `is_quoted` is `true` for `of["key"]`, and `false` for `of.key`.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) is_quoted: bool,
}

/// An operator that always evaluates both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// A macro that visits each item of a list, or each key of a map.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub(super) kind: LoopKind,
    pub(super) range: Expr,
    /// The test of each item. It is `true` for a `map` without a test.
    pub(super) test: Expr,
    /// The expression whose values `map` or `filter` collects. `None` for other macros.
    pub(super) make: Option<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    /// `map` or `filter`, because the parser turns a `filter` into a `map`.
    Map,
}

impl LoopKind {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "all" => Self::All,
            "exists" => Self::Exists,
            "exists_one" | "existsOne" => Self::ExistsOne,
            "filter" | "map" => Self::Map,
            _ => return None,
        })
    }
}

impl Operator {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "in",
        }
    }

    fn is_arithmetic(self) -> bool {
        matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Remainder)
    }
}

impl Expr {
    /// Returns `true` if the result, or the result of one side of a choice, is certainly no
    /// boolean.
    pub(super) fn is_never_bool(&self) -> bool {
        match self {
            Self::Binary(operator, _, _) => operator.is_arithmetic(),
            Self::Call(function, _) => function.is_never_bool(),
            Self::Loop(of) => of.kind == LoopKind::Map,
            Self::Choice(parts) => parts[1].is_never_bool() || parts[2].is_never_bool(),
            Self::Null
            | Self::Integer(_)
            | Self::Double(_)
            | Self::Text(_)
            | Self::Type(_)
            | Self::Negate(_)
            | Self::List(_)
            | Self::Map(_) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_quoted { write!(f, "[{:?}]", self.name) } else { write!(f, ".{}", self.name) }
    }
}

/// Writes paths and literals as the source does. Abbreviates most other expressions, such as `… &&
/// …`.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Type(value) => f.write_str(value.type_name()),
            Self::Target(_, name) | Self::Local(_, name) => f.write_str(name),
            Self::Input => f.write_str("input"),
            Self::Field(of, key) => write!(f, "{of}{key}"),
            Self::Index(of, index) => write!(f, "{of}[{index}]"),
            Self::Call(function, _) => write!(f, "{}(…)", function.name()),
            Self::List(_) => f.write_str("[…]"),
            Self::Map(_) => f.write_str("{…}"),
            Self::HasTarget(_) | Self::Has(..) => f.write_str("has(…)"),
            Self::Matches(..) => f.write_str("matches(…)"),
            Self::Binary(operator, _, _) => write!(f, "… {} …", operator.as_str()),
            Self::And(..) => f.write_str("… && …"),
            Self::Or(..) => f.write_str("… || …"),
            Self::Not(of) => write!(f, "!{of}"),
            Self::Negate(of) => write!(f, "-{of}"),
            Self::Choice(_) => f.write_str("… ? … : …"),
            Self::Loop(of) => write!(f, "{}.{}(…)", of.range, of.kind.name()),
        }
    }
}

impl LoopKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Exists => "exists",
            Self::ExistsOne => "exists_one",
            Self::Map => "map",
        }
    }
}
