//! The typed form of a plan, for servers that force an answer to follow a JSON Schema. A model can
//! name only offered tools and their parameters. The size of the schema is limited.
//!
//! Small models fill optional parameters that the query does not mention. So an optional flag is
//! left out unless the query has the words of its name, and an optional date is left out if the
//! query has no digit. The model may copy parameters and values of the offline draft.

mod said;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use shared::tool::ToolDefinition;

use self::said::{SaidValues, list_parts};
use super::tool_lines::short_name;
use crate::{Hint, catalog::Catalog};

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
        "list_template": list_template_schema(&tools),
        "composed": { "type": "string", "maxLength": 1_000 },
        "formed": { "type": "string", "maxLength": 60 },
    });
    if !said.numbers.is_empty() {
        definitions["number"] = json!({ "enum": said.numbers });
    }
    Some(json!({ "anyOf": [plan, impossible], "$defs": definitions }))
}

fn step_schema(tool: &ToolDefinition, catalog: &Catalog, said: &SaidValues) -> Value {
    let fields = json!({
        "name": { "const": short_name(tool, catalog) },
        "parameters": parameters_schema(&tool.input_schema, MAX_LEVELS, said),
        "id": { "type": "string", "pattern": "^[a-z][a-z0-9_]{0,15}$" },
        "forEach": reference_schema("list_template"),
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
            any_of_schema([list, reference_schema("list_template")])
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

fn template_schema(tools: &[&ToolDefinition]) -> Value {
    let fields = list_fields(tools, |_| true);
    let rest = if fields.is_empty() {
        "(\\.[A-Za-z0-9_]{1,40}|\\[[0-9]{1,2}\\]){0,4}".to_owned()
    } else {
        format!("(\\.({})|\\[[0-9]{{1,2}}\\]){{0,4}}", fields.join("|"))
    };
    json!({ "type": "string", "pattern": format!("^\\{{\\{{[A-Za-z][A-Za-z0-9_]{{0,39}}{rest}\\}}\\}}$") })
}

/// Returns a schema of templates of lists. Small models write a template of one value where a list
/// belongs.
fn list_template_schema(tools: &[&ToolDefinition]) -> Value {
    let lists = list_fields(tools, is_list);
    if lists.is_empty() {
        return template_schema(tools);
    }
    let (fields, lists) = (list_fields(tools, |_| true).join("|"), lists.join("|"));
    let path = format!("(\\.({fields})|\\[[0-9]{{1,2}}\\]){{0,3}}\\.({lists})");
    let may_be_list = |tool: &&ToolDefinition| tool.output_schema.as_ref().is_none_or(is_list);
    let path = if tools.iter().any(may_be_list) { format!("({path})?") } else { path };
    let start = "[A-Za-z][A-Za-z0-9_]{0,39}";
    json!({ "type": "string", "pattern": format!("^\\{{\\{{{start}{path}\\}}\\}}$") })
}

fn is_list(schema: &Value) -> bool {
    schema["items"].is_object() || schema["type"] == "array"
}

/// Returns the names of the output fields whose schemas `is_wanted` accepts.
fn list_fields(tools: &[&ToolDefinition], is_wanted: fn(&Value) -> bool) -> Vec<String> {
    let mut fields = BTreeSet::new();
    for schema in tools.iter().filter_map(|tool| tool.output_schema.as_ref()) {
        add_fields(schema, MAX_LEVELS, is_wanted, &mut fields);
    }
    fields.into_iter().collect()
}

fn add_fields(
    schema: &Value,
    levels: usize,
    is_wanted: fn(&Value) -> bool,
    fields: &mut BTreeSet<String>,
) {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_name = !name.is_empty() && name.chars().all(is_plain);
        if fields.len() < MAX_FIELDS && is_name && is_wanted(schema) {
            fields.insert(name.clone());
        }
        if levels > 0 {
            add_fields(schema, levels - 1, is_wanted, fields);
        }
    }
    if levels > 0 && schema["items"].is_object() {
        add_fields(&schema["items"], levels - 1, is_wanted, fields);
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
        let pattern = form["$defs"]["list_template"]["pattern"].as_str().unwrap();
        assert_eq!(
            pattern,
            r"^\{\{[A-Za-z][A-Za-z0-9_]{0,39}(\.(id|list)|\[[0-9]{1,2}\]){0,3}\.(list)\}\}$"
        );
        let form = plan_schema_for_query("x", None, &make_catalog()).unwrap();
        let definitions = &form["$defs"];
        assert_eq!(definitions["list_template"], definitions["template"], "unknown outputs");
    }
}
