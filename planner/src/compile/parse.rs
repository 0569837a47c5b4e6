//! Reads drafts from JSON by hand and not with `serde`, because an author needs all errors at the
//! same time, with their places and suggestions.

use serde_json::{Map, Value};
use shared::{diagnostic::Diagnostic, limits};

use super::{looping, names::shorten_name, place, report::Report, sub_plan};
use crate::{
    draft::{Draft, DraftCompensation, DraftRetry, DraftStep, SubDraft},
    rounded::{self, LargeIntegers},
    suggest::nearest_field,
};

pub(super) const DRAFT_FIELDS: [&str; 4] = ["query", "requestId", "tools", "executionOrder"];
pub(super) const STEP_FIELDS: [&str; 18] = [
    "id",
    "name",
    "toolName",
    "plan",
    "parameters",
    "dependsOn",
    "outputMapping",
    "retry",
    "timeoutMs",
    "onError",
    "requiresApproval",
    "when",
    "forEach",
    "maxParallel",
    "compensate",
    "idleTimeoutMs",
    "cacheTtlMs",
    "strictTemplates",
];
pub(super) const COMPENSATION_FIELDS: [&str; 5] =
    ["name", "toolName", "parameters", "retry", "timeoutMs"];
pub(super) const RETRY_FIELDS: [&str; 5] =
    ["maxAttempts", "backoffMs", "maxBackoffMs", "multiplier", "jitter"];

/// Reads a draft from JSON text. An error that leaves the draft readable becomes one of its
/// notices, so that the compiler reports it together with all other errors.
pub fn parse(text: &str) -> Result<Draft, Vec<Diagnostic>> {
    if text.len() > limits::PLAN_BYTES {
        let message = format!("the plan has more than {} bytes", limits::PLAN_BYTES);
        let help = "put large data into files and pass their names";
        return Err(vec![Diagnostic::error("plan.too_large", "", message).with_help(help)]);
    }
    let value = serde_json::from_str(text).map_err(|err| vec![not_json_error(&err)])?;
    let mut rounded = Vec::new();
    let integers = LargeIntegers::find(text.as_bytes());
    rounded::warn_of_input(&value, "", Some(&integers), &mut rounded);
    let mut draft = parse_value(value)?;
    draft.notices.extend(rounded);
    Ok(draft)
}

pub fn parse_value(value: Value) -> Result<Draft, Vec<Diagnostic>> {
    read(value, 0)
}

fn read(value: Value, level: u32) -> Result<Draft, Vec<Diagnostic>> {
    let mut report = Report::default();
    let draft = DraftReader { report: &mut report, step: 0, level }.read_draft(value);
    let notices = report.into_diagnostics();
    match draft {
        Some(draft) => Ok(Draft { notices, ..draft }),
        None => Err(notices),
    }
}

pub(super) fn read_compensation(
    index: usize,
    value: &Value,
    report: &mut Report,
) -> Option<DraftCompensation> {
    let mut found = Report::default();
    let mut reader = DraftReader { report: &mut found, step: index, level: 0 };
    let read = reader.read_compensation(&place::field_path(index, "compensate"), value.clone());
    found.into_diagnostics().into_iter().for_each(|diagnostic| report.error(index, || diagnostic));
    read
}

fn not_json_error(err: &serde_json::Error) -> Diagnostic {
    // `serde_json` has no error category for too deep nesting, so the text of the error decides.
    if err.to_string().starts_with("recursion limit exceeded") {
        return Diagnostic::error(
            "plan.too_large",
            "",
            format!("the JSON is nested too deeply: {err}"),
        )
        .with_help("put such data into a file and pass its name");
    }
    let help = if err.to_string().starts_with("trailing comma") {
        "remove the comma before this bracket"
    } else {
        "write `{\"tools\": [{\"name\": …, \"parameters\": {…}}]}`"
    };
    Diagnostic::error("plan.invalid_json", "", format!("the plan is not JSON: {err}"))
        .with_help(help)
}

struct DraftReader<'a> {
    report: &'a mut Report,
    step: usize,
    level: u32,
}

struct PlacedFields {
    place: String,
    fields: Map<String, Value>,
}

impl PlacedFields {
    fn is_text(&self, name: &str) -> bool {
        self.fields.get(name).is_none_or(|value| value.is_null() || value.is_string())
    }

    fn take_field(&mut self, name: &str) -> Option<(String, Value)> {
        let value = self.fields.get_mut(name).map(Value::take).filter(|value| !value.is_null())?;
        Some((format!("{}{name}", self.place), value))
    }
}

impl DraftReader<'_> {
    fn read_draft(&mut self, value: Value) -> Option<Draft> {
        let mut fields = self.read_object("", value)?;
        self.report_unknown(&mut fields, &DRAFT_FIELDS);
        let query = self.read_text(&mut fields, "query");
        let request_id = self.read_text(&mut fields, "requestId");
        let execution_order = fields.take_field("executionOrder").map(|(place, value)| {
            let names = self.read_list(&place, value).into_iter().enumerate();
            names
                .filter_map(|(n, value)| self.read_as_text(&format!("{place}[{n}]"), value))
                .collect()
        });
        let Some((place, tools)) = fields.take_field("tools") else {
            self.report_error("tools".to_owned(), "a plan must have a list of `tools`".to_owned());
            return None;
        };
        let is_list = tools.is_array();
        let steps = self.read_list(&place, tools).into_iter().enumerate();
        let steps: Vec<_> = steps.map(|(index, step)| self.read_step(index, step)).collect();
        let tools = steps.into_iter().collect::<Option<_>>().filter(|_| is_list)?;
        Some(Draft { query, request_id, tools, execution_order, notices: Vec::new() })
    }

    fn read_step(&mut self, index: usize, value: Value) -> Option<DraftStep> {
        self.step = index;
        let mut fields = self.read_object(&format!("tools[{index}]"), value)?;
        self.report_unknown(&mut fields, &STEP_FIELDS);
        let is_named = fields.is_text("name") && fields.is_text("toolName");
        let plan = fields.take_field("plan").map(|(place, plan)| self.read_sub_draft(&place, plan));
        let is_known = is_named && !matches!(plan, Some(None));
        let step = DraftStep {
            id: self.read_text(&mut fields, "id"),
            name: self.read_text(&mut fields, "name"),
            tool_name: self.read_text(&mut fields, "toolName"),
            plan: plan.flatten(),
            parameters: fields.take_field("parameters").map(|(_, value)| value),
            depends_on: fields.take_field("dependsOn").map(|(_, value)| value),
            output_mapping: self.read_mapping(&mut fields),
            retry: fields
                .take_field("retry")
                .and_then(|(place, value)| self.read_retry(&place, value)),
            timeout_ms: self.read_integer(&mut fields, "timeoutMs"),
            on_error: self.read_text(&mut fields, "onError"),
            requires_approval: self.read_flag(&mut fields, "requiresApproval"),
            when: self.read_text(&mut fields, "when"),
            for_each: fields
                .take_field("forEach")
                .and_then(|(place, value)| self.read_for_each(place, value)),
            max_parallel: self.read_integer(&mut fields, "maxParallel"),
            compensate: fields.take_field("compensate").map(|(_, value)| value),
            idle_timeout_ms: self.read_integer(&mut fields, "idleTimeoutMs"),
            cache_ttl_ms: self.read_integer(&mut fields, "cacheTtlMs"),
            strict_templates: self.read_flag(&mut fields, "strictTemplates"),
        };
        is_known.then_some(step)
    }

    fn read_sub_draft(&mut self, place: &str, value: Value) -> Option<SubDraft> {
        match value {
            Value::String(name) => Some(SubDraft::Named(name)),
            Value::Object(_) if self.level >= limits::ANCESTORS => {
                let step = self.step;
                self.report.error(step, || sub_plan::too_deep_error(step));
                None
            }
            Value::Object(_) => {
                let (draft, found) = match read(value, self.level + 1) {
                    Ok(mut draft) => {
                        let found = std::mem::take(&mut draft.notices);
                        (Some(draft), found)
                    }
                    Err(found) => (None, found),
                };
                let step = self.step;
                for diagnostic in found {
                    self.report.error(step, || sub_plan::with_step_path(step, diagnostic));
                }
                draft.map(|draft| SubDraft::Inline(Box::new(draft)))
            }
            other => {
                self.report_type(place, "the id or the name of a plan, or a plan", &other);
                None
            }
        }
    }

    fn read_for_each(&mut self, place: String, value: Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text),
            other => {
                self.report.error(self.step, || looping::not_a_template_error(place, &other));
                None
            }
        }
    }

    fn read_compensation(&mut self, place: &str, value: Value) -> Option<DraftCompensation> {
        let mut fields = self.read_object(place, value)?;
        self.report_unknown(&mut fields, &COMPENSATION_FIELDS);
        Some(DraftCompensation {
            name: self.read_text(&mut fields, "name"),
            tool_name: self.read_text(&mut fields, "toolName"),
            parameters: fields.take_field("parameters").map(|(_, value)| value),
            retry: fields
                .take_field("retry")
                .and_then(|(place, value)| self.read_retry(&place, value)),
            timeout_ms: self.read_integer(&mut fields, "timeoutMs"),
        })
    }

    fn read_retry(&mut self, place: &str, value: Value) -> Option<DraftRetry> {
        let mut fields = self.read_object(place, value)?;
        self.report_unknown(&mut fields, &RETRY_FIELDS);
        Some(DraftRetry {
            max_attempts: self.read_integer(&mut fields, "maxAttempts"),
            backoff_ms: self.read_integer(&mut fields, "backoffMs"),
            max_backoff_ms: self.read_integer(&mut fields, "maxBackoffMs"),
            multiplier: self.read_number(&mut fields, "multiplier"),
            jitter: self.read_flag(&mut fields, "jitter"),
        })
    }

    fn read_mapping(&mut self, fields: &mut PlacedFields) -> Option<Map<String, Value>> {
        match fields.take_field("outputMapping")? {
            (_, Value::Object(mapping)) => Some(mapping),
            (place, other) => {
                self.report.error(self.step, || {
                    let message = format!(
                        "an output mapping must be an object, not {}",
                        place::describe_kind(&other)
                    );
                    Diagnostic::error("plan.invalid_mapping", place, message)
                        .with_help("write `{\"path in the output\": \"variable\"}`")
                });
                None
            }
        }
    }

    fn read_object(&mut self, place: &str, value: Value) -> Option<PlacedFields> {
        let dot = if place.is_empty() { "" } else { "." };
        match value {
            Value::Object(fields) => Some(PlacedFields { place: format!("{place}{dot}"), fields }),
            other => {
                self.report_type(place, "an object", &other);
                None
            }
        }
    }

    fn read_list(&mut self, place: &str, value: Value) -> Vec<Value> {
        match value {
            Value::Array(items) => items,
            other => {
                self.report_type(place, "a list", &other);
                Vec::new()
            }
        }
    }

    fn read_text(&mut self, fields: &mut PlacedFields, name: &str) -> Option<String> {
        let (place, value) = fields.take_field(name)?;
        self.read_as_text(&place, value)
    }

    fn read_as_text(&mut self, place: &str, value: Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text),
            other => {
                self.report_type(place, "text", &other);
                None
            }
        }
    }

    fn read_integer(&mut self, fields: &mut PlacedFields, name: &str) -> Option<i64> {
        let (place, value) = fields.take_field(name)?;
        if value.as_i64().is_none() {
            self.report_type(&place, "a whole number", &value);
        }
        value.as_i64()
    }

    fn read_number(&mut self, fields: &mut PlacedFields, name: &str) -> Option<f64> {
        let (place, value) = fields.take_field(name)?;
        if value.as_f64().is_none() {
            self.report_type(&place, "a number", &value);
        }
        value.as_f64()
    }

    fn read_flag(&mut self, fields: &mut PlacedFields, name: &str) -> Option<bool> {
        let (place, value) = fields.take_field(name)?;
        if value.as_bool().is_none() {
            self.report_type(&place, "true or false", &value);
        }
        value.as_bool()
    }

    fn report_type(&mut self, place: &str, expected: &str, value: &Value) {
        let found = match value {
            Value::Number(number) => format!("`{number}`"),
            other => place::describe_kind(other).to_owned(),
        };
        self.report_error(place.to_owned(), format!("this must be {expected}, not {found}"));
    }

    fn report_error(&mut self, place: String, message: String) {
        self.report.error(self.step, || Diagnostic::error("plan.invalid_json", place, message));
    }

    /// Reports unknown fields. Reads a misspelt field as the field with the nearest name, so that
    /// errors inside it are reported, too.
    fn report_unknown(&mut self, fields: &mut PlacedFields, known_fields: &[&'static str]) {
        // A null field counts as absent, even if its name is unknown.
        let fields_with_values = fields.fields.iter().filter(|(_, value)| !value.is_null());
        let unknown = fields_with_values
            .map(|(name, _)| name)
            .filter(|name| !known_fields.contains(&name.as_str()));
        let unknown: Vec<String> = unknown.cloned().collect();
        for name in unknown {
            let suggestion = nearest_field(&name, known_fields);
            self.report.error(self.step, || {
                unknown_field_error(&fields.place, &name, suggestion, known_fields)
            });
            if let Some(suggestion) =
                suggestion.filter(|suggestion| !fields.fields.contains_key(*suggestion))
            {
                let value = fields.fields.get_mut(&name).map(Value::take).unwrap_or_default();
                fields.fields.insert(suggestion.to_owned(), value);
            }
        }
    }
}

fn unknown_field_error(
    place: &str,
    name: &str,
    suggestion: Option<&str>,
    known_fields: &[&str],
) -> Diagnostic {
    let inside = place::key_path(name);
    let place = match place.strip_suffix('.') {
        Some(outside) => format!("{outside}{inside}"),
        None => inside.trim_start_matches('.').to_owned(),
    };
    let help = if let Some(suggestion) = suggestion {
        format!("did you mean `{suggestion}`?")
    } else {
        let quoted_names: Vec<_> = known_fields.iter().map(|name| format!("`{name}`")).collect();
        format!("known are {}", quoted_names.join(", "))
    };
    let message = format!("there is no field `{}`", shorten_name(name));
    Diagnostic::error("plan.unknown_field", place, message).with_help(help)
}
