//! Conditions: whether a step runs, said in the Common Expression Language (CEL).
//!
//! A condition is parsed when a plan is compiled or loaded, so that what cannot be meant is known
//! before anything runs, and told when everything it looks at is over. Both are pure, and both are
//! bounded: a plan may come from a stranger.

mod compile;
mod eval;
mod expr;
mod fault;
mod function;
mod number;
mod pattern;
mod shape;
mod value;

use std::{fmt, sync::Arc};

use serde_json::Value;

use self::{compile::Compiler, eval::Evaluation, expr::Expr, pattern::Pattern, value::Val};
use crate::{
    limits,
    template::{Names, Target, Values},
};

/// Whether a step runs, parsed. Two are equal if they are written alike.
#[derive(Clone)]
pub struct Condition(Arc<Parsed>);

struct Parsed {
    source: String,
    expr: Expr,
    targets: Vec<Target>,
    patterns: Vec<Pattern>,
}

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It is not CEL.
    #[error("line {line}, column {column}: {why}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        /// What is wrong there.
        why: String,
    },
    /// A name that is no step, nor a tool that exactly one step uses.
    #[error("`{name}` names no step of the plan")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A step whose id only `steps[…]` can name.
    #[error("`{name}` has a dot in its name; write `steps[\"{name}\"]`")]
    Dotted {
        /// The step, or the tool that exactly one step uses.
        name: String,
    },
    /// A function that there is not.
    #[error("there is no function `{name}`")]
    UnknownFunction {
        /// Its name.
        name: String,
    },
    /// Too many or too few arguments.
    #[error("`{name}` takes {takes} argument{}", if *takes == 1 { "" } else { "s" })]
    Arguments {
        /// The function.
        name: String,
        /// How many it takes.
        takes: usize,
    },
    /// `steps` or `vars` on its own.
    #[error("`{name}` is nothing on its own; write `{name}.x` or `{name}[\"x\"]`")]
    Bare {
        /// Which of the two.
        name: &'static str,
    },
    /// `steps[…]` with something that is only known when it runs.
    #[error("`{name}[…]` needs a name in quotes, so that the plan shows what is looked at")]
    Computed {
        /// `steps` or `vars`.
        name: &'static str,
    },
    /// A pattern that is only known when it runs.
    #[error("`matches` needs its pattern written out, as in `a.matches(\"^[a-z]+$\")`")]
    ComputedPattern,
    /// A pattern that is no regular expression, or too large a one.
    #[error("the pattern of `matches`: {why}")]
    Pattern {
        /// What is wrong with it.
        why: String,
    },
    /// A part of CEL that JSON has no use for.
    #[error("conditions have no {what}")]
    Unsupported {
        /// What was written.
        what: String,
    },
    /// It can never be true nor false.
    #[error("it gives neither true nor false; compare it with something")]
    NeverBool,
    /// It has too many bytes.
    #[error("it has {bytes} bytes, and may have {}", limits::CONDITION_BYTES)]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// Its brackets nest too deep.
    #[error("its brackets nest deeper than {}", limits::CONDITION_DEPTH)]
    TooDeep,
    /// It has too many operators.
    #[error(
        "it has more than {} operators, dots and brackets besides `&&` and `||`",
        limits::CONDITION_OPERATORS
    )]
    TooManyOperators,
}

impl Condition {
    /// Parses a condition; `names` says what the names in it mean.
    pub fn parse(source: &str, names: &dyn Names) -> Result<Self, ConditionError> {
        shape::check(source)?;
        let tree = tree(source)?;
        let mut compiler = Compiler::new(names);
        let expr = compiler.expr(&tree)?;
        if expr.is_never_bool() {
            return Err(ConditionError::NeverBool);
        }
        let (targets, patterns) = compiler.into_parts();
        Ok(Self(Arc::new(Parsed { source: source.to_owned(), expr, targets, patterns })))
    }

    /// Returns it as it was written.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns what compiling its patterns costs, so that a plan of very many has a bound.
    pub fn pattern_cost(&self) -> usize {
        self.0.patterns.iter().map(Pattern::compile_cost).sum()
    }

    /// Returns the steps and variables that it looks at, each once.
    pub fn targets(&self) -> &[Target] {
        &self.0.targets
    }

    /// Returns whether it holds. Err: why that cannot be told, for people.
    ///
    /// A step that `values` knows nothing of has no output, and stands for null.
    pub fn holds(&self, values: &dyn Values, input: &Value) -> Result<bool, String> {
        let mut evaluation = Evaluation::new(&self.0, values, input);
        match evaluation.value(&self.0.expr) {
            Ok(Val::Bool(it)) => Ok(it),
            Ok(other) => Err(format!("it gives {}, neither true nor false", other.kind())),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.source()).finish()
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())
    }
}

/// Parses what [`shape::check`] has let through.
///
/// Of the crate's two parsers this is the one that recurses little: the other one, made by ANTLR,
/// takes a megabyte of stack for four pairs of brackets.
fn tree(source: &str) -> Result<cel::IdedExpr, ConditionError> {
    cel::parser::PrattParser::new().parse(source).map_err(|errors| first_of(&errors))
}

fn first_of(errors: &cel::ParseErrors) -> ConditionError {
    let Some(error) = errors.errors.first() else {
        return ConditionError::Syntax { line: 1, column: 1, why: "it is not CEL".to_owned() };
    };
    let place = |it: isize| usize::try_from(it).unwrap_or(0).max(1);
    let why = said_better(error.msg.trim_start_matches("Syntax error: "));
    ConditionError::Syntax { line: place(error.pos.0), column: place(error.pos.1), why }
}

/// Says what the parser says in words for people, where its own are not.
fn said_better(message: &str) -> String {
    if let Some(word) = message.strip_prefix("reserved identifier: ") {
        return format!("`{word}` is a word of CEL; write `steps[\"{word}\"]`");
    }
    if message.contains("'<EOF>'") {
        return "it ends too early".to_owned();
    }
    match message {
        "invalid argument to has() macro" => "`has` needs a field, as in `has(a.b)`".to_owned(),
        "argument must be a simple name" => {
            "a name for the item comes first, as in `list.all(it, it > 0)`".to_owned()
        }
        other => other.split(" expecting ").next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
