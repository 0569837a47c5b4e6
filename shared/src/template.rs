//! Templates: JSON values with placeholders that earlier outputs fill. An output is data: it is
//! never parsed as a template.

mod lex;
mod path;

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use self::lex::Token;
pub use self::path::{Path, PathError, Segment};
use crate::{
    id::{RESERVED_STEP_IDS, StepNumber},
    json,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Template {
    Literal(Arc<Value>),
    /// A string that is one whole reference. The value replaces the string and keeps its type.
    Whole(Reference),
    Text(Vec<TemplatePart>),
    Array(Vec<Template>),
    /// An object that contains a reference at any depth.
    Object(Vec<(String, Template)>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum TemplatePart {
    Literal(String),
    Reference(Reference),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    pub target: Target,
    pub path: Path,
    /// The braces and their content, as written. This text stays in the result if the reference has
    /// no value.
    pub text: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Step(StepNumber),
    Variable(Arc<str>),
    Input,
    Item,
    /// The current item's index, counted from zero.
    Index,
}

pub trait ResolveNames {
    fn find_step(&self, name: &str) -> Option<StepNumber>;

    /// Returns the step that uses the tool `name`, if exactly one does. Called only if no step has
    /// the id `name`.
    fn find_tool_step(&self, name: &str) -> Option<StepNumber>;
}

pub trait LookUpValues {
    fn find_value(&self, target: &Target) -> Option<&Value>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The place in the value: `.authorId`, `.tags[0]`, or an empty string for the value itself.
    pub at: String,
    pub kind: TemplateErrorKind,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateErrorKind {
    #[error("`{text}` is not a template: {reason}")]
    Invalid { text: String, reason: PathError },
    #[error("`{text}` names no step of the plan")]
    Unknown { text: String, name: String },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub value: Value,
    /// The templates that had no value. They are in the result as written.
    pub unresolved: Vec<Arc<str>>,
}

impl Default for Template {
    fn default() -> Self {
        Self::literal(Value::Null)
    }
}

impl Template {
    /// Parses every string of `value`, at any depth. Returns all errors.
    pub fn parse(value: &Value, names: &dyn ResolveNames) -> Result<Self, Vec<TemplateError>> {
        Ok(Parser::parse(value, names)?.unwrap_or_else(|| Self::literal(value.clone())))
    }

    pub fn parse_shared(
        value: &Arc<Value>,
        names: &dyn ResolveNames,
    ) -> Result<Self, Vec<TemplateError>> {
        Ok(Parser::parse(value, names)?.unwrap_or_else(|| Self::Literal(Arc::clone(value))))
    }

    fn literal(value: Value) -> Self {
        Self::Literal(Arc::new(value))
    }

    pub fn visit_references(&self, visit: &mut dyn FnMut(&Reference)) {
        match self {
            Self::Literal(_) => (),
            Self::Whole(reference) => visit(reference),
            Self::Text(parts) => parts.iter().for_each(|part| {
                if let TemplatePart::Reference(reference) = part {
                    visit(reference);
                }
            }),
            Self::Array(items) => items.iter().for_each(|item| item.visit_references(visit)),
            Self::Object(fields) => {
                for (_, field) in fields {
                    field.visit_references(visit);
                }
            }
        }
    }

    pub fn update_references(&mut self, change: &mut dyn FnMut(&mut Reference)) {
        match self {
            Self::Literal(_) => (),
            Self::Whole(reference) => change(reference),
            Self::Text(parts) => parts.iter_mut().for_each(|part| {
                if let TemplatePart::Reference(reference) = part {
                    change(reference);
                }
            }),
            Self::Array(items) => items.iter_mut().for_each(|item| item.update_references(change)),
            Self::Object(fields) => {
                for (_, field) in fields {
                    field.update_references(change);
                }
            }
        }
    }

    fn has_references(&self) -> bool {
        !matches!(self, Self::Literal(_))
    }

    fn into_value(self) -> Value {
        match self {
            Self::Literal(value) => Arc::unwrap_or_clone(value),
            _ => Value::Null,
        }
    }

    /// Fills the placeholders. A reference without a value stays in the result as text.
    ///
    /// Fails if all inserted values together have more than `most_bytes`, so that a small plan
    /// cannot produce a large value.
    pub fn render(
        &self,
        values: &dyn LookUpValues,
        most_bytes: usize,
    ) -> Result<Rendered, RenderedTooLarge> {
        let mut renderer =
            Renderer { values, unresolved: Vec::new(), bytes_left: Some(most_bytes) };
        let value = renderer.render_value(self);
        match renderer.bytes_left {
            Some(_) => Ok(Rendered { value, unresolved: renderer.unresolved }),
            None => Err(RenderedTooLarge),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the templates insert too much")]
pub struct RenderedTooLarge;

struct Renderer<'a> {
    values: &'a dyn LookUpValues,
    unresolved: Vec<Arc<str>>,
    /// Number of bytes that can still be inserted. `None` after the limit was exceeded.
    bytes_left: Option<usize>,
}

impl<'a> Renderer<'a> {
    fn render_value(&mut self, template: &Template) -> Value {
        match template {
            Template::Literal(value) => (**value).clone(),
            Template::Whole(reference) => match self.find(reference) {
                Some(found) => found.clone(),
                None => Value::String(self.record_unresolved(reference)),
            },
            Template::Text(parts) => {
                Value::String(parts.iter().map(|part| self.render_part(part)).collect())
            }
            Template::Array(items) => items.iter().map(|item| self.render_value(item)).collect(),
            Template::Object(fields) => {
                let filled =
                    fields.iter().map(|(key, field)| (key.clone(), self.render_value(field)));
                Value::Object(filled.collect::<Map<_, _>>())
            }
        }
    }

    fn render_part(&mut self, part: &TemplatePart) -> String {
        match part {
            TemplatePart::Literal(text) => text.clone(),
            TemplatePart::Reference(reference) => match self.find(reference) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => self.record_unresolved(reference),
            },
        }
    }

    /// Returns the value of a reference. After the limit was exceeded, returns `null` instead,
    /// because the result is then discarded.
    fn find(&mut self, reference: &Reference) -> Option<&'a Value> {
        let found = reference.path.find(self.values.find_value(&reference.target)?)?;
        self.bytes_left =
            self.bytes_left.and_then(|bytes_left| bytes_left.checked_sub(json::json_size(found)));
        Some(if self.bytes_left.is_some() { found } else { &Value::Null })
    }

    fn record_unresolved(&mut self, reference: &Reference) -> String {
        self.unresolved.push(Arc::clone(&reference.text));
        (*reference.text).to_owned()
    }
}

struct Parser<'a> {
    names: &'a dyn ResolveNames,
    place: Vec<PlaceSegment<'a>>,
    errors: Vec<TemplateError>,
}

#[derive(Clone, Copy)]
enum PlaceSegment<'a> {
    Field(&'a str),
    Item(usize),
}

impl<'a> Parser<'a> {
    fn parse(
        value: &'a Value,
        names: &'a dyn ResolveNames,
    ) -> Result<Option<Template>, Vec<TemplateError>> {
        if !has_braces(value) {
            return Ok(None);
        }
        let mut parser = Self { names, place: Vec::new(), errors: Vec::new() };
        let template = parser.parse_value(value);
        if parser.errors.is_empty() { Ok(Some(template)) } else { Err(parser.errors) }
    }

    fn parse_value(&mut self, value: &'a Value) -> Template {
        match value {
            Value::String(text) => self.parse_string(text),
            Value::Array(items) => {
                let parsed = items.iter().enumerate();
                let parsed: Vec<_> = parsed
                    .map(|(n, item)| self.parse_inside(PlaceSegment::Item(n), item))
                    .collect();
                if parsed.iter().any(Template::has_references) {
                    return Template::Array(parsed);
                }
                Template::literal(parsed.into_iter().map(Template::into_value).collect())
            }
            Value::Object(fields) => {
                let parsed: Vec<_> = fields
                    .iter()
                    .map(|(key, field)| {
                        (key.clone(), self.parse_inside(PlaceSegment::Field(key), field))
                    })
                    .collect();
                if parsed.iter().any(|(_, field)| field.has_references()) {
                    return Template::Object(parsed);
                }
                let fields = parsed.into_iter().map(|(key, field)| (key, field.into_value()));
                Template::literal(Value::Object(fields.collect()))
            }
            other => Template::literal(other.clone()),
        }
    }

    fn parse_inside(&mut self, segment: PlaceSegment<'a>, value: &'a Value) -> Template {
        self.place.push(segment);
        let template = self.parse_value(value);
        self.place.pop();
        template
    }

    fn format_place(&self) -> String {
        let written = self.place.iter().map(|segment| match segment {
            PlaceSegment::Field(key) => path::format_key(key),
            PlaceSegment::Item(n) => format!("[{n}]"),
        });
        written.collect()
    }

    fn parse_string(&mut self, text: &str) -> Template {
        if !text.contains("{{") {
            return Template::literal(Value::from(text));
        }
        let mut parts: Vec<TemplatePart> = Vec::new();
        for token in lex::split_tokens(text) {
            match token {
                Token::Text(text) => match parts.last_mut() {
                    Some(TemplatePart::Literal(last)) => last.push_str(text),
                    _ => parts.push(TemplatePart::Literal(text.to_owned())),
                },
                Token::Braces { whole, inner } => match self.parse_reference(whole, inner) {
                    Ok(reference) => parts.push(TemplatePart::Reference(reference)),
                    Err(kind) => {
                        let place = self.format_place();
                        self.errors.push(TemplateError { at: place, kind });
                    }
                },
            }
        }
        match parts.len() {
            0 => Template::literal(Value::from("")),
            1 => match parts.swap_remove(0) {
                TemplatePart::Literal(text) => Template::literal(Value::String(text)),
                TemplatePart::Reference(reference) => Template::Whole(reference),
            },
            _ => Template::Text(parts),
        }
    }

    fn parse_reference(&self, whole: &str, inner: &str) -> Result<Reference, TemplateErrorKind> {
        let inner = inner.trim();
        let text: Arc<str> = whole.into();
        let invalid = |reason| TemplateErrorKind::Invalid { text: whole.to_owned(), reason };
        let step = path::split_names(inner)
            .find_map(|(name, rest)| Some((self.names.find_step(name)?, rest)))
            .or_else(|| self.find_tool(inner));
        if let Some((step, rest)) = step {
            let path = Path::parse(rest).map_err(invalid)?;
            return Ok(Reference { target: Target::Step(step), path, text });
        }
        let (name, rest) = path::split_first_name(inner).map_err(invalid)?;
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

    /// Finds the step that uses the named tool, and the path after the name. A reserved word is
    /// never a tool.
    fn find_tool<'t>(&self, inner: &'t str) -> Option<(StepNumber, &'t str)> {
        let is_reserved =
            path::split_first_name(inner).is_ok_and(|(name, _)| RESERVED_STEP_IDS.contains(&name));
        let mut splits = path::split_names(inner).filter(|_| !is_reserved);
        splits.find_map(|(name, rest)| Some((self.names.find_tool_step(name)?, rest)))
    }
}

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
