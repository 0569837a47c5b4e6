use expect_test::expect;
use serde_json::json;
use shared::tool::ToolDefinition;

use super::{CallFormat::Simple, calls_as_json, check_none, tools};
use crate::calls::{
    prompt::{format_tool_result, tool_prompt},
    schemas::{schemas_for, tool_schema},
};

#[test]
fn the_tool_prompt_matches_its_golden_text() {
    let tools = [
        tools::parse_definition("file_tools.glob", "pattern:s! path:s"),
        tools::parse_definition("a.b", "n:i"),
    ];
    expect![[r#"
        You have access to the following tools:

        - file_tools.glob
          Does glob.
            pattern (string, required): What `pattern` is.
            path (string, optional)
        - a.b
          Does b.
            n (integer, default 5)

        To use a tool, format your response like this:
        TOOL: tool_name ARGS: {"arg1": "value1", "arg2": "value2"}

        For example:
        TOOL: file_tools.glob ARGS: {"pattern": "*.py", "path": "/home/user"}

        After using a tool, you'll receive the results and can provide a final answer to the user.
        Always use tools when they can help answer the user's question more accurately."#]]
    .assert_eq(&tool_prompt(&tools, ToolDefinition::qualified_name));
    assert_eq!(tool_prompt([], ToolDefinition::qualified_name), "");
}

#[test]
fn the_example_is_a_call_of_one_of_the_tools() {
    let tools = tools::definitions();
    let example = json!([["file_tools.glob", { "pattern": "*.py", "path": "/home/user" }, Simple]]);
    assert_eq!(calls_as_json(&tool_prompt(&tools, ToolDefinition::qualified_name)), example);
    let web = tools.iter().filter(|tool| tool.set.as_str() == "web_tools");
    let example =
        json!([["web_tools.docs_search", { "library": "library", "query": "query" }, Simple]]);
    assert_eq!(calls_as_json(&tool_prompt(web, ToolDefinition::qualified_name)), example);
}

#[test]
fn a_tool_result_is_reported_in_the_expected_form() {
    expect![[r"
        Tool execution successful:
        Tool: file_tools.glob
        Result: Found 1 file(s)
          a.py

        Please provide a final response to the user based on this tool output."]]
    .assert_eq(&format_tool_result("file_tools.glob", Ok("Found 1 file(s)\n  a.py")));
    expect![[r"
        Tool execution failed:
        Tool: nonexistent_tool.fake
        Error: Tool not found: nonexistent_tool.fake

        Please provide an alternative response or try a different approach."]]
    .assert_eq(&format_tool_result(
        "nonexistent_tool.fake",
        Err("Tool not found: nonexistent_tool.fake"),
    ));
    assert!(format_tool_result("a", Err("")).contains("\nError: Unknown error\n"));
}

#[test]
fn a_repeated_result_report_is_no_call() {
    let result = "x\n\nTOOL: tree ARGS: {}\n{\"tool\": \"tree\", \"args\": {}}";
    for report in [
        format_tool_result("file_tools.glob", Ok(result)),
        format_tool_result("file_tools.glob", Err(result)),
    ] {
        check_none(&report);
        check_none(&format!("You said:\n> {report}"));
        let text = format!("{report}\nTOOL: system_tools.system_info ARGS: {{}}");
        assert_eq!(calls_as_json(&text), json!([["system_tools.system_info", {}, Simple]]));
    }
    check_none("Tool: file_tools.glob\nResult: 1");
    check_none("Action: tree");
    let text = "Tool execution failed: I try again.\nTOOL: tree ARGS: {}";
    assert_eq!(calls_as_json(text), json!([["file_tools.tree", {}, Simple]]));
}

#[test]
fn a_capability_selects_its_toolsets() {
    let tools = tools::definitions();
    for (capabilities, count) in [
        (&["code_writing"][..], 9),
        (&["debugging"], 16),
        (&["research"], 6),
        (&["planning"], 0),
        (&["system_operations"], 12),
        (&["security"], 13),
        (&["research", "code_writing", "code_writing"], 15),
        (&["dancing"], 0),
        (&[], 29),
    ] {
        assert_eq!(
            schemas_for(capabilities, &tools, ToolDefinition::qualified_name).len(),
            count,
            "{capabilities:?}"
        );
    }
}

#[test]
fn a_tool_schema_describes_each_parameter() {
    let tool = tools::parse_definition("file_tools.grep", "pattern:s! path:s context_lines:i x:?");
    expect![[r#"
        {
          "name": "file_tools.grep",
          "description": "Does grep.",
          "parameters": {
            "pattern": {
              "type": "string",
              "required": true,
              "default": null,
              "description": "What `pattern` is."
            },
            "path": {
              "type": "string",
              "required": false,
              "default": null,
              "description": ""
            },
            "context_lines": {
              "type": "integer",
              "required": false,
              "default": 5,
              "description": ""
            },
            "x": {
              "type": "any",
              "required": false,
              "default": null,
              "description": ""
            }
          }
        }"#]]
    .assert_eq(
        &serde_json::to_string_pretty(&tool_schema(&tool.qualified_name(), &tool)).expect("JSON"),
    );
}

fn definition_with_schema(schema: serde_json::Value) -> shared::tool::ToolDefinition {
    shared::tool::ToolDefinition { input_schema: schema, ..tools::parse_definition("a.b", "") }
}

#[test]
fn the_example_in_the_prompt_fits_the_schema() {
    let of = |name: &str, schema| json!({ "properties": { name: schema }, "required": [name] });
    for schema in [
        of(
            "o",
            json!({ "type": "object", "required": ["k"], "properties": { "k": { "type": "integer" } } }),
        ),
        json!({
            "$defs": { "D": { "type": "object", "required": ["e"], "properties": { "e": { "$ref": "#/$defs/E" } } },
                       "E": { "enum": ["x", "y"] } },
            "properties": { "p": { "$ref": "#/$defs/D" } }, "required": ["p"],
        }),
        of("n", json!({ "type": "integer", "minimum": 100 })),
        of("n", json!({ "type": "number", "exclusiveMaximum": -5, "multipleOf": 2 })),
        of("s", json!({ "type": "string", "minLength": 10 })),
        of("s", json!({ "type": "string", "pattern": "^[0-9]{4}$" })),
        of(
            "l",
            json!({ "type": "array", "minItems": 2, "uniqueItems": true, "items": { "type": "string" } }),
        ),
        json!({
            "properties": { "a": { "type": "integer" }, "b": { "type": "string" } },
            "anyOf": [{ "required": ["a"] }, { "required": ["b"] }],
        }),
        of("x", json!({ "oneOf": [{ "type": "integer", "minimum": 5 }, { "const": "v" }] })),
        of(
            "x",
            json!({ "allOf": [{ "type": "object", "required": ["a"] }, { "properties": { "a": { "const": 7 } } }] }),
        ),
    ] {
        let prompt =
            tool_prompt([&definition_with_schema(schema.clone())], ToolDefinition::qualified_name);
        let line = prompt.lines().find_map(|line| line.strip_prefix("TOOL: a.b ARGS: "));
        let args =
            serde_json::from_str(line.unwrap_or_else(|| panic!("{schema}: {prompt}"))).unwrap();
        let valid = shared::schema::Schema::new(&schema).unwrap();
        assert_eq!(valid.complaint(&args), None, "{schema}: {args}");
    }
}

#[test]
fn a_tool_without_a_valid_sample_is_no_example() {
    let never = definition_with_schema(json!({
        "properties": { "p": { "type": "string", "pattern": "^x-[0-9]{3}!{2}$" } }, "required": ["p"],
    }));
    let prompt = tool_prompt([&never], ToolDefinition::qualified_name);
    assert!(!prompt.contains("For example"), "{prompt}");
    assert!(prompt.contains("\"value2\"}\n\nAfter using"), "{prompt}");
    let other = tools::parse_definition("c.d", "n:i");
    assert!(
        tool_prompt([&never, &other], ToolDefinition::qualified_name)
            .contains("For example:\nTOOL: c.d ARGS: {}")
    );
}

#[test]
fn nested_parameters_are_described_in_the_prompt() {
    let tool = definition_with_schema(json!({
        "$defs": {
            "Place": { "type": "object", "description": "Where.", "required": ["at"],
                       "properties": { "at": { "$ref": "#/$defs/Point" }, "next": { "$ref": "#/$defs/Place" } } },
            "Point": { "type": "array", "items": { "type": "number" } },
        },
        "properties": {
            "place": { "$ref": "#/$defs/Place" },
            "tags": { "type": "array", "items": { "type": "object", "properties": { "t": { "enum": [1, 2] } } } },
        },
        "required": ["place"],
    }));
    let prompt = tool_prompt([&tool], ToolDefinition::qualified_name);
    let lines: Vec<&str> = prompt.lines().filter(|line| line.starts_with("    ")).collect();
    let expected = [
        "    place (object, required): Where.",
        "      at (array, required)",
        "        each item (number, required)",
        "      next (object, optional): Where.",
        "        at (array, required)",
        "        next (object, optional): Where.",
        "    tags (array, optional)",
        "      each item (object, required)",
        "        t (any, optional), one of 1, 2",
    ];
    assert_eq!(lines, expected);
}

/// Every field of an example requires ten other fields.
#[test]
fn an_example_of_recursive_schemas_stays_small() {
    let fields: serde_json::Map<_, _> =
        (0..10).map(|index| (format!("f{index}"), json!({ "$ref": "#/$defs/n" }))).collect();
    let required: Vec<_> = fields.keys().cloned().collect();
    let node = json!({ "type": "object", "properties": fields, "required": required });
    let schema = json!({ "$ref": "#/$defs/n", "properties": fields, "required": required, "type": "object", "$defs": { "n": node } });
    let prompt =
        tool_prompt([&definition_with_schema(schema.clone())], ToolDefinition::qualified_name);
    assert!(prompt.len() < 1 << 20, "{}", prompt.len());
    let mut wide = schema;
    wide["properties"] = (0..5_000)
        .map(|n| (format!("f{n}"), json!({ "$ref": "#/$defs/n" })))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let prompt = tool_prompt([&definition_with_schema(wide)], ToolDefinition::qualified_name);
    assert!(prompt.lines().count() < 2_100, "{}", prompt.lines().count());
}
