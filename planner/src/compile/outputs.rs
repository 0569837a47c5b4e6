//! Whether a template looks for something that a tool's output certainly does not have.

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    template::{Reference, Segment},
};

use super::{Step, names::clip, place, report::Report};
use crate::nearest::did_you_mean;

/// Warns where a reference looks for what the output schema rules out.
pub(super) fn check(
    (at, step): (usize, &Step<'_>),
    target: &Step<'_>,
    reference: &Reference,
    report: &mut Report,
) {
    let schema = target.choice.definition.and_then(|it| it.output_schema.as_ref());
    let Some(schema) = schema else { return };
    if let Some((missing, schema)) = ruled_out(schema, reference.path.segments()) {
        report.warning(at, || {
            let text = clip(&reference.text);
            let message =
                format!("`{text}`: the output of `{}` has no `{missing}`", target.choice.tool);
            let known = schema.get("properties").and_then(Value::as_object);
            let known = known.into_iter().flat_map(|it| it.keys().map(String::as_str));
            let help = did_you_mean(missing, known).unwrap_or_else(|| {
                let kind = schema.get("type").and_then(Value::as_str).unwrap_or("value");
                format!("there, the output is of type `{kind}`")
            });
            let place = place::template(at, &step.parameters, &reference.text);
            Diagnostic::warning("plan.path_not_in_output", place, message).with_help(help)
        });
    }
}

/// Returns the first part of a path that cannot be there, and the schema that says so.
///
/// Whatever is not plain (references, several types, patterns) is taken to allow everything.
fn ruled_out<'a>(mut schema: &'a Value, path: &'a [Segment]) -> Option<(&'a str, &'a Value)> {
    for segment in path {
        let (Segment::Key(key) | Segment::Quoted(key)) = segment;
        let is_index = matches!(segment, Segment::Key(_))
            && !key.is_empty()
            && key.bytes().all(|it| it.is_ascii_digit());
        if schema.get("$ref").is_some() {
            return None;
        }
        schema = match schema.get("type")?.as_str()? {
            "object" => match schema.get("properties").and_then(|it| it.get(key)) {
                Some(inner) => inner,
                None if is_closed(schema) => return Some((key, schema)),
                None => return None,
            },
            "array" if !is_index => return Some((key, schema)),
            "array" if schema.get("prefixItems").is_none() => schema.get("items")?,
            "string" | "number" | "integer" | "boolean" | "null" => return Some((key, schema)),
            _ => return None,
        };
    }
    None
}

fn is_closed(schema: &Value) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none()
}
