//! The typed form of a plan, for servers that force an answer to follow a JSON Schema. A model can
//! name only offered tools and their parameters. The size of the schema is limited.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use shared::tool::ToolDefinition;

use super::tool_lines::short_name;
use crate::catalog::Catalog;

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
const NUMBER_WORDS: [&str; 13] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
];

pub(super) fn plan_schema_for_query(query: &str, catalog: &Catalog) -> Option<Value> {
    let tools: Vec<&ToolDefinition> = catalog.list_plannable().map(AsRef::as_ref).collect();
    if tools.is_empty() || tools.len() > MAX_TOOLS {
        return None;
    }
    let steps: Vec<Value> = tools.iter().map(|tool| step_schema(tool, catalog)).collect();
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
    Some(json!({
        "anyOf": [plan, impossible],
        "$defs": {
            "copied": copied_text_schema(query),
            "number": copied_number_schema(query),
            "template": template_schema(&tools),
            "composed": { "type": "string", "maxLength": 1_000 },
            "formed": { "type": "string", "maxLength": 60 },
        },
    }))
}

fn step_schema(tool: &ToolDefinition, catalog: &Catalog) -> Value {
    let fields = json!({
        "name": { "const": short_name(tool, catalog) },
        "parameters": parameters_schema(&tool.input_schema, MAX_LEVELS),
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

fn parameters_schema(schema: &Value, levels: usize) -> Value {
    let Some(fields) = schema["properties"].as_object() else {
        let is_open = schema.as_object().is_some_and(|schema| !schema.is_empty());
        return if is_open { json!({ "type": "object" }) } else { object_schema(json!({}), &[]) };
    };
    let listed =
        fields.iter().map(|(name, schema)| (name.clone(), value_schema(name, schema, levels)));
    let listed: Map<String, Value> = listed.collect();
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> =
        required.filter_map(Value::as_str).filter(|name| fields.contains_key(*name)).collect();
    object_schema(Value::Object(listed), &required)
}

fn value_schema(name: &str, schema: &Value, levels: usize) -> Value {
    if let Some(members) = schema["enum"].as_array() {
        return any_of_schema([json!({ "enum": members }), reference_schema("template")]);
    }
    match schema["type"].as_str() {
        Some("string") => match text_kind(name, schema) {
            "copied" => any_of_schema([reference_schema("copied"), reference_schema("template")]),
            kind => reference_schema(kind),
        },
        Some("integer" | "number") => {
            any_of_schema([reference_schema("number"), reference_schema("template")])
        }
        Some("boolean") => json!({ "type": "boolean" }),
        Some("array") => {
            let items = value_schema(name, &schema["items"], levels);
            let list = json!({ "type": "array", "maxItems": 10, "items": items });
            any_of_schema([list, reference_schema("template")])
        }
        Some("object") if levels > 0 => {
            any_of_schema([parameters_schema(schema, levels - 1), reference_schema("template")])
        }
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

fn copied_text_schema(query: &str) -> Value {
    let parts = list_parts(query);
    if parts.is_empty() {
        json!({ "type": "string", "maxLength": 300 })
    } else {
        json!({ "enum": parts })
    }
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

/// Returns a schema of the numbers in the query, or of the number 1 if there are none. `1,234` is
/// one number, but may also be two numbers.
fn copied_number_schema(query: &str) -> Value {
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
    if numbers.is_empty() { json!({ "enum": [1] }) } else { json!({ "enum": numbers }) }
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
    use crate::writer::tests::{catalog_with_tool, make_catalog};

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
            ("nothing", json!([1])),
            ("pay 1,234, then 5", json!([1, 234, 5, 1234])),
        ] {
            assert_eq!(copied_number_schema(query)["enum"], expected, "{query}");
        }
    }

    #[test]
    fn a_step_names_an_offered_tool_with_its_parameters() {
        let form = plan_schema_for_query("create Al", &make_catalog()).unwrap();
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
    fn a_template_names_output_fields() {
        let output = json!({ "properties": { "list": { "type": "array", "items": {
            "properties": { "id": {}, "odd name": {} } } } } });
        let form =
            plan_schema_for_query("x", &catalog_with_tool("", json!({}), Some(output))).unwrap();
        let pattern = form["$defs"]["template"]["pattern"].as_str().unwrap();
        assert_eq!(
            pattern,
            r"^\{\{[A-Za-z][A-Za-z0-9_]{0,39}(\.(id|list)|\[[0-9]{1,2}\]){0,4}\}\}$"
        );
    }
}
