use std::collections::{BTreeMap, BTreeSet};

use http_client::AddressScope;
use reqwest::Url;
use serde_json::{Map, Value, json};
use shared::id::ToolSetName;

use super::{
    body::{self, BODY_PARAMETER, Body},
    document::{Document, Servers},
    parameter::{self, DeclaredParameter, Parameter, ParameterLocation},
    schema::{Direction, SchemaConverter},
    security::{self, Credential, Security},
};
use crate::{
    http::HttpMethod,
    sources::offer::{
        MAX_TOOLS, UniqueNames, clip_description, name_from_identifier, name_from_text,
    },
};

/// Maximum number of nodes of all schemas of a document. A node has a few hundred bytes.
const MAX_TOTAL_NODES: usize = 240_000;
/// The fewest and the most nodes of one tool's schemas. Parameters get three quarters of these
/// nodes.
const NODE_LIMITS_PER_OPERATION: (usize, usize) = (40, 400);
const METHODS: [(&str, HttpMethod); 7] = [
    ("get", HttpMethod::Get),
    ("put", HttpMethod::Put),
    ("post", HttpMethod::Post),
    ("delete", HttpMethod::Delete),
    ("options", HttpMethod::Options),
    ("head", HttpMethod::Head),
    ("patch", HttpMethod::Patch),
];

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input_schema: Value,
    pub(super) output_schema: Option<Value>,
    pub(super) call: Call,
    pub(super) obstacle: Option<String>,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) verb: HttpMethod,
    pub(super) url: Url,
    pub(super) reach: AddressScope,
    pub(super) path: String,
    pub(super) parameters: Vec<(String, Parameter)>,
    pub(super) body: Body,
    pub(super) security: Security,
}

/// Returns the operations with at least one of the configured tags, or all operations if no tag is
/// configured. Leaves out operations that cannot be read. Fails if no server has a valid address,
/// or if more than [`MAX_TOOLS`] operations are left.
pub(super) fn operations(
    set: &ToolSetName,
    document: &Document,
    servers: &Servers,
    auth: &BTreeMap<String, Credential>,
    tags: &[String],
) -> Result<Vec<Operation>, String> {
    servers.url([document.root().get("servers"), first_server(document), None])?;
    let mut operations = Vec::new();
    let mut names = UniqueNames::new(set);
    let paths = document.root().get("paths").and_then(Value::as_object);
    let nodes = (MAX_TOTAL_NODES / count_operations(document).max(1))
        .clamp(NODE_LIMITS_PER_OPERATION.0, NODE_LIMITS_PER_OPERATION.1);
    for (path, item) in paths.into_iter().flatten().filter(|(path, _)| path.starts_with('/')) {
        let Ok(item) = document.resolve(item) else {
            tracing::warn!(%path, "a path of the document refers to nothing and is left out");
            continue;
        };
        for (method, verb) in METHODS {
            let Some(declaration) = item.get(method).filter(|declaration| declaration.is_object())
            else {
                continue;
            };
            if !has_tag(declaration, tags) {
                continue;
            }
            let base_name = operation_name(method, path, declaration);
            let reader =
                OperationReader { document, servers, auth, item, declaration, node_count: nodes };
            match reader.read(verb, path) {
                Ok(operation) => {
                    let name = names.take(&base_name);
                    operations.push(Operation { name, ..operation });
                }
                Err(error) => {
                    tracing::warn!(name = %base_name, %error, "an operation is left out");
                }
            }
            if operations.len() > MAX_TOOLS {
                return Err(format!(
                    "the document has more than {MAX_TOOLS} operations: choose some by `tags`"
                ));
            }
        }
    }
    Ok(operations)
}

fn count_operations(document: &Document) -> usize {
    let paths = document.root().get("paths").and_then(Value::as_object);
    let items = paths.into_iter().flatten().filter_map(|(_, item)| item.as_object());
    items.map(|item| METHODS.iter().filter(|(method, _)| item.contains_key(*method)).count()).sum()
}

fn first_server(document: &Document) -> Option<&Value> {
    let paths = document.root().get("paths")?.as_object()?;
    let items = paths.values().filter_map(Value::as_object);
    items
        .flat_map(|item| {
            item.values()
                .filter_map(|operation| operation.get("servers"))
                .chain(item.get("servers"))
        })
        .next()
}

fn has_tag(declaration: &Value, tags: &[String]) -> bool {
    let declared_tags = declaration.get("tags").and_then(Value::as_array);
    let mut declared_tags = declared_tags.into_iter().flatten().filter_map(Value::as_str);
    tags.is_empty() || declared_tags.any(|name| tags.iter().any(|tag| tag == name))
}

fn operation_name(method: &str, path: &str, declaration: &Value) -> String {
    let id = declaration.get("operationId").and_then(Value::as_str).and_then(name_from_identifier);
    if let Some(id) = id {
        return id.to_string();
    }
    let words: Vec<&str> =
        path.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let base_name = format!("{method}_{}", words.join("_"));
    name_from_text(&base_name).map_or_else(|| method.to_owned(), |name| name.to_string())
}

struct OperationReader<'a> {
    document: &'a Document,
    servers: &'a Servers,
    auth: &'a BTreeMap<String, Credential>,
    item: &'a Value,
    declaration: &'a Value,
    node_count: usize,
}

struct InputBuilder<'a> {
    schemas: SchemaConverter<'a>,
    properties: Map<String, Value>,
    required: Vec<String>,
    path_placeholders: BTreeSet<&'a str>,
}

impl<'a> OperationReader<'a> {
    fn read(&self, verb: HttpMethod, path: &'a str) -> Result<Operation, String> {
        let lists =
            [self.declaration, self.item, self.document.root()].map(|level| level.get("servers"));
        let (url, reach) = self.servers.url(lists)?;
        let mut input = InputBuilder {
            schemas: SchemaConverter::new(
                self.document,
                Direction::Request,
                self.node_count * 3 / 4,
            ),
            properties: Map::new(),
            required: Vec::new(),
            path_placeholders: find_placeholders(path).into_iter().collect(),
        };
        let mut obstacle = None;
        let mut parameters = Vec::new();
        for found in self.read_parameters(&mut obstacle)? {
            parameters.push(input.add_parameter(found));
        }
        let body = match body::read(self.document, self.declaration) {
            Ok(Some(body)) => input.add_body(self.document, body),
            Ok(None) => Body::None,
            Err(error) => {
                obstacle = Some(error);
                Body::None
            }
        };
        let placeholders = find_placeholders(path);
        let is_declared = |placeholder: &&str| {
            parameters.iter().any(|(_, parameter)| {
                parameter.location == ParameterLocation::Path && parameter.name == **placeholder
            })
        };
        if let Some(placeholder) = placeholders.iter().find(|placeholder| !is_declared(placeholder))
        {
            obstacle.get_or_insert_with(|| {
                format!("its path names `{placeholder}`, which is not a parameter")
            });
        }
        let security = security::choose_schemes(self.document, self.declaration, self.auth);
        let call = Call { verb, url, reach, path: path.to_owned(), parameters, body, security };
        let text =
            |key: &str| self.declaration.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut description =
            clip_description(format!("{}\n{}", text("summary"), text("description")).trim());
        if let Some(reason) = &obstacle {
            description = format!("{description}\n(It cannot be called: {reason}.)");
        }
        let description = description.trim().to_owned();
        let (input_schema, output_schema) = (input.into_schema(), self.output_schema());
        let name = String::new();
        Ok(Operation { name, description, input_schema, output_schema, call, obstacle })
    }

    fn read_parameters(
        &self,
        obstacle: &mut Option<String>,
    ) -> Result<Vec<DeclaredParameter<'a>>, String> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for level in [self.declaration, self.item] {
            let list = level.get("parameters").and_then(Value::as_array).into_iter().flatten();
            for declaration in list {
                let resolved = self.document.resolve(declaration)?;
                let text =
                    |key: &str| resolved.get(key).and_then(Value::as_str).unwrap_or_default();
                if !seen.insert((text("name"), text("in"))) {
                    continue;
                }
                match parameter::read(self.document, resolved) {
                    Ok(found) => all.extend(found),
                    Err(error) => *obstacle = Some(error),
                }
            }
        }
        Ok(all)
    }

    fn output_schema(&self) -> Option<Value> {
        let answers = self.declaration.get("responses")?.as_object()?;
        let status = ["200", "201", "202", "203", "2XX", "2xx"];
        let answer = status.into_iter().find_map(|status| answers.get(status))?;
        let content = self.document.resolve(answer).ok()?.get("content")?.as_object()?;
        let (_, media) = content.iter().find(|(kind, _)| crate::http::answer::is_json(kind))?;
        let mut schemas =
            SchemaConverter::new(self.document, Direction::Response, self.node_count / 4);
        let mut made = schemas.schema(media.get("schema")?);
        let defs = schemas.into_defs();
        if let (false, Value::Object(fields)) = (defs.is_empty(), &mut made) {
            fields.insert("$defs".to_owned(), Value::Object(defs));
        }
        Some(made)
    }
}

impl<'a> InputBuilder<'a> {
    /// Adds a parameter. Its name gets a suffix if another parameter has the name.
    fn add_parameter(&mut self, found: DeclaredParameter<'a>) -> (String, Parameter) {
        let DeclaredParameter { parameter, schema, description } = found;
        let place = match parameter.location {
            ParameterLocation::Path => "path",
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
            ParameterLocation::Cookie => "cookie",
        };
        let mut key = parameter.name.clone();
        let is_elsewhere = parameter.location != ParameterLocation::Path;
        while self.properties.contains_key(&key)
            || is_elsewhere && self.path_placeholders.contains(key.as_str())
        {
            key = format!("{key}_{place}");
        }
        let mut made = schema.map_or_else(|| json!({}), |schema| self.schemas.schema(schema));
        if let (false, Value::Object(fields)) = (description.is_empty(), &mut made) {
            fields.insert("description".to_owned(), json!(clip_description(description)));
        }
        self.add_property(key.clone(), made, parameter.is_required);
        (key, parameter)
    }

    fn add_property(&mut self, key: String, schema: Value, is_required: bool) {
        if is_required {
            self.required.push(key.clone());
        }
        self.properties.insert(key, schema);
    }

    fn add_body(&mut self, document: &'a Document, declaration: body::DeclaredBody<'a>) -> Body {
        let body::DeclaredBody { kind, schema, is_required, description } = declaration;
        let resolved = schema.and_then(|schema| document.resolve(schema).ok());
        if let Some(schema) = resolved.filter(|schema| self.is_mergeable(schema)) {
            let made = self.schemas.schema(schema);
            let needed = made.get("required").and_then(Value::as_array);
            let needed: Vec<&str> =
                needed.into_iter().flatten().filter_map(Value::as_str).collect();
            let Some(Value::Object(properties)) = made.get("properties") else { return Body::None };
            for (name, schema) in properties {
                let is_needed = is_required && needed.contains(&name.as_str());
                self.add_property(name.clone(), schema.clone(), is_needed);
            }
            return Body::Fields { names: properties.keys().cloned().collect(), kind, is_required };
        }
        let mut key = BODY_PARAMETER.to_owned();
        while self.properties.contains_key(&key) {
            key.push('_');
        }
        let mut made = schema.map_or_else(|| json!({}), |schema| self.schemas.schema(schema));
        if let (false, Value::Object(fields)) = (description.is_empty(), &mut made) {
            fields.entry("description").or_insert_with(|| json!(clip_description(description)));
        }
        self.add_property(key.clone(), made, is_required);
        Body::Whole { key, kind }
    }

    /// Returns `true` for an object that is never null, whose properties are known and share no
    /// name with a parameter. A `readOnly` property may share a name, because requests do not send
    /// it.
    fn is_mergeable(&self, schema: &Value) -> bool {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return false;
        };
        let has = |word: &&str| schema.get(*word).is_some();
        let is_open =
            schema.get("additionalProperties").is_some_and(|value| *value != json!(false));
        let is_object = schema.get("type").is_none_or(|kind| kind == "object");
        is_object
            && !is_open
            && !properties.is_empty()
            && schema.get("nullable") != Some(&json!(true))
            && !["allOf", "anyOf", "oneOf", "not", "patternProperties"].iter().any(has)
            && !properties.iter().any(|(name, schema)| {
                self.properties.contains_key(name) && !self.schemas.is_left_out(schema)
            })
    }

    fn into_schema(self) -> Value {
        let Self { schemas, properties, required, .. } = self;
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema["additionalProperties"] = json!(false);
        let defs = schemas.into_defs();
        if !defs.is_empty() {
            schema["$defs"] = Value::Object(defs);
        }
        schema
    }
}

fn find_placeholders(path: &str) -> Vec<&str> {
    let parts = path.split('{').skip(1);
    parts.filter_map(|part| part.split_once('}').map(|(placeholder, _)| placeholder)).collect()
}
