use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use http_client::{AddressScope, OutgoingRequest, parse_header};
use reqwest::{
    Url,
    header::{self, HeaderMap, HeaderValue},
};
use secrets::{Redaction, TextOrSecret, percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value};
use shared::tool::{Effect, ErrorCode, ToolError};

use super::HttpMethod;
use crate::template::{Template, text};

/// The value of `query` or `body` that stands for all parameters that the request does not name
/// elsewhere.
const REST_KEYWORD: &str = "rest";

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRun {
    #[serde(default)]
    method: HttpMethod,
    /// The address. The host cannot be a template.
    url: UrlTemplate,
    #[serde(default)]
    headers: NamedFields,
    #[serde(default)]
    query: Query,
    body: Option<Value>,
    pub(super) timeout_seconds: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct UrlTemplate {
    path: Template,
    query: Option<Template>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
struct NamedFields(Vec<(String, Field)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Template(Template),
    Secret(TextOrSecret),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
enum Query {
    NamedFields(NamedFields),
    Rest,
}

impl Default for Query {
    fn default() -> Self {
        Self::NamedFields(NamedFields::default())
    }
}

impl TryFrom<String> for UrlTemplate {
    type Error = String;

    fn try_from(settings: String) -> Result<Self, String> {
        let (path, query) = match settings.split_once('?') {
            Some((path, query)) => (path, Some(Template::parse(query))),
            None => (settings.as_str(), None),
        };
        let path = Template::parse(path);
        let head = path.leading_text();
        let rest = head.strip_prefix("http://").or_else(|| head.strip_prefix("https://"));
        let has_placeholders = path.parameters().next().is_some();
        let is_whole_host = rest.is_some_and(|host| host.contains('/') || !has_placeholders);
        let Some(url) = head.parse::<Url>().ok().filter(|_| is_whole_host) else {
            return Err(format!(
                "`{settings}` is not an address: write `http://` or `https://` and a host, which \
                 cannot be a template"
            ));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "an address must not contain credentials: put them into `headers`, as `{secret: …}`"
                    .to_owned(),
            );
        }
        Ok(Self { path, query })
    }
}

impl TryFrom<Map<String, Value>> for NamedFields {
    type Error = String;

    fn try_from(settings: Map<String, Value>) -> Result<Self, String> {
        let fields = settings.into_iter().map(|(name, value)| {
            let field = match TextOrSecret::try_from(value)
                .map_err(|err| format!("`{name}`: {err}"))?
            {
                TextOrSecret::Plain(text) => Field::Template(Template::parse(&text)),
                secret @ (TextOrSecret::Secret(_) | TextOrSecret::File(_)) => Field::Secret(secret),
            };
            Ok((name, field))
        });
        fields.collect::<Result<_, String>>().map(Self)
    }
}

impl TryFrom<Value> for Query {
    type Error = String;

    fn try_from(settings: Value) -> Result<Self, String> {
        match settings {
            Value::String(word) if word == REST_KEYWORD => Ok(Self::Rest),
            Value::Object(fields) => NamedFields::try_from(fields).map(Self::NamedFields),
            _ => Err("`query` is a map of fields, or `rest`".to_owned()),
        }
    }
}

impl HttpRun {
    fn iter_fields(&self) -> impl Iterator<Item = &Field> {
        let query = match &self.query {
            Query::NamedFields(fields) => fields.0.as_slice(),
            Query::Rest => &[],
        };
        self.headers.0.iter().chain(query).map(|(_, field)| field)
    }

    pub(crate) fn secrets(&self) -> Vec<&TextOrSecret> {
        let secrets = self.iter_fields().filter_map(|field| match field {
            Field::Template(_) => None,
            Field::Secret(text) => Some(text),
        });
        secrets.collect()
    }

    pub(crate) fn secrets_mut(&mut self) -> Vec<&mut TextOrSecret> {
        let query = match &mut self.query {
            Query::NamedFields(fields) => fields.0.as_mut_slice(),
            Query::Rest => &mut [],
        };
        let fields = self.headers.0.iter_mut().chain(query);
        let secrets = fields.filter_map(|(_, field)| match field {
            Field::Template(_) => None,
            Field::Secret(text) => Some(text),
        });
        secrets.collect()
    }

    pub(crate) fn effect(&self) -> Effect {
        self.method.effect()
    }

    pub(crate) fn parameter_names(&self) -> BTreeSet<String> {
        let fields = self.iter_fields().filter_map(|field| match field {
            Field::Template(template) => Some(template),
            Field::Secret(_) => None,
        });
        let templates = iter::once(&self.url.path).chain(&self.url.query).chain(fields);
        let mut names: BTreeSet<String> =
            templates.flat_map(Template::parameters).map(str::to_owned).collect();
        if let Some(body) = self.body.as_ref().filter(|body| *body != REST_KEYWORD) {
            collect_names(body, &mut names);
        }
        names
    }

    pub(crate) fn build_request(
        &self,
        parameters: &Value,
        redaction: &mut Redaction,
    ) -> Result<OutgoingRequest, ToolError> {
        let mut url = self.url.render(parameters)?;
        let mut headers = HeaderMap::new();
        for (name, field) in &self.headers.0 {
            let Some(value) = field.render(parameters, redaction)? else { continue };
            let (name, value) =
                parse_header(name, &value).map_err(|err| invalid_parameters_error(&err))?;
            headers.append(name, value);
        }
        let pairs = self.query_pairs(parameters, redaction)?;
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let body = match &self.body {
            None => None,
            Some(word) if word == REST_KEYWORD => {
                Some(Value::Object(self.unnamed_parameters(parameters)))
            }
            Some(body) => render_body(body, parameters),
        };
        let body = body.map(|body| encode_body(body, &mut headers)).transpose()?;
        Ok(OutgoingRequest {
            method: self.method.method(),
            url,
            headers,
            body,
            reach: AddressScope::Anywhere,
        })
    }

    fn query_pairs(
        &self,
        parameters: &Value,
        redaction: &mut Redaction,
    ) -> Result<Vec<(String, String)>, ToolError> {
        let mut pairs = Vec::new();
        match &self.query {
            Query::Rest => {
                for (name, value) in self.unnamed_parameters(parameters) {
                    add_pairs(&name, &value, &mut pairs);
                }
            }
            Query::NamedFields(fields) => {
                for (name, field) in &fields.0 {
                    match field {
                        Field::Template(template) if template.as_parameter().is_some() => {
                            let value =
                                template.as_parameter().and_then(|name| parameters.get(name));
                            add_pairs(name, value.unwrap_or(&Value::Null), &mut pairs);
                        }
                        field => {
                            let value = field.render(parameters, redaction)?;
                            pairs.extend(value.map(|value| (name.clone(), value)));
                        }
                    }
                }
            }
        }
        Ok(pairs)
    }

    fn unnamed_parameters(&self, parameters: &Value) -> Map<String, Value> {
        let named = self.parameter_names();
        let all = parameters.as_object().into_iter().flatten();
        all.filter(|(name, _)| !named.contains(*name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }
}

impl UrlTemplate {
    fn render(&self, parameters: &Value) -> Result<Url, ToolError> {
        let mut missing = None;
        let mut path = self.path.render_with(|name| {
            let value = parameters.get(name).filter(|value| !value.is_null()).map(text);
            let value = value.filter(|value| !value.is_empty());
            if value.is_none() {
                missing = Some(name.to_owned());
            }
            percent_encode(&value.unwrap_or_default())
        });
        if let Some(name) = missing {
            return Err(invalid_parameters_error(&format!(
                "`{name}` is part of the address and cannot be empty"
            )));
        }
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(invalid_parameters_error("`.` and `..` cannot be a part of the address"));
        }
        if let Some(query) = &self.query {
            let value = |name: &str| parameters.get(name).map(text).unwrap_or_default();
            path = format!("{path}?{}", query.render_with(|name| percent_encode(&value(name))));
        }
        path.parse()
            .map_err(|err| invalid_parameters_error(&format!("the address cannot be used: {err}")))
    }
}

impl Field {
    /// Renders a field. Returns `None` for a field that is only a parameter, if the parameter is
    /// absent.
    fn render(
        &self,
        parameters: &Value,
        redaction: &mut Redaction,
    ) -> Result<Option<String>, ToolError> {
        match self {
            Self::Template(template) => Ok(template.render(parameters)),
            Self::Secret(secret) => Ok(Some(secret.resolve(redaction)?)),
        }
    }
}

pub(crate) fn invalid_parameters_error(message: &str) -> ToolError {
    ToolError::new(ErrorCode::INVALID_PARAMETERS, message)
}

/// Adds a pair for a value, or for each item of a list. Leaves out null.
fn add_pairs(name: &str, value: &Value, pairs: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Array(items) => {
            let items = items.iter().filter(|item| !item.is_null());
            pairs.extend(items.map(|item| (name.to_owned(), text(item))));
        }
        one => pairs.push((name.to_owned(), text(one))),
    }
}

fn collect_names(body: &Value, names: &mut BTreeSet<String>) {
    match body {
        Value::String(text) => {
            names.extend(Template::parse(text).parameters().map(str::to_owned));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Object(fields) => fields.values().for_each(|field| collect_names(field, names)),
        _ => {}
    }
}

/// Renders a body. A string that is only a parameter keeps the parameter's type, and is left out if
/// the parameter is absent.
fn render_body(body: &Value, parameters: &Value) -> Option<Value> {
    Some(match body {
        Value::String(text) => {
            let template = Template::parse(text);
            return match template.as_parameter() {
                Some(name) => parameters.get(name).cloned(),
                None => template.render(parameters).map(Value::String),
            };
        }
        Value::Array(items) => {
            items.iter().filter_map(|item| render_body(item, parameters)).collect()
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields =
                fields.filter_map(|(k, field)| Some((k.clone(), render_body(field, parameters)?)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    })
}

fn encode_body(body: Value, headers: &mut HeaderMap) -> Result<Vec<u8>, ToolError> {
    let json = HeaderValue::from_static("application/json");
    let kind = headers.entry(header::CONTENT_TYPE).or_insert(json);
    let kind = kind.to_str().unwrap_or_default().to_ascii_lowercase();
    match body {
        Value::Object(fields) if kind.starts_with("application/x-www-form-urlencoded") => {
            Ok(encode_form(&fields))
        }
        Value::String(text) if !super::answer::is_json(&kind) => Ok(text.into_bytes()),
        body => serde_json::to_vec(&body).map_err(|err| invalid_parameters_error(&err.to_string())),
    }
}

pub(crate) fn encode_form(fields: &Map<String, Value>) -> Vec<u8> {
    let mut pairs = Vec::new();
    for (name, value) in fields {
        add_pairs(name, value, &mut pairs);
    }
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
    pairs.collect::<Vec<_>>().join("&").into_bytes()
}

pub(crate) fn resolve_headers(
    headers: &BTreeMap<String, TextOrSecret>,
    redaction: &mut Redaction,
) -> Result<HeaderMap, ToolError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let value = value.resolve(redaction)?;
        let (name, value) =
            parse_header(name, &value).map_err(|err| ToolError::failed(err).without_retry())?;
        map.append(name, value);
    }
    Ok(map)
}
