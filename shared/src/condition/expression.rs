use std::fmt;

use serde_json::{Map, Value};

use super::{ConditionError, ParsedSource, compile::NameSource, eval::Evaluation, output, shape};
use crate::template::{LookUpValues, Target};

pub const COMPUTE: &str = "flow.compute";

pub struct Expression(ParsedSource);

/// The reason why a text is not a valid expression, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    pub kind: ConditionError,
    /// The line and the column, counted from 1, if the reason concerns one place.
    pub place: Option<(usize, usize)>,
}

impl Expression {
    pub fn parse(source: &str, is_field: &dyn Fn(&str) -> bool) -> Result<Self, ExpressionError> {
        ParsedSource::parse(source, NameSource::Fields(is_field))
            .map(Self)
            .map_err(|kind| ExpressionError::locate(kind, source))
    }

    /// Returns the cost of compiling the expression's patterns. It limits the cost of a plan with
    /// many expressions.
    pub fn pattern_cost(&self) -> usize {
        self.0.pattern_cost()
    }

    /// Evaluates the expression over the fields of `values`. Returns a message for the plan's
    /// author if the evaluation fails, or if the result is too large.
    pub fn evaluate(&self, values: &Map<String, Value>) -> Result<Value, String> {
        let (fields, no_input) = (Fields(values), Value::Null);
        let mut evaluation = Evaluation::new(&self.0, &fields, &no_input);
        let result = evaluation.eval_expr(&self.0.expr).map_err(|fault| fault.to_string())?;
        output::to_json(&result)
    }
}

impl ExpressionError {
    /// Adds the place of the error in the source. Only syntax errors contain their place, so the
    /// places of other errors are searched for.
    fn locate(kind: ConditionError, source: &str) -> Self {
        let place = match &kind {
            ConditionError::Syntax { line, column, reason } => {
                let (line, column) = (*line, *column);
                // Removes the advice to write `steps[…]`, because `steps` exists only in
                // conditions.
                let reason = match reason.split_once("; write `steps[") {
                    Some((reason, _)) => format!("{reason}; give the value another name"),
                    None => reason.clone(),
                };
                let kind = ConditionError::Syntax { line, column, reason };
                return Self { kind, place: Some((line, column)) };
            }
            ConditionError::UnknownField { name } => shape::find_word(source, name, false),
            ConditionError::UnknownFunction { name } | ConditionError::Arguments { name, .. } => {
                shape::find_word(source, name, true)
            }
            ConditionError::ComputedPattern | ConditionError::Pattern { .. } => {
                shape::find_word(source, "matches", true)
            }
            _ => None,
        };
        Self { kind, place }
    }
}

/// Writes the place first, unless the reason contains the place.
impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, self.place) {
            (ConditionError::Syntax { .. }, _) | (_, None) => write!(f, "{}", self.kind),
            (kind, Some((line, column))) => write!(f, "line {line}, column {column}: {kind}"),
        }
    }
}

impl std::error::Error for ExpressionError {}

struct Fields<'a>(&'a Map<String, Value>);

impl LookUpValues for Fields<'_> {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Variable(name) => self.0.get(&**name),
            _ => None,
        }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.0.source).finish()
    }
}
