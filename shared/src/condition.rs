//! Expressions in the Common Expression Language (CEL). Parsing and evaluating are pure and
//! bounded, because a plan may be untrusted.

mod compile;
mod eval;
mod expr;
mod expression;
mod fault;
mod function;
mod lists;
mod number;
mod output;
mod pattern;
mod reads;
mod shape;
mod value;

use std::{fmt, sync::Arc};

use serde_json::Value;

pub use self::expression::{COMPUTE, Expression, ExpressionError};
use self::{
    compile::{Compiler, NameSource},
    eval::Evaluation,
    expr::Expr,
    pattern::Pattern,
    value::Val,
};
use crate::{
    limits,
    template::{LookUpValues, ResolveNames, Target},
};

/// A parsed condition. Two conditions are equal if their texts are equal.
#[derive(Clone)]
pub struct Condition(Arc<ParsedSource>);

struct ParsedSource {
    source: String,
    expr: Expr,
    targets: Vec<Target>,
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        line: usize,
        /// Column in characters, counted from 1.
        column: usize,
        reason: String,
    },
    /// A name that is neither a step nor a tool used by exactly one step.
    #[error("`{name}` names no step of the plan")]
    Unknown { name: String },
    #[error("`{name}` is not a field of `values`")]
    UnknownField { name: String },
    /// A step whose id contains a dot. Only `steps[…]` can name it.
    #[error("`{name}` has a dot in its name; write `steps[\"{name}\"]`")]
    Dotted {
        /// The step's id, or the name of its tool if it has no id.
        name: String,
    },
    #[error("there is no function `{name}`")]
    UnknownFunction { name: String },
    #[error("`{name}` takes {}", describe_arguments(*minimum, *maximum))]
    Arguments { name: String, minimum: usize, maximum: usize },
    /// `steps` or `vars` without a field.
    #[error("`{name}` has no value by itself; write `{name}.x` or `{name}[\"x\"]`")]
    Bare {
        /// Either `steps` or `vars`.
        name: &'static str,
    },
    /// `steps[…]` or `vars[…]` with a key that is not a literal string.
    #[error("`{name}[…]` needs a name in quotes, so that the plan shows which value it reads")]
    Computed { name: &'static str },
    /// `matches` with a pattern that is not a literal string.
    #[error("`matches` needs its pattern written out, as in `a.matches(\"^[a-z]+$\")`")]
    ComputedPattern,
    /// A pattern that is not a regular expression, or that is too large.
    #[error("the pattern of `matches`: {reason}")]
    Pattern { reason: String },
    #[error("expressions have no {feature}")]
    Unsupported { feature: String },
    /// The result can be neither true nor false.
    #[error("its value is neither true nor false; compare the value with something")]
    NeverBool,
    #[error("it has {bytes} bytes; the limit is {}", limits::CONDITION_BYTES)]
    TooLong { bytes: usize },
    #[error("its brackets nest deeper than {} levels", limits::CONDITION_DEPTH)]
    TooDeep,
    #[error(
        "it has more than {} operators, dots and brackets besides `&&` and `||`",
        limits::CONDITION_OPERATORS
    )]
    TooManyOperators,
}

impl Condition {
    pub fn parse(source: &str, names: &dyn ResolveNames) -> Result<Self, ConditionError> {
        let parsed = ParsedSource::parse(source, NameSource::Plan(names))?;
        if parsed.expr.is_never_bool() {
            return Err(ConditionError::NeverBool);
        }
        Ok(Self(Arc::new(parsed)))
    }

    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns the cost of compiling the condition's patterns. It limits the cost of a plan with
    /// many conditions.
    pub fn pattern_cost(&self) -> usize {
        self.0.pattern_cost()
    }

    pub fn targets(&self) -> &[Target] {
        &self.0.targets
    }

    /// Returns each path that the condition reads, as written in the condition's source, with the
    /// value at that path. Leaves out paths that depend on the item of a macro.
    pub fn values_read<'a>(
        &self,
        values: &'a dyn LookUpValues,
        input: &'a Value,
    ) -> Vec<(String, Option<&'a Value>)> {
        reads::values_read(&self.0, values, input)
    }

    /// Evaluates the condition. Returns a message for the plan's author if the evaluation fails.
    ///
    /// A step without a value in `values` has no output, so its value is null.
    pub fn evaluate(&self, values: &dyn LookUpValues, input: &Value) -> Result<bool, String> {
        let mut evaluation = Evaluation::new(&self.0, values, input);
        match evaluation.eval_expr(&self.0.expr) {
            Ok(Val::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("its value is {}, neither true nor false", other.kind())),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

impl ParsedSource {
    fn parse(source: &str, names: NameSource<'_>) -> Result<Self, ConditionError> {
        shape::check_source(source)?;
        let tree = parse_tree(source)?;
        let mut compiler = Compiler::new(names);
        let expr = compiler.compile_expr(&tree)?;
        let (targets, patterns) = compiler.into_parts();
        Ok(Self { source: source.to_owned(), expr, targets, patterns })
    }

    fn pattern_cost(&self) -> usize {
        self.patterns.iter().map(Pattern::compile_cost).sum()
    }
}

fn describe_arguments(minimum: usize, maximum: usize) -> String {
    match (minimum, maximum) {
        (1, 1) => "1 argument".to_owned(),
        (minimum, maximum) if minimum == maximum => format!("{minimum} arguments"),
        (minimum, maximum) if maximum == minimum + 1 => format!("{minimum} or {maximum} arguments"),
        (minimum, _) => {
            format!("at least {minimum} argument{}", if minimum == 1 { "" } else { "s" })
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

/// Parses a text that [`shape::check_source`] accepted.
///
/// The crate `cel` has two parsers. This function uses the parser that recurses little, because the
/// parser that ANTLR generated needs a megabyte of stack for four pairs of brackets.
fn parse_tree(source: &str) -> Result<cel::IdedExpr, ConditionError> {
    cel::parser::PrattParser::new().parse(source).map_err(|errors| first_error(&errors))
}

fn first_error(errors: &cel::ParseErrors) -> ConditionError {
    let Some(error) = errors.errors.first() else {
        return ConditionError::Syntax { line: 1, column: 1, reason: "it is not CEL".to_owned() };
    };
    let place = |position: isize| usize::try_from(position).unwrap_or(0).max(1);
    let reason = clarify_message(error.msg.trim_start_matches("Syntax error: "));
    ConditionError::Syntax { line: place(error.pos.0), column: place(error.pos.1), reason }
}

fn clarify_message(message: &str) -> String {
    if let Some(word) = message.strip_prefix("reserved identifier: ") {
        return format!("`{word}` is a word of CEL; write `steps[\"{word}\"]`");
    }
    if message.contains("'<EOF>'") || message.starts_with("mismatched input <EOF>") {
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
