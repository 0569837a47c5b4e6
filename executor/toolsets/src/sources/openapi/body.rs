//! The body of an operation.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::document::Document;
use crate::http::{answer::is_json, form};

/// The parameter that a body is, where it is not merged with the others.
pub(super) const BODY: &str = "body";

/// The schema of a text that a document says nothing of.
static TEXT: LazyLock<Value> = LazyLock::new(|| json!({ "type": "string" }));

/// The body of an operation.
#[derive(Clone, Debug, Default)]
pub(super) enum Body {
    /// Nothing.
    #[default]
    None,
    /// One parameter.
    Whole {
        /// Its name.
        key: String,
        /// Its media type.
        kind: Kind,
    },
    /// An object of parameters.
    Fields {
        /// Their names.
        names: Vec<String>,
        /// Its media type.
        kind: Kind,
        /// `true` if an empty body is sent, too.
        is_required: bool,
    },
}

/// The media type of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json(String),
    Form,
    Text(String),
}

/// The body of a document: how it is written, its schema, whether it must be there.
#[derive(Debug)]
pub(super) struct Written<'a> {
    pub(super) kind: Kind,
    pub(super) schema: Option<&'a Value>,
    pub(super) is_required: bool,
    pub(super) description: &'a str,
}

/// Reads the body of an operation, if it has one.
pub(super) fn read<'a>(
    document: &'a Document,
    operation: &'a Value,
) -> Result<Option<Written<'a>>, String> {
    let Some(body) = operation.get("requestBody") else { return Ok(None) };
    let body = document.resolve(body)?;
    let content = body.get("content").and_then(Value::as_object);
    let Some(content) = content.filter(|it| !it.is_empty()) else { return Ok(None) };
    let find = |is: &dyn Fn(&str) -> bool| content.iter().find(|(kind, _)| is(kind));
    let plain = |kind: &str| kind.split(';').next().unwrap_or_default().trim().to_owned();
    let found = find(&|it| plain(it).eq_ignore_ascii_case("application/json"))
        // Of the patches this is the one that is an object like what it changes.
        .or_else(|| find(&|it| plain(it) == "application/merge-patch+json"))
        .or_else(|| find(&is_json))
        .or_else(|| find(&|it| plain(it) == "application/x-www-form-urlencoded"))
        .or_else(|| {
            content.iter().find(|(kind, it)| is_text(&plain(kind)) && is_plain(document, it))
        })
        .or_else(|| find(&|it| it == "*/*"));
    let Some((media, about)) = found else {
        let kinds = content.keys().map(|it| {
            let how = if is_text(&plain(it)) { " that is more than a text" } else { "" };
            format!("`{it}`{how}")
        });
        let kinds: Vec<_> = kinds.collect();
        return Err(format!("its body is {}, which is not supported", kinds.join(" or ")));
    };
    let kind = match plain(media).as_str() {
        "application/x-www-form-urlencoded" => Kind::Form,
        "*/*" => Kind::Json("application/json".to_owned()),
        _ if is_json(media) => Kind::Json(media.clone()),
        _ => Kind::Text(media.clone()),
    };
    let unsaid = matches!(kind, Kind::Text(_)).then(|| &*TEXT);
    let said = about.get("schema").filter(|it| unsaid.is_none() || says_more(it));
    Ok(Some(Written {
        kind,
        schema: said.or(unsaid),
        is_required: body.get("required") == Some(&Value::Bool(true)),
        description: body.get("description").and_then(Value::as_str).unwrap_or_default(),
    }))
}

/// Returns whether a media type is written as text.
fn is_text(media: &str) -> bool {
    media.starts_with("text/") || media == "application/xml"
}

/// Returns whether what a document says of a content is that it is a text, or nothing: how objects
/// and lists are written as XML or CSV, it does not say.
fn is_plain(document: &Document, about: &Value) -> bool {
    let Some(schema) = about.get("schema").filter(|it| says_more(it)) else { return true };
    let Ok(schema) = document.resolve(schema) else { return false };
    match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(kind), ..) => kind == "string" || *kind == json!(["string"]),
        (None, Some(Value::Array(values)), _) => values.iter().all(Value::is_string),
        (None, _, value) => value.is_some_and(Value::is_string),
    }
}

/// Returns whether a schema says more than that there is something.
fn says_more(schema: &Value) -> bool {
    let words = |it: &Map<String, Value>| {
        it.keys()
            .any(|key| !matches!(key.as_str(), "description" | "title" | "example" | "examples"))
    };
    schema.as_object().is_some_and(words)
}

impl Kind {
    /// Returns the media type that a request says.
    pub(super) fn media(&self) -> &str {
        match self {
            Self::Json(media) | Self::Text(media) => media,
            Self::Form => "application/x-www-form-urlencoded",
        }
    }

    fn write(&self, value: &Value) -> Vec<u8> {
        match (self, value) {
            (Self::Form, Value::Object(fields)) => form(fields),
            (Self::Text(_), Value::String(text)) => text.clone().into_bytes(),
            (_, value) => value.to_string().into_bytes(),
        }
    }
}

impl Body {
    /// Writes the body of a call, and says which media type it is.
    pub(super) fn write(&self, parameters: &Value) -> Option<(Vec<u8>, &str)> {
        match self {
            Self::None => None,
            Self::Whole { key, kind } => {
                parameters.get(key).map(|it| (kind.write(it), kind.media()))
            }
            Self::Fields { names, kind, is_required } => {
                let fields = names
                    .iter()
                    .filter_map(|name| parameters.get(name).map(|it| (name.clone(), it.clone())));
                let fields: Map<String, Value> = fields.collect();
                let is_sent = *is_required || !fields.is_empty();
                is_sent.then(|| (kind.write(&Value::Object(fields)), kind.media()))
            }
        }
    }
}
