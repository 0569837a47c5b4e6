use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    template::{Reference, Segment, Target},
};

use super::{Step, names::shorten_name, place, report::Report, site::TemplateSite};
use crate::suggest::{did_you_mean, nearest};

/// Maximum number of fields that a message lists if none of them has a similar name.
const MAX_LISTED_FIELDS: usize = 8;
const OTHER_FIELD_KEYWORDS: [&str; 7] =
    ["$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"];

/// The field in which outputs of MCP servers have contents that the schema does not declare.
const CONTENT_FIELD: &str = "$content";

#[derive(Clone, Copy)]
enum Shape<'a> {
    Single(Option<&'a Value>),
    ListOf(Option<&'a Value>),
}

enum PathResult<'a> {
    Found(Shape<'a>),
    Missing(&'a str, Shape<'a>),
    /// The shape declares fields, but not this field. It may still exist.
    Undeclared(&'a str, Shape<'a>),
}

pub(super) fn check_outputs(
    steps: &[Step<'_>],
    site: &TemplateSite<'_>,
    list: Option<&Reference>,
    reference: &Reference,
    report: &mut Report,
) {
    let Some((whose, shape)) = describe_target(steps, site, list, &reference.target) else {
        return;
    };
    let (code, says, missing, shape) = match shape.follow_path(reference.path.segments()) {
        PathResult::Found(_) => return,
        PathResult::Missing(key, shape) => ("plan.path_not_in_output", "has no", key, shape),
        PathResult::Undeclared(key, shape) => ("plan.path_not_declared", "declares no", key, shape),
    };
    report.warning(site.step_index, || {
        let text = shorten_name(&reference.text);
        let message = format!("`{text}`: {whose} {says} `{}`", shorten_name(missing));
        let place = site.path_of(&reference.text);
        Diagnostic::warning(code, place, message).with_help(shape.suggest_field(missing))
    });
}

pub(super) fn check_list(steps: &[Step<'_>], index: usize, list: &Reference, report: &mut Report) {
    let Target::Step(target) = list.target else { return };
    let target = &steps[target.get()];
    let PathResult::Found(Shape::Single(Some(schema))) =
        target.output_shape().follow_path(list.path.segments())
    else {
        return;
    };
    let Some(kind) = single_type(schema).filter(|kind| *kind != "array") else { return };
    report.warning(index, || {
        let message = format!(
            "`{}` is not a list: the output of `{}` has something of type `{kind}` there",
            shorten_name(&list.text),
            target.tool_choice.tool
        );
        let lists = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let list = lists.into_iter().find(|(_, schema)| single_type(schema) == Some("array"));
        let help = list.map_or_else(
            || format!("`{}` fails with `step.not_a_list` when it runs", steps[index].id),
            |(name, _)| format!("did you mean its `{name}`?"),
        );
        Diagnostic::warning("plan.not_a_list", place::field_path(index, "forEach"), message)
            .with_help(help)
    });
}

fn describe_target<'a>(
    steps: &'a [Step<'_>],
    site: &TemplateSite<'_>,
    list: Option<&'a Reference>,
    target: &Target,
) -> Option<(String, Shape<'a>)> {
    match target {
        Target::Step(target) => {
            let step = &steps[target.get()];
            // The compensation of a loop runs for each item, so it sees the output of one item.
            let is_own_output = site.is_compensation() && target.get() == site.step_index;
            let shape = if is_own_output {
                Shape::Single(step.tool_choice.output_schema())
            } else {
                step.output_shape()
            };
            Some((format!("the output of `{}`", step.tool_choice.tool), shape))
        }
        Target::Item => Some(("the item".to_owned(), item_shape(steps, list?)?)),
        Target::Variable(_) | Target::Input | Target::Index => None,
    }
}

fn item_shape<'a>(steps: &'a [Step<'_>], list: &'a Reference) -> Option<Shape<'a>> {
    let Target::Step(target) = list.target else { return None };
    match steps[target.get()].output_shape().follow_path(list.path.segments()) {
        PathResult::Found(Shape::ListOf(schema)) => Some(Shape::Single(schema)),
        PathResult::Found(Shape::Single(Some(schema)))
            if single_type(schema) == Some("array") && schema.get("prefixItems").is_none() =>
        {
            schema.get("items").map(|items| Shape::Single(Some(items)))
        }
        _ => None,
    }
}

impl Step<'_> {
    fn output_shape(&self) -> Shape<'_> {
        let schema = self.tool_choice.output_schema();
        if self.for_each.is_some() { Shape::ListOf(schema) } else { Shape::Single(schema) }
    }
}

impl<'a> Shape<'a> {
    fn follow_path(self, path: &'a [Segment]) -> PathResult<'a> {
        let (schema, path) = match (self, path) {
            (Self::ListOf(_), []) => return PathResult::Found(self),
            (Self::ListOf(schema), [first, rest @ ..]) if is_index(first) => (schema, rest),
            (Self::ListOf(_), [first, ..]) => return PathResult::Missing(segment_key(first), self),
            (Self::Single(schema), path) => (schema, path),
        };
        let Some(schema) = schema else { return PathResult::Found(Self::Single(None)) };
        if path.first().is_some_and(|segment| segment_key(segment) == CONTENT_FIELD) {
            return PathResult::Found(Self::Single(None));
        }
        follow_schema(schema, path)
    }

    fn suggest_field(self, missing: &str) -> String {
        let Self::Single(Some(schema)) = self else {
            return "it is the list of the items' outputs: take one of them, such as `[0]`, or \
                    loop over it with `forEach`"
                .to_owned();
        };
        did_you_mean(missing, declared_fields(schema)).unwrap_or_else(|| {
            let listed: Vec<_> = declared_fields(schema)
                .take(MAX_LISTED_FIELDS)
                .map(|name| format!("`{name}`"))
                .collect();
            match single_type(schema).unwrap_or("value") {
                "object" if !listed.is_empty() => {
                    let more = if declared_fields(schema).nth(MAX_LISTED_FIELDS).is_some() {
                        ", …"
                    } else {
                        ""
                    };
                    format!("it declares {}{more}", listed.join(", "))
                }
                kind => format!("there, it is of type `{kind}`"),
            }
        })
    }
}

fn declared_fields(schema: &Value) -> impl Iterator<Item = &str> {
    let fields = schema.get("properties").and_then(Value::as_object);
    fields.into_iter().flat_map(|fields| fields.keys().map(String::as_str))
}

/// Follows a path through a schema. References, several types and patterns allow every field,
/// because they are not followed.
fn follow_schema<'a>(mut schema: &'a Value, path: &'a [Segment]) -> PathResult<'a> {
    let missing =
        |segment, schema| PathResult::Missing(segment_key(segment), Shape::Single(Some(schema)));
    for segment in path {
        let inner = match single_type(schema) {
            Some("object") => {
                match schema
                    .get("properties")
                    .and_then(|properties| properties.get(segment_key(segment)))
                {
                    None if is_closed(schema) => return missing(segment, schema),
                    None if is_undeclared(segment, schema) => {
                        return PathResult::Undeclared(
                            segment_key(segment),
                            Shape::Single(Some(schema)),
                        );
                    }
                    inner => inner,
                }
            }
            Some("array") if !is_index(segment) => return missing(segment, schema),
            Some("array") if schema.get("prefixItems").is_none() => schema.get("items"),
            Some("string" | "number" | "integer" | "boolean" | "null") => {
                return missing(segment, schema);
            }
            _ => None,
        };
        let Some(inner) = inner else { return PathResult::Found(Shape::Single(None)) };
        schema = inner;
    }
    PathResult::Found(Shape::Single(Some(schema)))
}

fn single_type(schema: &Value) -> Option<&str> {
    match schema.get("$ref") {
        Some(_) => None,
        None => schema.get("type")?.as_str(),
    }
}

fn segment_key(segment: &Segment) -> &str {
    let (Segment::Key(key) | Segment::Quoted(key)) = segment;
    key
}

fn is_index(segment: &Segment) -> bool {
    let is_number =
        |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    matches!(segment, Segment::Key(key) if is_number(key))
}

/// Returns whether a field most probably does not exist, because the schema lists other fields. If
/// the schema allows further fields, this is true only if the name looks misspelt.
fn is_undeclared(segment: &Segment, schema: &Value) -> bool {
    if declared_fields(schema).next().is_none()
        || OTHER_FIELD_KEYWORDS.iter().any(|word| schema.get(word).is_some())
    {
        return false;
    }
    let says_more = ["additionalProperties", "unevaluatedProperties", "patternProperties"];
    let says_more = says_more.iter().any(|word| schema.get(word).is_some());
    !says_more || nearest(segment_key(segment), declared_fields(schema)).is_some()
}

fn is_closed(schema: &Value) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none()
}
