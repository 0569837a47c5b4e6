use serde_json::{Map, Value};
use shared::{
    condition::{COMPUTE, ConditionError, Expression, ExpressionError},
    diagnostic::Diagnostic,
    id::ToolName,
    limits,
    plan::StepNames,
    template::Template,
};

use super::{names::shorten_name, report::Report};
use crate::suggest::did_you_mean;

const EXPRESSION_FIELD: &str = "expression";
const VALUES_FIELD: &str = "values";

pub(super) fn is_compute(tool: &ToolName) -> bool {
    tool.as_str() == COMPUTE
}

pub(super) fn is_expression(path: &str) -> bool {
    path.strip_prefix('.') == Some(EXPRESSION_FIELD)
}

pub(super) fn is_in_expression(parameters: &Value, text: &str) -> bool {
    parameters
        .get(EXPRESSION_FIELD)
        .and_then(Value::as_str)
        .is_some_and(|source| source.contains(text))
}

/// Checks the expression of one call. `field` contains its parameters. If `values` is one whole
/// template, its fields are known at run time only, so they are not checked.
pub(super) fn check_expression(
    index: usize,
    field: &str,
    parameters: &Value,
    names: &StepNames,
    report: &mut Report,
) {
    let Some(written) = parameters.get(EXPRESSION_FIELD).filter(|written| written.is_string())
    else {
        return;
    };
    let place = || format!("tools[{index}].{field}.{EXPRESSION_FIELD}");
    let Ok(Template::Literal(source)) = Template::parse(written, names) else {
        return report.error(index, || template_in_expression_error(place()));
    };
    if !report.add_pattern_cost(0) {
        return report.error(index, || {
            let reason = "the patterns of earlier expressions and conditions have reached the limit \
                       of a plan";
            Diagnostic::error("plan.too_large", place(), reason)
                .with_help("use fewer patterns, or fewer repetitions in them")
        });
    }
    let none = Map::new();
    let fields = match parameters.get(VALUES_FIELD) {
        None | Some(Value::Null) => Some(&none),
        Some(values) => values.as_object(),
    };
    let is_field = |name: &str| fields.is_none_or(|fields| fields.contains_key(name));
    match Expression::parse(source.as_str().unwrap_or_default(), &is_field) {
        Ok(expression) => drop(report.add_pattern_cost(expression.pattern_cost())),
        Err(err) => {
            if matches!(err.kind, ConditionError::Pattern { .. }) {
                // Adds the cost of a rejected pattern, too, because rejecting a pattern costs as
                // much as compiling it.
                report.add_pattern_cost(limits::PATTERN_COST);
            }
            report.error(index, || wrong_expression_error(place(), &err, fields.unwrap_or(&none)));
        }
    }
}

fn template_in_expression_error(place: String) -> Diagnostic {
    let message = "an expression cannot contain templates";
    let help = "name the value in the expression, and write the template into `values`: \
                `{\"expression\": \"sum(prices)\", \"values\": {\"prices\": \"{{list.prices}}\"}}`";
    Diagnostic::error("plan.invalid_template", place, message).with_help(help)
}

fn wrong_expression_error(
    place: String,
    err: &ExpressionError,
    fields: &Map<String, Value>,
) -> Diagnostic {
    let help = match &err.kind {
        ConditionError::UnknownField { name } => {
            did_you_mean(name, fields.keys().map(String::as_str)).unwrap_or_else(|| {
                format!("add it: `\"values\": {{\"{name}\": …}}`", name = shorten_name(name))
            })
        }
        _ => "write CEL over the fields of `values`, such as `sum(prices) * 1.19`".to_owned(),
    };
    Diagnostic::error("plan.invalid_parameters", place, shorten_name(&err.to_string()))
        .with_help(help)
}
