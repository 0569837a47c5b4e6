use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::document::Document;
use crate::http::{answer::is_json, encode_form};

/// The parameter with the whole body, if the fields of the body are not merged with the other
/// parameters.
pub(super) const BODY_PARAMETER: &str = "body";

/// The schema of a text body for which the document has no schema.
static TEXT_SCHEMA: LazyLock<Value> = LazyLock::new(|| json!({ "type": "string" }));

#[derive(Clone, Debug, Default)]
pub(super) enum Body {
    #[default]
    None,
    Whole {
        key: String,
        kind: BodyKind,
    },
    Fields {
        names: Vec<String>,
        kind: BodyKind,
        /// `true` if a body without fields is sent, too.
        is_required: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    Json(String),
    Form,
    Text(String),
}

#[derive(Debug)]
pub(super) struct DeclaredBody<'a> {
    pub(super) kind: BodyKind,
    pub(super) schema: Option<&'a Value>,
    pub(super) is_required: bool,
    pub(super) description: &'a str,
}

pub(super) fn read<'a>(
    document: &'a Document,
    operation: &'a Value,
) -> Result<Option<DeclaredBody<'a>>, String> {
    let Some(body) = operation.get("requestBody") else { return Ok(None) };
    let body = document.resolve(body)?;
    let content = body.get("content").and_then(Value::as_object);
    let Some(content) = content.filter(|content| !content.is_empty()) else { return Ok(None) };
    let find = |is: &dyn Fn(&str) -> bool| content.iter().find(|(kind, _)| is(kind));
    let plain = |kind: &str| kind.split(';').next().unwrap_or_default().trim().to_owned();
    let found = find(&|media| plain(media).eq_ignore_ascii_case("application/json"))
        // Accepts a merge patch as JSON, because it has the form of the object that it changes.
        .or_else(|| find(&|media| plain(media) == "application/merge-patch+json"))
        .or_else(|| find(&is_json))
        .or_else(|| find(&|media| plain(media) == "application/x-www-form-urlencoded"))
        .or_else(|| {
            content.iter().find(|(kind, about)| is_text(&plain(kind)) && is_plain(document, about))
        })
        .or_else(|| find(&|media| media == "*/*"));
    let Some((media, about)) = found else {
        let kinds = content.keys().map(|media| {
            let how =
                if is_text(&plain(media)) { " with a value that is not a string" } else { "" };
            format!("`{media}`{how}")
        });
        let kinds: Vec<_> = kinds.collect();
        return Err(format!("its body is {}, which is not supported", kinds.join(" or ")));
    };
    let kind = match plain(media).as_str() {
        "application/x-www-form-urlencoded" => BodyKind::Form,
        "*/*" => BodyKind::Json("application/json".to_owned()),
        _ if is_json(media) => BodyKind::Json(media.clone()),
        _ => BodyKind::Text(media.clone()),
    };
    let default_schema = matches!(kind, BodyKind::Text(_)).then(|| &*TEXT_SCHEMA);
    let declared_schema =
        about.get("schema").filter(|schema| default_schema.is_none() || has_constraints(schema));
    Ok(Some(DeclaredBody {
        kind,
        schema: declared_schema.or(default_schema),
        is_required: body.get("required") == Some(&Value::Bool(true)),
        description: body.get("description").and_then(Value::as_str).unwrap_or_default(),
    }))
}

fn is_text(media: &str) -> bool {
    media.starts_with("text/") || media == "application/xml"
}

/// Returns `true` for a body that is a text, or that has no schema. Other bodies cannot be written
/// as XML or CSV, because the document does not define the form of objects and lists.
fn is_plain(document: &Document, about: &Value) -> bool {
    let Some(schema) = about.get("schema").filter(|schema| has_constraints(schema)) else {
        return true;
    };
    let Ok(schema) = document.resolve(schema) else { return false };
    match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(kind), ..) => kind == "string" || *kind == json!(["string"]),
        (None, Some(Value::Array(values)), _) => values.iter().all(Value::is_string),
        (None, _, value) => value.is_some_and(Value::is_string),
    }
}

fn has_constraints(schema: &Value) -> bool {
    let words = |fields: &Map<String, Value>| {
        fields
            .keys()
            .any(|key| !matches!(key.as_str(), "description" | "title" | "example" | "examples"))
    };
    schema.as_object().is_some_and(words)
}

impl BodyKind {
    pub(super) fn media(&self) -> &str {
        match self {
            Self::Json(media) | Self::Text(media) => media,
            Self::Form => "application/x-www-form-urlencoded",
        }
    }

    fn write(&self, value: &Value) -> Vec<u8> {
        match (self, value) {
            (Self::Form, Value::Object(fields)) => encode_form(fields),
            (Self::Text(_), Value::String(text)) => text.clone().into_bytes(),
            (_, value) => value.to_string().into_bytes(),
        }
    }
}

impl Body {
    pub(super) fn write(&self, parameters: &Value) -> Option<(Vec<u8>, &str)> {
        match self {
            Self::None => None,
            Self::Whole { key, kind } => {
                parameters.get(key).map(|value| (kind.write(value), kind.media()))
            }
            Self::Fields { names, kind, is_required } => {
                let fields = names.iter().filter_map(|name| {
                    parameters.get(name).map(|value| (name.clone(), value.clone()))
                });
                let fields: Map<String, Value> = fields.collect();
                let is_sent = *is_required || !fields.is_empty();
                is_sent.then(|| (kind.write(&Value::Object(fields)), kind.media()))
            }
        }
    }
}
