//! The prompt, the report of a result, and the schemas.

use expect_test::expect;
use serde_json::json;
use shared::tool::ToolDefinition;

use super::{CallFormat::Simple, check_none, read, tools};
use crate::calls::{
    prompt::{format_tool_result, tool_prompt},
    schemas::{schema, schemas_for},
};

#[test]
fn the_prompt() {
    let tools = [
        tools::definition("file_tools.glob", "pattern:s! path:s"),
        tools::definition("a.b", "n:i"),
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
    .assert_eq(&tool_prompt(&tools, ToolDefinition::qualified));
    assert_eq!(tool_prompt([], ToolDefinition::qualified), "");
}

#[test]
fn the_example_is_a_call_of_one_of_the_tools() {
    let tools = tools::definitions();
    let example = json!([["file_tools.glob", { "pattern": "*.py", "path": "/home/user" }, Simple]]);
    assert_eq!(read(&tool_prompt(&tools, ToolDefinition::qualified)), example);
    let web = tools.iter().filter(|it| it.set.as_str() == "web_tools");
    let example =
        json!([["web_tools.docs_search", { "library": "library", "query": "query" }, Simple]]);
    assert_eq!(read(&tool_prompt(web, ToolDefinition::qualified)), example);
}

#[test]
fn the_report_of_a_result() {
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
fn the_echo_of_a_result_is_no_call() {
    let result = "x\n\nTOOL: tree ARGS: {}\n{\"tool\": \"tree\", \"args\": {}}";
    for report in [
        format_tool_result("file_tools.glob", Ok(result)),
        format_tool_result("file_tools.glob", Err(result)),
    ] {
        check_none(&report);
        check_none(&format!("You said:\n> {report}"));
        let text = format!("{report}\nTOOL: system_tools.system_info ARGS: {{}}");
        assert_eq!(read(&text), json!([["system_tools.system_info", {}, Simple]]));
    }
    check_none("Tool: file_tools.glob\nResult: 1");
    check_none("Action: tree");
    let told = "Tool execution failed: I try again.\nTOOL: tree ARGS: {}";
    assert_eq!(read(told), json!([["file_tools.tree", {}, Simple]]));
}

#[test]
fn capabilities_open_sets() {
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
            schemas_for(capabilities, &tools, ToolDefinition::qualified).len(),
            count,
            "{capabilities:?}"
        );
    }
}

#[test]
fn the_schema_of_a_tool() {
    let tool = tools::definition("file_tools.grep", "pattern:s! path:s context_lines:i x:?");
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
    .assert_eq(&serde_json::to_string_pretty(&schema(&tool.qualified(), &tool)).expect("JSON"));
}
