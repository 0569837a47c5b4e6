//! A condition as it is kept: names found, macros and functions known, nothing left to look up.

use std::{fmt, sync::Arc};

use super::{function::Function, value::Kind};

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Any other number.
    Double(f64),
    /// A string.
    Text(String),
    /// `int`, `string`: what `type(…)` gives.
    Type(Kind),
    /// What a step or a variable gave: a place in the condition's targets.
    Target(usize, Arc<str>),
    /// `has(steps.x)`, `has(vars.x)`.
    HasTarget(usize),
    /// The execution's input.
    Input,
    /// A name that a macro brought, by how many names were there before it.
    Local(usize, Arc<str>),
    /// `of.key` or `of["key"]`.
    Field(Box<Expr>, Key),
    /// `has(of.key)`.
    Has(Box<Expr>, Key),
    /// `of[index]`.
    Index(Box<Expr>, Box<Expr>),
    /// `!of`.
    Not(Box<Expr>),
    /// `-of`.
    Negate(Box<Expr>),
    /// `left && right`.
    And(Box<Expr>, Box<Expr>),
    /// `left || right`.
    Or(Box<Expr>, Box<Expr>),
    /// `when ? then : otherwise`.
    Choice(Box<[Expr; 3]>),
    /// `left operator right`.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `function(…)`, `of.function(…)`: what it is called on comes first.
    Call(Function, Vec<Expr>),
    /// `of.matches("pattern")`: a place in the condition's patterns.
    Matches(Box<Expr>, usize),
    /// `[…]`.
    List(Vec<Expr>),
    /// `{key: value, …}`.
    Map(Vec<(Expr, Expr)>),
    /// `range.all(name, body)` and its likes.
    Loop(Box<Loop>),
}

/// A field's name, and how it was written.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) quoted: bool,
}

/// An operator whose operands are always both looked at.
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

/// A macro that looks at each item of a list, or at each key of a map.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub(super) kind: LoopKind,
    pub(super) range: Expr,
    /// What each item is tested with; `true` for a `map` that takes all.
    pub(super) test: Expr,
    /// What `map` makes of an item; `filter` makes the item itself of it.
    pub(super) make: Option<Expr>,
}

/// What a macro asks of the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, and `filter`, which the parser makes a `map` of.
    Map,
}

impl LoopKind {
    /// Returns the macro that is called `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
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
    /// Returns how it is written.
    pub(super) fn text(self) -> &'static str {
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
    /// Returns whether it can be told without looking that it never is `true` or `false`.
    pub(super) fn is_never_bool(&self) -> bool {
        match self {
            Self::Binary(operator, _, _) => operator.is_arithmetic(),
            Self::Call(function, _) => function.is_never_bool(),
            Self::Loop(it) => it.kind == LoopKind::Map,
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
        if self.quoted { write!(f, "[{:?}]", self.name) } else { write!(f, ".{}", self.name) }
    }
}

/// Writes what is a path as it was written, and of everything else only what it is.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(it) => write!(f, "{it}"),
            Self::Integer(it) => write!(f, "{it}"),
            Self::Double(it) => write!(f, "{it:?}"),
            Self::Text(it) => write!(f, "{it:?}"),
            Self::Type(it) => f.write_str(it.type_name()),
            Self::Target(_, name) | Self::Local(_, name) => f.write_str(name),
            Self::Input => f.write_str("input"),
            Self::Field(of, key) => write!(f, "{of}{key}"),
            Self::Index(of, index) => write!(f, "{of}[{index}]"),
            Self::Call(function, _) => write!(f, "{}(…)", function.name()),
            Self::List(_) => f.write_str("[…]"),
            Self::Map(_) => f.write_str("{…}"),
            Self::HasTarget(_) | Self::Has(..) => f.write_str("has(…)"),
            Self::Matches(..) => f.write_str("matches(…)"),
            Self::Binary(operator, _, _) => write!(f, "… {} …", operator.text()),
            Self::And(..) => f.write_str("… && …"),
            Self::Or(..) => f.write_str("… || …"),
            Self::Not(of) => write!(f, "!{of}"),
            Self::Negate(of) => write!(f, "-{of}"),
            Self::Choice(_) => f.write_str("… ? … : …"),
            Self::Loop(it) => write!(f, "{}.{}(…)", it.range, it.kind.name()),
        }
    }
}

impl LoopKind {
    /// Returns how it is written.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Exists => "exists",
            Self::ExistsOne => "exists_one",
            Self::Map => "map",
        }
    }
}
