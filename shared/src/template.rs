//! Templates: values with holes that earlier outputs fill.
//!
//! A template is parsed once, when a plan is compiled or loaded. A string that is one whole
//! `{{step.path}}` keeps the type of what it finds; inside other text it is converted: strings as
//! they are, everything else as compact JSON. What a tool returned is data: it is never read as a
//! template again.

mod lex;
mod path;

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use self::lex::Token;
pub use self::path::{Path, PathError, Segment};
use crate::{
    id::{RESERVED_STEP_IDS, StepIx},
    json,
};

/// A JSON value, parsed, with its holes known.
#[derive(Clone, Debug, PartialEq)]
pub enum Template {
    /// A value without holes.
    Literal(Arc<Value>),
    /// A string that is one whole reference: the value found takes its place, type and all.
    Whole(Reference),
    /// A string with references in it.
    Text(Vec<Part>),
    /// An array with a hole somewhere.
    Array(Vec<Template>),
    /// An object with a hole somewhere.
    Object(Vec<(String, Template)>),
}

/// A piece of a string.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Text that stays.
    Literal(String),
    /// A hole.
    Reference(Reference),
}

/// What one pair of braces means.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Where to look.
    pub target: Target,
    /// Where in what is found.
    pub path: Path,
    /// The braces and all between them, as written: what stays when nothing is found.
    pub text: Arc<str>,
}

/// Where a reference looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The output of a step.
    Step(StepIx),
    /// A variable that output mappings fill.
    Variable(Arc<str>),
    /// What the execution was given: `{{input.x}}`.
    Input,
    /// The item of the list that a `forEach` is at.
    Item,
    /// The place of that item, from zero.
    Index,
}

/// Says what the names in templates mean.
pub trait Names {
    /// Returns the step whose id is `name`.
    fn step(&self, name: &str) -> Option<StepIx>;

    /// Returns the one step that uses the tool called `name`. Asked when no step has the name.
    fn tool(&self, name: &str) -> Option<StepIx>;
}

/// Fills holes.
pub trait Values {
    /// Returns what `target` stands for, if it is known.
    fn value(&self, target: &Target) -> Option<&Value>;
}

/// Something wrong with the braces in a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Where in the value: `.authorId`, `.tags[0]`, or nothing for the value itself.
    pub at: String,
    /// What is wrong.
    pub kind: TemplateErrorKind,
}

/// What is wrong with a pair of braces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateErrorKind {
    /// Between the braces is no path.
    #[error("`{text}` is not a template: {why}")]
    Invalid {
        /// The braces and all between them.
        text: String,
        /// What a path must not have.
        why: PathError,
    },
    /// The path begins with no known name.
    #[error("`{text}` names no step of the plan")]
    Unknown {
        /// The braces and all between them.
        text: String,
        /// The first name of the path.
        name: String,
    },
}

/// A rendered value, and what is worth knowing about how it came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The value.
    pub value: Value,
    /// The templates that found nothing and stand as they were written.
    pub unresolved: Vec<Arc<str>>,
}

impl Default for Template {
    fn default() -> Self {
        Self::literal(Value::Null)
    }
}

impl Template {
    /// Parses every string of `value`, at any depth, and collects everything that is wrong.
    pub fn parse(value: &Value, names: &dyn Names) -> Result<Self, Vec<TemplateError>> {
        Ok(Parser::parse(value, names)?.unwrap_or_else(|| Self::literal(value.clone())))
    }

    /// Parses a value that is kept as it is where it has no holes.
    pub fn of(value: &Arc<Value>, names: &dyn Names) -> Result<Self, Vec<TemplateError>> {
        Ok(Parser::parse(value, names)?.unwrap_or_else(|| Self::Literal(Arc::clone(value))))
    }

    fn literal(value: Value) -> Self {
        Self::Literal(Arc::new(value))
    }

    /// Calls `visit` with every reference.
    pub fn references(&self, visit: &mut dyn FnMut(&Reference)) {
        match self {
            Self::Literal(_) => (),
            Self::Whole(reference) => visit(reference),
            Self::Text(parts) => parts.iter().for_each(|part| {
                if let Part::Reference(reference) = part {
                    visit(reference);
                }
            }),
            Self::Array(items) => items.iter().for_each(|it| it.references(visit)),
            Self::Object(fields) => fields.iter().for_each(|(_, it)| it.references(visit)),
        }
    }

    /// Calls `change` with every reference, for steps whose numbers change.
    pub fn references_mut(&mut self, change: &mut dyn FnMut(&mut Reference)) {
        match self {
            Self::Literal(_) => (),
            Self::Whole(reference) => change(reference),
            Self::Text(parts) => parts.iter_mut().for_each(|part| {
                if let Part::Reference(reference) = part {
                    change(reference);
                }
            }),
            Self::Array(items) => items.iter_mut().for_each(|it| it.references_mut(change)),
            Self::Object(fields) => {
                for (_, it) in fields {
                    it.references_mut(change);
                }
            }
        }
    }

    fn has_holes(&self) -> bool {
        !matches!(self, Self::Literal(_))
    }

    /// Returns the value of a template without holes.
    fn into_value(self) -> Value {
        match self {
            Self::Literal(value) => Arc::unwrap_or_clone(value),
            _ => Value::Null,
        }
    }

    /// Fills the holes. A hole that nothing fills stays as it was written.
    ///
    /// Whatever is brought in has at most so many bytes in all, so that a small plan cannot become
    /// a large value.
    pub fn render(&self, values: &dyn Values, most_bytes: usize) -> Result<Rendered, TooMuch> {
        let mut filling = Filling { values, unresolved: Vec::new(), left: Some(most_bytes) };
        let value = filling.value(self);
        match filling.left {
            Some(_) => Ok(Rendered { value, unresolved: filling.unresolved }),
            None => Err(TooMuch),
        }
    }
}

/// The holes bring in more than they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the templates bring in too much")]
pub struct TooMuch;

/// Holes being filled.
struct Filling<'a> {
    values: &'a dyn Values,
    unresolved: Vec<Arc<str>>,
    /// How many bytes more may be brought in; nothing once there were too many.
    left: Option<usize>,
}

impl<'a> Filling<'a> {
    fn value(&mut self, template: &Template) -> Value {
        match template {
            Template::Literal(value) => (**value).clone(),
            Template::Whole(reference) => match self.find(reference) {
                Some(found) => found.clone(),
                None => Value::String(self.give_up(reference)),
            },
            Template::Text(parts) => Value::String(parts.iter().map(|it| self.part(it)).collect()),
            Template::Array(items) => items.iter().map(|it| self.value(it)).collect(),
            Template::Object(fields) => {
                let filled = fields.iter().map(|(key, it)| (key.clone(), self.value(it)));
                Value::Object(filled.collect::<Map<_, _>>())
            }
        }
    }

    fn part(&mut self, part: &Part) -> String {
        match part {
            Part::Literal(text) => text.clone(),
            Part::Reference(reference) => match self.find(reference) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => self.give_up(reference),
            },
        }
    }

    /// Returns what fills a hole; null once too much was brought in.
    fn find(&mut self, reference: &Reference) -> Option<&'a Value> {
        let found = reference.path.find(self.values.value(&reference.target)?)?;
        self.left = self.left.and_then(|left| left.checked_sub(json::bytes(found)));
        Some(if self.left.is_some() { found } else { &Value::Null })
    }

    fn give_up(&mut self, reference: &Reference) -> String {
        self.unresolved.push(Arc::clone(&reference.text));
        (*reference.text).to_owned()
    }
}

struct Parser<'a> {
    names: &'a dyn Names,
    /// The way to where it is; only written out for what is wrong.
    way: Vec<Way<'a>>,
    errors: Vec<TemplateError>,
}

#[derive(Clone, Copy)]
enum Way<'a> {
    Field(&'a str),
    Item(usize),
}

impl<'a> Parser<'a> {
    /// Returns the template, or nothing where the value is what it stands for.
    fn parse(
        value: &'a Value,
        names: &'a dyn Names,
    ) -> Result<Option<Template>, Vec<TemplateError>> {
        if !has_braces(value) {
            return Ok(None);
        }
        let mut parser = Self { names, way: Vec::new(), errors: Vec::new() };
        let template = parser.value(value);
        if parser.errors.is_empty() { Ok(Some(template)) } else { Err(parser.errors) }
    }

    fn value(&mut self, value: &'a Value) -> Template {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                let parsed = items.iter().enumerate();
                let parsed: Vec<_> = parsed.map(|(n, it)| self.inside(Way::Item(n), it)).collect();
                if parsed.iter().any(Template::has_holes) {
                    return Template::Array(parsed);
                }
                Template::literal(parsed.into_iter().map(Template::into_value).collect())
            }
            Value::Object(fields) => {
                let parsed: Vec<_> = fields
                    .iter()
                    .map(|(key, it)| (key.clone(), self.inside(Way::Field(key), it)))
                    .collect();
                if parsed.iter().any(|(_, it)| it.has_holes()) {
                    return Template::Object(parsed);
                }
                let fields = parsed.into_iter().map(|(key, it)| (key, it.into_value()));
                Template::literal(Value::Object(fields.collect()))
            }
            other => Template::literal(other.clone()),
        }
    }

    fn inside(&mut self, way: Way<'a>, value: &'a Value) -> Template {
        self.way.push(way);
        let template = self.value(value);
        self.way.pop();
        template
    }

    fn at(&self) -> String {
        let written = self.way.iter().map(|it| match it {
            Way::Field(key) => path::written(key),
            Way::Item(n) => format!("[{n}]"),
        });
        written.collect()
    }

    fn string(&mut self, text: &str) -> Template {
        if !text.contains("{{") {
            return Template::literal(Value::from(text));
        }
        let mut parts: Vec<Part> = Vec::new();
        for token in lex::tokens(text) {
            match token {
                Token::Text(text) => match parts.last_mut() {
                    Some(Part::Literal(last)) => last.push_str(text),
                    _ => parts.push(Part::Literal(text.to_owned())),
                },
                Token::Braces { whole, inner } => match self.reference(whole, inner) {
                    Ok(reference) => parts.push(Part::Reference(reference)),
                    Err(kind) => {
                        let at = self.at();
                        self.errors.push(TemplateError { at, kind });
                    }
                },
            }
        }
        match parts.len() {
            0 => Template::literal(Value::from("")),
            1 => match parts.swap_remove(0) {
                Part::Literal(text) => Template::literal(Value::String(text)),
                Part::Reference(reference) => Template::Whole(reference),
            },
            _ => Template::Text(parts),
        }
    }

    fn reference(&self, whole: &str, inner: &str) -> Result<Reference, TemplateErrorKind> {
        let inner = inner.trim();
        let text: Arc<str> = whole.into();
        let invalid = |why| TemplateErrorKind::Invalid { text: whole.to_owned(), why };
        let step = path::splits(inner)
            .find_map(|(name, rest)| Some((self.names.step(name)?, rest)))
            .or_else(|| self.tool(inner));
        if let Some((step, rest)) = step {
            let path = Path::parse(rest).map_err(invalid)?;
            return Ok(Reference { target: Target::Step(step), path, text });
        }
        let (name, rest) = path::head(inner).map_err(invalid)?;
        let path = Path::parse(rest).map_err(invalid)?;
        match (name, path.first_key()) {
            ("vars", Some(variable)) => {
                let target = Target::Variable(variable.into());
                Ok(Reference { target, path: path.without_first(), text })
            }
            ("input", _) => Ok(Reference { target: Target::Input, path, text }),
            ("item", _) => Ok(Reference { target: Target::Item, path, text }),
            ("index", _) => Ok(Reference { target: Target::Index, path, text }),
            _ => Err(TemplateErrorKind::Unknown { text: whole.to_owned(), name: name.to_owned() }),
        }
    }

    /// Returns the one step that uses the tool that is named, and the path behind the name. A
    /// reserved word never means a tool.
    fn tool<'t>(&self, inner: &'t str) -> Option<(StepIx, &'t str)> {
        let is_reserved = path::head(inner).is_ok_and(|(it, _)| RESERVED_STEP_IDS.contains(&it));
        let mut splits = path::splits(inner).filter(|_| !is_reserved);
        splits.find_map(|(name, rest)| Some((self.names.tool(name)?, rest)))
    }
}

/// Returns whether a template may stand anywhere in a value.
pub fn has_braces(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("{{"),
        Value::Array(items) => items.iter().any(has_braces),
        Value::Object(fields) => fields.values().any(has_braces),
        _ => false,
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

#[cfg(test)]
mod tests;
