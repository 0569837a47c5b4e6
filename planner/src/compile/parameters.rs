//! Checks parameters against the schemas of tools. Reports only errors that are certain.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use shared::{
    diagnostic::Diagnostic,
    json, limits,
    plan::StepNames,
    schema::{Budget, Schema, SchemaViolation, ViolationKind},
    template::{Template, has_braces},
};

use super::{
    Step, UNDO_PARAMETERS, compute,
    names::{Naming, shorten_name},
    place,
    report::{Report, WHOLE_DRAFT},
    tools::ToolChoice,
};
use crate::{
    rounded::{self, LargeIntegers},
    suggest::did_you_mean,
};

pub(super) struct CheckedParameters {
    pub(super) parameters: Arc<Value>,
    /// `true` if the parameters are as the author wrote them. A substitute is not checked.
    pub(super) is_as_written: bool,
}

pub(super) struct ByteBudget {
    bytes_left: usize,
    is_full: bool,
}

impl Default for ByteBudget {
    fn default() -> Self {
        Self { bytes_left: limits::PLAN_BYTES, is_full: false }
    }
}

impl ByteBudget {
    pub(super) fn read(
        &mut self,
        index: usize,
        field: &str,
        written: Option<&Value>,
        report: &mut Report,
    ) -> CheckedParameters {
        let Some(value) = read_value(index, field, written, report) else {
            return CheckedParameters {
                parameters: Arc::new(Value::Object(Map::new())),
                is_as_written: false,
            };
        };
        let bytes = json::json_size(&value);
        self.is_full |= bytes > self.bytes_left;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        CheckedParameters { parameters: Arc::new(value), is_as_written: true }
    }

    pub(super) fn check(&self, report: &mut Report) {
        if self.is_full {
            report.error(WHOLE_DRAFT, || {
                let message = format!("the plan has more than {} bytes", limits::PLAN_BYTES);
                Diagnostic::error("plan.too_large", "tools", message)
                    .with_help("put large data into files and pass their names")
            });
        }
    }
}

fn read_value(
    index: usize,
    field: &str,
    written: Option<&Value>,
    report: &mut Report,
) -> Option<Value> {
    let place = || place::field_path(index, field);
    let value = match written {
        None | Some(Value::Null) => return Some(Value::Object(Map::new())),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(value @ Value::Object(_)) => {
                read_from_text(index, field, text, &value, report);
                value
            }
            _ => {
                return report_not_an_object(
                    index,
                    field,
                    "a string that is not the JSON of an object",
                    report,
                );
            }
        },
        Some(value @ Value::Object(_)) if json::is_deeper_than(value, limits::JSON_DEPTH) => {
            report.error(index, || too_deep_error(place()));
            return None;
        }
        Some(value @ Value::Object(_)) => return Some(value.clone()),
        Some(other) => {
            return report_not_an_object(index, field, place::describe_kind(other), report);
        }
    };
    if json::is_deeper_than(&value, limits::JSON_DEPTH) {
        report.error(index, || too_deep_error(place()));
        return None;
    }
    Some(value)
}

fn read_from_text(index: usize, field: &str, text: &str, value: &Value, report: &mut Report) {
    report.warning(index, || {
        let message = "the parameters are a string, which was read as the JSON of an object";
        Diagnostic::warning("plan.parameters_as_text", place::field_path(index, field), message)
            .with_help("write the object itself")
    });
    let mut rounded = Vec::new();
    let integers = LargeIntegers::find(text.as_bytes());
    rounded::warn_of_input(value, &place::field_path(index, field), Some(&integers), &mut rounded);
    for warning in rounded {
        report.warning(index, || warning);
    }
}

fn too_deep_error(place: String) -> Diagnostic {
    let message = format!("the parameters nest deeper than {} levels", limits::JSON_DEPTH);
    Diagnostic::error("plan.too_large", place, message)
        .with_help("put such data into a file and pass its name")
}

fn report_not_an_object(
    index: usize,
    field: &str,
    kind: &str,
    report: &mut Report,
) -> Option<Value> {
    report.error(index, || {
        let message = format!("parameters must be an object, not {kind}");
        Diagnostic::error("plan.invalid_parameters", place::field_path(index, field), message)
            .with_help("write `{\"name\": value}`")
    });
    None
}

pub(super) fn check_all_calls(steps: &[Step<'_>], naming: &Naming<'_>, report: &mut Report) {
    // The source of a tool reports an invalid schema, so this check ignores it.
    let mut schemas: Schemas<'_> = BTreeMap::new();
    let mut budget = Budget::for_plan();
    for (index, step) in steps.iter().enumerate() {
        let main_call = (&step.tool_choice, &step.checked_parameters, "parameters");
        let undo = step.undo.as_ref().map(|compensation| {
            (&compensation.tool_choice, &compensation.checked_parameters, UNDO_PARAMETERS)
        });
        for (tool_choice, checked_parameters, field) in std::iter::once(main_call).chain(undo) {
            if checked_parameters.is_as_written && compute::is_compute(&tool_choice.tool) {
                compute::check_expression(
                    index,
                    field,
                    &checked_parameters.parameters,
                    &naming.names,
                    report,
                );
            }
            if let Some(schema) =
                tool_choice.input_schema().filter(|_| checked_parameters.is_as_written)
            {
                let parameters = &*checked_parameters.parameters;
                let names = &naming.names;
                let judge = CallChecker {
                    step_index: index,
                    field,
                    tool_choice,
                    schema,
                    parameters,
                    names,
                };
                judge.check_call(&mut schemas, &mut budget, report);
            }
        }
    }
}

type Schemas<'a> = BTreeMap<(bool, &'a str), Option<Schema>>;

struct CallChecker<'a> {
    step_index: usize,
    field: &'static str,
    tool_choice: &'a ToolChoice<'a>,
    schema: &'a Value,
    parameters: &'a Value,
    names: &'a StepNames,
}

impl<'a> CallChecker<'a> {
    fn check_call(&self, schemas: &mut Schemas<'a>, budget: &mut Budget, report: &mut Report) {
        let compiled = schemas
            .entry((self.tool_choice.plan.is_some(), self.tool_choice.tool.as_str()))
            .or_insert_with(|| {
                Schema::without_large_patterns(self.schema).ok().map(|(schema, _)| schema)
            });
        let Some(schema) = compiled.as_ref() else { return };
        let has_templates = has_braces(self.parameters);
        let misfits = schema.violations_where(self.parameters, budget, |violation| {
            !has_templates || self.is_certain(violation)
        });
        if misfits.iter().any(|violation| violation.kind == ViolationKind::Unchecked) {
            // Stops checking this tool, because the draft is invalid already and further checks
            // would cost as much again.
            *compiled = None;
        }
        for violation in misfits {
            self.report_violation(&violation, report);
        }
    }

    fn is_certain(&self, violation: &SchemaViolation) -> bool {
        let is_structural = !matches!(violation.kind, ViolationKind::Other);
        match self.parameters.pointer(&violation.at) {
            _ if violation.is_conditional => false,
            None => false,
            Some(text @ Value::String(_)) if has_braces(text) => {
                violation.kind == ViolationKind::Type && self.is_text(text)
            }
            Some(value) => is_structural || !has_braces(value),
        }
    }

    fn is_text(&self, text: &Value) -> bool {
        Template::parse(text, self.names)
            .is_ok_and(|template| !matches!(template, Template::Whole(_)))
    }

    fn report_violation(&self, violation: &SchemaViolation, report: &mut Report) {
        match &violation.kind {
            ViolationKind::Missing { property } if self.has_default(violation, property) => (),
            ViolationKind::Missing { property } => {
                report.error(self.step_index, || self.missing_error(violation, property));
            }
            ViolationKind::Unexpected { properties } => {
                for property in properties {
                    report.error(self.step_index, || self.unexpected_error(violation, property));
                }
            }
            ViolationKind::Type | ViolationKind::Unchecked | ViolationKind::Other => {
                report.error(self.step_index, || {
                    let place = self.place_of(&violation.at);
                    let diagnostic = Diagnostic::error(
                        "plan.invalid_parameters",
                        place,
                        shorten_name(&violation.message),
                    );
                    let schema = schema_at(self.schema, &violation.at);
                    match schema.and_then(|schema| schema.get("description")?.as_str()) {
                        Some(help) => diagnostic.with_help(shorten_name(help)),
                        None => diagnostic,
                    }
                });
            }
        }
    }

    fn has_default(&self, violation: &SchemaViolation, property: &str) -> bool {
        let schema = schema_at(self.schema, &violation.at)
            .and_then(|schema| schema.get("properties")?.get(property));
        self.tool_choice.plan.is_some()
            && schema.is_some_and(|schema| schema.get("default").is_some())
    }

    fn missing_error(&self, violation: &SchemaViolation, property: &str) -> Diagnostic {
        let place = format!("{}{}", self.place_of(&violation.at), place::key_path(property));
        let message = format!("`{}` needs `{property}`", self.tool_choice.tool);
        let diagnostic = Diagnostic::error("plan.missing_parameter", place, message);
        let schema = schema_at(self.schema, &violation.at)
            .and_then(|schema| schema.get("properties")?.get(property));
        match schema.and_then(describe_property) {
            Some(help) => diagnostic.with_help(help),
            None => diagnostic,
        }
    }

    fn unexpected_error(&self, violation: &SchemaViolation, property: &str) -> Diagnostic {
        let place = format!("{}{}", self.place_of(&violation.at), place::key_path(property));
        let message =
            format!("`{}` has no parameter `{}`", self.tool_choice.tool, shorten_name(property));
        let known_properties = schema_at(self.schema, &violation.at)
            .and_then(|schema| schema.get("properties")?.as_object());
        let known_names = || {
            known_properties
                .into_iter()
                .flat_map(|properties| properties.keys().map(String::as_str))
        };
        let help = did_you_mean(property, known_names()).unwrap_or_else(|| {
            let listed_names: Vec<_> =
                known_names().take(20).map(|name| format!("`{name}`")).collect();
            if listed_names.is_empty() {
                "it takes no parameters there".to_owned()
            } else {
                format!("it takes {}", listed_names.join(", "))
            }
        });
        Diagnostic::error("plan.invalid_parameters", place, message).with_help(help)
    }

    fn place_of(&self, pointer: &str) -> String {
        let inside = place::pointer_path(pointer, self.parameters);
        format!("tools[{}].{}{inside}", self.step_index, self.field)
    }
}

/// Returns the schema at a JSON pointer, if `properties` and `items` without references lead to it.
fn schema_at<'a>(schema: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(schema, |schema, token| {
        let token = token.replace("~1", "/").replace("~0", "~");
        let property = schema.get("properties").and_then(|properties| properties.get(&token));
        property.or_else(|| schema.get("items").filter(|items| items.is_object()))
    })
}

fn describe_property(schema: &Value) -> Option<String> {
    let kind = schema.get("type").and_then(Value::as_str);
    let text = schema.get("description").and_then(Value::as_str).map(shorten_name);
    match (kind, text) {
        (Some(kind), Some(text)) => Some(format!("{kind}: {text}")),
        (Some(kind), None) => Some(format!("of type {kind}")),
        (None, text) => text,
    }
}
