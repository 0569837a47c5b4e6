//! The body of an operation.

use serde_json::{Map, Value};

use super::document::Document;
use crate::tool::http::{answer::is_json, form};

/// The parameter that a body is, where it is not merged with the others.
pub(super) const BODY: &str = "body";

/// What an operation sends.
#[derive(Clone, Debug, Default)]
pub(super) enum Body {
    /// Nothing.
    #[default]
    None,
    /// One parameter.
    Whole {
        /// Its name.
        key: String,
        /// How it is written.
        kind: Kind,
    },
    /// An object of parameters.
    Fields {
        /// Their names.
        names: Vec<String>,
        /// How it is written.
        kind: Kind,
        /// Whether it is sent though there is nothing in it.
        is_required: bool,
    },
}

/// How a body is written: its media type.
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
        .or_else(|| find(&|it| it.starts_with("text/") || it == "application/xml"))
        .or_else(|| find(&|it| it == "*/*"));
    let Some((media, about)) = found else {
        let kinds: Vec<_> = content.keys().map(|it| format!("`{it}`")).collect();
        return Err(format!("its body is {}, which is not supported", kinds.join(" or ")));
    };
    let kind = match plain(media).as_str() {
        "application/x-www-form-urlencoded" => Kind::Form,
        "*/*" => Kind::Json("application/json".to_owned()),
        _ if is_json(media) => Kind::Json(media.clone()),
        _ => Kind::Text(media.clone()),
    };
    Ok(Some(Written {
        kind,
        schema: about.get("schema"),
        is_required: body.get("required") == Some(&Value::Bool(true)),
        description: body.get("description").and_then(Value::as_str).unwrap_or_default(),
    }))
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
