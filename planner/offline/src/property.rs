//! What a parameter's name, type, format and description say about the words that fill it.

use serde_json::{Map, Value};

use super::words;

/// How deep a schema is read.
pub(super) const DEPTH: usize = 12;
/// How many objects inside objects are read.
const NESTED: usize = 3;
/// Parameters of a tool that are read.
const PROPERTIES: usize = 256;

/// What kind of words fill a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The identifier of a thing.
    Id,
    /// An e-mail address.
    Email,
    /// A web address.
    Url,
    /// A date, perhaps with a time.
    Date,
    /// A file or folder.
    Path,
    /// What somebody or something is called.
    Name,
    /// What a text is called.
    Title,
    /// What a text says.
    Content,
    /// Any other text.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Yes or no.
    Bool,
    /// One of the values of a list.
    Enum,
    /// Several values.
    List,
    /// Something that words cannot fill.
    Other,
}

/// A parameter in words.
#[derive(Clone, Debug)]
pub(super) struct Property {
    /// Its name.
    pub(super) name: String,
    /// The stems of its name.
    pub(super) words: Vec<String>,
    /// What kind of words fill it.
    pub(super) role: Role,
    /// What fills each item, of a list.
    pub(super) item: Role,
    /// Whether it must be there.
    pub(super) is_required: bool,
    /// Whether its value is a number, of an identifier or an item.
    pub(super) is_number: bool,
    /// Whether the schema says that it is a date, so that nothing else will do.
    pub(super) is_strict: bool,
    /// The values that it may have.
    pub(super) values: Vec<Value>,
    /// What kind of thing it identifies, where it says.
    pub(super) noun: Option<String>,
    /// What is said about it.
    pub(super) description: String,
    /// What it is where nobody says, by its schema.
    pub(super) default: Option<Value>,
    /// The fields of an object.
    pub(super) inside: Vec<Property>,
}

impl Property {
    /// Returns whether words fill it as they are.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.role, Role::Name | Role::Title | Role::Content | Role::Text | Role::Path)
    }

    /// Returns whether it takes a number.
    pub(super) fn is_numeric(&self) -> bool {
        matches!(self.role, Role::Number | Role::Integer)
    }
}

/// Reads the parameters of a schema, required ones first.
pub(super) fn read_all(schema: &Value) -> Vec<Property> {
    fields(schema, schema, 0)
}

fn fields(root: &Value, schema: &Value, depth: usize) -> Vec<Property> {
    let schema = resolve(root, schema, 0);
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|it| it.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut properties: Vec<Property> = fields
        .iter()
        .take(PROPERTIES)
        .map(|(name, it)| {
            let property = read(root, name, it, required.contains(&name.as_str()));
            let is_object = property.role == Role::Other && depth < NESTED;
            let inside = if is_object { self::fields(root, it, depth + 1) } else { Vec::new() };
            Property { inside, ..property }
        })
        .collect();
    properties.sort_by_key(|it| !it.is_required);
    properties
}

fn read(root: &Value, name: &str, schema: &Value, is_required: bool) -> Property {
    let own = |schema: &Value| schema.get("description").and_then(Value::as_str).map(str::to_owned);
    let (told, default) = (own(schema), schema.get("default").cloned());
    let schema = resolve(root, schema, 0);
    let told = told.filter(|it| !it.is_empty()).or_else(|| own(schema)).unwrap_or_default();
    let default = default.or_else(|| schema.get("default").cloned()).filter(|it| !it.is_null());
    let description = told.to_lowercase();
    let lower = words::split_identifier(name);
    let values = values(schema);
    let kind = kind(schema);
    let hints = Hints { words: &lower, description: &description, schema };
    let role = hints.role(kind, &values);
    let items = schema.get("items").map(|it| resolve(root, it, 0));
    let item = match items {
        Some(items) if role == Role::List => {
            Hints { words: &lower, description: &description, schema: items }
                .role(self::kind(items), &self::values(items))
        }
        _ => Role::Text,
    };
    let noun = if role == Role::Id { id_noun(&lower) } else { None };
    Property {
        name: name.to_owned(),
        words: lower.iter().map(|it| words::stem(it)).collect(),
        role,
        item,
        is_required,
        is_number: matches!(kind, "integer" | "number"),
        is_strict: schema.get("format").is_some(),
        values: if role == Role::List {
            items.map(self::values).unwrap_or_default()
        } else {
            values
        },
        noun,
        description: told,
        default,
        inside: Vec::new(),
    }
}

/// Follows `$ref` and takes the first branch that is not null.
fn resolve<'a>(root: &'a Value, schema: &'a Value, depth: usize) -> &'a Value {
    if depth > DEPTH {
        return schema;
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str)
        && let Some(found) = target.strip_prefix('#').and_then(|it| root.pointer(it))
    {
        return resolve(root, found, depth + 1);
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        let branch = schema.get(key).and_then(Value::as_array).and_then(|branches| {
            branches.iter().find(|it| it.get("type").and_then(Value::as_str) != Some("null"))
        });
        if let Some(branch) = branch
            && schema.get("type").is_none()
            && schema.get("properties").is_none()
        {
            return resolve(root, branch, depth + 1);
        }
    }
    schema
}

/// Returns the type that a schema names; a bare string is a type too, as some servers write it.
fn kind(schema: &Value) -> &str {
    match schema.get("type").unwrap_or(schema) {
        Value::String(kind) => kind,
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).find(|it| *it != "null").unwrap_or("string")
        }
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    }
}

fn values(schema: &Value) -> Vec<Value> {
    let listed = schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
    if listed.is_empty() && schema.get("oneOf").is_some() {
        let branches = schema.get("oneOf").and_then(Value::as_array);
        return branches.into_iter().flatten().filter_map(|it| it.get("const").cloned()).collect();
    }
    listed
}

struct Hints<'a> {
    words: &'a [String],
    description: &'a str,
    schema: &'a Value,
}

impl Hints<'_> {
    fn role(&self, kind: &str, values: &[Value]) -> Role {
        if !values.is_empty() {
            return Role::Enum;
        }
        match kind {
            "array" => Role::List,
            "boolean" => Role::Bool,
            "object" | "null" => Role::Other,
            "integer" | "number" if self.is_id() => Role::Id,
            "integer" => Role::Integer,
            "number" => Role::Number,
            _ => self.text_role(),
        }
    }

    fn text_role(&self) -> Role {
        match self.schema.get("format").and_then(Value::as_str).unwrap_or_default() {
            "email" | "idn-email" => return Role::Email,
            "uri" | "url" | "uri-reference" | "iri" => return Role::Url,
            "date" | "date-time" => return Role::Date,
            "uuid" => return Role::Id,
            _ => (),
        }
        if self.is_id() {
            return Role::Id;
        }
        let last = self.words.last().map_or("", String::as_str);
        match last {
            "email" | "mail" => Role::Email,
            "url" | "uri" | "link" | "href" | "website" => Role::Url,
            "date" | "day" | "deadline" | "birthday" => Role::Date,
            "path" | "file" | "filename" | "filepath" | "folder" | "directory" | "dir" => {
                Role::Path
            }
            "title" | "subject" | "headline" | "heading" => Role::Title,
            "name" | "username" | "label" | "nickname" => self.named_role(),
            "content" | "contents" | "body" | "text" | "message" | "description" | "note"
            | "notes" | "details" | "comment" | "remark" => Role::Content,
            "to" | "recipient" | "recipients" | "cc" | "bcc"
                if self.description.contains("mail") =>
            {
                Role::Email
            }
            _ => Role::Text,
        }
    }

    /// A `fileName` is a path; every other name is one.
    fn named_role(&self) -> Role {
        if self.words.iter().any(|it| it == "file") { Role::Path } else { Role::Name }
    }

    fn is_id(&self) -> bool {
        let last = self.words.last().map_or("", String::as_str);
        let is_named =
            matches!(last, "id" | "uuid" | "ref") || (last == "ids" && self.words.len() > 1);
        is_named || (self.says_id() && self.schema.get("format").is_none())
    }

    /// `author: the author's id` identifies an author.
    fn says_id(&self) -> bool {
        let mut said = self.description.split(|it: char| !it.is_alphanumeric() && it != '_');
        let is_first = said.by_ref().take(4).any(|it| matches!(it, "id" | "_id" | "identifier"));
        is_first && self.words.len() == 1
    }
}

/// Returns what an identifier identifies: `authorId` an author, `id` whatever the tool is about.
fn id_noun(words_of_name: &[String]) -> Option<String> {
    let rest: Vec<&String> = words_of_name
        .iter()
        .filter(|it| !matches!(it.as_str(), "id" | "uuid" | "ref" | "ids"))
        .collect();
    rest.last().map(|it| words::stem(it))
}

/// Returns where in an output the identifier of what was made is, by the output's schema.
pub(super) fn id_path(schema: &Value, noun: Option<&str>) -> Option<String> {
    let fields = output_fields(schema)?;
    let own = |name: &str| {
        let lower = words::split_identifier(name);
        lower.len() > 1
            && lower.last().is_some_and(|it| it == "id")
            && id_noun(&lower).as_deref() == noun
    };
    let direct = ["_id", "id"].into_iter().find(|it| fields.contains_key(*it));
    if let Some(name) = direct.or_else(|| fields.keys().map(String::as_str).find(|it| own(it))) {
        return Some(name.to_owned());
    }
    // One level down: `{"author": {"_id": …}}`.
    fields.iter().find_map(|(name, inner)| {
        let inner = output_fields(resolve(schema, inner, 0))?;
        let id = ["_id", "id"].into_iter().find(|it| inner.contains_key(*it))?;
        Some(format!("{name}.{id}"))
    })
}

/// Returns where in an output the value is that a computation gave; nothing for the whole output.
pub(super) fn value_path(schema: &Value) -> Option<String> {
    let fields = output_fields(schema)?;
    let known = ["result", "value", "answer", "output", "total", "text", "content"];
    let by_name = known.into_iter().find(|it| fields.contains_key(*it)).map(str::to_owned);
    by_name.or_else(|| match fields.len() {
        1 => fields.keys().next().cloned(),
        _ => None,
    })
}

/// Returns the fields of an output.
pub(super) fn output_fields(schema: &Value) -> Option<&Map<String, Value>> {
    resolve(schema, schema, 0)
        .get("properties")
        .and_then(Value::as_object)
        .filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_come_from_names_types_and_formats() {
        let schema = json!({
            "properties": {
                "bio": {"type": ["string", "null"]},
                "authorId": {"type": "string"},
                "owner": {"type": "string", "description": "The id of the owner."},
                "contact": {"type": "string", "format": "email"},
                "file_name": "string",
                "mood": {"$ref": "#/$defs/Mood"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
            "required": ["authorId"],
            "$defs": {"Mood": {"enum": ["good", "bad"]}},
        });
        let roles: Vec<(String, Role)> =
            read_all(&schema).into_iter().map(|it| (it.name, it.role)).collect();
        let expected = [
            ("authorId", Role::Id),
            ("bio", Role::Text),
            ("owner", Role::Id),
            ("contact", Role::Email),
            ("file_name", Role::Path),
            ("mood", Role::Enum),
            ("tags", Role::List),
            ("age", Role::Integer),
        ];
        assert_eq!(roles, expected.map(|(name, role)| (name.to_owned(), role)));
    }

    #[test]
    fn outputs_say_where_their_id_is() {
        for (schema, path) in [
            (json!({"properties": {"name": {}, "_id": {}}}), Some("_id")),
            (json!({"properties": {"petId": {}}}), Some("petId")),
            (json!({"properties": {"pet": {"properties": {"id": {}}}}}), Some("pet.id")),
            (json!({"type": "array"}), None),
        ] {
            assert_eq!(id_path(&schema, Some("pet")).as_deref(), path, "{schema}");
        }
    }
}
