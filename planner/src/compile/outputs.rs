//! Whether a template looks for something that an output certainly does not have, or that nobody
//! says it has.

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    template::{Reference, Segment, Target},
};

use super::{Step, names::clip, place, references::Site, report::Report};
use crate::nearest::{did_you_mean, nearest};

/// How many fields are named where none is near.
const LISTED: usize = 8;
/// What may declare fields elsewhere than in `properties`.
const OTHER_WORDS: [&str; 7] =
    ["$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"];

/// The field that has what an MCP server sent beside what the schema describes.
const BESIDE: &str = "$content";

/// What is known of an output, or of a part of one.
#[derive(Clone, Copy)]
enum Shape<'a> {
    /// What a schema says; nothing, where there is none.
    Of(Option<&'a Value>),
    /// The output of a loop: a list of what a schema says.
    ListOf(Option<&'a Value>),
}

/// Where a path ends.
enum End<'a> {
    /// At something of this shape.
    Found(Shape<'a>),
    /// Nowhere: this part of it cannot be there, because of this shape.
    Missing(&'a str, Shape<'a>),
    /// At something that may be there, though this shape says what is and does not say that.
    Undeclared(&'a str, Shape<'a>),
}

/// Warns where a reference looks for what the output rules out, or does not declare.
pub(super) fn check(
    steps: &[Step<'_>],
    site: &Site<'_>,
    list: Option<&Reference>,
    reference: &Reference,
    report: &mut Report,
) {
    let Some((whose, shape)) = looked_at(steps, site, list, &reference.target) else { return };
    let (code, says, missing, shape) = match shape.at(reference.path.segments()) {
        End::Found(_) => return,
        End::Missing(key, shape) => ("plan.path_not_in_output", "has no", key, shape),
        End::Undeclared(key, shape) => ("plan.path_not_declared", "declares no", key, shape),
    };
    report.warning(site.at, || {
        let text = clip(&reference.text);
        let message = format!("`{text}`: {whose} {says} `{}`", clip(missing));
        let place = site.place(&reference.text);
        Diagnostic::warning(code, place, message).with_help(shape.help(missing))
    });
}

/// Warns where what a step goes through is certainly no list.
pub(super) fn check_list(steps: &[Step<'_>], at: usize, list: &Reference, report: &mut Report) {
    let Target::Step(target) = list.target else { return };
    let target = &steps[target.get()];
    let End::Found(Shape::Of(Some(schema))) = target.shape().at(list.path.segments()) else {
        return;
    };
    let Some(kind) = plain_type(schema).filter(|it| *it != "array") else { return };
    report.warning(at, || {
        let message = format!(
            "`{}` is not a list: the output of `{}` has something of type `{kind}` there",
            clip(&list.text),
            target.choice.tool
        );
        let lists = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let list = lists.into_iter().find(|(_, it)| plain_type(it) == Some("array"));
        let help = list.map_or_else(
            || format!("`{}` fails with `step.not_a_list` when it runs", steps[at].id),
            |(name, _)| format!("perhaps its `{name}` is meant"),
        );
        Diagnostic::warning("plan.not_a_list", place::field(at, "forEach"), message).with_help(help)
    });
}

/// Returns whose output a target stands for, in words, and what is known of it.
fn looked_at<'a>(
    steps: &'a [Step<'_>],
    site: &Site<'_>,
    list: Option<&'a Reference>,
    target: &Target,
) -> Option<(String, Shape<'a>)> {
    match target {
        Target::Step(target) => {
            let step = &steps[target.get()];
            // What is undone of a loop is one item of it.
            let is_own = site.is_undo() && target.get() == site.at;
            let shape = if is_own { Shape::Of(step.choice.output_schema()) } else { step.shape() };
            Some((format!("the output of `{}`", step.choice.tool), shape))
        }
        Target::Item => Some(("the item".to_owned(), item_shape(steps, list?)?)),
        Target::Variable(_) | Target::Input | Target::Index => None,
    }
}

/// Returns what is known of the items that a step goes through.
fn item_shape<'a>(steps: &'a [Step<'_>], list: &'a Reference) -> Option<Shape<'a>> {
    let Target::Step(target) = list.target else { return None };
    match steps[target.get()].shape().at(list.path.segments()) {
        End::Found(Shape::ListOf(schema)) => Some(Shape::Of(schema)),
        End::Found(Shape::Of(Some(schema)))
            if plain_type(schema) == Some("array") && schema.get("prefixItems").is_none() =>
        {
            schema.get("items").map(|it| Shape::Of(Some(it)))
        }
        _ => None,
    }
}

impl Step<'_> {
    /// Returns what is known of the step's output.
    fn shape(&self) -> Shape<'_> {
        let schema = self.choice.output_schema();
        if self.for_each.is_some() { Shape::ListOf(schema) } else { Shape::Of(schema) }
    }
}

impl<'a> Shape<'a> {
    fn at(self, path: &'a [Segment]) -> End<'a> {
        let (schema, path) = match (self, path) {
            (Self::ListOf(_), []) => return End::Found(self),
            (Self::ListOf(schema), [first, rest @ ..]) if is_index(first) => (schema, rest),
            (Self::ListOf(_), [first, ..]) => return End::Missing(key(first), self),
            (Self::Of(schema), path) => (schema, path),
        };
        let Some(schema) = schema else { return End::Found(Self::Of(None)) };
        if path.first().is_some_and(|it| key(it) == BESIDE) {
            return End::Found(Self::Of(None));
        }
        walk(schema, path)
    }

    fn help(self, missing: &str) -> String {
        let Self::Of(Some(schema)) = self else {
            return "it is the list of what each item gave: take one of them, such as `[0]`, or go \
                    through it with `forEach`"
                .to_owned();
        };
        did_you_mean(missing, declared(schema)).unwrap_or_else(|| {
            let listed: Vec<_> =
                declared(schema).take(LISTED).map(|it| format!("`{it}`")).collect();
            match plain_type(schema).unwrap_or("value") {
                "object" if !listed.is_empty() => {
                    let more = if declared(schema).nth(LISTED).is_some() { ", …" } else { "" };
                    format!("it declares {}{more}", listed.join(", "))
                }
                kind => format!("there, it is of type `{kind}`"),
            }
        })
    }
}

/// Returns the names of the fields that a schema describes.
fn declared(schema: &Value) -> impl Iterator<Item = &str> {
    let fields = schema.get("properties").and_then(Value::as_object);
    fields.into_iter().flat_map(|it| it.keys().map(String::as_str))
}

/// Follows a path through a schema.
///
/// Whatever is not plain (references, several types, patterns) is taken to allow everything.
fn walk<'a>(mut schema: &'a Value, path: &'a [Segment]) -> End<'a> {
    let missing = |segment, schema| End::Missing(key(segment), Shape::Of(Some(schema)));
    for segment in path {
        let inner = match plain_type(schema) {
            Some("object") => match schema.get("properties").and_then(|it| it.get(key(segment))) {
                None if is_closed(schema) => return missing(segment, schema),
                None if is_undeclared(segment, schema) => {
                    return End::Undeclared(key(segment), Shape::Of(Some(schema)));
                }
                inner => inner,
            },
            Some("array") if !is_index(segment) => return missing(segment, schema),
            Some("array") if schema.get("prefixItems").is_none() => schema.get("items"),
            Some("string" | "number" | "integer" | "boolean" | "null") => {
                return missing(segment, schema);
            }
            _ => None,
        };
        let Some(inner) = inner else { return End::Found(Shape::Of(None)) };
        schema = inner;
    }
    End::Found(Shape::Of(Some(schema)))
}

/// Returns the one type that a schema allows, if it plainly says so.
fn plain_type(schema: &Value) -> Option<&str> {
    match schema.get("$ref") {
        Some(_) => None,
        None => schema.get("type")?.as_str(),
    }
}

fn key(segment: &Segment) -> &str {
    let (Segment::Key(key) | Segment::Quoted(key)) = segment;
    key
}

fn is_index(segment: &Segment) -> bool {
    let is_number = |it: &String| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    matches!(segment, Segment::Key(key) if is_number(key))
}

/// Returns whether a field is most probably not there: the schema says which are. One that says in
/// words of its own that there are others is believed, unless the name looks misspelt.
fn is_undeclared(segment: &Segment, schema: &Value) -> bool {
    if declared(schema).next().is_none() || OTHER_WORDS.iter().any(|it| schema.get(it).is_some()) {
        return false;
    }
    let says_more = ["additionalProperties", "unevaluatedProperties", "patternProperties"];
    let says_more = says_more.iter().any(|it| schema.get(it).is_some());
    !says_more || nearest(key(segment), declared(schema)).is_some()
}

fn is_closed(schema: &Value) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none()
}
