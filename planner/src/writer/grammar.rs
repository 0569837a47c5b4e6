//! The typed form of a plan, for servers that force an answer to follow a JSON Schema. A model can
//! name only offered tools and their parameters. The size of the schema is limited.
//!
//! Small models fill optional parameters that the query does not mention. So an optional flag is
//! left out unless the query has the words of its name, and an optional date is left out if the
//! query has no digit. The model may copy parameters and values of the offline draft.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use shared::tool::ToolDefinition;

use super::tool_lines::short_name;
use crate::{Hint, catalog::Catalog};

/// Maximum number of words of a query. The parts of a longer query are not listed.
const MAX_LISTED_WORDS: usize = 60;
/// Maximum number of words of a listed part. A quoted part, and a part that reaches the end of the
/// query, may be longer.
const MAX_PART_WORDS: usize = 6;
const MAX_PARTS: usize = 500;
const MAX_FIELDS: usize = 80;
const MAX_TOOLS: usize = 40;
const MAX_STEPS: usize = 8;
const MAX_LEVELS: usize = 2;
const COMPOSED_PARAMETERS: [&str; 16] = [
    "body",
    "caption",
    "comment",
    "content",
    "description",
    "html",
    "message",
    "note",
    "prompt",
    "q",
    "query",
    "reason",
    "subject",
    "summary",
    "text",
    "title",
];
/// If the description of a parameter has one of these words, its value needs a certain format, and
/// the query may have it in another.
const FORMAT_WORDS: [&str; 6] = ["iso", "date", "time", "format", "timestamp", "e.g."];
/// If the description of a parameter has one of these words, its value is a date or a time.
const MOMENT_WORDS: [&str; 3] = ["date", "time", "timestamp"];
const NUMBER_WORDS: [&str; 13] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
];

pub(super) fn plan_schema_for_query(
    query: &str,
    hint: Option<Hint<'_>>,
    catalog: &Catalog,
) -> Option<Value> {
    let tools: Vec<&ToolDefinition> = catalog.list_plannable().map(AsRef::as_ref).collect();
    if tools.is_empty() || tools.len() > MAX_TOOLS {
        return None;
    }
    let said = SaidValues::read(query, hint);
    let steps: Vec<Value> = tools.iter().map(|tool| step_schema(tool, catalog, &said)).collect();
    let plan = object_schema(
        json!({
            "tools": { "type": "array", "minItems": 1, "maxItems": MAX_STEPS, "items": { "anyOf": steps } },
        }),
        &["tools"],
    );
    let impossible = object_schema(
        json!({ "impossible": { "type": "string", "maxLength": 200 } }),
        &["impossible"],
    );
    let mut definitions = json!({
        "copied": copied_text_schema(query, &said),
        "template": template_schema(&tools),
        "composed": { "type": "string", "maxLength": 1_000 },
        "formed": { "type": "string", "maxLength": 60 },
    });
    if !said.numbers.is_empty() {
        definitions["number"] = json!({ "enum": said.numbers });
    }
    Some(json!({ "anyOf": [plan, impossible], "$defs": definitions }))
}

/// The values of a query and of its offline draft, as far as they decide the parameters of steps.
struct SaidValues {
    words: BTreeSet<String>,
    numbers: Vec<Value>,
    has_digit: bool,
    hinted_names: BTreeSet<String>,
    hinted_texts: Vec<String>,
}

impl SaidValues {
    fn read(query: &str, hint: Option<Hint<'_>>) -> Self {
        let mut said = Self {
            words: split_words(query),
            numbers: list_numbers(query),
            has_digit: query.contains(|c: char| c.is_ascii_digit()),
            hinted_names: BTreeSet::new(),
            hinted_texts: Vec::new(),
        };
        if let Some(Hint::Draft(draft)) = hint {
            let parameters = draft.tools.iter().filter_map(|step| step.parameters.as_ref());
            parameters.for_each(|value| said.add_hint(value));
        }
        said
    }

    fn add_hint(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.hinted_names.extend(fields.keys().cloned());
                fields.values().for_each(|value| self.add_hint(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.add_hint(value)),
            Value::Number(_) if !self.numbers.contains(value) => self.numbers.push(value.clone()),
            Value::String(text) => self.hinted_texts.push(text.clone()),
            _ => {}
        }
    }

    fn may_give(&self, name: &str, schema: &Value) -> bool {
        let is_said = match schema["type"].as_str() {
            Some("boolean") => split_words(name).is_subset(&self.words),
            Some("string") => self.has_digit || !is_moment(schema),
            _ => true,
        };
        is_said || self.hinted_names.contains(name)
    }
}

/// Returns the words of a text in lower case. `reply_all` and `replyAll` have two words.
fn split_words(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut word = String::new();
    for c in text.chars() {
        let is_start = c.is_uppercase() && word.ends_with(char::is_lowercase);
        if is_start || !c.is_alphanumeric() {
            words.insert(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.push(c);
        }
    }
    words.insert(word);
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.map(|word| word.to_lowercase()).collect()
}

fn is_moment(schema: &Value) -> bool {
    let format = schema["format"].as_str().unwrap_or_default();
    let description = split_words(schema["description"].as_str().unwrap_or_default());
    ["date", "date-time", "time"].contains(&format)
        || MOMENT_WORDS.iter().any(|word| description.contains(*word))
}

fn step_schema(tool: &ToolDefinition, catalog: &Catalog, said: &SaidValues) -> Value {
    let fields = json!({
        "name": { "const": short_name(tool, catalog) },
        "parameters": parameters_schema(&tool.input_schema, MAX_LEVELS, said),
        "id": { "type": "string", "pattern": "^[a-z][a-z0-9_]{0,15}$" },
        "forEach": reference_schema("template"),
        "when": { "type": "string", "maxLength": 100 },
        "dependsOn": { "type": "array", "maxItems": 4, "items": { "type": "string", "maxLength": 40 } },
        "onError": { "enum": ["fail", "continue", "ignore"] },
    });
    object_schema(fields, &["name", "parameters"])
}

fn object_schema(fields: Value, required: &[&str]) -> Value {
    let mut schema =
        json!({ "type": "object", "required": required, "additionalProperties": false });
    schema["properties"] = fields;
    schema
}

fn reference_schema(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn parameters_schema(schema: &Value, levels: usize, said: &SaidValues) -> Value {
    let Some(fields) = schema["properties"].as_object() else {
        let is_open = schema.as_object().is_some_and(|schema| !schema.is_empty());
        return if is_open { json!({ "type": "object" }) } else { object_schema(json!({}), &[]) };
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> =
        required.filter_map(Value::as_str).filter(|name| fields.contains_key(*name)).collect();
    let listed = fields
        .iter()
        .filter(|(name, schema)| required.contains(&name.as_str()) || said.may_give(name, schema));
    let listed: Map<String, Value> = listed
        .map(|(name, schema)| (name.clone(), value_schema(name, schema, levels, said)))
        .collect();
    object_schema(Value::Object(listed), &required)
}

fn value_schema(name: &str, schema: &Value, levels: usize, said: &SaidValues) -> Value {
    if let Some(members) = schema["enum"].as_array() {
        return any_of_schema([json!({ "enum": members }), reference_schema("template")]);
    }
    match schema["type"].as_str() {
        Some("string") => match text_kind(name, schema) {
            "copied" => any_of_schema([reference_schema("copied"), reference_schema("template")]),
            kind => reference_schema(kind),
        },
        Some("integer" | "number") if said.numbers.is_empty() => reference_schema("template"),
        Some("integer" | "number") => {
            any_of_schema([reference_schema("number"), reference_schema("template")])
        }
        Some("boolean") => json!({ "type": "boolean" }),
        Some("array") => {
            let items = value_schema(name, &schema["items"], levels, said);
            let list = json!({ "type": "array", "maxItems": 10, "items": items });
            any_of_schema([list, reference_schema("template")])
        }
        Some("object") if levels > 0 => any_of_schema([
            parameters_schema(schema, levels - 1, said),
            reference_schema("template"),
        ]),
        _ => json!({}),
    }
}

fn text_kind(name: &str, schema: &Value) -> &'static str {
    let name = name.to_lowercase();
    if COMPOSED_PARAMETERS.contains(&name.as_str()) {
        return "composed";
    }
    let description = schema["description"].as_str().unwrap_or_default().to_lowercase();
    let has_form = ["format", "pattern"].iter().any(|key| schema.get(key).is_some());
    let mut words = description.split(|c: char| c.is_whitespace() || "(),;:".contains(c));
    let names_format = words.any(|word| FORMAT_WORDS.contains(&word));
    if has_form || names_format { "formed" } else { "copied" }
}

fn any_of_schema<const N: usize>(all: [Value; N]) -> Value {
    Value::from_iter([("anyOf", Value::from_iter(all))])
}

fn copied_text_schema(query: &str, said: &SaidValues) -> Value {
    let mut parts = list_parts(query);
    if parts.is_empty() {
        return json!({ "type": "string", "maxLength": 300 });
    }
    let hinted: BTreeSet<&String> = said.hinted_texts.iter().collect();
    let new: Vec<String> =
        hinted.into_iter().filter(|text| !parts.contains(text)).cloned().collect();
    parts.extend(new);
    json!({ "enum": parts })
}

fn list_parts(query: &str) -> Vec<String> {
    let words: Vec<&str> = query.split_whitespace().collect();
    if words.len() > MAX_LISTED_WORDS {
        return Vec::new();
    }
    let (mut parts, mut seen) = (Vec::new(), BTreeSet::new());
    let mut add = |text: &str| {
        let is_mark = |c: char| "\"'`“”‘’«».,;:!?()[]".contains(c);
        for text in [text, text.trim_matches(is_mark)] {
            if !text.is_empty() && parts.len() < MAX_PARTS && seen.insert(text.to_owned()) {
                parts.push(text.to_owned());
            }
        }
    };
    for mark in ['"', '\'', '`'] {
        query.split(mark).skip(1).step_by(2).for_each(&mut add);
    }
    for word in words.iter().copied() {
        add(word);
        add(word.trim_start_matches('#'));
        word.split('/').filter(|_| !word.contains("//")).for_each(&mut add);
        if let Some(owner) = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")) {
            add(owner);
        }
    }
    for length in 2..=MAX_PART_WORDS {
        words.windows(length).for_each(|words| add(&words.join(" ")));
    }
    for start in 0..words.len() {
        add(&words[start..].join(" "));
    }
    parts
}

/// Returns the numbers in the query. `1,234` is one number, but may also be two numbers.
fn list_numbers(query: &str) -> Vec<Value> {
    let lower = query.to_lowercase();
    let words = lower.split(|c: char| c.is_whitespace() || "/,;:#()".contains(c));
    let grouped = lower.split_whitespace().filter(|word| word.contains(','));
    let grouped: Vec<String> = grouped.map(|word| word.replace(',', "")).collect();
    let mut numbers: Vec<Value> = Vec::new();
    for word in words.chain(grouped.iter().map(String::as_str)) {
        let word =
            word.trim_matches(|c: char| !c.is_ascii_digit() && c != '-' && !c.is_alphabetic());
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit()).trim_start_matches('$');
        let spelt =
            NUMBER_WORDS.iter().position(|spelt| *spelt == word).map(|number| json!(number));
        let written = || serde_json::from_str::<Value>(digits).ok().filter(Value::is_number);
        numbers.extend(spelt.or_else(written).filter(|number| !numbers.contains(number)));
    }
    numbers
}

fn template_schema(tools: &[&ToolDefinition]) -> Value {
    let mut fields = BTreeSet::new();
    for schema in tools.iter().filter_map(|tool| tool.output_schema.as_ref()) {
        add_fields(schema, MAX_LEVELS, &mut fields);
    }
    let fields: Vec<String> = fields.into_iter().collect();
    let rest = if fields.is_empty() {
        "(\\.[A-Za-z0-9_]{1,40}|\\[[0-9]{1,2}\\]){0,4}".to_owned()
    } else {
        format!("(\\.({})|\\[[0-9]{{1,2}}\\]){{0,4}}", fields.join("|"))
    };
    json!({ "type": "string", "pattern": format!("^\\{{\\{{[A-Za-z][A-Za-z0-9_]{{0,39}}{rest}\\}}\\}}$") })
}

fn add_fields(schema: &Value, levels: usize, fields: &mut BTreeSet<String>) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if fields.len() < MAX_FIELDS && !name.is_empty() && name.chars().all(is_plain) {
            fields.insert(name.clone());
        }
        if levels > 0 {
            add_fields(schema, levels - 1, fields);
        }
    }
    if levels > 0 && schema["items"].is_object() {
        add_fields(&schema["items"], levels - 1, fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        draft::Draft,
        writer::tests::{catalog_with_tool, make_catalog},
    };

    #[test]
    fn a_value_is_a_part_of_the_query() {
        let parts = list_parts("Close issue #7 of acme/site, saying \"all done\" to Ann's team.");
        for expected in ["7", "acme", "site", "acme/site", "all done", "Ann", "Ann's team", "issue"]
        {
            assert!(parts.iter().any(|part| part == expected), "{expected}: {parts:?}");
        }
        assert!(!parts.iter().any(|part| part == "Bob"));
        assert!(list_parts(&"word ".repeat(MAX_LISTED_WORDS + 1)).is_empty());
        let long: Vec<String> = (0..MAX_LISTED_WORDS).map(|index| format!("w{index}")).collect();
        assert!(list_parts(&long.join(" ")).len() <= MAX_PARTS);
    }

    #[test]
    fn a_number_is_copied_from_the_query() {
        for (query, expected) in [
            ("reserve 2 of them, then three; price 1.5 or $9", json!([2, 3, 1.5, 9])),
            ("issue #42 at 7pm", json!([42, 7])),
            ("nothing", json!([])),
            ("pay 1,234, then 5", json!([1, 234, 5, 1234])),
        ] {
            assert_eq!(json!(list_numbers(query)), expected, "{query}");
        }
    }

    #[test]
    fn a_step_names_an_offered_tool_with_its_parameters() {
        let form = plan_schema_for_query("create Al", None, &make_catalog()).unwrap();
        let steps = form["anyOf"][0]["properties"]["tools"]["items"]["anyOf"].as_array().unwrap();
        let names: Vec<&Value> =
            steps.iter().map(|step| &step["properties"]["name"]["const"]).collect();
        assert_eq!(names, ["createAuthor", "createBlog", "listAuthors"]);
        let blog = &steps[1]["properties"]["parameters"];
        assert_eq!(blog["required"], json!(["authorId", "title", "content"]));
        assert_eq!(blog["properties"]["content"], reference_schema("composed"));
        assert_eq!(blog["properties"]["authorId"]["anyOf"][0], reference_schema("copied"));
        assert_eq!(blog["additionalProperties"], false);
    }

    #[test]
    fn an_optional_parameter_is_left_out_if_the_query_says_no_value() {
        let properties = json!({
            "unread": { "type": "boolean" },
            "reply_all": { "type": "boolean" },
            "isNew": { "type": "boolean" },
            "since": { "type": "string", "description": "Only mail after this date" },
            "limit": { "type": "integer" },
            "from": { "type": "string" },
        });
        for (query, required, expected) in [
            ("show mail of Ann", json!([]), "limit from"),
            ("show Unread mail", json!([]), "unread limit from"),
            ("reply to m_5", json!([]), "since limit from"),
            ("reply to all, is it new?", json!([]), "reply_all isNew limit from"),
            ("show mail", json!(["unread", "since"]), "unread since limit from"),
        ] {
            let input = json!({ "properties": properties, "required": required });
            let catalog = catalog_with_tool("", input, None);
            let schema = plan_schema_for_query(query, None, &catalog).unwrap();
            let step = &schema["anyOf"][0]["properties"]["tools"]["items"]["anyOf"][0];
            let listed = step["properties"]["parameters"]["properties"].as_object().unwrap();
            let names: Vec<&str> = listed.keys().map(String::as_str).collect();
            assert_eq!(names.join(" "), expected, "{query}");
        }
    }

    #[test]
    fn a_model_may_copy_the_values_of_the_hint() {
        let input = json!({ "properties": {
            "isNew": { "type": "boolean" }, "count": { "type": "integer" }, "path": { "type": "string" },
        } });
        let parameters = json!({ "isNew": true, "count": 12, "path": "/data/a.txt" });
        let hint: Draft = serde_json::from_value(
            json!({ "tools": [{ "name": "make", "parameters": parameters }] }),
        )
        .unwrap();
        let catalog = catalog_with_tool("", input, None);
        let schema =
            plan_schema_for_query("save a dozen", Some(Hint::Draft(&hint)), &catalog).unwrap();
        let step = &schema["anyOf"][0]["properties"]["tools"]["items"]["anyOf"][0];
        assert!(step["properties"]["parameters"]["properties"]["isNew"].is_object());
        assert_eq!(schema["$defs"]["number"]["enum"], json!([12]));
        let parts = schema["$defs"]["copied"]["enum"].as_array().unwrap();
        assert!(
            parts.contains(&json!("/data/a.txt")) && parts.contains(&json!("dozen")),
            "{parts:?}"
        );
    }

    #[test]
    fn a_query_without_a_number_gives_no_number() {
        let input =
            json!({ "properties": { "minutes": { "type": "integer" } }, "required": ["minutes"] });
        for (query, expected) in [
            ("set a timer", reference_schema("template")),
            (
                "set a timer for 5",
                any_of_schema([reference_schema("number"), reference_schema("template")]),
            ),
        ] {
            let schema =
                plan_schema_for_query(query, None, &catalog_with_tool("", input.clone(), None))
                    .unwrap();
            let step = &schema["anyOf"][0]["properties"]["tools"]["items"]["anyOf"][0];
            assert_eq!(
                step["properties"]["parameters"]["properties"]["minutes"], expected,
                "{query}"
            );
            let has_numbers = schema["$defs"].get("number").is_some();
            assert_eq!(has_numbers, expected != reference_schema("template"));
        }
    }

    #[test]
    fn a_template_names_output_fields() {
        let output = json!({ "properties": { "list": { "type": "array", "items": {
            "properties": { "id": {}, "odd name": {} } } } } });
        let form =
            plan_schema_for_query("x", None, &catalog_with_tool("", json!({}), Some(output)))
                .unwrap();
        let pattern = form["$defs"]["template"]["pattern"].as_str().unwrap();
        assert_eq!(
            pattern,
            r"^\{\{[A-Za-z][A-Za-z0-9_]{0,39}(\.(id|list)|\[[0-9]{1,2}\]){0,4}\}\}$"
        );
    }
}
